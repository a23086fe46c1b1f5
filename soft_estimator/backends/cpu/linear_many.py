"""Conjugate gradients for several right-hand sides at once: the matrix is read once for all of them.

Vectors are (N, 3, B), so that the inner loop runs over the right-hand sides. Each has its own step lengths and stops
on its own; sums run in a fixed order. Columns that are done, at the start or after some iterations, are left out of
what is iterated on by whole groups of `_GROUP`: a body in free flight moves rigidly along most directions, which their
guess already says. What is common to all kinds of iterations is in `solve_many`.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import by_size, fitting_threads, njit, prange
from soft_estimator.backends.cpu.joint_factor import NOTHING, solve_joint_many
from soft_estimator.backends.cpu.lanes import LANES, Lanes, in_double, lanes_of, nothing_of, put
from soft_estimator.backends.cpu.linear import BREAKDOWN, CONVERGED, LIMIT, STALLED, iterate
from soft_estimator.backends.cpu.product import CHUNK
from soft_estimator.backends.cpu.product_many import row_times_many, sum_chunks
from soft_estimator.backends.cpu.solve_many import DONE, solve_by
from soft_estimator.backends.joint_loops import JointBlock

_FAST = {"contract"}
_GROUP = LANES  # columns that the inner loops run over at full speed, `CpuBackend.column_multiple`
# So many are sooner solved one after the other than as a group: of 1,365 nodes one takes 3.6 ms, a group 6.5.
_FEW = 2


@njit(cache=True)
def _gathered(nodal: np.ndarray, chosen: np.ndarray, width: int) -> np.ndarray:
    """The chosen columns of a nodal array (N, 3, B), filled up with zeros to a width."""
    out = np.zeros((nodal.shape[0], 3, width), nodal.dtype)
    for i in range(nodal.shape[0]):
        for a in range(3):
            for k in range(chosen.shape[0]):
                out[i, a, k] = nodal[i, a, chosen[k]]
    return out


@njit(cache=True, fastmath=_FAST)
def _turned(inverse: np.ndarray, i: int, r: np.ndarray, z: np.ndarray, at: int) -> tuple[Lanes, Lanes]:
    """z = D⁻¹ r of one node and a group of columns, whose first number is at `at`; their parts of |r|² and r·z."""
    width = r.shape[2]
    r0, r1, r2 = lanes_of(r, at), lanes_of(r, at + width), lanes_of(r, at + 2 * width)
    z0 = inverse[i, 0] * r0 + inverse[i, 1] * r1 + inverse[i, 2] * r2
    z1 = inverse[i, 3] * r0 + inverse[i, 4] * r1 + inverse[i, 5] * r2
    z2 = inverse[i, 6] * r0 + inverse[i, 7] * r1 + inverse[i, 8] * r2
    put(z0, z, at)
    put(z1, z, at + width)
    put(z2, z, at + 2 * width)
    return in_double(r0 * r0 + r1 * r1 + r2 * r2), in_double(r0 * z0 + r1 * z1 + r2 * z2)


@by_size(rows=0, fastmath=_FAST)
def _turn_to(
    inverse: np.ndarray,
    r: np.ndarray,
    p: np.ndarray,
    partial: np.ndarray,
    rz: np.ndarray,
    square: np.ndarray,
    joint: JointBlock,
) -> None:
    """p = D⁻¹ r, the first direction; rz = rᵀ D⁻¹ r and |r|² of each column."""
    n, width = r.shape[0], r.shape[2]
    other = np.zeros_like(partial)
    for chunk in prange(partial.shape[0]):
        for c in range(0, width, LANES):
            total, product = nothing_of(partial), nothing_of(partial)
            for i in range(chunk * CHUNK, min(n, (chunk + 1) * CHUNK)):
                at = 3 * width * i + c
                square_here, product_here = _turned(inverse, i, r, p, at)
                total += square_here
                product += product_here
            put(total, partial, chunk * width + c)
            put(product, other, chunk * width + c)
    sum_chunks(partial, square)
    sum_chunks(other, rz)
    if joint.nodes.shape[0] > 0:
        solve_joint_many(joint, r, p, rz)


@by_size(rows=5, fastmath=_FAST)
def _descend(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    inverse: np.ndarray,
    joint: JointBlock,
    free: np.ndarray,
    x: np.ndarray,
    r: np.ndarray,
    p: np.ndarray,
    rz: np.ndarray,
    square: np.ndarray,
    limit: int,
    fewer: int,
) -> tuple[int, int]:
    """Iterations until no more than `fewer` columns are left, or so many; x, r, p, rz and square (|r|²) are moved on.

    Returns:
        iterations, status.
    """
    n, width = x.shape[0], x.shape[2]
    chunks = (n + CHUNK - 1) // CHUNK
    partial, other = np.zeros((chunks, width)), np.zeros((chunks, width))
    z, ap = np.empty_like(x), np.empty_like(x)
    pap, new_rz = np.zeros(width), np.zeros(width)
    alpha, beta = np.zeros(width, x.dtype), np.zeros(width, x.dtype)
    for iteration in range(limit):
        left = 0
        for j in range(width):
            if not np.isfinite(square[j]):
                return iteration, BREAKDOWN
            left += square[j] > DONE * DONE
        if left <= fewer:
            return iteration, CONVERGED
        for chunk in prange(chunks):
            y = np.empty((3, width), x.dtype)
            for c in range(0, width, LANES):
                put(nothing_of(partial), partial, chunk * width + c)
            for i in range(chunk * CHUNK, min(n, (chunk + 1) * CHUNK)):
                row_times_many(i, row_start, column, blocks, p, y)
                for c in range(0, width, LANES):
                    product = nothing_of(x)
                    for a in range(3):
                        at = width * (3 * i + a) + c
                        each = lanes_of(y, width * a + c)
                        product += lanes_of(p, at) * each
                        put(each, ap, at)
                    at = chunk * width + c
                    put(lanes_of(partial, at) + in_double(product), partial, at)
        sum_chunks(partial, pap)
        for j in range(width):
            going = square[j] > DONE * DONE
            if going and not pap[j] > 0.0:
                return iteration, BREAKDOWN
            alpha[j] = rz[j] / pap[j] if going else 0.0
        for chunk in prange(chunks):
            for c in range(0, width, LANES):
                total, product, along = nothing_of(partial), nothing_of(partial), lanes_of(alpha, c)
                for i in range(chunk * CHUNK, min(n, (chunk + 1) * CHUNK)):
                    at = 3 * width * i + c
                    for a in range(3):
                        to = at + a * width
                        put(lanes_of(x, to) + along * lanes_of(p, to), x, to)
                        put(lanes_of(r, to) - free[i] * (along * lanes_of(ap, to)), r, to)
                    square_here, product_here = _turned(inverse, i, r, z, at)
                    total += square_here
                    product += product_here
                put(total, partial, chunk * width + c)
                put(product, other, chunk * width + c)
        sum_chunks(partial, square)
        sum_chunks(other, new_rz)
        if joint.nodes.shape[0] > 0:
            solve_joint_many(joint, r, z, new_rz)
        for j in range(width):
            beta[j] = new_rz[j] / rz[j] if rz[j] > 0.0 else 0.0
            rz[j] = new_rz[j]
        for i in prange(n):
            for c in range(0, width, LANES):
                again = lanes_of(beta, c)
                for a in range(3):
                    at = width * (3 * i + a) + c
                    put(lanes_of(z, at) + again * lanes_of(p, at), p, at)
    return limit, LIMIT


def _descend_in_groups(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    inverse: np.ndarray,
    joint: JointBlock,
    free: np.ndarray,
    x: np.ndarray,
    r: np.ndarray,
    limit: int,
) -> tuple[int, int]:
    """Iterate from x = 0 until all residuals, r (N, 3, B) at first, are below `DONE`, on ever fewer columns.

    Returns:
        iterations, status.
    """
    over = x.shape[2] % _GROUP
    whole = x.shape[2] - over if over <= _FEW else x.shape[2]
    alone = _descend_alone((row_start, column), blocks, inverse, joint, free, x, r, limit, whole)
    if whole == 0 or alone[1] == BREAKDOWN:
        return alone
    chosen = np.arange(whole)
    width = -(-chosen.shape[0] // _GROUP) * _GROUP
    xs, rs = _gathered(x, chosen, width), _gathered(r, chosen, width)
    ps, rzs, squares = np.empty_like(xs), np.zeros(width), np.zeros(width)
    _turn_to(inverse, rs, ps, np.zeros(((x.shape[0] + CHUNK - 1) // CHUNK, width)), rzs, squares, joint)
    done, status = 0, CONVERGED
    while True:
        fewer = width - _GROUP  # of which there is a group less
        spent, status = _descend(
            row_start, column, blocks, inverse, joint, free, xs, rs, ps, rzs, squares, limit - done, fewer
        )
        done += spent
        x[:, :, chosen] = xs[:, :, : len(chosen)]
        keep = np.flatnonzero(squares > DONE * DONE)
        if status != CONVERGED or keep.shape[0] == 0:
            return max(done, alone[0]), status
        width = -(-keep.shape[0] // _GROUP) * _GROUP
        xs, rs, ps = _gathered(xs, keep, width), _gathered(rs, keep, width), _gathered(ps, keep, width)
        old_rz, old_square = rzs, squares
        rzs, squares = np.zeros(width), np.zeros(width)
        rzs[: len(keep)], squares[: len(keep)] = old_rz[keep], old_square[keep]
        chosen = chosen[keep]


def _descend_alone(
    pattern: tuple[np.ndarray, np.ndarray], blocks: np.ndarray, inverse: np.ndarray, joint: JointBlock,
    free: np.ndarray, x: np.ndarray, r: np.ndarray, limit: int, first: int,
) -> tuple[int, int]:  # fmt: skip
    """The columns from `first` on, one after the other, in double precision; pattern: row_start, column, the others as
    in `_descend_in_groups`.

    Returns:
        iterations of the slowest, worst status.
    """
    if first == x.shape[2]:
        return 0, CONVERGED
    blocks, inverse, free = (array.astype(np.float64, copy=False) for array in (blocks, inverse, free))
    iterations, worst = 0, CONVERGED
    for j in range(first, x.shape[2]):
        b = np.ascontiguousarray(r[:, :, j], dtype=np.float64)
        found, size = np.zeros_like(b), float(np.linalg.norm(b))
        if size > DONE:
            system = (*pattern, blocks, inverse, joint)
            spent, _, status = iterate(*system, b, found, free, DONE / size, limit)
            iterations, worst = max(iterations, spent), max(worst, LIMIT if status == STALLED else status)
        x[:, :, j] = found
    return iterations, worst


def conjugate_gradient_joint_many(
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
    """Solve A x = b on the free nodes for every right-hand side; see `linear.iterate`.

    Returns:
        iterations of the slowest, worst relative residual, worst status.
    """
    pattern = (row_start, column, blocks)

    def descend(found: np.ndarray, parts: np.ndarray, most: int) -> tuple[int, int]:
        return _descend_in_groups(*pattern, inverse, joint, free, found, parts, most)

    with fitting_threads(len(free)):
        return solve_by(descend, pattern, b, x, free, tolerance, limit)


def conjugate_gradient_many(
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
    return conjugate_gradient_joint_many(row_start, column, blocks, inverse, NOTHING, b, x, free, tolerance, limit)
