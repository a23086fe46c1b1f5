"""The parameters that make wide-noise clouds most likely as a whole (`residuals.whole_cloud`), and how sure that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from soft_estimator.estimation.fitting.least_squares import Fit, growing_windows
from soft_estimator.estimation.fitting.uncertainty import Posterior, describe, frame_widening, noise_scale, touches
from soft_estimator.estimation.motion import motion
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.surface_samples import spread_samples
from soft_estimator.estimation.residuals.whole_cloud import Cloud, CloudTerms
from soft_estimator.physics.solver import SolverError

_SAMPLE_STDS, _SAMPLE_CELLS = 0.5, 1.5  # farthest apart samples may be, in deviations of the noise and in cells
_BUMP_STDS = 0.5  # least width of the functions that describe the density
_MOST_SAMPLES, _MOST_BUMPS = 3000, 150
DENSITY_STD = 3.0  # of each function's part in the logarithm of the common density
_MOST_STEPS = 25
_SETTLED, _LOOSE = 1e-4, 1e-2  # square of a last step, in standard deviations: of the last climb, of those before
_LONGEST_PULL = 1.5  # logarithm of the scale of the noise that a fit begins with
_LONGEST = 0.5  # step of any variable
_SWINGING = 0.1  # damping of steps that gain less than half of what they promise
# A stated noise is believed where the clouds show the same to this part: the fitted densities take up a few hundredths
# of it, and noise that is taken for smaller than it is bends the estimate.
_BELIEVED = 0.1

Progress = Callable[[int, np.ndarray, float], None]


@dataclass(frozen=True)
class Place:
    """The likelihood at x = (θ, logarithm of the noise's scale, common density), its slope, and its terms, one a
    frame."""

    x: np.ndarray
    value: float
    information: np.ndarray
    gradient: np.ndarray
    terms: list[CloudTerms]


class CloudFit:
    """The likelihood of a problem's clouds, and the way up.

    Args:
        problem: all of its frames have isotropic noise. progress: told (frames used, θ, log-likelihood).
    """

    def __init__(self, problem: Problem, progress: Progress | None = None) -> None:
        self.problem, self.progress = problem, progress
        std = float(np.median(np.concatenate([f.std_m for f in problem.frames])))
        spacing = min(_SAMPLE_STDS * std, _SAMPLE_CELLS * problem.field.spacing_m)
        self.samples = spread_samples(problem.model.body, problem.field, spacing, _MOST_SAMPLES)
        self.bumps = self.samples.bumps(_MOST_BUMPS, _BUMP_STDS * std)
        self.clouds = [Cloud(f.points_m, f.std_m, self.bumps) for f in problem.frames]
        v, functions = problem.variables, self.bumps.shape[1]
        self.own, self.history = len(v), []
        self.prior = np.concatenate([1.0 / v.prior_std**2, [1.0], np.full(functions, DENSITY_STD**-2)])
        self.mean = np.concatenate([v.prior_mean, np.zeros(1 + functions)])

    def start(self, x: np.ndarray, frames: int, before: Place | None = None) -> Place:
        """The likelihood of the first frames at x, with the areas that the samples stand for there from now on."""
        path = zip(range(frames), motion(self.problem, x[: self.own], tangent=False))
        self.log_areas = [np.log(self.samples.area_m2(u)) for _, (_, u, _) in path]
        return self.evaluate(x, before)

    def evaluate(self, x: np.ndarray, before: Place | None = None) -> Place:
        """The likelihood at x; departures are sought from where they were `before`."""
        terms, density = [], self.bumps @ x[self.own + 1 :]
        known = [] if before is None else before.terms
        for k, (_, u, du) in zip(range(len(self.log_areas)), motion(self.problem, x[: self.own])):
            departure = known[k].departure if k < len(known) else np.zeros(self.bumps.shape[1])
            dx = (self.samples.ride @ du.reshape(len(du), -1)).reshape(-1, *du.shape[1:])
            place = self.samples.positions_m(u)
            terms.append(self.clouds[k].explain(place, dx, float(x[self.own]), self.log_areas[k] + density, departure))
        off = x - self.mean
        return Place(
            x,
            sum(t.value for t in terms) - 0.5 * float(off @ (self.prior * off)),
            sum((t.information for t in terms), np.diag(self.prior)),
            sum((t.gradient for t in terms), -self.prior * off),
            terms,
        )

    def climb(self, at: Place, free: np.ndarray, settled: float = _SETTLED) -> tuple[Place, str]:
        """Damped scoring steps of the free variables, a mask, until one is shorter than `settled`: where, and why."""
        damping = 1e-3
        for _ in range(_MOST_STEPS):
            self.history.append({"frames": len(at.terms), "cost": -at.value, "theta": at.x[: self.own].copy()})
            if self.progress:
                self.progress(len(at.terms), at.x[: self.own], at.value)
            trial = None
            while trial is None:
                step, length, promised = self._step(at, free, damping)
                if length < settled:
                    return at, "the clouds could not be more likely"
                try:
                    trial = self.evaluate(at.x + step, at)
                except SolverError:
                    trial = None
                gain = -np.inf if trial is None else trial.value - at.value
                if not gain > 0:
                    trial, damping = None, 10 * damping
            # Squares of scores are not the curvature itself: where they fall short, full steps swing from side to side.
            damping = max(damping / 10, 1e-6) if gain > 0.5 * promised else max(3 * damping, _SWINGING)
            at = trial
        return at, f"reached {_MOST_STEPS} steps of the clouds' likelihood"

    def _step(self, at: Place, free: np.ndarray, damping: float) -> tuple[np.ndarray, float, float]:
        """A step, the square of its length in deviations of θ, and the gain it promises."""
        information = at.information[np.ix_(free, free)]
        step = np.zeros(len(at.x))
        step[free] = np.linalg.solve(information + damping * np.diag(np.diag(information)), at.gradient[free])
        step *= min(1.0, _LONGEST / max(float(np.abs(step[: self.own + 1]).max()), 1e-300))
        own = step[: self.own]
        length = float(own @ np.linalg.solve(np.linalg.inv(information)[: self.own, : self.own], own))
        return step, length, float(at.gradient @ step - 0.5 * step @ at.information @ step)

    def posterior(self, at: Place, free: np.ndarray, touched: bool) -> Posterior:
        """Gaussian around the most likely place, widened where whole frames disagree by more than their points do."""
        own = self.own
        whole = np.linalg.inv(at.information[np.ix_(free, free)])
        widen = frame_widening(np.stack([t.gradient[free] for t in at.terms]), whole)[:own]
        theta, covariance = at.x[:own], whole[:own, :own] * np.outer(widen, widen)
        information = np.linalg.inv(whole[:own, :own]) - np.diag(self.prior[:own])
        estimates = describe(self.problem.variables, theta, information, covariance, touched)
        return Posterior(theta, covariance, float(np.exp(at.x[own])), estimates)


@dataclass(frozen=True)
class CloudAnswer:
    """Where the clouds are most likely, how sure that is, and the log-likelihood there."""

    fit: Fit
    posterior: Posterior
    likelihood: float


def fit_clouds(problem: Problem, theta: np.ndarray, progress: Progress | None = None) -> CloudAnswer:
    """The parameters that make the clouds most likely, from a guess θ (P,), over ever more frames."""
    fitting, own = CloudFit(problem, progress), len(problem.variables)
    x, at = np.concatenate([theta, np.zeros(1 + fitting.bumps.shape[1])]), None
    free = np.ones(len(x), dtype=bool)
    for frames in growing_windows(len(problem.frames)):
        # Where new frames are still off, they show more noise than there is; only so their pull reaches that far.
        seen = noise_scale(problem.evaluate(x[:own], frames).residual, own)
        x[own] = max(x[own], min(np.log(seen), _LONGEST_PULL))
        at, _ = fitting.climb(fitting.start(x, frames, at), free, _LOOSE)
        x = at.x.copy()
    if abs(x[own]) < _BELIEVED:
        x[own], free[own] = 0.0, False
    at, reason = fitting.climb(fitting.start(x, len(problem.frames), at), free)
    evaluation = problem.evaluate(at.x[:own], jacobian=True)
    answer = fitting.posterior(at, free, touches(problem.variables, evaluation.jacobian))
    return CloudAnswer(Fit(evaluation, reason, len(fitting.history), fitting.history), answer, at.value)
