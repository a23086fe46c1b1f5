"""Balls, boxes, capsules and rings that stand on the table, fitted to what cameras saw of an object.

Points lie on the surface: φ(x) = 0. The outline, where a camera sees past the object, is touched by its rays: the least
φ along them is 0. Together they give a shape's size where only its front was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import ndimage
from scipy.optimize import least_squares

from soft_estimator.geometry.shapes import Box, Capsule, Placed, Shape, Sphere, Torus
from soft_estimator.perception.fusion import View
from soft_estimator.perception.scan_frames import ScanData

_MOST_POINTS, _MOST_RAYS = 800, 160
_ALONG = 33  # places along a ray at which φ is first looked at
_OUTLINE_PX = 0.6  # how well an outline is known [px]: a pixel is either on the object or not, and jitters by 0.3
_JUMP_SIGMAS, _JUMP_M = 4.0, 0.01  # an outline is seen only where what is behind lies this much farther
_YAWS = 6  # first turns that are tried
_LEAST_M = 0.004  # shortest side or radius that is tried


@dataclass(frozen=True, eq=False)
class FittedShape:
    """A shape in the body frame of a scan, its volume [m³] and that volume's standard deviation by the fit [m³]."""

    name: str
    shape: Shape
    volume_m3: float
    volume_std_m3: float


@dataclass(frozen=True, eq=False)
class _Kind:
    """A kind of shape: from numbers to the shape and its volume [m³], and numbers to start from."""

    name: str
    make: Callable[[np.ndarray], Shape]
    volume: Callable[[np.ndarray], float]
    starts: Callable[[np.ndarray, np.ndarray], list[np.ndarray]]
    lengths: tuple[int, ...]  # which numbers are lengths, and positive


def _turned(shape: Shape, yaw: float, x: float, y: float) -> Shape:
    c, s = np.cos(yaw), np.sin(yaw)
    return Placed(shape, ((c, -s, 0.0), (s, c, 0.0), (0.0, 0.0, 1.0)), (x, y, 0.0))


def _box(p: np.ndarray) -> Shape:
    return _turned(Box((p[3], p[4], p[5]), (0.0, 0.0, 0.5 * p[5])), p[2], p[0], p[1])


def _capsule(p: np.ndarray) -> Shape:
    half, r = 0.5 * p[3], p[4]
    return _turned(Capsule((-half, 0.0, r), (half, 0.0, r), r), p[2], p[0], p[1])


def _yaws(quarter: bool) -> np.ndarray:
    return np.arange(_YAWS) * (0.5 if quarter else 1.0) * np.pi / _YAWS


# low, high (3,) [m]: the box around the seen points, in the body frame
_KINDS = (
    _Kind(
        "ball",
        lambda p: Sphere(p[2], (p[0], p[1], p[2])),
        lambda p: 4.0 / 3.0 * np.pi * p[2] ** 3,
        lambda low, high: [np.array([*0.5 * (low + high)[:2], 0.5 * high[2]])],
        (2,),
    ),
    _Kind(
        "box",
        _box,
        lambda p: float(np.prod(p[3:6])),
        lambda low, high: [np.array([*0.5 * (low + high)[:2], a, *(high - low)[:2], high[2]]) for a in _yaws(True)],
        (3, 4, 5),
    ),
    _Kind(
        "capsule",
        _capsule,
        lambda p: np.pi * p[4] ** 2 * (p[3] + 4.0 / 3.0 * p[4]),
        lambda low, high: [
            np.array([*0.5 * (low + high)[:2], a, max(0.6 * float((high - low)[:2].max()), 0.01), 0.5 * high[2]])
            for a in _yaws(False)
        ],
        (3, 4),
    ),
    _Kind(
        "ring",
        lambda p: Torus(p[2], min(p[3], 0.98 * p[2]), (p[0], p[1], p[3])),
        lambda p: 2 * np.pi**2 * p[2] * p[3] ** 2,
        lambda low, high: [
            np.array([*0.5 * (low + high)[:2], 0.5 * float((high - low)[:2].max()) - 0.5 * high[2], 0.5 * high[2]])
        ],
        (2, 3),
    ),
)


def fit_primitives(data: ScanData) -> list[FittedShape]:
    """Every kind of shape at its best, in no order of merit; only for an object that stands on a seen plane."""
    if not data.stands:
        return []
    points, std = _points(data)
    rays = [found for view in _distinct(data.views) if (found := _outline(view, data)) is not None]
    out = []
    for kind in _KINDS:
        fitted = _fit(kind, points, std, rays)
        if fitted is not None:
            out.append(fitted)
    return out


