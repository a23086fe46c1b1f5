"""Cells of the grid that hold a part of the body, and the integrals over that part (METHOD §1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from soft_estimator.backends.cpu.cut_cells import (
    integrate_boundary_products,
    integrate_cut_cells,
    subdivide,
    surface_triangles,
)
from soft_estimator.geometry.grid import CORNER_OFFSETS, SignedDistanceGrid

# Pairs (p, q) with p <= q of cell corners: the independent blocks of a symmetric element matrix.
PAIRS = np.array([(p, q) for p in range(8) for q in range(p, 8)], dtype=np.int64)
# Part of a cell's mass that is consistent, ∫N_p N_q; the rest is lumped. Consistent mass makes waves too fast, lumped
# mass too slow; docs/elements.md says what speaks for this share.
CONSISTENT_SHARE = 0.6


def _polynomials() -> tuple[np.ndarray, np.ndarray]:
    """Coefficients over xᵃ yᵇ zᶜ (exponents 0-2) of N_i, shape (8, 27), and of ∂N_i/∂x_d, shape (8, 3, 27)."""
    value, slope = {0: (1.0, -1.0, 0.0), 1: (0.0, 1.0, 0.0)}, {0: (-1.0, 0.0, 0.0), 1: (1.0, 0.0, 0.0)}
    shape, gradient = np.zeros((8, 27)), np.zeros((8, 3, 27))
    for i, bits in enumerate(CORNER_OFFSETS):
        factors = [np.array(value[b]) for b in bits]
        shape[i] = np.einsum("a,b,c->abc", *factors).ravel()
        for d in range(3):
            differentiated = [np.array(slope[b]) if axis == d else factors[axis] for axis, b in enumerate(bits)]
            gradient[i, d] = np.einsum("a,b,c->abc", *differentiated).ravel()
    return shape, gradient


def _gradient_products() -> np.ndarray:
    """Coefficients of ∂_a N_p ∂_b N_q over the moments for each pair p <= q, shape (36, 9, 27)."""
    _, gradient = _polynomials()
    cube = gradient.reshape(8, 3, 3, 3, 3)[..., :2, :2, :2]
    products = np.zeros((36, 3, 3, 3, 3, 3))
    for k, (p, q) in enumerate(PAIRS):
        for i, j, m, r, s, t in np.ndindex(2, 2, 2, 2, 2, 2):
            products[k, :, :, i + r, j + s, m + t] += np.outer(cube[p, :, i, j, m], cube[q, :, r, s, t])
    return products.reshape(36, 9, 27)


def _shape_products() -> np.ndarray:
    """Coefficients of N_p N_q over the moments for each pair p <= q, shape (36, 27)."""
    cube = _polynomials()[0].reshape(8, 3, 3, 3)[:, :2, :2, :2]
    products = np.zeros((36, 3, 3, 3))
    for i, j, m, r, s, t in np.ndindex(2, 2, 2, 2, 2, 2):
        products[:, i + r, j + s, m + t] += cube[PAIRS[:, 0], i, j, m] * cube[PAIRS[:, 1], r, s, t]
    return products.reshape(36, 27)


SHAPE_POLYNOMIALS, GRADIENT_POLYNOMIALS = _polynomials()
GRADIENT_PRODUCTS = _gradient_products()
SHAPE_PRODUCTS = _shape_products()
FULL_CELL_MOMENTS = np.einsum("a,b,c->abc", *[1.0 / np.arange(1, 4)] * 3).ravel()


def _hourglass() -> np.ndarray:
    """The part of the full cell's ∫∇N_p·∇N_q that no affine function feels, as blocks for the pairs p <= q, (36, 9)."""
    trace = (GRADIENT_PRODUCTS @ FULL_CELL_MOMENTS).reshape(36, 3, 3).trace(axis1=1, axis2=2)
    laplacian = np.zeros((8, 8))
    laplacian[PAIRS[:, 0], PAIRS[:, 1]] = laplacian[PAIRS[:, 1], PAIRS[:, 0]] = trace
    affine = np.concatenate([np.ones((8, 1)), 2.0 * CORNER_OFFSETS - 1.0], axis=1) / np.sqrt(8)
    rest = np.eye(8) - affine @ affine.T
    part = (rest @ laplacian @ rest)[PAIRS[:, 0], PAIRS[:, 1]]
    return part[:, None] * np.eye(3).ravel() / 3.0


HOURGLASS = _hourglass()


