"""The parameters that make wide-noise clouds most likely as a whole (`residuals.whole_cloud`), and how sure that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from soft_estimator.estimation.fitting.gauss_newton import Damping, Minimum, Step, damped_step, minimise
from soft_estimator.estimation.fitting.least_squares import Fit, growing_windows
from soft_estimator.estimation.fitting.uncertainty import Posterior, describe, noise_scale, touches
from soft_estimator.estimation.fitting.widening import unit_widening
from soft_estimator.estimation.motion import motion
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.cloud_mixture import DENSITY_STD, Cloud, CloudTerms
from soft_estimator.estimation.residuals.whole_cloud import density_on

_MOST_STEPS = 25
# Square of a last step in standard deviations of θ: a hundredth of one at the end, a tenth on windows that will grow.
_SETTLED, _LOOSE = 1e-4, 1e-2
_LONGEST_PULL = 1.5  # logarithm of the scale of the noise that a fit begins with: a pull from 4.5 deviations away
_LONGEST = 0.5  # step of any variable: a factor of 1.6 in stiffness, over which the mixture is still nearly quadratic
# Squares of scores are not the curvature itself: where they fall short, full steps swing from side to side. Steps that
# gain less than half of what they promise are therefore damped by a tenth at least.
_RULE = Damping(least=1e-6, retry=0.0, good=0.5, poor=3.0, poor_least=0.1)
# A stated noise is believed where the clouds show the same to this part: the fitted densities take up a few hundredths
# of it, and noise that is taken for smaller than it is bends the estimate.
_BELIEVED = 0.1

Progress = Callable[[int, np.ndarray, float], None]


@dataclass(frozen=True)
class Likelihood:
    """The clouds at x = (θ, logarithm of the noise's scale, common density): cost, the negative log-likelihood with its
    prior; gradient and hessian of that; and the terms, one a frame."""

    x: np.ndarray
    cost: float
    hessian: np.ndarray
    gradient: np.ndarray
    terms: list[CloudTerms]


class CloudFit:
    """The likelihood of a problem's clouds, an objective of `gauss_newton`.

    Args:
        problem: all of its frames have isotropic noise. progress: called with (frames used, θ, log-likelihood).
        most_steps: of one minimisation.
    """

    def __init__(self, problem: Problem, progress: Progress | None = None, most_steps: int = _MOST_STEPS) -> None:
        self.problem, self.progress, self.most_steps = problem, progress, most_steps
        std_m = float(np.median(np.concatenate([f.std_m for f in problem.frames])))
        self.samples, self.bumps = density_on(problem.model.body, problem.field, std_m)
        self.clouds = [Cloud(f.points_m, f.std_m, self.bumps) for f in problem.frames]
        v, functions = problem.variables, self.bumps.shape[1]
        self.own = len(v)
        self.history: list[dict] = []
        self.prior = np.concatenate([1.0 / v.prior_std**2, [1.0], np.full(functions, DENSITY_STD**-2)])
        self.mean = np.concatenate([v.prior_mean, np.zeros(1 + functions)])
        self.free = np.ones(len(self.mean), dtype=bool)
        self.settled = _SETTLED

    def start(self, x: np.ndarray, frames: int, before: Likelihood | None = None) -> Likelihood:
        """The likelihood of the first frames at x, with the areas that the samples stand for there from now on."""
        path = zip(range(frames), motion(self.problem, x[: self.own], tangent=False))
        self.log_areas = [np.log(self.samples.area_m2(u)) for _, (_, u, _) in path]
        return self.evaluate(x, before)

    def evaluate(self, x: np.ndarray, before: Likelihood | None = None) -> Likelihood:
        """The likelihood at x; departures are sought from where they were `before`."""
        terms, density = [], self.bumps @ x[self.own + 1 :]
        known = [] if before is None else before.terms
        for k, (_, u, du) in zip(range(len(self.log_areas)), motion(self.problem, x[: self.own])):
            departure = known[k].departure if k < len(known) else np.zeros(self.bumps.shape[1])
            dx = self.samples.changes_m(du)
            place = self.samples.positions_m(u)
            terms.append(self.clouds[k].terms(place, dx, float(x[self.own]), self.log_areas[k] + density, departure))
        off = x - self.mean
        return Likelihood(
            x,
            0.5 * float(off @ (self.prior * off)) - sum(t.value for t in terms),
            sum((t.information for t in terms), np.diag(self.prior)),
            self.prior * off - sum((t.gradient for t in terms), np.zeros(len(x))),
            terms,
        )

    def minimise(self, at: Likelihood, free: np.ndarray, settled: float = _SETTLED) -> Minimum[Likelihood]:
        """Damped scoring steps of the free variables, a mask, until one is shorter than `settled`."""
        self.free, self.settled = free, settled
        self._note(at)
        return minimise(self, at, _RULE, most_steps=self.most_steps)

    def _note(self, at: Likelihood) -> None:
        self.history.append({"frames": len(at.terms), "cost": at.cost, "theta": at.x[: self.own].copy()})
        if self.progress:
            self.progress(len(at.terms), at.x[: self.own], -at.cost)

    def step(self, at: Likelihood, damping: float) -> Step:
        chosen = np.ix_(self.free, self.free)
        limited = int(self.free[: self.own + 1].sum())
        inner = damped_step(at.hessian[chosen], at.gradient[self.free], damping, _LONGEST, limited)
        by = np.zeros(len(at.x))
        by[self.free] = inner.by
        return Step(by, inner.predicted)

    def stop_before(self, at: Likelihood, step: Step) -> str:
        own = step.by[: self.own]
        marginal = np.linalg.inv(at.hessian[np.ix_(self.free, self.free)])[: self.own, : self.own]
        length = float(own @ np.linalg.solve(marginal, own))
        return "the clouds could not be more likely" if length < self.settled else ""

    def moved(self, at: Likelihood, step: Step) -> Likelihood:
        return self.evaluate(at.x + step.by, at)

    def arrived(self, at: Likelihood, trial: Likelihood) -> Likelihood:
        self._note(trial)
        return trial

    def stop_after(self, at: Likelihood, trial: Likelihood, step: Step) -> str:
        return ""

    def stop_failed(self, step: Step) -> str:
        return ""

    def renewed(self, at: Likelihood) -> Likelihood | None:
        return None

    def posterior(self, at: Likelihood, free: np.ndarray, touched: bool) -> Posterior:
        """Gaussian around the most likely place, widened where whole frames disagree by more than their points do."""
        own = self.own
        whole = np.linalg.inv(at.hessian[np.ix_(free, free)])
        widen = unit_widening(np.stack([t.gradient[free] for t in at.terms]), whole)[:own]
        theta, covariance = at.x[:own], whole[:own, :own] * np.outer(widen, widen)
        information = np.linalg.inv(whole[:own, :own]) - np.diag(self.prior[:own])
        estimates = describe(self.problem.variables, theta, information, covariance, touched)
        scale = float(np.exp(at.x[own]))
        return Posterior(theta, covariance, information, scale, touched, estimates, covariance)


@dataclass(frozen=True)
class CloudAnswer:
    """Where the clouds are most likely, how sure that is, and the log-likelihood there."""

    fit: Fit
    posterior: Posterior
    likelihood: float


def fit_clouds(
    problem: Problem, theta: np.ndarray, progress: Progress | None = None, max_iterations: int = _MOST_STEPS
) -> CloudAnswer:
    """The parameters that make the clouds most likely, from a guess θ (P,), over ever more frames, in so many
    iterations at most on each number of them."""
    fitting, own = CloudFit(problem, progress, max_iterations), len(problem.variables)
    x, at = np.concatenate([theta, np.zeros(1 + fitting.bumps.shape[1])]), None
    free = np.ones(len(x), dtype=bool)
    for frames in growing_windows(len(problem.frames)):
        # Where new frames are still off, they show more noise than there is; only so their pull reaches that far.
        seen = noise_scale(problem.evaluate(x[:own], frames).residual, own)
        x[own] = max(x[own], min(np.log(seen), _LONGEST_PULL))
        at = fitting.minimise(fitting.start(x, frames, at), free, _LOOSE).at
        x = at.x.copy()
    if abs(x[own]) < _BELIEVED:
        x[own], free[own] = 0.0, False
    found = fitting.minimise(fitting.start(x, len(problem.frames), at), free)
    at, evaluation = found.at, problem.evaluate(found.at.x[:own], jacobian=True)
    answer = fitting.posterior(at, free, touches(problem.variables, evaluation.known_jacobian))
    fit = Fit(evaluation, found.reason, len(fitting.history), fitting.history, found.reached_limit)
    return CloudAnswer(fit, answer, -at.cost)