def _points(data: ScanData) -> tuple[np.ndarray, np.ndarray]:
    std = np.concatenate([found.std_m for _, found in data.frames])
    step = max(1, len(std) // _MOST_POINTS)
    return data.local_m[::step], std[::step]


def _distinct(views: list[View]) -> list[View]:
    """One view of each camera pose."""
    kept: list[View] = []
    for view in views:
        if not any(np.allclose(view.translation_m, k.translation_m, atol=1e-6) for k in kept):
            kept.append(view)
    return kept


def _outline(view: View, data: ScanData) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Rays along the object's outline: where they start (3,), their directions (n, 3) of depth 1, both in the body
    frame, and the width [m] to which the outline is known; None where it is not seen."""
    body, behind = view.body, (view.depth_m > 0) & ~view.body
    if not body.any() or not behind.any():
        return None
    to_body, at = ndimage.distance_transform_edt(~body, return_indices=True)
    to_behind, other = ndimage.distance_transform_edt(~behind, return_indices=True)
    jump = view.depth_m[tuple(other)] - view.depth_m[tuple(at)] > _JUMP_M + _JUMP_SIGMAS * data.std_m
    # Half way between the last pixel of the object and the first of what is behind; edge pixels between are neither.
    edge = (np.abs(to_body - to_behind) <= 1.0) & (to_body + to_behind <= 4.5) & jump
    v, u = np.nonzero(edge)
    if len(u) == 0:
        return None
    shift = 0.5 * (to_behind - to_body)[v, u]
    away = np.stack([u - at[1][v, u], v - at[0][v, u]], axis=1).astype(float)
    away += np.where(body[v, u, None], np.stack([other[1][v, u] - u, other[0][v, u] - v], axis=1), 0.0)
    away /= np.maximum(np.linalg.norm(away, axis=1), 1e-9)[:, None]
    u_at, v_at = u + shift * away[:, 0], v + shift * away[:, 1]
    step = max(1, len(u) // _MOST_RAYS)
    lens = view.lens
    x, y = (u_at[::step] - lens.cx_px) / lens.fx_px, (v_at[::step] - lens.cy_px) / lens.fy_px
    rotation, origin = data.frame
    ray = np.stack([x, y, np.ones_like(x)], axis=1) @ view.rotation.T @ rotation
    start = (view.translation_m - origin) @ rotation
    depth = float(np.median(view.depth_m[body]))
    return start, ray, _OUTLINE_PX * depth / lens.fx_px


def _fit(
    kind: _Kind, points: np.ndarray, std: np.ndarray, rays: list[tuple[np.ndarray, np.ndarray, float]]
) -> FittedShape | None:
    low, high = points.min(axis=0), points.max(axis=0)
    middle, reach = 0.5 * (low + high), 0.75 * float(np.linalg.norm(high - low))

    def residuals(p: np.ndarray) -> np.ndarray:
        q = p.copy()
        q[list(kind.lengths)] = np.maximum(q[list(kind.lengths)], _LEAST_M)
        shape = kind.make(q)
        off = [shape.distance_m(points) / std]
        for start, ray, width in rays:
            off.append(_least_along(shape, start, ray, middle, reach) / width)
        return np.concatenate(off)

    best = None
    for first in kind.starts(low, high):
        first[list(kind.lengths)] = np.maximum(first[list(kind.lengths)], _LEAST_M)
        found = least_squares(
            residuals, first, loss="soft_l1", x_scale=np.where(np.abs(first) > 1, 1.0, 0.02), max_nfev=25
        )
        if best is None or found.cost < best.cost:
            best = found
    if best is None or (best.x[list(kind.lengths)] <= _LEAST_M).any():
        return None
    volume = kind.volume(best.x)
    excess = max(1.0, 2 * best.cost / len(best.fun))
    covariance = np.linalg.pinv(best.jac.T @ best.jac) * excess
    step = 1e-5
    slope = np.array([(kind.volume(best.x + step * e) - volume) / step for e in np.eye(len(best.x))])
    return FittedShape(kind.name, kind.make(best.x), volume, float(np.sqrt(max(slope @ covariance @ slope, 0.0))))


def _scale(kind: _Kind, count: int) -> np.ndarray:
    """Sizes of usual steps: centimetres, and tenths of a radian for the turn of a shape that has one."""
    scale = np.full(count, 0.02)
    if kind.name in ("box", "capsule"):
        scale[2] = 0.3
    return scale


def _least_along(shape: Shape, start: np.ndarray, ray: np.ndarray, middle: np.ndarray, reach: float) -> np.ndarray:
    """The least φ [m] along rays (n, 3) within reach [m] of the middle (3,): looked for, then once more around it."""
    centre = (middle - start) @ ray.T / (ray**2).sum(axis=1)
    width = np.full(len(ray), reach)
    for _ in range(2):
        at = centre[:, None] + width[:, None] * np.linspace(-1.0, 1.0, _ALONG)
        places = start + at[:, :, None] * ray[:, None, :]
        distance = shape.distance_m(places.reshape(-1, 3)).reshape(at.shape)
        least = np.argmin(distance, axis=1)
        centre, width = at[np.arange(len(ray)), least], width * 2.0 / (_ALONG - 1)
    return distance.min(axis=1)
