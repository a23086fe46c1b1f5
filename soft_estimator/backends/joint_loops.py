"""The loops of block-Jacobi with one larger block: arrays in, arrays out, as in `loops`; see `physics.joint_block`."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from soft_estimator.backends.whole_steps import Array


class JointBlock(NamedTuple):
    """Cholesky's factor of the part of a matrix that belongs to some nodes.

    nodes (T,): which. first (T,): place among them of the first that a node's row of the factor reaches.
    factor (3T, 3T): the lower one, its diagonal inverted; zero elsewhere.
    """

    nodes: Array
    first: Array
    factor: Array


class JointLoops(Protocol):
    """Nodes that are solved for together within a preconditioner, each of the others by itself."""

    def factorise_joint(
        self, row_start: Array, column: Array, blocks: Array, nodes: Array, place: Array, first: Array, factor: Array, /
    ) -> bool:
        """first (T,), factor (3T, 3T), as in `JointBlock`; False where that part of the matrix is indefinite.

        place (N,): of each node among the joint ones, -1 of the others. factor: zeros before.
        """

    def conjugate_gradient_joint(
        self,
        row_start: Array,
        column: Array,
        blocks: Array,
        inverse: Array,
        joint: JointBlock,
        b: Array,
        x: Array,
        free: Array,
        tolerance: float,
        limit: int,
        /,
    ) -> tuple[int, float, int]:
        """`MatrixLoops.conjugate_gradient` with the joint nodes' residuals solved together; inverse is zero on them."""

    def conjugate_gradient_joint_many(
        self,
        row_start: Array,
        column: Array,
        blocks: Array,
        inverse: Array,
        joint: JointBlock,
        b: Array,
        x: Array,
        free: Array,
        tolerance: float,
        limit: int,
        /,
    ) -> tuple[int, float, int]:
        """`MatrixLoops.conjugate_gradient_many` with the same."""
