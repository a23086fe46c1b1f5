"""A start in the middle of a motion: the body is bent, and nobody knows how it swings on.

Without modes (`start.modes`) the state at a start is a rigid motion of the rest shape. A body that has just bounced
swings for a while; taken for a rigid one it gives a stiffness that is a few per cent off and a damping that is off by a
quarter, both with narrow intervals. So a start waits for a frame that fits the rest shape as well as its noise allows.
With modes, one in the air begins at once.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.estimation.residuals.local_noise import (
    LEAST_POINTS,
    neighbours_of,
    neighbours_variance,
    without_outliers,
)
from soft_estimator.estimation.trajectory import PredictedFrame
from soft_estimator.estimation.variables import Variables

# Variance that neighbouring residuals share, relative to their noise: 28 frames of the demo's ball, 400 points each,
# showed at most 0.14 where it was not bent, and 0.23 to 3 where it was.
UNEVEN = 0.25
# Relative standard deviation of the material for an unevenness of one: starts right after a bounce of the demo's ball,
# uneven by about one, gave stiffnesses a few per cent and dampings a quarter off.
_WIDEN = 0.2
_WIDEST = 0.5  # beyond half of itself a value is not known anyway
# Parts of a cell: nearer to the ground than that, a bent body is bent by the ground, in ways that a start from the rest
# shape knows nothing of. A pear of 11 kPa, begun with so in mid-bounce from a poor first velocity, stood at 31 ± 8 kPa.
_GROUNDED = 0.5


def unevenness(predicted: PredictedFrame) -> float:
    """Variance that residuals share with their neighbours, relative to the noise in which neighbours differ."""
    if len(predicted.residual) < LEAST_POINTS:
        return 0.0
    r = without_outliers(predicted.residual)
    local = neighbours_variance(r, neighbours_of(predicted.frame.points_m))
    return (float(np.mean(r**2)) - local) / max(local, 0.25)  # a quarter: noise of half the stated width


class BentStarts:
    """Refuses bent starts for a while, then takes one and keeps how much less it is to be trusted.

    Attributes:
        model_std: relative standard deviation to add to that of the material. notes: what to publish with it.
    """

    def __init__(self) -> None:
        self.model_std = 0.0
        self.notes: tuple[str, ...] = ()
        self._since_s: float | None = None

    def look(
        self,
        stamp_s: float,
        first: PredictedFrame,
        patience_s: float,
        above_cells: float = np.inf,
        along_modes: bool = False,
    ) -> str:
        """A reason not to start at a first frame; "" where it may start.

        above_cells: its height over the ground. along_modes: whether how it is bent and swings is estimated, too, along
        modes, which are those of a body that nothing presses.
        """
        uneven = unevenness(first)
        self.model_std, self.notes = 0.0, ()
        if uneven <= UNEVEN or (along_modes and above_cells > _GROUNDED):
            self._since_s = None
            return ""
        if self._since_s is None or not 0 <= stamp_s - self._since_s <= 2 * patience_s:
            self._since_s = stamp_s
        off_mm = 1e3 * float(np.sqrt(np.mean((first.residual * first.frame.std_m) ** 2)))
        what = f"the points lie {off_mm:.1f} mm off the rest shape, together rather than at random"
        if stamp_s - self._since_s < patience_s:
            return f"{what}: the body is bent or swings; waiting for it to be still"
        self._since_s = None
        self.model_std = min(_WIDEN * float(np.sqrt(uneven)), _WIDEST) if above_cells > _GROUNDED else _WIDEST
        self.notes = (f"{what}: its shape is wrong or it was caught swinging; the intervals are wider for it",)
        return ""

    def variance(self, material: Variables) -> np.ndarray:
        """What to add to the variances of the material's variables, (P,)."""
        return np.array([self.model_std**2 if v.transform in ("log", "logit") else 0.0 for v in material.variables])
