"""The rest shape's distance field, carried along by the deforming body.

Around the body lies a halo of cells whose nodes follow the body by affine extrapolation, so that a point near the
surface, on either side, always finds a cell, and its distance changes smoothly with the body's motion.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from soft_estimator.geometry.grid import CORNER_OFFSETS, SignedDistanceGrid
from soft_estimator.physics.body import Body

HALO_CELLS = 3  # the halo reaches this many cells beyond the surface
_SPLIT = 0.1  # of a cell: those that come nearer to the skin are split into its cells
_NEIGHBOURS = 24  # nodes of the body an extrapolated node follows: six times the four that an affine motion needs
_SOLID = 0.05  # of a cell's volume: nodes with less hang on slivers and are not followed
_WEIGHT_WIDTH = 0.25  # in exp(-_WEIGHT_WIDTH (Δ/h)²): neighbours two cells farther than the nearest count a third of it


@dataclass(frozen=True)
class CarriedField:
    """φ on the body's cells and on the halo around them.

    Attributes:
        position_m: rest positions of all nodes, the body's first, (M, 3). phi_m: φ there, (M,).
        laplacian_per_m: Δφ there, for the noise bias of curved surfaces, (M,).
        follow: displacement of all nodes = follow @ displacement of the body's, sparse (M, N).
        cell_nodes: (C, 8), int64. in_body: which cells are the body's own, (C,).
        spacing_m: edge of a cell.
    """

    position_m: np.ndarray
    phi_m: np.ndarray
    laplacian_per_m: np.ndarray
    follow: sp.csr_matrix
    cell_nodes: np.ndarray
    in_body: np.ndarray
    spacing_m: float


def carry_field(body: Body) -> CarriedField:
    """Build the carried field of a body: on its grid, or on that of its skin where it has one."""
    field = _carried_grid(body)
    return field if body.skin is None else _refined(field, body.skin)


def _carried_grid(body: Body) -> CarriedField:
    grid = _padded(body.grid, HALO_CELLS + 2)
    h, shape = grid.spacing_m, np.array(grid.shape)
    stride = np.array([shape[1] * shape[2], shape[2], 1])
    origin = np.round((body.grid.origin_m - grid.origin_m) / h).astype(np.int64)
    ijk = np.stack(np.unravel_index(body.node_index, body.grid.shape), axis=-1) + origin
    own = ijk @ stride
    wanted = (grid.phi_m < (HALO_CELLS + 1) * h).ravel()
    wanted[own] = True
    halo = np.setdiff1d(np.nonzero(wanted)[0], own)
    nodes = np.concatenate([own, halo])
    place = np.full(grid.phi_m.size, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))

    lowest = np.nonzero(wanted.reshape(shape)[:-1, :-1, :-1])
    corners = (np.stack(lowest, axis=-1) @ stride)[:, None] + CORNER_OFFSETS @ stride
    cell_nodes = place[corners]
    cell_nodes = cell_nodes[(cell_nodes >= 0).all(axis=1)]
    own_cells = {tuple(row) for row in place[own][body.cell_nodes[:, [0, 7]]].tolist()}
    in_body = np.array([tuple(row) in own_cells for row in cell_nodes[:, [0, 7]].tolist()])
    position = grid.node_positions_m(nodes)
    return CarriedField(
        position_m=position,
        phi_m=grid.phi_m.ravel()[nodes],
        laplacian_per_m=_laplacian(grid).ravel()[nodes],
        follow=_follow(body, position[body.node_count :]),
        cell_nodes=np.ascontiguousarray(cell_nodes),
        in_body=in_body,
        spacing_m=h,
    )


def _refined(field: CarriedField, skin: SignedDistanceGrid) -> CarriedField:
    """The field with the cells at the skin split into the skin's, whose φ they take.

    New nodes ride on the corners of their cell: within it a part's own trilinear map is that of the whole, so that the
    cells stay without gaps.
    """
    parts, h = round(field.spacing_m / skin.spacing_m), skin.spacing_m
    fine = _padded(skin, parts * (HALO_CELLS + 2))
    stride = np.array([fine.shape[1] * fine.shape[2], fine.shape[2], 1])
    steps = np.array(list(np.ndindex(*(parts + 1,) * 3)))
    # Numbers of the skin's nodes: of the field's own ones (M,), and of all those in a cell, (C, (parts + 1)³).
    own = np.round((field.position_m - fine.origin_m) / h).astype(np.int64) @ stride
    numbers = own[field.cell_nodes[:, 0]][:, None] + steps @ stride
    phi = fine.phi_m.ravel()
    near = _SPLIT * field.spacing_m
    split = (phi[numbers].min(axis=1) < near) & (phi[numbers].max(axis=1) > -near)
    new = np.setdiff1d(numbers[split], own)
    nodes = np.concatenate([own, new])
    place = np.full(fine.phi_m.size, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    return CarriedField(
        position_m=fine.node_positions_m(nodes),
        phi_m=phi[nodes],
        laplacian_per_m=_laplacian(fine).ravel()[nodes],
        follow=sp.vstack([field.follow, _riding(field, numbers, split, new, parts) @ field.follow]).tocsr(),
        cell_nodes=np.concatenate([field.cell_nodes[~split], place[numbers[split]][:, _parts(parts)].reshape(-1, 8)]),
        in_body=np.concatenate([field.in_body[~split], np.repeat(field.in_body[split], parts**3)]),
        spacing_m=field.spacing_m,
    )


def _riding(field: CarriedField, numbers: np.ndarray, split: np.ndarray, new: np.ndarray, parts: int) -> sp.csr_matrix:
    """Weights (n, M) of the field's nodes in new ones, by the numbers of all nodes in each cell and which are split."""
    at = np.array(list(np.ndindex(*(parts + 1,) * 3)))[:, None, :] / parts
    weight = np.where(CORNER_OFFSETS == 1, at, 1.0 - at).prod(axis=2)
    known, first = np.unique(numbers[split], return_index=True)
    cell, step = np.divmod(first[np.searchsorted(known, new)], weight.shape[0])
    columns = field.cell_nodes[split][cell]
    rows = np.repeat(np.arange(len(new)), 8)
    out = sp.csr_matrix((weight[step].ravel(), (rows, columns.ravel())), (len(new), len(field.phi_m)))
    out.eliminate_zeros()
    return out


