"""What is left of a cost when more than the variables may be off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from soft_estimator.estimation.problem import Evaluation, Problem


def explained_cost(
    problem: Problem, at: Evaluation, columns: Sequence[np.ndarray], noise: float, free: np.ndarray | None = None
) -> float:
    """What is left of the cost at the best of the variables and of everything held fixed, to first order:
    L - ½ gᵀ H⁻¹ g.

    Args:
        columns: of the residuals by what is held fixed, (n, k) each, for one standard deviation of each component.
        noise: variance over the stated one. free: which variables may move, and have a prior; all by default.
    """
    v = problem.variables
    free = np.arange(len(v)) if free is None else free
    rows = np.concatenate([at.known_jacobian[:, free], *columns], axis=1)
    fixed = rows.shape[1] - len(free)
    unit = np.where(at.whitened, noise, 1.0)
    prior = np.concatenate([v.prior_std[free] ** -2.0, np.ones(fixed)])
    off = np.concatenate([(at.theta - v.prior_mean)[free], np.zeros(fixed)])
    hessian = rows.T @ (rows * (at.weight / unit)[:, None]) + np.diag(prior)
    slope = rows.T @ (at.slope / unit) + prior * off
    cost = at.misfit / noise + 0.5 * float(off @ (prior * off))
    return cost - 0.5 * float(slope @ np.linalg.solve(hessian, slope))
