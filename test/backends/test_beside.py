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


def test_the_next_is_made_while_the_last_is_followed_up() -> None:
    """They would wait for ever one after the other; the order stays."""
    second, seen = threading.Event(), []

    def make() -> Iterator[int]:
        yield 0
        second.set()
        yield from (1, 2)

    def follow(item: int) -> None:
        assert item > 0 or second.wait(20.0)
        seen.append((item, numba.get_num_threads()))

    with two_threads():
        BACKEND.followed(make(), follow)
        assert seen == [(0, 1), (1, 1), (2, 1)] and numba.get_num_threads() == 2


@pytest.mark.parametrize("rows", [0, 10**6])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_followed_up_one_after_the_other(threads: int, rows: int) -> None:
    """With one thread, or where loops over many rows have work for all of them; at the same time it is the same."""
    order: list[tuple[str, int]] = []
    with so_many_threads(threads):
        BACKEND.followed(
            ((order.append(("made", k)), k)[1] for k in range(3)), lambda k: order.append(("seen", k)), rows
        )
    assert [k for what, k in order if what == "made"] == [k for what, k in order if what == "seen"] == [0, 1, 2]
    if threads == 1 or rows:
        assert order == [(what, k) for k in range(3) for what in ("made", "seen")]


@pytest.mark.parametrize("threads", [1, 2])
def test_making_fails_after_all_before_was_followed_up(threads: int) -> None:
    seen: list[int] = []

    def make() -> Iterator[int]:
        yield from range(5)
        raise ValueError("step 5")

    with so_many_threads(threads):
        with pytest.raises(ValueError, match="step 5"):
            BACKEND.followed(make(), seen.append)
        assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("threads", [1, 2])
def test_nothing_is_made_for_long_once_following_failed(threads: int) -> None:
    """That error is told, even where making would have failed next; of what was made no more is followed up."""
    made: list[int] = []

    def make() -> Iterator[int]:
        for k in range(100):
            made.append(k)
            if k == 9:
                raise ValueError("step 9")
            yield k

    def follow(item: int) -> None:
        if item == 3:
            raise ValueError("look 3")
        assert item < 3

    with so_many_threads(threads):
        with pytest.raises(ValueError, match="look 3"):
            BACKEND.followed(make(), follow)
        assert len(made) < 10
