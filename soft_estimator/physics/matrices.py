"""The assembled matrices, for anyone who wants to look inside: modes, conditioning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh

from soft_estimator.physics.solver import LinearSystem
from soft_estimator.physics.step import Simulation


@dataclass(frozen=True)
class Matrices:
    """stiffness K [N/m] and lumped mass M [kg], both (3N, 3N), and which degrees of freedom are free, (3N,)."""

    stiffness: sp.csr_matrix
    mass: sp.dia_matrix
    free: np.ndarray

    def modes(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The lowest natural frequencies [Hz], (count,), and shapes with mass 1, (3N, count), of a held body."""
        k = self.stiffness[self.free][:, self.free]
        m = sp.diags(self.mass.diagonal()[self.free])
        values, vectors = eigsh(k, count, m, sigma=0.0, which="LM")
        shapes = np.zeros((len(self.free), count))
        shapes[self.free] = vectors
        return np.sqrt(np.maximum(values, 0.0)) / (2 * np.pi), shapes


def assemble_matrices(simulation: Simulation, u: np.ndarray | None = None) -> Matrices:
    """K and M of a simulation with the cells turned as by the displacement u (N, 3) [m], at rest by default."""
    s = simulation
    turned = s.cell_rotations(s.zero if u is None else s.backend.to_device(u, s.model.dtype))
    blocks = s.assemble(turned, 1.0, s.xp.zeros(len(s.mass), s.model.dtype))
    system = LinearSystem(s.row_start, s.column, blocks, blocks, s.free)
    mass = np.repeat(s.backend.to_host(s.mass).astype(np.float64), 3)
    free = np.repeat(s.model.dirichlet.free > 0, 3)
    return Matrices(system.to_scipy(s.backend).tocsr(), sp.diags(mass), free)
