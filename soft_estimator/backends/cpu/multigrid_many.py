"""The multigrid V-cycle for several right-hand sides at once, vectors (T, 3, K); see `multigrid_cycle`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from soft_estimator.backends.cpu.compiled import njit, prange
from soft_estimator.backends.cpu.linear import BREAKDOWN, CONVERGED, LIMIT
from soft_estimator.backends.cpu.multigrid_cycle import (
    _FAST,
    _PART,
    _THREADS_FROM,
    _prolong,
    _restrict,
    _solve_last,
    padded,
)
from soft_estimator.backends.cpu.product_many import multiply_many
from soft_estimator.backends.cpu.solve_many import DONE, solve_by
from soft_estimator.backends.multigrid_loops import Grids, Levels


@njit(cache=True, fastmath=_FAST)
def _take_off(grids: Grids, blocks: np.ndarray, first: int, last: int, x: np.ndarray, y: np.ndarray) -> None:
    """y (3, K) -= Σ A_ij x_j over some of a node's neighbours."""
    for k in range(first, last):
        j = grids.column[k]
        for a in range(3):
            b0, b1, b2 = blocks[k, 3 * a], blocks[k, 3 * a + 1], blocks[k, 3 * a + 2]
            for c in range(y.shape[1]):
                y[a, c] -= b0 * x[j, 0, c] + b1 * x[j, 1, c] + b2 * x[j, 2, c]


@njit(cache=True, fastmath=_FAST)
def _sweep_part(grids: Grids, levels: Levels, first: int, last: int, whole: bool, r: np.ndarray, x: np.ndarray) -> None:
    y = np.empty((3, r.shape[2]), np.float32)
    for i in range(first, last):
        for a in range(3):
            for c in range(y.shape[1]):
                y[a, c] = r[i, a, c]
        end = grids.row_start[i + 1] if whole else grids.middle[i]
        _take_off(grids, levels.blocks, grids.row_start[i], end, x, y)
        for a in range(3):
            d0, d1, d2 = levels.inverse[i, 3 * a], levels.inverse[i, 3 * a + 1], levels.inverse[i, 3 * a + 2]
            for c in range(y.shape[1]):
                x[i, a, c] = d0 * y[0, c] + d1 * y[1, c] + d2 * y[2, c]


