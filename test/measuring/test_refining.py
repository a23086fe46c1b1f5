"""What is left of errors of the grid and of the contact in the answer of a drop."""

from __future__ import annotations

from dataclasses import replace

import dropped_ball as ball
import numpy as np
import pytest

from soft_estimator.camera.observing import surface_frame
from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.fitting.discretisation import GRID, taken_and_left
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.variables import make_variables
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.measuring.fit import why_left_out
from soft_estimator.measuring.refining import give_of_contact
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

STIFFNESS, SHARPNESS = 1e6, 800.0


def parameters(times: float) -> Parameters:
    """The dropped ball's with a contact that is felt at so many times less depth."""
    return ball.TRUTH.replace(contact_stiffness_pa_per_m=times * STIFFNESS, contact_sharpness_per_m=times * SHARPNESS)


def on_a_hard_table() -> tuple[ObservedFrame, ...]:
    """The ball is felt at an eighth of the depth, in steps of a quarter; frames of 20 ms."""
    rng, model = np.random.default_rng(4), ball.model().with_step(theta_scheme(0.00125))
    simulation = Simulation(model, parameters(8.0))
    state, out = simulation.initial_state(), []
    for k in range(16 * 15):
        if k % 16 == 0:
            out.append(surface_frame(state.time_s, model.body, ball.field(), state.u, 300, ball.NOISE_M, rng))
        state, _ = simulation.step(state)
    return tuple(out)


@pytest.mark.slow
def test_the_give_of_the_contact_is_in_the_deviation() -> None:
    """At 6 kPa and 10 cm across, 6 V/A = 0.1 m to 3 %, the contact gives by the part E/(k L) = 0.06 of what the ball
    does: 1.5 times that, 9 %, is stated. The ball seems 1.5 to 9 % too stiff on the plane that is known."""
    model = build_model(ball.model().body, theta_scheme(0.005), contact=ContactLaw(STIFFNESS, SHARPNESS))
    config = WindowConfig(frames=5, grow_to_frames=15, points_per_frame=300, start="scene")
    target = SlidingWindow(model, parameters(1.0), ["youngs_modulus_pa"], config, field=ball.field())
    ball.said(target, on_a_hard_table())
    settled, fit = target.settle(10), target._fit
    assert settled is not None and fit is not None
    stated = float(give_of_contact(fit, target.lasting).std[0])
    assert stated == pytest.approx(1.5 * settled.parameters[0].value / (STIFFNESS * 0.1), rel=0.04)
    assert 0.015 < settled.parameters[0].value / ball.TRUE_PA - 1 < stated


def test_what_was_not_known_may_move_far() -> None:
    """E moves by 6 % and ν by 0.5 in log(ν/(½ - ν)), a tenth of its range and more: nothing is taken off. Where ν was
    known to no better than 0.8 anyway, 4/3 of both moves are; were E to move by 14 %, nothing again, unless a fifth is
    allowed; which is of E, and not of what ν may move by."""
    variables = make_variables(ball.TRUTH, ["youngs_modulus_pa", "poissons_ratio"])
    theta, move = variables.start(), np.array([0.06, 0.5])
    assert not taken_and_left(variables, theta, move, GRID, 2)[0].any()
    taken, left = taken_and_left(variables, theta, move, GRID, 2, np.array([0.02, 0.8]))
    assert taken == pytest.approx(4 / 3 * move) and left == pytest.approx(move / 3)
    far, std = np.array([0.14, 0.5]), np.array([0.02, 0.8])
    assert not taken_and_left(variables, theta, far, GRID, 2, std)[0].any()
    assert taken_and_left(variables, theta, far, GRID, 2, std, 0.2)[0] == pytest.approx(4 / 3 * far)
    assert not taken_and_left(variables, theta, far, GRID, 2, np.array([0.02, 0.5]), 0.2)[0].any()


def test_a_drop_after_which_less_is_known_is_left_out() -> None:
    """Where half the spacing moves its answer beyond a linear step; not where there is nothing better, or where it
    tells more than the ones before, and always where the model does not fit it."""
    config = WindowConfig(frames=5, points_per_frame=300, start="scene")
    target = SlidingWindow(ball.model(), ball.TRUTH, ["youngs_modulus_pa"], config, field=ball.field())
    before = replace(ball.said(target, ball.frames()[:4])[-1], verdict=FitVerdict())
    e = before.parameters[0]
    wider, narrower = (replace(before, parameters=(replace(e, std=times * e.std),)) for times in (1.1, 0.9))
    assert "half the spacing" in why_left_out(wider, before, beyond=True)
    assert not why_left_out(wider, before, beyond=False) and not why_left_out(wider, None, beyond=True)
    assert not why_left_out(narrower, before, beyond=True)
    touched = replace(narrower, verdict=FitVerdict(fits=False, reason="a hand"))
    assert why_left_out(touched, None, beyond=False) == "a hand"
