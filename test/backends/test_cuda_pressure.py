"""The preconditioner for nearly incompressible bodies on the GPU: its parts, its solves, and when it is used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from backends.test_whole_steps import STEPS, gradient, plain_states, same_gradient, same_states, weights

from soft_estimator.backends.chebyshev import chebyshev_steps
from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.fused import FusedSimulation
from soft_estimator.physics.fused_adjoint import FusedAdjoint
from soft_estimator.physics.step import Simulation

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["float64 resident", "float64 streamed", "float32 resident", "float32 streamed"])
def prepared(request, make_scene, cuda):
    """A step's system at ν = 0.499 on the CPU, with its preconditioner, and the device's own of the same matrix, which
    is kept in shared memory or streamed."""
    from soft_estimator.backends.cuda.linear import BatchSolver
    from soft_estimator.backends.cuda.pressure import PressureSolver

    model, parameters = make_scene("theta held")
    cpu = Simulation(model, replace(parameters, poissons_ratio=0.499))
    system = cpu.linearise(cpu.initial_state()).system
    names, (real, kind) = ("cell_nodes", "node_cells", "row_start", "column", "slot"), request.param.split()
    body = {name: cuda.to_device(getattr(cpu.device, name)) for name in names}
    body["free"] = cuda.to_device(cpu.device.free, real)
    plain = BatchSolver(body["row_start"], body["column"], body["free"], 1, real) if kind == "resident" else None
    solver = PressureSolver(body, chebyshev_steps(9, 2.8, 23.0), real, plain)
    assert ("resident" in solver.plan.function) == (kind == "resident") and solver.fits
    solver.rows[...] = cuda.to_device(system.pressure.cells[0], real)
    blocks = cuda.to_device(system.blocks, real)
    solver.prepare(blocks)
    return cpu, system, solver, blocks


def test_parts(cuda, prepared):
    """D⁻¹ and S are the CPU's, S by the places of neighbours on a lattice there. S is kept in single precision; in
    float32 the diagonal blocks lose up to λ/μ = 500 times 6e-8 to what BᵀB takes off them."""
    cpu, system, solver, _ = prepared
    p, lattice, tolerance = system.pressure, cpu.device.lattice, 1e-6 if solver.real == np.float64 else 1e-3
    inverse, matrix = cuda.to_host(solver.inverse), cuda.to_host(solver.matrix)
    assert np.abs(inverse - p.inverse).max() <= tolerance * np.abs(p.inverse).max()
    want = p.matrix[:, lattice.place].T
    assert np.abs(matrix - want).max() <= tolerance * np.abs(want).max()
    assert np.count_nonzero(want) > 15 * len(want)


def test_same_solution_in_fewer_iterations(cuda, prepared):
    """A x = b on the free nodes: residuals by SciPy's product, a fifth of block-Jacobi's iterations, held nodes stay,
    bits repeat."""
    from soft_estimator.backends.cuda.linear import BatchSolver

    cpu, system, solver, blocks = prepared
    real, rng, free = solver.real, np.random.default_rng(0), solver.body["free"]
    tolerance = 1e-10 if real == np.float64 else 1e-4
    b, start = rng.normal(size=(2, cpu.device.nodes, 3))
    rhs, runs = cuda.to_device(b, real), []
    plain = BatchSolver(solver.body["row_start"], solver.body["column"], free, 1, real)
    diagonal = cuda.to_device(system.inverse, real)
    for way in (lambda *a: plain.solve(blocks, diagonal, *a), *[lambda *a: solver.solve(blocks, *a)] * 2):
        x, report = cuda.to_device(1e-6 * start, real).copy(), cuda.xp.zeros((1, 3))
        way(rhs, x, tolerance, 4000, report)
        runs.append((cuda.to_host(x), cuda.to_host(report)[0]))
    (_, before), (x, report), (again, _) = runs
    assert np.array_equal(x, again) and report[2] == 0 and report[0] < 0.2 * before[0], (report, before)
    held, matrix = cuda.to_host(free) == 0, system.to_scipy(cpu.backend)
    assert held.any() and np.array_equal(x[held], (1e-6 * start).astype(real)[held])
    still = np.where(held[:, None], x, 0.0).astype(float)
    base = np.linalg.norm((b.ravel() - matrix @ still.ravel()).reshape(-1, 3)[~held])
    left = (b.ravel() - matrix @ x.astype(float).ravel()).reshape(-1, 3)[~held]
    assert np.linalg.norm(left) <= 20 * tolerance * base


@pytest.mark.parametrize("where", ["rhs", "matrix"])
def test_breakdown_is_said(cuda, prepared, where):
    """NaN ends the solve with a status, not in an endless wait."""
    cpu, _, solver, blocks = prepared
    b, spoilt = cuda.xp.ones((cpu.device.nodes, 3), solver.real), blocks.copy()
    (b if where == "rhs" else spoilt)[..., 0] = np.nan
    x, report = cuda.xp.zeros_like(b), cuda.xp.zeros((1, 3))
    solver.solve(spoilt, b, x, 1e-8, 100, report)
    assert cuda.to_host(report)[0, 2] == 2


@pytest.mark.parametrize("kind", ["theta held", "moving", "contact"])
@pytest.mark.parametrize("poissons_ratio, used", [(0.45, False), (0.49, True), (0.499, True)])
def test_steps_and_their_adjoint(cuda, make_scene, kind, poissons_ratio, used):
    """Used by nearly incompressible bodies alone. Trajectory and gradient are the CPU's to what solves to 1e-12 leave
    with a condition number of some 1e5 (1e-6); trajectories repeat to the bit."""
    model, parameters = make_scene(kind, tolerance=1e-12)
    parameters = replace(parameters, poissons_ratio=poissons_ratio)
    fused, cpu, w = FusedSimulation(model, parameters, cuda), Simulation(model, parameters), weights(model.body)
    assert fused.batch.stepper.pressures.used == used
    rolled, reports = fused.roll(fused.initial_state(), STEPS)
    assert not any(report.rescued for report in reports)
    again, _ = fused.renewed(parameters).roll(fused.initial_state(), STEPS)
    assert np.array_equal(cuda.to_host(rolled[-1].u), cuda.to_host(again[-1].u))
    states = plain_states(cpu)
    same_states(rolled, states, fused, 1e-6)
    same_gradient(gradient(FusedAdjoint(fused), rolled, w), gradient(Adjoint(cpu), states, w), 1e-5)