@dataclass(frozen=True)
class CutCells:
    """The active cells of a grid with their integrals, lengths in metres.

    Attributes:
        cell: lowest-corner flat node index of each active cell, shape (C,).
        corner_nodes: flat grid nodes of the eight corners, shape (C, 8).
        fill: part of the cell inside the body, 0-1, shape (C,).
        volume_weights_m3: w_v(e, i) = ∫_Ωe N_i, shape (C, 8).
        boundary_weights_m2: w_b(e, i) = ∫_Γe N_i, shape (C, 8).
        boundary_normals_m2: ∫_Γe N_i n with the outward normal n, shape (C, 8, 3).
        gradient_index: row of the tables that belongs to each cell; 0 for every full cell, shape (C,).
        gradient_table_m: ∫_Ωe ∇N_p ∇N_qᵀ for the pairs p <= q and the stabilisation, shape (T, 36, 9).
        dilatation_table_m2: b_p = ∫_Ωe ∇N_p, so that ∫_Ωe div u = Σ_p b_p·u_p, shape (T, 8, 3).
        volume_table_m3: V_e, shape (T,).
        mass_table_m3: ∫_Ωe N_p N_q for the pairs p <= q, shape (T, 36).
        moment_table: ∫_Ωe xᵃ yᵇ zᶜ in cell units at 9a + 3b + c, of which the other tables are made, shape (T, 27).
        corner_phi: φ in cell units at the corners after snapping, shape (C, 8).
        surface_cell: cells that hold a part of the surface, shape (Q,).
        surface_phi: φ in cell units at the corners of their n³ sub-cells, which were integrated, (Q, n+1, n+1, n+1).
        sliver_nodes: corners of the sliver cells left out of the stiffness, shape (D, 8).
        sliver_volume_weights_m3: their w_v, so that no mass is lost, shape (D, 8).
    """

    cell: np.ndarray
    corner_nodes: np.ndarray
    fill: np.ndarray
    volume_weights_m3: np.ndarray
    boundary_weights_m2: np.ndarray
    boundary_normals_m2: np.ndarray
    gradient_index: np.ndarray
    gradient_table_m: np.ndarray
    dilatation_table_m2: np.ndarray
    volume_table_m3: np.ndarray
    mass_table_m3: np.ndarray
    moment_table: np.ndarray
    corner_phi: np.ndarray
    surface_cell: np.ndarray
    surface_phi: np.ndarray
    sliver_nodes: np.ndarray
    sliver_volume_weights_m3: np.ndarray

    @cached_property
    def element_table(self) -> np.ndarray:
        """What the loops over cells take of each row, (T, 348): `layout.CELL`."""
        rows = len(self.volume_table_m3)
        mean = self.dilatation_table_m2.reshape(rows, 24) / np.sqrt(self.volume_table_m3)[:, None]
        return np.concatenate([self.gradient_table_m.reshape(rows, -1), mean], axis=1)

    @property
    def consistent_mass_table_m3(self) -> np.ndarray:
        """The consistent part of the mass over the density, for the pairs p <= q, (T, 36)."""
        return CONSISTENT_SHARE * self.mass_table_m3


def snap(grid: SignedDistanceGrid, snap_fraction: float) -> SignedDistanceGrid:
    """The grid with every |φ| below snap_fraction · h set to 0, so that the surface passes through those nodes."""
    phi = np.where(np.abs(grid.phi_m) < snap_fraction * grid.spacing_m, 0.0, grid.phi_m)
    return SignedDistanceGrid(phi, grid.origin_m, grid.spacing_m)


