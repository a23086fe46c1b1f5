"""What a backend provides: the hot loops of the simulation, arrays in, arrays out.

N nodes, C cells, P contact points, B matrix blocks. Arrays live where the backend computes; `xp` is the array module
for everything that is not a hot loop. Each loop writes into its last argument(s) and is deterministic: the same input
gives the same bits.
"""

from __future__ import annotations

from typing import Any, Protocol

Array = Any


class Backend(Protocol):
    """The loops a simulation needs; shapes in brackets."""

    name: str
    xp: Any
    column_multiple: int  # several columns are handed over in a width that is a multiple of this

    def to_device(self, array: Array, dtype: Any = None) -> Array:
        """A contiguous copy or view of a host array where the backend computes."""

    def to_host(self, array: Array) -> Array:
        """The NumPy array of a device array."""

    def wait(self) -> None:
        """Return when all loops started so far are done."""

    def device_name(self) -> str:
        """What computes, for people."""

    def rotations(self, u: Array, cell_nodes: Array, spacing_m: float, out: Array) -> None:
        """out [C, 9]: closest rotation to F = I + 1/(4h) Σ u_i s_iᵀ of every cell."""

    def cell_forces(self, u: Array, z: Array, share: float, r: Array, *cells: Any) -> None:
        """Corner forces R K̂ (Rᵀ(share (x+u) + z) - share x) [C, 24]."""

    def gather(self, cell_values: Array, node_cells: Array, scale: float, out: Array) -> None:
        """out [N, 3] += scale · corner values [C, 24] summed at the nodes."""

    def assemble(self, r: Array, node_cells: Array, *cells: Any) -> None:
        """Blocks [B, 9] of scale · K + diagonal."""

    def contact_points(self, position: Array, u: Array, *points: Any) -> None:
        """Distance, smooth depth and slope of every contact point, each [P]."""

    def at_points(self, nodal: Array, nodes: Array, weight: Array, out: Array) -> None:
        """out [P, 3]: nodal values [N, 3] at the contact points."""

    def spread_along(self, normal: Array, value: Array, *points: Any) -> None:
        """out [N, 3] += normal · point values [P], shared between the nodes of each point's cell."""

    def columns_at_points(self, nodal: Array, nodes: Array, weight: Array, out: Array) -> None:
        """out [P, columns]: nodal numbers [N, columns] at the contact points."""

    def spread_columns(self, value: Array, node_cells: Array, point_start: Array, weight: Array, out: Array) -> None:
        """out [N, columns] += point values [P, columns], shared between the nodes of each point's cell."""

    def add_contact_blocks(self, normal: Array, value: Array, *points: Any) -> None:
        """Blocks += value · weight_p weight_q n nᵀ for every two corners of each point's cell."""

    def add_blocks(self, slots: Array, values: Array, blocks: Array) -> None:
        """blocks[slots] += values, in order."""

    def invert_diagonal(self, blocks: Array, slot: Array, free: Array, out: Array) -> None:
        """out [N, 9]: inverse diagonal blocks, zero on held nodes."""

    def multiply(self, row_start: Array, column: Array, blocks: Array, x: Array, out: Array) -> None:
        """out = A x."""

    def conjugate_gradient(
        self, row_start: Array, column: Array, blocks: Array, *system: Any
    ) -> tuple[int, float, int]:
        """Solve A x = b on the free nodes; iterations, relative residual, status."""

    def find_cells(self, points: Array, position: Array, *grid: Any) -> tuple[Array, Array]:
        """Cell [n], -1 for none, and local coordinates [n, 3] of observed points in a deformed grid."""

    def surface_distances(self, found: Array, local: Array, *field: Any) -> None:
        """Distance [n] of located points to the carried field's zero level, and its derivatives."""
