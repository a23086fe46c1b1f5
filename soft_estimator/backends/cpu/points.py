"""Where in a deformed grid an observed point lies: candidate cells from a hash of boxes, inverse trilinear map by
Newton.

Every cell whose deformed box holds the point is tried, so that none is missed.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from soft_estimator.backends.cpu.compiled import by_size, njit, prange

_CHUNK = 64  # points that one thread does in a row, with the same small arrays
_NEWTON_STEPS = 20
_EDGE = 1e-9  # a point on a face belongs to both cells


@by_size(rows=1)
def cell_boxes(position: np.ndarray, cell_nodes: np.ndarray) -> np.ndarray:
    """Axis-aligned box (C, 6), low then high, of every deformed cell; position (M, 3), cell_nodes (C, 8)."""
    boxes = np.empty((cell_nodes.shape[0], 6))
    for c in prange(cell_nodes.shape[0]):
        for a in range(3):
            low = high = position[cell_nodes[c, 0], a]
            for p in range(1, 8):
                value = position[cell_nodes[c, p], a]
                low, high = min(low, value), max(high, value)
            boxes[c, a], boxes[c, 3 + a] = low, high
    return boxes


@njit(cache=True)
def _bin(value: float, low: float, size: float, count: int) -> int:
    return min(max(int((value - low) / size), 0), count - 1)


@njit(cache=True)
def hash_boxes(boxes: np.ndarray, low: np.ndarray, size: float, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cells by bin: the cells of bin b are cells[start[b]:start[b + 1]], bins of edge `size` from `low`."""
    start = np.zeros(counts[0] * counts[1] * counts[2] + 1, np.int64)
    for fill in range(2):
        if fill == 1:
            for b in range(len(start) - 1):
                start[b + 1] += start[b]
            cells = np.empty(start[-1], np.int64)
            place = start[:-1].copy()
        for c in range(boxes.shape[0]):
            i0, i1 = _bin(boxes[c, 0], low[0], size, counts[0]), _bin(boxes[c, 3], low[0], size, counts[0])
            j0, j1 = _bin(boxes[c, 1], low[1], size, counts[1]), _bin(boxes[c, 4], low[1], size, counts[1])
            k0, k1 = _bin(boxes[c, 2], low[2], size, counts[2]), _bin(boxes[c, 5], low[2], size, counts[2])
            for i in range(i0, i1 + 1):
                for j in range(j0, j1 + 1):
                    for k in range(k0, k1 + 1):
                        b = (i * counts[1] + j) * counts[2] + k
                        if fill == 0:
                            start[b + 1] += 1
                        else:
                            cells[place[b]] = c
                            place[b] += 1
    return start, cells


@njit(cache=True)
def _bend(position: np.ndarray, nodes: np.ndarray, point: np.ndarray, c: np.ndarray) -> None:
    """Coefficients c (3, 8) of the trilinear map of a cell, less a point, by 1, z, y, yz, x, xz, xy, xyz."""
    for a in range(3):
        base = position[nodes[0], a]
        p1, p2, p3 = position[nodes[1], a] - base, position[nodes[2], a] - base, position[nodes[3], a] - base
        p4, p5, p6 = position[nodes[4], a] - base, position[nodes[5], a] - base, position[nodes[6], a] - base
        c[a, 0], c[a, 1], c[a, 2], c[a, 4] = base - point[a], p1, p2, p4
        c[a, 3], c[a, 5], c[a, 6] = p3 - p1 - p2, p5 - p1 - p4, p6 - p2 - p4
        c[a, 7] = (position[nodes[7], a] - base) - p3 - p5 - p6 + p1 + p2 + p4


