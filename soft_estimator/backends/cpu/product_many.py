"""The matrix times several nodal vectors at once, (N, 3, B): every block is read once for all of them."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import by_size, njit, prange
from soft_estimator.backends.cpu.linear import _CHUNK

_FAST = {"contract"}


@njit(cache=True, fastmath=_FAST)
def row_times_many(
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
def sum_chunks(partial: np.ndarray, out: np.ndarray) -> None:
    """out (B,) = sums over the chunks, partial (chunks, B), in order."""
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
            row_times_many(i, row_start, column, blocks, x, y)
            for a in range(3):
                for j in range(x.shape[2]):
                    out[i, a, j] = free[i] * y[a, j]


@by_size(rows=3, fastmath=_FAST)
def residual_many(
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
    """r (N, 3, B) = b - A x on the free nodes, zero on the others; square (B,) = |r|² of each column. partial:
    (chunks, B), overwritten."""
    n, width = b.shape[0], b.shape[2]
    for chunk in prange(partial.shape[0]):
        y = np.empty((3, width), x.dtype)
        total = np.zeros(width)
        for i in range(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK)):
            row_times_many(i, row_start, column, blocks, x, y)
            for a in range(3):
                for j in range(width):
                    r[i, a, j] = free[i] * (b[i, a, j] - y[a, j])
                    total[j] += r[i, a, j] * r[i, a, j]
        for j in range(width):  # number by number: arrays take seconds to compile (see `compiled`)
            partial[chunk, j] = total[j]
    sum_chunks(partial, square)
