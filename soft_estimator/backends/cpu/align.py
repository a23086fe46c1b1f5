"""Moving points onto the zero level of a signed distance grid: many starts at once, Gauss-Newton on φ(Rᵀ(x - t))."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit, prange


@njit(cache=True)
def distance_and_slope(phi: np.ndarray, origin: np.ndarray, spacing: float, x: np.ndarray, slope: np.ndarray) -> float:
    """Trilinear φ at x (3,), its gradient into slope (3,). Outside the grid: φ at the nearest point of it plus the way
    there; infinite, with slope zero, where x is no place at all (NaN, or farther than numbers reach)."""
    slope[0] = slope[1] = slope[2] = 0.0
    gx, gy, gz = (x[0] - origin[0]) / spacing, (x[1] - origin[1]) / spacing, (x[2] - origin[2]) / spacing
    if not (np.isfinite(gx) and np.isfinite(gy) and np.isfinite(gz)):
        return np.inf  # NaN as an index reads anywhere
    cx = min(max(gx, 0.0), phi.shape[0] - 1.0)
    cy = min(max(gy, 0.0), phi.shape[1] - 1.0)
    cz = min(max(gz, 0.0), phi.shape[2] - 1.0)
    i, j, k = min(int(cx), phi.shape[0] - 2), min(int(cy), phi.shape[1] - 2), min(int(cz), phi.shape[2] - 2)
    fx, fy, fz = cx - i, cy - j, cz - k
    value = along_x = along_y = along_z = 0.0
    for a in range(2):
        wa, da = (fx, 1.0) if a else (1.0 - fx, -1.0)
        for b in range(2):
            wb, db = (fy, 1.0) if b else (1.0 - fy, -1.0)
            for c in range(2):
                wc, dc = (fz, 1.0) if c else (1.0 - fz, -1.0)
                p = phi[i + a, j + b, k + c]
                value += wa * wb * wc * p
                along_x += da * wb * wc * p
                along_y += wa * db * wc * p
                along_z += wa * wb * dc * p
    slope[0], slope[1], slope[2] = along_x / spacing, along_y / spacing, along_z / spacing
    ax, ay, az = (gx - cx) * spacing, (gy - cy) * spacing, (gz - cz) * spacing
    length = np.sqrt(ax * ax + ay * ay + az * az)
    if length > 0.0:
        value += length
        slope[0], slope[1], slope[2] = ax / length, ay / length, az / length
    return value


@njit(parallel=True, cache=True)
def distances(
    points: np.ndarray, phi: np.ndarray, origin: np.ndarray, spacing: float, out: np.ndarray, slopes: np.ndarray
) -> None:
    """φ (n,) and its gradient (n, 3) at points (n, 3) of the body frame."""
    for i in prange(points.shape[0]):
        out[i] = distance_and_slope(phi, origin, spacing, points[i], slopes[i])


@njit(cache=True)
def _solve(a: np.ndarray, b: np.ndarray) -> None:
    """Solve the symmetric positive definite system a x = b in place: x into b, a is destroyed."""
    n = b.shape[0]
    for i in range(n):
        pivot = max(a[i, i], 1e-300)
        for r in range(i + 1, n):
            share = a[r, i] / pivot
            for c in range(i, n):
                a[r, c] -= share * a[i, c]
            b[r] -= share * b[i]
    for i in range(n - 1, -1, -1):
        for c in range(i + 1, n):
            b[i] -= a[i, c] * b[c]
        b[i] /= max(a[i, i], 1e-300)


@njit(cache=True)
def _move(rotation: np.ndarray, translation: np.ndarray, centre: np.ndarray, step: np.ndarray) -> None:
    """Turn a pose by the rotation vector step[:3] (Rodrigues) about the centre and shift it by step[3:], in place.

    A step that is not finite, from weights beyond all numbers, leaves it where it is.
    """
    for i in range(6):
        if not np.isfinite(step[i]):
            return
    x, y, z = step[0], step[1], step[2]
    angle = np.sqrt(x * x + y * y + z * z)
    s = np.sin(angle) / angle if angle > 1e-9 else 1.0
    c = (1.0 - np.cos(angle)) / (angle * angle) if angle > 1e-9 else 0.5
    turn = np.empty((3, 3))
    turn[0, 0], turn[0, 1], turn[0, 2] = 1 - c * (y * y + z * z), c * x * y - s * z, c * x * z + s * y
    turn[1, 0], turn[1, 1], turn[1, 2] = c * x * y + s * z, 1 - c * (x * x + z * z), c * y * z - s * x
    turn[2, 0], turn[2, 1], turn[2, 2] = c * x * z - s * y, c * y * z + s * x, 1 - c * (x * x + y * y)
    old, offset = rotation.copy(), translation - centre
    for i in range(3):
        translation[i] = centre[i] + step[3 + i]
        for k in range(3):
            translation[i] += turn[i, k] * offset[k]
        for j in range(3):
            rotation[i, j] = turn[i, 0] * old[0, j] + turn[i, 1] * old[1, j] + turn[i, 2] * old[2, j]


@njit(cache=True)
def _normal_equations(
    points: np.ndarray,
    std: np.ndarray,
    centre: np.ndarray,
    phi: np.ndarray,
    origin: np.ndarray,
    spacing: float,
    width: float,
    rotation: np.ndarray,
    translation: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
) -> float:
    """JᵀWJ into a (6, 6), -JᵀWr into b (6,), for a turn ω about the centre and a shift s; mean min(|φ|, width) [m]."""
    slope, local, j = np.empty(3), np.empty(3), np.empty(6)
    a[:] = 0.0
    b[:] = 0.0
    total = 0.0
    for i in range(points.shape[0]):
        x, y, z = points[i, 0] - translation[0], points[i, 1] - translation[1], points[i, 2] - translation[2]
        for k in range(3):
            local[k] = rotation[0, k] * x + rotation[1, k] * y + rotation[2, k] * z
        r = distance_and_slope(phi, origin, spacing, local, slope)
        total += min(abs(r), width)
        if r == np.inf:
            continue
        for k in range(3):
            # the body shifted by s sees the point at x - s
            j[3 + k] = -(rotation[k, 0] * slope[0] + rotation[k, 1] * slope[1] + rotation[k, 2] * slope[2])
        y0, y1, y2 = points[i, 0] - centre[0], points[i, 1] - centre[1], points[i, 2] - centre[2]
        # and the body turned by ω at x - ω×y
        j[0], j[1], j[2] = y1 * j[5] - y2 * j[4], y2 * j[3] - y0 * j[5], y0 * j[4] - y1 * j[3]
        loss = 1.0 / (1.0 + (r / width) ** 2)
        w = loss * loss / max(std[i] * std[i], 1e-300)
        for p in range(6):
            b[p] -= w * j[p] * r
            for q in range(6):
                a[p, q] += w * j[p] * j[q]
    return total / max(points.shape[0], 1)


@njit(parallel=True, cache=True)
def align(
    points: np.ndarray,
    std: np.ndarray,
    centre: np.ndarray,
    phi: np.ndarray,
    origin: np.ndarray,
    spacing: float,
    widths: np.ndarray,
    stiffness: np.ndarray,
    rotations: np.ndarray,
    translations: np.ndarray,
    cost: np.ndarray,
    normal: np.ndarray,
) -> None:
    """Refine poses x_fixed = R x_body + t in place, one Gauss-Newton step per entry of widths.

    Args:
        points: (n, 3) [m] in the fixed frame. std: (n,) [m], noise along the normal. centre: (3,), turned about.
        widths: loss scale of each step [m]; residuals beyond it count less (Geman-McClure).
        stiffness: resistance against turning [1/rad²] and shifting [1/m²], keeps free directions where they are.
        rotations, translations: (h, 3, 3), (h, 3), read and written. cost: (h,), mean min(|φ|, last width), written.
        normal: (h, 6, 6), JᵀWJ at the final poses without the stiffness, written.
    """
    last = widths.shape[0] - 1
    for h in prange(rotations.shape[0]):
        a, b = np.empty((6, 6)), np.empty(6)
        model = (phi, origin, spacing)
        for step in range(widths.shape[0]):
            _normal_equations(points, std, centre, *model, widths[step], rotations[h], translations[h], a, b)
            for p in range(6):
                a[p, p] += stiffness[0] if p < 3 else stiffness[1]
            _solve(a, b)
            _move(rotations[h], translations[h], centre, b)
        cost[h] = _normal_equations(
            points, std, centre, *model, widths[last], rotations[h], translations[h], normal[h], b
        )
