"""Block-Jacobi with one larger block: the nodes that friction ties together are solved for together.

A point that rubs resists one motion of the eight nodes that carry it, Σ w_p u_p, and along a plane it may be many times
as stiff as they are. Their own diagonal blocks hold w_p² of that each, as if each was held back by itself: that is far
too much for all motions of the eight in which the point rests, and too little where they go along together. So the
spectrum of D⁻¹A spreads to both sides, and no other diagonal helps both. Where friction is a fair part of a node's
diagonal, the node joins the others of its kind in

    z = D⁻¹ r on all others,    z_T = A_TT⁻¹ r_T on the tied ones,

A_TT being their part of the matrix: a few dozen nodes, sorted along their long way, so that Cholesky's factor is a
band. Solves and their tolerance stay what they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.backends.joint_loops import JointBlock, JointLoops

if TYPE_CHECKING:
    from soft_estimator.physics.device_body import DeviceBody

# Part of a node's diagonal that is friction's, from which on it is tied: with a tenth, half as many nodes more save
# one iteration in fifty.
TIED_FROM = 0.25
MOST_NODES = 256  # whose factor takes as long as some dozen iterations; the most tied ones of more


def tied_nodes(rubbing: np.ndarray, blocks: np.ndarray, slot: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The nodes that friction ties together, (T,); rubbing: its part of the traces of their diagonal blocks [N/m]."""
    share = np.where(free > 0, rubbing / blocks[slot[:, 13]][:, ::4].sum(axis=1), 0.0)
    most = np.argsort(-share, kind="stable")[:MOST_NODES]
    return most[share[most] > TIED_FROM]


class TiedBlock:
    """The preconditioner of one matrix.

    Attributes:
        inverse: of the diagonal blocks, zero on the tied nodes, (N, 9). joint: the tied nodes' factor.
    """

    def __init__(self, loops: JointLoops, inverse: Array, joint: JointBlock) -> None:
        self.loops, self.joint = loops, joint
        self.inverse = inverse.copy()
        self.inverse[joint.nodes] = 0.0

    @classmethod
    def of(cls, device: DeviceBody, blocks: Array, inverse: Array, rubbing: np.ndarray) -> TiedBlock | None:
        """None where friction ties nothing, and where what it ties is not positive definite."""
        loops = device.backend.joints
        if loops is None:
            return None
        nodes = tied_nodes(rubbing, blocks, device.slot, device.free)
        if not len(nodes):
            return None
        nodes = nodes[_along(device, nodes)]
        place = np.full(device.nodes, -1)
        place[nodes] = np.arange(len(nodes))
        joint = JointBlock(nodes, np.empty(len(nodes), nodes.dtype), np.zeros((3 * len(nodes),) * 2))
        fine = loops.factorise_joint(device.row_start, device.column, blocks, nodes, place, joint.first, joint.factor)
        return cls(loops, inverse, joint) if fine else None

    def solve(
        self, pattern: tuple[Array, Array], blocks: Array, b: Array, x: Array, free: Array, ending: tuple[float, int]
    ) -> tuple[int, float, int]:
        """`MatrixLoops.conjugate_gradient` with this preconditioner, or `conjugate_gradient_many` of several columns.

        pattern: row_start and column. ending: tolerance and most iterations.
        """
        loop = self.loops.conjugate_gradient_joint if b.ndim == 2 else self.loops.conjugate_gradient_joint_many
        inverse = self.inverse.astype(b.dtype, copy=False)
        return loop(*pattern, blocks, inverse, self.joint, b, x, free, *ending)


def _along(device: DeviceBody, nodes: np.ndarray) -> np.ndarray:
    """The order of some nodes along their long way."""
    body = device.body
    place = np.stack(np.unravel_index(body.node_index[nodes], body.grid.shape), axis=1)
    long_way = np.argsort(-np.ptp(place, axis=0), kind="stable")
    return np.lexsort(place[:, long_way[::-1]].T)
