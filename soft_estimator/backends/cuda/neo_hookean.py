"""Launches the neo-Hookean kernels; same names and arguments as the loops of backends/cpu/neo_hookean.py."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from soft_estimator.backends.cuda.arrays import real_of, typed, writing
from soft_estimator.backends.cuda.kernels import launch
from soft_estimator.backends.interface import Array
from soft_estimator.backends.neo_hookean_loops import NeoHookeanCells


def _given(real: npt.DTypeLike, u: Array, cells: NeoHookeanCells, *tables: Array) -> tuple:
    """What both cell kernels take, in their order."""
    last = (typed(table, real) for table in (*tables, cells.laplacian, cells.volume, cells.young))
    return (typed(u, real), cells.cell_nodes, cells.row, *last, float(cells.lam), float(cells.mu))


def neo_hookean_forces(u: Array, cells: NeoHookeanCells, energy: Array, corner: Array) -> None:
    real, count = real_of(cells.slopes), len(cells.cell_nodes)
    given = _given(real, u, cells, cells.slopes)
    with writing(energy, np.float64) as e, writing(corner, real) as y:
        launch("neo_hookean", "neo_hookean_forces", real, 8 * count, count, *given, e, y)


def neo_hookean_blocks(u: Array, cells: NeoHookeanCells, definite: bool, out: Array) -> None:
    real, count = real_of(cells.slopes), len(cells.cell_nodes)
    given = _given(real, u, cells, cells.slopes, cells.crossed)
    with writing(out, real) as y:
        arguments = (count, *given, bool(definite), y)
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
