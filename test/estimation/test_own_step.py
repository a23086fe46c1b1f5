"""The step's own error in a window: how finely it is cut, and that it is taken off."""

from __future__ import annotations

from dataclasses import replace

import dropped_ball as ball
import numpy as np
import pytest

from soft_estimator.camera.observing import surface_frame
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.window import own_step
from soft_estimator.estimation.window.own_step import CutSteps, parts_of_step, swing_rad_s
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.estimation.window.window_fit import always
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.step import Simulation

CELL_M = 0.0155  # what is taken off is a few per cent: cells that bend well enough for that


def test_a_ball_swings_as_its_closed_form_says() -> None:
    """ω R/c_s = 2.64; the ball of 5 cm is cut out of cells of 15 mm, so that 6 V/A is its diameter to 3 %."""
    shear = ball.TRUE_PA / (2 * 1.4)
    expected = 2.64 * np.sqrt(shear / 1000.0) / 0.05
    assert swing_rad_s(ball.model(CELL_M), ball.TRUTH) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("times_stiffer", "parts"), [(1, 1), (4, 2), (16, 4), (400, 4)])
def test_a_stiffer_ball_has_its_step_cut(times_stiffer: float, parts: int) -> None:
    """At 6 kPa ω Δt is 0.77; it grows with the root of the stiffness, and no more than four parts are taken."""
    stiffer = ball.TRUTH.replace(youngs_modulus_pa=times_stiffer * ball.TRUE_PA)
    assert parts_of_step(ball.model(CELL_M), stiffer) == parts


def test_a_later_motion_has_no_longer_steps_than_the_one_it_learnt_from() -> None:
    """At 6 kPa ω Δt is 0.77 in one part: enough for a first motion, and too much after one in halves; 0.55, at half of
    the stiffness, is not."""
    assert parts_of_step(ball.model(CELL_M), ball.TRUTH, 2) == 2
    softer = ball.TRUTH.replace(youngs_modulus_pa=0.5 * ball.TRUE_PA)
    assert parts_of_step(ball.model(CELL_M), softer, 2) == 1
    episodes = ball.window(ball.GUESS, cell_m=CELL_M).episodes  # twice too stiff
    lasting, first, used = episodes.lasting, ball.frames(CELL_M)[0], []
    knowledge = lasting.learnt.knowledge
    mean = np.concatenate([[np.log(ball.TRUE_PA)], knowledge.mean[1:]])
    found = replace(lasting.learnt, knowledge=replace(knowledge, mean=mean))
    told = np.eye(len(found.information))
    for learnt in (lasting.learnt, replace(found, information=told), replace(found, information=0.0 * told)):
        lasting.learnt = learnt
        fit, _ = episodes.begin(first, None)
        assert fit is not None
        used.append(episodes.steps.parts(fit.motion.model))
    assert used == [2, 2, 1]


def test_cut_models_are_made_once_and_know_their_half() -> None:
    steps = CutSteps(ball.model(CELL_M))
    assert steps.into(1) is ball.model(CELL_M) and steps.into(4) is steps.into(4)
    assert steps.half(steps.into(2)) is steps.into(4) and steps.parts(steps.into(4)) == 4
    assert steps.into(4).integrator.step_s == pytest.approx(0.0025) and steps.into(4).body is ball.model(CELL_M).body


def test_a_body_that_turns_out_to_be_stiff_when_all_is_fitted_has_its_step_cut_then() -> None:
    """Steps of 13.5 ms are 0.93 of a swing's radian at 0.8 times the ball's stiffness, 1.04 at its own. A window that
    has no time takes its frames in as they come; its fit at the end finds the stiffness, and goes on in half steps."""
    longer = ball.model(CELL_M).with_step(theta_scheme(0.0135))
    guess = ball.TRUTH.replace(youngs_modulus_pa=0.8 * ball.TRUE_PA)
    config = replace(ball.SMALL, time_budget_s=1e-9)
    target = SlidingWindow(longer, guess, ["youngs_modulus_pa"], config, field=ball.field(CELL_M))
    ball.said(target, ball.frames(CELL_M)[:6])
    assert target._fit is not None and target._fit.motion.model is longer
    assert target.settle(20) is not None and target._fit is not None
    fit, steps = target._fit, target.episodes.steps
    assert parts_of_step(longer, ball.TRUTH) == 2 == steps.parts(fit.motion.model)
    assert swing_rad_s(longer, fit.motion.parameters(fit.at.z)) * fit.motion.model.integrator.step_s < 1.0


