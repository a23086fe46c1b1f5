"""The θ-step of the simulation written plainly with NumPy and SciPy, to measure against.

Vectorised as far as NumPy goes: batched SVD for the rotations, einsum for the element matrices, coo → csr for the
assembly, scipy.sparse.linalg.cg from the same first guess to the same tolerance. No contact and no held nodes; the
Nitsche terms are the package's own, which are plain NumPy too.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from time import perf_counter

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg

from soft_estimator.geometry.cut_cells import PAIRS
from soft_estimator.geometry.grid import CORNER_OFFSETS
from soft_estimator.physics.dirichlet import moved
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters, lame

_TOLERANCE_NAME = "rtol" if "rtol" in signature(cg).parameters else "tol"


@dataclass
class PlainStep:
    """The state after a step [m, m/s] with its mean velocity, the solver's iterations, the seconds of each stage."""

    u: np.ndarray
    v: np.ndarray
    mean: np.ndarray
    iterations: int
    seconds: dict[str, float]


class PlainSimulation:
    """The same model and parameters as a `Simulation`; preconditioner "jacobi" or "block-jacobi"."""

    def __init__(self, model: Model, parameters: Parameters, preconditioner: str = "block-jacobi") -> None:
        body = model.body
        self.model, self.parameters, self.preconditioner = model, parameters, preconditioner
        self.spacing, self.nodes, self.count = body.grid.spacing_m, body.cell_nodes, body.node_count
        self.mass = parameters.density_kg_m3 * body.mass_matrix_m3
        self.mass_of_freedoms = sp.kron(self.mass, sp.identity(3), format="csr")
        self.external = parameters.density_kg_m3 * body.node_volume_m3[:, None] * parameters.gravity_m_s2
        self.start = np.zeros((self.count, 3))
        self.lam, self.mu = lame(parameters.poissons_ratio)
        self.young = parameters.youngs_modulus_pa[body.cell_region]
        table = np.zeros((len(body.cells.gradient_table_m), 8, 8, 3, 3))
        pairs = body.cells.gradient_table_m.reshape(-1, 36, 3, 3)
        table[:, PAIRS[:, 1], PAIRS[:, 0]] = np.swapaxes(pairs, 2, 3)
        table[:, PAIRS[:, 0], PAIRS[:, 1]] = pairs
        gradients = table[body.cells.gradient_index]
        trace = np.trace(gradients, axis1=3, axis2=4)[..., None, None] * np.eye(3)
        # The element matrices at rest, once; a step only turns them.
        mean = (body.cells.dilatation_table_m2 / np.sqrt(body.cells.volume_table_m3)[:, None, None])[
            body.cells.gradient_index
        ]
        self.element = self.young[:, None, None, None, None] * (
            self.mu * (np.swapaxes(gradients, 3, 4) + trace - 2 / 3 * gradients)
            + (self.lam + 2 / 3 * self.mu) * np.einsum("cpa,cqb->cpqab", mean, mean)
        )
        dof = 3 * self.nodes[:, :, None].astype(np.int64) + np.arange(3)
        self.rows = np.broadcast_to(dof[:, :, None, :, None], self.element.shape).ravel()
        self.columns = np.broadcast_to(dof[:, None, :, None, :], self.element.shape).ravel()

    def rotations(self, u: np.ndarray) -> np.ndarray:
        signs = (2.0 * CORNER_OFFSETS - 1.0) / (4.0 * self.spacing)
        f = np.eye(3) + np.einsum("cpa,pb->cab", u[self.nodes], signs)
        left, _, right = np.linalg.svd(f)
        left[:, :, 2] *= np.linalg.det(left @ right)[:, None]
        return left @ right

    def step(self, u: np.ndarray, v: np.ndarray, mean: np.ndarray, time_s: float) -> PlainStep:
        """One step from u [m], v [m/s] and the mean velocity [m/s] of the last step, which looks ahead."""
        scheme, p = self.model.integrator, self.parameters
        seconds: dict[str, float] = {}
        clock = perf_counter()
        r = self.rotations(u + scheme.predictor * scheme.step_s * mean)
        clock = _lap(seconds, "rotations", clock)
        turned = r[:, None, None] @ self.element @ np.swapaxes(r, 1, 2)[:, None, None]
        stiffness = sp.coo_matrix((turned.ravel(), (self.rows, self.columns)), shape=(3 * self.count,) * 2).tocsr()
        weak_force = np.zeros((self.count, 3))
        position, at_s = self.model.body.node_position_m, time_s + scheme.step_s * scheme.c_k
        for cells, path in self.model.dirichlet.weak:
            target = moved(path, at_s, position[cells.nodes], self.start[cells.nodes])
            flat, held = r.reshape(-1, 9), cells.held(self.lam, self.mu)
            blocks = cells.blocks(flat, self.young, held).reshape(-1, 8, 8, 3, 3)
            dof = 3 * cells.nodes[:, :, None].astype(np.int64) + np.arange(3)
            rows = np.broadcast_to(dof[:, :, None, :, None], blocks.shape).ravel()
            columns = np.broadcast_to(dof[:, None, :, None, :], blocks.shape).ravel()
            stiffness = stiffness + sp.coo_matrix((blocks.ravel(), (rows, columns)), shape=stiffness.shape).tocsr()
            np.add.at(weak_force, cells.nodes, cells.forces(u, self.start, target, flat, self.young, held))
        inertia = (scheme.c_m + scheme.c_d * p.mass_damping_per_s) * self.mass_of_freedoms
        matrix = ((scheme.c_k + scheme.c_d * p.stiffness_damping_s) * stiffness + inertia).tocsr()
        clock = _lap(seconds, "assembly", clock)
        corners = CORNER_OFFSETS * self.spacing
        stretched = corners + u[self.nodes] - u[self.nodes[:, :1]] - corners @ np.swapaxes(r, 1, 2)
        rhs = self.external - weak_force + scheme.p_v * (self.mass @ v)
        np.subtract.at(rhs, self.nodes, np.einsum("cpqab,cqb->cpa", turned, stretched))
        clock = _lap(seconds, "forces", clock)
        increment, iterations = self._solve(matrix, rhs, scheme.step_s * mean)
        _lap(seconds, "solve", clock)
        v = scheme.d_u * increment + scheme.d_v * v
        return PlainStep(u + increment, v, increment / scheme.step_s, iterations, seconds)

    def _solve(self, matrix: sp.csr_matrix, rhs: np.ndarray, guess: np.ndarray) -> tuple[np.ndarray, int]:
        count = 0

        def counted(_: np.ndarray) -> None:
            nonlocal count
            count += 1

        settings = self.model.solver
        x, status = cg(
            matrix,
            rhs.ravel(),
            x0=guess.ravel(),
            maxiter=settings.max_iterations,
            M=self._inverse(matrix),
            callback=counted,
            **{_TOLERANCE_NAME: settings.relative_tolerance},
        )
        if status != 0:
            raise RuntimeError(f"scipy.sparse.linalg.cg gave up after {count} iterations")
        return x.reshape(-1, 3), count

    def _inverse(self, matrix: sp.csr_matrix) -> LinearOperator:
        if self.preconditioner == "jacobi":
            diagonal = 1.0 / matrix.diagonal()
            return LinearOperator(matrix.shape, lambda x: diagonal * x.ravel())
        n = np.arange(self.count)
        blocks = np.stack(
            [np.asarray(matrix[3 * n + a, 3 * n + b]).ravel() for a in range(3) for b in range(3)], axis=1
        )
        inverse = sp.bsr_matrix(
            (np.linalg.inv(blocks.reshape(-1, 3, 3)), n, np.arange(self.count + 1)), shape=matrix.shape
        )
        return LinearOperator(matrix.shape, lambda x: inverse @ x.ravel())


def _lap(seconds: dict[str, float], stage: str, since: float) -> float:
    now = perf_counter()
    seconds[stage] = seconds.get(stage, 0.0) + now - since
    return now
