"""How long the updates of a window may take: on average no longer than the budget.

Most frames only go on with the motion at hand, which takes a part of it; what they leave is saved up, until there is
enough for one simulation of the whole window. So a window that is longer than what fits into one update is still
refined, only not with every frame.
"""

from __future__ import annotations

from collections.abc import Callable

# While newer frames wait: the part of the time that may go into simulating the window anew, and what is saved of it
# [s]: a first touch needs a few at once.
_SHARE, _MOST_SAVED_S = 0.5, 2.0


class TimeBudget:
    """clock: wall-clock seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._saved_s = 0.0

    def allowing(self, budget_s: float | None, start_s: float) -> Callable[[float], bool]:
        """Whether there is time for work of so many seconds, in an update that began at start_s by the clock."""
        return lambda seconds: budget_s is None or self.clock() - start_s + seconds <= budget_s + self._saved_s

    def end(self, budget_s: float | None, start_s: float, most_s: float) -> None:
        """An update ends; most_s: what a simulation of the whole window takes, the most that is saved or owed."""
        if budget_s is not None:
            left_s = self._saved_s + budget_s - (self.clock() - start_s)
            self._saved_s = min(max(left_s, -most_s), most_s)


class WhileFramesWait:
    """Newer frames wait while a window is simulated anew: half of the time is theirs, so that their age stays bounded.

    clock: wall-clock seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._saved_s, self._since_s = _MOST_SAVED_S, clock()

    def allowing(self, spent_s: Callable[[], float]) -> Callable[[float], bool]:
        """Whether there is time for work of so many seconds, in an update that begins; spent_s: how much went into such
        work in it so far."""
        now_s = self.clock()
        self._saved_s = min(self._saved_s + _SHARE * (now_s - self._since_s), _MOST_SAVED_S)
        self._since_s = now_s
        # What takes longer than can ever be saved is begun with everything saved.
        return lambda seconds: spent_s() + min(seconds, _MOST_SAVED_S) <= self._saved_s

    def end(self, spent_s: float) -> None:
        """The update ends."""
        self._saved_s -= spent_s