def test_a_stiffness_that_nobody_knows_cuts_no_step() -> None:
    """In the air it may wander by anything; 16 times the ball's would have its step cut into four."""
    target = ball.window(ball.TRUTH, cell_m=CELL_M)
    ball.said(target, ball.frames(CELL_M)[:2])
    fit = target._fit
    assert fit is not None and not fit.touched
    z = fit.at.z.copy()
    z[0] = np.log(16.0 * ball.TRUE_PA)
    fit.at = replace(fit.at, z=z)
    assert parts_of_step(ball.model(CELL_M), fit.motion.parameters(z)) == 4
    assert not target.episodes.shorten(fit, always) and fit.motion.model is ball.model(CELL_M)


def test_what_the_step_does_is_taken_off() -> None:
    """The ball moves in steps of 2.5 ms and is estimated with 10 ms: ω Δt = 0.77 would make a free swing (ω Δt)²/6 =
    10 % too stiff, and makes this slow and deep bounce 3 %. Corrected, it is right within 2 % and two deviations."""
    target = ball.window(ball.TRUTH.replace(youngs_modulus_pa=5000.0), cell_m=CELL_M)  # soft enough for one part
    last = ball.said(target, ball.frames(CELL_M))[-1]
    fit = target._fit
    assert fit is not None and fit.motion.model is ball.model(CELL_M)
    found, said = float(np.exp(fit.answer().z[0])), last.parameters[0]
    assert found > 1.02 * ball.TRUE_PA
    assert abs(said.value / ball.TRUE_PA - 1) < 0.02, said
    assert abs(said.value - ball.TRUE_PA) < 2 * said.std


def test_a_motion_that_half_the_step_cannot_follow_has_the_whole_error_in_its_deviation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is taken off, and (ω Δt)²/6 of a stiffness, with ω Δt = 0.77 here, is a deviation of 9 %."""

    def fails(*_: object) -> None:
        raise SolverError("no step")

    monkeypatch.setattr(own_step, "move_with", fails)
    target = ball.window(ball.TRUTH.replace(youngs_modulus_pa=5000.0), cell_m=CELL_M)
    said = ball.said(target, ball.frames(CELL_M))[-1].parameters[0]
    assert target._fit is not None and said.value == pytest.approx(float(np.exp(target._fit.answer().z[0])), rel=1e-9)
    assert said.std > 0.08 * said.value


def stiff_frames(youngs_modulus_pa: float) -> list[ObservedFrame]:
    rng, truth = np.random.default_rng(4), ball.TRUTH.replace(youngs_modulus_pa=youngs_modulus_pa)
    simulation = Simulation(ball.model(CELL_M).with_step(theta_scheme(0.01 / 8)), truth)
    state, out = simulation.initial_state(), []
    for k in range(8 * 33):
        if k % 24 == 0:
            out.append(
                surface_frame(
                    state.time_s, ball.model(CELL_M).body, ball.field(CELL_M), state.u, 300, ball.NOISE_M, rng
                )
            )
        state, _ = simulation.step(state)
    return out


def test_a_window_that_finds_its_body_stiffer_goes_on_with_more_parts() -> None:
    """30 kPa are ω Δt = 1.7, far beyond what is taken off; a first guess of 6 kPa begins with whole steps, and the
    window ends with a half or a quarter of them. Within a tenth and three deviations, none of them over 15 %."""
    true_pa = 5 * ball.TRUE_PA
    config = replace(ball.SMALL, grow_to_frames=15)
    target = ball.window(ball.TRUTH.replace(youngs_modulus_pa=ball.TRUE_PA), config, CELL_M)
    last = ball.said(target, tuple(stiff_frames(true_pa)))[-1]
    fit, said = target._fit, last.parameters[0]
    assert fit is not None and target.episodes.steps.parts(fit.motion.model) >= 2
    assert abs(said.value / true_pa - 1) < 0.1
    assert abs(said.value - true_pa) < 3 * said.std < 0.45 * true_pa
