"""The damped Gauss-Newton loop by itself: quadratic costs, curved valleys, and slopes that are no numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from estimation_experiments import Experiment

from soft_estimator.estimation.fitting.descent import fit_lbfgs
from soft_estimator.estimation.fitting.gauss_newton import NO_DECREASE, Damping, Step, damped_step, minimise
from soft_estimator.estimation.fitting.whole_clouds import CloudFit
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.estimation.variables import make_variables
from soft_estimator.physics.solver import SolverError


@dataclass(frozen=True)
class At:
    x: np.ndarray
    cost: float


class Valley:
    """½|r|² of Rosenbrock's r = (10 (y - x²), 1 - x): zero at (1, 1), at the end of a curved valley."""

    trials = 0

    def at(self, x: np.ndarray) -> At:
        return At(x, 0.5 * float(self.residual(x) @ self.residual(x)))

    def residual(self, x: np.ndarray) -> np.ndarray:
        return np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])

    def step(self, at: At, damping: float) -> Step:
        jacobian = np.array([[-20 * at.x[0], 10.0], [-1.0, 0.0]])
        return damped_step(jacobian.T @ jacobian, jacobian.T @ self.residual(at.x), damping, 1.0)

    def moved(self, at: At, step: Step) -> At:
        self.trials += 1
        return self.at(at.x + step.by)

    def arrived(self, at: At, trial: At) -> At:
        return trial

    def stop_before(self, at: At, step: Step) -> str:
        return "settled" if step.longest < 1e-9 else ""

    def stop_after(self, at: At, trial: At, step: Step) -> str:
        return ""

    def stop_failed(self, step: Step) -> str:
        return ""

    def renewed(self, at: At) -> At | None:
        return None


class BrokenValley(Valley):
    """The same where no simulation succeeds."""

    def __init__(self) -> None:
        self.tried: list[np.ndarray] = []

    def moved(self, at: At, step: Step) -> At:
        self.trials += 1
        self.tried.append(step.by)
        raise SolverError("the motion is too violent for its steps")

    def stop_before(self, at: At, step: Step) -> str:
        return ""


class Slopeless(Valley):
    """The same with a gradient that is not a number, as a division of nothing by nothing leaves it."""

    def step(self, at: At, damping: float) -> Step:
        return damped_step(np.eye(2), np.array([np.nan, 1.0]), damping, 1.0)


def test_an_undamped_step_solves_a_quadratic_and_keeps_its_promise() -> None:
    """½ xᵀHx - bᵀx from 0: the step is H⁻¹b, the predicted fall ½ bᵀH⁻¹b, to rounding; variables a million apart."""
    scale = np.diag([1.0, 1e6])
    h, b = scale @ np.array([[2.0, 0.3], [0.3, 1.0]]) @ scale, scale @ np.array([0.4, -0.2])
    step = damped_step(h, -b, 0.0, 10.0)
    np.testing.assert_allclose(h @ step.by, b, rtol=1e-12)
    assert step.predicted == pytest.approx(0.5 * float(b @ step.by), rel=1e-12)
    assert damped_step(h, -b, 0.0, 0.01).longest == pytest.approx(0.01, rel=1e-12)


def test_the_valley_is_followed_to_its_end() -> None:
    """From (-1.2, 1): the zero at (1, 1) to 1e-8, and the cost falls with every step that is taken."""
    valley = Valley()
    found = minimise(valley, valley.at(np.array([-1.2, 1.0])), Damping())
    np.testing.assert_allclose(found.at.x, 1.0, atol=1e-8)
    assert found.reason == "settled" and found.steps < 40 and not found.reached_limit


@pytest.mark.parametrize("limit", [{"most_steps": 3}, {"most_trials": 3}])
def test_a_search_that_ends_at_a_limit_says_so(limit: dict[str, int]) -> None:
    """The valley's end takes more than three steps; those that lowered the cost are told."""
    valley = Valley()
    found = minimise(valley, valley.at(np.array([-1.2, 1.0])), Damping(), **limit)
    assert found.reached_limit and found.steps <= 3 and found.reason == f"reached {found.steps} iterations"


def test_a_slope_that_is_no_number_ends_the_search() -> None:
    """It used to be tried for ever: a trial that gains NaN is no gain, and a longer damping leaves NaN what it is."""
    valley = Slopeless()
    start = valley.at(np.zeros(2))
    found = minimise(valley, start, Damping())
    assert "not a number" in found.reason and found.at is start and valley.trials == 0


def test_simulations_that_all_fail_end_the_search() -> None:
    """Ten times the damping after each failure, from 1e-3 to beyond 1e10: fourteen trials (13 where rounding takes it
    over), and then the place stays."""
    valley = BrokenValley()
    start = valley.at(np.array([-1.2, 1.0]))
    found = minimise(valley, start, Damping())
    assert found.reason == NO_DECREASE and found.at is start and valley.trials in (13, 14)


def test_a_step_that_failed_is_not_tried_again_a_little_shorter() -> None:
    """(H + λ diag H) s = -g: λ from 1e-3 to 1e-2 shortens a step by a hundredth, and one cut to the longest allowed by
    nothing. Trials that must differ by a tenth in a variable are fewer, and do."""
    valley, every = BrokenValley(), BrokenValley()
    start = valley.at(np.array([0.0, 1.0]))
    assert minimise(valley, start, Damping(shorter=0.1)).reason == NO_DECREASE
    minimise(every, start, Damping())
    assert 3 < valley.trials < every.trials
    for failed, step in zip(valley.tried, valley.tried[1:]):
        assert (np.abs(step - failed) >= 0.1 * np.abs(failed)).any()


def test_clouds_without_a_slope_end_the_search(torus: Experiment) -> None:
    """The same for the likelihood of clouds, whose loop had no end there."""
    frame = torus.frames(count=60)[0]
    cloud = ObservedFrame.of(frame.time_s, frame.points_m, 0.012)
    problem = Problem(torus.model, make_variables(torus.truth, ["youngs_modulus_pa"]), [cloud], field=torus.field)
    fitting = CloudFit(problem)
    x = np.concatenate([problem.variables.start(), np.zeros(1 + fitting.bumps.shape[1])])
    at = fitting.start(x, 1)
    lost = replace(at, gradient=np.full_like(at.gradient, np.nan))
    ended = fitting.minimise(lost, np.ones(len(x), dtype=bool))
    assert ended.at is lost and "not a number" in ended.reason


class Unsimulable(SurfaceDistance):
    """Clouds of a motion that cannot be simulated."""

    def predict(self, frame: ObservedFrame, state: object) -> None:  # type: ignore[override]
        raise SolverError("the motion is too violent for its steps")


def test_lbfgs_without_a_single_simulation_says_why(torus: Experiment) -> None:
    """It ended in a KeyError; now in a SolverError that names what failed, as every other fit does."""
    kind = Unsimulable(torus.model.body, torus.field)
    variables = make_variables(torus.truth, ["youngs_modulus_pa"])
    problem = Problem(torus.model, variables, torus.frames(count=20)[:1], field=torus.field, residual=kind)
    with pytest.raises(SolverError, match=r"no step of L-BFGS could be simulated.*too violent"):
        fit_lbfgs(problem, variables.start())
