"""What the elements cost a solver: iterations of conjugate gradients for a step's system 4M/Δt² + K.

Mean dilatation is A = A_μ + Σ_e (λ + 2μ/3)/V_e b_e b_eᵀ, one row b_e a cell. Block-Jacobi does not see these rows. By
Woodbury's formula with D, the diagonal blocks of A_μ, in place of A_μ,

    P⁻¹ = D⁻¹ - D⁻¹ Bᵀ S⁻¹ B D⁻¹,    S = diag(V/(λ + 2μ/3)) + B D⁻¹ Bᵀ,

S a sparse matrix of one number for each pair of neighbouring cells. It is factorised here, which says what is to be
gained; the package takes S⁻¹ by Chebyshev's iteration (`physics/pressure.py`), and its steps are timed.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
import scipy.sparse as sp
from cell_elements import factorise, lame, mass, stiffness
from element_figures import DENSITY, YOUNG, Settings
from scipy.sparse.linalg import LinearOperator, cg

from soft_estimator.geometry.shapes import Box, Sphere
from soft_estimator.physics.body import Body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation

RATIOS = (0.3, 0.45, 0.49, 0.499)


def inverse_blocks(a: sp.csr_matrix) -> sp.csr_matrix:
    """The inverses of the 3 x 3 blocks on the diagonal."""
    count = a.shape[0] // 3
    blocks = np.zeros((count, 3, 3))
    for i in range(3):
        for j in range(3):
            blocks[:, i, j] = a[i::3, j::3].diagonal()
    where = np.arange(count)
    return sp.bsr_matrix((np.linalg.inv(blocks), where, np.arange(count + 1)), shape=a.shape).tocsr()


def dilatation_rows(body: Body) -> sp.csr_matrix:
    """B (C, 3N): a cell's ∫div u."""
    b = body.cells.dilatation_table_m2[body.cells.gradient_index].reshape(-1, 24)
    dof = (3 * body.cell_nodes[:, :, None].astype(np.int64) + np.arange(3)).reshape(-1, 24)
    row = np.repeat(np.arange(len(dof)), 24)
    return sp.csr_matrix((b.ravel(), (row, dof.ravel())), shape=(len(dof), 3 * body.node_count))


def count(a: sp.csr_matrix, right: np.ndarray, preconditioner: LinearOperator) -> int:
    """Iterations to a relative residual of 1e-6."""
    seen = []
    cg(a, right, rtol=1e-6, M=preconditioner, callback=lambda _: seen.append(1), maxiter=5000)
    return len(seen)


def with_pressure(body: Body, shear_part: sp.csr_matrix, bulk: float) -> LinearOperator:
    """P⁻¹ of the module's formula."""
    blocks, rows = inverse_blocks(shear_part), dilatation_rows(body)
    volume = body.cells.volume_table_m3[body.cells.gradient_index]
    solve = factorise((rows @ blocks @ rows.T + sp.diags(volume / bulk)).tocsc())

    def apply(r: np.ndarray) -> np.ndarray:
        z = blocks @ r
        return z - blocks @ (rows.T @ solve(rows @ z))

    return LinearOperator(shear_part.shape, apply, dtype=np.float64)


def iterations(before: Settings, chosen: Settings) -> list[dict]:
    """A sphere of 12 cells, 50 kPa, under gravity and small random forces: iterations over ν and the step, printed."""
    out = []
    for step_s in (0.005, 0.02):
        found: dict[str, list[int]] = {
            "full, block-Jacobi": [],
            "chosen, block-Jacobi": [],
            "chosen, with pressure": [],
        }
        for poissons_ratio in RATIOS:
            lam, mu = lame(YOUNG, poissons_ratio)
            for settings, name in ((before, "full"), (chosen, "chosen")):
                body = settings.body(Sphere(0.05, (0.001, 0.002, 0.003)), 0.1 / 12)
                m = mass(body, DENSITY, settings.consistent)
                right = m @ np.tile([0.0, -9.81, 0.0], body.node_count)
                right += 1e-4 * np.random.default_rng(0).normal(size=len(right))
                a = (4 * m / step_s**2 + stiffness(body, settings.law, lam, mu)).tocsr()
                found[f"{name}, block-Jacobi"].append(count(a, right, inverse_blocks(a)))
            shear_part = (4 * m / step_s**2 + stiffness(body, settings.law, -2 * mu / 3, mu)).tocsr()
            found["chosen, with pressure"].append(count(a, right, with_pressure(body, shear_part, lam + 2 * mu / 3)))
        for name, numbers in found.items():
            print(f"    steps of {1e3 * step_s:g} ms, {name:24s} at ν {RATIOS}: {numbers}", flush=True)
            out.append({"step_s": step_s, "name": name, "nu": RATIOS, "iterations": numbers})
    return out


def package_steps(settings: Settings, cells: int = 12, steps: int = 20) -> list[dict]:
    """Iterations and milliseconds of the package's steps of 20 ms, the fastest of some, over ν, printed: a sphere
    clamped at one side and let go under gravity."""
    body = settings.body(Sphere(0.05, (0.001, 0.002, 0.003)), 0.1 / cells)
    model = build_model(body, theta_scheme(0.02), fixed=[FixedRegion(Box((0.03, 0.2, 0.2), (-0.05, 0.0, 0.0)))])
    out = []
    for poissons_ratio in RATIOS:
        simulation = Simulation(model, Parameters(YOUNG, poissons_ratio, DENSITY))
        state, seconds, iterations = simulation.initial_state(), [], []
        for _ in range(steps):
            start = perf_counter()
            state, report = simulation.step(state)
            if not report.retaken_parts:
                seconds.append(perf_counter() - start)
                iterations.append(report.solve.iterations)
        out.append({"nu": poissons_ratio, "milliseconds": 1e3 * min(seconds), "iterations": float(np.mean(iterations))})
        numbers = f"{out[-1]['iterations']:5.0f} iterations, {out[-1]['milliseconds']:6.1f} ms"
        print(f"    the package, {body.node_count} nodes, ν {poissons_ratio:g}: {numbers}", flush=True)
    return out
