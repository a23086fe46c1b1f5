"""The matrix times one nodal vector, (N, 3); `product_many` has several."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from soft_estimator.backends.cpu.compiled import ONE_THREAD_BELOW, by_size, njit, prange
from soft_estimator.backends.cpu.lanes import first_three, four_of, no_four, put

CHUNK = 512  # rows that one thread sums up in a row, whatever the number of threads
_FAST = {"contract"}


@njit(cache=True, fastmath=_FAST)
def row_times(
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
        out[i, 0], out[i, 1], out[i, 2] = row_times(i, row_start, column, blocks, x)


@by_size(rows=3, fastmath=_FAST)
def multiply_scalars(
    row_start: np.ndarray, column: np.ndarray, values: np.ndarray, x: np.ndarray, out: np.ndarray
) -> None:
    """out (M, W) = S x (N, W), S (M, N) with one number for each entry of the pattern, values (B,)."""
    width, nothing = x.shape[1], x.dtype.type(0)
    for i in prange(out.shape[0]):
        if width == 3:  # sums stay in the processor's registers
            y0, y1, y2 = nothing, nothing, nothing
            for k in range(row_start[i], row_start[i + 1]):
                j, value = column[k], values[k]
                y0 += value * x[j, 0]
                y1 += value * x[j, 1]
                y2 += value * x[j, 2]
            out[i, 0], out[i, 1], out[i, 2] = y0, y1, y2
            continue
        for a in range(width):
            out[i, a] = 0
        for k in range(row_start[i], row_start[i + 1]):
            j, value = column[k], values[k]
            for a in range(width):
                out[i, a] += value * x[j, a]


@njit(cache=True)
def sum_in_order(partial: np.ndarray) -> float:
    total = 0.0
    for value in partial:
        total += value
    return total


@njit(cache=True, fastmath=_FAST)
def _residual_of_rows(
    first: int,
    last: int,
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    r: np.ndarray,
) -> float:
    total = 0.0
    for i in range(first, last):
        y0, y1, y2 = row_times(i, row_start, column, blocks, x)
        r[i, 0], r[i, 1], r[i, 2] = free[i] * (b[i, 0] - y0), free[i] * (b[i, 1] - y1), free[i] * (b[i, 2] - y2)
        total += r[i, 0] * r[i, 0] + r[i, 1] * r[i, 1] + r[i, 2] * r[i, 2]
    return total


@njit(parallel=True, cache=True)
def _residuals_on_threads(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    r: np.ndarray,
    partial: np.ndarray,
) -> None:
    for chunk in prange(partial.shape[0]):
        last = min(b.shape[0], (chunk + 1) * CHUNK)
        partial[chunk, 0] = _residual_of_rows(chunk * CHUNK, last, row_start, column, blocks, b, x, free, r)


@njit(cache=True)
def residual_of(
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
    if n < ONE_THREAD_BELOW:
        return _residual_of_rows(0, n, row_start, column, blocks, b, x, free, r)
    _residuals_on_threads(row_start, column, blocks, b, x, free, r, partial)
    return sum_in_order(partial[:, 0])


class Upper(NamedTuple):
    """The blocks of a symmetric matrix on and right of the diagonal: of each row its own first, (N+1,), (B,), (B+1, 9).

    Half of the matrix is half of what a product reads from memory, and where a block is at hand its transpose is, too.
    One thread's work: sums of a node come from several rows.
    """

    start: np.ndarray
    column: np.ndarray
    blocks: np.ndarray


@njit(cache=True, fastmath=_FAST)
def upper_and_residual(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    r: np.ndarray,
) -> tuple[Upper, float]:
    """The blocks, and r = b - A x on the free nodes, |r|², on the way."""
    n = row_start.shape[0] - 1
    most = (column.shape[0] + n) // 2
    # One block more than there are: rows of three are read as four numbers.
    start, columns, out = np.zeros(n + 1, np.int64), np.zeros(most, column.dtype), np.zeros((most + 1, 9), blocks.dtype)
    count, total = 0, 0.0
    for i in range(n):
        for k in range(row_start[i], row_start[i + 1]):
            if column[k] >= i:
                columns[count] = column[k]
                for a in range(9):
                    out[count, a] = blocks[k, a]
                count += 1
        start[i + 1] = count
        total += _residual_of_rows(i, i + 1, row_start, column, blocks, b, x, free, r)
    return Upper(start, columns, out), total


@njit(cache=True, fastmath=_FAST)
def times_upper(upper: Upper, p: np.ndarray, out: np.ndarray) -> None:
    """out = A p; p and out (N, 4), whose fourth numbers are anything."""
    start, column, blocks = upper
    n = p.shape[0]
    for i in range(n):
        put(no_four(out), out, 4 * i)
    for i in range(n):
        x0, x1, x2 = p[i, 0], p[i, 1], p[i, 2]
        y0, y1, y2 = no_four(blocks), no_four(blocks), no_four(blocks)
        own = start[i]
        for k in range(own + 1, start[i + 1]):
            j = 4 * column[k]
            b0, b1, b2 = four_of(blocks, 9 * k), four_of(blocks, 9 * k + 3), four_of(blocks, 9 * k + 6)
            x = four_of(p, j)
            y0 += b0 * x
            y1 += b1 * x
            y2 += b2 * x
            put(four_of(out, j) + x0 * b0 + x1 * b1 + x2 * b2, out, j)
        d = blocks[own]
        out[i, 0] += first_three(y0) + (d[0] * x0 + d[1] * x1 + d[2] * x2)
        out[i, 1] += first_three(y1) + (d[3] * x0 + d[4] * x1 + d[5] * x2)
        out[i, 2] += first_three(y2) + (d[6] * x0 + d[7] * x1 + d[8] * x2)
