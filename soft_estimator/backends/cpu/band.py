"""Cholesky's factor of a slender body's matrix, row by row, and solves with it; see `backends.band_loops`.

A body has two halves, which meet in its middle, and each is one thread's work; every sum has one order: the same bits
for any number of threads. Rows are worked on by nodes, three at a time, along the row, which the compiler makes vectors
of.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from soft_estimator.backends.band_loops import BandOrder, Factor, Halves
from soft_estimator.backends.cpu.compiled import njit, prange
from soft_estimator.backends.cpu.linear import BREAKDOWN, CONVERGED
from soft_estimator.backends.cpu.solve_many import solve_by

_FAST = {"contract"}
_NODES = 4  # that are worked on at a time: their rows and two more nodes' stay in the nearest cache
_SUM = {"contract", "reassoc"}  # sums in the order of the vectors' lanes, always the same


@njit(cache=True)
def _fill(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    free: np.ndarray,
    half: BandOrder,
    rows: int,
    out: np.ndarray,
) -> None:
    """The matrix' blocks on and right of the diagonal in so many rows, zero in the others; what is held has a unit
    block and no part in the others."""
    for i in range(out.shape[0]):
        for a in range(3):
            for j in range(out.shape[2]):
                out[i, a, j] = 0.0
    for i in range(rows):
        node = half.order[i]
        if free[node] == 0:
            for a in range(3):
                out[i, a, a] = 1.0
            continue
        for k in range(row_start[node], row_start[node + 1]):
            j = half.rank[column[k]] - i
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
def _eliminate(last: np.ndarray, out: np.ndarray, begin: int, own: int, end: int) -> bool:
    """Rows of the factor from `begin` to `own`, and what they leave of those up to `end`; whether all are positive."""
    first = begin
    for low in range(begin, end, _NODES):
        high, before = min(low + _NODES, end), min(low, own)
        while first < before and last[first] < low:
            first += 1
        # Several nodes at a time take off what those before all of them hold: that is read from memory once.
        for k in range(first, before - 1, 2):
            for i in range(low, high):
                if last[k + 1] >= i:  # beyond its own last column the row of k holds zeros
                    _take_off_two(out[k], out[k + 1], 3 * (i - k), 3 * (last[k + 1] - i + 1), out[i])
        for i in range(low, high):
            for k in range(before - (before - first) % 2, min(i, own)):
                if last[k] >= i:
                    _take_off(out[k], 3 * (i - k), 3 * (last[k] - i + 1), out[i])
            if i < own and not _finish(out[i], 3 * (last[i] - i + 1)):
                return False
    return True


@njit(cache=True)
def _half(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    free: np.ndarray,
    half: BandOrder,
    rows: int,
    out: np.ndarray,
) -> bool:
    """One half up to the middle; rows: in which the matrix' own blocks are counted."""
    _fill(row_start, column, blocks, free, half, rows, out)
    return _eliminate(half.last, out, 0, half.own[0], len(half.order))


@njit(parallel=True, cache=True)
def _both_halves(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    free: np.ndarray,
    one: BandOrder,
    other: BandOrder,
    near: np.ndarray,
    far: np.ndarray,
) -> bool:
    """Both halves up to the middle, whose own blocks are in the near one."""
    fine = np.zeros(2, np.bool_)
    for part in prange(2):
        if part == 0:
            fine[part] = _half(row_start, column, blocks, free, one, len(one.order), near)
        else:
            fine[part] = _half(row_start, column, blocks, free, other, other.own[0], far)
    return fine[0] and fine[1]


def factorise_band(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    free: np.ndarray,
    halves: Halves,
    near: np.ndarray,
    far: np.ndarray,
) -> bool:
    """near, far (n, 3, W): rows of R in A = Rᵀ R, from a node's own column on, its diagonal inverted."""
    if not _both_halves(row_start, column, blocks, free, *halves, near, far):
        return False
    own, other = (int(half.own[0]) for half in halves)
    _join(own, other, near, far)
    return _eliminate(halves[0].last, near, own, len(near), len(near))


