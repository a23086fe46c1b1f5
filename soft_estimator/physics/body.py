"""The body at rest: everything about it that never changes during a simulation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import csr_matrix
from scipy.spatial import cKDTree

from soft_estimator.geometry.cell_slopes import CellSlopes, cell_slopes
from soft_estimator.geometry.cut_cells import PAIRS, CutCells, cut, snap
from soft_estimator.geometry.grid import CORNER_OFFSETS, SignedDistanceGrid, correct_curvature
from soft_estimator.geometry.surface import EmbeddedSurface, extract_surface, vertex_areas_m2
from soft_estimator.physics.contact_points import ContactPoints, bind_contact_points

# The 27 neighbours of a node, itself at place 13.
NEIGHBOUR_OFFSETS = np.array([(i, j, k) for i in (-1, 0, 1) for j in (-1, 0, 1) for k in (-1, 0, 1)], dtype=np.int64)


@dataclass(frozen=True)
class SurfacePoints:
    """The embedded surface bound to active nodes: vertex = (1 - weight_b) x_a + weight_b x_b.

    Attributes:
        node_a, node_b: active nodes, shape (V,), int32. weight_b: (V,), outside 0-1 where a vertex is extrapolated.
        area_m2: area each vertex stands for at rest, (V,). faces: (F, 3), counter-clockwise seen from outside.
    """

    node_a: np.ndarray
    node_b: np.ndarray
    weight_b: np.ndarray
    area_m2: np.ndarray
    faces: np.ndarray

    def interpolate(self, nodal: np.ndarray) -> np.ndarray:
        """Nodal values (N, ...) carried to the vertices, (V, ...)."""
        w = self.weight_b.reshape(-1, *[1] * (nodal.ndim - 1))
        return (1.0 - w) * nodal[self.node_a] + w * nodal[self.node_b]


@dataclass(frozen=True)
class Body:
    """Active cells and nodes of a signed distance grid, and the sparsity of their matrices.

    Attributes:
        grid: the field after curvature correction and snapping. cells: integrals of the active cells.
        node_index: flat grid index of each active node, (N,). node_position_m: rest positions, (N, 3).
        node_volume_m3: Σ w_v, so that density times this is the mass that gravity pulls at a node, (N,).
        mass_m3: mass matrix over the density, (B,): one number for each block of the pattern, the same along x, y and
            z. Its rows sum to node_volume_m3.
        cell_nodes: active nodes of each cell, (C, 8), int32. cell_region: material region of each cell, (C,), int32.
        node_cells: cell in which a node is corner p, -1 for none, (N, 8), int32.
        row_start, column, slot: block-sparse pattern: row i holds column[row_start[i]:row_start[i+1]]; slot (N, 27)
        is the
            place of each neighbour, -1 for none.
        surface: the embedded surface. contact_points: where the surface feels the contact plane.
        skin: φ on the grid refined by a whole number, where it is the surface that touches and is seen; the grid's own
            bevels edges by a part of a cell.
    """

    grid: SignedDistanceGrid
    cells: CutCells
    node_index: np.ndarray
    node_position_m: np.ndarray
    node_volume_m3: np.ndarray
    mass_m3: np.ndarray
    cell_nodes: np.ndarray
    cell_region: np.ndarray
    node_cells: np.ndarray
    row_start: np.ndarray
    column: np.ndarray
    slot: np.ndarray
    surface: SurfacePoints
    contact_points: ContactPoints
    skin: SignedDistanceGrid | None = None

    @property
    def node_count(self) -> int:
        return len(self.node_index)

    @property
    def cell_count(self) -> int:
        return len(self.cell_nodes)

    @property
    def volume_m3(self) -> float:
        return float(self.node_volume_m3.sum())

    @property
    def centroid_m(self) -> np.ndarray:
        return self.node_volume_m3 @ self.node_position_m / self.volume_m3

    @cached_property
    def slopes(self) -> CellSlopes:
        """Slopes of the shape functions at the cells' quadrature points; worked out when first asked for."""
        return cell_slopes(self.cells, self.grid.spacing_m)

    @cached_property
    def mass_matrix_m3(self) -> csr_matrix:
        """`mass_m3` as a matrix (N, N)."""
        return csr_matrix((self.mass_m3, self.column, self.row_start), shape=(self.node_count, self.node_count))

    @cached_property
    def thickness_m(self) -> float:
        """6 V/A: the diameter of a ball, three times the thickness of a plate."""
        return 6.0 * self.volume_m3 / float(self.surface.area_m2.sum())

    def surface_positions_m(self, u: np.ndarray | None = None) -> np.ndarray:
        """Vertices of the surface [m] for nodal displacements u (N, 3) [m], at rest by default."""
        return self.surface.interpolate(self.node_position_m if u is None else self.node_position_m + u)


