"""Conjugate gradients for several right-hand sides at once: the matrix is read once for all of them.

Vectors are (N, 3, B), so that the inner loop runs over the right-hand sides. Each has its own step lengths and stops
on its own; sums run in a fixed order. Columns that are done, at the start or after some iterations, are left out of
what is iterated on by whole groups of `_GROUP`: a body in free flight moves rigidly along most directions, which their
guess already says. So are columns that others hold already (`_independent`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from soft_estimator.backends.cpu.compiled import by_size, njit, prange
from soft_estimator.backends.cpu.linear import _CHUNK, BREAKDOWN, CONVERGED, LIMIT, STALLED, conjugate_gradient

_FAST = {"contract"}
_GROUP = 8  # columns that the inner loops run over at full speed, `CpuBackend.column_multiple`
# So many are sooner solved one after the other than as a group: of 208 nodes one takes 0.44 ms, a group 2.9 ms.
_FEW = 3
_RESTARTS = 3
# In units of what a column's residual may be: parts that all columns together hardly hold are left out, and the others
# solved this far; their sum then stays below one, or is gone on with.
_SMALL, DONE = 0.3, 0.9
# From x = 0 and its residuals r (N, 3, K), which may be overwritten, until all are below `DONE`, in so many
# iterations at most: iterations, status.
Descend = Callable[[np.ndarray, np.ndarray, int], tuple[int, int]]


@njit(cache=True, fastmath=_FAST)
def _row_times_many(
    i: int, row_start: np.ndarray, column: np.ndarray, blocks: np.ndarray, x: np.ndarray, y: np.ndarray
) -> None:
    """y (3, B) = a row of A times x, three blocks at a time: fewer loads and stores of y."""
    width = x.shape[2]
    y[:] = 0
    k, end = row_start[i], row_start[i + 1]
    while k + 3 <= end:
        l, m, n = column[k], column[k + 1], column[k + 2]
        for a in range(3):
            l0, l1, l2 = blocks[k, 3 * a], blocks[k, 3 * a + 1], blocks[k, 3 * a + 2]
            m0, m1, m2 = blocks[k + 1, 3 * a], blocks[k + 1, 3 * a + 1], blocks[k + 1, 3 * a + 2]
            n0, n1, n2 = blocks[k + 2, 3 * a], blocks[k + 2, 3 * a + 1], blocks[k + 2, 3 * a + 2]
            for j in range(width):
                y[a, j] += (
                    (l0 * x[l, 0, j] + l1 * x[l, 1, j] + l2 * x[l, 2, j])
                    + (m0 * x[m, 0, j] + m1 * x[m, 1, j] + m2 * x[m, 2, j])
                    + (n0 * x[n, 0, j] + n1 * x[n, 1, j] + n2 * x[n, 2, j])
                )
        k += 3
    while k < end:
        n = column[k]
        for a in range(3):
            n0, n1, n2 = blocks[k, 3 * a], blocks[k, 3 * a + 1], blocks[k, 3 * a + 2]
            for j in range(width):
                y[a, j] += n0 * x[n, 0, j] + n1 * x[n, 1, j] + n2 * x[n, 2, j]
        k += 1


@njit(cache=True)
def _sum_chunks(partial: np.ndarray, out: np.ndarray) -> None:
    for j in range(out.shape[0]):
        total = 0.0
        for c in range(partial.shape[0]):
            total += partial[c, j]
        out[j] = total


@njit(parallel=True, cache=True, fastmath=_FAST)
def multiply_many(
    row_start: np.ndarray, column: np.ndarray, blocks: np.ndarray, free: np.ndarray, x: np.ndarray, out: np.ndarray
) -> None:
    """out (N, 3, B) = A x on the free nodes, zero on the others."""
    n = x.shape[0]
    for chunk in prange((n + _CHUNK - 1) // _CHUNK):
        y = np.empty((3, x.shape[2]), x.dtype)
        for i in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
            _row_times_many(i, row_start, column, blocks, x, y)
            for a in range(3):
                for j in range(x.shape[2]):
                    out[i, a, j] = free[i] * y[a, j]


@by_size(rows=3, fastmath=_FAST)
def _residual_many(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    r: np.ndarray,
    partial: np.ndarray,
    square: np.ndarray,
) -> None:
    n, width = b.shape[0], b.shape[2]
    for chunk in prange(partial.shape[0]):
        y = np.empty((3, width), x.dtype)
        total = np.zeros(width)
        for i in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
            _row_times_many(i, row_start, column, blocks, x, y)
            for a in range(3):
                for j in range(width):
                    r[i, a, j] = free[i] * (b[i, a, j] - y[a, j])
                    total[j] += r[i, a, j] * r[i, a, j]
        for j in range(width):  # number by number: arrays take seconds to compile (see `compiled`)
            partial[chunk, j] = total[j]
    _sum_chunks(partial, square)


@njit(cache=True)
def _gathered(nodal: np.ndarray, chosen: np.ndarray, width: int) -> np.ndarray:
    """The chosen columns of a nodal array (N, 3, B), filled up with zeros to a width."""
    out = np.zeros((nodal.shape[0], 3, width), nodal.dtype)
    for i in range(nodal.shape[0]):
        for a in range(3):
            for k in range(chosen.shape[0]):
                out[i, a, k] = nodal[i, a, chosen[k]]
    return out


@by_size(rows=0, fastmath=_FAST)
def _turn_to(
    inverse: np.ndarray, r: np.ndarray, p: np.ndarray, partial: np.ndarray, rz: np.ndarray, square: np.ndarray
) -> None:
    """p = D⁻¹ r, the first direction; rz = rᵀ D⁻¹ r and |r|² of each column."""
    n, width = r.shape[0], r.shape[2]
    other = np.zeros_like(partial)
    for chunk in prange(partial.shape[0]):
        total, product = np.zeros(width), np.zeros(width)
        for i in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
            for a in range(3):
                for j in range(width):
                    p[i, a, j] = (
                        inverse[i, 3 * a] * r[i, 0, j]
                        + inverse[i, 3 * a + 1] * r[i, 1, j]
                        + inverse[i, 3 * a + 2] * r[i, 2, j]
                    )
                    product[j] += r[i, a, j] * p[i, a, j]
                    total[j] += r[i, a, j] * r[i, a, j]
        for j in range(width):
            partial[chunk, j], other[chunk, j] = total[j], product[j]
    _sum_chunks(partial, square)
    _sum_chunks(other, rz)


@by_size(rows=4, fastmath=_FAST)
def _descend(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    inverse: np.ndarray,
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
    chunks = (n + _CHUNK - 1) // _CHUNK
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
            total = np.zeros(width)
            for i in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
                _row_times_many(i, row_start, column, blocks, p, y)
                for a in range(3):
                    for j in range(width):
                        ap[i, a, j] = y[a, j]
                        total[j] += p[i, a, j] * y[a, j]
            for j in range(width):
                partial[chunk, j] = total[j]
        _sum_chunks(partial, pap)
        for j in range(width):
            going = square[j] > DONE * DONE
            if going and not pap[j] > 0.0:
                return iteration, BREAKDOWN
            alpha[j] = rz[j] / pap[j] if going else 0.0
        for chunk in prange(chunks):
            total, product = np.zeros(width), np.zeros(width)
            for i in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
                for a in range(3):
                    for j in range(width):
                        x[i, a, j] += alpha[j] * p[i, a, j]
                        r[i, a, j] -= alpha[j] * free[i] * ap[i, a, j]
                for a in range(3):
                    for j in range(width):
                        z[i, a, j] = (
                            inverse[i, 3 * a] * r[i, 0, j]
                            + inverse[i, 3 * a + 1] * r[i, 1, j]
                            + inverse[i, 3 * a + 2] * r[i, 2, j]
                        )
                        total[j] += r[i, a, j] * r[i, a, j]
                        product[j] += r[i, a, j] * z[i, a, j]
            for j in range(width):
                partial[chunk, j], other[chunk, j] = total[j], product[j]
        _sum_chunks(partial, square)
        _sum_chunks(other, new_rz)
        for j in range(width):
            beta[j] = new_rz[j] / rz[j] if rz[j] > 0.0 else 0.0
            rz[j] = new_rz[j]
        for i in prange(n):
            for a in range(3):
                for j in range(width):
                    p[i, a, j] = z[i, a, j] + beta[j] * p[i, a, j]
    return limit, LIMIT


def _descend_in_groups(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    inverse: np.ndarray,
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
    alone = _descend_alone((row_start, column), blocks, inverse, free, x, r, limit, whole)
    if whole == 0 or alone[1] == BREAKDOWN:
        return alone
    chosen = np.arange(whole)
    width = -(-chosen.shape[0] // _GROUP) * _GROUP
    xs, rs = _gathered(x, chosen, width), _gathered(r, chosen, width)
    ps, rzs, squares = np.empty_like(xs), np.zeros(width), np.zeros(width)
    _turn_to(inverse, rs, ps, np.zeros(((x.shape[0] + _CHUNK - 1) // _CHUNK, width)), rzs, squares)
    done, status = 0, CONVERGED
    while True:
        fewer = width - _GROUP  # of which there is a group less
        spent, status = _descend(
            row_start, column, blocks, inverse, free, xs, rs, ps, rzs, squares, limit - done, fewer
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
    pattern: tuple[np.ndarray, np.ndarray], blocks: np.ndarray, inverse: np.ndarray, free: np.ndarray, x: np.ndarray,
    r: np.ndarray, limit: int, first: int,
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
            spent, _, status = conjugate_gradient(*pattern, blocks, inverse, b, found, free, DONE / size, limit)
            iterations, worst = max(iterations, spent), max(worst, LIMIT if status == STALLED else status)
        x[:, :, j] = found
    return iterations, worst


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
    """Solve A x = b on the free nodes for every right-hand side; see `linear.conjugate_gradient`.

    Returns:
        iterations of the slowest, worst relative residual, worst status.
    """
    pattern = (row_start, column, blocks)

    def descend(found: np.ndarray, parts: np.ndarray, most: int) -> tuple[int, int]:
        return _descend_in_groups(*pattern, inverse, free, found, parts, most)

    return solve_by(descend, pattern, b, x, free, tolerance, limit)


def solve_by(
    descend: Descend,
    pattern: tuple[np.ndarray, np.ndarray, np.ndarray],
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    """`conjugate_gradient_many` with iterations of any kind; pattern: row_start, column, blocks."""
    width = b.shape[2]
    partial = np.zeros(((len(free) + _CHUNK - 1) // _CHUNK, width))
    r, square, reference = np.empty_like(x), np.zeros(width), np.zeros(width)
    if free.all():
        reference = _squares(b)
    else:
        _residual_many(*pattern, b, x * (free == 0)[:, None, None], free, r, partial, reference)
    nothing = reference == 0.0  # solved by zero; from any guess it would never get there
    if nothing.any():
        x[:, :, nothing] *= (free == 0)[:, None, None]
    iterations, worst = 0, 0.0
    for restart in range(_RESTARTS + 2):
        # The recurred residual may drift from the true one: believe only the latter.
        _residual_many(*pattern, b, x, free, r, partial, square)
        if not (np.isfinite(square).all() and np.isfinite(reference).all()):
            return iterations, np.inf, BREAKDOWN
        relative = np.sqrt(square / np.where(nothing, 1.0, reference))
        worst = float(relative.max())
        if worst <= (tolerance if restart == 0 else 2.0 * tolerance):
            return iterations, worst, CONVERGED
        if restart > _RESTARTS or iterations >= limit:
            break
        going = np.flatnonzero(relative > tolerance)
        parts, shares = _independent(r, going, tolerance * np.sqrt(reference[going]))
        found = np.zeros_like(parts)
        spent, status = descend(found, parts, limit - iterations)
        iterations += spent
        if status == BREAKDOWN:
            return iterations, np.inf, BREAKDOWN
        x[:, :, going] += _mixed(found, np.arange(found.shape[2]), shares)
    return iterations, worst, LIMIT


def _independent(r: np.ndarray, going: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fewer right-hand sides that hold all of some: columns (N, 3, K) whose sums with shares (K, G) are r[:, :, going].

    A body's changes along its directions are alike: moving it along a plane's normal is moving the plane the other way.
    In columns at right angles to each other, those that all of them nearly lack can be left out, and of those that are
    small a few digits are enough. Each column of r counts in its own unit (G,), and so do the sums: parts below one
    are done.
    """
    _, turn = np.linalg.eigh(_products(r, going, 1.0 / unit))
    parts = _mixed(r, going, turn / unit[:, None])
    size = np.sqrt(_squares(parts))  # of what they are, not what rounding makes of the products' eigenvalues
    kept = np.flatnonzero(size > _SMALL)
    return np.ascontiguousarray(parts[:, :, kept]), (turn[:, kept] * unit[:, None]).T


