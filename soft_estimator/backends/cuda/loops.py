"""Launches the cell, rotation and contact kernels; same names and arguments as the loops of backends/cpu."""

from __future__ import annotations

import cupy
import numpy as np
import numpy.typing as npt

from soft_estimator.backends.cuda.arrays import real_of, typed, writing
from soft_estimator.backends.cuda.kernels import launch
from soft_estimator.backends.interface import Array
from soft_estimator.backends.layout import CELL, place


def rotations(u: Array, cell_nodes: Array, spacing_m: float, out: Array) -> None:
    real = real_of(u)
    with writing(out, real) as y:
        launch("rotation", "rotations", real, 8 * len(y), len(y), typed(u, real), cell_nodes, float(spacing_m), y)


def rotations_tangent(u: Array, du: Array, r: Array, cell_nodes: Array, spacing_m: float, out: Array) -> None:
    real, count = real_of(r), len(r)
    vectors = (typed(x, real) for x in (u, du, r))
    with writing(out, np.float64) as y:
        launch("rotation", "rotations_tangent", real, 8 * count, count, *vectors, cell_nodes, float(spacing_m), y)


def rotations_adjoint(u: Array, r: Array, r_bar: Array, cell_nodes: Array, spacing_m: float, out: Array) -> None:
    real, count = real_of(r), len(r)
    arrays = (typed(u, real), r, typed(r_bar, np.float64), cell_nodes)
    with writing(out, np.float64) as y:
        launch("rotation", "rotations_adjoint", real, 8 * count, count, *arrays, float(spacing_m), y)


def _cells(
    real: npt.DTypeLike,
    u: Array,
    z: Array,
    share: float,
    r: Array,
    cell_nodes: Array,
    index: Array,
    table: Array,
    young: Array,
    *lame: float,
) -> tuple:
    """What all cell kernels take, in their order."""
    vectors = (typed(u, real), typed(z, real), float(share), typed(r, real))
    return (*vectors, cell_nodes, index, typed(table, real), typed(young, real), *map(float, lame))


def cell_forces(
    u: Array,
    z: Array,
    share: float,
    r: Array,
    cell_nodes: Array,
    gradient_index: Array,
    table: Array,
    young: Array,
    lam: float,
    mu: float,
    spacing: float,
    out: Array,
) -> None:
    real, count = real_of(table), len(cell_nodes)
    cells = _cells(real, u, z, share, r, cell_nodes, gradient_index, table, young, lam, mu)
    with writing(out, real) as y:
        launch("elasticity", "cell_forces", real, 8 * count, count, *cells, float(spacing), y)


def cell_energies(
    u: Array,
    zero: Array,
    r: Array,
    cell_nodes: Array,
    gradient_index: Array,
    table: Array,
    young: Array,
    lam: float,
    mu: float,
    spacing: float,
    out: Array,
) -> None:
    real, count = real_of(table), len(cell_nodes)
    cells = _cells(real, u, zero, 1.0, r, cell_nodes, gradient_index, table, young, lam, mu)
    with writing(out, np.float64) as y:
        launch("elasticity", "cell_energies", real, 8 * count, count, *cells, float(spacing), y)


def cell_forces_adjoint(
    lmbda: Array,
    u: Array,
    z: Array,
    share: float,
    r: Array,
    cell_nodes: Array,
    gradient_index: Array,
    table: Array,
    young: Array,
    lam: float,
    mu: float,
    spacing: float,
    y_bar: Array,
    r_bar: Array,
    lame_bar: Array,
) -> None:
    real, count = real_of(table), len(cell_nodes)
    cells = _cells(real, u, z, share, r, cell_nodes, gradient_index, table, young, lam, mu)
    with writing(y_bar, np.float64) as y, writing(r_bar, np.float64) as rb, writing(lame_bar, np.float64) as lb:
        arguments = (count, typed(lmbda, real), *cells, float(spacing), y, rb, lb)
        launch("elasticity", "cell_forces_adjoint", real, 8 * count, *arguments)


def cell_forces_tangent(
    dr: Array,
    u: Array,
    z: Array,
    share: float,
    r: Array,
    cell_nodes: Array,
    gradient_index: Array,
    table: Array,
    young: Array,
    lam: float,
    mu: float,
    dlam: Array,
    dmu: Array,
    spacing: float,
    out: Array,
) -> None:
    real, count = real_of(table), len(cell_nodes)
    cells = _cells(real, u, z, share, r, cell_nodes, gradient_index, table, young, lam, mu)
    changes = (typed(dlam, np.float64), typed(dmu, np.float64))
    with writing(out, real) as y:
        arguments = (count, typed(dr, np.float64), *cells, *changes, float(spacing), y)
        launch("elasticity", "cell_forces_tangent", real, 8 * count, *arguments)


