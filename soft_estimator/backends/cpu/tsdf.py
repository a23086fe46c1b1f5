"""Fusing depth images into a truncated signed distance field on a grid of nodes, and smoothing them before.

Every node is written by one thread only and meets the images in their order, so the result does not depend on the
number of threads.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit, prange


@njit(parallel=True, cache=True)
def smooth_depth(
    depth: np.ndarray, noise: np.ndarray, pitch: float, slope: float, sigmas: float, radius: int, out: np.ndarray
) -> None:
    """out (h, w) [m]: mean inverse depth over a window, taken only in pairs of opposite pixels on the same surface.

    1/z is linear over a plane, so a pair leaves a slanted plane where it is; at an edge there are no pairs. A lost
    pixel is filled in when most pairs around it agree.
    """
    height, width = depth.shape
    pairs = radius * (2 * radius + 1) + radius
    for v in prange(height):
        for u in range(width):
            z = depth[v, u]
            lost = not z > 0.0
            total, count = (0.0, 0) if lost else (1.0 / z, 1)
            for dv in range(radius + 1):
                for du in range(-radius, radius + 1):
                    if dv == 0 and du <= 0:
                        continue
                    if v + dv >= height or v - dv < 0 or u + du >= width or u + du < 0 or u - du >= width or u - du < 0:
                        continue
                    a, b = depth[v + dv, u + du], depth[v - dv, u - du]
                    if not (a > 0.0 and b > 0.0):
                        continue
                    middle = 0.5 * (a + b) if lost else z
                    std = noise[0] + noise[1] * middle * middle
                    reach = sigmas * 1.4142 * std + slope * pitch * middle * np.sqrt(float(dv * dv + du * du))
                    bend = abs(0.5 * (a + b) - middle)
                    if abs(a - middle) < reach and abs(b - middle) < reach and bend < 1.3 * sigmas * std:
                        total += 1.0 / a + 1.0 / b
                        count += 2
            known = count > pairs if lost else True  # a pair counts two
            out[v, u] = count / total if known else 0.0


@njit(cache=True)  # on one thread: a cheap loop, and threads take three times as long to compile
def incidence(depth: np.ndarray, lens: np.ndarray, step_px: int, out: np.ndarray) -> None:
    """out (h, w): cosine between ray and surface normal, from slopes of 1/z over step_px; 0 where unknown.

    On a plane n·p = c, 1/z = (n/c)·d with d the ray (x, y, 1), so its slopes are n/c. Of two one-sided slopes the
    smaller is
    taken, the one that stays on the surface.
    """
    height, width = depth.shape
    slope = np.zeros(2)
    for v in range(height):
        for u in range(width):
            out[v, u] = 0.0
            z = depth[v, u]
            if not z > 0.0:
                continue
            here = 1.0 / z
            known = True
            for axis in range(2):
                best = np.inf
                for sign in (-1, 1):
                    v2 = v + (sign * step_px if axis == 1 else 0)
                    u2 = u + (sign * step_px if axis == 0 else 0)
                    if v2 < 0 or v2 >= height or u2 < 0 or u2 >= width or not depth[v2, u2] > 0.0:
                        continue
                    s = (1.0 / depth[v2, u2] - here) / (sign * step_px) * lens[axis]
                    if abs(s) < abs(best):
                        best = s
                if best == np.inf:
                    known = False
                else:
                    slope[axis] = best
            if not known:
                continue
            x, y = (u - lens[2]) / lens[0], (v - lens[3]) / lens[1]
            n2 = here - slope[0] * x - slope[1] * y
            length = np.sqrt(slope[0] ** 2 + slope[1] ** 2 + n2 * n2) * np.sqrt(x * x + y * y + 1.0)
            out[v, u] = min(abs(here) / length, 1.0)


@njit(cache=True)
def _project(x: float, y: float, lens: np.ndarray) -> tuple[float, float]:
    """Pixel of the ray (x, y, 1); lens = fx, fy, cx, cy, k1, k2, p1, p2, k3."""
    r2 = x * x + y * y
    radial = 1.0 + r2 * (lens[4] + r2 * (lens[5] + r2 * lens[8]))
    dx = x * radial + 2.0 * lens[6] * x * y + lens[7] * (r2 + 2.0 * x * x)
    dy = y * radial + lens[6] * (r2 + 2.0 * y * y) + 2.0 * lens[7] * x * y
    return lens[0] * dx + lens[2], lens[1] * dy + lens[3]


@njit(cache=True)
def _seen_free(depth: np.ndarray, u: int, v: int, farther: float) -> bool:
    """Whether every measured pixel around (u, v) is farther: only then is the ray surely free."""
    height, width = depth.shape
    for dv in range(-1, 2):
        for du in range(-1, 2):
            v2, u2 = v + dv, u + du
            if 0 <= v2 < height and 0 <= u2 < width and depth[v2, u2] > 0.0 and depth[v2, u2] < farther:
                return False
    return True


@njit(parallel=True, cache=True)
def integrate(
    depth: np.ndarray,
    surface: np.ndarray,
    cosine: np.ndarray,
    noise: np.ndarray,
    lens: np.ndarray,
    matrix: np.ndarray,
    origin: np.ndarray,
    moved: np.ndarray,
    truncation: float,
    total: np.ndarray,
    weight: np.ndarray,
    free: np.ndarray,
) -> None:
    """Add one depth image to the field.

    Args:
        depth: (h, w) [m], 0 where nothing is known. surface: (h, w) bool, pixels whose depth is surface to fuse; the
            others
            only tell free space. cosine: (h, w), incidence.
        noise: a, b of std = a + b z². lens: fx, fy, cx, cy, k1, k2, p1, p2, k3.
        matrix, origin: camera-frame position [m] of node (i, j, k) is matrix (3, 3) · (i, j, k) + origin (3,).
        moved: (nx, ny, nz, 3), by how many nodes the body's places there had moved when the image was taken; none,
            (0, 0, 0, 3), where it had its rest shape.
        truncation: distance at which the field is cut off [m].
        total, weight: (nx, ny, nz), Σ w sdf and Σ w, added to. free: (nx, ny, nz), images that see the node free,
            added to.
    """
    nx, ny, nz = total.shape
    height, width = depth.shape
    bent = moved.shape[0] > 0
    for i in prange(nx):
        for j in range(ny):
            for k in range(nz):
                a, b, c = float(i), float(j), float(k)
                if bent:
                    a, b, c = a + moved[i, j, k, 0], b + moved[i, j, k, 1], c + moved[i, j, k, 2]
                z = matrix[2, 0] * a + matrix[2, 1] * b + matrix[2, 2] * c + origin[2]
                if not z > 1e-3:
                    continue
                x = (matrix[0, 0] * a + matrix[0, 1] * b + matrix[0, 2] * c + origin[0]) / z
                y = (matrix[1, 0] * a + matrix[1, 1] * b + matrix[1, 2] * c + origin[1]) / z
                pu, pv = _project(x, y, lens)
                if not (pu > -0.5 and pu < width - 0.5 and pv > -0.5 and pv < height - 0.5):
                    continue
                u, v = int(np.rint(pu)), int(np.rint(pv))
                d = depth[v, u]
                if not d > 0.0:
                    continue
                facing = max(cosine[v, u], 0.1)
                distance = (d - z) * facing
                if d - z >= truncation and _seen_free(depth, u, v, z + truncation):
                    free[i, j, k] += 1
                elif surface[v, u] and cosine[v, u] > 0.0 and abs(distance) < truncation:
                    std = noise[0] + noise[1] * d * d
                    # Behind the surface a view knows nothing: beyond an edge there may be air, which others see. So it
                    # says less and less there, from a voxel on.
                    fade = min(1.0, (truncation + distance) / (0.6 * truncation))
                    w = fade * facing * facing / (std * std)
                    total[i, j, k] += w * distance
                    weight[i, j, k] += w
