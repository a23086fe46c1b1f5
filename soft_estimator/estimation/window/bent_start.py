"""A start in the middle of a motion: the body is bent, and nobody knows how it swings on.

The state at a start is a rigid motion of the rest shape. A body that has just bounced swings for a while; taken for a
rigid one it gives a stiffness that is a few per cent off and a damping that is off by a quarter, both with narrow
intervals. So a start waits for a frame that fits the rest shape as well as its noise allows.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from soft_estimator.estimation.trajectory import PredictedFrame
from soft_estimator.estimation.variables import Variables

# Variance that neighbouring residuals share, relative to their noise: 28 frames of the demo's ball, 400 points each,
# showed at most 0.14 where it was not bent, and 0.23 to 3 where it was.
UNEVEN = 0.25
# Relative standard deviation of the material for an unevenness of one: starts right after a bounce of the demo's ball,
# uneven by about one, gave stiffnesses a few per cent and dampings a quarter off.
_WIDEN = 0.2
_WIDEST = 0.5  # beyond half of itself a value is not known anyway
_NEIGHBOURS = 12  # two rings of them: enough for a plane, few enough to follow the surface's curve
_LEAST_POINTS = 20  # fewer have no neighbourhoods
_OUTLIER = 3.0  # residuals count up to this many usual ones, so that a few strays do not make a frame uneven


def unevenness(predicted: PredictedFrame) -> float:
    """Variance that residuals share with their neighbours, relative to the noise in which neighbours differ."""
    if len(predicted.residual) < _LEAST_POINTS:
        return 0.0
    usual = max(1.4826 * float(np.median(np.abs(predicted.residual))), 1e-12)
    r = np.clip(predicted.residual, -_OUTLIER * usual, _OUTLIER * usual)
    points = _flattened(predicted.frame.points_m)
    local = 0.5 * float(np.mean((r - r[cKDTree(points).query(points, 2)[1][:, 1]]) ** 2))
    return (float(np.mean(r**2)) - local) / max(local, 0.25)  # a quarter: noise of half the stated width


def _flattened(points_m: np.ndarray) -> np.ndarray:
    """Points moved into the planes of their neighbourhoods: the nearest of noisy points would be those whose noise is
    alike."""
    near = points_m[cKDTree(points_m).query(points_m, min(_NEIGHBOURS, len(points_m)))[1]]
    middle = near.mean(axis=1)
    spread = near - middle[:, None]
    normal = np.linalg.eigh(np.einsum("nka,nkb->nab", spread, spread))[1][:, :, 0]
    return points_m - np.einsum("na,na->n", points_m - middle, normal)[:, None] * normal


class BentStarts:
    """Refuses bent starts for a while, then takes one and keeps how much less it is to be trusted.

    Attributes:
        model_std: relative standard deviation to add to that of the material. notes: what to publish with it.
    """

    def __init__(self) -> None:
        self.model_std = 0.0
        self.notes: tuple[str, ...] = ()
        self._since_s: float | None = None

    def look(self, stamp_s: float, first: PredictedFrame, patience_s: float) -> str:
        """A reason not to start at a first frame; "" where it may start."""
        uneven = unevenness(first)
        self.model_std, self.notes = 0.0, ()
        if uneven <= UNEVEN:
            self._since_s = None
            return ""
        if self._since_s is None or not 0 <= stamp_s - self._since_s <= 2 * patience_s:
            self._since_s = stamp_s
        off_mm = 1e3 * float(np.sqrt(np.mean((first.residual * first.frame.std_m) ** 2)))
        what = f"the points lie {off_mm:.1f} mm off the rest shape, together rather than at random"
        if stamp_s - self._since_s < patience_s:
            return f"{what}: the body is bent or swings; waiting for it to be still"
        self._since_s = None
        self.model_std = min(_WIDEN * float(np.sqrt(uneven)), _WIDEST)
        self.notes = (f"{what}: its shape is wrong or it was caught swinging; the intervals are wider for it",)
        return ""

    def variance(self, material: Variables) -> np.ndarray:
        """What to add to the variances of the material's variables, (P,)."""
        return np.array([self.model_std**2 if v.transform in ("log", "logit") else 0.0 for v in material.variables])
