"""Where the rest shape lies: coarse tries over yaw and flips, then point-to-plane fitting to its signed distance.

The nearest point on the shape and the plane through it are what φ and its gradient say, so Gauss-Newton on φ(Rᵀ(x -
t)) is
point-to-plane ICP without a search for partners.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.linalg import eigh

from soft_estimator.backends.cpu.align import align
from soft_estimator.geometry.extent import widest_m
from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.perception.placed_shape import Pose, PoseScore, ShapeModel, distances_to, prepare_model
from soft_estimator.perception.settings import RegisterSettings

_ROUGHNESS = 0.01  # mean square slope error of a trilinear field across the surface
_GRID_ERROR = 0.05  # of a cell: shift of a pose by the field's error, which no number of points averages out
_STRAYS = 0.01  # share of the points beyond either end of a cloud that says nothing of its size
_WIDTHS = np.array([0.2, 0.15, 0.1, 0.08, 0.06, 0.05, 0.04, 0.04, 0.03, 0.03])  # of the shape's size, one a round
# How much worse than the last one a pose may fit and still be the same body turned the same way. Of 84 clouds of a
# duck, a brick and a ring elsewhere, turned by 0.1 rad or any, 59 were taken by these, none 2 degrees or 2 mm off.
_LESS_FITNESS, _LESS_SEEN, _MORE_EXCESS = 0.03, 0.1, 1.4
# A fit with more `excess` (right ones had 0.2 to 0.7) may be of another pose: what lies on none of its sides, as when
# it is dropped askew, is not among the first tries. Of a duck and a brick turned any way, 50 clouds in all, 16 were
# refused or more than 3 degrees off before, 2 are now.
_POOR = 1.0
_EVERY = 4  # point of a try's visible side is looked at: of some hundred tries only the best are kept
_PRIOR = np.array([1.0, 1.0])  # weak knowledge [1/rad², 1/m²] that keeps the covariance of a symmetric body finite


@dataclass(frozen=True, eq=False)
class PoseFit:
    """x_fixed = rotation · x_body + translation.

    Attributes:
        rotation: (3, 3). translation_m: (3,) [m].
        centre_m: the point in the fixed frame the covariance's rotation turns about [m], (3,).
        covariance: (6, 6) of (rotation vector [rad], shift [m]) in the fixed frame. A direction the cloud does not
            show (the
            axis of a ring) has a standard deviation near 1 rad.
        fitness: share of points on the shape within what noise and grid explain.
        seen: share of the shape's side facing the sensor that has points.
        rms_m: root mean square distance [m] of the points that fit.
        excess: their mean square distance over what noise and grid explain.
        rivals: other poses (rotation, translation) that fit as well: symmetric ones, or an ambiguity.
        in_vain: what `excess` was where more poses were tried for its sake, and none was better; 0: no more were.
    """

    rotation: np.ndarray
    translation_m: np.ndarray
    centre_m: np.ndarray
    covariance: np.ndarray
    fitness: float
    seen: float
    rms_m: float
    excess: float
    rivals: tuple[Pose, ...] = ()
    in_vain: float = 0.0


@dataclass(frozen=True, eq=False)
class PoseRefused:
    """The shape does not fit the cloud, why, and the best fit there was."""

    reason: str
    best: PoseFit | None = None


def register(
    rest: SignedDistanceGrid | ShapeModel,
    points_m: np.ndarray,
    std_m: np.ndarray,
    sensor_m: np.ndarray,
    up: np.ndarray | tuple[float, float, float] = (0.0, 0.0, 1.0),
    settings: RegisterSettings | None = None,
    last: PoseFit | None = None,
) -> PoseFit | PoseRefused:
    """Find the pose of a rest shape in the object points of one cloud.

    Args:
        rest: the shape in its body frame, or the same prepared.
        points_m, std_m: object points (n, 3) [m] and their noise (n,) [m], as `ObjectFinder` gives them.
        sensor_m: where the sensor is [m], (3,).
        up: direction about which yaw turns: the support plane's normal, or against gravity.
        last: how it lay in a cloud before. Turned as it was then it is tried first, and taken where it fits as well:
            that takes a tenth of the time of a search (a ball of 1,800 points).
    """
    settings = settings or RegisterSettings()
    points, std = np.ascontiguousarray(points_m, dtype=np.float64), np.asarray(std_m, dtype=np.float64)
    if len(points) < 20:
        return PoseRefused(f"{len(points)} points are too few to find a pose; at least 20 are needed")
    if not (np.isfinite(points).all() and np.isfinite(std).all() and (std > 0).all()):
        raise ValueError("points_m and std_m must be finite and std_m positive; pass what ObjectFinder returns")
    model = rest if isinstance(rest, ShapeModel) else prepare_model(rest)
    sensor = np.asarray(sensor_m, dtype=np.float64)
    size, longest = widest_m(points, _STRAYS), widest_m(model.vertices)
    if not 0.15 * longest < size < 1.3 * longest:
        return PoseRefused(
            f"the cloud is {size:.3f} m across and the rest shape {longest:.3f} m; "
            "check the shape's scale, or that the points are the object alone"
        )
    if last is not None:
        again = _as_before(model, points, std, sensor, last, settings)
        if again is not None:
            return again
    extent = float(np.linalg.norm(np.ptp(model.vertices, axis=0)))
    above = np.asarray(up, dtype=np.float64)
    tries = _coarse(model, points, sensor, above, settings, extent)
    best = _fine(model, points, std, sensor, tries, settings)
    poor = _POOR if last is None else max(_POOR, _MORE_EXCESS * last.in_vain)  # a bent body lies no better elsewhere
    if settings.flips and (best is None or best.excess > poor):
        tries += _coarse(model, points, sensor, above, settings, extent, between=True)
        before, best = best, _fine(model, points, std, sensor, tries, settings)
        if before is not None and best is not None and best.excess > before.excess / _MORE_EXCESS:
            best = replace(best, in_vain=before.excess)
    return _judge(best, settings)


def _as_before(
    model: ShapeModel,
    points: np.ndarray,
    std: np.ndarray,
    sensor: np.ndarray,
    last: PoseFit,
    settings: RegisterSettings,
) -> PoseFit | None:
    """The pose near the last one's rotation, where it explains the cloud as well as that one did its own."""
    rotations, translations = last.rotation[None].copy(), _facing(model, points, sensor, last.rotation[None])
    sample = np.ascontiguousarray(points[:: max(1, len(points) // settings.coarse_points)])
    extent = float(np.linalg.norm(np.ptp(model.vertices, axis=0)))
    _aligned(model, sample, np.full(len(sample), 0.003), rotations, translations, extent * _WIDTHS)
    fit = _fine(model, points, std, sensor, [(rotations[0], translations[0])], settings)
    if not isinstance(_judge(fit, settings), PoseFit) or fit is None:
        return None
    as_good = fit.fitness > last.fitness - _LESS_FITNESS and fit.seen > last.seen - _LESS_SEEN
    return fit if as_good and fit.excess < _MORE_EXCESS * last.excess else None


def follow(
    model: ShapeModel, points_m: np.ndarray, std_m: np.ndarray, starts: list[Pose], within_m: float
) -> tuple[Pose, np.ndarray]:
    """The pose near one of the starts that has the most points of a cloud (n, 3) [m] on the shape, and which those are.

    Unlike `register` it looks nowhere else, and points that are not the shape's do no harm.

    Args:
        std_m: the points' noise (n,) [m]. within_m: how near the shape a point must be.
    """
    points = np.ascontiguousarray(points_m, dtype=np.float64)
    sample = np.ascontiguousarray(points[:: max(1, len(points) // 600)])
    rotations, translations = np.array([r for r, _ in starts]), np.array([t for _, t in starts])
    extent = float(np.linalg.norm(np.ptp(model.vertices, axis=0)))
    widths = extent * np.array([0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.03, 0.02, 0.02])
    _aligned(model, sample, np.full(len(sample), 0.003), rotations, translations, widths)
    best, most = starts[0], np.zeros(len(points), dtype=bool)
    for pose in zip(rotations, translations):
        own = np.abs(distances_to(model, points, pose)[0]) < within_m + 3 * std_m
        if own.sum() > most.sum():
            best, most = pose, own
    return best, most


def start_rotations(up: np.ndarray, yaw_steps: int, flips: bool, between: bool = False) -> np.ndarray:
    """Body to fixed rotations (n, 3, 3): each side of the body up in turn (only z without flips), at each yaw.

    between: what lies between two or three sides instead, its box's 12 edges and 8 corners.
    """
    axis = up / np.linalg.norm(up)
    side = np.eye(3)[int(np.argmin(np.abs(axis)))]
    x = np.cross(side, axis) / np.linalg.norm(np.cross(side, axis))
    world = np.stack([x, np.cross(axis, x), axis], axis=1)
    eye = np.eye(3)
    ups = [eye[2], -eye[2], eye[0], -eye[0], eye[1], -eye[1]] if flips else [eye[2]]
    if between:
        signs = np.array([s for s in product((-1.0, 0.0, 1.0), repeat=3) if np.count_nonzero(s) > 1])
        ups = list(signs / np.linalg.norm(signs, axis=1)[:, None])
    rotations = []
    for body_up in ups:
        a = eye[int(np.argmin(np.abs(body_up)))]
        a = a - (a @ body_up) * body_up
        a /= np.linalg.norm(a)
        body = np.stack([a, np.cross(body_up, a), body_up], axis=1)
        for angle in 2 * np.pi * np.arange(yaw_steps) / yaw_steps:
            c, s = np.cos(angle), np.sin(angle)
            rotations.append(world @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]]) @ body.T)
    return np.array(rotations)


def _coarse(
    model: ShapeModel,
    points: np.ndarray,
    sensor: np.ndarray,
    up: np.ndarray,
    settings: RegisterSettings,
    extent: float,
    between: bool = False,
) -> list[Pose]:
    """The best poses of all tries, most promising first, without near doubles."""
    rotations = start_rotations(up, settings.yaw_steps, settings.flips, between)
    translations = _facing(model, points, sensor, rotations)
    sample = np.ascontiguousarray(points[:: max(1, len(points) // settings.coarse_points)])
    start = rotations.copy()
    cost = _aligned(model, sample, np.full(len(sample), 0.003), rotations, translations, extent * _WIDTHS)[0]
    turned = np.arccos(np.clip((np.einsum("hij,hij->h", start, rotations) - 1) / 2, -1, 1))
    cost = np.where(turned <= settings.max_tilt_rad, cost, np.inf)
    order = [int(h) for h in np.argsort(cost, kind="stable") if np.isfinite(cost[h])]
    distinct = _distinct([(rotations[h], translations[h]) for h in order], 5 * settings.keep)
    score = PoseScore(model, sample, sensor, 0.1 * extent, _EVERY)
    scores = [score.of(pose)[0] for pose in distinct]
    return [distinct[i] for i in np.argsort(scores, kind="stable")[: settings.keep]]


def _facing(model: ShapeModel, points: np.ndarray, sensor: np.ndarray, rotations: np.ndarray) -> np.ndarray:
    """Translations (h, 3) [m] that put the side which the sensor would see of the turned shape where the points are."""
    middle = points.mean(axis=0)
    toward = (sensor - middle) / np.linalg.norm(sensor - middle)
    facing = np.maximum(model.normals @ np.einsum("hij,i->hj", rotations, toward).T, 0.0) * model.areas[:, None]
    visible = facing.T @ model.vertices / facing.sum(axis=0)[:, None]  # (h, 3): that side's centre
    return np.asarray(middle - np.einsum("hij,hj->hi", rotations, visible))


def _aligned(
    model: ShapeModel,
    points: np.ndarray,
    std: np.ndarray,
    rotations: np.ndarray,
    translations: np.ndarray,
    widths: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Refine poses in place; costs (h,) [m] and normal matrices (h, 6, 6)."""
    cost, normal = np.empty(len(rotations)), np.empty((len(rotations), 6, 6))
    grid = (model.grid.phi_m, model.grid.origin_m, model.grid.spacing_m)
    stiffness = np.array([1e2, 1e4])
    align(points, std, points.mean(axis=0), *grid, widths, stiffness, rotations, translations, cost, normal)
    return cost, normal


def _distinct(poses: list[Pose], most: int, angle_rad: float = 0.12) -> list[Pose]:
    kept: list[Pose] = []
    for rotation, translation in poses:
        cosines = [(np.sum(rotation * other) - 1) / 2 for other, _ in kept]
        if not cosines or max(cosines) < np.cos(angle_rad):
            kept.append((rotation, translation))
        if len(kept) >= most:
            break
    return kept


def _fine(
    model: ShapeModel,
    points: np.ndarray,
    std: np.ndarray,
    sensor: np.ndarray,
    tries: list[Pose],
    settings: RegisterSettings,
) -> PoseFit | None:
    """Refine the tries with all points and the sensor's noise; the best of them with its rivals."""
    if not tries:
        return None
    step = max(1, len(points) // settings.points)
    points, std = np.ascontiguousarray(points[::step]), std[::step]
    rotations, translations = np.array([r for r, _ in tries]), np.array([t for _, t in tries])
    ray = points - sensor
    ray /= np.linalg.norm(ray, axis=1)[:, None]
    across = std
    grid_error = 0.1 * model.grid.spacing_m
    score = PoseScore(model, points, sensor, 0.1 * float(np.linalg.norm(np.ptp(model.vertices, axis=0))))
    for rounds in range(2):
        slope = distances_to(model, points, (rotations[0], translations[0]))[1] if rounds else None
        if slope is not None:  # noise runs along the ray: across a slanted surface there is less of it
            across = std * np.clip(np.abs((ray * slope).sum(axis=1)), 0.2, 1.0)
        total = np.hypot(across, grid_error)
        width = 3.0 * float(np.median(np.hypot(std, grid_error))) * np.array([4.0, 3.0, 2.0, 1.5, 1.0, 1.0, 1.0, 1.0])
        _, normal = _aligned(model, points, total, rotations, translations, width)
        judged = [score.of((r, t)) for r, t in zip(rotations, translations)]
        order = np.argsort([score for score, _ in judged], kind="stable")
        rotations, translations, normal = rotations[order], translations[order], normal[order]
        judged = [judged[i] for i in order]
    limit = judged[0][0] + 0.25 * model.grid.spacing_m
    rivals = [(r, t) for r, t, (score, _) in zip(rotations, translations, judged) if score < limit]
    distance, _ = distances_to(model, points, (rotations[0], translations[0]))
    fits = np.abs(distance) < 3 * np.hypot(std, 0.25 * model.grid.spacing_m)
    rms = float(np.sqrt(np.mean(distance[fits] ** 2))) if fits.any() else np.inf
    excess = float(np.mean((distance[fits] / total[fits]) ** 2)) if fits.any() else 1.0
    covariance = _covariance(normal[0] / max(excess, 1.0), points, total, model.grid.spacing_m)
    return PoseFit(
        rotations[0], translations[0], points.mean(axis=0), covariance, float(fits.mean()), judged[0][1], rms,
        excess, tuple(_distinct(rivals, settings.keep)[1:]),
    )  # fmt: skip


def _covariance(normal: np.ndarray, points: np.ndarray, std: np.ndarray, spacing_m: float) -> np.ndarray:
    """Covariance (6, 6) from JᵀWJ, less what the grid's own roughness adds to it, plus what the grid's error may shift.

    With normals in all directions at every point the information would be B = Σ w [y×, I]ᵀ[y×, I]. A direction that
    has only the
    share ROUGHNESS of that owes it to the ripples of the trilinear field, not to the body (a ring's turn about its
    axis).
    """
    y, weight = points - points.mean(axis=0), 1.0 / std**2
    cross = np.zeros((len(y), 3, 6))
    cross[:, 0, 1], cross[:, 0, 2], cross[:, 1, 2] = y[:, 2], -y[:, 1], y[:, 0]
    cross[:, 1, 0], cross[:, 2, 0], cross[:, 2, 1] = -y[:, 2], y[:, 1], -y[:, 0]
    cross[:, :, 3:] = np.eye(3)
    full = np.einsum("n,nai,naj->ij", weight, cross, cross)
    share, vectors = eigh(normal, full + 1e-9 * np.trace(full) * np.eye(6))  # vᵀ B v = 1
    back = (full @ vectors) * np.sqrt(np.maximum(share - _ROUGHNESS, 0.0))
    random = np.linalg.inv(back @ back.T + np.diag(np.repeat(_PRIOR, 3)))
    radius = float(np.sqrt((y**2).sum(axis=1).mean()))
    shift = _GRID_ERROR * spacing_m
    return random + np.diag(np.repeat([(shift / radius) ** 2, shift**2], 3))


def _judge(best: PoseFit | None, settings: RegisterSettings) -> PoseFit | PoseRefused:
    if best is None:
        return PoseRefused("no try stayed near its start; raise max_tilt_rad or yaw_steps")
    if best.fitness < settings.min_fitness:
        return PoseRefused(
            f"only {best.fitness:.0%} of the points lie on the rest shape at its best pose, min_fitness is "
            f"{settings.min_fitness:.0%}; is it the right shape, and at rest?",
            best,
        )
    if best.seen < settings.min_seen:
        return PoseRefused(
            f"points cover only {best.seen:.0%} of the side of the rest shape that faces the sensor, min_seen is "
            f"{settings.min_seen:.0%}; is the object partly hidden or the shape too large?",
            best,
        )
    return best
