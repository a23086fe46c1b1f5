"""Solves with Cholesky's factor of a slender body's matrix; see `band`, which makes it.

Right-hand sides go side by side, by groups of `lanes`: eight take as long as one by itself would, along the rows of the
factor, and one alone not much longer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from soft_estimator.backends.band_loops import BandOrder, Factor, Halves
from soft_estimator.backends.cpu.compiled import njit, prange
from soft_estimator.backends.cpu.lanes import LANES, all_as, lanes_of, nothing_of, put
from soft_estimator.backends.cpu.linear import BREAKDOWN, CONVERGED, LIMIT
from soft_estimator.backends.cpu.product import CHUNK, residual_of
from soft_estimator.backends.cpu.product_many import residual_many
from soft_estimator.backends.cpu.solve_many import squares_of_given

_FAST = {"contract"}
_TRIES = 4  # solves for what the last one left: one is enough where the matrix is as well-conditioned as a body's


@njit(cache=True, fastmath=_FAST)
def _forwards(last: np.ndarray, band: np.ndarray, begin: int, end: int, y: np.ndarray) -> None:
    """y (3 n, LANES) → R⁻ᵀ y by the rows from `begin` to `end`."""
    width = band.shape[2]
    for i in range(begin, end):
        at, to = 3 * i * width, 3 * i * LANES
        second, third = at + width, at + 2 * width
        u0 = band[i, 0, 0] * lanes_of(y, to)
        u1 = band[i, 1, 1] * (lanes_of(y, to + LANES) - band[i, 0, 1] * u0)
        u2 = band[i, 2, 2] * (lanes_of(y, to + 2 * LANES) - band[i, 0, 2] * u0 - band[i, 1, 2] * u1)
        put(u0, y, to)
        put(u1, y, to + LANES)
        put(u2, y, to + 2 * LANES)
        for j in range(3, 3 * (last[i] - i + 1)):
            here = lanes_of(y, to + j * LANES) - all_as(band, at + j) * u0
            put(here - all_as(band, second + j) * u1 - all_as(band, third + j) * u2, y, to + j * LANES)


@njit(cache=True, fastmath=_FAST)
def _backwards(last: np.ndarray, band: np.ndarray, begin: int, end: int, y: np.ndarray) -> None:
    """y (3 n, LANES) → R⁻¹ y by the rows from `begin` to `end`, the last one first; a node's three numbers have sums of
    their own, added up at the end."""
    width = band.shape[2]
    for i in range(end - 1, begin - 1, -1):
        at, to = 3 * i * width, 3 * i * LANES
        s0, s1, s2 = lanes_of(y, to), lanes_of(y, to + LANES), lanes_of(y, to + 2 * LANES)
        t0, t1, t2, v0, v1, v2 = (
            nothing_of(y), nothing_of(y), nothing_of(y), nothing_of(y), nothing_of(y), nothing_of(y)
        )  # fmt: skip
        for j in range(3, 3 * (last[i] - i + 1), 3):
            p, q, r = at + j, at + width + j, at + 2 * width + j
            x, to_j = lanes_of(y, to + j * LANES), to + j * LANES
            s0 -= all_as(band, p) * x
            s1 -= all_as(band, q) * x
            s2 -= all_as(band, r) * x
            x = lanes_of(y, to_j + LANES)
            t0 += all_as(band, p + 1) * x
            t1 += all_as(band, q + 1) * x
            t2 += all_as(band, r + 1) * x
            x = lanes_of(y, to_j + 2 * LANES)
            v0 += all_as(band, p + 2) * x
            v1 += all_as(band, q + 2) * x
            v2 += all_as(band, r + 2) * x
        s2 = band[i, 2, 2] * (s2 - (t2 + v2))
        s1 = band[i, 1, 1] * (s1 - (t1 + v1) - band[i, 1, 2] * s2)
        s0 = band[i, 0, 0] * (s0 - (t0 + v0) - band[i, 0, 1] * s1 - band[i, 0, 2] * s2)
        put(s0, y, to)
        put(s1, y, to + LANES)
        put(s2, y, to + 2 * LANES)


@njit(cache=True)
def _inwards(half: BandOrder, rows: int, band: np.ndarray, b: np.ndarray, first: int, y: np.ndarray) -> None:
    """Right-hand sides b (N, 3, K) from the first one on, of so many rows in a half's order, y (3 n, LANES), and
    forwards up to the middle."""
    count = min(LANES, b.shape[2] - first)
    for i in range(rows):
        for a in range(3):
            for c in range(count):
                y[3 * i + a, c] = b[half.order[i], a, first + c]
    _forwards(half.last, band, 0, half.own[0], y)


@njit(cache=True)
def _outwards(half: BandOrder, rows: int, band: np.ndarray, y: np.ndarray, first: int, out: np.ndarray) -> None:
    """Backwards from the middle on, and so many rows' solutions, out (N, 3, K) from the first one on."""
    _backwards(half.last, band, 0, half.own[0], y)
    count = min(LANES, out.shape[2] - first)
    for i in range(rows):
        for a in range(3):
            for c in range(count):
                out[half.order[i], a, first + c] = y[3 * i + a, c]


