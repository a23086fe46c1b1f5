"""Cholesky's factor of a slender body's matrix, row by row; see `backends.band_loops`, and `band_solves` for solves.

A body has two halves, which meet in its middle, and each is one thread's work; every sum has one order: the same bits
for any number of threads. Rows are worked on in panels of four nodes. What all earlier rows take off a panel is summed
up in the processor's registers, six rows by sixteen columns at a time, from numbers that lie next to each other: nearly
all of the work, which by whole rows took more than twice as long.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.band_loops import BandOrder, Halves
from soft_estimator.backends.cpu.band_solves import solve_band, solve_band_many
from soft_estimator.backends.cpu.compiled import njit, prange
from soft_estimator.backends.cpu.lanes import LANES, all_as, lanes_of, nothing_of, put

__all__ = ["factorise_band", "solve_band", "solve_band_many"]

_FAST = {"contract"}
_NODES = 4  # of a panel
_HIGH, _WIDE = 6, 2 * LANES  # rows and columns of a tile


@njit(cache=True)
def _fill(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    free: np.ndarray,
    half: BandOrder,
    low: int,
    high: int,
    panel: np.ndarray,
) -> None:
    """The matrix' blocks on and right of the diagonal in the rows of some nodes; what is held has a unit block and no
    part in the others."""
    for i in range(low, high):
        node, row = half.order[i], 3 * (i - low)
        if free[node] == 0:
            for a in range(3):
                panel[row + a, row + a] = 1.0
            continue
        for k in range(row_start[node], row_start[node + 1]):
            j = half.rank[column[k]]
            if j >= i and free[column[k]] > 0:
                for a in range(3):
                    for b in range(3):
                        panel[row + a, 3 * (j - low) + b] = blocks[k, 3 * a + b]


@njit(cache=True, fastmath=_FAST)
def _take_off_tile(
    factor: np.ndarray, at: int, packed: np.ndarray, own: int, count: int, panel: np.ndarray, to: int
) -> None:
    """A tile of a panel less its part of so many earlier nodes.

    at: place of the tile's first column in the first of these nodes' rows of the factor. packed: the panel's own
    columns of those rows, one row after another; own: place of the tile's first row there. to: place of the tile in
    the panel.
    """
    width, step = factor.shape[2], panel.shape[1]
    x0, x1, x2 = lanes_of(panel, to), lanes_of(panel, to + step), lanes_of(panel, to + 2 * step)
    x3, x4, x5 = lanes_of(panel, to + 3 * step), lanes_of(panel, to + 4 * step), lanes_of(panel, to + 5 * step)
    next_to = to + LANES
    y0, y1, y2 = lanes_of(panel, next_to), lanes_of(panel, next_to + step), lanes_of(panel, next_to + 2 * step)
    y3, y4 = lanes_of(panel, next_to + 3 * step), lanes_of(panel, next_to + 4 * step)
    y5 = lanes_of(panel, next_to + 5 * step)
    for _ in range(count):
        for a in range(3):
            p, q = lanes_of(factor, at + a * width), lanes_of(factor, at + a * width + LANES)
            a0, a1, a2 = all_as(packed, own), all_as(packed, own + 1), all_as(packed, own + 2)
            a3, a4, a5 = all_as(packed, own + 3), all_as(packed, own + 4), all_as(packed, own + 5)
            x0 -= a0 * p
            y0 -= a0 * q
            x1 -= a1 * p
            y1 -= a1 * q
            x2 -= a2 * p
            y2 -= a2 * q
            x3 -= a3 * p
            y3 -= a3 * q
            x4 -= a4 * p
            y4 -= a4 * q
            x5 -= a5 * p
            y5 -= a5 * q
            own += 3 * _NODES
        at += 3 * (width - 1)  # a node's rows begin with its own columns
    put(x0, panel, to)
    put(x1, panel, to + step)
    put(x2, panel, to + 2 * step)
    put(x3, panel, to + 3 * step)
    put(x4, panel, to + 4 * step)
    put(x5, panel, to + 5 * step)
    put(y0, panel, next_to)
    put(y1, panel, next_to + step)
    put(y2, panel, next_to + 2 * step)
    put(y3, panel, next_to + 3 * step)
    put(y4, panel, next_to + 4 * step)
    put(y5, panel, next_to + 5 * step)


@njit(cache=True)
def _take_off_earlier(
    last: np.ndarray, factor: np.ndarray, first: int, before: int, low: int, packed: np.ndarray, panel: np.ndarray,
    columns: int,
) -> None:  # fmt: skip
    """A panel less its part of the nodes from `first` to `before`; columns: how many of it matter."""
    rows, width, packed_from = 3 * _NODES, factor.shape[2], first
    for i in range(first, before):
        for a in range(3):
            for r in range(rows):
                packed[i - first, a, r] = factor[i, a, 3 * (low - i) + r]
    for c in range(0, columns, _WIDE):
        while first < before and 3 * (last[first] - low + 1) <= c:  # beyond its last column a row holds zeros
            first += 1
        at, own = 3 * first * width + 3 * (low - first) + c, 3 * rows * (first - packed_from)
        for row in range(0, rows, _HIGH):
            _take_off_tile(factor, at, packed, own + row, before - first, panel, row * panel.shape[1] + c)


@njit(cache=True, fastmath=_FAST)
def _finish_node(panel: np.ndarray, own: int, columns: int) -> bool:
    """Three rows of the factor in a panel whose rows before `own` are done; whether their diagonal is positive."""
    d00, d01, d02 = panel[own, own], panel[own, own + 1], panel[own, own + 2]
    d11, d12, d22 = panel[own + 1, own + 1], panel[own + 1, own + 2], panel[own + 2, own + 2]
    for k in range(own):
        x, y, z = panel[k, own], panel[k, own + 1], panel[k, own + 2]
        d00 -= x * x
        d01 -= x * y
        d02 -= x * z
        d11 -= y * y
        d12 -= y * z
        d22 -= z * z
    if not d00 > 0.0:
        return False
    i0 = 1.0 / np.sqrt(d00)
    r01, r02 = d01 * i0, d02 * i0
    d11 -= r01 * r01
    if not d11 > 0.0:
        return False
    i1 = 1.0 / np.sqrt(d11)
    r12 = (d12 - r01 * r02) * i1
    d22 -= r02 * r02 + r12 * r12
    if not d22 > 0.0:
        return False
    i2 = 1.0 / np.sqrt(d22)
    step = panel.shape[1]
    for c in range(own, columns, LANES):
        to = own * step + c
        x0, x1, x2 = lanes_of(panel, to), lanes_of(panel, to + step), lanes_of(panel, to + 2 * step)
        for k in range(own):
            above, part = k * step + own, lanes_of(panel, k * step + c)
            x0 -= all_as(panel, above) * part
            x1 -= all_as(panel, above + 1) * part
            x2 -= all_as(panel, above + 2) * part
        x0 = i0 * x0
        x1 = i1 * (x1 - r01 * x0)
        x2 = i2 * (x2 - r02 * x0 - r12 * x1)
        put(x0, panel, to)
        put(x1, panel, to + step)
        put(x2, panel, to + 2 * step)
    panel[own, own], panel[own + 1, own + 1], panel[own + 2, own + 2] = i0, i1, i2
    return True


@njit(cache=True)
def _half(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    free: np.ndarray,
    half: BandOrder,
    rows: int,
    begin: int,
    out: np.ndarray,
) -> bool:
    """Rows of the factor of one half from `begin` up to the middle, and what they leave of that; or those of the
    middle, where `begin` is there; whether all are positive. rows: in which the matrix' own blocks are counted."""
    last, own, end = half.last, half.own[0], len(half.order)
    panel = np.zeros((3 * _NODES, out.shape[2] + _WIDE))
    packed = np.zeros((out.shape[2], 3, 3 * _NODES))
    first, low, whole = begin, begin, begin == own
    while low < end:
        middle = low >= own
        high = min(low + _NODES, end if middle else own)
        before = own if middle and not whole else low
        columns = 3 * (last[high - 1] - low + 1)
        _put_in(out, low, high, panel, whole)
        if not whole:
            _fill(row_start, column, blocks, free, half, low, min(high, rows), panel)
        while first < before and last[first] < low:
            first += 1
        _take_off_earlier(last, out, first, before, low, packed, panel, columns)
        if whole or not middle:
            for own_row in range(0, 3 * (high - low), 3):
                if not _finish_node(panel, own_row, columns):
                    return False
        _take_out(panel, low, high, out)
        low = high
    return True


