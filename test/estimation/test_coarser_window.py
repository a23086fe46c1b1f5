"""What a window works out on a coarser grid alone: the step's own error, and other stiffnesses."""

from __future__ import annotations

import pickle
from copy import copy
from dataclasses import replace

import dropped_ball as ball
import numpy as np
import pytest
from threads import so_many_threads

from soft_estimator.estimation.trajectory import CarriedTrajectory, CoarserTrajectory
from soft_estimator.estimation.window import other_stiffness
from soft_estimator.estimation.window.other_stiffness import OtherStiffnesses
from soft_estimator.estimation.window.own_step import OwnError, StepError
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.estimation.window.window_fit import WindowFit
from soft_estimator.physics.solver import SolverError

CELL_M = 0.0105  # 800 of them, and five coarse ones across


@pytest.fixture(scope="module")
def window() -> SlidingWindow:
    """The ball on its way through its bounce, in halves of the scene's steps."""
    config = replace(ball.SMALL, grow_to_frames=9)
    target = ball.window(ball.TRUTH.replace(youngs_modulus_pa=11000.0), config, cell_m=CELL_M)
    ball.said(target, ball.frames(CELL_M)[:8])
    return target


@pytest.fixture(scope="module")
def fit(window: SlidingWindow) -> WindowFit:
    assert window._fit is not None and not window._fit.slid
    return window._fit


def test_changes_are_those_of_whole_steps(window: SlidingWindow, fit: WindowFit) -> None:
    """The motion goes in halves of the scene's steps, its changes on the coarser grid in whole ones."""
    coarser = fit.motion.coarser
    assert coarser is not None and window.episodes.steps.parts(fit.motion.model) == 2
    assert coarser.model.integrator.step_s == pytest.approx(2 * fit.motion.model.integrator.step_s)
    assert np.exp(fit.answer().z[0]) == pytest.approx(ball.TRUE_PA, rel=0.05)


def test_two_threads_give_the_same_bits(window: SlidingWindow, fit: WindowFit) -> None:
    """The body steps in one, its changes in the other."""
    frames, seen = [e.frame for e in fit.frames], []
    for threads in (1, 2):
        with so_many_threads(threads):
            trajectory = copy(fit.motion).run(fit.at.z, frames).trajectory
            assert isinstance(trajectory, CarriedTrajectory)
            trajectory.go_to(frames[-1].time_s + 0.02)
            changes = trajectory.after.known_changes
            seen.append([part.tobytes() for part in (trajectory.after.state.u, changes.u, changes.v)])
    assert seen[0] == seen[1]


def test_the_steps_own_error_is_alike_on_the_coarser_grid(window: SlidingWindow, fit: WindowFit) -> None:
    """Half the step moves E by as much on both grids, but for 1 % of E, and the plane but for a tenth of a
    millimetre."""
    errors = window._own_errors.errors[0]
    assert isinstance(errors, StepError)
    coarse, fine = errors.moved(fit, window.lasting), OwnError.moved(errors, fit, window.lasting)
    assert abs(fine.by[0]) > 0.002 and abs(coarse.by[0] - fine.by[0]) < 0.01, (coarse.by, fine.by)
    assert abs(coarse.by[1] - fine.by[1]) < 1e-4


