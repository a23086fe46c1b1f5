"""Cholesky's factor of a slender body's matrix, row by row, and solves with it; see `backends.band_loops`.

One thread, every sum in one order: the same bits for any number of threads. Rows are worked on by nodes, three at a
time, along the row, which the compiler makes vectors of.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from soft_estimator.backends.band_loops import BandOrder
from soft_estimator.backends.cpu.compiled import njit
from soft_estimator.backends.cpu.linear import BREAKDOWN, CONVERGED
from soft_estimator.backends.cpu.linear_many import solve_by

_FAST = {"contract"}
_NODES = 4  # that are worked on at a time: their rows and two more nodes' stay in the nearest cache
_SUM = {"contract", "reassoc"}  # sums in the order of the vectors' lanes, always the same


@njit(cache=True)
def _fill(
    row_start: np.ndarray, column: np.ndarray, blocks: np.ndarray, free: np.ndarray, order: BandOrder, out: np.ndarray
) -> None:
    """The matrix' blocks on and right of the diagonal; what is held has a unit block and no part in the others."""
    for i in range(out.shape[0]):
        node = order.order[i]
        for a in range(3):
            for j in range(out.shape[2]):
                out[i, a, j] = 0.0
        if free[node] == 0:
            for a in range(3):
                out[i, a, a] = 1.0
            continue
        for k in range(row_start[node], row_start[node + 1]):
            j = order.rank[column[k]] - i
            if j >= 0 and free[column[k]] > 0:
                for a in range(3):
                    for b in range(3):
                        out[i, a, 3 * j + b] = blocks[k, 3 * a + b]


@njit(cache=True, fastmath=_FAST)
def _take_off_two(p: np.ndarray, q: np.ndarray, at: int, width: int, y: np.ndarray) -> None:
    """The rows y of a node less their parts of those of two earlier ones in turn, p and q; at: column of y's node in
    p."""
    p0, p1, p2 = p[0, at:], p[1, at:], p[2, at:]
    q0, q1, q2 = q[0, at - 3 :], q[1, at - 3 :], q[2, at - 3 :]
    y0, y1, y2 = y[0], y[1], y[2]
    a00, a01, a02, a03, a04, a05 = p0[0], p1[0], p2[0], q0[0], q1[0], q2[0]
    a10, a11, a12, a13, a14, a15 = p0[1], p1[1], p2[1], q0[1], q1[1], q2[1]
    a20, a21, a22, a23, a24, a25 = p0[2], p1[2], p2[2], q0[2], q1[2], q2[2]
    for j in range(width):
        b0, b1, b2, b3, b4, b5 = p0[j], p1[j], p2[j], q0[j], q1[j], q2[j]
        y0[j] -= (a00 * b0 + a01 * b1 + a02 * b2) + (a03 * b3 + a04 * b4 + a05 * b5)
        y1[j] -= (a10 * b0 + a11 * b1 + a12 * b2) + (a13 * b3 + a14 * b4 + a15 * b5)
        y2[j] -= (a20 * b0 + a21 * b1 + a22 * b2) + (a23 * b3 + a24 * b4 + a25 * b5)


@njit(cache=True, fastmath=_FAST)
def _take_off(p: np.ndarray, at: int, width: int, y: np.ndarray) -> None:
    """The same for one earlier node."""
    p0, p1, p2 = p[0, at:], p[1, at:], p[2, at:]
    for a in range(3):
        row, a0, a1, a2 = y[a], p0[a], p1[a], p2[a]
        for j in range(width):
            row[j] -= a0 * p0[j] + a1 * p1[j] + a2 * p2[j]


@njit(cache=True, fastmath=_FAST)
def _finish(y: np.ndarray, width: int) -> bool:
    """A node's own rows of the factor; whether they are positive."""
    for a in range(3):
        for e in range(a):
            part = y[e, a]
            for j in range(a, width):
                y[a, j] -= part * y[e, j]
        if not y[a, a] > 0.0:
            return False
        inverse = 1.0 / np.sqrt(y[a, a])
        for j in range(a + 1, width):
            y[a, j] *= inverse
        y[a, a] = inverse
    return True


