"""What a depth camera saw at one time: points of a surface, and how far off each may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Of noise along a ray that meets a round body anywhere, the mean of ½ sin²θ over what the camera sees.
RAY_CURVATURE_SHARE = 0.25
_SAME_SHARE = 1e-3  # shares nearer to one than this are those of isotropic noise, whatever file they came from


@dataclass(frozen=True)
class ObservedFrame:
    """Surface points seen at one time.

    Attributes:
        time_s: since the start of the simulation. points_m: world frame, (n, 3).
        std_m: standard deviation of each point's distance to the true surface, (n,).
        curvature_share: how much of Δφ the noise sees: 1 for isotropic noise, ½ tan²θ for noise along a ray at an
            angle θ to the normal, (n,). The mean of a curved field over the noise is off by ½ std² · share · Δφ, which
            is taken off again.
        along: where the noise moved a point, if that is known: the ray over its cosine to the surface normal, so that
            a step of one leads one metre off the surface, (n, 3). Residuals then are measured along it, and neither
            their spread nor their mean depends on how the model's surface is turned or bent.
    """

    time_s: float
    points_m: np.ndarray
    std_m: np.ndarray
    curvature_share: np.ndarray
    along: np.ndarray | None = None

    @classmethod
    def of(
        cls, time_s: float, points_m: np.ndarray, std_m: float | np.ndarray, curvature_share: float = 1.0
    ) -> ObservedFrame:
        """A frame with noise numbers given once for all points or point by point."""
        points = np.ascontiguousarray(points_m, dtype=np.float64).reshape(-1, 3)
        full = np.broadcast_to(np.asarray(std_m, dtype=np.float64), len(points)).copy()
        share = np.broadcast_to(np.asarray(curvature_share, dtype=np.float64), len(points)).copy()
        return cls(float(time_s), points, full, share)

    def only(self, chosen: np.ndarray) -> ObservedFrame:
        """The frame with some of its points: which (n,), or their numbers."""
        along = None if self.along is None else self.along[chosen]
        return ObservedFrame(
            self.time_s, self.points_m[chosen], self.std_m[chosen], self.curvature_share[chosen], along
        )


def is_isotropic(frame: object) -> bool:
    """Whether a frame is a cloud all of whose noise is the same in all directions."""
    if not isinstance(frame, ObservedFrame):
        return False
    return frame.along is None and bool((np.abs(frame.curvature_share - 1) < _SAME_SHARE).all())


def point_bias(frame: ObservedFrame) -> np.ndarray:
    """How much of Δφ the mean over the noise is off by at each point [m²], (n,)."""
    return 0.5 * frame.std_m**2 * frame.curvature_share


def line_bias(frame: ObservedFrame) -> np.ndarray:
    """The same where the points' lines meet the surface, (n,).

    Noise along the line itself has no mean on it; what ½ tan²θ of the share took off is put back.
    """
    if frame.along is None:
        return point_bias(frame)
    return point_bias(frame) - 0.5 * frame.std_m**2 * 0.5 * ((frame.along**2).sum(axis=1) - 1)


def problem_of_points(frame: ObservedFrame) -> str:
    """What is wrong with a frame and what to do about it, "" if nothing is."""
    if len(frame.points_m) == 0:
        return "holds no points; leave it out"
    if not (np.isfinite(frame.points_m).all() and np.isfinite(frame.std_m).all() and (frame.std_m > 0).all()):
        return "holds NaN points or a noise that is not positive; clean it"
    return ""