@njit(cache=True, fastmath=_FAST)
def _products(nodal: np.ndarray, chosen: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Products (G, G) of the chosen columns of a nodal array (N, 3, B) with each other, each times its factor (G,)."""
    count = chosen.shape[0]
    out, rows = np.zeros((count, count)), np.empty((3, count))
    for i in range(nodal.shape[0]):
        for a in range(3):
            for j in range(count):
                rows[a, j] = factor[j] * nodal[i, a, chosen[j]]
        for j in range(count):
            x, y, z = rows[0, j], rows[1, j], rows[2, j]
            for k in range(count):
                out[j, k] += x * rows[0, k] + y * rows[1, k] + z * rows[2, k]
    return out


@njit(cache=True, fastmath=_FAST)
def _squares(nodal: np.ndarray) -> np.ndarray:
    """Sums of squares (B,) of a nodal array's columns (N, 3, B)."""
    out = np.zeros(nodal.shape[2])
    for i in range(nodal.shape[0]):
        for a in range(3):
            for j in range(nodal.shape[2]):
                out[j] += np.float64(nodal[i, a, j]) * nodal[i, a, j]
    return out


@njit(cache=True, fastmath=_FAST)
def _mixed(nodal: np.ndarray, chosen: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sums (N, 3, K) of the chosen columns of a nodal array (N, 3, B) with weights (G, K)."""
    width = weights.shape[1]
    out = np.empty((nodal.shape[0], 3, width), nodal.dtype)
    row = np.empty(width)
    for i in range(nodal.shape[0]):
        for a in range(3):
            row[:] = 0.0
            for j in range(chosen.shape[0]):
                each = np.float64(nodal[i, a, chosen[j]])
                for k in range(width):
                    row[k] += each * weights[j, k]
            for k in range(width):
                out[i, a, k] = row[k]
    return out