@njit(cache=True)
def factorise_band(
    row_start: np.ndarray, column: np.ndarray, blocks: np.ndarray, free: np.ndarray, order: BandOrder, out: np.ndarray
) -> bool:
    """out (N, 3, W): rows of R in A = Rᵀ R, from a node's own column on, its diagonal inverted."""
    _fill(row_start, column, blocks, free, order, out)
    last, first, n = order.last, 0, out.shape[0]
    for low in range(0, n, _NODES):
        high = min(low + _NODES, n)
        while last[first] < low:
            first += 1
        # Several nodes at a time take off what those before all of them hold: that is read from memory once.
        for k in range(first, low - 1, 2):
            for i in range(low, high):
                if last[k + 1] >= i:  # beyond its own last column the row of k holds zeros
                    _take_off_two(out[k], out[k + 1], 3 * (i - k), 3 * (last[k + 1] - i + 1), out[i])
        for i in range(low, high):
            for k in range(low if (low - first) % 2 == 0 else low - 1, i):
                if last[k] >= i:
                    _take_off(out[k], 3 * (i - k), 3 * (last[k] - i + 1), out[i])
            if not _finish(out[i], 3 * (last[i] - i + 1)):
                return False
    return True


@njit(cache=True, fastmath=_SUM)
def _dots(r: np.ndarray, y: np.ndarray, width: int) -> tuple[float, float, float]:
    """Products of three rows r (3, …) with y, each in a loop of its own: one alone becomes vectors."""
    r0, r1, r2 = r[0, 3:], r[1, 3:], r[2, 3:]
    y = y[3:]
    s0 = s1 = s2 = 0.0
    for j in range(width):
        s0 += r0[j] * y[j]
    for j in range(width):
        s1 += r1[j] * y[j]
    for j in range(width):
        s2 += r2[j] * y[j]
    return s0, s1, s2


@njit(cache=True, fastmath=_FAST)
def _substitute(last: np.ndarray, band: np.ndarray, y: np.ndarray) -> None:
    """y (K, 3 N) → R⁻¹ R⁻ᵀ y, row by row."""
    n = band.shape[0]
    for i in range(n):
        r, width = band[i], 3 * (last[i] - i + 1)
        r0, r1, r2 = r[0], r[1], r[2]
        for c in range(y.shape[0]):
            u = y[c, 3 * i :]
            u0 = u[0] * r0[0]
            u1 = (u[1] - r0[1] * u0) * r1[1]
            u2 = (u[2] - r0[2] * u0 - r1[2] * u1) * r2[2]
            u[0], u[1], u[2] = u0, u1, u2
            for j in range(3, width):
                u[j] -= r0[j] * u0 + r1[j] * u1 + r2[j] * u2
    for i in range(n - 1, -1, -1):
        r, width = band[i], 3 * (last[i] - i)
        for c in range(y.shape[0]):
            u = y[c, 3 * i :]
            s0, s1, s2 = _dots(r, u, width)
            u[2] = (u[2] - s2) * r[2, 2]
            u[1] = (u[1] - s1 - r[1, 2] * u[2]) * r[1, 1]
            u[0] = (u[0] - s0 - r[0, 1] * u[1] - r[0, 2] * u[2]) * r[0, 0]


@njit(cache=True)
def solve_band(order: BandOrder, band: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """out (N, 3, K) = A⁻¹ b of each column; b is zero on held nodes."""
    n, width = b.shape[0], b.shape[2]
    y = np.empty((width, 3 * n))
    for i in range(n):
        for a in range(3):
            for c in range(width):
                y[c, 3 * i + a] = b[order.order[i], a, c]
    _substitute(order.last, band, y)
    for i in range(n):
        for a in range(3):
            for c in range(width):
                out[order.order[i], a, c] = y[c, 3 * i + a]


def solve_band_many(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    order: BandOrder,
    band: Callable[[], np.ndarray | None],
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    """Solve A x = b for every right-hand side, from x; see `linear_many.conjugate_gradient_many`."""

    def descend(found: np.ndarray, parts: np.ndarray, most: int) -> tuple[int, int]:
        factor = band()
        if factor is None:
            return 0, BREAKDOWN
        solve_band(order, factor, parts, found)
        return 1, CONVERGED

    return solve_by(descend, (row_start, column, blocks), b, x, free, tolerance, limit)
