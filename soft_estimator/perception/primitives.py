"""Balls, boxes, capsules and rings that stand on the table, fitted to what cameras saw of an object.

Points lie on the surface: φ(x) = 0. The outline, where a camera sees past the object, is touched by its rays: the least
φ along them is 0. Together they give a shape's size where only its front was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import ndimage
from scipy.optimize import OptimizeResult, least_squares

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
    """A shape along its own axes, and where it stands in the body frame of a scan.

    Attributes:
        shape: in its own frame. yaw_rad, place_m: its turn about the vertical and its place (x, y) [m].
        volume_m3, volume_std_m3: its volume and that volume's standard deviation by the fit [m³].
    """

    name: str
    shape: Shape
    yaw_rad: float
    place_m: tuple[float, float]
    volume_m3: float
    volume_std_m3: float

    @property
    def placed(self) -> Shape:
        """The shape in the body frame."""
        return _placed(self.shape, np.array([*self.place_m, self.yaw_rad]))


@dataclass(frozen=True, eq=False)
class _Kind:
    """A kind of shape by numbers (x, y, yaw, ...): from the others to the shape and its volume [m³], and to start from.

    Round shapes may stand lower than they would undeformed, for a soft one is flattened where it touches the table:
    their last number is the height of their middle.
    """

    name: str
    make: Callable[[np.ndarray], Shape]
    volume: Callable[[np.ndarray], float]
    first: Callable[[np.ndarray], list[float]]  # from the size of the box around the points (3,) [m]
    turns: float  # range of the yaw that tells shapes apart [rad], 0 where none does


def _placed(shape: Shape, at: np.ndarray) -> Shape:
    c, s = np.cos(at[2]), np.sin(at[2])
    return Placed(shape, ((c, -s, 0.0), (s, c, 0.0), (0.0, 0.0, 1.0)), (at[0], at[1], 0.0))


_KINDS = (
    _Kind(
        "ball",
        lambda q: Sphere(q[0], (0.0, 0.0, q[1])),
        lambda q: 4.0 / 3.0 * np.pi * q[0] ** 3,
        lambda size: [0.5 * size[2], 0.5 * size[2]],
        0.0,
    ),
    _Kind(
        "box",
        lambda q: Box((q[0], q[1], q[2]), (0.0, 0.0, 0.5 * q[2])),
        lambda q: float(np.prod(q)),
        lambda size: list(size),
        0.5 * np.pi,
    ),
    _Kind(
        "capsule",
        lambda q: Capsule((-0.5 * q[0], 0.0, q[2]), (0.5 * q[0], 0.0, q[2]), q[1]),
        lambda q: np.pi * q[1] ** 2 * (q[0] + 4.0 / 3.0 * q[1]),
        lambda size: [max(0.6 * float(size[:2].max()), 0.01), 0.5 * size[2], 0.5 * size[2]],
        np.pi,
    ),
    _Kind(
        "ring",
        lambda q: Torus(q[0], min(q[1], 0.98 * q[0]), (0.0, 0.0, q[2])),
        lambda q: 2 * np.pi**2 * q[0] * q[1] ** 2,
        lambda size: [0.5 * float(size[:2].max()) - 0.5 * size[2], 0.5 * size[2], 0.5 * size[2]],
        0.0,
    ),
)


PLAIN = tuple(kind.name for kind in _KINDS)


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
        shape = _placed(kind.make(np.maximum(p[3:], _LEAST_M)), p)
        off = [shape.distance_m(points) / std]
        for start, ray, width in rays:
            off.append(_least_along(shape, start, ray, middle, reach) / width)
        return np.concatenate(off)

    lengths = np.maximum(kind.first(np.array([*(high - low)[:2], high[2]])), _LEAST_M)
    yaws = np.arange(_YAWS) * kind.turns / _YAWS if kind.turns else np.zeros(1)
    scale = np.array([0.02, 0.02, 0.3, *np.full(len(lengths), 0.02)])

    def better(start: np.ndarray, calls: int) -> OptimizeResult:
        return least_squares(residuals, start, loss="soft_l1", x_scale=scale, max_nfev=calls)

    tries = sorted((better(np.array([*middle[:2], yaw, *lengths]), 5) for yaw in yaws), key=lambda found: found.cost)
    best = min((better(found.x, 30) for found in tries[:2]), key=lambda found: found.cost)
    if (best.x[3:] <= _LEAST_M).any():
        return None
    volume = kind.volume(best.x[3:])
    covariance = np.linalg.pinv(best.jac.T @ best.jac) * max(1.0, 2 * best.cost / len(best.fun))
    step = 1e-5
    slope = np.array([(kind.volume(best.x[3:] + step * e) - volume) / step for e in np.eye(len(lengths))])
    std_m3 = float(np.sqrt(max(slope @ covariance[3:, 3:] @ slope, 0.0)))
    place = (float(best.x[0]), float(best.x[1]))
    return FittedShape(kind.name, kind.make(best.x[3:]), float(best.x[2]), place, float(volume), std_m3)


def _least_along(shape: Shape, start: np.ndarray, ray: np.ndarray, middle: np.ndarray, reach: float) -> np.ndarray:
    """The least φ [m] along rays (n, 3) within reach [m] of the middle (3,): looked for, then once more around it."""
    centre = (middle - start) @ ray.T / (ray**2).sum(axis=1)
    width: np.ndarray = np.full(len(ray), reach)
    for _ in range(2):
        at = centre[:, None] + width[:, None] * np.linspace(-1.0, 1.0, _ALONG)
        places = start + at[:, :, None] * ray[:, None, :]
        distance = shape.distance_m(places.reshape(-1, 3)).reshape(at.shape)
        least = np.argmin(distance, axis=1)
        centre, width = at[np.arange(len(ray)), least], width * 2.0 / (_ALONG - 1)
    return distance.min(axis=1)
