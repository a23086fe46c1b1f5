"""The cells' pressures in a preconditioner, from their formulas (`physics.pressure`)."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.backends.reference.cells import neighbour


def pressure_matrix(
    inverse: Array, rows: Array, cell_nodes: Array, node_cells: Array, place: Array, out: Array
) -> None:
    """S_cc' = δ_cc' + Σ over the nodes n that two cells share of b_cnᵀ D_n⁻¹ b_c'n, by the place of c' beside c."""
    b, d = rows.reshape(-1, 8, 3), inverse.reshape(-1, 3, 3)
    total = np.zeros((27, len(rows)))
    total[13] = 1
    for p in range(8):
        nodes = cell_nodes[:, p]
        turned = (d[nodes] * b[:, p, None, :]).sum(axis=2)
        for q in range(8):
            other = node_cells[nodes, q]
            product = (turned * b[np.maximum(other, 0), q]).sum(axis=1)
            total[neighbour(q, p)] += np.where(other >= 0, product, 0)
    out[...] = 0
    out[:, place] = total


def precondition_pressure(
    r: Array,
    inverse: Array,
    rows: Array,
    cell_nodes: Array,
    node_cells: Array,
    place: Array,
    strides: Array,
    runs: Array,
    matrix: Array,
    steps: Array,
    out: Array,
) -> None:
    """D⁻¹ (r - Bᵀ y), y = T q + T (q - S T q), q = B D⁻¹ r, T Chebyshev's steps for S."""
    b, d = rows.reshape(-1, 8, 3), inverse.reshape(-1, 3, 3)
    own, near = matrix[:, place], place + strides[:, None]
    scale = 1 / own[13]

    def solved(x: Array) -> Array:
        return (d * x[:, None, :]).sum(axis=2)

    def times(x: Array) -> Array:
        lattice = np.zeros(matrix.shape[1], x.dtype)
        lattice[place] = x
        return (own * lattice[near]).sum(axis=0)

    def chebyshev(right: Array) -> Array:
        p = steps[0][1] * scale * right
        x, left = p, right
        for keep, take in steps[1:]:
            left = left - times(p)
            p = keep * p + take * scale * left
            x = x + p
        return x

    q = (b * solved(r)[cell_nodes]).sum(axis=(1, 2))
    y = chebyshev(q)
    y = y + chebyshev(q - times(y))
    corner = np.concatenate([b * y[:, None, None], np.zeros((1, 8, 3), b.dtype)])
    pulled = corner[node_cells, np.arange(8)].sum(axis=1)  # place -1: the row of zeros
    out[...] = solved(r - pulled)
