"""Steps that are taken again, in parts or by backward Euler, are found among whole steps and taken as on the CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from soft_estimator.physics import guard
from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.energy import balance
from soft_estimator.physics.fused import FusedSimulation
from soft_estimator.physics.fused_adjoint import FusedAdjoint
from soft_estimator.physics.fused_guard import held_energy
from soft_estimator.physics.fused_tangent import FusedTangent
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent

STEPS = 6


def wild(make_whole_scene, kind):
    """A soft torus that spins 120 radians a second and meets the plane: some of the first steps are taken again."""
    model, parameters = make_whole_scene(kind, tolerance=1e-12)
    spin = np.array([0.0, 120.0, 0.0])
    return model, replace(parameters, angular_velocity_rad_s=spin, youngs_modulus_pa=np.array([3e3, 6e3]))


@pytest.mark.parametrize("parts", [(), guard.OWN_PARTS], ids=["backward Euler", "own scheme"])
@pytest.mark.parametrize("kind", ["contact", "explicit"])
def test_steps_that_are_taken_again(whole, make_whole_scene, kind, parts, monkeypatch):
    """The same steps are, by their own scheme or, where that may take no parts, by backward Euler; states, gradient and
    tangent come out as on the CPU (1e-6: a wild motion carries rounding further than a tame one)."""
    monkeypatch.setattr(guard, "OWN_PARTS", parts)
    model, parameters = wild(make_whole_scene, kind)
    cpu, fused = Simulation(model, parameters), FusedSimulation(model, parameters, whole)
    direction = ParameterGradient.unit(2, "poissons_ratio")
    states, tangent = [cpu.initial_state()], Tangent(cpu, [direction])
    changes = tangent.initial()
    for _ in range(STEPS):
        after, _, lin = cpu.step_keeping(states[-1])
        changes, _ = tangent.step(states[-1], after, lin, changes)
        states.append(after)
    rolled, _ = fused.roll(fused.initial_state(), STEPS)
    for mark in ("fallback_parts", "substeps", "retaken_parts"):
        assert [getattr(s, mark) for s in rolled] == [getattr(s, mark) for s in states]
    assert any(s.retaken_parts for s in states) and not all(s.retaken_parts for s in states[1:])
    assert any(s.retaken_parts and not s.fallback_parts for s in states) is bool(parts)
    assert np.linalg.norm(whole.to_host(rolled[-1].u) - states[-1].u) <= 1e-6 * np.linalg.norm(states[-1].u)
    by_tangent = FusedTangent(fused, [direction])
    moved = by_tangent.through(rolled, by_tangent.initial())[-1].u[0]
    assert np.linalg.norm(whole.to_host(moved) - changes[0].u) <= 1e-5 * np.linalg.norm(changes[0].u)
    gradients = []
    for adjoint, path in ((Adjoint(cpu), states), (FusedAdjoint(fused), rolled)):
        bar = adjoint.zero_state()
        for before, after in zip(path[-2::-1], path[:0:-1]):
            bar.u += after.u
            bar, _ = adjoint.step_back(before, after, bar)
        gradients.append(adjoint.finish(bar).youngs_modulus_pa)
    assert np.linalg.norm(gradients[1] - gradients[0]) <= 1e-5 * np.linalg.norm(gradients[0])


@pytest.mark.parametrize("kind", ["moving", "contact", "explicit", "theta contact"])
def test_sums_are_the_energies(whole, make_whole_scene, kind):
    """The guard's sums of a step are what `balance` and the step's report say: energies, work on held nodes."""
    model, parameters = make_whole_scene(kind)
    fused = FusedSimulation(model, parameters, whole)
    fused.batch.serve(fused)
    roll = fused.batch.roll([fused.initial_state()], 2)
    sums, states = whole.to_host(roll.guard)[:, 0], roll.states()
    plain, mass_kg = Simulation(model, parameters, whole), parameters.density_kg_m3 * model.body.node_volume_m3.sum()
    for row, state in zip(sums, states):
        want = balance(plain, state)
        got = row[[2, 0, 5]]
        assert np.allclose(got, [want.kinetic_j, want.elastic_j, want.contact_j], rtol=1e-9, atol=1e-12)
        assert row[3] == pytest.approx(want.gravity_j + want.load_j, rel=1e-9)
        assert held_energy(plain, row, mass_kg).drift_j == pytest.approx(want.drift_j, rel=1e-9)
    _, report = plain.step(states[0])
    assert sums[1, 4] == pytest.approx(report.work_j, rel=1e-6, abs=1e-12)
    assert (report.work_j != 0) == (kind == "moving")
