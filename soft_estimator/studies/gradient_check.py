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
from soft_estimator.physics.step import Simulation
from soft_estimator.scene.scene import Scene
from soft_estimator.scene.variables import applicable_names, guess_of, shown_labels, variables_of
from soft_estimator.scene.wrenches import feel_truth, kinds_of_scene
from soft_estimator.studies.estimate_setup import Progress, observe_truth

# Differences are taken at ever shorter steps of θ, from this one on, in prior standard deviations, and the one that
# agrees best with its neighbour is kept: long steps cross kinks of the cost, where a point passes from one cell into
# the next; short ones drown in rounding.
LONGEST_STEP, SHORTER, MOST_STEPS = 1e-3, 0.25, 6
# Where a guess is the truth itself the gradient is nearly nothing; the check is made this many prior deviations off.
OFF_THE_TRUTH = 0.02
SOLVER_TOLERANCE = 1e-12  # a difference over 1e-5 of θ divides the solver's error by that: 1e-7 is left
GOOD_ENOUGH = 1e-7  # no shorter steps are tried once two differences agree to this
# A variable that moves the cost by less than this share of it over a prior deviation shows nothing: with solves to
# SOLVER_TOLERANCE, differences at the steps above are known to 1e-12/1e-3 of the cost.
NOTHING = 1e-9
_STEPS_AT_LEAST, _FRAMES = 10, 2  # watched by default, and past the first touch of a scene with a plane


@dataclass(frozen=True)
class GradientRow:
    """Derivatives of the cost by one variable θ, and the largest difference relative to the central difference.

    Attributes:
        doubt: how far the central difference disagrees with itself, relative: what it can be trusted to.
        shown: whether the frames show the variable at all; if not there is nothing to compare, and the error is 0.
    """

    label: str
    adjoint: float
    tangent: float
    differences: float
    doubt: float
    error: float
    shown: bool = True


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
        steps: time steps simulated; by default `steps_that_show`. points: most points of a frame.
    """
    steps = steps or steps_that_show(scene, backend)
    field = carry_field(scene.body)
    frames = observe_truth(scene, field, backend, progress, steps=steps, budget=points)
    variables, theta = _point(scene)
    config = scene.config.estimate
    loss = RobustLoss() if config is None else RobustLoss(config.loss.kind, config.loss.threshold)
    measured = [*frames.frames, *feel_truth(scene, backend, [frame.time_s for frame in frames.frames])]
    kinds = kinds_of_scene(scene)
    problem = Problem(scene.model, variables, measured, loss=loss, backend=backend, field=field, residual=kinds)
    backward = problem.evaluate(theta, gradient=True)
    adjoint = np.asarray(backward.gradient)
    tangent = normal_equations(problem, problem.evaluate(theta, jacobian=True))[1]
    least = NOTHING * backward.cost / variables.prior_std
    prior = (theta - variables.prior_mean) / variables.prior_std**2
    rows = []
    for j, label in enumerate(shown_labels(variables)):
        value, doubt = _differences(problem, theta, j)
        three = np.array([adjoint[j], tangent[j], value])
        # The prior's own slope is no news of the frames.
        rows.append(_row(label, three, doubt, float(least[j]), bool((np.abs(three - prior[j]) > least[j]).any())))
        if progress:
            progress("checking", j + 1, len(variables), label)
    return rows


def steps_that_show(scene: Scene, backend: Backend) -> int:
    """Time steps that two frames need, ten at least, and two frames from the first touch of each thing on."""
    times, step_s = frame_times_s(scene.config), scene.config.time.step_s
    last = round(times[-1] / step_s + 0.499)
    two_frames = round(times[min(_FRAMES, len(times)) - 1] / step_s + 0.499)
    least = min(max(_STEPS_AT_LEAST, two_frames), max(last, two_frames))
    return max(least, min(last, _last_first_touch(scene, backend, last) + two_frames))


def _last_first_touch(scene: Scene, backend: Backend, most: int) -> int:
    """Time steps until the surface has reached the plane and the obstacles, those that it reaches within so many; 0 for
    none."""
    simulation = Simulation(scene.model, scene.parameters, backend)
    laws = [law for law in (scene.model.contact, *scene.model.obstacles) if law is not None]
    apart = [law.obstacle.bind(backend, scene.parameters) for law in laws]
    state, last = simulation.initial_state(), 0
    for k in range(1, most + 1) if apart else ():
        state, _ = simulation.step(state)
        surface = backend.to_device(scene.body.surface_positions_m(backend.to_host(state.u).astype(np.float64)))
        near = [float(obstacle.distance(surface, state.time_s).min()) <= 0.0 for obstacle in apart]
        if any(near):
            last, apart = k, [obstacle for obstacle, touched in zip(apart, near) if not touched]
        if not apart:
            break
    return last


def _row(label: str, three: np.ndarray, doubt: float, least: float, shown: bool) -> GradientRow:
    """three: the derivative by adjoint, tangent and differences. least: a derivative that is as good as none."""
    adjoint, tangent, value = map(float, three)
    scale = max(abs(value), least)
    error = max(abs(adjoint - value), abs(tangent - value)) / scale if shown else 0.0
    return GradientRow(label, adjoint, tangent, value, doubt / scale, error, shown)


def _point(scene: Scene) -> tuple[Variables, np.ndarray]:
    """The variables and where they are checked: at the guess, and a little off where that is the truth."""
    config = scene.config.estimate
    if config is None:
        variables = make_variables(guess_of(scene), applicable_names(scene))
        return variables, variables.start() + OFF_THE_TRUTH * variables.prior_std
    variables = variables_of(scene, config)
    guessed = np.array([config.guess.of(v.name) is not None for v in variables.variables])
    return variables, variables.start() + np.where(guessed, 0.0, OFF_THE_TRUTH) * variables.prior_std


def _differences(problem: Problem, theta: np.ndarray, j: int) -> tuple[float, float]:
    """The Richardson-extrapolated central difference that agrees best with its neighbour, and by how much."""
    unit = np.zeros_like(theta)
    unit[j] = problem.variables.prior_std[j]

    def slope(step: float) -> float:
        ahead, behind = (problem.evaluate(theta + sign * step * unit).cost for sign in (1, -1))
        return (ahead - behind) / (2 * step * unit[j])

    best, doubt, step = 0.0, np.inf, LONGEST_STEP
    before, last = slope(step), np.nan
    for _ in range(MOST_STEPS - 1):
        step *= SHORTER
        now = slope(step)
        value = (now - SHORTER**2 * before) / (1 - SHORTER**2)  # Richardson: the error of second order cancels
        if abs(value - last) < doubt:
            best, doubt = value, abs(value - last)
        before, last = now, value
        if doubt <= GOOD_ENOUGH * abs(best):
            break
    return best, doubt