def build_body(
    grid: SignedDistanceGrid,
    *,
    min_fill: float = 0.02,
    snap_fraction: float = 0.02,
    subdivision: int = 2,
    stabilisation: float = 0.1,
    correct: bool = True,
    region_of: object | None = None,
    detail: SignedDistanceGrid | None = None,
    sharp: bool = False,
) -> Body:
    """Turn a signed distance grid into a body.

    Args:
        grid: φ, negative inside.
        min_fill: cells filled less than this get no stiffness (their mass goes to the nodes that remain).
        snap_fraction: |φ| below this part of h is set to zero.
        subdivision: sub-cells along an edge for the cut-cell integrals.
        stabilisation: stiffness of the empty part of cut cells against twisting, as a part of a full cell's.
        correct: centre the trilinear surface on the true one (`correct_curvature`).
        detail: φ on the grid refined by a whole number (`refine`), to integrate over where the shape is known better.
        sharp: whether the detail's surface is what touches and is seen, too, instead of the grid's.
        region_of: function of cell centres (C, 3) [m] → region numbers (C,) from 0; one region by default.
    """
    grid = snap(correct_curvature(grid) if correct else grid, snap_fraction)
    if detail is not None:
        detail = snap(correct_curvature(detail) if correct else detail, snap_fraction)
    cells = cut(grid, min_fill, subdivision, stabilisation, detail)
    node_index, inverse = np.unique(cells.corner_nodes, return_inverse=True)
    cell_nodes = inverse.reshape(-1, 8).astype(np.int32)
    count = len(node_index)
    node_cells = np.full((count, 8), -1, dtype=np.int32)
    for p in range(8):
        node_cells[cell_nodes[:, p], p] = np.arange(len(cell_nodes))
    row_start, column, slot = _pattern(node_index, node_cells, grid.shape)
    active = np.full(grid.phi_m.size, -1, dtype=np.int64)
    active[node_index] = np.arange(count)
    volume = _node_volumes(cells, cell_nodes, active, count)
    position = grid.node_positions_m(node_index)
    centres = position[cell_nodes].mean(axis=1)
    region = np.zeros(len(cell_nodes)) if region_of is None else region_of(centres)  # type: ignore[operator]
    surface = extract_surface(grid)
    rest = surface.positions_m(grid.node_positions_m())
    skin = detail if sharp else None
    return Body(
        grid=grid,
        cells=cells,
        node_index=node_index,
        node_position_m=position,
        node_volume_m3=volume,
        mass_m3=_mass(cells, cell_nodes, slot, volume),
        cell_nodes=cell_nodes,
        cell_region=np.asarray(region, dtype=np.int32),
        node_cells=node_cells,
        row_start=row_start,
        column=column,
        slot=slot,
        surface=_bind_surface(surface, rest, active, position),
        contact_points=bind_contact_points(
            rest[surface.faces] if skin is None else _triangles_m(skin), grid, cells.corner_nodes, cell_nodes
        ),
        skin=skin,
    )


def felt_by(body: Body, edge_m: float) -> Body:
    """A body whose contact points stand for triangles with no edge longer than edge_m [m], as far as they are split."""
    if body.contact_points.edge_m <= edge_m:
        return body
    triangles = _triangles_m(body.grid if body.skin is None else body.skin)
    points = bind_contact_points(triangles, body.grid, body.cells.corner_nodes, body.cell_nodes, edge_m)
    return replace(body, contact_points=points)


