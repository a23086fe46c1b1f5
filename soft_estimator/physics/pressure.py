"""A preconditioner for nearly incompressible bodies: the cells' pressures by Woodbury's formula.

With mean dilatation a step's matrix is A = A_μ + Bᵀ B, one row of B for each cell: √(λ + ⅔ μ) times what the cell feels
of a dilatation. Block-Jacobi does not see these rows, and conjugate gradients take √(λ/μ) times as many iterations.
With D, the diagonal blocks of A_μ, in place of A_μ,

    P⁻¹ = D⁻¹ - D⁻¹ Bᵀ S⁻¹ B D⁻¹,      S = I + B D⁻¹ Bᵀ,

needs about as many for every ν. S is a sparse matrix of one number for each pair of neighbouring cells, and S⁻¹ is
taken by Chebyshev's iteration, so many steps twice: what they leave of a pressure is then the square of a polynomial,
nowhere negative, and P stays positive definite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from soft_estimator.backends.chebyshev import chebyshev_steps
from soft_estimator.backends.interface import Array
from soft_estimator.backends.pressure_loops import PressureLoops

if TYPE_CHECKING:
    from soft_estimator.physics.device_body import DeviceBody

# From this λ/μ on (ν = 0.484) it takes less time than block-Jacobi alone.
WORTH_FROM = 30.0
# Chebyshev's steps, and the eigenvalues of S over its diagonal that they are laid out for: the largest, seen at 2.2 to
# 2.6 in every body, and its ratio to the smallest.
STEPS, LARGEST, SPREAD = 12, 2.8, 23.0


@dataclass(frozen=True, eq=False)
class Lattice:
    """Where the cells lie on a lattice with a border, see `PressureLoops`, on the backend's device.

    size: places. own: slots (N, 27) of a matrix that has a node's diagonal block at its number.
    """

    place: Array
    strides: Array
    runs: Array
    size: int
    own: Array

    @classmethod
    def of(cls, device: DeviceBody) -> Lattice:
        body, to = device.body, device.backend.to_device
        at = np.stack(np.unravel_index(body.cells.cell, body.grid.shape), axis=1)
        at = at - at.min(axis=0) + 1
        shape = at.max(axis=0) + 2
        stride = np.array([shape[1] * shape[2], shape[2], 1])
        place = at @ stride
        plane = np.unique(at[:, 0])
        order = np.argsort(place)
        ends = np.searchsorted(at[order, 0], plane, side="right") - 1
        runs = np.stack([place[order][np.searchsorted(at[order, 0], plane)], place[order][ends] + 1], axis=1)
        neighbours = np.array([(i, j, k) for i in (-1, 0, 1) for j in (-1, 0, 1) for k in (-1, 0, 1)])
        own = np.repeat(np.arange(body.node_count)[:, None], 27, axis=1)
        size = int(np.prod(shape))
        return cls(to(place), to(neighbours @ stride), to(runs), size, to(own))


class PressurePreconditioner:
    """P⁻¹ of the module's formulas.

    Args:
        device: the body. loops: the backend's. blocks: of A, (B, 9). rows: B, corner by corner, (C, 24).
    """

    def __init__(self, device: DeviceBody, loops: PressureLoops, blocks: Array, rows: Array) -> None:
        xp, backend, self.loops, lattice = device.xp, device.backend, loops, device.lattice
        self.cells = (rows, device.cell_nodes, device.node_cells)
        self.lattice = (lattice.place, lattice.strides, lattice.runs)
        each = rows.reshape(-1, 8, 3)
        diagonal = blocks[device.slot[:, 13]].reshape(-1, 3, 3)
        for p in range(8):  # a node is the same corner of one cell at most
            diagonal[device.cell_nodes[:, p]] -= each[:, p, :, None] * each[:, p, None, :]
        self.inverse = xp.empty((device.nodes, 9), device.dtype)
        backend.invert_diagonal(diagonal.reshape(-1, 9), lattice.own, device.free, self.inverse)
        self.matrix = xp.empty((27, lattice.size), np.float32)
        loops.pressure_matrix(self.inverse, *self.cells, lattice.place, self.matrix)
        self.steps = backend.to_device(chebyshev_steps(STEPS, LARGEST, SPREAD))

    def apply(self, r: Array, out: Array) -> None:
        """out = P⁻¹ r for nodal vectors (N, 3)."""
        self.loops.precondition_pressure(r, self.inverse, *self.cells, *self.lattice, self.matrix, self.steps, out)
