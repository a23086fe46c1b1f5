"""The hot loops of a backend: arrays in, arrays out, given by position.

N nodes, C cells, R material regions, P contact points, B matrix blocks, K columns. Each loop writes into its last
argument(s) and is deterministic: the same input gives the same bits.

Fixed arrays that several loops take: cell_nodes (C, 8), the cells' corners, corner p at offset (p >> 2, p >> 1 & 1, p
& 1); node_cells (N, 8), the cell whose corner p a node is, -1 for none; gradient_index (C,), the cells' rows of table
(·, 348), laid out as `layout.CELL`; young (C,) [Pa]; lam, mu: Lamé parameters for E = 1 Pa;
row_start (N + 1,), column (B,), slot (N, 27): the block-sparse pattern, slot the place of each neighbour, -1 for none;
free (N,), 0 for held nodes; nodes, weight (P, 8): the corners that a contact point rides on; point_start (C + 1,): the
points of each cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from soft_estimator.backends.whole_steps import Array

# What `conjugate_gradient` returns as its status.
CONVERGED, LIMIT, BREAKDOWN, STALLED = 0, 1, 2, 3


class CellLoops(Protocol):
    """Rotations and elastic forces of the cells, and from cells to nodes."""

    def rotations(self, u: Array, cell_nodes: Array, spacing_m: float, out: Array, /) -> None:
        """out (C, 9): closest rotation to F = I + 1/(4h) Σ u_i s_iᵀ of every cell; u (N, 3) [m]."""

    def rotations_tangent(
        self, u: Array, du: Array, r: Array, cell_nodes: Array, spacing_m: float, out: Array, /
    ) -> None:
        """out (C, 9): δR = R [ω]ₓ for a change du (N, 3) of u, (tr(S) I - S) ω = axl(Rᵀ δF); r (C, 9)."""

    def rotations_adjoint(
        self, u: Array, r: Array, r_bar: Array, cell_nodes: Array, spacing_m: float, out: Array, /
    ) -> None:
        """out (C, 24): corner contributions to ū for given R̄, r_bar (C, 9)."""

    def cell_forces(
        self,
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
        /,
    ) -> None:
        """out (C, 24): corner forces R K̂ (Rᵀ(share (x+u) + z) - share x) [N]; u, z (N, 3) [m], r (C, 9).

        share = 1, z = 0 gives the elastic force, share = 0 the product K z.
        """

    def cell_forces_adjoint(
        self,
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
        /,
    ) -> None:
        """Derivatives of Σ lmbda · `cell_forces`, lmbda (N, 3).

        Out: y_bar (C, 24), by share (x+u) + z at the corners; r_bar (C, 9); lame_bar (C, 2), by lam and mu.
        """

    def cell_forces_tangents(
        self,
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
        /,
    ) -> None:
        """out (C, 24, K): change of `cell_forces` (share 1) along K directions.

        Args:
            at, dat: displacement (N, 3) [m] that the rotations r are taken at, and its changes (N, 3, K).
            moved: change of u + z, (N, 3, K). region: of each cell (C,). dlam, dmu: change of λ, μ in each region, (R,
            K).
        """

    def cell_energies(
        self,
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
        /,
    ) -> None:
        """out (C,): ½ wᵀ K̂ w of every cell [J], w = Rᵀ(x+u) - x; zero: (N, 3) of zeros."""

    def deviatoric_products(self, vectors: Array, gradient_index: Array, table: Array, out: Array, /) -> None:
        """out (C, 24, K): deviatoric stiffness of the cells for E = μ = 1, Gᵀ + tr(G) I - ⅔ G times vectors (C, 24, K).

        It is symmetric: its own tangent and adjoint. The vectors are given in the cells' own frames.
        """

    def gather(self, cell_values: Array, node_cells: Array, scale: float, out: Array, /) -> None:
        """out (N, 3) += scale · corner values (C, 24) summed at the nodes."""

    def gather_many(self, cell_values: Array, node_cells: Array, scale: float, out: Array, /) -> None:
        """out (N, 3, K) += scale · corner values (C, 24, K) summed at the nodes."""

    def assemble(
        self,
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
        /,
    ) -> None:
        """blocks (B, 9): scale · K + inertia (B,) times unit matrices."""


class ContactLoops(Protocol):
    """Points of the surface against a plane, riding on the cells' corners."""

    def soft_depths(self, distance: Array, sharpness: float, depth: Array, slope: Array, /) -> None:
        """Depth -softmin_a(δ, 0) [m] and slope σ = 1/(1 + exp(aδ)) at distances δ (P,) [m], each (P,)."""

    def soft_energies(self, distance: Array, sharpness: float, out: Array, /) -> None:
        """out (P,) [m²]: ∫ from δ to ∞ of the depth; 0 beyond sixty widths 1/a, where e⁻⁶⁰ of it is left."""

    def at_points(self, nodal: Array, nodes: Array, weight: Array, out: Array, /) -> None:
        """out (P, 3): nodal values (N, 3) at the contact points."""

    def columns_at_points(self, nodal: Array, nodes: Array, weight: Array, out: Array, /) -> None:
        """out (P, K): nodal numbers (N, K) at the contact points."""

    def spread_columns(self, value: Array, node_cells: Array, point_start: Array, weight: Array, out: Array, /) -> None:
        """out (N, K) += point values (P, K), shared between the nodes of each point's cell."""

    def add_contact_blocks(
        self,
        normal: Array,
        value: Array,
        node_cells: Array,
        point_start: Array,
        weight: Array,
        slot: Array,
        blocks: Array,
        /,
    ) -> None:
        """blocks (B, 9) += value (P,) · weight_p weight_q n nᵀ for every two corners of each point's cell."""


