"""Whole trajectories and gradients on the GPU: loop by loop through the plain classes, and fused.

In float64, with solves to 1e-13, the backends differ by rounding that the dynamics carry along: 1e-7 as the issue asks.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.fused import FusedAdjoint, FusedBatch, FusedSimulation, failed
from soft_estimator.physics.gradient import ParameterGradient, shifted
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent

pytestmark = pytest.mark.gpu

KINDS = ["theta", "theta moving", "theta contact", "held", "moving", "contact", "explicit"]
STEPS = 8


@pytest.fixture(scope="module")
def cuda():
    from soft_estimator.backends.cuda import load_cuda_backend

    return load_cuda_backend()


def weights(body, dtype=np.float64):
    """Derivatives of a linear cost Σ_k w_k·u_k + w'_k·v_k."""
    rng = np.random.default_rng(5)
    return rng.normal(size=(2, STEPS + 1, body.node_count, 3)).astype(dtype)


def plain_states(sim):
    states = [sim.initial_state()]
    for _ in range(STEPS):
        states.append(sim.step(states[-1])[0])
    return states


def gradient(adjoint, states, w):
    sim = adjoint.simulation
    bar = adjoint.zero_state()
    for k in range(STEPS, -1, -1):
        bar.u += sim.backend.to_device(w[0, k], sim.model.dtype)
        bar.v += sim.backend.to_device(w[1, k], sim.model.dtype)
        if k:
            bar, _ = adjoint.step_back(states[k - 1], states[k], bar)
    return adjoint.finish(bar)


def same_states(got, want, sim, tolerance):
    for name in ("u", "v", "a"):
        a, b = (np.stack([np.asarray(sim.backend.to_host(getattr(s, name)), float) for s in x]) for x in (got, want))
        assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b), name


def same_gradient(got, want, tolerance):
    for f in fields(ParameterGradient):
        a, b = np.asarray(getattr(got, f.name)), np.asarray(getattr(want, f.name))
        assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b), f.name


@pytest.mark.parametrize("kind", KINDS)
def test_trajectory_and_gradient(cuda, make_scene, kind):
    """CPU, GPU loop by loop and GPU fused give the same states and the same gradient by every parameter."""
    model, parameters = make_scene(kind)
    cpu, plain, fused = Simulation(model, parameters), Simulation(model, parameters, cuda), None
    fused = FusedSimulation(model, parameters, cuda)
    want, w = plain_states(cpu), weights(model.body)
    on_gpu = plain_states(plain)
    rolled, reports = fused.roll(fused.initial_state(), STEPS)
    assert not any(report.rescued for report in reports) and reports[0].iterations > 5
    same_states(on_gpu, want, plain, 1e-7)
    same_states(rolled, want, fused, 1e-7)
    reference = gradient(Adjoint(cpu), want, w)
    same_gradient(gradient(Adjoint(plain), on_gpu, w), reference, 1e-7)
    same_gradient(gradient(FusedAdjoint(fused), rolled, w), reference, 1e-7)


