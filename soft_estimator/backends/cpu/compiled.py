"""Numba's compiler, with types: a compiled loop has the signature it was written with, and is checked by it.

Numba itself carries no types; without this, every loop would be `Any` to the type checker.

A loop over threads takes three times as long to compile as the same loop without: all that stands in it is optimised
three times over. So large loops are compiled without threads for bodies too small for several (`by_size`). What decides
is the size alone, never the number of threads: the bits stay the same for any.

Loops that may fuse multiplications and additions are compiled into every loop that calls them. Else a process that
compiles them calls them as they were compiled by themselves, one that loads its loops from the disk as they were
compiled into the first of those, and the compiler does not fuse the same sums in both: other last digits.

Two more things that cost: the first assignment of an array to an array in a process takes three seconds (the words of
its error are compiled with it), and a call with a constant True compiles the callee for that constant alone.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numba

# Rows below which a loop is shorter than waking a second thread: those of microseconds each, and of a fraction of one.
FEW_CELLS = 400
ONE_THREAD_BELOW = 3000
# Cells that one thread does in a row with the same small arrays: made anew for each, they took a sixth of a loop.
CHUNK_OF_CELLS = 64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    Loop = TypeVar("Loop", bound=Callable[..., object])

    def by_size(
        *, rows: int, below: int = ONE_THREAD_BELOW, fastmath: set[str] | bool = False
    ) -> Callable[[Loop], Loop]: ...

    def njit(
        *, parallel: bool = False, cache: bool = False, fastmath: set[str] | bool = False, inline: str = "never"
    ) -> Callable[[Loop], Loop]: ...

    prange = range
else:
    from numba import prange

    def njit(*, parallel=False, fastmath=False, **how):
        """Numba's own, with the loops that may fuse compiled into those that call them; other threads go on beside."""
        inlined = bool(fastmath) and not parallel
        return numba.njit(parallel=parallel, fastmath=fastmath, forceinline=inlined, nogil=True, **how)

    def by_size(*, rows, below=ONE_THREAD_BELOW, fastmath=False):
        """A loop over threads, and the same loop without for few rows; rows: which argument has as many as there are.

        below: what is few; less where a row takes long. For loops that are called from Python.
        """

        def compiled(loop):
            many = njit(parallel=True, cache=True, fastmath=fastmath)(loop)
            few = njit(cache=True, fastmath=fastmath)(_named(loop, f"{loop.__name__}_on_one_thread"))

            @wraps(loop)
            def chosen(*arguments: Any) -> Any:
                return (few if len(arguments[rows]) < below else many)(*arguments)

            chosen.py_func = loop
            return chosen

        return compiled


def _named(loop: FunctionType, name: str) -> FunctionType:
    """The same function by another name, under which its compiled code is kept on disk."""
    out = FunctionType(loop.__code__, loop.__globals__, name, loop.__defaults__, loop.__closure__)
    out.__qualname__, out.__module__, out.__doc__ = name, loop.__module__, loop.__doc__
    return out


@contextmanager
def fitting_threads(rows: int) -> Iterator[None]:
    """One thread for few rows, also in the loops over threads that are called from within."""
    before = numba.get_num_threads()
    if before == 1 or rows >= ONE_THREAD_BELOW:
        yield
        return
    numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(before)


__all__ = ["CHUNK_OF_CELLS", "FEW_CELLS", "ONE_THREAD_BELOW", "by_size", "fitting_threads", "njit", "prange"]
