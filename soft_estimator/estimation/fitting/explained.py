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
    hessian, slope, cost = extended(problem, at, columns, noise, free)
    return cost - 0.5 * float(slope @ np.linalg.solve(hessian, slope))


def explained_residual(problem: Problem, at: Evaluation, columns: Sequence[np.ndarray], noise: float) -> np.ndarray:
    """The residuals (n,) that are left there, to first order; arguments as in `explained_cost`."""
    hessian, slope, _ = extended(problem, at, columns, noise)
    return at.residual - np.concatenate([at.known_jacobian, *columns], axis=1) @ np.linalg.solve(hessian, slope)


def extended(
    problem: Problem, at: Evaluation, columns: Sequence[np.ndarray], noise: float, free: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Curvature, slope and value of the cost with everything held fixed as further variables, each with a prior of one
    standard deviation; arguments as in `explained_cost`."""
    v = problem.variables
    free = np.arange(len(v)) if free is None else free
    rows = np.concatenate([at.known_jacobian[:, free], *columns], axis=1)
    fixed = rows.shape[1] - len(free)
    unit = np.where(at.whitened, noise, 1.0)
    prior = np.concatenate([v.prior_std[free] ** -2.0, np.ones(fixed)])
    off = np.concatenate([(at.theta - v.prior_mean)[free], np.zeros(fixed)])
    hessian = rows.T @ (rows * (at.weight / unit)[:, None]) + np.diag(prior)
    slope = rows.T @ (at.slope / unit) + prior * off
    return hessian, slope, at.misfit / noise + 0.5 * float(off @ (prior * off))


def patch_columns(patch: np.ndarray, by_offset: np.ndarray) -> np.ndarray:
    """Change of the residuals (n,) with an offset of each patch outwards, (n, patches) [1/m].

    patch: of each residual, -1 for none. by_offset: its change with an offset of the whole surface.
    """
    used = np.unique(patch[patch >= 0])
    return np.where(patch[:, None] == used, by_offset[:, None], 0.0)
