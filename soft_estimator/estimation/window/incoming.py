"""What comes in, made ready: frames in order, usable points, noise along the camera's rays, a first velocity."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.residuals.interface import Frame
from soft_estimator.estimation.residuals.observed_frame import RAY_CURVATURE_SHARE, ObservedFrame

LEAST_POINTS = 20  # a frame with fewer cannot even tell the six numbers of a pose from its noise
OUT_OF_ORDER_S = 0.2  # a stamp that goes back by less is a straggler of a queue, by more a recording that began anew
_START_GAP_S = 0.15  # an episode begins with frames at most this far apart, five at 30 Hz: they must show the velocity
_SAME_INTERVAL = 0.999  # of the least interval: stamps of a steady camera jitter by rounding


@dataclass(frozen=True)
class Verdict:
    """What a frame's stamp means: jumped and gap start anew, late and thinned set it aside."""

    notes: tuple[str, ...] = ()
    jumped: bool = False
    gap: bool = False
    late: bool = False
    thinned: bool = False


@dataclass
class FrameOrder:
    """Stamps of an episode's frames [s]: newest_s of any frame, used_s of one with the object in it."""

    newest_s: float | None = None
    used_s: float | None = None

    def look(self, stamp_s: float, config: WindowConfig, starting: bool) -> Verdict:
        """What to do with a frame; starting: whether the episode still is."""
        if self.newest_s is None:
            return Verdict()
        ahead = stamp_s - self.newest_s
        if ahead < -OUT_OF_ORDER_S or ahead > config.jump_s:
            way = "forward" if ahead > 0 else "back"
            return Verdict((f"time jumped {way} by {abs(ahead):.2f} s: started anew",), jumped=True)
        if ahead <= 0:
            return Verdict(late=True)
        if self.used_s is None:
            return Verdict()
        passed = stamp_s - self.used_s
        if starting and passed > _START_GAP_S:
            return Verdict(("the first frames lay too far apart: started anew",), gap=True)
        return Verdict(thinned=passed < _SAME_INTERVAL * config.least_interval_s)


def finite_points(points_m: np.ndarray, std_m: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 3) [m] and their stds (n,) [m], without those that are not numbers or have none."""
    points = np.asarray(points_m, dtype=np.float64).reshape(-1, 3)
    std = np.broadcast_to(np.asarray(std_m, dtype=np.float64), len(points))
    good = np.isfinite(points).all(axis=1) & np.isfinite(std) & (std > 0)
    return points[good], std[good]


def usable_points(
    points: np.ndarray, std: np.ndarray, near: tuple[np.ndarray, np.ndarray] | None, most: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Points (n, 3) [m] within the box `near`, at most so many of them, evenly taken; their stds (n,) [m]; and how many
    lie outside it."""
    good: np.ndarray = np.ones(len(points), dtype=bool)
    if near is not None:
        good = np.asarray(((points >= near[0]) & (points <= near[1])).all(axis=1))
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


def first_velocity(first: Frame, second: Frame, gravity_m_s2: np.ndarray) -> np.ndarray | None:
    """The velocity [m/s] at the first of two clouds: how far the middle of the points went, less what it fell; None
    for other frames."""
    if not (isinstance(first, ObservedFrame) and isinstance(second, ObservedFrame)):
        return None
    passed = second.time_s - first.time_s
    went = np.median(second.points_m, axis=0) - np.median(first.points_m, axis=0)
    return went / passed - 0.5 * passed * gravity_m_s2