class MatrixLoops(Protocol):
    """Sums, the block-sparse matrix and its solver."""

    def sums(self, pairs: Sequence[tuple[Array, Array | None]], /) -> list[float]:
        """Σ a b of every pair of arrays of one shape, Σ a where b is None: in double precision, read back at once."""

    def add_blocks(self, slots: Array, values: Array, blocks: Array, /) -> None:
        """blocks[slots] += values, in order; slots (S,), values (S, 9)."""

    def invert_diagonal(self, blocks: Array, slot: Array, free: Array, out: Array, /) -> None:
        """out (N, 9): inverse diagonal blocks, zero on held nodes."""

    def multiply(self, row_start: Array, column: Array, blocks: Array, x: Array, out: Array, /) -> None:
        """out (N, 3) = A x (N, 3)."""

    def multiply_scalars(self, row_start: Array, column: Array, values: Array, x: Array, out: Array, /) -> None:
        """out (M, W) = S x (N, W), S (M, N) with one number for each entry of the pattern, values (B,)."""

    def conjugate_gradient(
        self,
        row_start: Array,
        column: Array,
        blocks: Array,
        inverse: Array,
        b: Array,
        x: Array,
        free: Array,
        tolerance: float,
        limit: int,
        /,
    ) -> tuple[int, float, int]:
        """Solve A x = b (N, 3) on the free nodes from the guess in x, which is overwritten; held nodes keep their x.

        Stops at |r| <= tolerance · |b - A x_held|. inverse (N, 9): of the diagonal blocks.

        Returns:
            iterations, relative residual, status: CONVERGED, LIMIT (of iterations), BREAKDOWN (not positive, not
            finite) or STALLED (above the tolerance).
        """

    def conjugate_gradient_many(
        self,
        row_start: Array,
        column: Array,
        blocks: Array,
        inverse: Array,
        b: Array,
        x: Array,
        free: Array,
        tolerance: float,
        limit: int,
        /,
    ) -> tuple[int, float, int]:
        """`conjugate_gradient` for K right-hand sides, b and x (N, 3, K).

        Returns:
            iterations of the slowest, worst relative residual, worst status (a stalled one counts as LIMIT).
        """


class PointLoops(Protocol):
    """Observed points in a deformed grid."""

    def find_cells(
        self,
        points: Array,
        position: Array,
        cell_nodes: Array,
        in_body: Array,
        value: Array,
        spacing_m: float,
        /,
    ) -> tuple[Array, Array]:
        """Cell (n,), -1 for none, and local coordinates (n, 3) in 0-1 of points (n, 3) [m] in a deformed grid.

        Of several cells one of the body comes before one of the halo, then the smaller |value| at the point.

        Args: position: deformed nodes (M, 3) [m]. in_body: of each cell (C,). value: nodal field (M,).
        """

    def surface_distances(
        self,
        found: Array,
        local: Array,
        position: Array,
        cell_nodes: Array,
        value: Array,
        least_slope: float,
        distance: Array,
        weights: Array,
        slopes: Array,
        by_value: Array,
        by_slope: Array,
        /,
    ) -> None:
        """Distance ψ/|g| of located points to the carried field's zero level, g = ∇ψ, and its derivatives.

        Moving the nodes by δu at fixed points changes it by -by_value·Σ N_q δu_q - by_slope·Σ (g·∇N_q) δu_q. |g| is
        held at `least_slope` where it is less. A point in a flat cell loses it: found becomes -1.

        Args:
            found (n,), local (n, 3): of `find_cells`. value: nodal field of each point's own cell, (n, 8) [m].
            distance (n,) [m], weights: N_q (n, 8), slopes: g·∇N_q (n, 8), by_value, by_slope (n, 3): out.
        """
