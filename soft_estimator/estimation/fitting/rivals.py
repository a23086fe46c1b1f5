"""Other stiffnesses that explain the frames about as well: a body that swings more than once between two frames looks
alike at several of them, and where the model is a little wrong, the least cost need not be that of the right one.

Clean data need no second look: what they leave is noise, in which neighbours on the surface differ as much as points
far apart. Where residuals are off together, the search begins again at two or three times, and at a half or a third of
the stiffness, where the motion is not hopelessly off there: with the guess of everything else or, as a ground that was
told a millimetre off makes each of them hopeless, with everything else as it was found. Minima are then compared by
what is left of their cost when everything that is held fixed may be as wrong as it is known to (METHOD §15), in units
of the noise in which neighbours differ. Points of a patch that are off together are not as many witnesses: differences
count by Kish's design effect less, 1 + (m - 1) ρ for m points of a patch whose residuals are correlated by ρ. As likely
as other minima are, so much of the way to them is in the deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.estimation.fitting.clock import STIFFNESS
from soft_estimator.estimation.fitting.consider import Effect
from soft_estimator.estimation.fitting.explained import explained_cost
from soft_estimator.estimation.fitting.least_squares import Fit, LeastSquaresSettings, fit
from soft_estimator.estimation.fitting.uncertainty import Posterior, with_effect
from soft_estimator.estimation.inspection import Inspection, look_at
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.residuals.local_noise import (
    LEAST_POINTS,
    neighbours_of,
    neighbours_variance,
    without_outliers,
)
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.physics.solver import SolverError

RIVAL = ("rival", "another stiffness that fits about as well", "take more frames a second")
# Half a swing more or less between frames that are a swing or two apart, to either side.
_FACTORS = ((1.0 / 3.0, 0.5), (2.0, 3.0))
# Times the least cost, both beyond that of the noise: a start this far off leads nowhere that is as good. Those of two
# recordings whose right minimum was found so cost 1.4 and 2.0 times as much.
_HOPELESS = 3.0
_SHARED = 0.2  # part of the residuals' variance that neighbours share; of clean frames of 300 points below 0.1
_SAME = 0.1  # of log E: nearer ones are one minimum
_LEAST_WEIGHT = 0.01
_SETTINGS = LeastSquaresSettings(max_iterations=6, cost_tolerance=1e-3)


@dataclass(frozen=True, eq=False)
class Rival:
    """Another minimum, θ (P,), and the weight it has beside the one that is taken, 0-1."""

    theta: np.ndarray
    weight: float


def rivals_of(problem: Problem, best: Fit, settings: LeastSquaresSettings) -> tuple[Fit, tuple[Rival, ...]]:
    """The likelier of the minima that are found beside a fit, and the others.

    settings: for the search, where it goes on at another minimum.
    """
    stiffness = [j for j, v in enumerate(problem.variables.variables) if v.name == STIFFNESS]
    shared, local = shared_variance(problem, best.evaluation)
    if not stiffness or best.evaluation.jacobian is None or shared <= _SHARED:
        return best, ()
    found = [best, *_other_minima(problem, best, stiffness, 0.5 * local * len(best.evaluation.residual))]
    if len(found) == 1:
        return best, ()
    looks = [look_at(problem, one.theta) for one in found]
    left = np.array([_left(problem, one.evaluation, look, local) for one, look in zip(found, looks)])
    weight = np.exp(-(left - left.min()) / design_effect(looks[0], best.evaluation.frame, shared))
    weight /= weight.sum()
    chosen = int(np.argmax(weight))
    rivals = tuple(
        Rival(one.theta, float(w)) for k, (one, w) in enumerate(zip(found, weight)) if k != chosen and w > _LEAST_WEIGHT
    )
    if chosen == 0:
        return best, rivals
    again = fit(problem, found[chosen].theta, windows=[len(problem.frames)], settings=settings)
    return replace(again, history=[*best.history, *again.history]), rivals


def with_rivals(problem: Problem, found: Posterior, rivals: Sequence[Rival]) -> Posterior:
    """The posterior of one minimum with what others add to its variances: Σ w (θ' - θ)(θ' - θ)ᵀ."""
    if not rivals:
        return found
    moves = np.stack([np.sqrt(rival.weight) * (rival.theta - found.theta) for rival in rivals], axis=1)
    return with_effect(problem.variables, found, Effect(*RIVAL, moves))


def shared_variance(problem: Problem, at: Evaluation) -> tuple[float, float]:
    """The part of the clouds' residual variance that neighbours share, and the variance in which they differ; of no
    clouds 0 and 1."""
    whole, local, count = 0.0, 0.0, 0
    for k, frame in enumerate(problem.frames):
        residual = at.residual[at.frame == k]
        if not isinstance(frame, ObservedFrame) or len(residual) != len(frame.points_m) or len(residual) < LEAST_POINTS:
            continue
        cut = without_outliers(residual)
        whole += float(cut @ cut)
        local += len(cut) * neighbours_variance(cut, neighbours_of(frame.points_m))
        count += len(cut)
    if count == 0 or whole == 0:
        return 0.0, 1.0
    return max(0.0, 1.0 - local / whole), local / count


def design_effect(look: Inspection, frame: np.ndarray, shared: float) -> float:
    """How many points count as one: 1 + (m - 1) ρ for m points of a patch in a frame, correlated by ρ."""
    clouds = look.patch >= 0
    cells = np.unique(np.stack([frame[clouds], look.patch[clouds]]), axis=1).shape[1]
    points = float(clouds.sum()) / max(cells, 1)
    return 1.0 + max(points - 1.0, 0.0) * shared


def _left(problem: Problem, at: Evaluation, look: Inspection, noise: float) -> float:
    """What is left of the cost where everything held fixed may be off; noise: variance over the stated one."""
    columns = [c for source, c in zip(look.sources, look.columns) if not source.each_frame]
    return explained_cost(problem, at, columns, noise)


def _other_minima(problem: Problem, best: Fit, stiffness: list[int], noise: float) -> list[Fit]:
    """Where searches end that begin at other stiffnesses; noise: its cost."""
    out: list[Fit] = []
    for factors in _FACTORS:
        start = _hopeful_start(problem, best, stiffness, factors, noise)
        if start is None:
            continue
        try:
            found = fit(problem, start, windows=[len(problem.frames)], settings=_SETTINGS)
        except SolverError:  # a step to a body that soft or stiff cannot be simulated
            continue
        apart = [np.abs(found.theta[stiffness] - other.theta[stiffness]).max() for other in (best, *out)]
        if min(apart) > _SAME:
            out.append(found)
    return out


def _hopeful_start(
    problem: Problem, best: Fit, stiffness: list[int], factors: Sequence[float], noise: float
) -> np.ndarray | None:
    """θ (P,) at the factor of the stiffness that costs least, None where that is hopeless: with the guess of everything
    else, or else with everything else as it was found."""
    for rest in (problem.variables.start(), best.theta):
        cost, theta = min((_start(problem, best, stiffness, f, rest) for f in factors), key=lambda one: one[0])
        if cost - noise <= _HOPELESS * (best.evaluation.cost - noise):
            return theta
    return None


def _start(
    problem: Problem, best: Fit, stiffness: list[int], factor: float, rest: np.ndarray
) -> tuple[float, np.ndarray]:
    """The cost at a factor of the stiffness, everything else as in `rest` (P,), and θ (P,) there."""
    theta = rest.copy()
    theta[stiffness] = best.theta[stiffness] + np.log(factor)
    try:
        return problem.evaluate(theta).cost, theta
    except SolverError:
        return np.inf, theta
