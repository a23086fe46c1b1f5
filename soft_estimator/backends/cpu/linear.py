"""Block-sparse matrix and its conjugate gradient solver.

Dot products are summed over fixed chunks of rows and then in order, so that any number of threads gives the same bits.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import ONE_THREAD_BELOW, by_size, fitting_threads, njit, prange
from soft_estimator.backends.cpu.joint_factor import NOTHING, solve_joint
from soft_estimator.backends.cpu.lanes import first_three, four_of, no_four, put
from soft_estimator.backends.cpu.product import (
    CHUNK,
    Upper,
    residual_of,
    row_times,
    sum_in_order,
    times_upper,
    upper_and_residual,
)
from soft_estimator.backends.joint_loops import JointBlock

_FAST = {"contract"}

CONVERGED, LIMIT, BREAKDOWN, STALLED = 0, 1, 2, 3


@by_size(rows=2)
def invert_diagonal(blocks: np.ndarray, slot: np.ndarray, free: np.ndarray, out: np.ndarray) -> None:
    """Inverse of every diagonal block, zero for nodes that are not free; out (N, 9)."""
    for i in prange(out.shape[0]):
        m = blocks[slot[i, 13]]
        c0, c1, c2 = m[4] * m[8] - m[5] * m[7], m[5] * m[6] - m[3] * m[8], m[3] * m[7] - m[4] * m[6]
        determinant = m[0] * c0 + m[1] * c1 + m[2] * c2
        inverse = 0.0 if free[i] == 0 else free[i] / determinant if determinant != 0 else np.inf
        out[i, 0], out[i, 3], out[i, 6] = c0 * inverse, c1 * inverse, c2 * inverse
        out[i, 1], out[i, 4] = (m[2] * m[7] - m[1] * m[8]) * inverse, (m[0] * m[8] - m[2] * m[6]) * inverse
        out[i, 7] = (m[1] * m[6] - m[0] * m[7]) * inverse
        out[i, 2], out[i, 5] = (m[1] * m[5] - m[2] * m[4]) * inverse, (m[2] * m[3] - m[0] * m[5]) * inverse
        out[i, 8] = (m[0] * m[4] - m[1] * m[3]) * inverse


@njit(cache=True, fastmath=_FAST)
def _left_over(ax: np.ndarray, b: np.ndarray, free: np.ndarray, r: np.ndarray) -> float:
    """r = b - A x on the free nodes, from A x; returns |r|²."""
    total = 0.0
    for i in range(b.shape[0]):
        for a in range(3):
            r[i, a] = free[i] * (b[i, a] - ax[i, a])
            total += r[i, a] * r[i, a]
    return total


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
    # Rows of four numbers, the last of which is anything: they are vectors of the processor.
    turn, rows = np.zeros((len(free), 3, 4), x.dtype), np.zeros((len(free), 4), x.dtype)
    turn[:, :, :3], rows[:, :3] = inverse.reshape(-1, 3, 3), x
    held = np.where(free[:, None] == 0, rows, 0)
    reference = float(np.linalg.norm(free[:, None] * b))
    if held.any():
        partial = np.zeros((-(-len(free) // CHUNK), 2))
        square = residual_of(row_start, column, blocks, b, held, free, np.empty_like(x), partial)
        reference = float(np.sqrt(square))
    if reference == 0.0:
        x[...] = held[:, :3]
        return 0, 0.0, CONVERGED
    found = _descend(row_start, column, blocks, turn, joint, b, rows, free, reference, tolerance, limit)
    x[...] = rows[:, :3]
    return found


@by_size(rows=5, fastmath=_FAST)
def _descend(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    turn: np.ndarray,
    joint: JointBlock,
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    reference: float,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    """`iterate`'s work on rows of four numbers; turn: the inverse diagonal blocks, which are symmetric, (N, 3, 4).

    reference: what |r| is measured by.
    """
    n = b.shape[0]
    chunks = (n + CHUNK - 1) // CHUNK
    partial = np.zeros((chunks, 2))
    r, p, z, ap = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    few = n < ONE_THREAD_BELOW
    if few:
        upper, left = upper_and_residual(row_start, column, blocks, b, x, free, r)
    else:
        upper = Upper(np.zeros(0, np.int64), column[:0], blocks[:0])
        left = residual_of(row_start, column, blocks, b, x, free, r, partial)
    residual = np.sqrt(left)
    if not np.isfinite(reference) or not np.isfinite(residual):
        return 0, np.inf, BREAKDOWN
    rz = 0.0
    restarts, fresh = 0, True
    for iteration in range(limit):
        if residual <= tolerance * reference:
            # The recurred residual may drift from the true one: believe only the latter.
            if few:
                times_upper(upper, x, ap)
                residual = np.sqrt(_left_over(ap, b, free, r))
            else:
                residual = np.sqrt(residual_of(row_start, column, blocks, b, x, free, r, partial))
            if residual <= 2.0 * tolerance * reference:
                return iteration, residual / reference, CONVERGED
            if restarts == 3:
                return iteration, residual / reference, STALLED
            restarts, fresh = restarts + 1, True
        if fresh:
            for chunk in prange(chunks):
                product = no_four(turn)
                for i in range(chunk * CHUNK, min(n, (chunk + 1) * CHUNK)):
                    each = r[i, 0] * four_of(turn, 12 * i)
                    each += r[i, 1] * four_of(turn, 12 * i + 4)
                    each += r[i, 2] * four_of(turn, 12 * i + 8)
                    put(each, p, 4 * i)
                    product += four_of(r, 4 * i) * each
                partial[chunk, 0] = first_three(product)
            rz = sum_in_order(partial[:, 0])
            if joint.nodes.shape[0] > 0:
                rz += solve_joint(joint, r, p)
            fresh = False
        if few:
            times_upper(upper, p, ap)
        for chunk in prange(chunks):
            product = no_four(p)
            for i in range(chunk * CHUNK, min(n, (chunk + 1) * CHUNK)):
                if not few:
                    ap[i, 0], ap[i, 1], ap[i, 2] = row_times(i, row_start, column, blocks, p)
                product += four_of(p, 4 * i) * four_of(ap, 4 * i)
            partial[chunk, 0] = first_three(product)
        pap = sum_in_order(partial[:, 0])
        if not (pap > 0.0 and np.isfinite(pap)):
            return iteration, residual / reference, BREAKDOWN
        alpha = x.dtype.type(rz / pap)
        for chunk in prange(chunks):
            square, product = no_four(x), no_four(x)
            for i in range(chunk * CHUNK, min(n, (chunk + 1) * CHUNK)):
                put(four_of(x, 4 * i) + alpha * four_of(p, 4 * i), x, 4 * i)
                rest = four_of(r, 4 * i) - (alpha * free[i]) * four_of(ap, 4 * i)
                put(rest, r, 4 * i)
                each = r[i, 0] * four_of(turn, 12 * i)
                each += r[i, 1] * four_of(turn, 12 * i + 4)
                each += r[i, 2] * four_of(turn, 12 * i + 8)
                put(each, z, 4 * i)
                square += rest * rest
                product += rest * each
            partial[chunk, 0], partial[chunk, 1] = first_three(square), first_three(product)
        residual = np.sqrt(sum_in_order(partial[:, 0]))
        new_rz = sum_in_order(partial[:, 1])
        if joint.nodes.shape[0] > 0:
            new_rz += solve_joint(joint, r, z)
        if not np.isfinite(residual) or residual > 1e8 * reference:
            return iteration + 1, residual / reference, BREAKDOWN
        beta = x.dtype.type(new_rz / rz) if rz > 0.0 else x.dtype.type(0)
        rz = new_rz
        for i in prange(n):
            put(four_of(z, 4 * i) + beta * four_of(p, 4 * i), p, 4 * i)
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
