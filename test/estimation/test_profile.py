"""Deviations as wide as the cost is four of them away, not as its curvature at the minimum alone says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from estimation_experiments import Experiment

from soft_estimator.estimation.fitting.profile import FAR, _Look, with_profile
from soft_estimator.estimation.fitting.uncertainty import posterior
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.variables import make_variables
from soft_estimator.physics.parameters import Parameters


@pytest.mark.parametrize("std", [0.5, 0.05])
def test_a_stiff_body_may_be_stiffer_yet(torus: Experiment, std: float) -> None:
    """What a stiff ring moves by goes with 1/E: residuals change by (1 - e^-kσ)/σ deviations at kσ, where the curvature
    says k, and the cost of exact points rises by half the square of that. The deviation is FAR σ/(1 - e^-FARσ) times
    wider: 2.3 times for σ = 0.5, 1.1 times for 0.05. Its swing, which goes otherwise with E, makes some per cent."""
    ring = replace(torus, truth=Parameters(np.array([2e7]), 0.3, 1000.0, 0.1, 0.01))
    variables = make_variables(ring.truth, ["youngs_modulus_pa"])
    exact = ring.frames(1e-9)[:4]

    def problem_with(noise_m: float) -> Problem:
        frames = [replace(frame, std_m=np.full(len(frame.std_m), noise_m)) for frame in exact]
        return Problem(torus.model, variables, frames, field=torus.field, loss=RobustLoss("squares"))

    first = problem_with(1e-4)
    jacobian = first.evaluate(variables.start(), jacobian=True).known_jacobian
    problem = problem_with(1e-4 * std * float(np.linalg.norm(jacobian)))
    at = problem.evaluate(variables.start(), jacobian=True)
    found = replace(posterior(problem, at), noise_scale=1.0, covariance=np.array([[std**2]]))
    wider = with_profile(problem, at, found)
    factor = np.sqrt(wider.covariance[0, 0]) / std
    assert factor == pytest.approx(FAR * std / (1 - np.exp(-FAR * std)), rel=0.1)
    np.testing.assert_array_equal(wider.statistical, wider.covariance)
    as_wide = replace(found, covariance=np.array([[(3 * std) ** 2]]))  # for another reason
    assert with_profile(problem, at, as_wide).covariance[0, 0] == as_wide.covariance[0, 0]


def test_what_is_hardly_known_takes_a_step_of_its_own(torus: Experiment) -> None:
    """A ring whose damping is known to a factor of e: four deviations of E away the damping of least cost is not where
    a straight line leads. A search over all dampings there finds how much the cost has to rise."""
    ring = replace(torus, truth=Parameters(np.array([2e5]), 0.3, 1000.0, 0.1, 0.004))
    variables = make_variables(ring.truth, ["youngs_modulus_pa", "stiffness_damping_s"])

    def problem_with(noise_m: float) -> Problem:
        frames = [replace(frame, std_m=np.full(len(frame.std_m), noise_m)) for frame in ring.frames(1e-9)[:4]]
        return Problem(torus.model, variables, frames, field=torus.field, loss=RobustLoss("squares"))

    def rise(problem: Problem, theta: np.ndarray) -> float:
        return problem.evaluate(theta).cost - problem.evaluate(variables.start()).cost

    jacobian = problem_with(1e-4).evaluate(variables.start(), jacobian=True).known_jacobian
    problem = problem_with(1e-4 / float(np.sqrt(np.linalg.inv(jacobian.T @ jacobian)[1, 1])))
    at = problem.evaluate(variables.start(), jacobian=True)
    covariance = np.linalg.inv(at.known_jacobian.T @ at.known_jacobian + np.diag(variables.prior_std**-2.0))
    away = at.theta - FAR * covariance[:, 0] / np.sqrt(covariance[0, 0])
    least = min(rise(problem, away + np.array([0.0, step])) for step in np.linspace(-4, 4, 17))
    assert least < 0.25 * rise(problem, away)
    softer = _Look(problem, at, covariance, 0, noise_scale=1.0).factor(-1.0)
    assert softer == pytest.approx(FAR / np.sqrt(2 * least), rel=0.1)
