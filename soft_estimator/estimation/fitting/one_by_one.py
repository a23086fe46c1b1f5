"""A search that was led astray, and one that is not: frames are added one by one, as far as each foretells the next.

A soft body that is thrown about passes through motions that run away from any small error. There the cost has minima
by the dozen, each as narrow as a certainty, and windows that grow by several frames at a time jump into one of them.
Two signs together tell: at the answer, a step over which motions are linear moves points much further than it would
have a body that bounces and no more; and earlier frames, taken alone, pull away from the answer by more than chance, or
all of them do, where the search got stuck on the way. Where points move by some hundredths of the body, minima are so
many that frames agree in a wrong one, too, and nothing else has to tell.

Such a search is made anew. Each window has one frame more than the last one and is brought to its minimum; the minimum
moves by little then, and the search stays at the right one, or comes back to it where earlier frames pull. It ends
before the first frame that the ones before it do not foretell: what later ones would add is a certainty that nobody
has. The interval is that of fewer frames, wider, and holds the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import gammaincinv

from soft_estimator.estimation.fitting.horizon import LEAST_FRAMES, moved_share
from soft_estimator.estimation.fitting.least_squares import Fit, LeastSquaresSettings, fit, informs
from soft_estimator.estimation.fitting.uncertainty import noise_scale
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.physics.solver import SolverError

# Part of the body's size that points move by. A body that falls and bounces without running away stays below 0.007.
_FORETOLD = 0.01
# Of 1,390 drawn recordings eight were beyond this whose frames agreed: two of them 20 and 8 deviations off; the others,
# right, lose half of what they knew.
_LOST = 0.03
# Earlier frames pull away from an answer no further than this in as many cases of chance, whichever of them are taken.
_CHANCE = 0.99
# To the minimum: a hundredth of a stiffness, with which a growing window is content, is ten deviations of such bodies.
_WHOLE_WAY = LeastSquaresSettings(step_tolerance=1e-4, cost_tolerance=2e-5, max_iterations=15)


def is_astray(problem: Problem, at: Evaluation) -> bool:
    """Whether a fit of a body that nothing holds stands where motions run away, and earlier frames pull away from it or
    nothing could tell; `at` holds the Jacobian."""
    if problem.model.dirichlet.any:
        return False
    return _moved(problem, at) > _LOST or (_runs_away(problem, at) and _pulls_away(problem, at))


def search_one_by_one(problem: Problem, ended: np.ndarray, check: Callable[[], None]) -> Fit | None:
    """The fit of as many of the first frames as foretell each other, its evaluation that of those alone; None where not
    even the least number of frames does.

    ended: θ (P,) where the search ended that this one is instead of. check: called before each frame, raises where
    there is no time for another.
    """
    theta, found = problem.variables.start(), None
    for frames in range(1, len(problem.frames) + 1):
        check()
        try:
            here = _window(problem, theta, ended, frames)
        except SolverError:
            break
        if here is None:
            continue
        theta = here.theta
        if _runs_away(problem, here.evaluation):
            if found is not None:
                break
        elif not here.reached_limit and frames >= LEAST_FRAMES and not _pulls_away(problem, here.evaluation):
            found = here
    return found


def earlier_pull(problem: Problem, at: Evaluation) -> float:
    """The most that the cost of the first so many frames, alone, promises to fall by from a place that suits all of
    them, ½ gᵀ H⁻¹ g in units of the noise that the residuals show; at the right one ½ χ² of as many degrees of freedom
    as there are variables, at most."""
    v, jacobian = problem.variables, at.known_jacobian
    prior = 1.0 / v.prior_std**2
    unit = np.where(at.whitened, noise_scale(at.residual[at.whitened], len(v)), 1.0) ** 2
    slope, weighted, most = at.slope / unit, at.weighted / unit[:, None], 0.0
    for end in (*(np.flatnonzero(np.diff(at.frame)) + 1), len(slope)):
        hessian = jacobian[:end].T @ weighted[:end] + np.diag(prior)
        pull = jacobian[:end].T @ slope[:end] + prior * (at.theta - v.prior_mean)
        most = max(most, 0.5 * float(pull @ np.linalg.solve(hessian, pull)))
    return most


def _window(problem: Problem, theta: np.ndarray, ended: np.ndarray, frames: int) -> Fit | None:
    """The first frames fitted from θ (P,), or from where the other search ended, if those frames fit better there than
    where that leads: then this one is led astray; None where they say nothing of any variable yet."""
    if not informs(problem, problem.evaluate(theta, frames, jacobian=True)):
        return None
    found = _minimum(problem, theta, frames)
    if problem.evaluate(ended, frames).cost < found.evaluation.cost:
        found = min(found, _minimum(problem, ended, frames), key=lambda one: one.evaluation.cost)
    return found


def _minimum(problem: Problem, theta: np.ndarray, frames: int) -> Fit:
    """The fit of the first frames from θ (P,), with its own Jacobian."""
    found = fit(problem, theta, windows=[frames], settings=_WHOLE_WAY, guess=problem.variables.start())
    if found.evaluation.jacobian is None or found.evaluation.linearised_at is not None:
        return replace(found, evaluation=problem.evaluate(found.theta, frames, jacobian=True))
    return found


def _runs_away(problem: Problem, at: Evaluation) -> bool:
    return _moved(problem, at) > _FORETOLD


def _moved(problem: Problem, at: Evaluation) -> float:
    return float(moved_share(problem, at).max(initial=0.0))


def _pulls_away(problem: Problem, at: Evaluation) -> bool:
    """Whether the pull is more than half of what χ² of the variables stays below in `_CHANCE` of cases."""
    return earlier_pull(problem, at) > float(gammaincinv(0.5 * len(problem.variables), _CHANCE))
