"""The loops of a direct solve for slender bodies: arrays in, arrays out, as in `loops`; see `physics.band`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from soft_estimator.backends.whole_steps import Array


class BandOrder(NamedTuple):
    """Nodes along the long way of a body, so that neighbours are near in the order, too.

    order (N,): node at each place. rank (N,): place of each node. last (N,): last place that a row of the factor
    reaches, never falling; `last - place + 1` is the width of the band there, in nodes.
    """

    order: Array
    rank: Array
    last: Array


class BandLoops(Protocol):
    """Cholesky's factor of a block matrix whose blocks all lie near the diagonal, and solves with it."""

    def factorise_band(
        self, row_start: Array, column: Array, blocks: Array, free: Array, order: BandOrder, out: Array, /
    ) -> bool:
        """out (N, 3, W): rows of R in A = Rᵀ R on the free nodes, from a node's own column on, its diagonal inverted.

        W: three times the widest row's nodes, and three more. False where A is not positive definite.
        """

    def solve_band(self, order: BandOrder, band: Array, b: Array, out: Array, /) -> None:
        """out (N, 3, K) = A⁻¹ b of each column on the free nodes, zero on held ones; b (N, 3, K)."""

    def solve_band_many(
        self,
        row_start: Array,
        column: Array,
        blocks: Array,
        order: BandOrder,
        band: Callable[[], Array | None],
        b: Array,
        x: Array,
        free: Array,
        tolerance: float,
        limit: int,
        /,
    ) -> tuple[int, float, int]:
        """`MatrixLoops.conjugate_gradient_many` by direct solves, again with what each leaves; the factor, None where
        there is none, is asked for where the guess is not the answer."""
