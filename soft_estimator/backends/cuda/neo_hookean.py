"""Launches the neo-Hookean kernels; same names and arguments as the loops of backends/cpu/neo_hookean.py."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from soft_estimator.backends.cuda.arrays import real_of, typed, writing
from soft_estimator.backends.cuda.kernels import launch
from soft_estimator.backends.interface import Array


def _cells(real: npt.DTypeLike, u: Array, cell_nodes: Array, index: Array, *tables: Array) -> tuple:
    """What both cell kernels take, in their order."""
    return (typed(u, real), cell_nodes, index, *(typed(table, real) for table in tables))


def neo_hookean_forces(
    u: Array,
    cell_nodes: Array,
    index: Array,
    slopes: Array,
    laplacian: Array,
    volume: Array,
    young: Array,
    lam: float,
    mu: float,
    energy: Array,
    corner: Array,
) -> None:
    real, count = real_of(slopes), len(cell_nodes)
    cells = _cells(real, u, cell_nodes, index, slopes, laplacian, volume, young)
    with writing(energy, np.float64) as e, writing(corner, real) as y:
        launch("neo_hookean", "neo_hookean_forces", real, 8 * count, count, *cells, float(lam), float(mu), e, y)


def neo_hookean_blocks(
    u: Array,
    cell_nodes: Array,
    index: Array,
    slopes: Array,
    crossed: Array,
    laplacian: Array,
    volume: Array,
    young: Array,
    lam: float,
    mu: float,
    definite: bool,
    out: Array,
) -> None:
    real, count = real_of(slopes), len(cell_nodes)
    cells = _cells(real, u, cell_nodes, index, slopes, crossed, laplacian, volume, young)
    with writing(out, real) as y:
        arguments = (count, *cells, float(lam), float(mu), bool(definite), y)
        launch("neo_hookean", "neo_hookean_blocks", real, 8 * count, *arguments)


def gather_blocks(cell_blocks: Array, node_cells: Array, scale: float, slot: Array, blocks: Array) -> None:
    """Every block has a thread of its own."""
    real, count = real_of(blocks), len(node_cells)
    with writing(blocks, real) as y:
        arguments = (count, typed(cell_blocks, real), node_cells, float(scale), slot, y)
        launch("neo_hookean", "gather_blocks", real, count, *arguments, grid=(27,))


def block_products(cell_blocks: Array, cell_nodes: Array, x: Array, out: Array) -> None:
    real, count, columns = real_of(cell_blocks), len(cell_nodes), x.shape[2]
    with writing(out, real) as y:
        arguments = (count, columns, typed(cell_blocks, real), cell_nodes, typed(x, real), y)
        launch("neo_hookean", "block_products", real, 8 * count * columns, *arguments)
