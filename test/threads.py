"""Numba's threads, for tests that compare what different numbers of them give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba


@contextmanager
def so_many_threads(count: int) -> Iterator[None]:
    """As many as there are, at most."""
    before = numba.get_num_threads()
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        numba.set_num_threads(before)
