"""Adjoint, tangent and central differences of a scene's point-cloud cost, side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.camera.scene_cameras import frame_times_s
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.fitting.least_squares import normal_equations
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.variables import Variables, make_variables
from soft_estimator.scene.scene import Scene
from soft_estimator.scene.variables import applicable_names, guess_of, shown_labels, variables_of
from soft_estimator.studies.estimate_setup import Progress, observe_truth

# Differences are taken at these steps of θ, in prior standard deviations, and the one that agrees best with itself is
# kept: long steps cross kinks of the cost, where a point passes from one cell into the next; short ones drown in
# rounding.
STEPS = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5)
# Where a guess is the truth itself the gradient is nearly nothing; the check is made this many prior deviations off.
OFF_THE_TRUTH = 0.02
SOLVER_TOLERANCE = 1e-12
GOOD_ENOUGH = 1e-8  # no shorter steps are tried once two differences agree to this


@dataclass(frozen=True)
class GradientRow:
    """Derivatives of the cost by one variable θ, and the largest difference relative to the central difference.

    doubt: how far the central difference disagrees with itself, relative: what it can be trusted to.
    """

    label: str
    adjoint: float
    tangent: float
    differences: float
    doubt: float
    error: float


def exact_config(config: SceneConfig) -> SceneConfig:
    """The scene in double precision with a solver that leaves rounding only."""
    tolerance = min(SOLVER_TOLERANCE, config.solver.relative_tolerance)
    solver = replace(
        config.solver,
        precision="float64",
        relative_tolerance=tolerance,
        max_iterations=max(config.solver.max_iterations, 5000),
    )
    return replace(config, solver=solver)


def check_gradient(
    scene: Scene, backend: Backend, *, steps: int | None = None, points: int = 300, progress: Progress | None = None
) -> list[GradientRow]:
    """Compare the three for every estimated parameter of a scene made from `exact_config`.

    Args:
        steps: time steps simulated; ten by default, or what two frames need. points: most points of a frame.
    """
    if steps is None:
        times = frame_times_s(scene.config)
        steps = max(10, round(times[min(1, len(times) - 1)] / scene.config.time.step_s + 0.499))
    field = carry_field(scene.body)
    frames = observe_truth(scene, field, backend, progress, steps=steps, budget=points)
    variables, theta = _point(scene)
    config = scene.config.estimate
    loss = RobustLoss() if config is None else RobustLoss(config.loss.kind, config.loss.threshold)
    problem = Problem(scene.model, variables, list(frames.frames), loss=loss, backend=backend, field=field)
    adjoint = np.asarray(problem.evaluate(theta, gradient=True).gradient)
    tangent = normal_equations(problem, problem.evaluate(theta, jacobian=True))[1]
    rows = []
    # A variable the cost hardly depends on is measured against what one that matters a little would show.
    floor = 1e-9 * float(np.abs(tangent).max())
    for j, label in enumerate(shown_labels(variables)):
        value, doubt = _differences(problem, theta, j)
        scale = max(abs(value), floor)
        error = max(abs(adjoint[j] - value), abs(tangent[j] - value)) / scale
        rows.append(GradientRow(label, float(adjoint[j]), float(tangent[j]), value, doubt / scale, error))
        if progress:
            progress("checking", j + 1, len(variables), label)
    return rows


def _point(scene: Scene) -> tuple[Variables, np.ndarray]:
    """The variables and where they are checked: at the guess, and a little off where that is the truth."""
    config = scene.config.estimate
    if config is None:
        variables = make_variables(guess_of(scene), applicable_names(scene))
        return variables, variables.start() + OFF_THE_TRUTH * variables.prior_std
    variables = variables_of(scene, config)
    guessed = np.array([getattr(config.guess, v.name) is not None for v in variables.variables])
    return variables, variables.start() + np.where(guessed, 0.0, OFF_THE_TRUTH) * variables.prior_std


def _differences(problem: Problem, theta: np.ndarray, j: int) -> tuple[float, float]:
    """The Richardson-extrapolated central difference that agrees best with its neighbour, and by how much."""
    unit = np.zeros_like(theta)
    unit[j] = problem.variables.prior_std[j]

    def slope(step: float) -> float:
        ahead, behind = (problem.evaluate(theta + sign * step * unit).cost for sign in (1, -1))
        return (ahead - behind) / (2 * step * unit[j])

    best, doubt, last = 0.0, np.inf, np.nan
    for step in STEPS:
        value = (4 * slope(step / 2) - slope(step)) / 3
        if abs(value - last) < doubt:
            best, doubt = value, abs(value - last)
        last = value
        if doubt < GOOD_ENOUGH * abs(best):
            break
    return best, doubt