def _triangles_m(field: SignedDistanceGrid) -> np.ndarray:
    """Triangles of a field's surface, (F, 3, 3) [m]."""
    surface = extract_surface(field)
    return surface.positions_m(field.node_positions_m())[surface.faces]


def _pattern(node_index: np.ndarray, node_cells: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Rows of the block-sparse matrix: two nodes are linked where they share an active cell."""
    count = len(node_index)
    linked = np.zeros((count, 27), dtype=bool)
    for p in range(8):
        here = node_cells[:, p] >= 0
        for q in range(8):
            step = CORNER_OFFSETS[q] - CORNER_OFFSETS[p] + 1
            linked[here, step @ np.array([9, 3, 1])] = True
    stride = np.array([shape[1] * shape[2], shape[2], 1])
    place = np.searchsorted(node_index, node_index[:, None] + NEIGHBOUR_OFFSETS @ stride)
    row_start = np.concatenate([[0], np.cumsum(linked.sum(axis=1))])
    slot = np.where(linked, np.cumsum(linked.ravel()).reshape(count, 27) - 1, -1)
    return row_start.astype(np.int64), place[linked].astype(np.int32), slot.astype(np.int64)


def _node_volumes(cells: CutCells, cell_nodes: np.ndarray, active: np.ndarray, count: int) -> np.ndarray:
    volume = np.bincount(cell_nodes.ravel(), cells.volume_weights_m3.ravel(), count)
    # A sliver without stiffness hands its mass to those of its corners that other cells hold.
    nodes = active[cells.sliver_nodes]
    held = nodes >= 0
    share = cells.sliver_volume_weights_m3.sum(axis=1, keepdims=True) / np.maximum(held.sum(axis=1, keepdims=True), 1)
    return volume + np.bincount(nodes[held], np.broadcast_to(share, nodes.shape)[held], count)


def _mass(cells: CutCells, cell_nodes: np.ndarray, slot: np.ndarray, volume: np.ndarray) -> np.ndarray:
    """The lumped volumes, of which each cell spreads the consistent part from its corners to their neighbours."""
    out = np.zeros(int(slot.max()) + 1)
    out[slot[:, 13]] = volume
    table = cells.consistent_mass_table_m3[cells.gradient_index]
    for k, (p, q) in enumerate(PAIRS):
        if p == q:
            continue
        for one, other in ((p, q), (q, p)):
            place = slot[cell_nodes[:, one], (CORNER_OFFSETS[other] - CORNER_OFFSETS[one] + 1) @ np.array([9, 3, 1])]
            # Each place occurs once: a node is the same corner of one cell at most.
            out[place] += table[:, k]
            out[slot[cell_nodes[:, one], 13]] -= table[:, k]
    return out


def _bind_surface(
    surface: EmbeddedSurface, rest: np.ndarray, active: np.ndarray, position: np.ndarray
) -> SurfacePoints:
    """Bind the vertices to active nodes; where the outer node went with a sliver, extrapolate from the inner side."""
    a, b, weight = active[surface.node_a], active[surface.node_b], surface.weight_b.copy()
    mirrored = 2 * surface.node_a - surface.node_b
    mirror = np.where((mirrored >= 0) & (mirrored < active.size), active[np.clip(mirrored, 0, active.size - 1)], -1)
    lost = (a >= 0) & (b < 0)
    extrapolate = lost & (mirror >= 0)
    b, weight = np.where(extrapolate, mirror, b), np.where(extrapolate, -weight, weight)
    orphan = (a < 0) & (b < 0)
    if orphan.any():  # a speck of slivers: ride on the nearest node that is left
        a = a.copy()
        a[orphan] = cKDTree(position).query(rest[orphan])[1]
    a, b = np.where(a < 0, b, a), np.where(b < 0, a, b)
    return SurfacePoints(
        node_a=a.astype(np.int32),
        node_b=b.astype(np.int32),
        weight_b=np.where(a == b, 0.0, weight),
        area_m2=vertex_areas_m2(rest, surface.faces),
        faces=surface.faces,
    )
