"""Loops over the points of a cloud: depth to points, first sorting out, plane moments, flying pixels, thinning.

Points are float64 (n, 3), NaN where nothing was measured; an organised cloud is the same array with its rows one after
the other. `why` holds one uint8 code per point, 0 while it is undecided.

These loops run on one core on purpose. Each takes about a millisecond for a camera's frame, and the estimator wants all
cores at the same time: measured under such load, waiting at the joins of parallel loops cost ten times what they saved.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit


@njit(cache=True)
def points_from_depth(
    depth: np.ndarray, scale: float, rays: np.ndarray, rotation: np.ndarray, translation: np.ndarray, out: np.ndarray
) -> None:
    """out (n, 3) [m] = rotation · (depth · scale · ray) + translation; NaN where depth (n,) is not positive and
    finite."""
    for i in range(depth.shape[0]):
        z = float(depth[i]) * scale
        if z > 0.0 and z < np.inf:
            x, y, w = rays[i, 0] * z, rays[i, 1] * z, rays[i, 2] * z
            for k in range(3):
                out[i, k] = rotation[k, 0] * x + rotation[k, 1] * y + rotation[k, 2] * w + translation[k]
        else:
            out[i, 0] = out[i, 1] = out[i, 2] = np.nan


@njit(cache=True)
def transform_points(points: np.ndarray, rotation: np.ndarray, translation: np.ndarray, out: np.ndarray) -> None:
    """out (n, 3) = rotation · point + translation; NaN for points that are not finite, or the origin (no
    measurement)."""
    for i in range(points.shape[0]):
        x, y, z = float(points[i, 0]), float(points[i, 1]), float(points[i, 2])
        usable = np.isfinite(x) and np.isfinite(y) and np.isfinite(z)
        if usable and (x != 0.0 or y != 0.0 or z != 0.0):
            for k in range(3):
                out[i, k] = rotation[k, 0] * x + rotation[k, 1] * y + rotation[k, 2] * z + translation[k]
        else:
            out[i, 0] = out[i, 1] = out[i, 2] = np.nan


@njit(cache=True)
def sort_out(
    points: np.ndarray,
    sensor: np.ndarray,
    axis: np.ndarray,
    limits: np.ndarray,
    noise: np.ndarray,
    boxes: np.ndarray,
    codes: np.ndarray,
    why: np.ndarray,
    std: np.ndarray,
) -> None:
    """First look at every point: is it a measurement, in range, in the first box and in none of the others?

    Args:
        points: (n, 3) [m]. sensor: (3,) [m]. axis: optical axis (3,).
        limits: nearest and farthest depth [m]. noise: a, b of std = a + b depth².
        boxes: (1 + nb, 2, 3) [m], low and high corner; the first is kept, the others are removed.
        codes: why-codes for: no measurement, out of range, outside the first box, inside another.
        why: (n,) uint8, written. std: (n,) [m], written.
    """
    for i in range(points.shape[0]):
        x, y, z = points[i, 0], points[i, 1], points[i, 2]
        std[i] = np.inf
        if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z)):
            why[i] = codes[0]
            continue
        depth = axis[0] * (x - sensor[0]) + axis[1] * (y - sensor[1]) + axis[2] * (z - sensor[2])
        std[i] = noise[0] + noise[1] * depth * depth
        reach = 10.0 * limits[1]  # to the side; keeps voxel numbers within integers
        aside = max(abs(x - sensor[0]), abs(y - sensor[1]), abs(z - sensor[2])) > reach
        if aside or not (depth >= limits[0] and depth <= limits[1]):
            why[i] = codes[1]
        elif not _within(x, y, z, boxes[0]):
            why[i] = codes[2]
        else:
            code = np.uint8(0)
            for b in range(1, boxes.shape[0]):
                if _within(x, y, z, boxes[b]):
                    code = codes[3]
            why[i] = code


@njit(cache=True)
def _within(x: float, y: float, z: float, box: np.ndarray) -> bool:
    return x >= box[0, 0] and x <= box[1, 0] and y >= box[0, 1] and y <= box[1, 1] and z >= box[0, 2] and z <= box[1, 2]


@njit(cache=True)
def count_inliers(points: np.ndarray, tolerance: np.ndarray, planes: np.ndarray, out: np.ndarray) -> None:
    """out (k,): how many points lie within their tolerance (n,) [m] of each plane (k, 4), rows n, d."""
    for k in range(planes.shape[0]):
        a, b, c, d = planes[k, 0], planes[k, 1], planes[k, 2], planes[k, 3]
        total = 0
        for i in range(points.shape[0]):
            if abs(a * points[i, 0] + b * points[i, 1] + c * points[i, 2] + d) < tolerance[i]:
                total += 1
        out[k] = total


@njit(cache=True)
def plane_moments(
    points: np.ndarray,
    why: np.ndarray,
    std: np.ndarray,
    sensor: np.ndarray,
    axis: np.ndarray,
    plane: np.ndarray,
    shift: np.ndarray,
    cut: float,
    stride: int,
    out: np.ndarray,
) -> None:
    """Weighted moments of the points near a plane, into out (13,).

    Weight = Tukey(r / (cut s)) / s², s = |n·ray| std the noise across the plane. Columns: Σw, Σw q (3), Σw q qᵀ (6,
    upper),
    Σ w (r/s)²-ready χ² of the points, count of points within cut, count of undecided points; q = p - shift.
    """
    s = np.zeros(13)
    for i in range(0, points.shape[0], stride):
        if why[i] != 0:
            continue
        s[12] += 1
        qx, qy, qz = points[i, 0] - shift[0], points[i, 1] - shift[1], points[i, 2] - shift[2]
        rx, ry, rz = points[i, 0] - sensor[0], points[i, 1] - sensor[1], points[i, 2] - sensor[2]
        depth = axis[0] * rx + axis[1] * ry + axis[2] * rz
        across = abs(plane[0] * rx + plane[1] * ry + plane[2] * rz) / max(depth, 1e-9) * std[i]
        across = max(across, 0.1 * std[i])
        r = (plane[0] * points[i, 0] + plane[1] * points[i, 1] + plane[2] * points[i, 2] + plane[3]) / across
        if abs(r) >= cut:
            continue
        t = 1.0 - (r / cut) ** 2
        w = t * t / (across * across)
        s[0] += w
        s[1] += w * qx
        s[2] += w * qy
        s[3] += w * qz
        s[4] += w * qx * qx
        s[5] += w * qx * qy
        s[6] += w * qx * qz
        s[7] += w * qy * qy
        s[8] += w * qy * qz
        s[9] += w * qz * qz
        s[10] += r * r
        s[11] += 1
    for k in range(13):
        out[k] = s[k]


@njit(cache=True)
def split_by_plane(
    points: np.ndarray,
    std: np.ndarray,
    sensor: np.ndarray,
    axis: np.ndarray,
    plane: np.ndarray,
    least: float,
    sigmas: float,
    codes: np.ndarray,
    why: np.ndarray,
) -> None:
    """Undecided points within max(least, sigmas · noise across the plane) get codes[0], those below it codes[1]."""
    for i in range(points.shape[0]):
        if why[i] != 0:
            continue
        rx, ry, rz = points[i, 0] - sensor[0], points[i, 1] - sensor[1], points[i, 2] - sensor[2]
        depth = axis[0] * rx + axis[1] * ry + axis[2] * rz
        across = abs(plane[0] * rx + plane[1] * ry + plane[2] * rz) / max(depth, 1e-9) * std[i]
        height = plane[0] * points[i, 0] + plane[1] * points[i, 1] + plane[2] * points[i, 2] + plane[3]
        limit = max(least, sigmas * across)
        if height < -limit:
            why[i] = codes[1]
        elif height <= limit:
            why[i] = codes[0]


@njit(cache=True)
def find_flying(
    points: np.ndarray,
    width: int,
    height: int,
    why: np.ndarray,
    std: np.ndarray,
    sensor: np.ndarray,
    axis: np.ndarray,
    pitch: float,
    slope: float,
    sigmas: float,
    least_friends: int,
    out: np.ndarray,
) -> None:
    """out (n,) bool: undecided pixels with too few friends among their eight neighbours in the image.

    A friend is a measurement whose depth differs by less than sigmas · √2 std + slope · the pixels' distance: what
    noise
    and a surface at the steepest incidence that counts explain. Points of the support plane are no friends.
    """
    for v in range(height):
        for u in range(width):
            i = v * width + u
            out[i] = False
            if why[i] != 0:
                continue
            depth = _depth(points, i, sensor, axis)
            step = slope * pitch * depth
            friends = 0
            for dv in range(-1, 2):
                for du in range(-1, 2):
                    v2, u2 = v + dv, u + du
                    if (dv == 0 and du == 0) or v2 < 0 or v2 >= height or u2 < 0 or u2 >= width:
                        continue
                    j = v2 * width + u2
                    if why[j] != 0:
                        continue
                    reach = sigmas * 1.4142 * std[i] + step * (1.4142 if dv != 0 and du != 0 else 1.0)
                    if abs(_depth(points, j, sensor, axis) - depth) < reach:
                        friends += 1
            out[i] = friends < least_friends


@njit(cache=True)
def _depth(points: np.ndarray, i: int, sensor: np.ndarray, axis: np.ndarray) -> float:
    return (
        axis[0] * (points[i, 0] - sensor[0])
        + axis[1] * (points[i, 1] - sensor[1])
        + axis[2] * (points[i, 2] - sensor[2])
    )


@njit(cache=True)
def _hash(a: int, b: int, c: int) -> int:
    mixed = (a * np.int64(73856093)) ^ (b * np.int64(19349669)) ^ (c * np.int64(83492791))
    mixed ^= mixed >> np.int64(17)
    mixed *= np.int64(0x2545F4914F6CDD1D)
    mixed ^= mixed >> np.int64(29)
    return int(mixed & np.int64(0x7FFFFFFFFFFFFFFF))
