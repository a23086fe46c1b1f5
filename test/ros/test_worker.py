"""The thread beside the executor: what is dropped, what is kept, and that it survives mistakes."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from soft_estimator.ros.worker import Worker


def held_worker(capacity: int) -> tuple[Worker[int], list[int], threading.Event, list[Exception]]:
    """A worker that stands still until the event is set, what it has done, and what failed."""
    done: list[int] = []
    failed: list[Exception] = []
    gate = threading.Event()

    def work(item: int) -> None:
        gate.wait(5)
        if item < 0:
            raise ValueError(f"{item} is below zero")
        done.append(item)

    return Worker(work, failed.append, capacity), done, gate, failed


def finish(worker: Worker[int], gate: threading.Event, count: int, done: list[int]) -> None:
    gate.set()
    end = time.monotonic() + 5
    while len(done) < count and time.monotonic() < end:
        time.sleep(0.005)
    assert worker.stop()


def wait_taken(worker: Worker[int]) -> None:
    end = time.monotonic() + 5
    while worker.waiting and time.monotonic() < end:
        time.sleep(0.001)


def test_a_worker_works_until_the_last_item_is_done() -> None:
    """What is at hand waits nowhere, but is not done: a replay that ended then would lose its last estimate."""
    worker, done, gate, _ = held_worker(3)
    assert not worker.working
    worker.put(0)
    assert worker.working
    wait_taken(worker)
    assert not worker.waiting and worker.working
    gate.set()
    end = time.monotonic() + 5
    while worker.working and time.monotonic() < end:
        time.sleep(0.001)
    assert done == [0] and not worker.working
    assert worker.stop()


def test_with_one_place_the_newest_wins() -> None:
    worker, done, gate, _ = held_worker(1)
    worker.put(0)
    wait_taken(worker)
    for item in range(1, 6):
        worker.put(item)
    finish(worker, gate, 2, done)
    assert done == [0, 5]
    assert worker.dropped == 4


@given(st.integers(1, 9), st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_every_item_is_done_or_counted_in_order_and_the_newest_stays(capacity: int, count: int) -> None:
    worker, done, gate, _ = held_worker(capacity)
    for item in range(count):
        worker.put(item)
        assert worker.waiting <= 2 * capacity  # one run at hand, one in the queue
    gate.set()
    end = time.monotonic() + 5
    while len(done) + worker.dropped < count and time.monotonic() < end:
        time.sleep(0.001)
    assert worker.stop()
    assert len(done) + worker.dropped == count
    assert done == sorted(done)
    assert done[-1] == count - 1


def test_who_falls_behind_does_runs_of_consecutive_items() -> None:
    worker, done, gate, _ = held_worker(5)
    worker.put(0)
    wait_taken(worker)  # a run of one is at hand; the next begins with what waits then
    for item in range(1, 21):
        worker.put(item)
    finish(worker, gate, 6, done)
    assert done == [0, 16, 17, 18, 19, 20]
    assert worker.dropped == 15


def test_a_mistake_is_told_and_the_next_item_is_done() -> None:
    worker, done, gate, failed = held_worker(10)
    for item in (1, -2, 3):
        worker.put(item)
    finish(worker, gate, 2, done)
    assert done == [1, 3]
    assert [str(e) for e in failed] == ["-2 is below zero"]


def test_what_is_asked_runs_before_the_waiting_items() -> None:
    worker, done, gate, _ = held_worker(10)
    worker.put(1)
    wait_taken(worker)
    worker.put(2)
    worker.ask("more", lambda: done.append(100))
    finish(worker, gate, 3, done)
    assert done == [1, 100, 2]


def test_of_what_is_asked_under_one_name_the_newest_runs_once() -> None:
    """A timer asks again and again while the thread is busy: no queue grows, and the order of names stays."""
    worker, done, gate, _ = held_worker(10)
    worker.put(1)
    wait_taken(worker)
    for k in range(1000):
        worker.ask("show", lambda k=k: done.append(1000 + k))
        worker.ask("reset", lambda k=k: done.append(5000 + k))
    finish(worker, gate, 3, done)
    assert done == [1, 1999, 5999]


def test_what_is_at_hand_learns_that_it_is_not_wanted_any_more() -> None:
    """Stopped while it works: `stopping` is seen by the work itself, which may then leave its result."""
    seen: list[bool] = []
    gate = threading.Event()

    def build() -> None:
        seen.append(worker.stopping)
        gate.wait(5)
        seen.append(worker.stopping)

    worker: Worker[int] = Worker(lambda _: None, lambda _: None)
    worker.ask("build", build)
    while not seen:
        time.sleep(0.001)
    assert not worker.stop(0.0)  # it does not wait for what is at hand
    gate.set()
    assert worker.stop(5.0)
    assert seen == [False, True]


def test_who_chooses_leaves_out_what_lies_before() -> None:
    """Among items that wait the chooser takes every third: each is done or was before one that is."""
    left_out: list[int] = []

    def choose(waiting: Sequence[int]) -> int:
        place = min(2, len(waiting) - 1)
        left_out.extend(waiting[:place])
        return place

    done: list[int] = []
    gate = threading.Event()

    def work(item: int) -> None:
        gate.wait(5)
        done.append(item)

    worker = Worker(work, lambda _: None, 20, choose=choose)
    worker.put(0)
    wait_taken(worker)
    for item in range(1, 9):
        worker.put(item)
    finish(worker, gate, 4, done)
    assert done == [0, 3, 6, 8]
    assert left_out == [1, 2, 4, 5, 7]
    assert worker.dropped == 0


def test_who_has_nothing_to_do_goes_on_with_what_was_put_off_until_something_comes() -> None:
    """After an item, and piece by piece: an item that comes meanwhile is done before the next piece."""
    done: list[str] = []
    pieces = [threading.Event() for _ in range(3)]
    left = list(pieces)

    def idle() -> bool:
        if left:
            left.pop(0).wait(5)
            done.append("piece")
        return bool(left)

    worker: Worker[str] = Worker(done.append, lambda error: None, 5, idle=idle)
    assert not done and not worker.working  # nothing was put off before anything was done
    worker.put("first")
    end = time.monotonic() + 5
    while len(left) > 2 and time.monotonic() < end:
        time.sleep(0.001)
    worker.put("second")
    for piece in pieces:
        piece.set()
    while worker.working and time.monotonic() < end:
        time.sleep(0.001)
    assert worker.stop() and done == ["first", "piece", "second", "piece", "piece"]


def test_what_was_put_off_goes_before_items_where_they_need_it() -> None:
    done: list[str] = []
    left, waits = list(range(3)), threading.Event()

    def idle() -> bool:
        if left:
            waits.wait(5)
            left.pop()
            done.append("piece")
        return bool(left)

    def first() -> bool:
        return done[:1] == ["first"] and len(left) > 1

    worker: Worker[str] = Worker(done.append, lambda error: None, 5, idle=idle, before=first)
    for item in ("first", "second", "third"):
        worker.put(item)
    waits.set()
    end = time.monotonic() + 5
    while worker.working and time.monotonic() < end:
        time.sleep(0.001)
    assert worker.stop() and done == ["first", "piece", "piece", "second", "third", "piece"]


def test_a_mistake_while_idle_is_told_and_the_next_item_is_done() -> None:
    done: list[int] = []
    failed: list[Exception] = []

    def idle() -> bool:
        raise ValueError("no piece")

    worker: Worker[int] = Worker(done.append, failed.append, 5, idle=idle)
    end = time.monotonic() + 5
    for item in (1, 2):
        worker.put(item)
        while (worker.working or len(failed) < item) and time.monotonic() < end:
            time.sleep(0.001)
    assert worker.stop() and done == [1, 2] and len(failed) == 2
