"""Block-sparse matrix and its conjugate gradient solver.

Dot products are summed over fixed chunks of rows and then in order, so that any number of threads gives the same bits.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import by_size, fitting_threads, njit, prange
from soft_estimator.backends.cpu.joint_factor import NOTHING, solve_joint
from soft_estimator.backends.joint_loops import JointBlock

_CHUNK = 512
_FAST = {"contract"}

CONVERGED, LIMIT, BREAKDOWN, STALLED = 0, 1, 2, 3


@njit(cache=True, fastmath=_FAST)
def _row_times(
    i: int, row_start: np.ndarray, column: np.ndarray, blocks: np.ndarray, x: np.ndarray
) -> tuple[float, float, float]:
    y0 = y1 = y2 = x.dtype.type(0)
    for k in range(row_start[i], row_start[i + 1]):
        j = column[k]
        x0, x1, x2 = x[j, 0], x[j, 1], x[j, 2]
        y0 += blocks[k, 0] * x0 + blocks[k, 1] * x1 + blocks[k, 2] * x2
        y1 += blocks[k, 3] * x0 + blocks[k, 4] * x1 + blocks[k, 5] * x2
        y2 += blocks[k, 6] * x0 + blocks[k, 7] * x1 + blocks[k, 8] * x2
    return y0, y1, y2


@by_size(rows=3, fastmath=_FAST)
def multiply(row_start: np.ndarray, column: np.ndarray, blocks: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """out = A x for nodal vectors (N, 3)."""
    for i in prange(x.shape[0]):
        out[i, 0], out[i, 1], out[i, 2] = _row_times(i, row_start, column, blocks, x)


@by_size(rows=3, fastmath=_FAST)
def multiply_scalars(
    row_start: np.ndarray, column: np.ndarray, values: np.ndarray, x: np.ndarray, out: np.ndarray
) -> None:
    """out = S x for several nodal numbers (N, W), S with one number for each block of the pattern, values (B,)."""
    width = x.shape[1]
    for i in prange(x.shape[0]):
        for a in range(width):
            out[i, a] = 0
        for k in range(row_start[i], row_start[i + 1]):
            j, value = column[k], values[k]
            for a in range(width):
                out[i, a] += value * x[j, a]


@njit(parallel=True, cache=True)  # a row of zeros gives infinity; on one thread it would be an exception
def invert_diagonal(blocks: np.ndarray, slot: np.ndarray, free: np.ndarray, out: np.ndarray) -> None:
    """Inverse of every diagonal block, zero for nodes that are not free; out (N, 9)."""
    for i in prange(out.shape[0]):
        m = blocks[slot[i, 13]]
        c0, c1, c2 = m[4] * m[8] - m[5] * m[7], m[5] * m[6] - m[3] * m[8], m[3] * m[7] - m[4] * m[6]
        inverse = free[i] / (m[0] * c0 + m[1] * c1 + m[2] * c2)
        out[i, 0], out[i, 3], out[i, 6] = c0 * inverse, c1 * inverse, c2 * inverse
        out[i, 1], out[i, 4] = (m[2] * m[7] - m[1] * m[8]) * inverse, (m[0] * m[8] - m[2] * m[6]) * inverse
        out[i, 7] = (m[1] * m[6] - m[0] * m[7]) * inverse
        out[i, 2], out[i, 5] = (m[1] * m[5] - m[2] * m[4]) * inverse, (m[2] * m[3] - m[0] * m[5]) * inverse
        out[i, 8] = (m[0] * m[4] - m[1] * m[3]) * inverse


@njit(cache=True)
def _sum(partial: np.ndarray) -> float:
    total = 0.0
    for value in partial:
        total += value
    return total


@njit(parallel=True, cache=True, fastmath=_FAST)
def _residual(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    r: np.ndarray,
    partial: np.ndarray,
) -> float:
    """r = b - A x on the free nodes; returns |r|²."""
    n = b.shape[0]
    for chunk in prange(partial.shape[0]):
        total = 0.0
        for i in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
            y0, y1, y2 = _row_times(i, row_start, column, blocks, x)
            r[i, 0], r[i, 1], r[i, 2] = free[i] * (b[i, 0] - y0), free[i] * (b[i, 1] - y1), free[i] * (b[i, 2] - y2)
            total += r[i, 0] * r[i, 0] + r[i, 1] * r[i, 1] + r[i, 2] * r[i, 2]
        partial[chunk, 0] = total
    return _sum(partial[:, 0])


@by_size(rows=5, fastmath=_FAST)
def iterate(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    inverse: np.ndarray,
    joint: JointBlock,
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    """Solve A x = b on the free nodes, starting from x, whose values on the other nodes are kept.

    Stops when |r| <= tolerance · |b - A x_fixed|; x is overwritten.

    Returns:
        iterations, relative residual, status (0 converged, 1 iteration limit, 2 breakdown, 3 stalled above the
        tolerance).
    """
    n = b.shape[0]
    chunks = (n + _CHUNK - 1) // _CHUNK
    partial = np.zeros((chunks, 2))
    r, z, p, ap = np.empty_like(x), np.empty_like(x), np.empty_like(x), np.empty_like(x)
    for i in prange(n):
        for a in range(3):
            p[i, a] = x[i, a] if free[i] == 0 else 0
    reference = np.sqrt(_residual(row_start, column, blocks, b, p, free, r, partial))
    residual = np.sqrt(_residual(row_start, column, blocks, b, x, free, r, partial))
    if not np.isfinite(reference) or not np.isfinite(residual):
        return 0, np.inf, BREAKDOWN
    if reference == 0.0:
        for i in prange(n):
            for a in range(3):
                x[i, a] = x[i, a] if free[i] == 0 else 0
        return 0, 0.0, CONVERGED
    rz = 0.0
    restarts, fresh = 0, True
    for iteration in range(limit):
        if residual <= tolerance * reference:
            # The recurred residual may drift from the true one: believe only the latter.
            residual = np.sqrt(_residual(row_start, column, blocks, b, x, free, r, partial))
            if residual <= 2.0 * tolerance * reference:
                return iteration, residual / reference, CONVERGED
            if restarts == 3:
                return iteration, residual / reference, STALLED
            restarts, fresh = restarts + 1, True
        if fresh:
            for chunk in prange(chunks):
                total = 0.0
                for i in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
                    for a in range(3):
                        z[i, a] = (
                            inverse[i, 3 * a] * r[i, 0]
                            + inverse[i, 3 * a + 1] * r[i, 1]
                            + inverse[i, 3 * a + 2] * r[i, 2]
                        )
                        p[i, a] = z[i, a]
                        total += r[i, a] * z[i, a]
                partial[chunk, 0] = total
            rz = _sum(partial[:, 0])
            if joint.nodes.shape[0] > 0:
                rz += solve_joint(joint, r, p)
            fresh = False
        for chunk in prange(chunks):
            total = 0.0
            for i in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
                y0, y1, y2 = _row_times(i, row_start, column, blocks, p)
                ap[i, 0], ap[i, 1], ap[i, 2] = y0, y1, y2
                total += p[i, 0] * y0 + p[i, 1] * y1 + p[i, 2] * y2
            partial[chunk, 0] = total
        pap = _sum(partial[:, 0])
        if not (pap > 0.0 and np.isfinite(pap)):
            return iteration, residual / reference, BREAKDOWN
        alpha = x.dtype.type(rz / pap)
        for chunk in prange(chunks):
            square = product = 0.0
            for i in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
                for a in range(3):
                    x[i, a] += alpha * p[i, a]
                    r[i, a] -= alpha * free[i] * ap[i, a]
                for a in range(3):
                    z[i, a] = (
                        inverse[i, 3 * a] * r[i, 0] + inverse[i, 3 * a + 1] * r[i, 1] + inverse[i, 3 * a + 2] * r[i, 2]
                    )
                    square += r[i, a] * r[i, a]
                    product += r[i, a] * z[i, a]
            partial[chunk, 0], partial[chunk, 1] = square, product
        residual = np.sqrt(_sum(partial[:, 0]))
        new_rz = _sum(partial[:, 1])
        if joint.nodes.shape[0] > 0:
            new_rz += solve_joint(joint, r, z)
        if not np.isfinite(residual) or residual > 1e8 * reference:
            return iteration + 1, residual / reference, BREAKDOWN
        beta = x.dtype.type(new_rz / rz) if rz > 0.0 else x.dtype.type(0)
        rz = new_rz
        for i in prange(n):
            for a in range(3):
                p[i, a] = z[i, a] + beta * p[i, a]
    return limit, residual / reference, LIMIT


def conjugate_gradient_joint(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    inverse: np.ndarray,
    joint: JointBlock,
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    with fitting_threads(len(free)):
        return iterate(row_start, column, blocks, inverse, joint, b, x, free, tolerance, limit)


def conjugate_gradient(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    inverse: np.ndarray,
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    return conjugate_gradient_joint(row_start, column, blocks, inverse, NOTHING, b, x, free, tolerance, limit)


@njit(cache=True)
def add_blocks(slots: np.ndarray, values: np.ndarray, blocks: np.ndarray) -> None:
    """blocks[slots[k]] += values[k], in order; slots (S,), values (S, 9)."""
    for k in range(slots.shape[0]):
        for a in range(9):
            blocks[slots[k], a] += values[k, a]
