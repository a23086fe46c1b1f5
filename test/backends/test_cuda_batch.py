"""Batches solved without their matrices: as if each system ran alone, to the bit again, and honest about failure."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.parameters import REGISTRY
from soft_estimator.physics.fused import FusedBatch, FusedSimulation
from soft_estimator.physics.fused_guard import failed
from soft_estimator.physics.gradient import ParameterGradient, shifted
from soft_estimator.physics.step import Simulation

pytestmark = pytest.mark.gpu

STEPS, SYSTEMS = 6, 9
CONVERGED, LIMIT, BREAKDOWN = 0, 1, 2


def spread(base, count=SYSTEMS):
    """Parameter sets around one, different in all that differs between the systems of a batch."""
    direction = ParameterGradient.zero(2)
    direction.youngs_modulus_pa[:] = (4e3, -7e3)
    direction.poissons_ratio, direction.density_kg_m3, direction.plane_offset_m = 0.03, 50.0, 0.002
    direction.stiffness_damping_s, direction.mass_damping_per_s = 1e-4, 0.1
    direction.rotation_rad[:] = (0.05, 0.0, -0.02)
    return [shifted(base, direction, amount) for amount in np.linspace(-1.0, 1.0, count)]


def of_batch(batch, w):
    """Final states, guard sums and gradients of a batch for a linear cost."""
    roll = batch.roll(batch.initial(), STEPS)
    to = batch.backend.to_device
    systems = len(batch.simulations)
    at = [[to(np.repeat(x[k][None], systems, axis=0)) for x in w] for k in range(STEPS + 1)]
    gradients, report = batch.roll_back(roll, lambda k: (*at[k], None))
    reports = np.concatenate([batch.backend.to_host(x).reshape(-1, 3) for x in (roll.report, report)])
    return roll, gradients, reports


def weights(model, dtype=np.float64):
    return np.random.default_rng(5).normal(size=(2, STEPS + 1, model.body.node_count, 3)).astype(dtype)


@pytest.mark.parametrize("kind", ["held", "moving", "contact", "theta contact", "theta moving", "explicit"])
def test_batch_equals_single_runs(cuda, make_scene, kind):
    """Of nine systems at once three against the same alone, with assembled matrices: states to 1e-8 and gradients to
    1e-7, where the solves' tolerance of 1e-13 and the order of sums leave rounding that the dynamics carry along."""
    model, base = make_scene(kind)
    sets, w = spread(base), weights(model)
    batch = FusedBatch(model, sets, cuda)
    assert type(batch.stepper.solver).__name__ == "CellSolver"
    roll, gradients, reports = of_batch(batch, w)
    assert not any(map(failed, reports)) and reports[:, 0].min() > 5
    guard = cuda.to_host(roll.guard)
    for j in (0, 4, 8):
        parameters = sets[j]
        single = FusedBatch(model, [parameters], cuda)
        alone, (want,), _ = of_batch(single, w)
        for name in ("u", "v", "a"):
            a, b = (cuda.to_host(getattr(x, name))[:, k] for x, k in ((roll, j), (alone, 0)))
            assert np.linalg.norm(a - b) <= 1e-8 * np.linalg.norm(b), name
        for name in REGISTRY.names():
            a, b = np.asarray(getattr(gradients[j], name)), np.asarray(getattr(want, name))
            assert np.linalg.norm(a - b) <= 1e-7 * np.linalg.norm(b), name
        given = cuda.to_host(alone.guard)[:, 0]
        assert np.allclose(guard[:, j], given, rtol=1e-6, atol=1e-9 * np.abs(given).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_again(cuda, make_scene, dtype):
    """Two runs of the same batch and of its adjoint agree to the bit."""
    model, base = make_scene("contact", dtype, 1e-6)
    runs = []
    for _ in range(2):
        roll, gradients, reports = of_batch(FusedBatch(model, spread(base), cuda), weights(model, dtype))
        numbers = [np.ravel(value) for g in gradients for value in g.values.values()]
        runs.append((cuda.to_host(roll.u), np.concatenate(numbers), reports))
    assert all(np.array_equal(a, b) for a, b in zip(*runs))


@pytest.mark.parametrize("count", [5, 16, 37])
def test_any_number_of_systems(cuda, make_scene, count):
    """One launch or several, lanes left over or not: the first and the last system as if alone."""
    model, base = make_scene("moving", np.float64, 1e-11)
    sets = spread(base, count)
    roll = FusedBatch(model, sets, cuda)
    states = roll.roll(roll.initial(), 3)
    for j in (0, count // 2, count - 1):
        fused = FusedSimulation(model, sets[j], cuda)
        alone, _ = fused.roll(fused.initial_state(), 3)
        a, b = cuda.to_host(states.u[-1, j]), cuda.to_host(alone[-1].u)
        assert np.linalg.norm(a - b) <= 1e-7 * np.linalg.norm(b)


def prepared(cuda, make_scene, kind="contact", dtype=np.float64, systems=5):
    """A stepper after a step, with its own solver's arrays and the plain classes' system of each set on the host."""
    model, base = make_scene(kind, dtype)
    sets = spread(base, systems)
    batch = FusedBatch(model, sets, cuda)
    roll = batch.roll(batch.initial(), 1)
    batch.stepper.linearise(roll.at(0), batch.paths(roll.time_s[None, :2])[0])
    systems_on_host = []
    for parameters in sets:
        sim = Simulation(model, parameters)
        systems_on_host.append(sim.linearise(sim.initial_state()).system)
    return batch.stepper, systems_on_host


def solve(cuda, stepper, b, x, tolerance, limit):
    report, x = cuda.to_device(np.full((len(b), 3), -1.0)), cuda.to_device(x)
    given = (stepper.materials, stepper.rotation, stepper.inverse, cuda.to_device(b), x, stepper.touch)
    stepper.solver.solve(*given, tolerance, limit, report)
    return cuda.to_host(x), cuda.to_host(report)


@pytest.mark.parametrize("kind", ["held", "contact"])
def test_product(cuda, make_scene, kind, monkeypatch):
    """Without an iteration r = b - A x is left in the solver's residual, here with nothing in shared memory: with the
    assembled matrix's product to 1e-10, the rounding of some hundred terms of float64."""
    from soft_estimator.backends.cuda import cells

    monkeypatch.setattr(cells, "LARGEST_SHARED", 0)
    stepper, hosts = prepared(cuda, make_scene, kind)
    assert stepper.solver.plan.room == 0
    rng = np.random.default_rng(1)
    b, x = (rng.normal(size=(5, stepper.nodes, 3)) for _ in range(2))
    solve(cuda, stepper, b, x, 1e-10, 0)
    left, order = cuda.to_host(stepper.solver.r), cuda.to_host(stepper.solver.order)[0]
    for lane in range(5):
        j, product = order[lane], np.empty_like(b[0])
        lin = hosts[j]
        CpuBackend.multiply(lin.row_start, lin.column, lin.blocks, x[j], product)
        want = lin.free[:, None] * (b[j] - product)
        assert np.linalg.norm(left[:, :, lane] - want) <= 1e-10 * np.linalg.norm(want)


def test_starts_in_single_precision(cuda, make_scene, monkeypatch):
    """Solves in double precision to the same tolerance of 1e-10, begun in single precision or not: A x = b either way,
    for right-hand sides of 1e-25 to 1e25 too, whose squares single precision does not hold; held nodes stay to the
    bit."""
    from soft_estimator.backends.cuda import cells

    solutions = []
    for first in (True, False):
        monkeypatch.setattr(cells, "SINGLE_FIRST", first)
        stepper, hosts = prepared(cuda, make_scene, "moving")
        assert (stepper.solver.single is not None) == first
        b, x = np.random.default_rng(4).normal(size=(2, 5, stepper.nodes, 3))
        scale = np.geomspace(1e-25, 1e25, 5)[:, None, None]
        solutions.append(solve(cuda, stepper, scale * b, 1e-6 * scale * x, 1e-10, 2000))
        held = cuda.to_host(stepper.arrays["free"]) == 0
        assert held.any() and np.array_equal(solutions[-1][0][:, held], (1e-6 * scale * x)[:, held])
    (x, report), (want, plain) = solutions
    assert (report[:, 2] == CONVERGED).all() and (plain[:, 2] == CONVERGED).all()
    for j, lin in enumerate(hosts):
        assert np.linalg.norm(x[j] - want[j]) <= 1e-6 * np.linalg.norm(want[j])
        product = np.empty_like(b[0])
        CpuBackend.multiply(lin.row_start, lin.column, lin.blocks, x[j] / scale[j], product)
        free = lin.free != 0
        assert np.linalg.norm((product - b[j])[free]) <= 1e-8 * np.linalg.norm(b[j][free])


def test_failures_are_reported_one_by_one(cuda, make_scene):
    """NaN in one system, nothing to solve for in another: the rest converge; too few iterations are said to be so."""
    stepper, _ = prepared(cuda, make_scene, "held")
    free = cuda.to_host(stepper.arrays["free"])
    b = np.random.default_rng(2).normal(size=(5, stepper.nodes, 3))
    b[1, np.nonzero(free)[0][7], 1] = np.nan
    b[3] = 0.0
    x, report = solve(cuda, stepper, b, np.zeros_like(b), 1e-10, 2000)
    assert list(report[:, 2]) == [CONVERGED, BREAKDOWN, CONVERGED, CONVERGED, CONVERGED]
    assert not x[3].any() and report[3, 0] == 0
    b[1] = b[0]
    x, report = solve(cuda, stepper, b, np.zeros_like(b), 1e-10, 3)
    assert list(report[:, 2]) == [LIMIT, LIMIT, LIMIT, CONVERGED, LIMIT]
    assert report[0, 0] == 6  # three in single and three in double precision