def cut(
    grid: SignedDistanceGrid,
    min_fill: float = 0.02,
    subdivision: int = 2,
    stabilisation: float = 0.1,
    detail: SignedDistanceGrid | None = None,
) -> CutCells:
    """Find the active cells of a grid and integrate over each; cells filled under `min_fill` get no stiffness.

    The outer corners of a cell with little inside hang on shape functions that are almost zero there. `stabilisation`
    times the empty part of a full cell's stiffness against twisting (its hourglass modes) holds them. Affine motions
    do not feel it, so the patch test stays exact in cut cells.

    A trilinear φ bevels the edges of a body: a bar of four cells turned in the grid loses 4 % of its volume. `detail`,
    φ on the same grid refined by a whole number, is the shape to integrate over where it is known better; without it
    φ is trilinear and `subdivision` sub-cells an edge follow its zero set.
    """
    shape, h = np.array(grid.shape), grid.spacing_m
    stride = np.array([shape[1] * shape[2], shape[2], 1])
    parts = 1 if detail is None else _refinement(grid, detail)
    phi = grid.phi_m if detail is None else detail.phi_m
    cell = np.stack(np.nonzero(_any_in_cell(phi < 0, parts)), axis=1) @ stride
    if cell.size == 0:
        raise ValueError(
            f"no grid node lies inside the body at spacing {h:g} m; use a finer spacing or check the sign of φ"
        )
    corner_nodes = cell[:, None] + CORNER_OFFSETS @ stride
    corner_phi = grid.phi_m.ravel()[corner_nodes] / h

    is_cut = _any_in_cell(phi >= 0, parts)[tuple(np.unravel_index(cell, grid.shape))]
    if detail is None:
        field = subdivide(corner_phi[is_cut], subdivision)
    else:
        field = _gather(phi, np.stack(np.unravel_index(cell[is_cut], grid.shape), axis=1) * parts, parts) / h
    moments = np.broadcast_to(FULL_CELL_MOMENTS, (cell.size, 27)).copy()
    surface = np.zeros((cell.size, 8, 4))
    moments[is_cut], surface[is_cut] = integrate_cut_cells(np.ascontiguousarray(field))

    keep = moments[:, 0] >= min_fill
    if not keep.any():
        raise ValueError(f"every cell is filled under min_fill = {min_fill:g} at spacing {h:g} m; use a finer spacing")
    volume_weights = moments @ SHAPE_POLYNOMIALS.T * h**3
    with_surface = (surface[:, :, 0].sum(axis=1) > 0) & keep
    field = field[with_surface[is_cut]]
    is_cut &= moments[:, 0] < 1 - 1e-12  # a face on a grid plane leaves the cell full
    is_cut, moments, surface = is_cut[keep], moments[keep], surface[keep]
    gradient_index = np.where(is_cut, np.cumsum(is_cut), 0)
    table_moments = np.concatenate([FULL_CELL_MOMENTS[None], moments[is_cut]])
    table = (table_moments @ GRADIENT_PRODUCTS.reshape(-1, 27).T).reshape(-1, 36, 9)
    table += stabilisation * (1.0 - table_moments[:, 0])[:, None, None] * HOURGLASS
    return CutCells(
        cell=cell[keep],
        corner_nodes=corner_nodes[keep],
        fill=moments[:, 0],
        volume_weights_m3=volume_weights[keep],
        boundary_weights_m2=surface[:, :, 0] * h**2,
        boundary_normals_m2=surface[:, :, 1:] * h**2,
        gradient_index=gradient_index.astype(np.int32),
        gradient_table_m=table * h,
        dilatation_table_m2=(table_moments @ GRADIENT_POLYNOMIALS.reshape(24, 27).T).reshape(-1, 8, 3) * h**2,
        volume_table_m3=table_moments[:, 0] * h**3,
        mass_table_m3=table_moments @ SHAPE_PRODUCTS.T * h**3,
        moment_table=table_moments,
        corner_phi=corner_phi[keep],
        surface_cell=np.nonzero(with_surface[keep])[0],
        surface_phi=field,
        sliver_nodes=corner_nodes[~keep],
        sliver_volume_weights_m3=volume_weights[~keep],
    )


def _refinement(grid: SignedDistanceGrid, detail: SignedDistanceGrid) -> int:
    """Cells of `detail` along an edge of the grid's cells."""
    parts = round(grid.spacing_m / detail.spacing_m)
    same = np.allclose(grid.origin_m, detail.origin_m, atol=1e-6 * grid.spacing_m)
    if (
        not same
        or abs(parts * detail.spacing_m / grid.spacing_m - 1) > 1e-9
        or tuple(parts * (n - 1) + 1 for n in grid.shape) != tuple(detail.shape)
    ):
        raise ValueError(
            f"detail of shape {detail.shape} and spacing {detail.spacing_m:g} m does not refine the grid of shape "
            f"{grid.shape} and {grid.spacing_m:g} m; make it with `refine`"
        )
    return parts


def _any_in_cell(flag: np.ndarray, parts: int) -> np.ndarray:
    """Whether any of the nodes in and on each cell of `parts` nodes a side has the flag; shape of the cells."""
    for axis in range(3):
        flag = np.moveaxis(flag, axis, 0)
        cells = (len(flag) - 1) // parts
        flag = np.any([flag[k : k + parts * cells : parts][:cells] for k in range(parts + 1)], axis=0)
        flag = np.moveaxis(flag, 0, axis)
    return flag


def _gather(phi: np.ndarray, low: np.ndarray, parts: int) -> np.ndarray:
    """Blocks (n, parts+1, parts+1, parts+1) of phi from the indices low (n, 3) on."""
    step = np.arange(parts + 1)
    x, y, z = (low[:, a, None] + step for a in range(3))
    return phi[x[:, :, None, None], y[:, None, :, None], z[:, None, None, :]]


def boundary_products(
    cells: CutCells, grid: SignedDistanceGrid, is_held: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, ...]:
    """Surface integrals for Nitsche's method over the pieces of surface whose centres (n, 3) [m] `is_held` picks.

    Returns:
        cell (S,); ∫N_p n ∇N_qᵀ [m], (S, 8, 8, 3, 3); ∫N_p N_q [m²], (S, 8, 8); ∫∂ₙN_p ∂ₙN_q [1], (S, 8, 8).
    """
    with_surface = cells.surface_cell
    triangles, owner = surface_triangles(cells.surface_phi)
    h = grid.spacing_m
    corner = grid.node_positions_m(cells.cell[with_surface[owner]])
    centre = corner + h * (triangles[:, 0:3] + triangles[:, 3:6] + triangles[:, 6:9]) / 3
    held = is_held(centre)
    chosen, place = np.unique(owner[held], return_inverse=True)
    raw = integrate_boundary_products(triangles[held], place.ravel(), len(chosen))
    return with_surface[chosen], raw[..., :9].reshape(-1, 8, 8, 3, 3) * h, raw[..., 9] * h**2, raw[..., 10]