@njit(cache=True)
def _map(c: np.ndarray, xi: np.ndarray, y: np.ndarray, jacobian: np.ndarray) -> None:
    """y(ξ) and ∂y/∂ξ by the coefficients."""
    x0, x1, x2 = xi[0], xi[1], xi[2]
    for a in range(3):
        along_y, along_yz = c[a, 2] + c[a, 6] * x0, c[a, 3] + c[a, 7] * x0
        along_x, along_z = c[a, 4] + c[a, 6] * x1, c[a, 1] + c[a, 5] * x0
        jacobian[a, 0] = along_x + (c[a, 5] + c[a, 7] * x1) * x2
        jacobian[a, 1] = along_y + along_yz * x2
        jacobian[a, 2] = along_z + along_yz * x1
        y[a] = c[a, 0] + c[a, 4] * x0 + along_y * x1 + (along_z + along_yz * x1) * x2


@njit(cache=True)
def _solve3(m: np.ndarray, b: np.ndarray, x: np.ndarray) -> bool:
    c0 = m[1, 1] * m[2, 2] - m[1, 2] * m[2, 1]
    c1 = m[1, 2] * m[2, 0] - m[1, 0] * m[2, 2]
    c2 = m[1, 0] * m[2, 1] - m[1, 1] * m[2, 0]
    det = m[0, 0] * c0 + m[0, 1] * c1 + m[0, 2] * c2
    if det == 0.0:
        return False
    x[0] = (
        c0 * b[0] + (m[0, 2] * m[2, 1] - m[0, 1] * m[2, 2]) * b[1] + (m[0, 1] * m[1, 2] - m[0, 2] * m[1, 1]) * b[2]
    ) / det
    x[1] = (
        c1 * b[0] + (m[0, 0] * m[2, 2] - m[0, 2] * m[2, 0]) * b[1] + (m[0, 2] * m[1, 0] - m[0, 0] * m[1, 2]) * b[2]
    ) / det
    x[2] = (
        c2 * b[0] + (m[0, 1] * m[2, 0] - m[0, 0] * m[2, 1]) * b[1] + (m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]) * b[2]
    ) / det
    return True


@njit(cache=True)
def _invert(
    position: np.ndarray,
    nodes: np.ndarray,
    point: np.ndarray,
    size: float,
    xi: np.ndarray,
    y: np.ndarray,
    jacobian: np.ndarray,
    step: np.ndarray,
    c: np.ndarray,
) -> bool:
    """Newton for y(ξ) = point from the middle of the cell; whether it converged inside the cell."""
    xi[0] = xi[1] = xi[2] = 0.5
    _bend(position, nodes, point, c)
    for k in range(_NEWTON_STEPS + 1):
        _map(c, xi, y, jacobian)
        error = 0.0
        for a in range(3):
            y[a] = -y[a]
            error = max(error, abs(y[a]))
        if error < 1e-13 * size or k == _NEWTON_STEPS:
            break
        if not _solve3(jacobian, y, step):
            return False
        largest = 0.0
        for a in range(3):
            xi[a] += step[a]
            largest = max(largest, abs(xi[a] - 0.5))
        if not largest < 50.0:
            return False
    converged = error <= 1e-9 * size
    for a in range(3):
        converged = converged and -_EDGE <= xi[a] <= 1.0 + _EDGE
    return converged


