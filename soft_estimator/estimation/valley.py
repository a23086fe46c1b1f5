"""The bottom of a rough valley: parabolas through the cost itself where its slope cannot be trusted.

Noise as wide as a cell throws points from one cell's field into another's. The cost then jumps a little from place to
place, and its Jacobian sees the noise as well as the motion: Gauss-Newton steps are too short, the stated deviation is
too small, and a minimiser stops at the first jump. Seen from farther away the cost is a smooth valley.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from soft_estimator.physics.solver import SolverError

_RISE = 30.0  # how much higher than at its middle the cost must be at both ends of a parabola
_FIRST, _WIDEST = 4.0, 256.0  # half the length of a parabola, in standard deviations as the Jacobian states them
_PLACES = np.array([-1.0, -0.75, -0.5, -0.25, 0.25, 0.5, 0.75, 1.0])
_SWEEPS = 2


@dataclass(frozen=True)
class Valley:
    """Where the bottom is, θ (P,), and its covariance (P, P) by the valley's curvature and its roughness."""

    theta: np.ndarray
    covariance: np.ndarray


def find_bottom(
    cost: Callable[[np.ndarray], float], theta: np.ndarray, covariance: np.ndarray, longest: float
) -> Valley:
    """Fit parabolas along the axes of `covariance` (P, P), one after the other, twice.

    Args:
        cost: of θ; half the sum of squares of whitened residuals, or a robust form of it.
        theta: start (P,). covariance: as the Jacobian states it. longest: farthest to look, in any variable.
    """
    size = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(size, size))
    axes = size[:, None] * vectors * np.sqrt(np.maximum(values, 1e-12))  # columns: one standard deviation each
    theta, spread = np.array(theta, dtype=np.float64), np.ones(len(theta))
    reach = np.full(len(theta), _FIRST)
    for _ in range(_SWEEPS):
        for j in range(len(theta)):
            most = min(_WIDEST, longest / float(np.abs(axes[:, j]).max()))
            step, spread[j], reach[j] = _parabola(cost, theta, axes[:, j], min(reach[j], most), most)
            theta = theta + step * axes[:, j]
    return Valley(theta, (axes * spread) @ axes.T)


def _parabola(
    cost: Callable[[np.ndarray], float], theta: np.ndarray, axis: np.ndarray, reach: float, most: float
) -> tuple[float, float, float]:
    """The lowest place of a parabola along an axis, its variance there (both in steps of the axis), and its reach."""

    def at(y: float) -> float:
        try:
            return cost(theta + y * axis)
        except SolverError:
            return np.inf

    middle = at(0.0)
    while reach < most and min(at(-reach), at(reach)) < middle + _RISE:
        reach = min(2 * reach, most)
    y = reach * np.append(_PLACES, 0.0)
    height = np.array([*(at(place) for place in y[:-1]), middle])
    known = np.isfinite(height)
    if known.sum() < 4:
        return 0.0, 1.0, reach
    y, height = y[known], height[known]
    design = np.stack([np.ones_like(y), y, 0.5 * y**2], axis=1)
    (level, slope, curvature), *_ = np.linalg.lstsq(design, height, rcond=None)
    if not curvature > 0:
        return float(y[np.argmin(height)]), 1.0, reach
    rough = np.sum((height - design @ [level, slope, curvature]) ** 2) / (len(y) - 3)
    step = float(np.clip(-slope / curvature, y.min(), y.max()))
    # The bottom's own spread, and that of the fitted slope.
    return step, max(1.0, 1 / curvature + rough / (curvature**2 * np.sum((y - y.mean()) ** 2))), reach
