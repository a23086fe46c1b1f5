"""From frames to an answer, in the way that suits the kind of their noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from soft_estimator.estimation.fitting.completing import completed
from soft_estimator.estimation.fitting.least_squares import Fit, fit
from soft_estimator.estimation.fitting.profile import with_profile
from soft_estimator.estimation.fitting.resampling import Resampling, refine
from soft_estimator.estimation.fitting.uncertainty import Posterior, posterior
from soft_estimator.estimation.fitting.whole_clouds import fit_clouds
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame, is_isotropic

# In cells. Noise this wide throws points across the field's kinks and around the body's curves; distances then say
# little, and the cloud is taken as a whole.
WIDE = 0.5
# Isotropic noise below this part of a cell moves no estimate by anything that could be seen.
NONE = 1e-4


def is_wide(problem: Problem) -> bool:
    """Whether all frames have isotropic noise too wide for distances."""
    return all(map(is_isotropic, problem.frames)) and _cells(problem) >= WIDE


def _cells(problem: Problem) -> float:
    """The median deviation of the points' noise, in cells."""
    clouds = [f.std_m for f in problem.frames if isinstance(f, ObservedFrame)]
    return float(np.median(np.concatenate(clouds))) / problem.field.spacing_m


def answer_of(problem: Problem, found: Fit) -> tuple[Problem, Fit, Posterior]:
    """The posterior around a fit of distances: (problem as fitted last, fit, posterior).

    Noise along known rays needs nothing more. Isotropic noise is measured along lines and drawn anew (`resampling`).
    """
    if any(map(is_isotropic, problem.frames)) and _cells(problem) > NONE:
        problem, found, resampling = refine(problem, found)
        return problem, found, _completed(problem, found, resampling)
    if found.evaluation.jacobian is None:
        found = replace(found, evaluation=problem.evaluate(found.theta, jacobian=True))
    return problem, found, _completed(problem, found)


def _completed(problem: Problem, found: Fit, resampling: Resampling | None = None) -> Posterior:
    around = posterior(problem, found.evaluation, resampling)
    return completed(problem, found.evaluation, with_profile(problem, found.evaluation, around))


def solve(problem: Problem, theta: np.ndarray) -> tuple[Fit, Posterior]:
    """Fit from θ (P,) in the way that suits the frames' noise, and how sure the result is."""
    if is_wide(problem):
        answer = fit_clouds(problem, theta)
        return answer.fit, completed(problem, answer.fit.evaluation, answer.posterior)
    return answer_of(problem, fit(problem, theta))[1:]
