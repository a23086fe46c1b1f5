"""The loops of the preconditioner for nearly incompressible bodies: arrays in, arrays out, as in `loops`."""

from __future__ import annotations

from typing import Protocol

from soft_estimator.backends.whole_steps import Array


class PressureLoops(Protocol):
    """The cells' pressures in a preconditioner, see `physics.pressure`.

    inverse (N, 9): inverse diagonal blocks of D. rows (C, 24): of B. place (C,): of the cells on a lattice of M places
    with a border. strides (27,): from a place to its neighbours, itself at 13. runs (·, 2): first place and end of
    pieces of the lattice that hold all cells. matrix (27, M): S, float32.
    """

    def pressure_matrix(
        self, inverse: Array, rows: Array, cell_nodes: Array, node_cells: Array, place: Array, out: Array, /
    ) -> None:
        """out (27, M): S = I + B D⁻¹ Bᵀ, zero where there is no cell."""

    def precondition_pressure(
        self,
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
        /,
    ) -> None:
        """out (N, 3) = D⁻¹ (r - Bᵀ y), y about S⁻¹ B D⁻¹ r by Chebyshev's steps (·, 2) taken twice."""
