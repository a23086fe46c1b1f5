"""How long the updates of a window may take: on average no longer than the budget.

Most frames only go on with the motion at hand, which takes a part of it; what they leave is saved up, until there is
enough for one simulation of the whole window. So a window that is longer than what fits into one update is still
refined, only not with every frame.
"""

from __future__ import annotations

from collections.abc import Callable

from soft_estimator.estimation.window.current_episode import CurrentEpisode
from soft_estimator.estimation.window.episode import looks
from soft_estimator.estimation.window.window_fit import WindowFit

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


class UpdateTime:
    """What an update of the episode at hand may take of both, and how many other stiffnesses are tried in it.

    Attributes:
        hurry: whether newer frames wait; None where none ever does (see `SlidingWindow`).
    """

    def __init__(self, episode: CurrentEpisode, clock: Callable[[], float]) -> None:
        self.episode = episode
        self.hurry: Callable[[], bool] | None = None
        self._budget, self._waiting = TimeBudget(clock), WhileFramesWait(clock)
        self._before_s = 0.0

    @property
    def hurried(self) -> bool:
        """Whether newer frames wait now."""
        return self.hurry is not None and self.hurry()

    def allowing(self, start_s: float) -> Callable[[float], bool]:
        """Whether there is time for work of so many seconds in an update that began at start_s by the clock; a first
        motion, before which nothing is known, takes what it needs."""
        enough = self._budget.allowing(self.episode.episodes.config.time_budget_s, start_s)
        self._before_s = before = self._simulated_s
        if not self.hurried or not self.episode.lasting.begun:
            return enough
        share = self._waiting.allowing(lambda: self._simulated_s - before)
        return lambda seconds: enough(seconds) and share(seconds)

    @property
    def _simulated_s(self) -> float:
        """What the simulations of the window at hand took."""
        return 0.0 if self.episode.fit is None else self.episode.fit.motion.simulated_s

    def tries(self, fit: WindowFit, beside_s: float, led: bool) -> int | None:
        """How many simulations at other stiffnesses go into the update, None for all; led: by tools.

        Beside each frame as many as take beside_s [s], in pauses all; but at once where the window is about to slide
        and to lose the frames that are tried, or where tools lead the body in this episode alone.
        """
        config, hurried = self.episode.episodes.config, self.hurried
        if self.hurry is not None and looks(fit) < config.grow_to_frames and not led:
            return self.episode.others.tries_in(beside_s, fit) if hurried else 0
        return None if config.time_budget_s is None else 1

    def end_without(self, start_s: float, fit: WindowFit) -> None:
        """The update ends, and its frame was not used."""
        self._budget.end(self.episode.episodes.config.time_budget_s, start_s, fit.seconds)

    def end(self, start_s: float, fit: WindowFit) -> None:
        """The update ends."""
        self.end_without(start_s, fit)
        self._waiting.end(max(self._simulated_s - self._before_s, 0.0))
