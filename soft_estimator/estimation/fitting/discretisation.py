"""What grid and time step do to an estimate: how it would move if the residuals were those of half the spacing, or of
half the step.

At the minimum a change Δr of the residuals moves the estimate by δ = -(JᵀWJ + prior)⁻¹ JᵀW Δr. With Δr from one
simulation refined once, and errors of order p in what was halved, the whole error is 2ᵖ/(2ᵖ - 1) δ. Spacing
(docs/elements.md) and the default time scheme are of second order: 4/3 δ is taken off. Near edges, clamps and contacts
the order is lower; were it the first, the error would be 2 δ, so half of the difference, δ/3, is added as a standard
deviation. A time scheme of first order errs in second order as well: the middle between both is taken off, 5/3 δ. Grid
and step are refined one at a time, as what both do together is of fourth order: half the step on the grid as it is
costs little.

Where a stiffness, damping or density would move by more than a tenth, or Poisson's ratio by a tenth of its range, the
grid is too coarse for any of that: nothing is taken off, and all of it is in the deviation. A step slows what swings by
a known law, tan(ωΔt/2) for ωΔt/2: up to a quarter its two terms are enough.

A misfit that the refined residuals do not show is the grid's or the step's, too: edges of a box are rounded off by a
part of a cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.estimation.fitting.completing import evidence_of
from soft_estimator.estimation.fitting.consider import Effect
from soft_estimator.estimation.fitting.uncertainty import Posterior, describe
from soft_estimator.estimation.fitting.verdict import FitVerdict, judge
from soft_estimator.estimation.inspection import inspect_fit
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.variables import Variables, natural_slope, to_natural, upper_bound
from soft_estimator.physics.integrator import with_step

_REST = 1.0 / 3.0  # half of what the orders one and two differ by
GRID = ("grid", "the grid's own error", "use smaller cells")
STEP = ("step", "the time step's own error", "use a shorter step_s")
_FARTHEST = {GRID: 0.1, STEP: 0.25}  # of a value that is positive, of the range of one that is bounded


@dataclass(frozen=True, eq=False)
class Refinement:
    """The same frames explained with half the spacing or half the step.

    Attributes:
        source: what was halved, GRID or STEP. order: lowest one of its errors, 1 or 2. residual: at the minimum's θ,
            (n,).
    """

    source: tuple[str, str, str]
    order: int
    residual: np.ndarray


def on_half_the_spacing(finer: Problem, at: Evaluation) -> Refinement:
    """finer: the same frames, variables and steps on the grid refined once."""
    return Refinement(GRID, 2, finer.evaluate(at.theta).residual)


def with_half_the_step(problem: Problem, at: Evaluation) -> Refinement:
    """The problem itself with twice as many steps."""
    scheme = problem.model.integrator
    shorter = problem.with_model(problem.model.with_step(with_step(scheme, 0.5 * scheme.step_s)))
    return Refinement(STEP, scheme.order, shorter.evaluate(at.theta).residual)


def without_discretisation_error(
    problem: Problem, at: Evaluation, found: Posterior, refinements: Sequence[Refinement]
) -> Posterior:
    """The posterior with the errors of grid and step taken off, and what is left of them in the intervals.

    Args:
        at: at the minimum, with its Jacobian. found: the posterior there.
    """
    theta, effects, residual = found.theta, found.effects, at.residual
    for refined in refinements:
        move = _move(problem, at, found, refined.residual)
        residual = residual + (refined.residual - at.residual) + at.known_jacobian @ move
        taken, left = taken_and_left(problem.variables, at.theta, move, refined.source, refined.order)
        theta = theta + taken
        effects = (*effects, Effect(*refined.source, np.diag(np.abs(left))))
    verdict = found.verdict if found.verdict.fits else _refined_verdict(problem, at, found, residual)
    estimates = describe(
        problem.variables, theta, found.information, found.statistical, found.touched, effects, verdict
    )
    added = sum((e.covariance for e in effects[len(found.effects) :]), np.zeros_like(found.covariance))
    return replace(
        found,
        theta=theta,
        covariance=found.covariance + added,
        effects=effects,
        estimates=estimates,
        verdict=verdict,
    )


def taken_and_left(
    variables: Variables, theta: np.ndarray, move: np.ndarray, source: tuple[str, str, str], order: int
) -> tuple[np.ndarray, np.ndarray]:
    """What to take off θ (P,) where half of something moves it by `move` (P,), and what is left as a deviation, (P,).

    source: what was halved, GRID or STEP. order: lowest one of its errors, 1 or 2.
    """
    whole = (4.0 / 3.0 if order == 2 else 5.0 / 3.0) * move
    return (
        (whole, _REST * move) if _is_small(variables, theta, whole, _FARTHEST[source]) else (np.zeros_like(move), whole)
    )


def _refined_verdict(problem: Problem, at: Evaluation, found: Posterior, residual: np.ndarray) -> FitVerdict:
    """The verdict on residuals (n,) with everything refined, fitted anew; where they do not fit either, it stays."""
    inspection = inspect_fit(problem, at.theta, [])
    evidence = replace(evidence_of(problem, at, inspection), residual=residual[inspection.patch >= 0])
    refined = judge(evidence)
    return refined if refined.fits else found.verdict


def _move(problem: Problem, at: Evaluation, found: Posterior, residual: np.ndarray) -> np.ndarray:
    """δ of θ, (P,), to other residuals (n,) of the same θ."""
    weight = at.weight / np.where(at.whitened, found.noise_scale, 1.0) ** 2
    jacobian = at.known_jacobian
    information = jacobian.T @ (jacobian * weight[:, None]) + np.diag(1.0 / problem.variables.prior_std**2)
    return -np.linalg.solve(information, jacobian.T @ (weight * (residual - at.residual)))


def _is_small(variables: Variables, theta: np.ndarray, move: np.ndarray, farthest: float) -> bool:
    """Whether no value that is positive or bounded moves by over this part of itself or of its range."""
    for variable, at, step in zip(variables.variables, theta, move):
        if variable.transform not in ("log", "logit"):
            continue
        size = to_natural(variable, at) if variable.transform == "log" else upper_bound(variable)
        if abs(natural_slope(variable, at) * step) > farthest * size:
            return False
    return True
