"""Does the cost rise with a stiffness as its curvature at the minimum says? Where it rises less, intervals are wider.

A Gaussian with deviation σ has the cost rise by ½k² at kσ, the other variables moved along with it. What hardly bends
its body gives way to stiffer ones more and more easily, as the motion left to lose gets smaller, and a second minimum
may lie within reach. The cost is therefore looked at four deviations away, to either side (the profile of the
likelihood, along its linear part). Two simulations are all it takes.

Where a damping, say, is hardly known, what goes along with a stiffness is no straight line, and along one the cost
rises by far more than it has to: there the others take a Gauss-Newton step of their own. Held boxes and capsules that
swing a little, damping known to a factor of three, were 3.3 to 4.6 deviations off in E without it, and 1.8 to 3.4 with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from soft_estimator.estimation.fitting.clock import STIFFNESS
from soft_estimator.estimation.fitting.uncertainty import Posterior
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.physics.solver import SolverError

# Deviations: truths that lie further off beside a Gaussian interval are what it is for.
FAR = 4.0
# A rise of less than a deviation's is that of another minimum; all of the way to there is then one deviation.
_LEAST_RISE = 0.5
# Of a logarithm: what is better known moves in a straight line with the rest.
_LOOSE = 0.3


def with_profile(problem: Problem, at: Evaluation, found: Posterior) -> Posterior:
    """The posterior as wide along each stiffness as the cost says four deviations away; `at` holds the Jacobian.

    C + (f² - 1) d dᵀ for a factor f ≥ 1 and d = C e / √(eᵀ C e): what is known together with a stiffness is widened,
    too.
    """
    covariance = _curvature(problem, at, found.noise_scale)
    added, nodes = np.zeros_like(covariance), problem.model.body.node_count
    for j, variable in enumerate(problem.variables.variables):
        if variable.name == STIFFNESS:
            look = _Look(problem, at, covariance, j, found.noise_scale)
            sides = problem.backend.beside(partial(look.factor, -1.0), partial(look.factor, 1.0), nodes)
            std = np.sqrt(covariance[j, j]) * max(sides)
            more = max(std**2 / found.covariance[j, j] - 1.0, 0.0)  # frames that disagree may have widened it as far
            added += more * np.outer(found.covariance[:, j], found.covariance[:, j]) / found.covariance[j, j]
    wider = found.covariance + added
    return replace(found, covariance=wider, statistical=wider)


@dataclass(frozen=True, eq=False)
class _Look:
    """The cost along one variable, the j-th, around a minimum with a covariance (P, P)."""

    problem: Problem
    at: Evaluation
    covariance: np.ndarray
    j: int
    noise_scale: float

    def factor(self, sign: float) -> float:
        """How many times wider than its curvature the minimum is, FAR deviations off to one side; at least 1."""
        theta = self.at.theta + sign * FAR * self.covariance[:, self.j] / np.sqrt(self.covariance[self.j, self.j])
        try:
            cost = self._least_cost(theta)
        except SolverError:  # no body of that stiffness can be simulated
            return 1.0
        rise = cost - _cost(self.problem, self.at, self.noise_scale)
        return max(1.0, FAR / float(np.sqrt(2 * max(rise, _LEAST_RISE))))

    def _least_cost(self, theta: np.ndarray) -> float:
        """At θ (P,), or a step of the others away from there, where they are hardly known."""
        loose = self._loose()
        there = self.problem.evaluate(theta, jacobian=loose)
        cost = _cost(self.problem, there, self.noise_scale)
        if not loose:
            return cost
        stepped = self.problem.evaluate(theta + self._step_of_others(there))
        return min(cost, _cost(self.problem, stepped, self.noise_scale))

    def _loose(self) -> bool:
        variables = self.problem.variables.variables
        known = [v.transform == "linear" or self.covariance[k, k] < _LOOSE**2 for k, v in enumerate(variables)]
        return not all(known[: self.j] + known[self.j + 1 :])

    def _step_of_others(self, there: Evaluation) -> np.ndarray:
        """The Gauss-Newton step (P,) of all variables but the one that is looked along."""
        v, others = self.problem.variables, np.arange(len(there.theta)) != self.j
        step, prior = np.zeros(len(others)), 1.0 / v.prior_std**2
        slope = there.known_jacobian.T @ (there.slope / _unit(there, self.noise_scale))
        slope += prior * (there.theta - v.prior_mean)
        information = _information(there, self.noise_scale) + np.diag(prior)
        step[others] = -np.linalg.solve(information[np.ix_(others, others)], slope[others])
        return step


def _cost(problem: Problem, at: Evaluation, noise_scale: float) -> float:
    """In units of the noise that the residuals show."""
    off = (at.theta - problem.variables.prior_mean) / problem.variables.prior_std
    return at.misfit / noise_scale**2 + 0.5 * float(off @ off)


def _curvature(problem: Problem, at: Evaluation, noise_scale: float) -> np.ndarray:
    """(JᵀWJ + prior)⁻¹, (P, P)."""
    return np.linalg.inv(_information(at, noise_scale) + np.diag(problem.variables.prior_std**-2.0))


def _information(at: Evaluation, noise_scale: float) -> np.ndarray:
    """JᵀWJ, (P, P)."""
    return at.known_jacobian.T @ (at.known_jacobian * (at.weight / _unit(at, noise_scale))[:, None])


def _unit(at: Evaluation, noise_scale: float) -> np.ndarray:
    """Of weights and slopes, (n,), in units of the noise that the residuals show."""
    return np.where(at.whitened, noise_scale, 1.0) ** 2
