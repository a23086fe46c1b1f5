"""Pixels that the filter of flying ones threw away, though they lie on a surface: the camera sees it so obliquely that
neighbours differ by much and few of them are measured."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.cloud import _depth
from soft_estimator.backends.cpu.compiled import njit

_REACH = 3  # pixels to either side
_MOST = 16  # nearest measured neighbours that are looked at: all pairs of them are tried


def _nearest_first() -> np.ndarray:
    steps = np.arange(-_REACH, _REACH + 1)
    offsets = np.array([(u, v) for v in steps for u in steps if 0 < u * u + v * v <= _REACH**2 + 1])
    return offsets[np.argsort((offsets**2).sum(axis=1), kind="stable")]


_OFFSETS = _nearest_first()


@njit(cache=True)
def regain_steep(
    points: np.ndarray,
    width: int,
    height: int,
    why: np.ndarray,
    flying: np.ndarray,
    std: np.ndarray,
    sensor: np.ndarray,
    axis: np.ndarray,
    pitch: float,
    lateral: float,
    slope: float,
    sigmas: float,
    least: int,
    steep: np.ndarray,
) -> None:
    """Take back flying (n,) bool pixels that lie on a plane with `least` of their neighbours.

    1/z is linear over the image of a plane. Of all planes through the pixel and two neighbours, no steeper than `slope`
    (tangent of the incidence), the one with most neighbours within noise is taken; noise is std (n,) [m] along the ray
    and `lateral` [px] across it, which a steep surface turns into depth. The neighbours alone must then foretell the
    pixel: a row of pixels along an outline lies on a plane with anything beside it, and says nothing.

    why: (n,), 0 for pixels that count, flying ones among them. steep: (n,) [m], written: rise of depth per pixel along
    the plane at pixels taken back, 0 elsewhere.
    """
    x, y, q = np.empty(_MOST), np.empty(_MOST), np.empty(_MOST)
    for v in range(height):
        for u in range(width):
            i = v * width + u
            steep[i] = 0.0
            if not flying[i]:
                continue
            z = _depth(points, i, sensor, axis)
            n = _gather(points, width, height, why, sensor, axis, u, v, x, y, q)
            if n < least or not z > 0.0:
                continue
            for m in range(n):
                q[m] = z * (z / q[m] - 1.0)  # z² (1/z_m - 1/z): depth by which the neighbour is nearer
            rise = _best_plane(x, y, q, n, std[i], lateral, slope * pitch * z, sigmas, least)
            if rise >= 0.0:
                flying[i] = False
                steep[i] = rise


@njit(cache=True)
def _gather(
    points: np.ndarray,
    width: int,
    height: int,
    why: np.ndarray,
    sensor: np.ndarray,
    axis: np.ndarray,
    u: int,
    v: int,
    x: np.ndarray,
    y: np.ndarray,
    depth: np.ndarray,
) -> int:
    """The nearest pixels that count: their places [px] about (u, v), their depths [m], and how many there are."""
    n = 0
    for k in range(_OFFSETS.shape[0]):
        u2, v2 = u + _OFFSETS[k, 0], v + _OFFSETS[k, 1]
        if u2 < 0 or u2 >= width or v2 < 0 or v2 >= height or why[v2 * width + u2] != 0:
            continue
        x[n], y[n] = _OFFSETS[k, 0], _OFFSETS[k, 1]
        depth[n] = _depth(points, v2 * width + u2, sensor, axis)
        n += 1
        if n == _MOST:
            break
    return n


@njit(cache=True)
def _best_plane(
    x: np.ndarray,
    y: np.ndarray,
    q: np.ndarray,
    n: int,
    std: float,
    lateral: float,
    limit: float,
    sigmas: float,
    least: int,
) -> float:
    """Rise [m per px] of the plane that most neighbours share, if they foretell q = 0 at the middle; -1 otherwise."""
    best, gx, gy = 0, 0.0, 0.0
    for a in range(n):
        for b in range(a):
            det = x[a] * y[b] - x[b] * y[a]
            if det == 0.0:
                continue
            hx, hy = (q[a] * y[b] - q[b] * y[a]) / det, (x[a] * q[b] - x[b] * q[a]) / det
            rise = hx * hx + hy * hy
            if rise > limit * limit:
                continue
            reach = 2.0 * sigmas * sigmas * (std * std + lateral * lateral * rise)
            count = 0
            for m in range(n):
                r = q[m] - hx * x[m] - hy * y[m]
                if r * r < reach:
                    count += 1
            if count > best:
                best, gx, gy = count, hx, hy
    if best < least:
        return -1.0
    rise = np.sqrt(gx * gx + gy * gy)
    noise = np.sqrt(std * std + lateral * lateral * rise * rise)
    value, spread = _foretold(x, y, q, n, gx, gy, sigmas * 1.4142 * noise)
    # Stricter than among neighbours: what is thrown away is mostly there for a reason, and half of it would be enough
    # to fill the gaps.
    if spread > 0.5 or abs(value) > 0.5 * sigmas * noise * np.sqrt(1.0 + spread):
        return -1.0
    return rise


@njit(cache=True)
def _foretold(
    x: np.ndarray, y: np.ndarray, q: np.ndarray, n: int, gx: float, gy: float, reach: float
) -> tuple[float, float]:
    """Value at the middle of the plane fitted to the neighbours within reach of slope (gx, gy), and its variance."""
    s, sx, sy, sxx, sxy, syy, t, tx, ty = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for m in range(n):
        if abs(q[m] - gx * x[m] - gy * y[m]) < reach:
            s += 1.0
            sx += x[m]
            sy += y[m]
            sxx += x[m] * x[m]
            sxy += x[m] * y[m]
            syy += y[m] * y[m]
            t += q[m]
            tx += q[m] * x[m]
            ty += q[m] * y[m]
    a, b, c = sxx * syy - sxy * sxy, sxy * sy - sx * syy, sx * sxy - sxx * sy
    det = s * a + sx * b + sy * c
    if det < 0.5:  # whole numbers: all in one line
        return 0.0, np.inf
    return (a * t + b * tx + c * ty) / det, a / det
