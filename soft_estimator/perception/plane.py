"""The support plane: found among random ones, then fitted to every point near it with the sensor's noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.backends.cpu.cloud import count_inliers, plane_moments
from soft_estimator.geometry.surface import face_crosses_m2
from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.settings import NoiseSettings, PlaneSettings

_CUT_SIGMAS = 4.0  # Tukey's loss is flat from here
_FIT_POINTS = 100_000  # more would not change the plane by what its covariance says
# How much farther, and at how few of the points, each round of a fit looks: a plane through three noisy points is
# tilted, the last frame's is not.
_FROM_THREE_POINTS = ((3.0, 8), (1.5, 8), (1.0, 8), (1.0, 1), (1.0, 1))
_FROM_LAST_FRAME = ((1.5, 8), (1.0, 1))
# A plane whose normal has this much of the picture's upwards faces up; one that has not may be a wall, if another does,
# is not parallel to it, and has this share of its points.
_UPWARDS, _PARALLEL, _AS_LARGE = 0.1, 0.7, 0.2


@dataclass(frozen=True, eq=False)
class PlaneFit:
    """The plane n·x + d = 0, n pointing to the sensor's side.

    Attributes:
        normal: n, unit, (3,).
        offset_m: d [m].
        tangents: two unit directions in the plane, (2, 3).
        covariance: of (a1 [rad], a2 [rad], d [m]), (3, 3), where the true normal is n + a1 t1 + a2 t2.
        inliers: points that carry the fit.
        share: their share of the points that were looked at.
    """

    normal: np.ndarray
    offset_m: float
    tangents: np.ndarray
    covariance: np.ndarray
    inliers: int
    share: float

    @property
    def as_row(self) -> np.ndarray:
        """(n, d), shape (4,)."""
        return np.append(self.normal, self.offset_m)

    def height_m(self, points_m: np.ndarray) -> np.ndarray:
        """Height [m] of points (..., 3) [m] above the plane."""
        return np.asarray(points_m) @ self.normal + self.offset_m

    def height_std_m(self, point_m: np.ndarray) -> float:
        """Standard deviation [m] of the plane's height at a point (3,) [m]."""
        row = np.append(self.tangents @ np.asarray(point_m, dtype=np.float64), 1.0)
        return float(np.sqrt(max(row @ self.covariance @ row, 0.0)))


@dataclass(frozen=True)
class NoPlane:
    """There is no support plane, and why."""

    reason: str


def fit_support_plane(
    cloud: Cloud,
    settings: PlaneSettings | None = None,
    noise: NoiseSettings | None = None,
    why: np.ndarray | None = None,
    std_m: np.ndarray | None = None,
    guess: PlaneFit | None = None,
) -> PlaneFit | NoPlane:
    """The plane most points lie on.

    Args:
        cloud: organised or not.
        why: (n,) uint8; only points with 0 are used. Measured points by default.
        std_m: (n,) depth noise [m]; from `noise` by default.
        guess: a plane to start from, such as the last frame's; the search is left out when it still holds.

    A wall may have more points than the table. Where nobody says what is up, the picture does: of a camera that is not
    upside down, a table faces upwards in it, and a wall before it downwards.
    """
    settings, noise = settings or PlaneSettings(), noise or NoiseSettings()
    points = cloud.flat_m
    if why is None:
        why = (~np.isfinite(points).all(axis=1)).astype(np.uint8)
    if std_m is None:
        depth = (points - cloud.sensor_m) @ cloud.axis
        std_m = noise.floor_m + noise.per_m * depth**2
    usable = int(np.count_nonzero(why == 0))
    if usable < 20:
        return NoPlane(f"only {usable} measured points are left to fit the support plane to; check range and crop box")
    if guess is not None:
        fit = _refine(cloud, why, std_m, guess.as_row, noise, _FROM_LAST_FRAME)
        if fit is not None and fit.share > 0.7 * guess.share and _allowed(fit.normal, settings):
            return fit
    fit = largest_plane(cloud, settings, noise, why, std_m)
    if fit is not None and settings.expected_normal is None:
        fit = _facing_up(fit, cloud, why, std_m, settings, noise)
    if fit is None or fit.share < settings.min_share:
        share = 0.0 if fit is None else fit.share
        facing = "" if settings.expected_normal is None else f" that faces {_expected(settings)}"
        return NoPlane(
            f"the largest plane{facing} holds {share:.1%} of {usable} points, below plane.min_share "
            f"{settings.min_share:.1%}; is the table in view and in the crop box"
            f"{', and up so (--up, plane.expected_normal)' if facing else ''}?"
        )
    if not _allowed(fit.normal, settings):
        return NoPlane(
            f"the largest plane's normal {np.round(fit.normal, 3).tolist()} is more than plane.max_tilt_rad "
            f"{settings.max_tilt_rad:g} from the expected one, {_expected(settings)}; check it (--up, "
            "plane.expected_normal) or raise plane.max_tilt_rad"
        )
    return fit


def largest_plane(
    cloud: Cloud, settings: PlaneSettings, noise: NoiseSettings, why: np.ndarray, std_m: np.ndarray
) -> PlaneFit | None:
    """The plane that most points with `why` 0 lie on, whichever way it faces; None where there is none."""
    row = _search(cloud.flat_m, why, std_m, cloud.sensor_m, settings)
    return None if row is None else _refine(cloud, why, std_m, row, noise)


