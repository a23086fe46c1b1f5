"""Heavy work beside the executor: a thread with a short queue, so that callbacks return at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Worker(Generic[T]):
    """Runs `work(item)` in a thread of its own, one item after the other.

    Items wait in a queue of limited capacity; when it is full the oldest goes, and is counted. The thread takes all
    that waits at once and works it off before it looks again: who falls behind does runs of consecutive items
    and leaves out what lies between them, instead of single items far apart. With a capacity of 1 that is a mailbox in
    which the newest item wins. `ask` runs a function in the same thread before the next item; of those that wait under
    one name the newest wins, so that there are never more than names.

    Args:
        choose: the place of the item to be done next among those that wait; those before it are left out, which is
            its business to count. It runs in the thread right before `work`.
        idle: a piece of work for when nothing waits, after anything was done: whether there is more of it.
        before: whether a piece of that work goes before the items that wait.
    """

    def __init__(
        self,
        work: Callable[[T], None],
        failed: Callable[[Exception], None],
        capacity: int = 1,
        name: str = "worker",
        choose: Callable[[Sequence[T]], int] | None = None,
        idle: Callable[[], bool] | None = None,
        before: Callable[[], bool] = lambda: False,
    ) -> None:
        self._work, self._failed, self._choose, self._idle, self._before = work, failed, choose, idle, before
        self._waiting: deque[T] = deque(maxlen=capacity)
        self._taken: deque[T] = deque()
        self._asked: dict[str, Callable[[], None]] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._at_hand = False
        self.dropped = 0
        self.done = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Items that are not done yet, nor at hand."""
        return len(self._waiting) + len(self._taken)

    @property
    def working(self) -> bool:
        """Whether anything is at hand, or waits."""
        with self._changed:
            return bool(self._at_hand or self.waiting or self._asked)

    def put(self, item: T) -> None:
        """Hand over an item; never blocks."""
        with self._changed:
            self.dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append(item)
            self._changed.notify()

    @property
    def stopping(self) -> bool:
        """Whether it was told to end: what is at hand finishes, but nobody waits for it."""
        return self._stopping

    def ask(self, name: str, function: Callable[[], None]) -> None:
        """Have a function run in the thread, before the next item, instead of one that waits under the same name."""
        with self._changed:
            self._asked[name] = function
            self._changed.notify()

    def clear(self) -> None:
        """Forget the waiting items; they count as dropped."""
        with self._changed:
            self.dropped += self.waiting
            self._waiting.clear()
            self._taken.clear()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Let the item at hand finish, and end; whether it ended in time."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        more = False  # to do while nothing waits
        while True:
            with self._changed:
                self._at_hand = False
                while not (self.waiting or self._asked or self._stopping or more):
                    self._changed.wait()
                if self._stopping:
                    return
                asked = self._asked.pop(next(iter(self._asked))) if self._asked else None
                items = [self._next()] if asked is None and self.waiting and not self._before() else []
                self._at_hand = True
            idle, more = self._idle, False
            try:
                if asked is not None:
                    asked()
                for item in items:
                    self._work(item)
                    self.done += 1
                if idle is not None:
                    more = bool(asked or items) or idle()
            except Exception as error:  # a worker that dies would leave a node that only looks alive
                self._failed(error)

    def _next(self) -> T:
        """The item to be done next; there is one."""
        if self._choose is not None:
            for _ in range(self._choose(tuple(self._waiting))):
                self._waiting.popleft()
            return self._waiting.popleft()
        if not self._taken:
            self._taken.extend(self._waiting)
            self._waiting.clear()
        return self._taken.popleft()
