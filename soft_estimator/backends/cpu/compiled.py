"""Numba's compiler, with types: a compiled loop has the signature it was written with, and is checked by it.

Numba itself carries no types; without this, every loop would be `Any` to the type checker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Loop = TypeVar("Loop", bound=Callable[..., object])

    def njit(
        *, parallel: bool = False, cache: bool = False, fastmath: set[str] | bool = False, inline: str = "never"
    ) -> Callable[[Loop], Loop]: ...

    prange = range
else:
    from numba import njit, prange

__all__ = ["njit", "prange"]
