"""What isotropic noise does to a fit, foretold by drawing the noise anew."""

from __future__ import annotations

import numpy as np
import pytest
from estimation_experiments import Experiment, swinging

from soft_estimator.estimation.fitting.least_squares import Fit, normal_equations
from soft_estimator.estimation.fitting.resampling import LEFT_OVER, refine, resample
from soft_estimator.estimation.fitting.uncertainty import posterior
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame, is_isotropic
from soft_estimator.estimation.variables import make_variables

STD_M = 0.012  # one voxel of a ring 40 mm thick


@pytest.fixture(scope="module")
def torus() -> Experiment:
    """Of cells as wide as the noise."""
    return swinging(STD_M)


def noisy(torus: Experiment, seed: int, count: int, std_m: float = STD_M) -> Problem:
    """Points of the ring's outer half only: over a whole closed surface, most of what the noise does cancels."""
    rng, frames = np.random.default_rng(seed), []
    for frame in torus.frames(count=count, seed=seed)[3::2]:
        x = frame.points_m
        outer = x[np.linalg.norm(x - 0.5 * (x.min(axis=0) + x.max(axis=0)), axis=1) > 0.055]
        frames.append(ObservedFrame.of(frame.time_s, outer + std_m * rng.normal(size=outer.shape), std_m))
    variables = make_variables(torus.truth, ["youngs_modulus_pa"])
    return Problem(torus.model, variables, frames, field=torus.field)


def step_from_truth(problem: Problem) -> float:
    """Where Gauss-Newton goes from the truth: the error of the estimate, to first order."""
    hessian, gradient = normal_equations(problem, problem.evaluate(problem.variables.start(), jacobian=True))
    return float(-np.linalg.solve(hessian, gradient)[0])


def test_the_shift_by_noise_is_foretold(torus: Experiment) -> None:
    """Noise of a voxel shifts log E by about a tenth; resampling at the truth must foretell at least half of that.

    The other half is what the posterior allows for as left over.
    """
    problems = [noisy(torus, seed, 3000) for seed in range(2)]
    moved = np.mean([step_from_truth(p) for p in problems])
    foretold = np.mean([resample(p, p.variables.start(), pairs=2).shift[0] for p in problems])
    assert abs(moved) > 0.05
    assert abs(moved - foretold) < LEFT_OVER * abs(moved)


def test_what_noise_does_to_first_order_cancels(torus: Experiment) -> None:
    """δ(ε) + δ(-ε) is of second order: for noise of 1/250 of a voxel, shifts of three pairs lie within a tenth of
    the estimate's own deviation. Six draws of their own scatter by 1/√6 = 0.41 of it, for nothing."""
    problem = noisy(torus, 0, 600, STD_M / 250)
    theta = problem.variables.start()
    hessian, _ = normal_equations(problem, problem.evaluate(theta, jacobian=True))
    shifts = [resample(problem, theta, seed=seed).shift[0] for seed in range(3)]
    assert np.abs(shifts).max() < 0.1 / np.sqrt(hessian[0, 0])


@pytest.mark.slow
def test_refining_corrects_the_value_and_widens_the_interval(torus: Experiment) -> None:
    """The answer moves by the shift, its deviation grows by what may be left of it, and the lines are kept."""
    problem = noisy(torus, 5, 300)
    at = problem.evaluate(problem.variables.start(), jacobian=True)
    lines, found, drawn = refine(problem, Fit(at, "", 0), pairs=3)
    assert is_isotropic(problem.frames[0]) and lines.frames[0].along is not None
    plain, corrected = posterior(lines, found.evaluation), posterior(lines, found.evaluation, drawn)
    assert np.isclose(corrected.estimates[0].value, plain.estimates[0].value * np.exp(-drawn.shift[0]))
    assert corrected.estimates[0].std > plain.estimates[0].std
    again = resample(lines, found.theta, pairs=3)
    np.testing.assert_array_equal(again.shift, drawn.shift)
