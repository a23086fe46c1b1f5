"""Two pieces of work at the same time: most loops are too short for several threads, but two motions are not."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import numba

One = TypeVar("One")
Other = TypeVar("Other")
# The other layer that Numba may run its threads by ends the process where two threads begin loops at a time.
_LAYERS = ("omp", "tbb")


def beside(one: Callable[[], One], other: Callable[[], Other]) -> tuple[One, Other]:
    """What two functions give that need nothing of each other: at the same time where there are cores for both.

    The second one's loops have one thread, the first one's the rest. Where both fail the first one's error is raised,
    as where they run one after the other.
    """
    threads = numba.get_num_threads()
    if threads < 2 or not _may_run_two():
        return one(), other()
    waiting = _worker(os.getpid()).submit(_on_one_thread, other)
    numba.set_num_threads(threads - 1)
    try:
        found = one()
    except BaseException:
        waiting.exception()  # nothing goes on behind the back of whoever handles the error
        raise
    finally:
        numba.set_num_threads(threads)
    return found, waiting.result()


def leave_a_core() -> None:
    """One thread less for the loops of this thread of the process: the others' work goes on in time."""
    numba.set_num_threads(max(1, numba.get_num_threads() - 1))


def _may_run_two() -> bool:
    try:
        return numba.threading_layer() in _LAYERS
    except ValueError:  # chosen with the first loop over threads
        return False


@lru_cache(maxsize=1)
def _worker(process: int) -> ThreadPoolExecutor:
    """The second thread of a process; a forked one needs its own."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside")


def _on_one_thread(work: Callable[[], Other]) -> Other:
    numba.set_num_threads(1)
    return work()