def test_a_look_goes_on_to_newer_frames_alone(
    window: SlidingWindow, fit: WindowFit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bits of one from the start; which is due again where the stiffness is another, or the window slid."""
    errors, early, look = window._own_errors.errors[0], copy(fit), StepError._look
    begun: list[WindowFit] = []
    assert isinstance(errors, StepError)
    early.at = replace(fit.at, frames=fit.frames[:-3])
    whole = errors._look(early, fit.motion.model, fit.at.z)
    assert errors._up_to_now(whole, fit) is whole and whole.newer(fit) == 0
    again = errors._look(fit, fit.motion.model, fit.at.z)
    assert len(whole.residuals) == len(again.residuals) == len(fit.frames)
    for x, y in zip(whole.residuals, again.residuals):
        np.testing.assert_array_equal(x, y)

    monkeypatch.setattr(StepError, "_look", lambda self, *given: begun.append(given[0]) or look(self, *given))
    errors._whole = errors._half = None
    first = errors.moved(early, window.lasting)
    assert begun == [early, early] and errors.takes(fit) == pytest.approx(6 * fit.seconds / len(fit.frames))
    led_on = errors.moved(fit, window.lasting)
    assert begun == [early, early] and len(led_on.change) == len(first.change) + 3
    softer = copy(fit)
    softer.at = replace(fit.at, z=fit.at.z - np.eye(len(fit.at.z))[0] * np.log(1.2))
    errors.moved(softer, window.lasting)
    assert begun[2:] == [softer, softer] and errors._whole.newer(fit) is None
    slid = copy(softer)
    slid.motion = copy(fit.motion)
    assert errors._whole.newer(softer) == 0 and errors._whole.newer(slid) is None


def test_other_stiffnesses_are_tried_on_the_coarser_grid(fit: WindowFit) -> None:
    """A window at half of the true stiffness finds it there, and is simulated on its own grid only to reach the
    minimum; one that is there already is not simulated on it at all."""
    z = fit.at.z.copy()
    z[0] -= np.log(2.0)
    wrong = fit.from_another(z)
    claimed = replace(wrong.answer(), settled=True, covariance=1e-4 * np.eye(len(z)))
    before = fit.motion.simulations
    right = OtherStiffnesses().better(wrong, claimed, fit.motion.variables, lambda seconds: True)
    assert right is not wrong and not right.motion.alone
    assert wrong.cost_of(right) < wrong.cost_of(wrong) - 2.0
    assert np.exp(right.at.z[0]) == pytest.approx(ball.TRUE_PA, rel=0.05)
    spent, before = fit.motion.simulations - before, fit.motion.simulations
    assert 0 < spent <= 5
    assert OtherStiffnesses().better(fit, replace(claimed, z=fit.at.z), fit.motion.variables, lambda s: True) is fit
    assert fit.motion.simulations == before


def test_a_window_that_cannot_be_simulated_on_the_coarser_grid_is_searched_on_its_own(
    fit: WindowFit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: WindowFit) -> WindowFit:
        raise SolverError("too violent")

    monkeypatch.setattr(WindowFit, "on_coarser_grid", fails)
    monkeypatch.setattr(other_stiffness, "FACTORS", (2.0,))
    monkeypatch.setattr(other_stiffness, "_ITERATIONS", 1)
    claimed = replace(fit.answer(), settled=True, covariance=1e-4 * np.eye(len(fit.at.z)))
    others, before = OtherStiffnesses(), fit.motion.simulations
    assert others.better(fit, claimed, fit.motion.variables, lambda s: True) is fit and others.looked
    assert fit.motion.simulations > before


def test_a_motion_on_the_coarser_grid_goes_on_where_it_was_packed(fit: WindowFit) -> None:
    """Frame by frame, with its changes and without; what is seen of it in the air is the body's, and on the ground 3 mm
    off, which few and long steps do."""
    coarse = fit.on_coarser_grid()
    assert coarse is not None and isinstance(coarse.at.trajectory, CoarserTrajectory)
    frames = [e.frame for e in fit.frames]
    first = coarse.motion.run(fit.at.z, frames[:5])
    again, seen = pickle.loads(pickle.dumps(first.trajectory)), coarse.motion.look(fit.at.z, frames)
    for x, y, z in zip(first.trajectory.through_all(frames[5:]), again.through_all(frames[5:]), seen[5:]):
        np.testing.assert_array_equal(x.residual, y.residual)
        np.testing.assert_array_equal(x.jacobian, y.jacobian)
        assert np.linalg.norm(x.jacobian) > 0 and z.jacobian.shape == (len(z.residual), 0)
    off_m = [np.sqrt(np.mean((e.residual - c.residual) ** 2)) * ball.NOISE_M for e, c in zip(fit.frames, seen)]
    assert max(off_m[:3]) < 1e-5 and max(off_m) < 0.003, off_m