def _parts(parts: int) -> np.ndarray:
    """Corners of the parts of a cell among its (parts + 1)³ nodes, (parts³, 8)."""
    low = np.array(list(np.ndindex(*(parts,) * 3)))
    return (low[:, None, :] + CORNER_OFFSETS) @ np.array([(parts + 1) ** 2, parts + 1, 1])


def _padded(grid: SignedDistanceGrid, cells: int) -> SignedDistanceGrid:
    """The grid with φ continued outwards along each axis, at the slope of its border but never falling."""
    phi = grid.phi_m
    for axis in range(3):
        phi = np.moveaxis(phi, axis, 0)
        reach = np.arange(1, cells + 1).reshape(-1, 1, 1)
        first = phi[:1] + reach[::-1] * np.clip(phi[:1] - phi[1:2], 0, grid.spacing_m)
        last = phi[-1:] + reach * np.clip(phi[-1:] - phi[-2:-1], 0, grid.spacing_m)
        phi = np.moveaxis(np.concatenate([first, phi, last]), 0, axis)
    return SignedDistanceGrid(phi, grid.origin_m - cells * grid.spacing_m, grid.spacing_m)


def _laplacian(grid: SignedDistanceGrid) -> np.ndarray:
    """Δφ by second differences, smoothed over neighbours and bounded by the curvature a cell can show."""
    total = np.zeros(grid.shape)
    for axis in range(3):
        phi = np.moveaxis(grid.phi_m, axis, 0)
        np.moveaxis(total, axis, 0)[1:-1] += phi[:-2] - 2 * phi[1:-1] + phi[2:]
    return np.clip(total / grid.spacing_m**2, -2 / grid.spacing_m, 2 / grid.spacing_m)


def _follow(body: Body, halo_m: np.ndarray) -> sp.csr_matrix:
    """Each halo node moves with the affine motion that fits the body's nearest nodes best."""
    count, h = body.node_count, body.grid.spacing_m
    identity = sp.identity(count, format="csr")
    if len(halo_m) == 0:
        return identity
    solid = np.nonzero(body.node_volume_m3 > _SOLID * h**3)[0]
    near = min(_NEIGHBOURS, len(solid))
    distance, index = cKDTree(body.node_position_m[solid]).query(halo_m, k=near)
    index = solid[index]
    arm = (body.node_position_m[index] - halo_m[:, None]) / h
    basis = np.concatenate([np.ones((*arm.shape[:2], 1)), arm], axis=2)
    weight = np.exp(-_WEIGHT_WIDTH * ((distance - distance[:, :1]) / h) ** 2)
    normal = np.einsum("nki,nk,nkj->nij", basis, weight, basis)
    normal[:, 1:, 1:] += 1e-12 * np.trace(normal, axis1=1, axis2=2)[:, None, None] * np.eye(3)
    first = np.linalg.solve(normal, np.broadcast_to(np.eye(4)[:, :1], (len(halo_m), 4, 1)))[..., 0]
    share = np.einsum("nki,ni->nk", basis, first) * weight
    rows = np.repeat(np.arange(len(halo_m)), near)
    return sp.vstack([identity, sp.csr_matrix((share.ravel(), (rows, index.ravel())), (len(halo_m), count))]).tocsr()
