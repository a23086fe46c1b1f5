"""Two pieces of work at the same time, and motions whose changes are worked out so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numba
import numpy as np
import pytest
from threads import so_many_threads

from soft_estimator.backends.cpu import CpuBackend, side_by_side

BACKEND = CpuBackend()


@contextmanager
def two_threads() -> Iterator[None]:
    """Where the machine and the layer of threads have them."""
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("one thread only")
    with so_many_threads(2):
        BACKEND.rotations(np.zeros((8, 3)), np.arange(8)[None], 0.01, np.empty((1, 9)))  # a layer is chosen with a loop
        if numba.threading_layer() not in side_by_side._LAYERS:
            pytest.skip(f"{numba.threading_layer()} runs no two loops at a time")
        yield


def test_each_waits_for_the_other() -> None:
    """They would wait for ever one after the other."""
    meet = threading.Barrier(2, timeout=20.0)
    with two_threads():
        threads = BACKEND.beside(
            lambda: (meet.wait(), numba.get_num_threads())[1], lambda: (meet.wait(), numba.get_num_threads())[1]
        )
        assert threads == (1, 1) and numba.get_num_threads() == 2


def test_one_thread_does_one_after_the_other() -> None:
    order: list[int] = []
    with so_many_threads(1):
        assert BACKEND.beside(lambda: order.append(1), lambda: order.append(2)) == (None, None)
    assert order == [1, 2]


@pytest.mark.parametrize("fails", [(True, False), (False, True), (True, True)])
def test_the_first_error_is_told_and_both_have_ended(fails: tuple[bool, bool]) -> None:
    ended = []

    def work(k: int) -> None:
        ended.append(k)
        if fails[k]:
            raise ValueError(f"work {k}")

    with two_threads():
        with pytest.raises(ValueError, match=f"work {fails.index(True)}"):
            BACKEND.beside(lambda: work(0), lambda: work(1))
        assert sorted(ended) == [0, 1] and numba.get_num_threads() == 2


def test_a_core_is_left_and_the_last_one_kept() -> None:
    with so_many_threads(2):
        before = numba.get_num_threads()
        side_by_side.leave_a_core()
        assert numba.get_num_threads() == max(1, before - 1)
        side_by_side.leave_a_core()
        assert numba.get_num_threads() == 1
