"""Clouds as they come from sensors: any array of points, or a depth image with its camera."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from soft_estimator.backends.cpu.cloud import points_from_depth, transform_points
from soft_estimator.schema.section import shown

MOST_POINTS = 20_000_000


@dataclass(frozen=True, eq=False)
class Cloud:
    """Measured points in the fixed frame and the sensor that saw them.

    Attributes:
        points_m: (h, w, 3) organised as the sensor's image or (n, 3) in any order [m], float64, NaN where nothing was
            measured.
        rotation: sensor frame to fixed frame, (3, 3).
        sensor_m: position of the sensor in the fixed frame [m], (3,).
        axis: the sensor's viewing direction in the fixed frame, unit, (3,); depth is measured along it.
        colour: optional (h, w, 3) or (n, 3) uint8, in the points' order.
        lens: the camera, if the points came from its depth image.
    """

    points_m: np.ndarray
    rotation: np.ndarray
    sensor_m: np.ndarray
    axis: np.ndarray
    colour: np.ndarray | None = None
    lens: Intrinsics | None = None

    @property
    def organised(self) -> bool:
        """Whether neighbours in the array are neighbours in the image."""
        return self.points_m.ndim == 3

    @property
    def flat_m(self) -> np.ndarray:
        """The points as (n, 3) [m], a view."""
        return self.points_m.reshape(-1, 3)

    @property
    def size(self) -> int:
        """Number of points, measured or not."""
        return self.points_m.size // 3

    @cached_property
    def pixel_pitch(self) -> float:
        """Distance of neighbouring rays at depth 1, from the points themselves; 0 if the cloud is not organised."""
        if not self.organised:
            return 0.0
        if self.lens is not None:
            return 1.0 / max(self.lens.fx_px, self.lens.fy_px)
        rows = self.points_m[:: max(1, self.points_m.shape[0] // 32)]
        with np.errstate(over="ignore", invalid="ignore"):  # absurd coordinates give no step and drop out below
            offset = rows - self.sensor_m
            depth = offset @ self.axis
            ray = offset / np.where(np.isfinite(depth) & (depth > 0), depth, np.nan)[..., None]
            steps = np.linalg.norm(np.diff(ray, axis=1), axis=-1)
        steps = steps[np.isfinite(steps)]
        return float(np.median(steps)) if steps.size else 0.0


@dataclass(frozen=True)
class Intrinsics:
    """A depth camera's lens: pixel (u, v), centres at integers, looks along ((u - cx) / fx, (v - cy) / fy, 1),
    undistorted.

    Attributes:
        distortion: plumb_bob coefficients (k1, k2, p1, p2, k3), empty for none.
    """

    width_px: int
    height_px: int
    fx_px: float
    fy_px: float
    cx_px: float
    cy_px: float
    distortion: tuple[float, ...] = field(default=())

    def __post_init__(self) -> None:
        numbers = (self.fx_px, self.fy_px, self.cx_px, self.cy_px, *self.distortion)
        if self.width_px < 1 or self.height_px < 1:
            raise ValueError(f"image of {self.width_px}x{self.height_px} px: width and height must be at least 1")
        check_size(self.width_px * self.height_px)
        if not np.isfinite(numbers).all() or not (self.fx_px > 0 and self.fy_px > 0):
            given = shown([float(number) for number in numbers], 120)
            raise ValueError(
                f"fx, fy, cx, cy, distortion {given} must be finite and fx, fy positive; is it calibrated?"
            )
        if len(self.distortion) not in (0, 4, 5):
            raise ValueError(
                f"distortion has {len(self.distortion)} coefficients; plumb_bob has k1, k2, p1, p2, k3 (or none at all)"
            )

    @classmethod
    def from_camera_info(
        cls, width_px: int, height_px: int, k: np.ndarray, model: str = "", d: tuple[float, ...] | np.ndarray = ()
    ) -> Intrinsics:
        """From the fields of a camera description: 3x3 matrix k (9,), distortion model and coefficients d."""
        matrix = np.asarray(k, dtype=np.float64).reshape(3, 3)
        coefficients = tuple(float(c) for c in np.ravel(d))
        if not any(coefficients):
            coefficients = ()
        elif model not in ("plumb_bob", ""):
            raise ValueError(
                f"distortion model {shown(model)} is not supported; rectify the image or use plumb_bob or none"
            )
        return cls(width_px, height_px, matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2], coefficients)

    def rays(self) -> np.ndarray:
        """Undistorted ray of every pixel, third component 1, (h w, 3), row by row."""
        v, u = np.indices((self.height_px, self.width_px), dtype=np.float64)
        x, y = (u - self.cx_px) / self.fx_px, (v - self.cy_px) / self.fy_px
        if self.distortion:
            x, y = self._undistorted(x, y)
        return np.stack([x.ravel(), y.ravel(), np.ones(x.size)], axis=1)

    def _undistorted(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Solve distort(p) = (x, y) by fixed-point steps p ← p - (distort(p) - (x, y)); refuse a lens that folds
        over."""
        px, py = x.copy(), y.copy()
        for _ in range(50):
            ex, ey = self.distort(px, py)
            ex, ey = ex - x, ey - y
            px, py = px - ex, py - ey
            worst = max(float(np.abs(ex).max()), float(np.abs(ey).max()))
            if not worst < 10:
                break
            if worst < 1e-12:
                return px, py
        # a hundredth of a pixel in the corners is still far below what the sensor resolves
        if not worst < 0.01 / max(self.fx_px, self.fy_px):
            raise ValueError(
                f"distortion {shown(self.distortion, 120)} cannot be inverted over {self.width_px}x{self.height_px} "
                "px; check the calibration or rectify the image"
            )
        return px, py

    def distort(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the plumb_bob lens puts the ray (x, y, 1)."""
        k1, k2, p1, p2, k3 = (*self.distortion, 0.0, 0.0, 0.0, 0.0, 0.0)[:5]
        r2 = x * x + y * y
        radial = 1 + r2 * (k1 + r2 * (k2 + r2 * k3))
        return (
            x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
            y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
        )


_RAYS: dict[Intrinsics, np.ndarray] = {}  # the last few lenses: undistorting is done once, not per frame


def cloud_from_depth(
    depth: np.ndarray,
    lens: Intrinsics,
    transform: np.ndarray | None = None,
    colour: np.ndarray | None = None,
) -> Cloud:
    """A cloud from a depth image (h, w): unsigned 16-bit millimetres (16UC1) or floating metres (32FC1).

    Args:
        depth: measured along the optical axis; zero, negative, NaN and inf mean nothing was measured.
        lens: the camera that took it.
        transform: camera (optical) frame to fixed frame, (4, 4); identity by default.
    """
    image = np.asarray(depth)
    if image.shape != (lens.height_px, lens.width_px):
        raise ValueError(
            f"depth image of shape {image.shape} for a camera of {(lens.height_px, lens.width_px)} (height, width): "
            "sizes differ"
        )
    if image.dtype.kind == "u" and image.dtype.itemsize == 2:
        scale, image = 0.001, np.ascontiguousarray(image, dtype=np.uint16)
    elif image.dtype.kind == "f":
        scale, image = 1.0, np.ascontiguousarray(image, dtype=np.float32 if image.dtype.itemsize <= 4 else np.float64)
    else:
        raise ValueError(f"depth image of type {image.dtype}: give uint16 millimetres or float32 metres")
    rotation, translation = split_transform(transform)
    points = np.empty((image.size, 3))
    points_from_depth(image.ravel(), scale, _rays_of(lens), rotation, translation, points)
    axis = np.ascontiguousarray(rotation[:, 2])
    return Cloud(points.reshape(*image.shape, 3), rotation, translation, axis, _colours(colour, image.shape), lens)


def cloud_from_points(
    points: np.ndarray,
    transform: np.ndarray | None = None,
    colour: np.ndarray | None = None,
    optical_axis: tuple[float, float, float] = (0.0, 0.0, 1.0),
) -> Cloud:
    """A cloud from points (n, 3) or organised (h, w, 3) [m] in the sensor frame, whose origin is the sensor.

    Args:
        points: any real type and layout; NaN, inf and (0, 0, 0) mean nothing was measured.
        transform: sensor frame to fixed frame, (4, 4); identity by default.
        colour: uint8 of the same shape.
        optical_axis: viewing direction in the sensor frame: z for optical frames, (1, 0, 0) for body frames.
    """
    array = np.asarray(points)
    if array.ndim not in (2, 3) or array.shape[-1] != 3:
        raise ValueError(f"points of shape {array.shape}: give (n, 3), or (height, width, 3) for an organised cloud")
    check_size(array.size // 3)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"points of type {array.dtype}: give real numbers in metres")
    rotation, translation = split_transform(transform)
    direction = np.asarray(optical_axis, dtype=np.float64).reshape(3)
    length = float(np.linalg.norm(direction))
    if not (np.isfinite(length) and length > 0):
        raise ValueError(f"optical_axis {optical_axis} has no direction; give (0, 0, 1) for an optical frame")
    wanted = np.float32 if array.dtype.kind == "f" and array.dtype.itemsize <= 4 else np.float64
    flat = np.ascontiguousarray(array, dtype=wanted).reshape(-1, 3)
    out = np.empty(flat.shape)
    transform_points(flat, rotation, translation, out)
    axis = rotation @ (direction / length)
    return Cloud(out.reshape(array.shape), rotation, translation, axis, _colours(colour, array.shape[:-1]))


def check_size(points: int) -> None:
    """Refuse a cloud too large to be worked on: each of its points takes about a hundred bytes on the way."""
    if points > MOST_POINTS:
        raise ValueError(f"a cloud of {points} points is over the {MOST_POINTS} that are taken; thin or crop it first")


def split_transform(transform: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Rotation (3, 3) and translation (3,) [m] of a rigid transform (4, 4); refuses anything else."""
    if transform is None:
        return np.eye(3), np.zeros(3)
    matrix = np.asarray(transform, dtype=np.float64)
    if matrix.shape != (4, 4) or not np.isfinite(matrix).all() or not np.allclose(matrix[3], (0, 0, 0, 1)):
        raise ValueError(f"transform {matrix.tolist()} must be a finite 4x4 matrix with last row 0, 0, 0, 1")
    rotation = np.ascontiguousarray(matrix[:3, :3])
    if not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-5) or np.linalg.det(rotation) < 0:
        raise ValueError(f"transform {matrix.tolist()} is not rigid: its 3x3 part must be a rotation")
    return rotation, np.ascontiguousarray(matrix[:3, 3])


def _colours(colour: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray | None:
    if colour is None:
        return None
    array = np.asarray(colour)
    if array.shape != (*shape, 3) or array.dtype != np.uint8:
        raise ValueError(f"colour of shape {array.shape}, type {array.dtype}: give uint8 of shape {(*shape, 3)}")
    return array


def _rays_of(lens: Intrinsics) -> np.ndarray:
    if lens not in _RAYS:
        if len(_RAYS) >= 4:
            _RAYS.pop(next(iter(_RAYS)), None)
        _RAYS[lens] = lens.rays()
    return _RAYS[lens]
