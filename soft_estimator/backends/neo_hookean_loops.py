"""The hot loops of the neo-Hookean law, and of matrices that are kept cell by cell.

N nodes, C cells, T distinct cells, K columns. Fixed arrays: cell_nodes, node_cells, slot as in `loops`; row (C,): a
cell's in the tables; slopes (T, 8, 3, 8) [1/m]: ∂N_p/∂x_b at the cell's eight quadrature points k, which come last
and weigh V/8 each; crossed (T, 24, 28): component b of ∇N_p x ∇N_q at point k in row 8b + k, for the pairs p < q;
laplacian (T, 36) [m]: ∫∇N_p·∇N_q and the stabilisation for the pairs p <= q; volume (T,) [m³]; young (C,) [Pa];
lam, mu: Lamé parameters for E = 1 Pa, κ = λ + 2μ/3.

With F = I + Σ u_p ∇N_pᵀ, J = det F and J̄ its mean over the cell, a cell holds

    ∫ μ/2 (tr FᵀF - 3) - μ (J - 1) + μ/6 (J - 1)²  +  V κ/2 (J̄ - 1)².
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from soft_estimator.backends.whole_steps import Array


class NeoHookeanCells(NamedTuple):
    """The cells and their material, as above."""

    cell_nodes: Array
    row: Array
    slopes: Array
    crossed: Array
    laplacian: Array
    volume: Array
    young: Array
    lam: float
    mu: float


class NeoHookeanLoops(Protocol):
    """Energy, forces and tangents of neo-Hookean cells."""

    def neo_hookean_forces(self, u: Array, cells: NeoHookeanCells, energy: Array, corner: Array, /) -> None:
        """energy (C,) [J], and its derivatives by the corners' displacements, corner (C, 24) [N]; u (N, 3) [m]."""

    def neo_hookean_blocks(self, u: Array, cells: NeoHookeanCells, definite: bool, out: Array, /) -> None:
        """out (C, 36, 9): second derivatives of the energy by the corner pairs p <= q [N/m].

        definite: at each point the factor c = -μ + μ/3 (J - 1) + κ (J̄ - 1) of ∂²J/∂F² is scaled by the largest number
        up to 1 that leaves μ I + μ/3 (∂J/∂F)(∂J/∂F)ᵀ + c ∂²J/∂F² positive semi-definite.
        """

    def gather_blocks(self, cell_blocks: Array, node_cells: Array, scale: float, slot: Array, blocks: Array, /) -> None:
        """blocks (B, 9) += scale · the cells' blocks (C, 36, 9) at their places of the pattern."""

    def block_products(self, cell_blocks: Array, cell_nodes: Array, x: Array, out: Array, /) -> None:
        """out (C, 24, K): each cell's matrix times the nodal columns x (N, 3, K) at its corners."""
