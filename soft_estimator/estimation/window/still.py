"""A free body that stays where it is lies on something or is held: no fall has begun, and nothing can be learnt of it.

A start takes the body for one that nothing has bent yet and that falls from then on. One that lies still has sunk as
far as its weight bends it: simulated from its rest shape it would sink a second time, and the stiffness would follow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from soft_estimator.estimation.residuals.observed_frame import ObservedFrame

WAITS = "it lies still or is held still: it tells nothing until it moves"
# Of the points' noise: how far the middle of a cloud may go between two frames of a body at rest. Clouds of a ball on a
# table, 160 x 120 pixels, went by 0.7 of it, because points come and go at the edges.
_MOVED = 1.0
_SURE = 1.5  # times that: what a fall from rest must have gone in the time between, or the two cannot be told apart


def stays(before: ObservedFrame, after: ObservedFrame, gravity_m_s2: np.ndarray) -> bool:
    """Whether a body is where it was, although a free one would have fallen far enough to be seen."""
    limit_m = _MOVED * float(np.mean(after.std_m))
    fall_m = 0.5 * float(np.linalg.norm(gravity_m_s2)) * (after.time_s - before.time_s) ** 2
    if fall_m < _SURE * limit_m:
        return False
    went_m = np.median(after.points_m, axis=0) - np.median(before.points_m, axis=0)
    return float(np.linalg.norm(went_m)) <= limit_m


class StillWatch:
    """Remembers a frame since which the body has not moved."""

    def __init__(self) -> None:
        self._since: ObservedFrame | None = None

    def begins_with(self, frame: Any, stamp_s: float) -> None:
        """An episode has this frame alone, taken at stamp_s [s]; None: it has more, so that the body moves."""
        self._since = replace(frame, time_s=stamp_s) if isinstance(frame, ObservedFrame) else None

    def look(self, frame: ObservedFrame, gravity_m_s2: np.ndarray) -> bool:
        """Whether the body is still where it was; where it is not, it is forgotten."""
        if self._since is not None and not stays(self._since, frame, gravity_m_s2):
            self._since = None
        return self._since is not None