def cell_forces_tangents(
    at: Array,
    dat: Array,
    u: Array,
    z: Array,
    moved: Array,
    r: Array,
    cell_nodes: Array,
    gradient_index: Array,
    table: Array,
    young: Array,
    region: Array,
    lam: float,
    mu: float,
    dlam: Array,
    dmu: Array,
    spacing: float,
    out: Array,
) -> None:
    """Direction by direction; many at once are the business of the tangent stepper."""
    real, cells = real_of(table), (r, cell_nodes, gradient_index, table, young, lam, mu)
    turn = cupy.empty((len(cell_nodes), 9))
    through_turn, through_motion = (cupy.empty((len(cell_nodes), 24), real) for _ in range(2))
    for j in range(out.shape[2]):
        rotations_tangent(at, dat[:, :, j], r, cell_nodes, spacing, turn)
        cell_forces_tangent(turn, u, z, 1.0, *cells, dlam[region, j], dmu[region, j], spacing, through_turn)
        cell_forces(moved[:, :, j], moved[:, :, j], 0.0, *cells, spacing, through_motion)
        out[:, :, j] = through_turn + through_motion


def gather(cell_values: Array, node_cells: Array, scale: float, out: Array) -> None:
    real = real_of(out)
    double = cell_values.dtype == np.float64 and real != np.float64
    values = typed(cell_values, np.float64 if double else real)
    name = "gather_double" if double else "gather"
    with writing(out, real) as y:
        launch("elasticity", name, real, len(y), len(y), values, node_cells, float(scale), y)


def gather_many(cell_values: Array, node_cells: Array, scale: float, out: Array) -> None:
    for j in range(out.shape[2]):
        total = cupy.zeros(out.shape[:2], out.dtype)
        gather(cell_values[:, :, j], node_cells, scale, total)
        out[:, :, j] += total


def assemble(
    r: Array,
    node_cells: Array,
    gradient_index: Array,
    table: Array,
    young: Array,
    lam: float,
    mu: float,
    scale: float,
    inertia: Array,
    row_start: Array,
    slot: Array,
    blocks: Array,
) -> None:
    """Every block has a thread of its own; row_start is not needed."""
    real, count = real_of(blocks), len(node_cells)
    cells = (typed(r, real), node_cells, gradient_index, typed(table, real), typed(young, real))
    numbers = (float(lam), float(mu), float(scale))
    with writing(blocks, real) as y:
        arguments = (count, *cells, *numbers, typed(inertia, real), slot, y)
        launch("elasticity", "assemble", real, count, *arguments, grid=(27,))


def deviatoric_products(vectors: Array, gradient_index: Array, table: Array, out: Array) -> None:
    """With the cells' matrices written out, 24 x 24 for each row of the table: they come and go with the call."""
    low, high = np.minimum.outer(range(8), range(8)), np.maximum.outer(range(8), range(8))
    pairs = table[:, place(CELL, "gradients")].reshape(-1, 36, 3, 3)
    upper = pairs[:, cupy.asarray(low * 8 - low * (low - 1) // 2 + high - low)]
    below = cupy.asarray(np.tri(8, k=-1, dtype=bool))[:, :, None, None]
    g = cupy.where(below, upper.swapaxes(3, 4), upper)
    trace = cupy.trace(g, axis1=3, axis2=4)[..., None, None]
    matrices = g.swapaxes(3, 4) + trace * cupy.eye(3, dtype=table.dtype) - 2 / 3 * g
    out[...] = matrices.transpose(0, 1, 3, 2, 4).reshape(-1, 24, 24)[gradient_index] @ vectors


def soft_depths(distance: Array, sharpness: float, depth: Array, slope: Array) -> None:
    count, given = len(distance), (typed(distance, np.float64), float(sharpness))
    with writing(depth, np.float64) as y, writing(slope, np.float64) as z:
        launch("contact", "soft_depths", np.float64, count, count, *given, y, z)


def soft_energies(distance: Array, sharpness: float, out: Array) -> None:
    count = len(distance)
    with writing(out, np.float64) as y:
        launch("contact", "soft_energies", np.float64, count, count, typed(distance, np.float64), float(sharpness), y)


def at_points(nodal: Array, nodes: Array, weight: Array, out: Array) -> None:
    real, count = real_of(nodal), len(nodes)
    with writing(out, np.float64) as y:
        launch("contact", "at_points", real, count, count, typed(nodal, real), nodes, typed(weight, np.float64), y)


def columns_at_points(nodal: Array, nodes: Array, weight: Array, out: Array) -> None:
    out[...] = (nodal[nodes] * weight[:, :, None]).sum(axis=1)


def spread_columns(value: Array, node_cells: Array, point_start: Array, weight: Array, out: Array) -> None:
    nodes, width = out.shape
    points = (typed(value, np.float64), node_cells, point_start, weight)
    with writing(out, np.float64) as y:
        launch("contact", "spread_columns", np.float64, nodes * width, nodes, width, *points, y)


def add_contact_blocks(
    normal: Array, value: Array, node_cells: Array, point_start: Array, weight: Array, slot: Array, blocks: Array
) -> None:
    real, count = real_of(blocks), len(slot)
    points = (typed(normal, np.float64), typed(value, np.float64), node_cells, point_start, weight)
    with writing(blocks, real) as y:
        launch("contact", "add_contact_blocks", real, count, count, *points, slot, y)
