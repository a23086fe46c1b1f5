"""Two pieces of work at the same time: most loops are too short for several threads, but two motions are not, nor are a
motion and what is made of each of its steps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from queue import Queue
from threading import Thread
from typing import TypeVar

import numba

from soft_estimator.backends.cpu.compiled import ONE_THREAD_BELOW

Item = TypeVar("Item")
One = TypeVar("One")
Other = TypeVar("Other")
# The other layer that Numba may run its threads by ends the process where two threads begin loops at a time.
_LAYERS = ("omp", "tbb")


def beside(one: Callable[[], One], other: Callable[[], Other], rows: int = 0) -> tuple[One, Other]:
    """What two functions give that need nothing of each other: at the same time where there are cores for both.

    The second one's loops have one thread, the first one's the rest. Where both fail the first one's error is raised,
    as where they run one after the other.

    rows: of the loops of both; over many, each has work for all threads, and they run one after the other.
    """
    threads = numba.get_num_threads()
    if threads < 2 or rows >= ONE_THREAD_BELOW or not _may_run_two():
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


def followed(lead: Iterable[Item], follow: Callable[[Item], None], rows: int = 0) -> None:
    """Follow up what is made one after the other, each while the next one is being made where there are cores for both.

    Half of the threads are for either's loops. Where following fails, that error is raised and nothing more is made;
    where making fails, all before has been followed up: as where nothing goes on at the same time.

    rows: see `beside`.
    """
    threads = numba.get_num_threads()
    if threads < 2 or rows >= ONE_THREAD_BELOW or not _may_run_two():
        for item in lead:
            follow(item)
        return
    made: Queue[list[Item]] = Queue(maxsize=1)  # each in a list that is emptied: nobody holds what has been followed up
    errors: list[BaseException] = []

    def go_behind() -> None:
        numba.set_num_threads(threads // 2)
        while waiting := made.get():
            try:
                if not errors:
                    follow(waiting.pop())
            except BaseException as error:
                errors.append(error)

    # Not the thread of `beside`: what is made may ask for that.
    follower = Thread(target=go_behind, name="follower", daemon=True)
    follower.start()
    numba.set_num_threads(threads - threads // 2)
    try:
        for item in lead:
            made.put([item])
            del item
            if errors:
                break
    finally:
        made.put([])
        follower.join()
        numba.set_num_threads(threads)
        if errors:
            raise errors[0]


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