@pytest.mark.parametrize("kind", ["moving", "contact"])
def test_tangent(cuda, make_scene, kind):
    """The tangent along four directions on the GPU is the CPU's."""
    model, parameters = make_scene(kind)
    unit = ParameterGradient.unit
    names = [("youngs_modulus_pa", 1), ("poissons_ratio", None), ("plane_offset_m", None), ("rotation_rad", 0)]
    results = []
    for sim in (Simulation(model, parameters), Simulation(model, parameters, cuda)):
        tangent = Tangent(sim, [unit(2, *name) for name in names])
        state, changes = sim.initial_state(), tangent.initial()
        for _ in range(3):
            after, _, lin = sim.step_keeping(state)
            changes, _ = tangent.step(state, after, lin, changes)
            state = after
        results.append([sim.backend.to_host(t.u) for t in changes])
    for a, b in zip(*results):
        assert np.linalg.norm(a - b) <= 1e-7 * max(np.linalg.norm(b), 1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_again(cuda, make_scene, dtype):
    """Two runs of the same steps and of their adjoint agree to the bit."""
    model, parameters = make_scene("contact", dtype, 1e-6)
    runs = []
    for _ in range(2):
        fused = FusedSimulation(model, parameters, cuda)
        states, _ = fused.roll(fused.initial_state(), STEPS)
        g = gradient(FusedAdjoint(fused), states, weights(model.body, dtype))
        runs.append((fused.backend.to_host(states[-1].u), *(getattr(g, f.name) for f in fields(g))))
    assert all(np.array_equal(a, b) for a, b in zip(*runs))


@pytest.mark.parametrize("kind", ["moving", "theta contact"])
def test_batch_equals_single_runs(cuda, make_scene, kind):
    """Three parameter sets at once: each as if it ran alone (other row ranges in the solver's sums: 1e-9)."""
    model, base = make_scene(kind)
    direction = ParameterGradient.zero(2)
    direction.youngs_modulus_pa[:] = (4e3, -7e3)
    direction.poissons_ratio, direction.density_kg_m3, direction.plane_offset_m = 0.03, 50.0, 0.002
    direction.rotation_rad[:] = (0.05, 0.0, -0.02)
    sets = [shifted(base, direction, amount) for amount in (0.0, 1.0, -0.5)]
    batch = FusedBatch(model, sets, cuda)
    roll, w = batch.roll(batch.initial(), STEPS), weights(model.body)
    at = [[cuda.to_device(np.repeat(x[k][None], 3, axis=0)) for x in w] for k in range(STEPS + 1)]
    gradients, report = batch.roll_back(roll, lambda k: (*at[k], None))
    assert not any(failed(row) for row in cuda.to_host(report).reshape(-1, 3))
    for j, parameters in enumerate(sets):
        fused = FusedSimulation(model, parameters, cuda)
        states, _ = fused.roll(fused.initial_state(), STEPS)
        same_states(roll.states(j), states, fused, 1e-9)
        same_gradient(gradients[j], gradient(FusedAdjoint(fused), states, w), 1e-8)


def test_single_precision_error(cuda, make_scene):
    """float32 against float64: positions to 1e-4 of the motion, gradient by E to 1 %: measured 1e-6 and 1e-4 and
    stated in the README, with room for another device's rounding."""
    results = []
    for dtype in (np.float64, np.float32):
        model, parameters = make_scene("contact", dtype, 1e-6)
        fused = FusedSimulation(model, parameters, cuda)
        states, _ = fused.roll(fused.initial_state(), STEPS)
        g = gradient(FusedAdjoint(fused), states, weights(model.body, dtype))
        results.append((cuda.to_host(states[-1].u).astype(float), g.youngs_modulus_pa))
    (u, young), (u32, young32) = results
    print(
        f"float32 error: u {np.linalg.norm(u32 - u) / np.linalg.norm(u):.1e}, "
        f"dE {np.linalg.norm(young32 - young) / np.linalg.norm(young):.1e}"
    )
    assert np.linalg.norm(u32 - u) <= 1e-4 * np.linalg.norm(u)
    assert np.linalg.norm(young32 - young) <= 1e-2 * np.linalg.norm(young)


def test_failed_solve_is_rescued(cuda, make_scene):
    """With two iterations allowed every solve fails; the roll then takes the plain step, which solves directly."""
    from dataclasses import replace

    from soft_estimator.physics.solver import SolverSettings

    model, parameters = make_scene("held")
    hasty = FusedSimulation(replace(model, solver=SolverSettings(1e-10, 2)), parameters, cuda)
    states, reports = hasty.roll(hasty.initial_state(), 2)
    assert all(report.rescued for report in reports)
    want = Simulation(model, parameters)
    state = want.initial_state()
    for _ in range(2):
        state, _ = want.step(state)
    same_states([states[-1]], [state], hasty, 1e-7)
