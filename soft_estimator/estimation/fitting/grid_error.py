"""What the grid does to an estimate: how it would move if the residuals were those of a grid twice as fine.

At the minimum a change Δr of the residuals moves the estimate by δ = -(JᵀWJ + prior)⁻¹ JᵀW Δr. With Δr from one
simulation on the grid refined once, and errors of second order in the spacing (docs/elements.md), the whole error of
the grid is 4/3 δ: it is taken off. Near edges and clamps the order is lower; were it the first, the error would be 2 δ,
so the half of the difference, δ/3, is added as a standard deviation. Where a stiffness, damping or density would move
by more than a tenth, the grid is too coarse for any of that: nothing is taken off, and all of it is in the deviation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from soft_estimator.estimation.fitting.consider import Effect
from soft_estimator.estimation.fitting.uncertainty import Posterior, describe
from soft_estimator.estimation.problem import Evaluation, Problem

_WHOLE, _REST = 4.0 / 3.0, 1.0 / 3.0
_FARTHEST = 0.1  # relative
GRID = ("grid", "the grid's own error", "use smaller cells")


def grid_move(problem: Problem, at: Evaluation, found: Posterior, finer: Problem) -> np.ndarray:
    """δ of θ, (P,), to the refined grid.

    Args:
        at: at the minimum, with its Jacobian. finer: the same frames and variables on the grid refined once.
    """
    weight = at.weight / np.where(at.whitened, found.noise_scale, 1.0) ** 2
    jacobian = at.known_jacobian
    prior = np.diag(1.0 / problem.variables.prior_std**2)
    change = finer.evaluate(at.theta).residual - at.residual
    information = jacobian.T @ (jacobian * weight[:, None]) + prior
    return -np.linalg.solve(information, jacobian.T @ (weight * change))


def without_grid_error(problem: Problem, at: Evaluation, found: Posterior, finer: Problem) -> Posterior:
    """The posterior with the grid's error taken off and what is left of it in the intervals."""
    move = grid_move(problem, at, found, finer)
    relative = np.array([v.transform in ("log", "logit") for v in problem.variables.variables])
    trusted = bool((_WHOLE * np.abs(move[relative]) <= _FARTHEST).all())
    left, taken = (_REST, _WHOLE) if trusted else (_WHOLE, 0.0)
    effects = (*found.effects, Effect(*GRID, np.diag(left * np.abs(move))))
    theta = found.theta + taken * move
    estimates = describe(
        problem.variables, theta, found.information, found.statistical, found.touched, effects, found.verdict
    )
    return replace(
        found,
        theta=theta,
        covariance=found.covariance + effects[-1].covariance,
        effects=effects,
        estimates=estimates,
    )
