"""Estimate a scene's parameters from frames: its cameras' view of its own motion, or recorded ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from soft_estimator.backends.choose import choose_backend
from soft_estimator.backends.interface import Backend
from soft_estimator.config_estimation import EstimateConfig
from soft_estimator.estimation.descent import fit_barzilai_borwein, fit_lbfgs, random_starts
from soft_estimator.estimation.field import CarriedField, carry_field
from soft_estimator.estimation.levenberg_marquardt import Fit, LeastSquaresSettings, fit, growing_windows
from soft_estimator.estimation.observation import point_residuals
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.robust import RobustLoss
from soft_estimator.estimation.uncertainty import Posterior, posterior
from soft_estimator.estimation.variables import Variables
from soft_estimator.evaluation.estimate_setup import (
    Progress,
    displacements,
    natural_of,
    noise_of_points,
    observe_truth,
    shown_labels,
    variables_of,
    watched_s,
)
from soft_estimator.evaluation.frames import FrameSet, check_any_left, read_frames, without_strays
from soft_estimator.evaluation.scene import Scene
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.step import Simulation
from soft_estimator.schema import ConfigError

# A recorded point farther than this many body sizes from where the guess puts the body is not of the body.
STRAY_SIZES = 2.0


@dataclass(frozen=True)
class EstimateResult:
    """What was found, from what, and how.

    Attributes:
        scene: its configuration and truth. problem: frames, model, variables. frames: those used and set aside.
        source: where frames came from. fits: one for each start that ran. best: the one of least cost.
        posterior: around it. truth: natural values of the variables (P,), None where not known.
        seconds: wall-clock time of each stage [s]. backend: its name.
        last_u: the fitted displacement at the last frame (N, 3) [m]. last_residual_m: of that frame's points, (n,).
    """

    scene: Scene
    problem: Problem
    frames: FrameSet
    source: str
    best: Fit
    fits: tuple[Fit, ...]
    posterior: Posterior
    truth: np.ndarray | None
    seconds: dict[str, float]
    backend: str
    last_u: np.ndarray
    last_residual_m: np.ndarray

    @property
    def parameters(self) -> Parameters:
        """The estimate as parameters of a simulation."""
        return self.problem.variables.parameters(self.best.theta)

    @property
    def guess(self) -> np.ndarray:
        """The first guess, natural values (P,)."""
        variables = self.problem.variables
        return variables.natural(variables.start())


def estimate_scene(
    scene: Scene,
    backend: Backend | None = None,
    *,
    frames_dir: Path | None = None,
    noise_m: float | None = None,
    progress: Progress | None = None,
) -> EstimateResult:
    """Estimate what the scene's `estimate` section names.

    Args:
        frames_dir: folder of recorded frames; the scene's own observations by default.
        noise_m: deviation [m] of recorded points whose file does not give it.
        progress: told (stage, done, total, note).
    """
    config, backend = scene.config.estimate, backend or choose_backend("cpu")
    if config is None:
        raise ConfigError(
            "has no estimate section; add one such as estimate: {parameters: [youngs_modulus_pa]}", "scene"
        )
    clock, seconds = perf_counter(), {}
    variables = variables_of(scene, config)
    field = carry_field(scene.body)
    if frames_dir is None:
        frames = observe_truth(scene, field, backend, progress)
    else:
        frames = _recorded(scene, variables, backend, frames_dir, noise_m)
    seconds["frames_s"], clock = perf_counter() - clock, perf_counter()
    loss = RobustLoss(config.loss.kind, config.loss.threshold)
    problem = Problem(scene.model, variables, list(frames.frames), loss=loss, backend=backend, field=field)
    best, fits = fit_all(problem, config, progress)
    seconds["fit_s"], clock = perf_counter() - clock, perf_counter()
    evaluation = best.evaluation
    if evaluation.jacobian is None:
        evaluation = problem.evaluate(best.theta, jacobian=True)
    around = posterior(problem, evaluation, None, best.covariance)
    last_u, last_residual = _last_frame(problem, field, backend, best.theta)
    seconds["posterior_s"] = perf_counter() - clock
    return EstimateResult(
        scene=scene,
        problem=problem,
        frames=frames,
        source="simulated" if frames_dir is None else str(frames_dir),
        best=best,
        fits=tuple(fits),
        posterior=around,
        truth=natural_of(variables, scene.parameters) if frames_dir is None else None,
        seconds=seconds,
        backend=backend.name,
        last_u=last_u,
        last_residual_m=last_residual,
    )


def _recorded(scene: Scene, variables: Variables, backend: Backend, folder: Path, noise_m: float | None) -> FrameSet:
    observe = scene.config.observe
    budget, seed = (None, 0) if observe is None else (observe.points_per_frame, observe.seed)
    read = read_frames(folder, noise_of_points(scene, noise_m), watched_s(scene.config), budget, seed)
    guess = Simulation(scene.model, variables.parameters(variables.start()), backend)
    size = float(np.linalg.norm(np.ptp(scene.body.surface_positions_m(), axis=0)))
    times = [frame.time_s for frame in read.frames]
    surfaces = [scene.body.surface_positions_m(u) for u in displacements(guess, times)]
    frames = without_strays(read, surfaces, STRAY_SIZES * size)
    check_any_left(frames, folder)
    return frames


def fit_all(problem: Problem, config: EstimateConfig, progress: Progress | None = None) -> tuple[Fit, list[Fit]]:
    """Fit from the guess and from random starts around it: the best fit and all of them."""
    starts = [problem.variables.start(), *random_starts(problem, config.starts - 1, config.seed)]
    fits, failure = [], None
    for k, theta in enumerate(starts):
        try:
            fits.append(_fit_one(problem, config, theta, _Reporter(problem, config, k, progress)))
        except SolverError as error:  # a wild start may not be simulable; the others go on
            failure = error
    if not fits:
        raise failure or SolverError("no start could be simulated; give a better guess")
    return min(fits, key=lambda f: f.evaluation.cost), fits


def _fit_one(problem: Problem, config: EstimateConfig, theta: np.ndarray, report: _Reporter) -> Fit:
    limit: dict[str, Any] = {"max_iterations": config.max_iterations, "progress": report}
    if config.method == "lbfgs":
        return fit_lbfgs(problem, theta, **limit)
    if config.method == "barzilai_borwein":
        return fit_barzilai_borwein(problem, theta, **limit)
    settings = LeastSquaresSettings(max_iterations=config.max_iterations)
    return fit(problem, theta, settings=settings, progress=report)


class _Reporter:
    """Tells the progress of one start: the window's place for Levenberg-Marquardt, iterations for the others."""

    def __init__(self, problem: Problem, config: EstimateConfig, start: int, progress: Progress | None) -> None:
        self.problem, self.progress, self.start, self.starts = problem, progress, start, config.starts
        windows = growing_windows(len(problem.frames)) if config.method == "levenberg_marquardt" else None
        self.windows, self.length = windows, len(windows) if windows else config.max_iterations

    def __call__(self, iteration: int, frames: int, evaluation: Evaluation) -> None:
        if self.progress is None:
            return
        done = self.windows.index(frames) if self.windows else min(iteration, self.length)
        note = f"cost {evaluation.cost:.4g}, " + describe_values(self.problem.variables, evaluation.theta)
        self.progress("fitting", self.start * self.length + done, self.starts * self.length, note)


def describe_values(variables: Variables, theta: np.ndarray) -> str:
    """ "youngs_modulus_pa 2013, poissons_ratio 0.301" """
    return ", ".join(f"{name} {value:.4g}" for name, value in zip(shown_labels(variables), variables.natural(theta)))


def _last_frame(
    problem: Problem, field: CarriedField, backend: Backend, theta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fitted displacement (N, 3) [m] at the last frame, and signed distances (n,) [m] of its points."""
    frame = problem.frames[-1]
    simulation = Simulation(problem.model, problem.variables.parameters(theta), backend)
    u = next(displacements(simulation, [frame.time_s]))
    return u, point_residuals(problem.model.body, field, frame, u).value_m
