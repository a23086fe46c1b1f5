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
from soft_estimator.backends.interface import Array, Backend
from soft_estimator.backends.loops import BREAKDOWN, CONVERGED, LIMIT, STALLED
from soft_estimator.backends.pressure_loops import PressureLoops

if TYPE_CHECKING:
    from soft_estimator.physics.device_body import DeviceBody

# From this λ/μ on (ν = 0.484) it takes less time than block-Jacobi alone.
WORTH_FROM = 30.0
# Chebyshev's steps, and the eigenvalues of S over its diagonal that they are laid out for: the largest, seen at 2.2 to
# 2.6 in every body, and its ratio to the smallest.
STEPS, LARGEST, SPREAD = 12, 2.8, 23.0
_RESTARTS = 3


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


def conjugate_gradient(
    backend: Backend,
    row_start: Array,
    column: Array,
    blocks: Array,
    preconditioner: PressurePreconditioner,
    b: Array,
    x: Array,
    free: Array,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    """`MatrixLoops.conjugate_gradient` with this preconditioner: iterations, relative residual, status.

    The preconditioner rounds in single precision, so β is taken in the form that does not ask it to be linear.
    """
    xp, mask = backend.xp, free[:, None]
    z, product, last = xp.empty_like(x), xp.empty_like(x), xp.zeros_like(x)

    def residual(v: Array) -> Array:
        backend.multiply(row_start, column, blocks, v, product)
        return mask * (b - product)

    def dot(v: Array, w: Array) -> float:
        return float((v * w).sum(dtype=np.float64))

    r = residual((1 - mask) * x)
    base = np.sqrt(dot(r, r))
    if base == 0.0:
        x *= 1 - mask
        return 0, 0.0, CONVERGED
    r, rz, restarts = residual(x), 0.0, 0
    p, size = xp.zeros_like(r), np.sqrt(dot(r, r))
    for iteration in range(limit):
        if not (np.isfinite(base) and np.isfinite(size) and size <= 1e8 * base):
            return iteration, np.inf, BREAKDOWN
        if size <= tolerance * base:
            r = residual(x)  # the recurred residual drifts: only the true one counts
            size = np.sqrt(dot(r, r))
            if size <= 2 * tolerance * base or restarts == _RESTARTS:
                return iteration, size / base, CONVERGED if size <= 2 * tolerance * base else STALLED
            restarts, rz = restarts + 1, 0.0
        preconditioner.apply(r, z)
        p *= dot(z, r - last) / rz if rz > 0 else 0.0
        p += z
        rz, last = dot(r, z), r
        backend.multiply(row_start, column, blocks, p, product)
        product *= mask
        curvature = dot(p, product)
        if not (curvature > 0 and rz > 0 and np.isfinite(curvature)):
            return iteration, size / base, BREAKDOWN
        x += rz / curvature * p
        r = r - rz / curvature * product
        size = np.sqrt(dot(r, r))
    return limit, size / base, LIMIT
