"""The persistent conjugate gradient kernel: right, the same to the bit, and honest about failure."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.physics.step import Simulation

pytestmark = pytest.mark.gpu

CONVERGED, LIMIT, BREAKDOWN = 0, 1, 2


@pytest.fixture
def system(make_scene):
    """Matrix of a step with held nodes, on the host, and a right-hand side."""
    sim = Simulation(*make_scene("moving"))
    lin = sim.linearise(sim.initial_state()).system
    rhs = np.random.default_rng(0).normal(size=sim.device.zero.shape)
    return lin, rhs


def solve(backend, lin, b, x, tolerance=1e-10, limit=2000, dtype=np.float64, name="conjugate_gradient"):
    real = [backend.to_device(a, dtype) for a in (lin.blocks, lin.inverse, b, x, lin.free)]
    pattern = [backend.to_device(a) for a in (lin.row_start, lin.column)]
    outcome = getattr(backend, name)(*pattern, *real, tolerance, limit)
    return backend.to_host(real[3]), outcome


def test_solution_held_nodes_and_iterations(cuda, system):
    """A x = b on the free nodes; held nodes keep their values and act through A. Iterations as on the CPU, give or
    take the rounding of the last ones."""
    lin, b = system
    start = np.random.default_rng(1).normal(size=b.shape) * 1e-3
    (x, outcome), (want, cpu) = (solve(backend, lin, b, start) for backend in (cuda, CpuBackend()))
    held = lin.free == 0
    assert held.any() and np.array_equal(x[held], start[held])
    assert outcome[2] == CONVERGED and outcome[1] <= 2e-10
    assert abs(outcome[0] - cpu[0]) <= 3
    residual = np.empty_like(b)
    CpuBackend.multiply(lin.row_start, lin.column, lin.blocks, x, residual)
    assert np.linalg.norm((residual - b)[~held]) <= 1e-8 * np.linalg.norm(b)
    assert np.linalg.norm(x - want) <= 1e-7 * np.linalg.norm(want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_again(cuda, system, dtype):
    lin, b = system
    first, second = (solve(cuda, lin, b, np.zeros_like(b), 1e-6, dtype=dtype) for _ in range(2))
    assert np.array_equal(first[0], second[0]) and first[1] == second[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_streamed_and_resident_agree(cuda, system, dtype, monkeypatch):
    """The variant for large systems, forced on a small one: the same solution to what the tolerance leaves open."""
    from soft_estimator.backends.cuda import linear

    lin, b = system
    want, _ = solve(cuda, lin, b, np.zeros_like(b), 1e-5, dtype=dtype)
    for limit in (1e9, 0.1):  # nothing in shared memory; a tenth of the matrix in shared memory and the rest outside
        monkeypatch.setattr(linear, "_RESIDENT_SHARE", limit)
        monkeypatch.setattr(linear, "_LARGEST_ROOM", 300)
        linear._SOLVERS.clear()
        got, outcome = solve(cuda, lin, b, np.zeros_like(b), 1e-5, dtype=dtype)
        assert outcome[2] == CONVERGED
        assert np.linalg.norm(got - want) <= 1e-3 * np.linalg.norm(want)
    linear._SOLVERS.clear()


def test_many_right_hand_sides(cuda, system):
    lin, _ = system
    b = np.random.default_rng(2).normal(size=(len(lin.free), 3, 5))
    x, outcome = solve(cuda, lin, b, np.zeros_like(b), name="conjugate_gradient_many")
    assert outcome[2] == CONVERGED
    for j in range(5):
        one, _ = solve(cuda, lin, np.ascontiguousarray(b[:, :, j]), np.zeros_like(b[:, :, j]))
        assert np.linalg.norm(x[:, :, j] - one) <= 1e-8 * np.linalg.norm(one)


def test_solvers_take_turns(cuda, system):
    """A solver that takes less shared memory does not take it from another one of the same kernel: after it has run,
    the other still gives the bits that it gave before."""
    from soft_estimator.backends.cuda.linear import BatchSolver

    lin, b = system
    pattern = [cuda.to_device(x) for x in (lin.row_start, lin.column, lin.free)]
    matrix, rhs = [cuda.to_device(x) for x in (lin.blocks, lin.inverse)], cuda.to_device(np.stack([b] * 8))

    def run(solver, systems=8):
        x = cuda.xp.zeros_like(rhs[:systems])
        solver.solve(*matrix, rhs[:systems], x, 1e-8, 2000)
        return cuda.to_host(x)

    large = BatchSolver(*pattern, 8, np.float64, shared_matrix=True)
    want = run(large)
    small = BatchSolver(*pattern, 3, np.float64, shared_matrix=True)
    assert large.plan.function == small.plan.function and large.plan.shared_bytes > small.plan.shared_bytes > 48 * 1024
    assert run(small, 3).any() and want.any() and np.array_equal(run(large), want)


def test_zero_right_hand_side(cuda, system):
    lin, b = system
    x, outcome = solve(cuda, lin, np.zeros_like(b), np.where(lin.free[:, None] > 0, np.ones_like(b), 0.0))
    assert outcome == (0, 0.0, CONVERGED) and not x.any()


def test_failures_are_reported(cuda, system):
    """An indefinite matrix breaks down, NaN breaks down at once, and too few iterations are said to be too few."""
    lin, b = system
    negative = type(lin)(lin.row_start, lin.column, -lin.blocks, lin.inverse, lin.free)
    assert solve(cuda, negative, b, np.zeros_like(b))[1][2] == BREAKDOWN
    assert solve(cuda, lin, b, np.zeros_like(b), limit=3)[1][2] == LIMIT
    poisoned = b.copy()
    poisoned[np.nonzero(lin.free)[0][7], 1] = np.nan
    assert solve(cuda, lin, poisoned, np.zeros_like(b))[1][2] == BREAKDOWN
