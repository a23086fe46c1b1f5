"""A body's arrays where the backend computes, uploaded once and shared by every simulation of a model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.physics.band import Band
from soft_estimator.physics.body import Body
from soft_estimator.physics.multigrid import Hierarchy
from soft_estimator.physics.pressure import Lattice


@dataclass(frozen=True, eq=False)
class Slopes:
    """`CellSlopes` of a body where the backend computes."""

    slopes: Array
    crossed: Array
    laplacian: Array
    volume: Array


class DeviceBody:
    """The arrays of a body that loops read, with the loops over nodes, cells and surface points that terms share.

    Attributes:
        backend, xp, dtype: where and in which precision it computes. spacing_m: edge of a cell.
        position: of the nodes at rest [m], (N, 3). volume: of the nodes [m³], (N,), in double precision.
        mass: mass matrix over the density [m³], (B,), see `Body.mass_m3`.
        cell_nodes, node_cells, gradient_index, cell_region, fill: see `Body` and `CutCells`. table: `element_table`.
        row_start, column, slot: pattern of the block matrix. free: 1 for free nodes, 0 for held ones, (N,).
        point_nodes, point_weight, point_start, point_area: surface points, see `ContactPoints`.
        zero: nodal vector of zeros, (N, 3).
    """

    def __init__(self, body: Body, free: np.ndarray, backend: Backend, dtype: type) -> None:
        self.body, self.backend, self.dtype, self.xp = body, backend, dtype, backend.xp
        self.spacing_m = body.grid.spacing_m
        self.nodes, self.cells = body.node_count, body.cell_count
        up = backend.to_device
        self.position = up(body.node_position_m, dtype)
        self.volume, self.mass = up(body.node_volume_m3), up(body.mass_m3, dtype)
        self.cell_nodes, self.node_cells = up(body.cell_nodes), up(body.node_cells)
        self.cell_region, self.fill = up(body.cell_region), up(body.cells.fill)
        self.gradient_index = up(body.cells.gradient_index)
        self.table = up(body.cells.element_table, dtype)
        self.row_start, self.column, self.slot = up(body.row_start), up(body.column), up(body.slot)
        self.free = up(free, dtype)
        points = body.contact_points
        self.point_nodes, self.point_weight = up(points.nodes), up(points.weight)
        self.point_start, self.point_area = up(points.point_start), up(points.area_m2)
        self.zero = self.xp.zeros((body.node_count, 3), dtype)
        self._places: tuple[tuple[Array, Array], ...] = ()  # displacements and their surface points, the last two

    @cached_property
    def lattice(self) -> Lattice:
        """Where the cells' pressures lie in the preconditioner for nearly incompressible bodies."""
        return Lattice.of(self)

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """Coarser grids over the nodes, for the multigrid preconditioner."""
        return Hierarchy.of(self)

    @cached_property
    def band(self) -> Band:
        """The nodes along the body's long way, for direct solves."""
        return Band.of(self)

    @cached_property
    def rest_points(self) -> Array:
        """Surface points at rest [m], (P, 3)."""
        return self.at_points(self.position)

    def surface_points(self, u: Array) -> Array:
        """Surface points at displacement u [m], (P, 3); kept, since all obstacles ask for the same."""
        for known, x in self._places:
            if known is u:
                return x
        x = self.rest_points + self.at_points(u)
        self._places = ((u, x), *self._places[:1])
        return x

    @cached_property
    def slopes(self) -> Slopes:
        """Slopes of the shape functions at the cells' quadrature points; uploaded when first asked for."""
        s = self.body.slopes
        return Slopes(self.up(s.slopes_per_m), self.up(s.crossed_per_m2), self.up(s.laplacian_m), self.up(s.volume_m3))

    def up(self, array: np.ndarray, dtype: type | None = None) -> Array:
        """An array of the host, here; in the body's precision unless told otherwise."""
        return self.backend.to_device(array, self.dtype if dtype is None else dtype)

    def rotations(self, u: Array) -> Array:
        """Rotation of every cell at displacement u, (C, 9)."""
        out = self.xp.empty((self.cells, 9), self.dtype)
        self.backend.rotations(u, self.cell_nodes, self.spacing_m, out)
        return out

    def rotations_adjoint(self, u: Array, rotations: Array, r_bar: Array) -> Array:
        """Derivative (N, 3) by u, given that by the cells' rotations at u, (C, 9)."""
        corner = self.xp.empty((self.cells, 24))
        self.backend.rotations_adjoint(u, rotations, r_bar, self.cell_nodes, self.spacing_m, corner)
        return self.gathered(corner)

    def gathered(self, corner: Array, scale: float = 1.0) -> Array:
        """Corner values (C, 24) summed at the nodes, times scale, (N, 3)."""
        out = self.xp.zeros_like(self.zero)
        self.backend.gather(corner, self.node_cells, scale, out)
        return out

    def weighed(self, nodal: Array) -> Array:
        """Mass matrix over the density times nodal vectors, (N, 3) or (N, 3, K)."""
        flat = self.xp.ascontiguousarray(nodal).reshape(self.nodes, -1)
        out = self.xp.empty_like(flat)
        self.backend.multiply_scalars(self.row_start, self.column, self.mass, flat, out)
        return out.reshape(nodal.shape)

    def scattered(self, nodes: np.ndarray, values: np.ndarray) -> Array:
        """Host values (S, 8, …) of a few cells summed at their nodes, (N, …), in order."""
        total = np.zeros((self.nodes, *values.shape[2:]))
        np.add.at(total, nodes, values)
        return self.up(total)

    def at_points(self, nodal: Array) -> Array:
        """Nodal values (N, 3) at the surface points, (P, 3)."""
        out = self.xp.empty((len(self.point_area), 3))
        self.backend.at_points(nodal, self.point_nodes, self.point_weight, out)
        return out

    def columns_at_points(self, nodal: Array) -> Array:
        """Several nodal numbers (N, B) at the surface points, (P, B)."""
        out = self.xp.empty((len(self.point_area), nodal.shape[1]))
        self.backend.columns_at_points(nodal, self.point_nodes, self.point_weight, out)
        return out

    def spread(self, values: Array) -> Array:
        """Values (P, B) of the surface points shared between the nodes of their cells, (N, B)."""
        out = self.xp.zeros((self.nodes, values.shape[1]))
        self.backend.spread_columns(values, self.node_cells, self.point_start, self.point_weight, out)
        return out

    def host(self, array: Array) -> np.ndarray:
        """An array of the device in double precision on the host."""
        return self.backend.to_host(array).astype(np.float64)
