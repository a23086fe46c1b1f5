"""A free body that stays where it is lies on something or is held.

Before an episode nothing can be learnt of it: a start takes the body for one that nothing has bent yet and that falls
from then on. One that lies still has sunk as far as its weight bends it: simulated from its rest shape it would sink a
second time, and the stiffness would follow. After a motion everything is learnt that there was: frames of a body that
has come to rest cost as much as others, and all of them show the same.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.estimation.residuals.observed_frame import ObservedFrame

WAITS = "it lies still or is held still: it tells nothing until it moves"
RESTS = "it has come to rest: what is known of it holds until it moves again"
# Of the points' noise: how far the middle of a cloud may go between two frames of a body at rest. Clouds of a ball on a
# table, 160 x 120 pixels, went by 0.7 of it, those of a pear in a hand, 240 x 180, by 1.6: points come and go at the
# edges, and a hand is never quite still.
_MOVED = 2.0
_SURE = 1.5  # times that: what a fall from rest must have gone in the time between, or the two cannot be told apart
# At rest is what stays for that long [s] while its model does not move either, by more than that part of the points'
# noise: little beside the motion that led there, though 400 points together would still show it. And what stays for the
# longer time whatever its model does: a body that swings by less than twice the noise has then done so for a second.
QUIET_S, _QUIET = 0.25, 0.2
_RESTS_S = 1.0


def middle_of(points_m: np.ndarray) -> np.ndarray:
    """The middle of a cloud (n, 3): along each axis the mean of the middle half, (3,) [m].

    Strays do not move it, and neither do the pixels' columns, between which a median jumps.
    """
    cut = len(points_m) // 4
    return np.sort(points_m, axis=0)[cut : len(points_m) - cut].mean(axis=0)


class StillWatch:
    """Remembers since when the body has not moved.

    Attributes:
        since_s: stamp of the first frame in which the body was where it is now [s]. still_s: how long it has been there
            for sure [s], although a free one would have fallen far enough to be seen; 0 where that is not known.
    """

    def __init__(self) -> None:
        self.since_s, self.still_s = np.inf, 0.0
        self._middle_m = np.zeros(3)

    def look(self, frame: ObservedFrame, gravity_m_s2: np.ndarray) -> None:
        """Take note of a frame, whose time_s is its stamp [s]."""
        middle_m, limit_m = middle_of(frame.points_m), _MOVED * float(np.mean(frame.std_m))
        passed_s = frame.time_s - self.since_s
        if not passed_s >= 0.0 or np.linalg.norm(middle_m - self._middle_m) > limit_m:
            self.since_s, self.still_s, self._middle_m = frame.time_s, 0.0, middle_m
            return
        fall_m = 0.5 * float(np.linalg.norm(gravity_m_s2)) * passed_s**2
        self.still_s = passed_s if fall_m >= _SURE * limit_m else 0.0

    def rests(self, motion: float) -> bool:
        """Whether a body that has moved is at rest. motion: how far its model moved meanwhile, over the noise."""
        return self.still_s >= _RESTS_S or (self.still_s >= QUIET_S and motion <= _QUIET)
