"""Deviations as wide as the cost is four of them away, not as its curvature at the minimum alone says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from estimation_experiments import Experiment

from soft_estimator.estimation.fitting.profile import FAR, with_profile
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
