"""What is left of a cost when more than the variables may be off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from soft_estimator.estimation.problem import Evaluation, Problem

# Of the residuals, (n, k): of a patch's offset most are zero, and there are hundreds of patches.
ResidualColumns = Any  # np.ndarray | sp.csr_matrix, of which the latter has no types


def explained_cost(
    problem: Problem, at: Evaluation, columns: Sequence[ResidualColumns], noise: float, free: np.ndarray | None = None
) -> float:
    """What is left of the cost at the best of the variables and of everything held fixed, to first order:
    L - ½ gᵀ H⁻¹ g.

    Args:
        columns: of the residuals by what is held fixed, (n, k) each, for one standard deviation of each component.
        noise: variance over the stated one. free: which variables may move, and have a prior; all by default.
    """
    hessian, slope, cost = extended(problem, at, columns, noise, free)
    return cost - 0.5 * float(slope @ np.linalg.solve(hessian, slope))


def explained_residual(
    problem: Problem, at: Evaluation, columns: Sequence[ResidualColumns], noise: float
) -> np.ndarray:
    """The residuals (n,) that are left there, to first order; arguments as in `explained_cost`."""
    hessian, slope, _ = extended(problem, at, columns, noise)
    by, first, left = np.linalg.solve(hessian, slope), 0, at.residual
    for part in (at.known_jacobian, *columns):
        left = left - part @ by[first : first + part.shape[1]]
        first += part.shape[1]
    return left


def extended(
    problem: Problem, at: Evaluation, columns: Sequence[ResidualColumns], noise: float, free: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Curvature, slope and value of the cost with everything held fixed as further variables, each with a prior of one
    standard deviation; arguments as in `explained_cost`."""
    v = problem.variables
    free = np.arange(len(v)) if free is None else free
    parts = [at.known_jacobian[:, free], *columns]
    fixed = sum(part.shape[1] for part in columns)
    unit = np.where(at.whitened, noise, 1.0)
    prior = np.concatenate([v.prior_std[free] ** -2.0, np.ones(fixed)])
    off = np.concatenate([(at.theta - v.prior_mean)[free], np.zeros(fixed)])
    hessian = _products(parts, at.weight / unit) + np.diag(prior)
    slope = np.concatenate([part.T @ (at.slope / unit) for part in parts]) + prior * off
    return hessian, slope, at.misfit / noise + 0.5 * float(off @ (prior * off))


def _products(parts: Sequence[ResidualColumns], weight: np.ndarray) -> np.ndarray:
    """Σ_n w_n a_ni a_nj of the columns a of all parts, side by side, (K, K); weight: (n,)."""
    ends = np.cumsum([part.shape[1] for part in parts])
    place = np.split(np.arange(ends[-1]), ends[:-1])
    groups: list[tuple[np.ndarray, ResidualColumns]] = []
    for stacked in (False, True):
        chosen = [k for k, part in enumerate(parts) if sp.issparse(part) == stacked]
        if chosen:
            several = [parts[k] for k in chosen]
            joined = sp.hstack(several, format="csr") if stacked else np.concatenate(several, axis=1)
            groups.append((np.concatenate([place[k] for k in chosen]), joined))
    out = np.zeros((ends[-1], ends[-1]))
    for i, left in groups:
        weighed = left.multiply(weight[:, None]).tocsr() if sp.issparse(left) else left * weight[:, None]
        for j, right in groups:
            product = weighed.T @ right
            out[np.ix_(i, j)] = product.toarray() if sp.issparse(product) else product
    return out


def patch_columns(patch: np.ndarray, by_offset: np.ndarray) -> sp.csr_matrix:
    """Change of the residuals (n,) with an offset of each patch outwards, (n, patches) [1/m].

    patch: of each residual, -1 for none. by_offset: its change with an offset of the whole surface.
    """
    used = np.unique(patch[patch >= 0])
    rows = np.flatnonzero(patch >= 0)
    columns = np.searchsorted(used, patch[rows])
    return sp.csr_matrix((by_offset[rows], (rows, columns)), (len(patch), len(used)))
