"""The matrices of a multigrid preconditioner; see `physics.multigrid` for the formulas."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit, prange

_FAST = {"contract"}
_NOTHING = 1e-10  # part of a diagonal number that is left of it where nothing resists a direction


@njit(cache=True)
def _places(e: int) -> tuple[int, int, float]:
    """First and last coarse place that a fine place takes part in, and its share in each."""
    return e // 2, (e + 1) // 2, 1.0 if e % 2 == 0 else 0.5


@njit(parallel=True, cache=True, fastmath=_FAST)
def _times_prolongation(
    blocks: np.ndarray,
    slot: np.ndarray,
    neighbour: np.ndarray,
    place: np.ndarray,
    free: np.ndarray,
    out: np.ndarray,
) -> None:
    """out (n, 27, 9): blocks of A P, by offset from the coarse place below each fine node."""
    for i in prange(slot.shape[0]):
        out[i] = 0.0
        if free[i] == 0:
            continue
        x, y, z = place[i, 0] % 2, place[i, 1] % 2, place[i, 2] % 2
        for k in range(27):
            if slot[i, k] < 0 or free[neighbour[i, k]] == 0:
                continue
            block = blocks[slot[i, k]]
            x0, x1, sx = _places(x + k // 9 - 1)
            y0, y1, sy = _places(y + k // 3 % 3 - 1)
            z0, z1, sz = _places(z + k % 3 - 1)
            share = sx * sy * sz
            for a in range(x0, x1 + 1):
                for b in range(y0, y1 + 1):
                    for c in range(z0, z1 + 1):
                        at = out[i, 9 * a + 3 * b + c + 13]
                        for e in range(9):
                            at[e] += share * block[e]


@njit(parallel=True, cache=True, fastmath=_FAST)
def _times_restriction(half: np.ndarray, child: np.ndarray, coarse_free: np.ndarray, out: np.ndarray) -> None:
    """out (27 m, 9): blocks of Pᵀ (A P), half (n, 27, 9)."""
    for c in prange(child.shape[0]):
        rows = out[27 * c : 27 * c + 27]
        rows[:] = 0.0
        if coarse_free[c] == 0:
            rows[13, 0] = rows[13, 4] = rows[13, 8] = 1.0
            continue
        for d in range(27):
            i = child[c, d]
            if i < 0:
                continue
            dx, dy, dz = d // 9 - 1, d // 3 % 3 - 1, d % 3 - 1
            share = 0.5 ** (abs(dx) + abs(dy) + abs(dz))
            # A fine node at an odd place lies half-way to the next coarse one, and has no blocks beyond its two.
            for a in range(-1 if dx == 0 else 0, 2):
                for b in range(-1 if dy == 0 else 0, 2):
                    for e in range(-1 if dz == 0 else 0, 2):
                        block = half[i, 9 * a + 3 * b + e + 13]
                        at = rows[9 * (a - (dx < 0)) + 3 * (b - (dy < 0)) + e - (dz < 0) + 13]
                        for f in range(9):
                            at[f] += share * block[f]


def coarse_blocks(
    blocks: np.ndarray,
    slot: np.ndarray,
    neighbour: np.ndarray,
    place: np.ndarray,
    free: np.ndarray,
    child: np.ndarray,
    coarse_free: np.ndarray,
    out: np.ndarray,
) -> None:
    half = np.empty((len(slot), 27, 9))
    _times_prolongation(blocks, slot, neighbour, place, free, half)
    _times_restriction(half, child, coarse_free, out)


@njit(parallel=True, cache=True)
def pack_blocks(blocks: np.ndarray, pick: np.ndarray, out: np.ndarray) -> None:
    """out (s, 9) = blocks[pick]."""
    for k in prange(pick.shape[0]):
        for a in range(9):
            out[k, a] = blocks[pick[k], a]


@njit(cache=True)
def invert_blocks(blocks: np.ndarray, slot: np.ndarray, free: np.ndarray, out: np.ndarray) -> None:
    """out (n, 9): inverse diagonal blocks, zero where a node is not free."""
    for i in range(out.shape[0]):
        m = blocks[slot[i, 13]]
        c0, c1, c2 = m[4] * m[8] - m[5] * m[7], m[5] * m[6] - m[3] * m[8], m[3] * m[7] - m[4] * m[6]
        one = free[i] / (m[0] * c0 + m[1] * c1 + m[2] * c2)
        out[i, 0], out[i, 3], out[i, 6] = c0 * one, c1 * one, c2 * one
        out[i, 1], out[i, 4], out[i, 7] = (
            (m[2] * m[7] - m[1] * m[8]) * one,
            (m[0] * m[8] - m[2] * m[6]) * one,
            (m[1] * m[6] - m[0] * m[7]) * one,
        )
        out[i, 2], out[i, 5], out[i, 8] = (
            (m[1] * m[5] - m[2] * m[4]) * one,
            (m[2] * m[3] - m[0] * m[5]) * one,
            (m[0] * m[4] - m[1] * m[3]) * one,
        )


@njit(cache=True, fastmath=_FAST)
def factorise(blocks: np.ndarray, slot: np.ndarray, neighbour: np.ndarray, free: np.ndarray, out: np.ndarray) -> None:
    """out (3 n, 3 n), zeros before: the lower Cholesky factor of a grid's matrix, its diagonal inverted."""
    for i in range(slot.shape[0]):
        for k in range(27):
            j = neighbour[i, k]
            # What is not free has a unit block of its own, and no part in the others.
            if slot[i, k] < 0 or (i != j and free[i] * free[j] == 0):
                continue
            for a in range(3):
                for b in range(3):
                    out[3 * i + a, 3 * j + b] = blocks[slot[i, k], 3 * a + b]
    size = out.shape[0]
    for j in range(size):
        # The rows below a row's diagonal number are still those of the matrix: the factor is made row by row.
        whole = out[j, j]
        for k in range(j):
            total = out[j, k]
            for e in range(k):
                total -= out[j, e] * out[k, e]
            out[j, k] = total * out[k, k]
        left = whole
        for e in range(j):
            left -= out[j, e] * out[j, e]
        out[j, j] = 1.0 / np.sqrt(left) if left > _NOTHING * whole else 0.0