@njit(parallel=True, cache=True)
def locate(
    points: np.ndarray,
    position: np.ndarray,
    cell_nodes: np.ndarray,
    in_body: np.ndarray,
    value: np.ndarray,
    boxes: np.ndarray,
    start: np.ndarray,
    cells: np.ndarray,
    low: np.ndarray,
    size: float,
    counts: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Cell and place of every point.

    A point in several cells (a folded halo) goes to a cell of the body before one of the halo, and to the smaller
    |value|.

    Args:
        points (n, 3). position (M, 3), cell_nodes (C, 8): the deformed grid. in_body (C,): cell of the body or of the
        halo. value (M,): field that decides between cells. The rest: `hash_boxes`.

    Returns:
        cell (n,), -1 where no cell holds the point; local coordinates (n, 3) in 0-1.
    """
    n = points.shape[0]
    found, local = np.full(n, -1, np.int64), np.zeros((n, 3))
    for chunk in prange((n + _CHUNK - 1) // _CHUNK):
        xi, y, jacobian, step, bend = np.empty(3), np.empty(3), np.empty((3, 3)), np.empty(3), np.empty((3, 8))
        for i in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
            point = points[i]
            outside = False
            for a in range(3):
                outside = outside or not (low[a] <= point[a] <= low[a] + size * counts[a])
            if outside:
                continue
            b = (_bin(point[0], low[0], size, counts[0]) * counts[1] + _bin(point[1], low[1], size, counts[1])) * (
                counts[2]
            ) + _bin(point[2], low[2], size, counts[2])
            best_body, best = False, np.inf
            for k in range(start[b], start[b + 1]):
                c = cells[k]
                if best_body and not in_body[c]:
                    continue
                inside = True
                for a in range(3):
                    inside = inside and boxes[c, a] <= point[a] <= boxes[c, 3 + a]
                if not inside or not _invert(position, cell_nodes[c], point, size, xi, y, jacobian, step, bend):
                    continue
                total = 0.0
                for p in range(8):
                    fx, fy = xi[0] if p & 4 else 1 - xi[0], xi[1] if p & 2 else 1 - xi[1]
                    total += fx * fy * (xi[2] if p & 1 else 1 - xi[2]) * value[cell_nodes[c, p]]
                if (in_body[c] and not best_body) or abs(total) < best:
                    best_body, best, found[i] = in_body[c], abs(total), c
                    for a in range(3):
                        local[i, a] = xi[a]
    return found, local


def find_cells(
    points: np.ndarray,
    position: np.ndarray,
    cell_nodes: np.ndarray,
    in_body: np.ndarray,
    value: np.ndarray,
    spacing_m: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Cell (n,) and local coordinates (n, 3) of every point in the deformed grid; see `locate`.

    spacing_m: edge of a cell at rest, for loops that do without the hash; here the deformed boxes say how large it is.
    """
    return locate(points, position, cell_nodes, in_body, value, *_hashed(position, cell_nodes))


Hash = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float, np.ndarray]


class _Kept(threading.local):
    """The last grid and its hash, of each thread its own: points are looked for in the same one several times over,
    along their rays."""

    last: tuple[np.ndarray, np.ndarray, Hash] | None = None


_kept = _Kept()


def _hashed(position: np.ndarray, cell_nodes: np.ndarray) -> Hash:
    """Boxes of the deformed cells and the bins that they lie in, as `locate` takes them."""
    known = _kept.last
    if known is not None and known[1] is cell_nodes and np.array_equal(known[0], position):
        return known[2]
    boxes = cell_boxes(position, cell_nodes)
    # By columns: along rows of three NumPy takes five times as long.
    low = np.array([boxes[:, a].min() for a in range(3)])
    high = np.array([boxes[:, 3 + a].max() for a in range(3)])
    # Bins about as large as a deformed cell, but never more than a few million of them, however far the body is
    # stretched.
    size = max(float(np.median(boxes[:, 3:] - boxes[:, :3])) * 1.5, float((high - low).max()) / 150, 1e-12)
    counts = np.maximum(np.ceil((high - low) / size).astype(np.int64), 1)
    start, cells = hash_boxes(boxes, low, size, counts)
    made = (boxes, start, cells, low, size, counts)
    _kept.last = (position.copy(), cell_nodes, made)
    return made


