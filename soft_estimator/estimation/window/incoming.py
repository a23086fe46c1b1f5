"""What comes in, made ready: usable points, a frame whose noise lies along the camera's rays, a first velocity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from soft_estimator.estimation.residuals.observed_frame import RAY_CURVATURE_SHARE, ObservedFrame

LEAST_POINTS = 20  # a frame with fewer says too little of a body


def usable_points(
    points_m: np.ndarray, std_m: np.ndarray | float, near: tuple[np.ndarray, np.ndarray] | None, most: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Finite points (n, 3) [m] within the box `near`, at most so many of them, evenly taken; their stds [m]; and how
    many were set aside."""
    points = np.asarray(points_m, dtype=np.float64).reshape(-1, 3)
    std = np.broadcast_to(np.asarray(std_m, dtype=np.float64), len(points))
    good = np.isfinite(points).all(axis=1) & np.isfinite(std) & (std > 0)
    if near is not None:
        with np.errstate(invalid="ignore"):
            good &= ((points >= near[0]) & (points <= near[1])).all(axis=1)
    chosen = np.flatnonzero(good)
    if len(chosen) > most:
        chosen = chosen[np.linspace(0, len(chosen) - 1, most).round().astype(np.int64)]
    return points[chosen], std[chosen], int(len(points) - good.sum())


def frame_of(stamp_s: float, points: np.ndarray, std: np.ndarray, sensor_m: np.ndarray | None) -> ObservedFrame:
    """A frame; where the camera is known, residuals are taken along its rays."""
    if sensor_m is None:
        return ObservedFrame.of(stamp_s, points, std, RAY_CURVATURE_SHARE)
    # Towards the camera, which is out of the body wherever it sees it. Noise along the line has no mean on it.
    towards = sensor_m - points
    towards /= np.maximum(np.linalg.norm(towards, axis=1, keepdims=True), 1e-9)
    return replace(ObservedFrame.of(stamp_s, points, std, 0.0), along=towards)


def first_velocity(first: ObservedFrame, second: ObservedFrame, gravity_m_s2: np.ndarray) -> np.ndarray:
    """The velocity [m/s] at the first of two frames: how far the middle of the points went, less what it fell."""
    passed = second.time_s - first.time_s
    went = np.median(second.points_m, axis=0) - np.median(first.points_m, axis=0)
    return went / passed - 0.5 * passed * gravity_m_s2
