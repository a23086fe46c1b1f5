"""Levenberg-Marquardt on the tangent Jacobian, with the window grown frame by frame (METHOD §8, §9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.physics.solver import SolverError

Progress = Callable[[int, int, Evaluation], None]


@dataclass(frozen=True)
class LeastSquaresSettings:
    """step_tolerance: stop when no variable moves by more, in prior standard deviations or absolute (both of order
    one).

    cost_tolerance: stop when the cost falls by less than this part. max_iterations: for each window. max_step:
    longest step of a variable in θ.
    """

    step_tolerance: float = 1e-4
    cost_tolerance: float = 1e-6
    max_iterations: int = 25
    max_step: float = 1.0


@dataclass
class Fit:
    """Where a minimisation ended, why, and how it got there."""

    evaluation: Evaluation
    reason: str
    iterations: int
    history: list[dict] = field(default_factory=list)

    @property
    def theta(self) -> np.ndarray:
        return self.evaluation.theta


def growing_windows(frames: int) -> list[int]:
    """1, 2, 3, 5, 8, ... up to all frames: early frames are nearly convex in the parameters, late ones are not."""
    out = []
    size = 1.0
    while size < frames:
        out.append(int(size))
        size = max(size + 1, 1.7 * size)
    return [*sorted(set(out)), frames]


def fit(
    problem: Problem,
    theta: np.ndarray,
    *,
    windows: list[int] | None = None,
    settings: LeastSquaresSettings | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Minimise over ever more frames, each window from where the last one ended.

    Windows whose frames say nothing of any variable yet (a ball before it touches the ground) are passed over.
    """
    settings = settings or LeastSquaresSettings()
    history: list[dict] = []
    windows = windows or growing_windows(len(problem.frames))
    total, result = 0, None
    for k, frames in enumerate(windows):
        last = k == len(windows) - 1
        loose = settings if last else LeastSquaresSettings(1e-2, 1e-3, 8, settings.max_step)
        first = problem.evaluate(theta, frames, jacobian=True)
        if not last and not _tells(problem, first):
            continue
        result = _minimise(problem, first, frames, loose, history, total, progress)
        theta, total = result.theta, total + result.iterations
    return Fit(result.evaluation, result.reason, total, history)


def _minimise(
    problem: Problem,
    current: Evaluation,
    frames: int,
    settings: LeastSquaresSettings,
    history: list[dict],
    done: int,
    progress: Progress | None,
) -> Fit:
    damping, reason = 1e-3, f"reached {settings.max_iterations} iterations"
    iteration = 0
    for iteration in range(1, settings.max_iterations + 1):
        history.append({"frames": frames, "cost": current.cost, "theta": current.theta.copy()})
        if progress:
            progress(done + iteration, frames, current)
        step, predicted = _step(problem, current, damping, settings.max_step)
        trial = None
        while trial is None:
            try:
                trial = problem.evaluate(current.theta + step, frames, jacobian=True)
            except SolverError:
                trial = None
            if trial is not None and trial.cost < current.cost:
                break
            small = np.abs(step).max() < settings.step_tolerance
            trial, damping = None, max(damping * 10, 1e-3)
            if small or damping > 1e10:
                return Fit(current, "no further decrease: at the minimum to working accuracy", iteration, history)
            step, predicted = _step(problem, current, damping, settings.max_step)
        fall = current.cost - trial.cost
        damping = max(damping / (10 if fall > 0.25 * predicted else 2), 1e-9)
        current = trial
        if np.abs(step).max() < settings.step_tolerance:
            reason = f"step below {settings.step_tolerance:g}"
            break
        if fall < settings.cost_tolerance * max(current.cost, 1e-12):
            reason = f"cost fell by less than {settings.cost_tolerance:g} of itself"
            break
    history.append({"frames": frames, "cost": current.cost, "theta": current.theta.copy()})
    return Fit(current, reason, iteration, history)


def _tells(problem: Problem, at: Evaluation) -> bool:
    """Whether the data know any variable better than its prior does."""
    information = (at.jacobian**2 * at.weight[:, None]).sum(axis=0)
    return bool((information * problem.variables.prior_std**2 > 1.0).any())


def _step(problem: Problem, at: Evaluation, damping: float, longest: float) -> tuple[np.ndarray, float]:
    """The damped Gauss-Newton step and the fall of the cost it predicts."""
    v = problem.variables
    hessian, gradient = normal_equations(problem, at)
    scale = np.maximum(np.diag(hessian), 1.0 / v.prior_std**2)
    step = -np.linalg.solve(hessian + damping * np.diag(scale), gradient)
    step *= min(1.0, longest / max(np.abs(step).max(), 1e-300))
    return step, float(-(gradient @ step) - 0.5 * step @ hessian @ step)


def normal_equations(problem: Problem, at: Evaluation) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Newton Hessian and gradient of the cost, prior included."""
    v, j = problem.variables, at.jacobian
    weighted = j * at.weight[:, None]
    prior = 1.0 / v.prior_std**2
    return j.T @ weighted + np.diag(prior), weighted.T @ at.residual + prior * (at.theta - v.prior_mean)
