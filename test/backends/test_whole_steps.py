"""Whole trajectories and gradients: loop by loop through the plain classes, and by whole steps, against the CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from soft_estimator.parameters import REGISTRY
from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.fused import FusedBatch, FusedSimulation
from soft_estimator.physics.fused_adjoint import FusedAdjoint
from soft_estimator.physics.fused_guard import failed
from soft_estimator.physics.gradient import ParameterGradient, shifted
from soft_estimator.physics.solver import SolverError, SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent

KINDS = ["theta", "theta moving", "theta contact", "held", "moving", "contact", "explicit"]
STEPS = 4


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
    for name in REGISTRY.names():
        a, b = np.asarray(getattr(got, name)), np.asarray(getattr(want, name))
        assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b), name


@pytest.mark.parametrize("kind", KINDS)
def test_trajectory_and_gradient(whole, rounding, make_whole_scene, kind):
    """CPU, the other backend loop by loop and in whole steps: the same states and the same gradient by every
    parameter."""
    model, parameters = make_whole_scene(kind)
    cpu, plain = Simulation(model, parameters), Simulation(model, parameters, whole)
    fused = FusedSimulation(model, parameters, whole)
    want, w = plain_states(cpu), weights(model.body)
    stepped = plain_states(plain)
    rolled, reports = fused.roll(fused.initial_state(), STEPS)
    assert not any(report.rescued for report in reports) and reports[0].iterations > 5
    same_states(stepped, want, plain, rounding)
    same_states(rolled, want, fused, rounding)
    by_cpu = gradient(Adjoint(cpu), want, w)
    same_gradient(gradient(Adjoint(plain), stepped, w), by_cpu, rounding)
    same_gradient(gradient(FusedAdjoint(fused), rolled, w), by_cpu, rounding)


@pytest.mark.parametrize("kind", ["moving", "contact"])
def test_tangent_loop_by_loop(whole, rounding, make_whole_scene, kind):
    """The tangent along four directions is the CPU's."""
    model, parameters = make_whole_scene(kind)
    unit = ParameterGradient.unit
    names = [("youngs_modulus_pa", 1), ("poissons_ratio", None), ("plane_offset_m", None), ("rotation_rad", 0)]
    results = []
    for sim in (Simulation(model, parameters), Simulation(model, parameters, whole)):
        tangent = Tangent(sim, [unit(2, *name) for name in names])
        state, changes = sim.initial_state(), tangent.initial()
        for _ in range(3):
            after, _, lin = sim.step_keeping(state)
            changes, _ = tangent.step(state, after, lin, changes)
            state = after
        results.append([sim.backend.to_host(t.u) for t in changes])
    for a, b in zip(*results):
        assert np.linalg.norm(a - b) <= rounding * max(np.linalg.norm(b), 1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_again(whole, make_whole_scene, dtype):
    """Two runs of the same steps and of their adjoint agree to the bit."""
    model, parameters = make_whole_scene("contact", dtype, 1e-6)
    runs = []
    for _ in range(2):
        fused = FusedSimulation(model, parameters, whole)
        states, _ = fused.roll(fused.initial_state(), STEPS)
        g = gradient(FusedAdjoint(fused), states, weights(model.body, dtype))
        runs.append((fused.backend.to_host(states[-1].u), *g.values.values()))
    assert all(np.array_equal(a, b) for a, b in zip(*runs))


@pytest.mark.parametrize("kind", ["moving", "theta contact"])
def test_batch_equals_single_runs(whole, make_whole_scene, kind):
    """Three parameter sets at once: each as if it ran alone (other row ranges in the solver's sums: 1e-9)."""
    model, base = make_whole_scene(kind)
    direction = ParameterGradient.zero(2)
    direction.youngs_modulus_pa[:] = (4e3, -7e3)
    direction.poissons_ratio, direction.density_kg_m3, direction.plane_offset_m = 0.03, 50.0, 0.002
    direction.rotation_rad[:] = (0.05, 0.0, -0.02)
    sets = [shifted(base, direction, amount) for amount in (0.0, 1.0, -0.5)]
    batch = FusedBatch(model, sets, whole)
    roll, w = batch.roll(batch.initial(), STEPS), weights(model.body)
    at = [[whole.to_device(np.repeat(x[k][None], 3, axis=0)) for x in w] for k in range(STEPS + 1)]
    gradients, report = batch.roll_back(roll, lambda k: (*at[k], None))
    assert not any(failed(row) for row in whole.to_host(report).reshape(-1, 3))
    for j, parameters in enumerate(sets):
        fused = FusedSimulation(model, parameters, whole)
        states, _ = fused.roll(fused.initial_state(), STEPS)
        same_states(roll.states(j), states, fused, 1e-9)
        same_gradient(gradients[j], gradient(FusedAdjoint(fused), states, w), 1e-8)


@pytest.mark.gpu
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


def test_failed_solve_is_rescued(whole, rounding, make_whole_scene):
    """With two iterations allowed every solve fails; the roll then takes the plain step, which solves directly."""
    model, parameters = make_whole_scene("held")
    hasty = FusedSimulation(replace(model, solver=SolverSettings(1e-10, 2)), parameters, whole)
    states, reports = hasty.roll(hasty.initial_state(), 2)
    assert all(report.rescued for report in reports)
    want = Simulation(model, parameters)
    state = want.initial_state()
    for _ in range(2):
        state, _ = want.step(state)
    same_states([states[-1]], [state], hasty, rounding)


def test_failed_solve_of_the_adjoint_is_told(whole, make_whole_scene):
    """The whole-step adjoint cannot rescue a solve: it says so, and the plain one can."""
    model, parameters = make_whole_scene("held")
    fused = FusedSimulation(model, parameters, whole)
    states, _ = fused.roll(fused.initial_state(), STEPS)
    hasty = FusedSimulation(replace(model, solver=SolverSettings(1e-10, 2)), parameters, whole)
    with pytest.raises(SolverError, match=r"a solve of the adjoint stopped at a relative residual of .* plain Adjoint"):
        gradient(FusedAdjoint(hasty), states, weights(model.body))
    same_gradient(
        gradient(Adjoint(hasty), states, weights(model.body)),
        gradient(Adjoint(fused), states, weights(model.body)),
        1e-7,
    )