@njit(cache=True)
def _put_in(out: np.ndarray, low: int, high: int, panel: np.ndarray, known: bool) -> None:
    """A panel of zeros, or of what is known of its rows."""
    for at in range(0, panel.size, LANES):
        put(nothing_of(panel), panel, at)
    if known:
        width, step = out.shape[2], panel.shape[1]
        for row in range(3 * (high - low)):
            at, to = (3 * low + row) * width, row * step + row - row % 3
            for j in range(0, width, LANES):
                put(lanes_of(out, at + j), panel, to + j)


@njit(cache=True)
def _take_out(panel: np.ndarray, low: int, high: int, out: np.ndarray) -> None:
    """A panel's rows where they belong, from their own nodes' columns on, with the zeros after them."""
    width, step = out.shape[2], panel.shape[1]
    for row in range(3 * (high - low)):
        at, to = row * step + row - row % 3, (3 * low + row) * width
        for j in range(0, width, LANES):
            put(lanes_of(panel, at + j), out, to + j)


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
            fine[part] = _half(row_start, column, blocks, free, one, len(one.order), 0, near)
        else:
            fine[part] = _half(row_start, column, blocks, free, other, other.own[0], 0, far)
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
    return _half(row_start, column, blocks, free, halves[0], 0, own, near)


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
