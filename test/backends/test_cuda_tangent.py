"""Whole tangent steps on the GPU and the solver for many right-hand sides."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from soft_estimator.physics.fused import FusedSimulation
from soft_estimator.physics.fused_tangent import FusedTangent
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent

pytestmark = pytest.mark.gpu

NAMES = [
    *(("youngs_modulus_pa", 0), ("youngs_modulus_pa", 1), ("poissons_ratio", None), ("density_kg_m3", None)),
    *(("mass_damping_per_s", None), ("stiffness_damping_s", None), ("gravity_m_s2", 1), ("plane_normal", 0)),
    *(("plane_offset_m", None), ("translation_m", 2), ("rotation_rad", 0), ("velocity_m_s", 1)),
    ("angular_velocity_rad_s", 2),
]


@pytest.fixture(scope="module")
def cuda():
    from soft_estimator.backends.cuda import load_cuda_backend

    return load_cuda_backend()


@pytest.mark.parametrize("kind", ["theta", "theta contact", "moving", "held", "contact", "explicit"])
def test_tangent_of_every_parameter(cuda, make_scene, kind):
    """∂(state)/∂(parameter) after some steps, all parameters at once: the CPU's to 1e-7."""
    model, parameters = make_scene(kind)
    directions = [ParameterGradient.unit(2, *name) for name in NAMES]
    cpu = Simulation(model, parameters)
    plain, state = Tangent(cpu, directions), cpu.initial_state()
    want = plain.initial()
    for _ in range(4):
        after, _, lin = cpu.step_keeping(state)
        want, _ = plain.step(state, after, lin, want)
        assert not after.calmed
        state = after
    fused = FusedSimulation(model, parameters, cuda)
    tangent = FusedTangent(fused, directions)
    states, _ = fused.roll(fused.initial_state(), 4)
    got = tangent.initial()
    for before, after in pairwise(states):
        got = tangent.step(before, after, got)
    assert tangent.settled()
    for name, a, b in zip(NAMES, got, want):
        for part in ("u", "v", "a"):
            x, y = cuda.to_host(getattr(a, part)), getattr(b, part)
            assert np.linalg.norm(x - y) <= 1e-7 * np.linalg.norm(y) + 1e-14, (name, part)


def test_other_parameters_on_the_same_arrays(cuda, make_scene):
    """`renewed` gives the states of a simulation built anew."""
    from dataclasses import replace

    model, parameters = make_scene("contact")
    other = replace(parameters, poissons_ratio=0.3, translation_m=np.array([0.0, 0.01, 0.0]))
    renewed = FusedSimulation(model, parameters, cuda).renewed(other)
    fresh = FusedSimulation(model, other, cuda)
    a, b = (cuda.to_host(s.roll(s.initial_state(), 3)[0][-1].u) for s in (renewed, fresh))
    assert np.array_equal(a, b)


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
    b = rng.normal(size=(columns, *sim.zero.shape)) * np.geomspace(1e-6, 1e6, columns)[:, None, None]
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
    b = np.random.default_rng(0).normal(size=(4, *sim.zero.shape))
    b[1], b[2, np.nonzero(cuda.to_host(lin.free))[0][5]] = 0.0, np.nan
    solver = ColumnSolver(lin.row_start, lin.column, lin.free, 4, np.float64)
    x, report = cuda.xp.zeros_like(cuda.to_device(b)), cuda.xp.zeros((4, 3))
    solver.solve(lin.blocks, lin.inverse, cuda.to_device(b), x, 1e-10, 2000, report)
    assert cuda.to_host(report)[:, 2].tolist() == [0, 0, 2, 0]
    assert not cuda.to_host(x)[1].any() and np.isfinite(cuda.to_host(x)[[0, 1, 3]]).all()
    x[...] = 0
    solver.solve(lin.blocks, lin.inverse, cuda.to_device(b), x, 1e-10, 3, report)
    assert cuda.to_host(report)[[0, 3], 2].tolist() == [1, 1]


def test_changes_far_below_single_precision(cuda, make_scene):
    """Far above the ground a shift of the plane changes forces by 1e-20 N or less, whose squares vanish in single
    precision: the loose solves settle all the same, and agree with the tight ones to their tolerance's order."""
    from dataclasses import replace

    model, parameters = make_scene("theta contact")
    parameters = replace(parameters, translation_m=np.array([0.0, 0.08, 0.0]), velocity_m_s=np.zeros(3))
    fused = FusedSimulation(model, parameters, cuda)
    direction = [ParameterGradient.unit(2, "plane_offset_m")]
    states, _ = fused.roll(fused.initial_state(), 2)
    ends = []
    for tolerance in (1e-3, 1e-10):
        tangent = FusedTangent(fused, direction, tolerance)
        change = tangent.initial()
        for before, after in pairwise(states):
            change = tangent.step(before, after, change)
        assert tangent.settled()
        ends.append(cuda.to_host(change.u[0]))
    assert 0 < np.abs(ends[1]).max() < 1e-15
    assert np.linalg.norm(ends[0] - ends[1]) <= 3e-3 * np.linalg.norm(ends[1])
