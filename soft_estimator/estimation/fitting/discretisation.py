"""What grid and time step do to an estimate: how it would move if the residuals were those of half the spacing, or of
half the step.

At the minimum a change Δr of the residuals moves the estimate by δ = -(JᵀWJ + prior)⁻¹ JᵀW Δr. With Δr from one
simulation refined once, and errors of order p in what was halved, the whole error is 2ᵖ/(2ᵖ - 1) δ. Spacing
(docs/elements.md) and the default time scheme are of second order: 4/3 δ is taken off. Near edges, clamps and contacts
the order is lower; were it the first, the error would be 2 δ, so half of the difference, δ/3, is added as a standard
deviation. A time scheme of first order errs in second order as well: the middle between both is taken off, 5/3 δ. Grid
and step are refined one at a time, as what both do together is of fourth order: half the step on the grid as it is
costs little.

So far that is linear. A number that the frames hardly show moves far, to where they show it more or less than before:
Poisson's ratio of a beam on four cells moves by a fifth of itself. Residuals and Jacobian are therefore taken again
where the move leads, for one more Gauss-Newton step and for the deviations stated there.

Where a stiffness, damping or density would move by more than a tenth, or Poisson's ratio by a fifth of its range, the
grid is too coarse for any of that: nothing is taken off, and all of it is in the deviation. A step slows what swings by
a known law, tan(ωΔt/2) for ωΔt/2: up to a quarter its two terms are enough. Nothing is taken off, either, where the
second Gauss-Newton step is more than half as long as the first.

A clamp on the grid ends with its last node, up to a cell before its box does: a fit with the next nodes held, too,
shows by how much of that way the answer is off.

A misfit that the refined residuals do not show is the grid's or the step's, too: edges of a box are rounded off by a
part of a cell. The refined ones are not exact either: errors of first order are as large there as what refining has
changed, and patches may be off by as much. That is where a soft body lands on its edge, and tells nothing from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.estimation.fitting.clock import is_by_clock, where_stiffness_is_known
from soft_estimator.estimation.fitting.completing import evidence_of
from soft_estimator.estimation.fitting.consider import Effect
from soft_estimator.estimation.fitting.felt_force import is_by_force
from soft_estimator.estimation.fitting.least_squares import LeastSquaresSettings, fit
from soft_estimator.estimation.fitting.left_over import with_left_over
from soft_estimator.estimation.fitting.modal_start import with_small_bend
from soft_estimator.estimation.fitting.told_plane import with_told_plane
from soft_estimator.estimation.fitting.uncertainty import Posterior, describe
from soft_estimator.estimation.fitting.verdict import FitVerdict, judge
from soft_estimator.estimation.held_pose import with_pose
from soft_estimator.estimation.inspection import look_at
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.variables import Variables, natural_slope, to_natural, upper_bound

_REST = 1.0 / 3.0  # half of what the orders one and two differ by
_FARTHEST_CHECKED = 0.2  # of such a range, where the residuals are taken again at the end of the move
_LONGEST_SECOND = 0.5  # of a first step: then the problem is not as linear as that
GRID = ("grid", "the grid's own error", "use smaller cells")
STEP = ("step", "the time step's own error", "use a shorter step_s")
CLAMP = ("clamp", "where the clamp ends on the grid", "let it end on a plane of the grid's nodes")
_CLAMP_SEARCH = LeastSquaresSettings(max_iterations=6, step_tolerance=0.03)  # near enough for what is left of it
_FARTHEST = {GRID: 0.1, STEP: 0.25, CLAMP: 0.1}  # of a value that is positive, of the range of one that is bounded


@dataclass(frozen=True, eq=False)
class Refinement:
    """The same frames explained with half the spacing or half the step.

    Attributes:
        source: what was halved, GRID or STEP, or what was moved by a cell, CLAMP. whole: how often what that moves the
            answer by makes up the whole error. left: how often it is left as a deviation. residual: at the minimum's θ,
            (n,).
    """

    source: tuple[str, str, str]
    whole: float
    left: float
    residual: np.ndarray

    def whole_change(self, at: Evaluation) -> np.ndarray:
        """Of the residuals with the whole error, (n,)."""
        return self.whole * (self.residual - at.residual)

    @classmethod
    def halved(cls, source: tuple[str, str, str], order: int, residual: np.ndarray) -> Refinement:
        """With half of what errs in so many orders."""
        return cls(source, whole_of(order), _REST, residual)


def on_half_the_spacing(finer: Problem, at: Evaluation) -> Refinement:
    """finer: the same frames, variables and steps on the grid refined once."""
    return Refinement.halved(GRID, 2, finer.evaluate(at.theta).residual)


def with_half_the_step(problem: Problem, at: Evaluation) -> Refinement:
    """The problem itself with twice as many steps."""
    shorter = problem.with_model(problem.model.in_parts(2))
    return Refinement.halved(STEP, problem.model.integrator.order, shorter.evaluate(at.theta).residual)


def with_longer_clamps(longer: Problem, at: Evaluation, share: float) -> Refinement:
    """longer: the same frames and variables where the nodes next to the held ones are held, too; share: the part of
    that way that clamps really go on. A third of it stays as a deviation: the answer is not linear in it.

    A shorter body swings so much faster that no small step of its stiffness looks alike: it is fitted anew, and the
    residuals are those that would move the answer as far.
    """
    v, moved = longer.variables, np.zeros_like(at.theta)
    asked = [j for j, variable in enumerate(v.variables) if not variable.beside]  # the pose stays: a third of the work
    found, beside = v.parameters(at.theta), {variable.name for variable in v.variables if variable.beside}
    reference = v.reference.replace(**{name: getattr(found, name) for name in beside})
    fewer = longer.with_variables(Variables(reference, [v.variables[j] for j in asked]))
    start = at.theta[asked]
    moved[asked] = fit(fewer, start, windows=[len(longer.frames)], settings=_CLAMP_SEARCH).theta - start
    return Refinement(CLAMP, share, _REST * share, at.residual - at.known_jacobian @ moved)


def without_discretisation_error(
    problem: Problem, at: Evaluation, found: Posterior, refinements: Sequence[Refinement]
) -> Posterior:
    """The posterior with the errors of grid and step taken off, and what is left of them in the intervals.

    Args:
        at: at the minimum, with its Jacobian. found: the posterior there.
    """
    first = _Linear.of(problem, at, found)
    moves = [first.move(refined.residual - at.residual) for refined in refinements]
    shares = [
        _taken_and_left(problem.variables, at.theta, move, refined, checked=True)
        for move, refined in zip(moves, refinements)
    ]
    second, step = _second(problem, at, found, refinements, first, [taken for taken, _ in shares])
    if second is None:
        shares = [(np.zeros_like(move), r.whole * move) for move, r in zip(moves, refinements)]
        statistical, information = found.statistical, found.information
    else:
        statistical, information = second.carried(first, found.statistical), second.information
    theta = found.theta + sum((taken for taken, _ in shares), step)
    effects, residual = found.effects, at.residual
    for refined, move, (taken, left) in zip(refinements, moves, shares):
        change = refined.residual - at.residual
        residual = residual + change + at.known_jacobian @ move
        if second is not None and taken.any():
            left = refined.left * second.move(change)
        effects = (*effects, Effect(*refined.source, np.diag(np.abs(left))))
    added = sum((e.covariance for e in effects[len(found.effects) :]), np.zeros_like(found.covariance))
    covariance = found.covariance - found.statistical + statistical + added
    verdict = found.verdict if found.verdict.fits else _refined_verdict(problem, at, found, residual, covariance)
    if any(refined.source == GRID for refined in refinements):  # else nobody knows what it does to the motion
        verdict = with_left_over(verdict, problem, at, [r.whole_change(at) for r in refinements], residual)
    estimates = describe(problem.variables, theta, information, statistical, found.touched, effects, verdict)
    return replace(
        found,
        theta=theta,
        covariance=covariance,
        statistical=statistical,
        information=information,
        effects=effects,
        estimates=estimates,
        verdict=verdict,
    )


def taken_and_left(
    variables: Variables,
    theta: np.ndarray,
    move: np.ndarray,
    source: tuple[str, str, str],
    order: int,
    fitted_to: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """What to take off θ (P,) where half of something moves it by `move` (P,), and what is left as a deviation, (P,).

    Args:
        source: what was halved, GRID or STEP. order: lowest one of its errors, 1 or 2.
        fitted_to: deviations of θ, (P,), where the move ends at the minimum of the refined frames themselves. It is
            taken off then, however long, and what it does not reach is if that is not too far, or no farther than what
            is known anyway.
    """
    refined = Refinement.halved(source, order, np.zeros(0))
    if fitted_to is None:
        return _taken_and_left(variables, theta, move, refined)
    beyond = (refined.whole - 1.0) * move
    far, limit = np.where(np.abs(beyond) <= fitted_to, 0.0, beyond), _FARTHEST[source]
    if _is_small(variables, theta + move, far, limit, limit):
        return refined.whole * move, refined.left * move
    return move, beyond


def _taken_and_left(
    variables: Variables,
    theta: np.ndarray,
    move: np.ndarray,
    refined: Refinement,
    *,
    checked: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """checked: whether the residuals are taken again at the end of the move."""
    whole, own = refined.whole * move, _FARTHEST[refined.source]
    small = _is_small(variables, theta, whole, own, max(own, _FARTHEST_CHECKED) if checked else own)
    return (whole, refined.left * move) if small else (np.zeros_like(move), whole)


def whole_of(order: int) -> float:
    """The whole error over what halving takes off; order: its lowest one, 1 or 2."""
    return 4.0 / 3.0 if order == 2 else 5.0 / 3.0


@dataclass(frozen=True, eq=False)
class _Linear:
    """The problem made linear: (JᵀWJ + prior) δ = -JᵀW Δr.

    Attributes:
        pull: JᵀW, (P, n). information: JᵀWJ, (P, P). inverse: (JᵀWJ + prior)⁻¹, (P, P). score: slope of the cost, (P,).
    """

    pull: np.ndarray
    information: np.ndarray
    inverse: np.ndarray
    score: np.ndarray

    @classmethod
    def of(cls, problem: Problem, at: Evaluation, found: Posterior, weight: np.ndarray | None = None) -> _Linear:
        """At an evaluation with its Jacobian; weight: of the residuals (n,), the evaluation's own by default."""
        v, jacobian = problem.variables, at.known_jacobian
        weight = (at.weight if weight is None else weight) / np.where(at.whitened, found.noise_scale, 1.0) ** 2
        pull = (jacobian * weight[:, None]).T
        inverse = np.linalg.inv(pull @ jacobian + np.diag(1.0 / v.prior_std**2))
        score = pull @ at.residual + (at.theta - v.prior_mean) / v.prior_std**2
        return cls(pull, pull @ jacobian, inverse, score)

    def move(self, change: np.ndarray) -> np.ndarray:
        """δ of θ, (P,), where the residuals change by (n,)."""
        return -self.inverse @ (self.pull @ change)

    def carried(self, first: _Linear, covariance: np.ndarray) -> np.ndarray:
        """A covariance (P, P) from there to here: as much wider than the noise alone would make it as it was there."""
        turn = np.linalg.cholesky(self.inverse) @ np.linalg.inv(np.linalg.cholesky(first.inverse))
        return turn @ covariance @ turn.T


