"""What the noise itself does to an estimate: the fit is repeated on noise added anew to the fitted surface.

Points scattered about a bent, strained or thin body pull on the fit with more than their mean: E[J r] is not zero at
the truth, and no formula of the rest shape's curvature says how much it is. Points put back onto the fitted surface and
scattered again show it, whatever its cause (the parametric bootstrap). Every noise is drawn with its opposite: what
moves an estimate to first order, far more than the shift that is looked for, cancels in each pair.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.estimation.fitting.least_squares import Fit, LeastSquaresSettings, fit
from soft_estimator.estimation.motion import motion
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.carried_surface import CarriedSurface, onto_surface
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame, is_isotropic
from soft_estimator.estimation.residuals.surface_distance import point_residuals

# Share of a shift that may be left after it was taken off: the points put back onto the surface keep their sideways
# noise, and the shift is that at the estimate, not at the truth. A tenth to a third was left on
# tori with noise of 0.3 to 1 voxel.
LEFT_OVER = 0.5


@dataclass(frozen=True)
class Resampling:
    """How the estimate moves when its own prediction is observed with the stated noise.

    Attributes:
        shift: mean move of θ, (P,). covariance: of that mean and of what may be left of the shift, (P, P).
        pairs: how often a noise and its opposite were drawn.
    """

    shift: np.ndarray
    covariance: np.ndarray
    pairs: int


def refine(problem: Problem, found: Fit, *, pairs: int = 3, seed: int = 0) -> tuple[Problem, Fit, Resampling]:
    """Fit once more along fixed lines, and find out what the noise does to that fit.

    Frames with isotropic noise get the surface's normals at the first fit as lines to measure along: a distance along a
    fixed line does not feel how its point's noise tilts the field. Frames with known rays have their lines already.
    """
    lines = problem
    if any(is_isotropic(f) for f in problem.frames):
        lines = _along_normals(problem, found.theta)
        settings = LeastSquaresSettings(max_iterations=8)
        found = fit(lines, found.theta, windows=[len(lines.frames)], settings=settings)
    return lines, found, resample(lines, found.theta, pairs=pairs, seed=seed)


def resample(problem: Problem, theta: np.ndarray, *, pairs: int = 3, seed: int = 0) -> Resampling:
    """Gauss-Newton steps from θ on the fitted surface's own points with noise drawn anew, and with its opposite.

    Frames whose noise has no known direction take part with their points as they are.
    """
    rng = np.random.default_rng(seed)
    prior = np.diag(1.0 / problem.variables.prior_std**2)
    hessian = np.tile(prior, (pairs, 2, 1, 1))
    gradient = np.zeros((pairs, 2, len(theta)))
    for frame, u, changes in motion(problem, theta):
        bare = _put_back(problem, frame, u)
        for k in range(pairs):
            noise = None if bare is None else rng.normal(size=bare.points_m.shape)
            for side, sign in enumerate((1.0, -1.0)):
                seen = frame if bare is None or noise is None else _scattered(problem, bare, u, sign * noise)
                residual = point_residuals(problem.model.body, problem.field, seen, u)
                rows = residual.changes(changes) / seen.std_m[:, None]
                value = residual.value_m / seen.std_m
                weighted = rows * problem.loss.weight(value)[:, None]
                hessian[k, side] += rows.T @ weighted
                gradient[k, side] += weighted.T @ value if bare is not None else 0.0
    moves = -np.linalg.solve(hessian, gradient[..., None])[..., 0].mean(axis=1)
    shift = moves.mean(axis=0)
    spread = np.atleast_2d(np.cov(moves.T)) / pairs if pairs > 1 else np.zeros((len(theta), len(theta)))
    return Resampling(shift, spread + np.diag((LEFT_OVER * shift) ** 2), pairs)


def _along_normals(problem: Problem, theta: np.ndarray) -> Problem:
    frames = [
        replace(frame, along=_normals(problem, frame.points_m, u)) if is_isotropic(frame) else frame
        for frame, u, _ in motion(problem, theta, tangent=False)
    ]
    return problem.with_frames(frames)


def _normals(problem: Problem, points: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Unit gradients of the distance at points (n, 3), zero where there is none."""
    at = CarriedSurface(problem.field, u, problem.backend).measure(points, np.zeros(len(points)))
    length = np.linalg.norm(at.by_value, axis=1, keepdims=True)
    return at.by_value / np.where(length > 0, length, 1.0)


def _put_back(problem: Problem, frame: ObservedFrame, u: np.ndarray) -> ObservedFrame | None:
    """The frame's points moved back along their lines onto the fitted surface; those that find it."""
    if frame.along is None and not is_isotropic(frame):
        return None
    body, field = problem.model.body, problem.field
    points = onto_surface(body, field, u, frame.points_m, frame.along)
    at = CarriedSurface(field, u, problem.backend).measure(points, np.zeros(len(points)))
    on = (at.cell >= 0) & (np.abs(at.value) < 1e-6 * field.spacing_m)
    if not on.any():
        return None
    along = None if frame.along is None else frame.along[on]
    return ObservedFrame(frame.time_s, points[on], frame.std_m[on], frame.curvature_share[on], along)


def _scattered(problem: Problem, bare: ObservedFrame, u: np.ndarray, noise: np.ndarray) -> ObservedFrame:
    """Points with a noise (n, 3) in their deviations: in all directions where they see curvature whole, else its first
    component along their lines."""
    if bare.along is not None and not (np.abs(bare.curvature_share - 1) < 1e-3).all():
        return replace(bare, points_m=bare.points_m + (bare.std_m * noise[:, 0])[:, None] * bare.along)
    points = bare.points_m + bare.std_m[:, None] * noise
    return replace(bare, points_m=points, along=None if bare.along is None else _normals(problem, points, u))
