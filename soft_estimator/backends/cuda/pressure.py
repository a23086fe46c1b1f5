"""The preconditioner for nearly incompressible bodies, in whole-array operations on the device."""

from __future__ import annotations

import cupy

from soft_estimator.backends.interface import Array
from soft_estimator.backends.reference.pressure import apply_pressures, assemble_pressures


def pressure_matrix(
    inverse: Array, rows: Array, cell_nodes: Array, node_cells: Array, place: Array, out: Array
) -> None:
    assemble_pressures(cupy, inverse, rows, cell_nodes, node_cells, place, out)


def precondition_pressure(
    r: Array,
    inverse: Array,
    rows: Array,
    cell_nodes: Array,
    node_cells: Array,
    place: Array,
    strides: Array,
    runs: Array,
    matrix: Array,
    steps: Array,
    out: Array,
) -> None:
    apply_pressures(cupy, r, inverse, rows, cell_nodes, node_cells, place, strides, matrix, cupy.asnumpy(steps), out)
