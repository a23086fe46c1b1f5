"""Estimate a scene's parameters from frames: its cameras' view of its own motion, or recorded ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from soft_estimator.backends.choose import choose_backend
from soft_estimator.backends.interface import Backend
from soft_estimator.camera.scene_cameras import watched_s
from soft_estimator.config_estimation import EstimateConfig
from soft_estimator.estimation.fitting.answer import answer_of, is_wide
from soft_estimator.estimation.fitting.clock import with_lost_phase
from soft_estimator.estimation.fitting.completing import completed
from soft_estimator.estimation.fitting.faint_motion import is_faint, with_faint_motion
from soft_estimator.estimation.fitting.least_squares import Fit
from soft_estimator.estimation.fitting.rivals import with_rivals
from soft_estimator.estimation.fitting.uncertainty import Estimate, Posterior
from soft_estimator.estimation.fitting.within_prior import within_prior
from soft_estimator.estimation.inspection import forget_look
from soft_estimator.estimation.long_work import CTRL_C, TimeUp
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.residuals.surface_distance import point_residuals
from soft_estimator.estimation.residuals.tool_wrench import WrenchFrame
from soft_estimator.estimation.trajectory import TANGENT_TOLERANCE
from soft_estimator.estimation.variables import Variables
from soft_estimator.physics.parameters import Parameters
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
from soft_estimator.scene.variables import shown, variables_of
from soft_estimator.scene.wrenches import check_readings, feel_truth, kinds_of_scene, readings_of_motion
from soft_estimator.schema import ConfigError
from soft_estimator.studies.estimate_keeping import Keeper, identity_of
from soft_estimator.studies.estimate_refining import Found, of_other_steps, refined
from soft_estimator.studies.estimate_search import INTERRUPTED, WHOLE_CLOUDS, best_so_far, fit_all, fit_wide
from soft_estimator.studies.estimate_setup import (
    Progress,
    clouds_of,
    noise_of_points,
    observe_truth,
    with_seen_surface,
)

__all__ = ["WHOLE_CLOUDS", "EstimateResult", "estimate_scene"]

# A recorded point farther than this many body sizes from where the guess puts the body is not of the body.
STRAY_SIZES = 2.0


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
        stopped: why the search ended before its time, "" where it came to its end.
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
    stopped: str = ""

    @property
    def parameters(self) -> Parameters:
        """The estimate as parameters of a simulation."""
        return self.problem.variables.parameters(self.posterior.theta)

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """Of what was asked for, without what came along."""
        return tuple(self.posterior.estimates[j] for j in shown(self.problem.variables))

    @property
    def clouds(self) -> list[ObservedFrame]:
        """The frames of points that were explained."""
        return clouds_of(self.problem)

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
    readings: Sequence[WrenchFrame] | None = None,
    progress: Progress | None = None,
    keeper: Keeper | None = None,
) -> EstimateResult:
    """Estimate what the scene's `estimate` section names.

    Args:
        frames: what was seen, where it is at hand already. readings: the same of force-torque sensors.
        frames_dir: folder of recorded frames; the scene's own observations by default.
        noise_m: deviation [m] of recorded points whose file does not give it.
        progress: told (stage, done, total, note).
        keeper: keeps the search as it goes, and has what an earlier one left. An interrupted search (Ctrl-C, or no time
            left) ends with the best it has.
    """
    config, backend = scene.config.estimate, backend or choose_backend("cpu")
    if config is None:
        raise ConfigError(
            "has no estimate section; add one such as estimate: {parameters: [youngs_modulus_pa]}", "scene"
        )
    clock, seconds = perf_counter(), {}
    field = carry_field(scene.body)
    simulated = frames is None and frames_dir is None
    if readings is None:
        check_readings(scene.config, simulated)
    written = readings_of_motion(scene) if readings is None else []
    variables = variables_of(scene, config, refine_pose=not simulated)  # a scene's own frames are of its own pose
    if frames_dir is not None:
        frames = _recorded(scene, variables, backend, frames_dir, noise_m)
    elif frames is None:
        frames = observe_truth(scene, field, backend, progress)
    frames = without_copies(frames)
    if readings is None:
        felt = feel_truth(scene, backend, [frame.time_s for frame in frames.frames]) if simulated else []
        readings = [*written, *felt]
    seconds["frames_s"], clock = perf_counter() - clock, perf_counter()
    problem = Problem(
        scene.model,
        variables,
        [*frames.frames, *readings],
        loss=RobustLoss(config.loss.kind, config.loss.threshold),
        backend=backend,
        field=field,
        residual=kinds_of_scene(scene),
        known=config.known_to,
        jacobian_tolerance=TANGENT_TOLERANCE,
    )
    if not simulated:
        scene, problem = with_seen_surface(scene, problem)
    wide = is_wide(problem)
    keeper = keeper or Keeper()
    keeper.take_up(identity_of(scene.config, problem.frames))
    best, fits, around, stopped = _searched(problem, config, wide, progress, keeper)
    seconds["fit_s"], clock = perf_counter() - clock, perf_counter()
    found = Found(problem, best, frames)
    if not stopped and around is None:
        found, stopped = _refined(found, config, keeper, progress)
    (found, around), stopped = _answer(found, around, stopped)
    if not simulated and not stopped and not is_faint(around):
        around, stopped = _of_other_steps(scene, found, around, keeper, progress)
    problem, best, frames = found.problem, found.best, found.frames
    around = with_lost_phase(problem, around)
    if stopped and not best.reason.startswith(INTERRUPTED):
        best = replace(best, reason=f"{INTERRUPTED} ({stopped}) after the search, before all was looked at")
    around = within_prior(problem.variables, around)
    forget_look(problem)
    last_u, last_residual = _last_frame(problem, backend, around.theta)
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
        stopped=stopped,
    )


def _searched(
    problem: Problem, config: EstimateConfig, wide: bool, progress: Progress | None, keeper: Keeper
) -> tuple[Fit, list[Fit], Posterior | None, str]:
    """The best fit, all of them, the posterior where it comes with them, and why the search was ended, if it was."""
    try:
        if wide:
            return *fit_wide(problem, config, progress, keeper), ""
        return *fit_all(problem, config, progress, keeper), None, ""
    except (KeyboardInterrupt, TimeUp) as ended:
        keeper.write()
        why = str(ended) or CTRL_C
        best = best_so_far(problem, keeper, why)
        if best is None:  # it has not come as far as to know anything
            raise KeyboardInterrupt from ended
        return best, [best], None, why


def _refined(found: Found, config: EstimateConfig, keeper: Keeper, progress: Progress | None) -> tuple[Found, str]:
    """The fit with all that follows a search, and why that was ended, if it was: then with what was done till then."""
    try:
        for better in refined(found, config, keeper.time.check, progress):
            found = better
            keeper.time.check()
    except (KeyboardInterrupt, TimeUp) as ended:
        return found, _ended(keeper, ended)
    return found, ""


def _answer(found: Found, around: Posterior | None, stopped: str) -> tuple[tuple[Found, Posterior], str]:
    """The posterior, without which there is no answer: at a first Ctrl-C it is begun again, at another one not."""

    def answer() -> tuple[Found, Posterior]:
        if around is not None:
            return found, completed(found.problem, found.best.evaluation, around)
        problem, best, made = answer_of(found.problem, found.best)
        made = with_faint_motion(problem, best.evaluation, with_rivals(problem, made, found.rivals))
        return replace(found, problem=problem, best=best), made

    try:
        return answer(), stopped
    except KeyboardInterrupt:
        if stopped == CTRL_C:
            raise
        return answer(), CTRL_C


def _of_other_steps(
    scene: Scene, found: Found, around: Posterior, keeper: Keeper, progress: Progress | None
) -> tuple[Posterior, str]:
    """The posterior without what step and grid do to it; as it was where that was ended, and why."""
    try:
        return of_other_steps(scene, found, around, keeper.time.check, progress), ""
    except (KeyboardInterrupt, TimeUp) as ended:
        return around, _ended(keeper, ended)


def _ended(keeper: Keeper, ended: BaseException) -> str:
    keeper.write()
    return str(ended) or CTRL_C


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


def _last_frame(problem: Problem, backend: Backend, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fitted displacement (N, 3) [m] at the last frame, and signed distances (n,) [m] of its points."""
    frame = clouds_of(problem)[-1]
    known = problem.displacements_at(theta)
    if known is None:
        simulation = Simulation(problem.model, problem.variables.parameters(theta), backend)
        u = next(displacements(simulation, [frame.time_s]))
    else:
        u = next(u for other, u in zip(problem.frames, known) if other is frame)
    return u, point_residuals(problem.model.body, problem.field, frame, u).value_m