@njit(cache=True)
def _join(own: int, other: int, near: np.ndarray, far: np.ndarray) -> None:
    """What the far half leaves of the middle, where it lies backwards, added to what the near one does."""
    count = near.shape[0] - own
    for p in range(count):
        for q in range(p, count):
            there = far[other + count - 1 - q]
            for a in range(3):
                for b in range(3):
                    near[own + p, a, 3 * (q - p) + b] += there[b, 3 * (q - p) + a]


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
def _forwards(last: np.ndarray, band: np.ndarray, begin: int, end: int, y: np.ndarray) -> None:
    """y (K, 3 n) → R⁻ᵀ y by the rows from `begin` to `end`."""
    for i in range(begin, end):
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


@njit(cache=True, fastmath=_FAST)
def _backwards(last: np.ndarray, band: np.ndarray, begin: int, end: int, y: np.ndarray) -> None:
    """y (K, 3 n) → R⁻¹ y by the rows from `begin` to `end`, the last one first."""
    for i in range(end - 1, begin - 1, -1):
        r, width = band[i], 3 * (last[i] - i)
        for c in range(y.shape[0]):
            u = y[c, 3 * i :]
            s0, s1, s2 = _dots(r, u, width)
            u[2] = (u[2] - s2) * r[2, 2]
            u[1] = (u[1] - s1 - r[1, 2] * u[2]) * r[1, 1]
            u[0] = (u[0] - s0 - r[0, 1] * u[1] - r[0, 2] * u[2]) * r[0, 0]


@njit(cache=True)
def _inwards(half: BandOrder, rows: int, band: np.ndarray, b: np.ndarray, y: np.ndarray) -> None:
    """Right-hand sides b (N, 3, K) of so many rows in a half's order, y (K, 3 n), and forwards up to the middle."""
    for i in range(rows):
        for a in range(3):
            for c in range(b.shape[2]):
                y[c, 3 * i + a] = b[half.order[i], a, c]
    _forwards(half.last, band, 0, half.own[0], y)


@njit(cache=True)
def _outwards(half: BandOrder, rows: int, band: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """Backwards from the middle on, and so many rows' solutions, out (N, 3, K)."""
    _backwards(half.last, band, 0, half.own[0], y)
    for i in range(rows):
        for a in range(3):
            for c in range(out.shape[2]):
                out[half.order[i], a, c] = y[c, 3 * i + a]


@njit(parallel=True, cache=True)
def _solve(one: BandOrder, other: BandOrder, near: np.ndarray, far: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    own, end = one.own[0], near.shape[0]
    far_own, count = other.own[0], end - own
    y, z = np.zeros((b.shape[2], 3 * end)), np.zeros((b.shape[2], 3 * far.shape[0]))
    for part in prange(2):
        if part == 0:
            _inwards(one, end, near, b, y)
        else:
            _inwards(other, far_own, far, b, z)
    for c in range(y.shape[0]):
        for p in range(count):
            for a in range(3):
                y[c, 3 * (own + p) + a] += z[c, 3 * (far_own + count - 1 - p) + a]
    _forwards(one.last, near, own, end, y)
    _backwards(one.last, near, own, end, y)
    for c in range(y.shape[0]):
        for p in range(count):
            for a in range(3):
                z[c, 3 * (far_own + count - 1 - p) + a] = y[c, 3 * (own + p) + a]
    for part in prange(2):
        if part == 0:
            _outwards(one, end, near, y, out)
        else:
            _outwards(other, far_own, far, z, out)


def solve_band(halves: Halves, factor: Factor, b: np.ndarray, out: np.ndarray) -> None:
    """out (N, 3, K) = A⁻¹ b of each column; b is zero on held nodes."""
    _solve(*halves, *factor, b, out)


def solve_band_many(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    halves: Halves,
    factor: Callable[[], Factor | None],
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    """Solve A x = b for every right-hand side, from x; see `linear_many.conjugate_gradient_many`."""

    def descend(found: np.ndarray, parts: np.ndarray, most: int) -> tuple[int, int]:
        made = factor()
        if made is None:
            return 0, BREAKDOWN
        solve_band(halves, made, parts, found)
        return 1, CONVERGED

    return solve_by(descend, (row_start, column, blocks), b, x, free, tolerance, limit)