def _second(
    problem: Problem, at: Evaluation, found: Posterior, refinements: Sequence[Refinement], first: _Linear,
    taken: Sequence[np.ndarray],
) -> tuple[_Linear | None, np.ndarray]:  # fmt: skip
    """The problem made linear again where all moves lead, and the step from there; None where it is not to be trusted.

    The step brings the slope of the cost, with the refined residuals in it, back to what it is at the minimum.
    """
    whole = sum(taken, np.zeros_like(at.theta))
    if not whole.any():
        return first, whole
    there = problem.evaluate(at.theta + whole, jacobian=True)
    changes = [r.whole_change(at) for r, t in zip(refinements, taken) if t.any()]
    second = _Linear.of(problem, replace(there, residual=sum(changes, there.residual)), found, at.weight)
    step = -second.inverse @ (second.score - first.score)
    before, after = (np.linalg.norm(x / problem.variables.prior_std) for x in (whole, step))
    if not after <= _LONGEST_SECOND * before:
        return None, np.zeros_like(step)
    return second, step


def _refined_verdict(
    problem: Problem, at: Evaluation, found: Posterior, residual: np.ndarray, covariance: np.ndarray
) -> FitVerdict:
    """The verdict on residuals (n,) with everything refined, fitted anew; where they do not fit either, it stays. No
    finer grid sets a body's clock right or tares a sensor; where it is held may be no better known than the grid's
    error lets it.

    covariance: of θ, with what grid and step add to it, (P, P).
    """
    if is_by_clock(found.verdict):
        return where_stiffness_is_known(found.verdict, problem.variables, covariance)
    if is_by_force(found.verdict):
        return found.verdict
    inspection = look_at(problem, at.theta)
    evidence, clouds = evidence_of(problem, at, inspection), inspection.patch >= 0
    refined_m = (residual - at.residual)[clouds] * evidence.std_m
    judged = judge(replace(evidence, residual=residual[clouds], refined_m=refined_m))
    refined = with_pose(judged, problem.variables, at.theta, covariance, problem.model, problem.known)
    refined = with_small_bend(
        with_told_plane(refined, problem.variables, at.theta), problem.model, problem.variables.parameters(at.theta)
    )
    return refined if refined.fits else found.verdict


def _is_small(variables: Variables, theta: np.ndarray, move: np.ndarray, of_value: float, of_range: float) -> bool:
    """Whether no value that is positive, and none that is bounded, moves by over this part of itself or its range."""
    for variable, at, step in zip(variables.variables, theta, move):
        if variable.transform not in ("log", "logit"):
            continue
        log = variable.transform == "log"
        farthest = of_value * to_natural(variable, at) if log else of_range * upper_bound(variable)
        if abs(natural_slope(variable, at) * step) > farthest:
            return False
    return True