@njit(parallel=True, cache=True)
def _sweep_on_threads(
    grids: Grids, levels: Levels, first: int, last: int, whole: bool, r: np.ndarray, x: np.ndarray
) -> None:
    for part in prange((last - first + _PART - 1) // _PART):
        low = first + part * _PART
        _sweep_part(grids, levels, low, min(last, low + _PART), whole, r, x)


@njit(cache=True)
def _sweep(grids: Grids, levels: Levels, level: int, whole: bool, r: np.ndarray, x: np.ndarray) -> None:
    """Gauss-Seidel over the colours: from zero upwards, or from what there is downwards."""
    for step in range(8):
        colour = 7 - step if whole else step
        first, last = grids.colour_start[level, colour], grids.colour_start[level, colour + 1]
        if (last - first) * r.shape[2] >= _THREADS_FROM:
            _sweep_on_threads(grids, levels, first, last, whole, r, x)
        else:
            _sweep_part(grids, levels, first, last, whole, r, x)


@njit(cache=True, fastmath=_FAST)
def _left_part(grids: Grids, levels: Levels, first: int, last: int, x: np.ndarray, out: np.ndarray) -> None:
    """out = r - A x after a sweep from zero: what its nodes had not seen of later colours."""
    y = np.empty((3, x.shape[2]), np.float32)
    for i in range(first, last):
        for a in range(3):
            for c in range(y.shape[1]):
                y[a, c] = 0
        _take_off(grids, levels.blocks, grids.middle[i], grids.row_start[i + 1], x, y)
        for a in range(3):
            for c in range(y.shape[1]):
                out[i, a, c] = grids.free[i] * y[a, c]


@njit(parallel=True, cache=True)
def _left(grids: Grids, levels: Levels, first: int, last: int, x: np.ndarray, out: np.ndarray) -> None:
    for part in prange((last - first + _PART - 1) // _PART):
        low = first + part * _PART
        _left_part(grids, levels, low, min(last, low + _PART), x, out)


@njit(cache=True)
def v_cycle_many(grids: Grids, levels: Levels, r: np.ndarray) -> np.ndarray:
    """V(r) (T, 3, K) on the finest grid's nodes."""
    x, left = np.zeros_like(r), np.empty_like(r)
    nodes, width = r.shape[0], r.shape[2]
    last = grids.start.shape[0] - 2
    down = last < 0  # no constant: for each one all of a sweep would be compiled anew
    for level in range(last):
        _sweep(grids, levels, level, down, r, x)
        _left(grids, levels, grids.start[level], grids.start[level + 1], x, left)
        _restrict(grids, level + 1, left.reshape(nodes, 3 * width), r.reshape(nodes, 3 * width))
    low, high = grids.start[last], grids.start[last + 1]
    _solve_last(levels.factor, r[low:high].reshape(-1, width), x[low:high].reshape(-1, width))
    for level in range(last - 1, -1, -1):
        _prolong(grids, level, x.reshape(nodes, 3 * width))
        _sweep(grids, levels, level, not down, r, x)
    return x


@njit(cache=True, fastmath=_FAST)
def _dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Products (K,) of the columns of two nodal arrays (N, 3, K)."""
    out = np.zeros(a.shape[2])
    for i in range(a.shape[0]):
        for e in range(3):
            for j in range(a.shape[2]):
                out[j] += np.float64(a[i, e, j]) * b[i, e, j]
    return out


def _precondition(grids: Grids, levels: Levels, r: np.ndarray) -> np.ndarray:
    """V(r) in the precision of r (N, 3, K)."""
    left, size = padded(grids, r)
    out = np.empty_like(r)
    out[grids.order] = v_cycle_many(grids, levels, left)[: len(r)] * size
    return out


def conjugate_gradient_multigrid(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    grids: Grids,
    levels: Callable[[], Levels],
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    pattern = (row_start, column, blocks)

    def descend(found: np.ndarray, parts: np.ndarray, most: int) -> tuple[int, int]:
        return _descend(pattern, free, grids, levels(), found, parts, most)

    return solve_by(descend, pattern, b, x, free, tolerance, limit)


def _descend(
    pattern: tuple[np.ndarray, np.ndarray, np.ndarray],
    free: np.ndarray,
    grids: Grids,
    levels: Levels,
    x: np.ndarray,
    r: np.ndarray,
    limit: int,
) -> tuple[int, int]:
    """Iterate from x = 0 until all residuals, r (N, 3, K) at first, are below `DONE`; columns that are leave."""
    chosen, xs, p, last, rz = np.arange(x.shape[2]), np.zeros_like(r), np.zeros_like(r), r, np.zeros(x.shape[2])
    for iteration in range(limit + 1):
        square = _dots(r, r)
        if not np.isfinite(square).all():
            return iteration, BREAKDOWN
        keep = np.flatnonzero(square > DONE * DONE)
        if len(keep) < len(chosen):
            x[:, :, chosen] = xs
            chosen, rz = chosen[keep], rz[keep]
            xs, p, r, last = (np.ascontiguousarray(part[:, :, keep]) for part in (xs, p, r, last))
        if not len(chosen) or iteration == limit:
            break
        z = _precondition(grids, levels, r)
        # Single precision makes it a little uneven: β in the form that does not ask it to be the same every time.
        p *= np.where(rz > 0, _dots(z, r - last) / np.where(rz > 0, rz, 1.0), 0.0)
        p += z
        rz, last, ap = _dots(r, z), r, np.empty_like(p)
        multiply_many(*pattern, free, p, ap)
        curvature = _dots(p, ap)
        if not ((curvature > 0) & (rz > 0)).all():
            return iteration, BREAKDOWN
        alpha = (rz / curvature).astype(x.dtype)
        xs += alpha * p
        r = r - alpha * ap
    x[:, :, chosen] = xs
    return iteration, LIMIT if len(chosen) else CONVERGED
