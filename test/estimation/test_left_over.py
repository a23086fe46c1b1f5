"""What a fit leaves of a held body's motion: noise, errors of the shape, or another motion."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from estimation_experiments import Experiment

from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.fitting.left_over import LEFT, LIMIT, MOTION, left_over, with_left_over
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.inspection import inspect_fit
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.variables import make_variables

STD_M, OFF = 5e-4, 1.0  # what patches are put off by, in deviations of a point: as much as the shape is known to
KNOWN = KnownToConfig()


@pytest.fixture(scope="module")
def fitted(torus: Experiment) -> tuple[Problem, Evaluation, np.ndarray]:
    """A swinging ring at its own parameters, where each of its residuals lies (-1 or 1), and all it leaves is noise."""
    variables = make_variables(torus.truth, ["youngs_modulus_pa", "stiffness_damping_s"])
    frames, loss = torus.frames(STD_M), RobustLoss("squares")
    problem = Problem(torus.model, variables, frames, field=torus.field, known=KNOWN, loss=loss)
    at = problem.evaluate(variables.start(), jacobian=True)
    return problem, at, np.where(inspect_fit(problem, at.theta, []).patch % 2 == 0, 1.0, -1.0)


def off_by(at: Evaluation, more: np.ndarray) -> Evaluation:
    """The same with more residuals; of squares the slope is the residual itself."""
    return replace(at, residual=at.residual + more, slope=at.slope + more)


def power(problem: Problem, at: Evaluation, refined: np.ndarray | None = None) -> float:
    found = left_over(problem, at, [], at.residual if refined is None else refined)
    assert found is not None
    return found[1]


def test_a_shape_that_is_off_is_none_and_a_motion_is(fitted: tuple[Problem, Evaluation, np.ndarray]) -> None:
    """Noise gives one, to a tenth or two (χ² of a hundred patches). Every second patch off outwards, others in, alike
    in all frames, is the shape's; off to the other side in every second frame it is a motion, of z² = n/1.57 for n
    points of a patch. What grid and step change by as much excuses it."""
    problem, at, side = fitted
    turning = OFF * side * np.where(at.frame % 2 == 0, 1.0, -1.0)
    assert power(problem, at) == pytest.approx(1.0, abs=0.4)
    assert power(problem, off_by(at, OFF * side)) == pytest.approx(1.0, abs=0.4)
    moved = off_by(at, turning)
    verdict = with_left_over(FitVerdict(), problem, moved, [], moved.residual)
    assert verdict.cause == MOTION and verdict.figures[LEFT] > 2 * LIMIT and "to changing sides" in verdict.reason
    assert power(problem, moved, moved.residual + OFF * side) < LIMIT
    assert with_left_over(FitVerdict(), problem, moved, [turning], moved.residual).fits
    wrong = FitVerdict(False, "another body", "body")
    assert with_left_over(wrong, problem, moved, [], moved.residual) is wrong


def test_what_nothing_holds_is_not_asked(ball: Experiment) -> None:
    variables = make_variables(ball.truth, ["youngs_modulus_pa"])
    problem = Problem(ball.model, variables, ball.frames(STD_M)[:1], field=ball.field, known=KNOWN)
    at = problem.evaluate(variables.start(), jacobian=True)
    assert left_over(problem, at, [], at.residual) is None