@njit(cache=True)
def _through_the_middle(half: BandOrder, far_own: int, near: np.ndarray, y: np.ndarray, z: np.ndarray) -> None:
    """What the far half leaves of the middle's right-hand sides, z, added to y; the middle solved, and told to z."""
    own, end = half.own[0], near.shape[0]
    count = end - own
    for p in range(count):
        for a in range(3):
            for c in range(LANES):
                y[3 * (own + p) + a, c] += z[3 * (far_own + count - 1 - p) + a, c]
    _forwards(half.last, near, own, end, y)
    _backwards(half.last, near, own, end, y)
    for p in range(count):
        for a in range(3):
            for c in range(LANES):
                z[3 * (far_own + count - 1 - p) + a, c] = y[3 * (own + p) + a, c]


@njit(parallel=True, cache=True)
def _solve(one: BandOrder, other: BandOrder, near: np.ndarray, far: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    y, z = np.zeros((3 * near.shape[0], LANES)), np.zeros((3 * far.shape[0], LANES))
    for first in range(0, b.shape[2], LANES):
        for part in prange(2):
            if part == 0:
                _inwards(one, near.shape[0], near, b, first, y)
            else:
                for i in range(3 * other.own[0], z.shape[0]):
                    put(nothing_of(z), z, i * LANES)
                _inwards(other, other.own[0], far, b, first, z)
        _through_the_middle(one, other.own[0], near, y, z)
        for part in prange(2):
            if part == 0:
                _outwards(one, near.shape[0], near, y, first, out)
            else:
                _outwards(other, other.own[0], far, z, first, out)


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
    pattern, width = (row_start, column, blocks), b.shape[2]
    partial = np.zeros(((len(free) + CHUNK - 1) // CHUNK, width))
    r, square, found = np.empty_like(x), np.zeros(width), np.empty_like(x)
    one = (b[:, :, 0], x[:, :, 0], free, r[:, :, 0]) if width == 1 else None
    reference = squares_of_given(pattern, b, x, free, r, partial)
    nothing = reference == 0.0  # solved by zero; from any guess it would never get there
    if nothing.any():
        x[:, :, nothing] *= (free == 0)[:, None, None]
    worst = np.inf
    for solves in range(min(limit, _TRIES) + 1):
        if one is None:
            residual_many(*pattern, b, x, free, r, partial, square)
        else:
            square[0] = residual_of(*pattern, *one, partial)
        if not (np.isfinite(square).all() and np.isfinite(reference).all()):
            return solves, np.inf, BREAKDOWN
        worst = float(np.sqrt(square / np.where(nothing, 1.0, reference)).max())
        if worst <= tolerance:
            return solves, worst, CONVERGED
        made = factor() if solves < min(limit, _TRIES) else None
        if made is None:
            break
        solve_band(halves, made, r, found)
        x += found
    return solves, worst, LIMIT if solves else BREAKDOWN
