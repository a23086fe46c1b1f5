"""The GPU's solver for many right-hand sides of one matrix."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.physics.step import Simulation

pytestmark = pytest.mark.gpu


@pytest.fixture
def system(make_scene, cuda):
    sim = Simulation(*make_scene("moving"), cuda)
    return sim, sim.linearise(sim.initial_state()).system


@pytest.mark.parametrize("columns", [1, 5, 18, 32, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_are_solved(cuda, system, columns, dtype):
    """A x = b on the free nodes for every column, of very different sizes; held nodes act and stay; bits repeat."""
    from soft_estimator.backends.cuda.columns import ColumnSolver

    sim, lin = system
    rng = np.random.default_rng(columns)
    tolerance = 1e-10 if dtype == np.float64 else 1e-5
    b = rng.normal(size=(columns, *sim.device.zero.shape)) * np.geomspace(1e-6, 1e6, columns)[:, None, None]
    start = rng.normal(size=b.shape) * 1e-3
    blocks, inverse, free, rhs = (cuda.to_device(x, dtype) for x in (lin.blocks, lin.inverse, lin.free, b))
    solver = ColumnSolver(lin.row_start, lin.column, free, columns, dtype)
    runs = []
    for _ in range(2):
        x, report = cuda.to_device(start, dtype).copy(), cuda.xp.zeros((columns, 3))
        solver.solve(blocks, inverse, rhs, x, tolerance, 2000, report)
        runs.append((cuda.to_host(x), cuda.to_host(report)))
    assert np.array_equal(runs[0][0], runs[1][0]) and np.array_equal(runs[0][1], runs[1][1])
    x, report = runs[0]
    held = cuda.to_host(free) == 0
    assert held.any() and np.array_equal(x[:, held], start.astype(dtype)[:, held])
    assert (report[:, 2] == 0).all() and (report[:, 1] <= 2 * tolerance).all() and (report[:, 0] > 5).all()
    matrix = lin.to_scipy(cuda)
    still = np.where(held[None, :, None], start, 0.0)
    for j in range(columns):
        base = np.linalg.norm((b[j].ravel() - matrix @ still[j].ravel()).reshape(-1, 3)[~held])
        left = (b[j].ravel() - matrix @ x[j].astype(float).ravel()).reshape(-1, 3)[~held]
        assert np.linalg.norm(left) <= 10 * tolerance * base


def test_columns_that_fail_or_need_nothing(cuda, system):
    """A zero column is solved by zero, NaN breaks down at once, too few iterations are said; the others go on."""
    from soft_estimator.backends.cuda.columns import ColumnSolver

    sim, lin = system
    b = np.random.default_rng(0).normal(size=(4, *sim.device.zero.shape))
    b[1], b[2, np.nonzero(cuda.to_host(lin.free))[0][5]] = 0.0, np.nan
    solver = ColumnSolver(lin.row_start, lin.column, lin.free, 4, np.float64)
    x, report = cuda.xp.zeros_like(cuda.to_device(b)), cuda.xp.zeros((4, 3))
    solver.solve(lin.blocks, lin.inverse, cuda.to_device(b), x, 1e-10, 2000, report)
    assert cuda.to_host(report)[:, 2].tolist() == [0, 0, 2, 0]
    assert not cuda.to_host(x)[1].any() and np.isfinite(cuda.to_host(x)[[0, 1, 3]]).all()
    x[...] = 0
    solver.solve(lin.blocks, lin.inverse, cuda.to_device(b), x, 1e-10, 3, report)
    assert cuda.to_host(report)[[0, 3], 2].tolist() == [1, 1]
