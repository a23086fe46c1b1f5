"""Soft penalty contact of surface points with a plane n·x + d = 0 (METHOD §4).

Every point rides on the eight corners of one cell, x = Σ_p weight_p x_p, and the points are in the order of their
cells: those of cell c are point_start[c] to point_start[c + 1]. A node finds its points through the cells around it, in
a fixed order, so results do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import CHUNK_OF_CELLS, by_size, njit, prange
from soft_estimator.backends.cpu.lanes import LANES, lanes_of, nothing_of, put

_FAR = 1e-25  # part of the stiffest point's; blocks hold sixteen digits


@njit(cache=True)
def softplus_and_slope(a: float, x: float) -> tuple[float, float]:
    """-softmin_a(x, 0) = log(1 + exp(-a x))/a and σ = 1/(1 + exp(a x)), both safe for any a x."""
    t = a * x
    e = np.exp(-abs(t))
    if t >= 0.0:
        return np.log1p(e) / a, e / (1.0 + e)
    return (np.log1p(e) - t) / a, 1.0 / (1.0 + e)


@by_size(rows=1)
def at_points(nodal: np.ndarray, nodes: np.ndarray, weight: np.ndarray, out: np.ndarray) -> None:
    """Nodal values (N, 3) at the contact points, out (P, 3)."""
    for t in prange(nodes.shape[0]):
        for k in range(3):
            total = 0.0
            for p in range(8):
                total += weight[t, p] * nodal[nodes[t, p], k]
            out[t, k] = total


@by_size(rows=1)
def columns_at_points(nodal: np.ndarray, nodes: np.ndarray, weight: np.ndarray, out: np.ndarray) -> None:
    """Several nodal numbers (N, B) at the contact points, out (P, B)."""
    for t in prange(nodes.shape[0]):
        for j in range(out.shape[1]):
            out[t, j] = weight[t, 0] * nodal[nodes[t, 0], j]
        for p in range(1, 8):
            i, share = nodes[t, p], weight[t, p]
            for j in range(out.shape[1]):
                out[t, j] += share * nodal[i, j]


@by_size(rows=4)
def spread_columns(
    value: np.ndarray, node_cells: np.ndarray, point_start: np.ndarray, weight: np.ndarray, out: np.ndarray
) -> None:
    """out (N, B) += the points' values (P, B), shared between the nodes of each point's cell."""
    for i in prange(out.shape[0]):
        for p in range(8):
            c = node_cells[i, p]
            if c >= 0:
                for t in range(point_start[c], point_start[c + 1]):
                    share = weight[t, p]
                    for j in range(out.shape[1]):
                        out[i, j] += share * value[t, j]


@by_size(rows=5)
def add_contact_blocks(
    normal: np.ndarray,
    value: np.ndarray,
    node_cells: np.ndarray,
    point_start: np.ndarray,
    weight: np.ndarray,
    slot: np.ndarray,
    blocks: np.ndarray,
) -> None:
    """Add value · weight_p weight_q n nᵀ to the blocks of every two corners p, q of each point's cell; value (P,).

    Cells whose points are all so far away that nothing of them shows beside the nearest are passed over.
    """
    least = 0.0
    for t in range(value.shape[0]):
        least = max(least, _FAR * abs(value[t]))
    nodes, near = slot.shape[0], np.zeros(point_start.shape[0] - 1, np.bool_)
    for c in range(near.shape[0]):
        for t in range(point_start[c], point_start[c + 1]):
            near[c] = near[c] or abs(value[t]) > least
    crossed = np.empty(9, blocks.dtype)
    for k in range(9):
        crossed[k] = normal[k // 3] * normal[k % 3]
    for chunk in prange((nodes + CHUNK_OF_CELLS - 1) // CHUNK_OF_CELLS):
        shares = np.empty(LANES)
        for i in range(chunk * CHUNK_OF_CELLS, min(nodes, (chunk + 1) * CHUNK_OF_CELLS)):
            for p in range(8):
                c = node_cells[i, p]
                if c < 0 or not near[c]:
                    continue
                total = nothing_of(weight)
                for t in range(point_start[c], point_start[c + 1]):
                    total += (value[t] * weight[t, p]) * lanes_of(weight, LANES * t)
                put(total, shares, 0)
                for q in range(8):
                    if shares[q] == 0.0:
                        continue
                    offset = 13 + 9 * ((q >> 2) - (p >> 2)) + 3 * ((q >> 1 & 1) - (p >> 1 & 1)) + (q & 1) - (p & 1)
                    place, share = slot[i, offset], blocks.dtype.type(shares[q])
                    put(lanes_of(blocks, 9 * place) + share * lanes_of(crossed, 0), blocks, 9 * place)
                    blocks[place, 8] += share * crossed[8]
