"""What was worked out last is not worked out again while it is asked for the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Newest(Generic[T]):
    """The newest value of a function, by what it was made of: numbers and bytes that are equal, objects that are the
    same and that nobody changes. It is no part of a state that is written: there it is empty."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._value: list[T] = []

    def __reduce__(self) -> tuple[type[Newest[T]], tuple[()]]:
        return type(self), ()

    def of(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """The value of a key, made where it is not that of the last one."""
        if not _alike(key, self._of):
            self._of, self._value = key, [make()]
        return self._value[0]


def _alike(key: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(key) == len(other) and all(map(_same, key, other))


def _same(a: object, b: object) -> bool:
    return a is b or (isinstance(a, float | bytes) and isinstance(b, float | bytes) and a == b)


class NewestOfEach(Generic[T]):
    """The same for the members of a list: those of the last one are known. The first object of a key is the member's
    own."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[object, ...], T]] = {}

    def __reduce__(self) -> tuple[type[NewestOfEach[T]], tuple[()]]:
        return type(self), ()

    def of(self, keys: Sequence[tuple[object, ...]], make: Callable[[int], T]) -> list[T]:
        """The values of keys; make: of the k-th, where it was not in the last list."""
        made = []
        for k, key in enumerate(keys):
            known = self._known.get(id(key[0]))
            made.append((key, known[1] if known is not None and _alike(key, known[0]) else make(k)))
        self._known = {id(key[0]): (key, value) for key, value in made}
        return [value for _, value in made]
