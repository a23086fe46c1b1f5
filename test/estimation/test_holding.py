"""What need not be simulated again: the flight before a first touch, moved along with its start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dropped_ball import NOISE_M, frames, model, said, window
from scipy.spatial.transform import Rotation

from soft_estimator.estimation.fitting.gauss_newton import Step
from soft_estimator.estimation.window.holding import made_rigid
from soft_estimator.estimation.window.window_fit import WindowFit
from soft_estimator.estimation.window.window_motion import WindowMotion
from soft_estimator.physics.state import State


@pytest.fixture(scope="module")
def fit() -> WindowFit:
    """A window over seven frames, 30 ms apart; the ball touches the plane soon after the third."""
    target = window()
    said(target, frames()[:7])
    assert target._fit is not None and len(target._fit.frames) == 7
    return target._fit


def moved(fit: WindowFit, **by: float) -> np.ndarray:
    """z with some variables moved; the first component of vectors."""
    z, names = fit.at.z.copy(), [v.name for v in fit.motion.variables.variables]
    for name, step in by.items():
        z[names.index(name)] += step
    return z


def test_a_shorter_simulation_shows_the_same(fit: WindowFit) -> None:
    """Simulated from the second frame on or from the first: the same residuals within a twentieth of the noise, and the
    same Jacobian within 2 % of its largest entry, each variable in steps that it is linear over. The flight before is
    linear in the start but for its turns, and free of everything else."""
    z = moved(fit, youngs_modulus_pa=0.2, plane_offset_m=4e-4, translation_m=3e-4, velocity_m_s=5e-3, rotation_rad=0.01)
    seen = [e.frame for e in fit.frames]
    whole, part = fit.motion.run(z, seen), fit.motion.run(z, seen, None, fit.at)
    assert 6 * part.trajectory.steps == 5 * whole.trajectory.steps  # one of six intervals less
    for one, other in zip(whole.frames, part.frames):
        # A point or two may fall into another cell, where the field's kinks are.
        assert np.mean(np.abs(other.residual - one.residual) > 0.05) < 0.01
        rows, others = (e.jacobian * fit.motion.steps_of[: len(z)] for e in (one, other))
        np.testing.assert_allclose(others, rows, rtol=0, atol=0.02 * np.abs(rows).max())
    end, reached = (run.trajectory.after.state.u for run in (whole, part))
    assert np.abs(end - reached).max() < 0.2 * NOISE_M  # nodes turn along with the start to first order


def test_the_motion_alone_shows_the_same(fit: WindowFit) -> None:
    """The same without new changes: those of the window at hand are kept, residuals are exact."""
    z = moved(fit, youngs_modulus_pa=0.1, plane_offset_m=2e-4)
    seen = [e.frame for e in fit.frames]
    whole, part = fit.motion.look(z, seen), fit.motion.run_keeping_changes(z, fit.at)
    for one, other, before in zip(whole, part.frames, fit.frames):
        assert np.mean(np.abs(other.residual - one.residual) > 0.05) < 0.01
        assert other.jacobian is before.jacobian


def test_a_shorter_step_than_one_that_failed_is_tried_without_changes(fit: WindowFit) -> None:
    """A step that makes the window worse is a trial for nothing: the next, shorter one asks for the motion alone, and
    for its changes only where it lowers the cost. Worse and better as by simulating all of it."""
    at = replace(fit.at, cost=fit.cost_of(fit))
    worse, less = (Step(moved(fit, youngs_modulus_pa=by) - at.z, 1.0) for by in (1.0, 0.5))
    failed, again = fit.moved(at, worse), fit.moved(at, less)
    assert failed.cost > again.cost > at.cost
    assert not failed.stale and again.stale and again.frames[-1].jacobian is at.frames[-1].jacobian
    assert again.cost == pytest.approx(fit.cost_of(fit.from_another(again.z)), rel=1e-3)
    high = replace(at, cost=2 * failed.cost)  # from there any of these steps leads down
    fit._failed_from = high
    assert not fit.moved(high, less).stale and fit._failed_from is None


def test_half_the_step_shows_the_same_flight(fit: WindowFit) -> None:
    """A model with half the step goes on from the flight of the one at hand: as it does from the start, within a
    twentieth of the noise. What it shows of the bounce is its own, a step's error away."""
    half = fit.motion.model.in_parts(2)
    motion = WindowMotion(half, fit.motion.variables, fit.motion.backend, fit.motion.kinds)
    seen = [e.frame for e in fit.frames]
    whole, part = motion.look(fit.at.z, seen), motion.look(fit.at.z, seen, fit.at)
    assert part[1].after.state.time_s == fit.frames[1].after.state.time_s  # taken over; the third one is simulated
    assert part[2].after.state.time_s - part[2].before.state.time_s == pytest.approx(half.integrator.step_s)
    for one, other in zip(whole, part):
        assert np.mean(np.abs(other.residual - one.residual) > 0.05) < 0.01


@pytest.mark.parametrize(
    "by", [{"rotation_rad": 0.2}, {"angular_velocity_rad_s": 3.0}, {"translation_m": 0.02}, {"plane_offset_m": 0.02}]
)
def test_what_moves_far_is_simulated_from_the_start(fit: WindowFit, by: dict[str, float]) -> None:
    """Turns are not linear, and a plane that moves far is met earlier."""
    step = moved(fit, **by) - fit.at.z
    assert fit.motion.holding.frames(fit.frames, step, step) == 0


def test_a_body_that_swings_is_simulated(fit: WindowFit) -> None:
    """However little the variables move: a frame of the bounce holds for none, nor does one after it, and so no window
    that begins there."""
    step = 1e-9 * (moved(fit, youngs_modulus_pa=1.0) - fit.at.z)
    assert fit.motion.holding.frames(fit.frames, step, step) == 2
    assert fit.motion.holding.frames(fit.frames[3:], step, step) == 0


def test_a_body_in_the_air_is_simulated(fit: WindowFit) -> None:
    """Nothing shows in any frame: there is no touch that a part of the window would lead to."""
    step = moved(fit, youngs_modulus_pa=0.1) - fit.at.z
    assert fit.motion.holding.frames(fit.frames[:3], step, step) == 0


def test_a_rigid_motion_stays_what_it_is() -> None:
    """x = c + R X, v = v₀ + ω × (x - c) come back to rounding; a strain of 1e-3 on top is gone."""
    body = model().body
    x = body.node_position_m
    turn = Rotation.from_rotvec([0.3, -0.2, 0.5]).as_matrix()
    place = np.array([0.1, 0.2, -0.3]) + x @ turn.T
    centre = body.node_volume_m3 @ place / body.volume_m3
    v = np.array([0.1, -0.5, 0.0]) + np.cross([1.0, 2.0, -0.5], place - centre)
    state = State(place - x, v, np.zeros_like(v), 0.7)
    found = made_rigid(body, state)
    np.testing.assert_allclose(found.u, state.u, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.v, state.v, rtol=0, atol=1e-12)
    assert found.time_s == 0.7
    strained = State(state.u + 1e-3 * (place - centre), v, state.a, 0.7)
    np.testing.assert_allclose(made_rigid(body, strained).u, state.u, rtol=0, atol=1e-12)
