"""From a posterior of the noise alone to an honest one: what was held fixed widens it, and the fit gets its verdict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.fitting.allowance import allowance_m, shape_std_m
from soft_estimator.estimation.fitting.clock import with_clock
from soft_estimator.estimation.fitting.consider import Effect, details_effect, effects, model_effect
from soft_estimator.estimation.fitting.felt_force import with_felt_force
from soft_estimator.estimation.fitting.modal_start import with_small_bend
from soft_estimator.estimation.fitting.told_plane import with_told_plane
from soft_estimator.estimation.fitting.uncertainty import Posterior, describe
from soft_estimator.estimation.fitting.verdict import Evidence, FitVerdict, judge
from soft_estimator.estimation.fitting.widening import Before, frame_widening, widening
from soft_estimator.estimation.held_pose import with_pose
from soft_estimator.estimation.inspection import Inspection, look_at
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame, is_isotropic

# What each source, were it wrong, would show as.
CAUSES = {
    "translation_m": "pose", "rotation_rad": "pose", "camera_position_m": "pose", "camera_rotation_rad": "pose",
    "velocity_m_s": "start", "angular_velocity_rad_s": "start", "plane_normal": "contact",
    "plane_offset_m": "contact", "time_offset_s": "clock", "time_rate": "clock", "shape_offset_m": "size",
    "shape_scale": "size",
}  # fmt: skip


def completed(problem: Problem, at: Evaluation, found: Posterior) -> Posterior:
    """The posterior with everything in it that a closer look at the fit shows; `at` holds the Jacobian."""
    known = problem.known
    inspection = look_at(problem, at.theta)
    weight = at.weight / np.where(at.whitened, found.noise_scale, 1.0) ** 2
    jacobian = at.known_jacobian
    prior = np.diag(1.0 / problem.variables.prior_std**2)
    inverse = np.linalg.inv(jacobian.T @ (jacobian * weight[:, None]) + prior)
    moved = effects(inspection, jacobian, weight, at.frame, inverse)
    if known is not None:
        details_m = shape_std_m(known, problem.model.body)
        moved.append(details_effect(inspection, jacobian, weight, inverse, details_m))
        moved.append(model_effect(problem.variables, known.model))
    # What frames show is in the covariance already.
    by_frames = frame_widening(at, inverse, found.noise_scale)
    before = Before(prior, prior @ (at.theta - problem.variables.prior_mean))
    widen = widening(at, inverse, found.noise_scale, inspection.patch, before) / by_frames
    statistical = found.covariance * np.outer(widen, widen)
    total = sum((effect.covariance for effect in moved), statistical)
    judged = judge(evidence_of(problem, at, inspection))
    verdict = with_pose(judged, problem.variables, found.theta, total, problem.model, known)
    verdict = with_told_plane(verdict, problem.variables, found.theta)
    verdict = with_small_bend(verdict, problem.model, problem.variables.parameters(found.theta))
    verdict = with_clock(verdict, problem, at, inspection, found.noise_scale)
    verdict = with_felt_force(verdict, problem, at, inspection, found.noise_scale)
    return _with(problem, replace(found, covariance=total), statistical, tuple(moved), verdict)


def _with(
    problem: Problem, found: Posterior, statistical: np.ndarray, moved: tuple[Effect, ...], verdict: FitVerdict
) -> Posterior:
    estimates = describe(problem.variables, found.theta, found.information, statistical, found.touched, moved, verdict)
    return replace(found, statistical=statistical, effects=moved, verdict=verdict, estimates=estimates)


def evidence_of(problem: Problem, at: Evaluation, inspection: Inspection) -> Evidence:
    """What the verdict is made from: the clouds' residuals."""
    clouds = inspection.patch >= 0
    scattered = [f.std_m for f in problem.frames if isinstance(f, ObservedFrame) and is_isotropic(f)]
    isotropic = float(np.median(np.concatenate(scattered))) if scattered else 0.0
    suspects: dict[str, list[np.ndarray]] = {}
    for source, columns in zip(inspection.sources, inspection.columns):
        if source.name in CAUSES:
            suspects.setdefault(CAUSES[source.name], []).append(columns[clouds])
    return Evidence(
        residual=at.residual[clouds],
        std_m=inspection.std_m[clouds],
        frame=at.frame[clouds],
        patch=inspection.patch[clouds],
        neighbour=np.cumsum(clouds)[inspection.neighbour[clouds]] - 1,  # among the clouds' points alone
        time_s=np.array([frame.time_s for frame in problem.frames]),
        jacobian=at.known_jacobian[clouds],
        suspects={cause: np.concatenate(columns, axis=1) for cause, columns in suspects.items()},
        allowance_m=allowance_m(problem.known or KnownToConfig(), problem.model.body, isotropic),
    )
