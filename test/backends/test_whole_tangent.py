"""Whole tangent steps against the CPU's tangent."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from soft_estimator.physics.fused import FusedSimulation
from soft_estimator.physics.fused_tangent import FusedTangent
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent

STEPS = 3
NAMES = [
    *(("youngs_modulus_pa", 0), ("youngs_modulus_pa", 1), ("poissons_ratio", None), ("density_kg_m3", None)),
    *(("mass_damping_per_s", None), ("stiffness_damping_s", None), ("gravity_m_s2", 1), ("plane_normal", 0)),
    *(("plane_offset_m", None), ("translation_m", 2), ("rotation_rad", 0), ("velocity_m_s", 1)),
    *(("angular_velocity_rad_s", 2), ("contact_stiffness_pa_per_m", None), ("contact_sharpness_per_m", None)),
]


@pytest.mark.parametrize("kind", ["theta", "theta contact", "moving", "held", "contact", "explicit"])
def test_tangent_of_every_parameter(whole, rounding, make_whole_scene, kind):
    """∂(state)/∂(parameter) after some steps, all parameters at once: the CPU's."""
    model, parameters = make_whole_scene(kind)
    directions = [ParameterGradient.unit(2, *name) for name in NAMES]
    cpu = Simulation(model, parameters)
    plain, state = Tangent(cpu, directions), cpu.initial_state()
    want = plain.initial()
    for _ in range(STEPS):
        after, _, lin = cpu.step_keeping(state)
        want, _ = plain.step(state, after, lin, want)
        assert not after.fallback_parts
        state = after
    fused = FusedSimulation(model, parameters, whole)
    tangent = FusedTangent(fused, directions)
    states, _ = fused.roll(fused.initial_state(), STEPS)
    got = tangent.initial()
    for before, after in pairwise(states):
        got = tangent.step(before, after, got)
    assert tangent.settled()
    for name, a, b in zip(NAMES, got, want):
        for part in ("u", "v", "a"):
            x, y = whole.to_host(getattr(a, part)), getattr(b, part)
            assert np.linalg.norm(x - y) <= rounding * np.linalg.norm(y) + 1e-14, (name, part)


def test_other_parameters_on_the_same_arrays(whole, make_whole_scene):
    """`renewed` gives the states of a simulation built anew."""
    model, parameters = make_whole_scene("contact")
    other = replace(parameters, poissons_ratio=0.3, translation_m=np.array([0.0, 0.01, 0.0]))
    renewed = FusedSimulation(model, parameters, whole).renewed(other)
    fresh = FusedSimulation(model, other, whole)
    a, b = (whole.to_host(s.roll(s.initial_state(), 3)[0][-1].u) for s in (renewed, fresh))
    assert np.array_equal(a, b)


def test_changes_far_below_single_precision(whole, make_whole_scene):
    """Far above the ground a shift of the plane changes forces by 1e-20 N or less, whose squares vanish in single
    precision: the loose solves settle all the same, and agree with the tight ones to their tolerance's order."""
    model, parameters = make_whole_scene("theta contact")
    parameters = replace(parameters, translation_m=np.array([0.0, 0.08, 0.0]), velocity_m_s=np.zeros(3))
    fused = FusedSimulation(model, parameters, whole)
    direction = [ParameterGradient.unit(2, "plane_offset_m")]
    states, _ = fused.roll(fused.initial_state(), 2)
    ends = []
    for tolerance in (1e-3, 1e-10):
        tangent = FusedTangent(fused, direction, tolerance)
        change = tangent.initial()
        for before, after in pairwise(states):
            change = tangent.step(before, after, change)
        assert tangent.settled()
        ends.append(whole.to_host(change.u[0]))
    assert 0 < np.abs(ends[1]).max() < 1e-15
    assert np.linalg.norm(ends[0] - ends[1]) <= 3e-3 * np.linalg.norm(ends[1])


def test_changes_that_do_not_matter_are_not_solved_for(whole, make_whole_scene):
    """Far above the ground a shift of the plane pushes by nearly nothing: with a least move that is larger it is
    exactly zero, after no iteration, and the others have the bits they had."""
    model, parameters = make_whole_scene("theta contact")
    parameters = replace(parameters, translation_m=np.array([0.0, 0.08, 0.0]), velocity_m_s=np.zeros(3))
    fused = FusedSimulation(model, parameters, whole)
    directions = [ParameterGradient.unit(2, name, k) for name, k in (("plane_offset_m", None), ("velocity_m_s", 1))]
    before, after = fused.roll(fused.initial_state(), 1)[0]
    ends = []
    for least_m in (None, np.array([1e-12, 1e-12])):
        tangent = FusedTangent(fused, directions, 1e-3, least_m)
        ends.append([whole.to_host(x) for x in tangent.step(before, after, tangent.initial()).u])
        iterations = whole.to_host(tangent._reports[-1][0])[:, 0]
        assert tangent.settled()
    assert np.any(ends[0][0] != 0) and not ends[1][0].any() and iterations[0] == 0
    assert ends[1][1].any() and np.array_equal(ends[0][1], ends[1][1])