@njit(cache=True)
def _distances_of(
    first: int,
    last: int,
    found: np.ndarray,
    local: np.ndarray,
    position: np.ndarray,
    cell_nodes: np.ndarray,
    value: np.ndarray,
    least_slope: float,
    distance: np.ndarray,
    weights: np.ndarray,
    slopes: np.ndarray,
    by_value: np.ndarray,
    by_slope: np.ndarray,
) -> None:
    """`surface_distances` of some points."""
    y, jacobian, across, bend = np.empty(3), np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 8))
    slope, g, k, bent, turned = np.empty(3), np.empty(3), np.empty(3), np.empty(3), np.empty(3)
    for i in range(first, last):
        c = found[i]
        if c < 0:
            continue
        xi, nodes = local[i], cell_nodes[c]
        _bend(position, nodes, xi, bend)
        _map(bend, xi, y, jacobian)
        for a in range(3):
            slope[a] = bent[a] = 0.0
            for b in range(3):
                across[a, b] = jacobian[b, a]
        psi = 0.0
        for p in range(8):
            fx, dx = (xi[0], 1.0) if p & 4 else (1.0 - xi[0], -1.0)
            fy, dy = (xi[1], 1.0) if p & 2 else (1.0 - xi[1], -1.0)
            fz, dz = (xi[2], 1.0) if p & 1 else (1.0 - xi[2], -1.0)
            weights[i, p] = fx * fy * fz
            psi += weights[i, p] * value[i, p]
            slope[0] += dx * fy * fz * value[i, p]
            slope[1] += fx * dy * fz * value[i, p]
            slope[2] += fx * fy * dz * value[i, p]
        if not (_solve3(across, slope, g) and _solve3(jacobian, g, k)):
            found[i] = -1
            continue
        # S k with S = ∂²ψ/∂ξ² - Σ g_a ∂²y_a/∂ξ², whose diagonal is zero for trilinear functions.
        for p in range(8):
            fx, dx = (xi[0], 1.0) if p & 4 else (1.0 - xi[0], -1.0)
            fy, dy = (xi[1], 1.0) if p & 2 else (1.0 - xi[1], -1.0)
            fz, dz = (xi[2], 1.0) if p & 1 else (1.0 - xi[2], -1.0)
            n = nodes[p]
            rest = value[i, p] - g[0] * position[n, 0] - g[1] * position[n, 1] - g[2] * position[n, 2]
            xy, xz, yz = dx * dy * fz * rest, dx * fy * dz * rest, fx * dy * dz * rest
            bent[0] += xy * k[1] + xz * k[2]
            bent[1] += xy * k[0] + yz * k[2]
            bent[2] += xz * k[0] + yz * k[1]
            slopes[i, p] = k[0] * dx * fy * fz + k[1] * fx * dy * fz + k[2] * fx * fy * dz
        _solve3(across, bent, turned)
        size = np.sqrt(g[0] * g[0] + g[1] * g[1] + g[2] * g[2])
        held = size < least_slope
        size = max(size, least_slope)
        distance[i] = psi / size
        cube = 0.0 if held else psi / (size * size * size)
        for a in range(3):
            by_value[i, a] = g[a] / size - cube * turned[a]
            by_slope[i, a] = -cube * g[a]


@njit(parallel=True, cache=True)
def surface_distances(
    found: np.ndarray,
    local: np.ndarray,
    position: np.ndarray,
    cell_nodes: np.ndarray,
    value: np.ndarray,
    least_slope: float,
    distance: np.ndarray,
    weights: np.ndarray,
    slopes: np.ndarray,
    by_value: np.ndarray,
    by_slope: np.ndarray,
) -> None:
    """Distance ψ/|g| of located points to the zero level of the carried field, and its derivatives.

    ψ is the field at the point and g its gradient in space. Moving the nodes by δu at fixed points changes the
    distance by -by_value·Σ N_q δu_q - by_slope·Σ (g·∇N_q) δu_q. Dividing by |g| matters: without it noisy points are
    explained best by stretching the body, which flattens the field. Where |g| is below `least_slope` (the middle of a
    thin part) it is held.

    Args:
        value: nodal field of each point's own cell, (n, 8).
        distance (n,), weights: N_q (n, 8), slopes: g·∇N_q (n, 8), by_value (n, 3), by_slope (n, 3): out.
    """
    n = found.shape[0]
    for chunk in prange((n + _CHUNK - 1) // _CHUNK):
        first, last = chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)
        seen = (found, local, position, cell_nodes, value)
        _distances_of(first, last, *seen, least_slope, distance, weights, slopes, by_value, by_slope)


def kept_on_disk() -> bool:
    """Whether an earlier run has compiled these loops."""
    folder: str = getattr(locate, "stats").cache_path  # noqa: B009 (no type of Numba's says so)
    return any(Path(folder).glob("points.*.nbi"))
