"""The matrix of the cells' stiffness, turned with them; see `elasticity` for the formula.

Each row of blocks is summed by its own node, from the cells around it in their order.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import CHUNK_OF_CELLS, njit, prange
from soft_estimator.backends.cpu.lanes import LANES, lanes_of, put
from soft_estimator.backends.cpu.stiffness import stiffness_of

_FAST = {"contract"}


@njit(cache=True, fastmath=_FAST)
def _turned_blocks(stiffness: np.ndarray, row: int, p: int, scale: float, r: np.ndarray, out: np.ndarray) -> None:
    """out (9, 8) = scale R K̂ Rᵀ between corner p of one cell, its rows, and all eight corners."""
    at = 9 * LANES * (8 * row + p)
    r0, r1, r2, r3, r4, r5, r6, r7, r8 = r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8]
    for b in range(3):
        k0, k1 = lanes_of(stiffness, at + b * LANES), lanes_of(stiffness, at + (3 + b) * LANES)
        k2 = lanes_of(stiffness, at + (6 + b) * LANES)
        put(scale * (r0 * k0 + r1 * k1 + r2 * k2), out, b * LANES)
        put(scale * (r3 * k0 + r4 * k1 + r5 * k2), out, (3 + b) * LANES)
        put(scale * (r6 * k0 + r7 * k1 + r8 * k2), out, (6 + b) * LANES)
    for a in range(3):
        to = 3 * a * LANES
        m0, m1, m2 = lanes_of(out, to), lanes_of(out, to + LANES), lanes_of(out, to + 2 * LANES)
        put(r0 * m0 + r1 * m1 + r2 * m2, out, to)
        put(r3 * m0 + r4 * m1 + r5 * m2, out, to + LANES)
        put(r6 * m0 + r7 * m1 + r8 * m2, out, to + 2 * LANES)


@njit(parallel=True, cache=True, fastmath=_FAST)
def _assemble(
    r: np.ndarray,
    node_cells: np.ndarray,
    gradient_index: np.ndarray,
    stiffness: np.ndarray,
    young: np.ndarray,
    scale: float,
    inertia: np.ndarray,
    row_start: np.ndarray,
    slot: np.ndarray,
    blocks: np.ndarray,
) -> None:
    nodes = node_cells.shape[0]
    for chunk in prange((nodes + CHUNK_OF_CELLS - 1) // CHUNK_OF_CELLS):
        turned, beside = np.empty((9, LANES)), np.empty((LANES, 9))
        for i in range(chunk * CHUNK_OF_CELLS, min(nodes, (chunk + 1) * CHUNK_OF_CELLS)):
            for k in range(row_start[i], row_start[i + 1]):
                for a in range(9):
                    blocks[k, a] = inertia[k] if a % 4 == 0 else 0
            for p in range(8):
                c = node_cells[i, p]
                if c < 0:
                    continue
                _turned_blocks(stiffness, gradient_index[c], p, scale * young[c], r[c], turned)
                for a in range(9):
                    for q in range(8):
                        beside[q, a] = turned[a, q]
                for q in range(8):
                    offset = 13 + 9 * ((q >> 2) - (p >> 2)) + 3 * ((q >> 1 & 1) - (p >> 1 & 1)) + (q & 1) - (p & 1)
                    to = slot[i, offset]
                    put(lanes_of(blocks, 9 * to) + lanes_of(beside, 9 * q), blocks, 9 * to)
                    blocks[to, 8] += beside[q, 8]


def assemble(
    r: np.ndarray,
    node_cells: np.ndarray,
    gradient_index: np.ndarray,
    table: np.ndarray,
    young: np.ndarray,
    lam: float,
    mu: float,
    scale: float,
    inertia: np.ndarray,
    row_start: np.ndarray,
    slot: np.ndarray,
    blocks: np.ndarray,
) -> None:
    """Block rows of scale · K + inertia ⊗ I, each row summed by its own node.

    Args:
        inertia: one number for each block, times the unit matrix [N/m or as scaled], (row_start[N],).
        row_start: (N+1,). slot: place of the 27 neighbours, (N, 27).
        blocks: out, 3x3 blocks row-major, (row_start[N], 9).
    """
    cells = (gradient_index, stiffness_of(table, lam, mu), young)
    _assemble(r, node_cells, *cells, scale, inertia, row_start, slot, blocks)
