"""Where a search for an unknown start begins: a body that spins, told at rest, and bends beyond what modes tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import soft_estimator as se
from soft_estimator.camera.observing import surface_frame
from soft_estimator.estimation.fitting.gauss_newton import damped_step
from soft_estimator.estimation.fitting.least_squares import LeastSquaresSettings, fit
from soft_estimator.estimation.fitting.modal_start import RIGID, is_thrown, rigid_start, with_small_bend
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.variables import Variables, make_variables
from soft_estimator.physics.modes import BEND
from soft_estimator.physics.step import Simulation

SPIN, SPEED = np.array([8.0, -5.0, 22.0]), np.array([0.3, 0.8, -0.1])


@pytest.fixture(scope="module")
def flying() -> Problem:
    """Three frames, 20 ms apart, of a box that flies and spins; it is told at rest."""
    scene = se.read_scene(
        {
            "name": "flying box",
            "body": {"shape": {"box": {"size_m": [0.06, 0.045, 0.03]}}, "spacing_m": 0.01},
            "material": {"youngs_modulus_pa": 40e3, "poissons_ratio": 0.4},
            "time": {"step_s": 0.005, "duration_s": 0.07},
            "start": {"modes": {"count": 3}},
        }
    )
    field, rng = carry_field(scene.body), np.random.default_rng(0)
    told = scene.model.complete(scene.parameters)
    moving = told.replace(velocity_m_s=SPEED, angular_velocity_rad_s=SPIN)
    simulation = Simulation(scene.model, moving)
    state, frames = simulation.initial_state(), []
    for k in range(1, 13):
        state, _ = simulation.step(state)
        if k % 4 == 0:
            frames.append(surface_frame(state.time_s, scene.body, field, state.u, 200, 3e-4, rng))
    variables = make_variables(told, ["youngs_modulus_pa", *RIGID, *scene.model.modes.names])
    return Problem(scene.model, variables, frames, field=field)


def test_each_variable_may_have_its_own_longest_step() -> None:
    """With H = 1 and g = -(4, 30) the whole step is (4, 30); cut to (2, 10) a third of it is left."""
    step = damped_step(np.eye(2), -np.array([4.0, 30.0]), 0.0, np.array([2.0, 10.0]))
    np.testing.assert_allclose(step.by, [4 / 3, 10.0])


def test_a_spin_that_nobody_told_is_found_in_a_few_steps(flying: Problem) -> None:
    """A step of ω may be as long as its prior is wide, 5 rad/s: eight of 1 rad/s would not lead to 24."""
    v = flying.variables
    rigid = Variables(v.reference, [variable for variable in v.variables if variable.name in RIGID])
    alone = flying.with_variables(rigid)
    found = fit(alone, rigid.start(), windows=[3], settings=LeastSquaresSettings(max_iterations=10))
    np.testing.assert_allclose(rigid.parameters(found.theta).angular_velocity_rad_s, SPIN, atol=0.5)


def test_the_rigid_motion_comes_first(flying: Problem) -> None:
    """It is found with what bends the body, and its stiffness, left alone."""
    v, start = flying.variables, flying.variables.start()
    theta = rigid_start(flying, start)
    found = v.parameters(theta)
    np.testing.assert_allclose(found.angular_velocity_rad_s, SPIN, atol=0.5)
    np.testing.assert_allclose(found.velocity_m_s, SPEED, atol=0.03)
    np.testing.assert_allclose(found.translation_m, 0.0, atol=1e-3)
    others = [j for j, variable in enumerate(v.variables) if variable.name not in RIGID]
    np.testing.assert_array_equal(theta[others], start[others])
    plain = flying.with_model(replace(flying.model, modes=None))  # nothing is in its way there
    held = flying.with_variables(Variables(v.reference, [v.variables[j] for j in others]))
    assert is_thrown(flying) and not is_thrown(plain) and not is_thrown(held)


def test_a_start_bent_beyond_small_bends_does_not_fit(flying: Problem) -> None:
    """The lowest mode's amplitude is its root mean square: a tenth of this box' diagonal, 81 mm, is the limit."""
    v = flying.variables
    first = [variable.label for variable in v.variables].index(f"{BEND}[0]")
    for bent_m, fits in ((0.0, True), (0.0078, True), (-0.0085, False)):
        theta = v.start()
        theta[first] = bent_m
        verdict = with_small_bend(FitVerdict(figures={"patches": 0.1}), flying.model, v.parameters(theta))
        assert verdict.fits == fits and verdict.figures == {"patches": 0.1}
    assert verdict.cause == "start" and "8.5 mm, 11 % of its size" in verdict.reason
    already = FitVerdict(False, "another body", "body")
    assert with_small_bend(already, flying.model, v.parameters(theta)) is already
