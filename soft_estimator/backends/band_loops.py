"""The loops of a direct solve for slender bodies: arrays in, arrays out, as in `loops`; see `physics.band`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from soft_estimator.backends.whole_steps import Array


class BandOrder(NamedTuple):
    """Nodes of one half of a body along its long way, from its end to its middle, so that neighbours are near in the
    order, too.

    order (n,): node at each place. rank (N,): place of each node, -1 of those of the other half. last (n,): last place
    that a row of the factor reaches, never falling; `last - place + 1` is the width of the band there, in nodes.
    own (1,): places before those of the middle, which is in both halves, in the far one backwards.
    """

    order: Array
    rank: Array
    last: Array
    own: Array


def row_width(across: int) -> int:
    """Numbers of a row of a factor that reaches so many nodes: loops by several columns go on beyond the last one."""
    return -(-(3 * across + 19) // 8) * 8


Halves = tuple[BandOrder, BandOrder]
Factor = tuple[Array, Array]


class BandLoops(Protocol):
    """Cholesky's factor of a block matrix whose blocks all lie near the diagonal, and solves with it: both halves of a
    body up to its middle, each on a thread of its own, then the middle."""

    def factorise_band(
        self, row_start: Array, column: Array, blocks: Array, free: Array, halves: Halves, near: Array, far: Array, /
    ) -> bool:
        """near, far (n, 3, W): rows of R in A = Rᵀ R on the free nodes, from a node's own column on, its diagonal
        inverted; those of the middle in the near half.

        W: `row_width` of the widest row's nodes; all after a row's last node is zero. False where A is not positive
        definite.
        """

    def solve_band(self, halves: Halves, factor: Factor, b: Array, out: Array, /) -> None:
        """out (N, 3, K) = A⁻¹ b of each column on the free nodes, zero on held ones; b (N, 3, K) is zero there, too."""

    def solve_band_many(
        self,
        row_start: Array,
        column: Array,
        blocks: Array,
        halves: Halves,
        factor: Callable[[], Factor | None],
        b: Array,
        x: Array,
        free: Array,
        tolerance: float,
        limit: int,
        /,
    ) -> tuple[int, float, int]:
        """`MatrixLoops.conjugate_gradient_many` by direct solves, again with what each leaves; the factor, None where
        there is none, is asked for where the guess is not the answer."""
