"""From one grid of a body to another."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from soft_estimator.physics.body import Body


def prolongation(fine: Body, coarse: Body) -> sp.csr_matrix:
    """Values at the nodes of a grid from those at the nodes of a coarser one, (N, n): linear within cells, and beyond
    those that were left out."""
    spacing = coarse.grid.spacing_m
    low = np.rint((coarse.node_position_m[coarse.cell_nodes[:, 0]] - coarse.grid.origin_m) / spacing).astype(np.int64)
    number = np.full(np.array(coarse.grid.shape) + 2, -1)
    number[tuple(low.T + 1)] = np.arange(len(low))
    at = (fine.node_position_m - coarse.grid.origin_m) / spacing
    cell: np.ndarray = np.full(len(at), -1)
    for back in np.ndindex(2, 2, 2):  # a node between two cells may lie in either
        base = np.floor(at + 1e-6).astype(np.int64) - back
        inside = ((at - base >= -1e-6) & (at - base <= 1 + 1e-6)).all(axis=1)
        base = np.clip(base, -1, np.array(coarse.grid.shape))
        cell = np.where((cell < 0) & inside, number[tuple(base.T + 1)], cell)
    alone = cell < 0  # in a cell with so little of the body in it that it was left out
    if alone.any():
        cell[alone] = cKDTree(low + 0.5).query(at[alone])[1]
    local = at - low[cell]
    corner = np.array([(p >> 2 & 1, p >> 1 & 1, p & 1) for p in range(8)])
    weight = np.where(corner == 1, local[:, None], 1 - local[:, None]).prod(axis=2)
    rows = np.repeat(np.arange(len(at)), 8)
    out = sp.csr_matrix((weight.ravel(), (rows, coarse.cell_nodes[cell].ravel())), (len(at), coarse.node_count))
    out.eliminate_zeros()
    return out
