"""The assembled matrices, for anyone who wants to look inside: modes, conditioning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh

from soft_estimator.physics.solver import LinearSystem
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.corotated import Corotated
from soft_estimator.physics.terms.interface import Assembly
from soft_estimator.physics.terms.neo_hookean import NeoHookean, Strained
from soft_estimator.physics.terms.nitsche import Nitsche


@dataclass(frozen=True)
class Matrices:
    """stiffness K [N/m] and mass M [kg], both (3N, 3N), and which degrees of freedom are free, (3N,)."""

    stiffness: sp.csr_matrix
    mass: sp.csr_matrix
    free: np.ndarray

    @property
    def parts(self) -> tuple[sp.csr_matrix, sp.csr_matrix, np.ndarray]:
        return self.stiffness, self.mass, self.free

    def modes(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The lowest natural frequencies [Hz], (count,), and shapes with mass 1, (3N, count), of a held body."""
        k = self.stiffness[self.free][:, self.free]
        m = self.mass[self.free][:, self.free]
        values, vectors = eigsh(k, count, m, sigma=0.0, which="LM")
        shapes = np.zeros((len(self.free), count))
        shapes[self.free] = vectors
        return np.sqrt(np.maximum(values, 0.0)) / (2 * np.pi), shapes


def assemble_matrices(simulation: Simulation, u: np.ndarray | None = None) -> Matrices:
    """K and M of a simulation at a displacement u (N, 3) [m], at rest by default; linear cells only turn with it."""
    s = simulation
    d, assembly = s.device, Assembly(s.device)
    at = d.zero if u is None else d.up(u)
    turned = d.rotations(at)
    for term in s.terms:
        if isinstance(term, (Corotated, Nitsche)):
            term.assemble(turned, 1.0, assembly)
        elif isinstance(term, NeoHookean):
            term.assemble(Strained(term, at), 1.0, assembly)
    blocks = assembly.finished()
    system = LinearSystem(d.row_start, d.column, blocks, blocks, d.free)
    mass = s.parameters.density_kg_m3 * sp.kron(s.model.body.mass_matrix_m3, sp.identity(3), format="csr")
    free = np.repeat(s.model.dirichlet.free > 0, 3)
    return Matrices(system.to_scipy(s.backend).tocsr(), mass, free)