def _facing_up(
    fit: PlaneFit,
    cloud: Cloud,
    why: np.ndarray,
    std: np.ndarray,
    settings: PlaneSettings,
    noise: NoiseSettings,
) -> PlaneFit:
    """The largest plane, or, where that does not face upwards in the picture, one that does and is large enough."""
    optical = cloud.axis @ cloud.rotation[:, 2] > 0.5
    up = -cloud.rotation[:, 1] if optical else cloud.rotation[:, 2]
    if fit.normal @ up > _UPWARDS:
        return fit
    with np.errstate(invalid="ignore"):
        others = np.where(np.abs(fit.height_m(cloud.flat_m)) < settings.least_thickness_m + _CUT_SIGMAS * std, 1, why)
    others = others.astype(np.uint8)
    if np.count_nonzero(others == 0) < 20:
        return fit
    other = largest_plane(cloud, settings, noise, others, std)
    if other is None or other.normal @ up <= _UPWARDS or abs(other.normal @ fit.normal) > _PARALLEL:
        return fit
    share = float(other.inliers / np.count_nonzero(why == 0))
    return replace(other, share=share) if share >= max(settings.min_share, _AS_LARGE * fit.share) else fit


def _allowed(normal: np.ndarray, settings: PlaneSettings) -> bool:
    if settings.expected_normal is None:
        return True
    expected = np.asarray(settings.expected_normal) / np.linalg.norm(settings.expected_normal)
    return bool(normal @ expected >= np.cos(settings.max_tilt_rad))


def _expected(settings: PlaneSettings) -> str:
    return ", ".join(f"{part:g}" for part in settings.expected_normal or ())


def _search(
    points: np.ndarray, why: np.ndarray, std: np.ndarray, sensor: np.ndarray, settings: PlaneSettings
) -> np.ndarray | None:
    """Of planes through three random points the one most of a sample lie on, (4,)."""
    rng = np.random.default_rng(settings.seed)
    usable = np.flatnonzero(why == 0)
    chosen = usable if len(usable) <= settings.sample else rng.choice(usable, settings.sample, replace=False)
    sample, tolerance = np.ascontiguousarray(points[chosen]), _CUT_SIGMAS / 2 * std[chosen] + settings.least_thickness_m
    corners = sample[rng.integers(0, len(sample), (settings.hypotheses, 3))]
    normal = face_crosses_m2(corners)
    length = np.linalg.norm(normal, axis=1)
    fine = length > 0
    normal = normal[fine] / length[fine, None]
    offset = -(normal * corners[fine, 0]).sum(axis=1)
    side = np.where(normal @ sensor + offset >= 0, 1.0, -1.0)
    planes = np.column_stack([normal, offset]) * side[:, None]
    planes = planes[[_allowed(plane[:3], settings) for plane in planes]] if settings.expected_normal else planes
    if len(planes) == 0:
        return None
    count = np.empty(len(planes), dtype=np.int64)
    count_inliers(sample, tolerance, np.ascontiguousarray(planes), count)
    return planes[int(np.argmax(count))]


def _refine(
    cloud: Cloud,
    why: np.ndarray,
    std: np.ndarray,
    row: np.ndarray,
    noise: NoiseSettings,
    rounds: tuple[tuple[float, int], ...] = _FROM_THREE_POINTS,
) -> PlaneFit | None:
    """Weighted total least squares with Tukey's loss, started at a plane (4,)."""
    points = cloud.flat_m
    finest = max(1, len(points) // _FIT_POINTS)
    shift = -row[3] * row[:3]
    for wider, coarser in rounds:
        s = np.empty(13)
        cut, stride = _CUT_SIGMAS * wider, coarser * finest
        plane_moments(points, why, std, cloud.sensor_m, cloud.axis, row, shift, cut, stride, s)
        if s[11] < 10:
            return None
        mean = s[1:4] / s[0]
        second = np.array([[s[4], s[5], s[6]], [s[5], s[7], s[8]], [s[6], s[8], s[9]]])
        scatter = second - s[0] * np.outer(mean, mean)
        values, vectors = np.linalg.eigh(scatter)
        # points on a line leave the plane free to turn about it
        if not np.isfinite(values).all() or values[1] <= 1e-6 * values[2]:
            return None
        normal = vectors[:, 0] * (1.0 if vectors[:, 0] @ row[:3] >= 0 else -1.0)
        row = np.append(normal, -normal @ (mean + shift))
    if normal @ cloud.sensor_m + row[3] < 0:
        row, normal = -row, -normal
    return _with_covariance(row, s, mean, second, shift, vectors[:, 1:].T, noise)


def _with_covariance(
    row: np.ndarray,
    s: np.ndarray,
    mean: np.ndarray,
    second: np.ndarray,
    shift: np.ndarray,
    tangents: np.ndarray,
    noise: NoiseSettings,
) -> PlaneFit:
    """(JᵀWJ)⁻¹ for the rows J = (t1·p, t2·p, 1) of δr = a1 t1·p + a2 t2·p + δd, widened when residuals exceed the
    noise."""
    total = s[0]
    moment = np.empty((4, 4))  # Σ w (p, 1)(p, 1)ᵀ with p = q + shift
    moment[:3, :3] = second + total * (np.outer(mean, shift) + np.outer(shift, mean) + np.outer(shift, shift))
    moment[:3, 3] = moment[3, :3] = total * (mean + shift)
    moment[3, 3] = total
    basis = np.zeros((4, 3))
    basis[:3, 0], basis[:3, 1], basis[3, 2] = tangents[0], tangents[1], 1.0
    excess = max(1.0, s[10] / s[11])
    covariance = np.linalg.inv(basis.T @ moment @ basis) * excess * noise.shared_px
    return PlaneFit(
        row[:3].copy(), float(row[3]), tangents.copy(), 0.5 * (covariance + covariance.T), int(s[11]), s[11] / s[12]
    )
