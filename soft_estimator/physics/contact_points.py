"""Where the surface feels obstacles: the middles of its triangles, bound to the cells that carry them.

One point a triangle is enough for what is wider than a cell. A finger of 1 cm radius that presses on cells of 12 mm
meets two or three of them: its force was 10 % too small at a depth of 1 mm, 4 % too large at 6 mm. Triangles with edges
longer than such a radius are split into four, and their parts again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from soft_estimator.geometry.grid import CORNER_OFFSETS, SignedDistanceGrid
from soft_estimator.geometry.surface import face_crosses_m2

MOST_SPLITS = 2  # into 16: what is narrower than a quarter of a cell, no cell follows anyway


@dataclass(frozen=True)
class ContactPoints:
    """The middles of the surface triangles, each riding on the corners of one active cell: x = Σ_p weight_p x_p.

    The vertices would count the area on both sides of a sharp edge, and a block's walls would press on the plane it
    stands on as its bottom does. Bound to one cell, a point links only nodes that the matrix links anyway.

    Attributes:
        nodes: the cell's corners, (P, 8), int32. weight: trilinear, beyond 0-1 where the triangle lies in a sliver
            without stiffness and a neighbour carries it, (P, 8).
        area_m2: of the triangle at rest, (P,).
        point_start: the points of cell c are point_start[c] to point_start[c + 1], (C + 1,), int64.
        edge_m: longer edges of triangles were split.
    """

    nodes: np.ndarray
    weight: np.ndarray
    area_m2: np.ndarray
    point_start: np.ndarray
    edge_m: float = np.inf


def split(triangles_m: np.ndarray, edge_m: float) -> np.ndarray:
    """Triangles (F, 3, 3) [m] with those split into four, `MOST_SPLITS` times at most, that have an edge longer than
    edge_m [m]."""
    for _ in range(MOST_SPLITS):
        edges = np.roll(triangles_m, -1, axis=1) - triangles_m
        long = np.linalg.norm(edges, axis=2).max(axis=1) > edge_m
        if not long.any():
            break
        a, b, c = np.moveaxis(triangles_m[long], 1, 0)
        ab, bc, ca = 0.5 * (a + b), 0.5 * (b + c), 0.5 * (c + a)
        parts = [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
        triangles_m = np.concatenate([triangles_m[~long], *(np.stack(part, axis=1) for part in parts)])
    return triangles_m


def bind_contact_points(
    triangles_m: np.ndarray,
    grid: SignedDistanceGrid,
    corner_nodes: np.ndarray,
    cell_nodes: np.ndarray,
    edge_m: float = np.inf,
) -> ContactPoints:
    """Bind the surface triangles to the active cells they lie in.

    Args:
        triangles_m: corners of the triangles at rest [m], counter-clockwise seen from outside, (F, 3, 3).
        corner_nodes, cell_nodes: flat grid index and active number of the corners of the active cells, (C, 8).
        edge_m: triangles with longer edges are split.
    """
    triangles_m = split(triangles_m, edge_m)
    h, point = grid.spacing_m, triangles_m.mean(axis=1)
    cross = face_crosses_m2(triangles_m)
    length = np.linalg.norm(cross, axis=1)
    # A triangle in a face between two cells belongs to the one inside the body.
    inner = point - 1e-6 * h * cross / np.maximum(length, 1e-300)[:, None]
    strides = np.array([grid.shape[1] * grid.shape[2], grid.shape[2], 1])
    active = np.full(grid.phi_m.size, -1, dtype=np.int64)
    active[corner_nodes[:, 0]] = np.arange(len(corner_nodes))
    cell = active[np.floor((inner - grid.origin_m) / h).astype(np.int64) @ strides]
    lowest = grid.node_positions_m(corner_nodes[:, 0])
    lost = cell < 0
    if lost.any():  # in a sliver: the nearest cell that is left carries the triangle
        cell[lost] = cKDTree(lowest + 0.5 * h).query(point[lost])[1]
    order = np.argsort(cell, kind="stable")
    cell = cell[order]
    # A speck of slivers far from the rest is drawn near: extrapolating further would make large weights.
    local = np.clip((point[order] - lowest[cell]) / h, -1.0, 2.0)
    local = np.where(np.abs(local - np.round(local)) < 1e-9, np.round(local), local)
    return ContactPoints(
        nodes=cell_nodes[cell].astype(np.int32),
        weight=np.where(CORNER_OFFSETS == 1, local[:, None, :], 1.0 - local[:, None, :]).prod(axis=2),
        area_m2=0.5 * length[order],
        point_start=np.searchsorted(cell, np.arange(len(cell_nodes) + 1)).astype(np.int64),
        edge_m=edge_m,
    )
