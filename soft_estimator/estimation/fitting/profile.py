"""Does the cost rise with a stiffness as its curvature at the minimum says? Where it rises less, intervals are wider.

A Gaussian with deviation σ has the cost rise by ½k² at kσ, the other variables moved along with it. What hardly bends
its body gives way to stiffer ones more and more easily, as the motion left to lose gets smaller, and a second minimum
may lie within reach. The cost is therefore looked at four deviations away, to either side (the profile of the
likelihood, along its linear part). Two simulations are all it takes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from soft_estimator.estimation.fitting.clock import STIFFNESS
from soft_estimator.estimation.fitting.uncertainty import Posterior
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.physics.solver import SolverError

# Deviations: truths that lie further off beside a Gaussian interval are what it is for.
FAR = 4.0
# A rise of less than a deviation's is that of another minimum; all of the way to there is then one deviation.
_LEAST_RISE = 0.5


def with_profile(problem: Problem, at: Evaluation, found: Posterior) -> Posterior:
    """The posterior as wide along each stiffness as the cost says four deviations away; `at` holds the Jacobian.

    C + (f² - 1) d dᵀ for a factor f ≥ 1 and d = C e / √(eᵀ C e): what is known together with a stiffness is widened,
    too.
    """
    covariance = _curvature(problem, at, found.noise_scale)
    added = np.zeros_like(covariance)
    for j, variable in enumerate(problem.variables.variables):
        if variable.name == STIFFNESS:
            way = covariance[:, j] / np.sqrt(covariance[j, j])
            std = way[j] * max(_factor(problem, at, sign * way, found.noise_scale) for sign in (-1.0, 1.0))
            more = max(std**2 / found.covariance[j, j] - 1.0, 0.0)  # frames that disagree may have widened it as far
            added += more * np.outer(found.covariance[:, j], found.covariance[:, j]) / found.covariance[j, j]
    wider = found.covariance + added
    return replace(found, covariance=wider, statistical=wider)


def _factor(problem: Problem, at: Evaluation, way: np.ndarray, noise_scale: float) -> float:
    """How many times wider than its curvature the minimum is, FAR times one deviation `way` (P,) off; at least 1."""
    theta = at.theta + FAR * way
    try:
        rise = _cost(problem, problem.evaluate(theta), noise_scale) - _cost(problem, at, noise_scale)
    except SolverError:  # no body of that stiffness can be simulated
        return 1.0
    return max(1.0, FAR / float(np.sqrt(2 * max(rise, _LEAST_RISE))))


def _cost(problem: Problem, at: Evaluation, noise_scale: float) -> float:
    """In units of the noise that the residuals show."""
    off = (at.theta - problem.variables.prior_mean) / problem.variables.prior_std
    return at.misfit / noise_scale**2 + 0.5 * float(off @ off)


def _curvature(problem: Problem, at: Evaluation, noise_scale: float) -> np.ndarray:
    """(JᵀWJ + prior)⁻¹, (P, P)."""
    weight = at.weight / np.where(at.whitened, noise_scale, 1.0) ** 2
    information = at.known_jacobian.T @ (at.known_jacobian * weight[:, None])
    return np.linalg.inv(information + np.diag(problem.variables.prior_std**-2.0))
