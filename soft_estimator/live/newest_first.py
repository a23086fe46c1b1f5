"""Which of the frames that wait is taken in next when work falls behind: the newest that the window can still follow.

A queue worked off in order grows old without end on a slow machine. Here frames are left out instead, and the gap is
simulated through: a body is followed from frame to frame as long as they lie no farther apart than its motion can be
predicted over. Who is behind by more than can be caught up that way begins anew at the newest frame, knowing what is
known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soft_estimator.estimation.window.incoming import OUT_OF_ORDER_S
from soft_estimator.estimation.window.sliding_window import SlidingWindow

IN_ORDER, FOLLOW, ANY = "in order", "follow", "any"  # what the window needs next, see `NewestFirst.choose`
_JITTER = 1.05  # a gap of three frames is one of three frames, whatever their stamps' jitter


@dataclass(frozen=True)
class Choice:
    """The frame to take, by its place among those that wait; all before it are left out.

    anew: the window begins anew with it, since too much lies between.
    """

    place: int
    anew: bool = False


class NewestFirst:
    """Chooses among the stamps of waiting frames.

    Args:
        longest_gap_s: between two frames that the window follows [s]. most_behind_s: how far the newest frame may be
            ahead of the one taken [s]. episode_gap_s: time between two frames that begins a new episode [s].
    """

    def __init__(self, longest_gap_s: float, most_behind_s: float, episode_gap_s: float) -> None:
        self.longest_gap_s, self.most_behind_s, self.episode_gap_s = longest_gap_s, most_behind_s, episode_gap_s
        self._last_s: float | None = None

    def choose(self, stamps_s: Sequence[float], need: str) -> Choice:
        """The next of the frames that wait, in the order in which they came.

        need: IN_ORDER where the window has begun an episode and its first frames must lie close together, FOLLOW where
        it follows one, ANY where it looks for a start.
        """
        first = _newest_episode(stamps_s, self.episode_gap_s)
        choice = Choice(first) if first else self._within(stamps_s, need)
        self._last_s = stamps_s[choice.place]
        return choice

    def _within(self, stamps_s: Sequence[float], need: str) -> Choice:
        """Among frames of one episode."""
        newest = len(stamps_s) - 1
        if need == ANY or self._last_s is None:  # a motion seen from its beginning tells more than its middle
            return Choice(next(k for k, s in enumerate(stamps_s) if stamps_s[newest] - s <= self.most_behind_s))
        if stamps_s[0] < self._last_s - OUT_OF_ORDER_S:  # time went back before all of them: a new episode
            return Choice(0)
        reach_s = self._last_s + _JITTER * self.longest_gap_s
        near = [k for k, stamp_s in enumerate(stamps_s) if stamp_s <= reach_s]
        place = near[-1] if need == FOLLOW and near else 0
        if stamps_s[newest] - stamps_s[place] > self.most_behind_s:
            return Choice(newest, anew=True)
        return Choice(place)


def _newest_episode(stamps_s: Sequence[float], gap_s: float) -> int:
    """The place at which the newest episode begins; 0 where all belong to one."""
    for k in range(len(stamps_s) - 1, 0, -1):
        if not -OUT_OF_ORDER_S <= stamps_s[k] - stamps_s[k - 1] <= gap_s:
            return k
    return 0


def need_of(window: SlidingWindow | None) -> str:
    """What a window needs next."""
    if window is None or not window.begun:
        return ANY
    return IN_ORDER if window.status == "starting" else FOLLOW
