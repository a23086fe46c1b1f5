"""A multigrid V-cycle over the grids of a body; see `physics.multigrid` for the formulas.

Nodes of one colour are no neighbours, and every sum runs in a fixed order: the bits are the same for any number of
threads. Grids too small for several threads are gone through by one.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit, prange
from soft_estimator.backends.multigrid_loops import Grids, Levels

_FAST = {"contract"}
_PART = 256  # nodes that a thread takes at a time
_THREADS_FROM = 1500  # nodes of a loop; below, it is shorter than waking a second thread


@njit(cache=True, fastmath=_FAST)
def _solve_last(factor: np.ndarray, r: np.ndarray, x: np.ndarray) -> None:
    """x = A⁻¹ r by the factor; r, x (3 n, K)."""
    size, width = r.shape
    y = np.empty(width)
    solved = np.zeros((size, width))
    for j in range(size):
        for k in range(width):
            y[k] = r[j, k]
        for e in range(j):
            entry = factor[j, e]
            for k in range(width):
                y[k] -= entry * solved[e, k]
        for k in range(width):
            solved[j, k] = y[k] * factor[j, j]
    for j in range(size - 1, -1, -1):
        for k in range(width):
            solved[j, k] *= factor[j, j]
            x[j, k] = solved[j, k]
        for e in range(j):
            entry = factor[j, e]
            for k in range(width):
                solved[e, k] -= entry * solved[j, k]


@njit(cache=True, fastmath=_FAST)
def _sweep_part(grids: Grids, levels: Levels, first: int, last: int, whole: bool, r: np.ndarray, x: np.ndarray) -> None:
    """x_i = A_ii⁻¹ (r_i - Σ A_ij x_j) of some nodes of a colour; j of earlier colours alone unless `whole`."""
    blocks = levels.blocks
    for i in range(first, last):
        r0, r1, r2 = r[i, 0], r[i, 1], r[i, 2]
        for k in range(grids.row_start[i], grids.row_start[i + 1] if whole else grids.middle[i]):
            j = grids.column[k]
            x0, x1, x2 = x[j, 0], x[j, 1], x[j, 2]
            r0 -= blocks[k, 0] * x0 + blocks[k, 1] * x1 + blocks[k, 2] * x2
            r1 -= blocks[k, 3] * x0 + blocks[k, 4] * x1 + blocks[k, 5] * x2
            r2 -= blocks[k, 6] * x0 + blocks[k, 7] * x1 + blocks[k, 8] * x2
        d = levels.inverse[i]
        x[i, 0] = d[0] * r0 + d[1] * r1 + d[2] * r2
        x[i, 1] = d[3] * r0 + d[4] * r1 + d[5] * r2
        x[i, 2] = d[6] * r0 + d[7] * r1 + d[8] * r2


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
        if last - first >= _THREADS_FROM:
            _sweep_on_threads(grids, levels, first, last, whole, r, x)
        else:
            _sweep_part(grids, levels, first, last, whole, r, x)


@njit(cache=True, fastmath=_FAST)
def _left_part(grids: Grids, levels: Levels, first: int, last: int, x: np.ndarray, out: np.ndarray) -> None:
    """out = r - A x after a sweep from zero: what its nodes had not seen of later colours."""
    blocks = levels.blocks
    for i in range(first, last):
        y0 = y1 = y2 = np.float32(0)
        for k in range(grids.middle[i], grids.row_start[i + 1]):
            j = grids.column[k]
            x0, x1, x2 = x[j, 0], x[j, 1], x[j, 2]
            y0 -= blocks[k, 0] * x0 + blocks[k, 1] * x1 + blocks[k, 2] * x2
            y1 -= blocks[k, 3] * x0 + blocks[k, 4] * x1 + blocks[k, 5] * x2
            y2 -= blocks[k, 6] * x0 + blocks[k, 7] * x1 + blocks[k, 8] * x2
        out[i, 0], out[i, 1], out[i, 2] = grids.free[i] * y0, grids.free[i] * y1, grids.free[i] * y2


@njit(parallel=True, cache=True)
def _left_on_threads(grids: Grids, levels: Levels, first: int, last: int, x: np.ndarray, out: np.ndarray) -> None:
    for part in prange((last - first + _PART - 1) // _PART):
        low = first + part * _PART
        _left_part(grids, levels, low, min(last, low + _PART), x, out)


@njit(cache=True, fastmath=_FAST)
def _restrict(grids: Grids, level: int, fine: np.ndarray, r: np.ndarray) -> None:
    """r = Pᵀ fine on a grid; nodal numbers (T, W)."""
    for c in range(grids.start[level], grids.start[level + 1]):
        r[c] = 0
        for d in range(27):
            i = grids.child[c, d]
            if i >= 0:
                share = np.float32(0.5 ** (abs(d // 9 - 1) + abs(d // 3 % 3 - 1) + abs(d % 3 - 1)))
                for a in range(r.shape[1]):
                    r[c, a] += share * fine[i, a]


@njit(cache=True, fastmath=_FAST)
def _prolong(grids: Grids, level: int, x: np.ndarray) -> None:
    """x += P x of the next grid; nodal numbers (T, W)."""
    for i in range(grids.start[level], grids.start[level + 1]):
        for q in range(8):
            share = grids.weight[i, q]
            if share != 0:
                j = grids.parent[i, q]
                for a in range(x.shape[1]):
                    x[i, a] += share * x[j, a]


@njit(cache=True)
def v_cycle(grids: Grids, levels: Levels, r: np.ndarray) -> np.ndarray:
    """V(r) (T, 3) on the finest grid's nodes."""
    x, left = np.zeros_like(r), np.empty_like(r)
    last = grids.start.shape[0] - 2
    down = last < 0  # no constant: for each one all of a sweep would be compiled anew
    for level in range(last):
        first, end = grids.start[level], grids.start[level + 1]
        _sweep(grids, levels, level, down, r, x)
        if end - first >= _THREADS_FROM:
            _left_on_threads(grids, levels, first, end, x, left)
        else:
            _left_part(grids, levels, first, end, x, left)
        _restrict(grids, level + 1, left, r)
    low, high = grids.start[last], grids.start[last + 1]
    _solve_last(levels.factor, r[low:high].reshape(-1, 1), x[low:high].reshape(-1, 1))
    for level in range(last - 1, -1, -1):
        _prolong(grids, level, x)
        _sweep(grids, levels, level, not down, r, x)
    return x


def padded(grids: Grids, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Right-hand sides as a cycle takes them, with room for the coarser grids', and what they are to be multiplied by:
    numbers of about one, since the smallest that single precision holds make a processor several times slower."""
    size = np.abs(r).max(axis=(0, 1))
    size = np.where(size > 0, size, 1.0)
    out = np.zeros((grids.start[-1], *r.shape[1:]), np.float32)
    np.divide(r[grids.order], size, out=out[: len(r)], casting="same_kind")
    return out, size


def precondition(grids: Grids, levels: Levels, r: np.ndarray, out: np.ndarray) -> None:
    """out = V(r) for nodal vectors (N, 3)."""
    left, size = padded(grids, r)
    out[grids.order] = v_cycle(grids, levels, left)[: len(r)] * size
