"""The coarse level of the preconditioner on the GPU: its matrix, its solves, and when it is used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from soft_estimator.physics.coarse import coarse_grid
from soft_estimator.physics.fused import FusedSimulation
from soft_estimator.physics.step import Simulation

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cuda():
    from soft_estimator.backends.cuda import load_cuda_backend

    return load_cuda_backend()


@pytest.fixture
def system(make_scene, cuda):
    """A stiff step's matrix with held nodes, the coarse grid of its body, and a maker of the coarse level."""
    from soft_estimator.backends.cuda.coarse import CudaCoarse

    model, parameters = make_scene("moving")
    sim = Simulation(model, replace(parameters, youngs_modulus_pa=100 * parameters.youngs_modulus_pa), cuda)
    lin, body = sim.linearise(sim.initial_state()).system, model.body
    place = np.stack(np.unravel_index(body.node_index, body.grid.shape), axis=1)
    grid = coarse_grid(place, model.dirichlet.free, 100)

    def make(dtype):
        arrays = {"row_start": lin.row_start, "column": lin.column, "slot": sim.device.slot}
        return CudaCoarse(vars(grid), {**arrays, "free": cuda.to_device(lin.free, dtype)}, dtype)

    return lin, grid, make


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inverse_of_the_galerkin_matrix(cuda, system, dtype):
    """(Pᵀ A P)⁻¹ with the diagonal raised by 1e-6, rounded to single precision; symmetric to the bit.

    In single precision A and A P are rounded to 6e-8, times a condition number below 1e4."""
    lin, grid, make = system
    coarse = make(dtype)
    coarse.refresh(cuda.to_device(lin.blocks, dtype))
    got = cuda.to_host(coarse.inverse)
    assert np.array_equal(got, got.T)
    n = len(grid.place)
    scalar = sp.csr_matrix((grid.weight.ravel(), (np.repeat(np.arange(n), 8), grid.parent.ravel())), (n, grid.count))
    prolong = sp.kron(scalar, sp.identity(3)).tocsr()
    matrix = (prolong.T @ lin.to_scipy(cuda) @ prolong).toarray()
    want = np.linalg.inv(matrix + 1e-6 * np.diag(matrix.diagonal()))
    assert np.abs(got - want).max() <= (1e-6 if dtype == np.float64 else 1e-3) * np.abs(want).max()


@pytest.fixture(params=["resident", "streamed"])
def of_one_system(request, monkeypatch):
    """A maker of a solver without the coarse level and with it, for bodies that fit in shared memory or do not."""
    from soft_estimator.backends.cuda import linear
    from soft_estimator.backends.cuda.coarse_solver import ResidentCoarseSolver, StreamedCoarseSolver

    if request.param == "streamed":
        monkeypatch.setattr(linear, "_RESIDENT_SHARE", 1e9)
    kind = {"resident": ResidentCoarseSolver, "streamed": StreamedCoarseSolver}[request.param]

    def make(lin, free, coarse):
        plain = linear.BatchSolver(lin.row_start, lin.column, free, 1, free.dtype)
        assert plain.plan.function == f"conjugate_gradient_{request.param}"
        second = kind(plain, coarse, [0.0] * 5, 1.0)
        second.used = True
        return plain, second

    return make


@pytest.mark.parametrize("columns", [0, 1, 5, 18, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_solution_in_fewer_iterations(cuda, system, columns, dtype, of_one_system):
    """A x = b on the free nodes, with and without the coarse level; held nodes stay; bits repeat. 0: one system."""
    from soft_estimator.backends.cuda.columns import ColumnSolver

    lin, _, make = system
    coarse, rng, count = make(dtype), np.random.default_rng(columns), max(1, columns)
    tolerance = 1e-10 if dtype == np.float64 else 1e-4
    n = len(cuda.to_host(lin.free))
    b = rng.normal(size=(count, n, 3)) * np.geomspace(1e-3, 1e3, count)[:, None, None]
    start = rng.normal(size=b.shape) * 1e-6
    blocks, inverse, free, rhs = (cuda.to_device(x, dtype) for x in (lin.blocks, lin.inverse, lin.free, b))
    if columns:
        solver = ColumnSolver(lin.row_start, lin.column, free, columns, dtype)
        coarse.refresh(blocks)
        solvers = [lambda *a: solver.solve(*a), *[lambda *a: solver.solve(*a, coarse)] * 2]
    else:
        plain, second = of_one_system(lin, free, coarse)
        solvers = [plain.solve, second.solve, second.solve]
    runs = []
    for solve in solvers:
        x, report = cuda.to_device(start, dtype).copy(), cuda.xp.zeros((count, 3))
        solve(blocks, inverse, rhs, x, tolerance, 4000, report)
        runs.append((cuda.to_host(x), cuda.to_host(report)))
    assert all(np.array_equal(a, b) for a, b in zip(runs[1], runs[2]))
    (_, before), (x, report) = runs[:2]
    assert (report[:, 2] == 0).all() and (report[:, 1] <= 2 * tolerance).all()
    assert (report[:, 0] < 0.7 * before[:, 0]).all(), (report[:, 0], before[:, 0])
    held, matrix = cuda.to_host(free) == 0, lin.to_scipy(cuda)
    assert np.array_equal(x[:, held], start.astype(dtype)[:, held])
    for j in range(count):
        still = np.where(held[:, None], start[j], 0.0)
        base = np.linalg.norm((b[j].ravel() - matrix @ still.ravel()).reshape(-1, 3)[~held])
        left = (b[j].ravel() - matrix @ x[j].astype(float).ravel()).reshape(-1, 3)[~held]
        assert np.linalg.norm(left) <= 20 * tolerance * base


def test_breakdown_is_said(cuda, system, of_one_system):
    """NaN in a right-hand side or in the matrix ends the solve with a status, not in an endless wait."""
    lin, _, make = system
    _, solver = of_one_system(lin, lin.free, make(np.float64))
    n = len(cuda.to_host(lin.free))
    for where in ("rhs", "matrix"):
        b, blocks = cuda.xp.ones((1, n, 3)), lin.blocks.copy()
        (b if where == "rhs" else blocks)[..., 0] = np.nan
        x, report = cuda.xp.zeros_like(b), cuda.xp.zeros((1, 3))
        solver.solve(blocks, lin.inverse, b, x, 1e-8, 100, report)
        assert cuda.to_host(report)[0, 2] == 2


@pytest.mark.parametrize("stiffer, used", [(1.0, False), (100.0, True)])
def test_steps(cuda, make_scene, stiffer, used):
    """Used for stiff bodies only; the trajectory is the CPU's to 1e-7, and the same to the bit after other solves."""
    model, parameters = make_scene("theta held")
    parameters = replace(parameters, youngs_modulus_pa=stiffer * parameters.youngs_modulus_pa)
    sim = FusedSimulation(model, parameters, cuda)
    assert sim.batch.stepper.coarse.used == used
    states, _ = sim.roll(sim.initial_state(), 3)
    again, _ = sim.renewed(parameters).roll(sim.initial_state(), 3)
    assert np.array_equal(cuda.to_host(states[-1].u), cuda.to_host(again[-1].u))
    cpu = Simulation(model, parameters)
    state = cpu.initial_state()
    for _ in range(3):
        state, _ = cpu.step(state)
    assert np.linalg.norm(cuda.to_host(states[-1].u) - state.u) <= 1e-7 * np.linalg.norm(state.u)
