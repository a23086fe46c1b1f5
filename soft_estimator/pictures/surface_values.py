"""Numbers on the body's surface for pictures and meshes: how much it is strained, and what points near it say."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from soft_estimator.geometry.grid import CORNER_OFFSETS
from soft_estimator.physics.body import Body

_SIGNS = 2.0 * CORNER_OFFSETS - 1.0


def cell_gradients(body: Body, u: np.ndarray) -> np.ndarray:
    """Deformation gradient F = I + 1/(4h) Σ u_i s_iᵀ at the middle of each cell, (C, 3, 3), for u (N, 3) [m]."""
    return np.eye(3) + np.einsum("cia,ib->cab", u[body.cell_nodes], _SIGNS) / (4 * body.grid.spacing_m)


def equivalent_strain(body: Body, u: np.ndarray) -> np.ndarray:
    """Von Mises equivalent √(2/3 ε':ε') of the Biot strain ε = √(FᵀF) - I at the nodes, (N,), for u (N, 3) [m].

    It counts changes of shape only, no rotation and no change of volume; a rod stretched by 10 % without change of
    volume has 0.10. A node takes the mean of its cells, weighted by how full they are.
    """
    f = cell_gradients(body, u)
    stretch = np.sqrt(np.maximum(np.linalg.eigvalsh(np.einsum("cia,cib->cab", f, f)), 0.0))
    deviation = stretch - stretch.mean(axis=1, keepdims=True)
    in_cells = np.sqrt(2.0 / 3.0 * (deviation**2).sum(axis=1))
    nodes = body.cell_nodes.ravel()
    weight = np.repeat(body.cells.fill, 8)
    total = np.bincount(nodes, weight * np.repeat(in_cells, 8), body.node_count)
    return total / np.bincount(nodes, weight, body.node_count)


def mean_near(vertices_m: np.ndarray, points_m: np.ndarray, values: np.ndarray, reach_m: float) -> np.ndarray:
    """Mean of the values (n,) of the points within reach_m of each vertex, (V,); NaN where there is none."""
    near = cKDTree(vertices_m).sparse_distance_matrix(cKDTree(points_m), reach_m, output_type="coo_matrix")
    count = np.bincount(near.row, minlength=len(vertices_m))
    total = np.bincount(near.row, values[near.col], len(vertices_m))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
