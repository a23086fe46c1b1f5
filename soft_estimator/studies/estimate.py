"""Estimate a scene's parameters from frames: its cameras' view of its own motion, or recorded ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from soft_estimator.backends.choose import choose_backend
from soft_estimator.backends.interface import Backend
from soft_estimator.camera.scene_cameras import watched_s
from soft_estimator.config_estimation import EstimateConfig
from soft_estimator.estimation.fitting.answer import answer_of, is_wide
from soft_estimator.estimation.fitting.completing import completed
from soft_estimator.estimation.fitting.descent import fit_barzilai_borwein, fit_lbfgs, random_starts
from soft_estimator.estimation.fitting.least_squares import Fit, LeastSquaresSettings, fit, growing_windows
from soft_estimator.estimation.fitting.uncertainty import Posterior
from soft_estimator.estimation.fitting.whole_clouds import CloudAnswer, fit_clouds
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.residuals.surface_distance import point_residuals
from soft_estimator.estimation.variables import Variables
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.step import Simulation
from soft_estimator.recordings.observed_frames import (
    FrameSet,
    check_any_left,
    read_frames,
    without_copies,
    without_strays,
)
from soft_estimator.scene.motion import displacements
from soft_estimator.scene.scene import Scene
from soft_estimator.scene.variables import shown_labels, variables_of
from soft_estimator.schema import ConfigError
from soft_estimator.studies.estimate_setup import Progress, noise_of_points, observe_truth

# A recorded point farther than this many body sizes from where the guess puts the body is not of the body.
STRAY_SIZES = 2.0
WHOLE_CLOUDS = "whole_clouds"  # the method where isotropic noise is too wide for distances, whatever the scene names

T = TypeVar("T")


@dataclass(frozen=True)
class EstimateResult:
    """What was found, from what, and how.

    Attributes:
        scene: its configuration and truth. problem: frames, model, variables. method: by which it was fitted.
        frames: those used and set aside.
        source: where frames came from. fits: one for each start that ran. best: the one of least cost.
        posterior: around it. truth: natural values of the variables (P,), None where not known.
        seconds: wall-clock time of each stage [s]. backend: its name.
        last_u: the fitted displacement at the last frame (N, 3) [m]. last_residual_m: of that frame's points, (n,).
    """

    scene: Scene
    problem: Problem
    method: str
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
        return self.problem.variables.parameters(self.posterior.theta)

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
    frames: FrameSet | None = None,
    progress: Progress | None = None,
) -> EstimateResult:
    """Estimate what the scene's `estimate` section names.

    Args:
        frames: what was seen, where it is at hand already.
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
    simulated = frames is None and frames_dir is None
    if frames_dir is not None:
        frames = _recorded(scene, variables, backend, frames_dir, noise_m)
    elif frames is None:
        frames = observe_truth(scene, field, backend, progress)
    frames = without_copies(frames)
    seconds["frames_s"], clock = perf_counter() - clock, perf_counter()
    loss = RobustLoss(config.loss.kind, config.loss.threshold)
    problem = Problem(
        scene.model, variables, list(frames.frames), loss=loss, backend=backend, field=field, known=config.known_to
    )
    wide = is_wide(problem)
    if wide:
        best, fits, around = fit_wide(problem, config, progress)
    else:
        best, fits = fit_all(problem, config, progress)
    seconds["fit_s"], clock = perf_counter() - clock, perf_counter()
    if wide:
        around = completed(problem, best.evaluation, around)
    else:
        problem, best, around = answer_of(problem, best)
    last_u, last_residual = _last_frame(problem, field, backend, around.theta)
    seconds["posterior_s"] = perf_counter() - clock
    return EstimateResult(
        scene=scene,
        problem=problem,
        method=WHOLE_CLOUDS if wide else config.method,
        frames=frames,
        source="simulated" if simulated else str(frames_dir or "given"),
        best=best,
        fits=tuple(fits),
        posterior=around,
        truth=variables.natural_of(scene.parameters) if simulated else None,
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
    """Fit distances from the guess and from random starts around it: the best fit and all of them."""

    def one(k: int, theta: np.ndarray) -> Fit:
        return _fit_one(problem, config, theta, _Reporter(problem, config.method, config, k, progress))

    fits = _from_all_starts(problem, config, one)
    return min(fits, key=lambda f: f.evaluation.cost), fits


def fit_wide(
    problem: Problem, config: EstimateConfig, progress: Progress | None = None
) -> tuple[Fit, list[Fit], Posterior]:
    """The same for clouds as a whole, with the posterior of the most likely one; see `cloud_fit`."""

    def one(k: int, theta: np.ndarray) -> CloudAnswer:
        return fit_clouds(problem, theta, _Reporter(problem, WHOLE_CLOUDS, config, k, progress).tell)

    answers = _from_all_starts(problem, config, one)
    best = max(answers, key=lambda a: a.likelihood)
    return best.fit, [a.fit for a in answers], best.posterior


def _from_all_starts(problem: Problem, config: EstimateConfig, fit_one: Callable[[int, np.ndarray], T]) -> list[T]:
    starts = [problem.variables.start(), *random_starts(problem, config.starts - 1, config.seed)]
    fits, failure = [], None
    for k, theta in enumerate(starts):
        try:
            fits.append(fit_one(k, theta))
        except SolverError as error:  # a wild start may not be simulable; the others go on
            failure = error
    if not fits:
        raise failure or SolverError("no start could be simulated; give a better guess")
    return fits


def _fit_one(problem: Problem, config: EstimateConfig, theta: np.ndarray, report: _Reporter) -> Fit:
    limit: dict[str, Any] = {"max_iterations": config.max_iterations, "progress": report}
    if config.method == "lbfgs":
        return fit_lbfgs(problem, theta, **limit)
    if config.method == "barzilai_borwein":
        return fit_barzilai_borwein(problem, theta, **limit)
    settings = LeastSquaresSettings(max_iterations=config.max_iterations)
    return fit(problem, theta, settings=settings, progress=report)


class _Reporter:
    """Tells the progress of one start: the window's place for methods that grow it, iterations for the others."""

    def __init__(
        self, problem: Problem, method: str, config: EstimateConfig, start: int, progress: Progress | None
    ) -> None:
        self.problem, self.progress, self.start, self.starts = problem, progress, start, config.starts
        grows = method in ("levenberg_marquardt", WHOLE_CLOUDS)
        self.windows = growing_windows(len(problem.frames)) if grows else None
        self.length = len(self.windows) if self.windows else config.max_iterations

    def __call__(self, iteration: int, frames: int, evaluation: Evaluation) -> None:
        done = self.windows.index(frames) if self.windows else min(iteration, self.length)
        self._report(done, f"cost {evaluation.cost:.4g}", evaluation.theta)

    def tell(self, frames: int, theta: np.ndarray, likelihood: float) -> None:
        """The same for clouds as a whole."""
        self._report(self.windows.index(frames) if self.windows else 0, f"log-likelihood {likelihood:.1f}", theta)

    def _report(self, done: int, note: str, theta: np.ndarray) -> None:
        if self.progress is not None:
            note = f"{note}, " + describe_values(self.problem.variables, theta)
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
