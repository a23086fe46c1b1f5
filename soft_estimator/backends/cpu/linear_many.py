"""Conjugate gradients for several right-hand sides at once: the matrix is read once for all of them.

Vectors are (N, 3, B), so that the inner loop runs over the right-hand sides. Each has its own step lengths and stops
on its own; sums run in a fixed order.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit, prange
from soft_estimator.backends.cpu.linear import _CHUNK, BREAKDOWN, CONVERGED, LIMIT

_FAST = {"contract"}


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
        partial[chunk] = total
    _sum_chunks(partial, square)


@njit(parallel=True, cache=True, fastmath=_FAST)
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
    n, width = b.shape[0], b.shape[2]
    chunks = (n + _CHUNK - 1) // _CHUNK
    partial, other = np.zeros((chunks, width)), np.zeros((chunks, width))
    r, z, p, ap = np.empty_like(x), np.empty_like(x), np.empty_like(x), np.empty_like(x)
    reference, square, rz, pap, new_rz = (
        np.zeros(width),
        np.zeros(width),
        np.zeros(width),
        np.zeros(width),
        np.zeros(width),
    )
    alpha, beta = np.zeros(width, x.dtype), np.zeros(width, x.dtype)
    for i in prange(n):
        for a in range(3):
            for j in range(width):
                p[i, a, j] = x[i, a, j] if free[i] == 0 else 0
    _residual_many(row_start, column, blocks, b, p, free, r, partial, reference)
    for i in prange(n):
        for a in range(3):
            for j in range(width):
                if reference[j] == 0.0 and free[i] != 0:  # solved by zero; from any guess it would never get there
                    x[i, a, j] = 0
    _residual_many(row_start, column, blocks, b, x, free, r, partial, square)
    fresh = True
    restarts = 0
    for iteration in range(limit):
        done, checked = True, False
        for j in range(width):
            if not np.isfinite(square[j]) or not np.isfinite(reference[j]):
                return iteration, np.inf, BREAKDOWN
            done = done and square[j] <= tolerance * tolerance * reference[j]
        if done:
            _residual_many(row_start, column, blocks, b, x, free, r, partial, square)
            checked = True
            worst = 0.0
            for j in range(width):
                if reference[j] > 0.0:
                    worst = max(worst, np.sqrt(square[j] / reference[j]))
            if worst <= 2.0 * tolerance or restarts == 3:
                return iteration, worst, CONVERGED if worst <= 2.0 * tolerance else LIMIT
            restarts += 1
        if fresh or checked:
            beta[:] = 0
            for chunk in prange(chunks):
                total = np.zeros(width)
                for i in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
                    for a in range(3):
                        for j in range(width):
                            z[i, a, j] = (
                                inverse[i, 3 * a] * r[i, 0, j]
                                + inverse[i, 3 * a + 1] * r[i, 1, j]
                                + inverse[i, 3 * a + 2] * r[i, 2, j]
                            )
                            p[i, a, j] = z[i, a, j]
                            total[j] += r[i, a, j] * z[i, a, j]
                partial[chunk] = total
            _sum_chunks(partial, rz)
            fresh = False
        for chunk in prange(chunks):
            y = np.empty((3, width), x.dtype)
            total = np.zeros(width)
            for i in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
                _row_times_many(i, row_start, column, blocks, p, y)
                for a in range(3):
                    for j in range(width):
                        ap[i, a, j] = y[a, j]
                        total[j] += p[i, a, j] * y[a, j]
            partial[chunk] = total
        _sum_chunks(partial, pap)
        for j in range(width):
            going = square[j] > tolerance * tolerance * reference[j]
            if going and not pap[j] > 0.0:
                return iteration, np.inf, BREAKDOWN
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
            partial[chunk], other[chunk] = total, product
        _sum_chunks(partial, square)
        _sum_chunks(other, new_rz)
        for j in range(width):
            beta[j] = new_rz[j] / rz[j] if rz[j] > 0.0 else 0.0
            rz[j] = new_rz[j]
        for i in prange(n):
            for a in range(3):
                for j in range(width):
                    p[i, a, j] = z[i, a, j] + beta[j] * p[i, a, j]
    worst = 0.0
    for j in range(width):
        if reference[j] > 0.0:
            worst = max(worst, np.sqrt(square[j] / reference[j]))
    return limit, worst, LIMIT
