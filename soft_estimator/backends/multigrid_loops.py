"""The loops of the multigrid preconditioner: arrays in, arrays out, as in `loops`; see `physics.multigrid`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from soft_estimator.backends.whole_steps import Array


class Grids(NamedTuple):
    """Grids of a body, finest first, one after the other: L of them, T nodes in all; nodes are counted through.

    start (L + 1,): first node of each. colour_start (L, 9): first of each colour. order (N,): the body's nodes as the
    finest grid has them. free (T,): 0 for nodes that cannot move.
    row_start (T + 1,), column (S,): neighbours of each node, those of earlier colours first; middle (T,): the first of
    a later colour. child (T, 27): nodes of the finer grid around a node, -1 for none. parent, weight (T, 8):
    interpolation from the coarser grid.
    """

    start: Array
    colour_start: Array
    order: Array
    free: Array
    row_start: Array
    middle: Array
    column: Array
    child: Array
    parent: Array
    weight: Array


class Levels(NamedTuple):
    """Matrices of all grids: blocks (S, 9) in the order of `Grids.column`, inverse (T, 9) of the diagonal ones, both
    float32; factor (3 n, 3 n): Cholesky's of the last grid of n nodes, its diagonal inverted."""

    blocks: Array
    inverse: Array
    factor: Array


class MultigridLoops(Protocol):
    """A V-cycle over the grids, and the matrices it is made of.

    slot, neighbour (n, 27): places of a grid's blocks and its nodes' neighbours, itself at 13, -1 for none.
    """

    def coarse_blocks(
        self,
        blocks: Array,
        slot: Array,
        neighbour: Array,
        place: Array,
        free: Array,
        child: Array,
        coarse_free: Array,
        out: Array,
        /,
    ) -> None:
        """out (27 m, 9): blocks of Pᵀ A P on the free nodes, 27 to a coarse node; a unit block where none is free.

        place (n, 3): of the fine nodes. child (m, 27): fine nodes around each coarse one.
        """

    def pack_blocks(self, blocks: Array, pick: Array, out: Array, /) -> None:
        """out (s, 9) = blocks[pick]."""

    def invert_blocks(self, blocks: Array, slot: Array, free: Array, out: Array, /) -> None:
        """out (n, 9): inverse diagonal blocks, zero where a node is not free."""

    def factorise(self, blocks: Array, slot: Array, neighbour: Array, free: Array, out: Array, /) -> None:
        """out (3 n, 3 n), zeros before: the lower Cholesky factor of a grid's matrix, its diagonal inverted; zero in
        directions that nothing resists."""

    def precondition(self, grids: Grids, levels: Levels, r: Array, out: Array, /) -> None:
        """out (N, 3) = V(r) for r (N, 3); N nodes of the finest grid."""

    def conjugate_gradient_multigrid(
        self,
        row_start: Array,
        column: Array,
        blocks: Array,
        grids: Grids,
        levels: Callable[[], Levels],
        b: Array,
        x: Array,
        free: Array,
        tolerance: float,
        limit: int,
        /,
    ) -> tuple[int, float, int]:
        """`MatrixLoops.conjugate_gradient_many` with this preconditioner; its matrices are asked for where iterations
        are needed at all."""
