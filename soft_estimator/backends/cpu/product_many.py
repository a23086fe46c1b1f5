"""The matrix times several nodal vectors at once, (N, 3, B): every block is read once for all of them."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import by_size, njit, prange
from soft_estimator.backends.cpu.lanes import LANES, lanes_of, nothing_of, put
from soft_estimator.backends.cpu.product import CHUNK

_FAST = {"contract"}


@njit(cache=True, fastmath=_FAST)
def row_times_many(
    i: int, row_start: np.ndarray, column: np.ndarray, blocks: np.ndarray, x: np.ndarray, y: np.ndarray
) -> None:
    """y (3, B) = a row of A times x; whole groups of columns as `lanes`."""
    width = x.shape[2]
    whole = width - width % LANES
    for c in range(0, whole, LANES):
        y0, y1, y2 = nothing_of(x), nothing_of(x), nothing_of(x)
        for k in range(row_start[i], row_start[i + 1]):
            at = 3 * width * column[k] + c
            x0, x1, x2 = lanes_of(x, at), lanes_of(x, at + width), lanes_of(x, at + 2 * width)
            y0 += blocks[k, 0] * x0
            y1 += blocks[k, 3] * x0
            y2 += blocks[k, 6] * x0
            y0 += blocks[k, 1] * x1
            y1 += blocks[k, 4] * x1
            y2 += blocks[k, 7] * x1
            y0 += blocks[k, 2] * x2
            y1 += blocks[k, 5] * x2
            y2 += blocks[k, 8] * x2
        put(y0, y, c)
        put(y1, y, width + c)
        put(y2, y, 2 * width + c)
    if whole == width:
        return
    y[:, whole:] = 0
    for k in range(row_start[i], row_start[i + 1]):
        n = column[k]
        for a in range(3):
            b0, b1, b2 = blocks[k, 3 * a], blocks[k, 3 * a + 1], blocks[k, 3 * a + 2]
            for j in range(whole, width):
                y[a, j] += b0 * x[n, 0, j] + b1 * x[n, 1, j] + b2 * x[n, 2, j]


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
    for chunk in prange((n + CHUNK - 1) // CHUNK):
        y = np.empty((3, x.shape[2]), x.dtype)
        for i in range(chunk * CHUNK, min(n, (chunk + 1) * CHUNK)):
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
        for i in range(chunk * CHUNK, min(n, (chunk + 1) * CHUNK)):
            row_times_many(i, row_start, column, blocks, x, y)
            for a in range(3):
                for j in range(width):
                    r[i, a, j] = free[i] * (b[i, a, j] - y[a, j])
                    total[j] += r[i, a, j] * r[i, a, j]
        for j in range(width):  # number by number: arrays take seconds to compile (see `compiled`)
            partial[chunk, j] = total[j]
    sum_chunks(partial, square)
