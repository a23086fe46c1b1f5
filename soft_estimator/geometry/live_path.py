"""Poses of a tool as they come in, by their stamps: a path that grows while somebody simulates along it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Protocol

import numpy as np

from soft_estimator.geometry.pose_path import rotation_vector
from soft_estimator.geometry.rigid import rotation_matrix, skew

# Beyond the newest pose the tool goes on as it went, for so long [s]: a time step ends after the frame it leads to.
AHEAD_S = 0.05
# A frame may be so much newer than the newest pose [s]: at 1 m/s² the tool is then 0.2 mm from where it was taken for.
LATE_S = 0.02
LONGEST_GAP_S = 0.15  # between two poses; over a longer one nobody knows how the tool went
FROM_TF = "replay of a bag and the nodes know it; give path or path_file otherwise"
FROM_STAMPS = (
    "its times are stamps of a recording (path_clock), as replay and the nodes have them; count them from the scene's "
    "start otherwise, and leave path_clock out"
)
_LEAST_GAP_S = 5e-4  # between two poses: of closer ones, stamps of two joints, the difference is no velocity


class LedPath(Protocol):
    """Where a frame is over time, as an obstacle asks for it."""

    def at(self, time_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Q (3, 3) and b (3,) [m] of x ↦ Q x + b at a time."""
        ...

    def motion(self, time_s: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Drift (3,) [m/s] and spin (3, 3) [1/s]: what is carried along moves at drift + spin x; None at rest."""
        ...


class LivePath:
    """Poses by rising stamps; asked for in seconds since the stamp `since_s`. Between two poses it moves and turns
    evenly.

    Args:
        name: what leads it, for messages. longest_gap_s: between two poses that may still be joined. rests: whether it
            rests before the first pose and after the last; else it is not known there. otherwise: who knows its poses,
            and what to give to whoever does not.
    """

    def __init__(
        self, name: str, longest_gap_s: float = LONGEST_GAP_S, rests: bool = False, otherwise: str = FROM_TF
    ) -> None:
        self.name, self.longest_gap_s, self.rests, self.otherwise = name, longest_gap_s, rests, otherwise
        self.since_s = 0.0
        self.clear()

    def clear(self) -> None:
        """No pose is known."""
        self.stamps_s: list[float] = []
        self._rotation: list[np.ndarray] = []
        self._translation: list[np.ndarray] = []
        self._turn: list[np.ndarray] = []  # from each pose to the next, in its own frame, (3,)

    def extend(self, poses: Iterable[tuple[float, np.ndarray, np.ndarray]]) -> None:
        """Take in poses: stamp [s], Q (3, 3) and b (3,) [m]. Those that are not newer than the newest by half a
        millisecond are passed over; time that goes back by more than the longest gap begins the path anew."""
        for stamp_s, rotation, translation in poses:
            if not (np.isfinite(stamp_s) and np.isfinite(rotation).all() and np.isfinite(translation).all()):
                continue
            if self.stamps_s and stamp_s < self.stamps_s[-1] - self.longest_gap_s:
                self.clear()
            if self.stamps_s and stamp_s < self.stamps_s[-1] + _LEAST_GAP_S:
                continue
            if self.stamps_s:
                self._turn.append(rotation_vector(self._rotation[-1].T @ rotation))
            self.stamps_s.append(float(stamp_s))
            self._rotation.append(np.array(rotation, dtype=np.float64))
            self._translation.append(np.array(translation, dtype=np.float64))

    def forget_before(self, stamp_s: float) -> None:
        """Let go of poses that nobody will ask for any more; one before the stamp is kept."""
        first = max(bisect_right(self.stamps_s, stamp_s) - 1, 0)
        for part in (self.stamps_s, self._rotation, self._translation, self._turn):
            del part[:first]

    def lacks(self, stamp_s: float, from_s: float | None = None) -> str:
        """Why the pose is not known at a stamp [s], or not all the way from another one to there; "" where it is."""
        stamps = self.stamps_s
        if not stamps:
            return f"{self.name} has no pose yet"
        if self.rests:
            return ""
        if stamp_s > stamps[-1] + LATE_S:
            return f"the newest pose of {self.name} is {stamp_s - stamps[-1]:.2f} s older than the frame"
        first_s = stamp_s if from_s is None else min(from_s, stamp_s)
        if first_s < stamps[0] - LATE_S:
            return f"the first pose of {self.name} is {stamps[0] - first_s:.2f} s later than the frame"
        low, high = max(bisect_right(stamps, first_s) - 1, 0), bisect_left(stamps, stamp_s)
        gap_s = max((b - a for a, b in pairwise(stamps[low : high + 1])), default=0.0)
        if gap_s > self.longest_gap_s:
            return f"poses of {self.name} are {gap_s:.2f} s apart; over {self.longest_gap_s:g} s nobody knows its way"
        return ""

    def _between(self, stamp_s: float) -> tuple[int, float]:
        """The interval that a stamp lies in, and how far it is into it, 0-1, or beyond 1 a little after the last one;
        -1 where the path rests."""
        stamps = self.stamps_s
        if not stamps:
            raise ValueError(f"{self.name} has no pose: {self.otherwise}")
        going_on = 0.0 if self.rests else AHEAD_S
        if len(stamps) == 1 or not stamps[0] <= stamp_s < stamps[-1] + going_on:
            return -1, 0.0
        k = min(bisect_right(stamps, stamp_s), len(stamps) - 1) - 1
        return k, (stamp_s - stamps[k]) / (stamps[k + 1] - stamps[k])

    def at(self, time_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Q (3, 3) and b (3,) [m] at a time since `since_s`."""
        return self.at_stamp(self.since_s + time_s)

    def at_stamp(self, stamp_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Q (3, 3) and b (3,) [m] at a stamp."""
        k, share = self._between(stamp_s)
        if k < 0:
            if stamp_s < self.stamps_s[0] or self.rests or len(self.stamps_s) == 1:
                end = 0 if stamp_s < self.stamps_s[0] else -1
                return self._rotation[end], self._translation[end]
            return self._placed(len(self.stamps_s) - 2, 1.0 + AHEAD_S / (self.stamps_s[-1] - self.stamps_s[-2]))
        return self._placed(k, share)

    def _placed(self, k: int, share: float) -> tuple[np.ndarray, np.ndarray]:
        turn = self._rotation[k] @ rotation_matrix(share * self._turn[k])
        return turn, (1 - share) * self._translation[k] + share * self._translation[k + 1]

    def motion(self, time_s: float) -> tuple[np.ndarray, np.ndarray] | None:
        """As of `LedPath`."""
        k, share = self._between(self.since_s + time_s)
        if k < 0:
            return None
        turn, shift = self._placed(k, share)
        lasts = self.stamps_s[k + 1] - self.stamps_s[k]
        spin = skew(turn @ (self._turn[k] / lasts))
        return (self._translation[k + 1] - self._translation[k]) / lasts - spin @ shift, spin
