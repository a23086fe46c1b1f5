"""An episode of frames: how its window begins, takes in a frame and slides, and what is published of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.config_live import WindowConfig
from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.fitting.consider import DETAILS, MODEL, Effect
from soft_estimator.estimation.fitting.modal_start import RIGID_FRAMES, with_small_bend
from soft_estimator.estimation.fitting.told_plane import with_told_plane
from soft_estimator.estimation.fitting.uncertainty import describe
from soft_estimator.estimation.held_pose import with_pose, with_wider_pose
from soft_estimator.estimation.residuals.interface import Frame, Kinds
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.residuals.tool_wrench import WrenchFrame
from soft_estimator.estimation.trajectory import PredictedFrame
from soft_estimator.estimation.variables import Variables, make_variables
from soft_estimator.estimation.window.arrival import POSE
from soft_estimator.estimation.window.incoming import first_velocity
from soft_estimator.estimation.window.lasting import Lasting
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.estimation.window.other_stiffness import stiffnesses
from soft_estimator.estimation.window.own_step import PARTS, CutSteps, parts_of_step
from soft_estimator.estimation.window.point_places import PointPlaces
from soft_estimator.estimation.window.shape_details import ShapeDetails
from soft_estimator.estimation.window.window_fit import TO_THE_END, Answer, WindowFit
from soft_estimator.estimation.window.window_motion import WindowMotion
from soft_estimator.estimation.window.window_verdict import WindowVerdict
from soft_estimator.geometry.extent import widest_m
from soft_estimator.physics.coarser import CoarserModel, coarser_model
from soft_estimator.physics.fused import can_fuse
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters

# Standard deviations of the first pose beyond what the fit of the shape claims (its figures: 0.7 mm and 0.4 degrees at
# worst, for bodies whose shape is exact), and of the first motion: what a hand or a drop of 5 cm gives a body.
_POSE_STD = {"translation_m": 0.005, "rotation_rad": 0.1, "velocity_m_s": 1.0, "angular_velocity_rad_s": 3.0}

# Cells from which on changes are worked out on a coarser grid where whole steps run by themselves. There a step of a
# small body costs what starting its kernels does, on any grid: on an H200 a window over 1,088 cells makes 0.86 times as
# many updates a second with it, one over 10,048 0.94 to 1.1 times, and one over 94,208 3.6 times.
_WORTH_A_COARSER_GRID = 20_000


@dataclass(frozen=True)
class FoundPose:
    """Where the body is: a rotation vector about its centroid, then a shift; or why it was not found."""

    translation_m: np.ndarray | None
    rotation_rad: np.ndarray | None
    reason: str = ""


Locate = Callable[[np.ndarray, np.ndarray], FoundPose]  # points (n, 3) [m], standard deviations (n,) [m]


class Episodes:
    """Begins and goes on with episodes of one model.

    Attributes:
        free: whether nothing holds the body, so that its pose and motion are estimated, too. size_m: of the body, its
            box' diagonal. width_m: its largest width.
    """

    def __init__(
        self,
        model: Model,
        lasting: Lasting,
        config: WindowConfig,
        backend: Backend,
        kinds: Kinds,
        loss: RobustLoss,
        known: KnownToConfig | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.model, self.lasting, self.config, self.backend = model, lasting, config, backend
        self.kinds, self.loss, self.known, self.clock = kinds, loss, known, clock
        self.steps = CutSteps(model)
        self._coarser: dict[int, CoarserModel | None] = {}
        self._begun_with = 1  # parts of a step, in the last episode
        self.places = PointPlaces(model.body, config.points_per_frame, backend)
        self.details = ShapeDetails(model.body, self.places, kinds, known)
        self.verdict = WindowVerdict(model.body, self.places, known)
        self.free = not (model.dirichlet.held or model.dirichlet.weak)
        rest = model.body.surface_positions_m()
        self.size_m, self.width_m = float(np.linalg.norm(np.ptp(rest, axis=0))), widest_m(rest)

    def begin(self, frame: Any, locate: Locate | None) -> tuple[WindowFit | None, str]:
        """A window that starts at a frame; or the reason why not, where the body was not found in it."""
        lasting = self.lasting
        lasting.begin_episode()
        reference = lasting.reference
        if locate is not None and self.free and isinstance(frame, ObservedFrame):
            pose = locate(frame.points_m, frame.std_m)
            if pose.translation_m is None or pose.rotation_rad is None:
                return None, pose.reason
            reference = reference.replace(translation_m=pose.translation_m, rotation_rad=pose.rotation_rad)
        variables = self._variables(reference)
        known = lasting.prior_of(variables)
        self._begun_with = self._parts(variables, known.mean, self._begun_with if lasting.begun else 1)
        fit = WindowFit(self._motion(variables, self._begun_with), known, self.loss, self.details)
        count = len(lasting.variables)
        fit.information[:count, :count] = lasting.learnt.information
        fit.touched = lasting.touched
        if self.model.modes is not None and self.free and self._rigid_frames > 1:
            fit.hold_all_but(POSE)
        return fit, ""

    @property
    def _rigid_frames(self) -> int:
        """How many first frames of a body that may be bent show its rigid motion by itself; no estimate has less."""
        return min(RIGID_FRAMES, self.config.least_frames)

    def _variables(self, reference: Parameters) -> Variables:
        """Of an episode that begins there: the lasting ones first, then those of its start."""
        lasting, modes = self.lasting, self.model.modes
        names = [*lasting.names, *(POSE if self.free else ()), *(() if modes is None else modes.names)]
        return make_variables(reference, names, {**_POSE_STD, **lasting.prior_std}, lasting.beside)

    def _parts(self, variables: Variables, z: np.ndarray, before: int = 1) -> int:
        """Into how many parts the step is cut with the variables at z, and in an episode before; that of a held body,
        which may swing far slower than its thickness lets it, is left to whoever chose it."""
        return parts_of_step(self.model, variables.parameters(z[: len(variables)]), before) if self.free else 1

    def _motion(self, variables: Variables, parts: int) -> WindowMotion:
        model, coarser = self.steps.into(parts), self._coarser_model(parts)
        return WindowMotion(model, variables, self.backend, self.kinds, self.known, self.clock, coarser)

    @property
    def made_once(self) -> dict[str, object]:
        """What the model makes for steps cut into parts, by name."""
        cut = {f"model in {2 * parts} parts": self.steps.into(2 * parts) for parts in PARTS}
        return cut | {f"coarser in {parts} parts": self._coarser_model(parts) for parts in PARTS}

    def _coarser_model(self, parts: int) -> CoarserModel | None:
        """Where changes are worked out on a coarser grid, as the settings have it; made once."""
        small = self.model.body.cell_count < _WORTH_A_COARSER_GRID and can_fuse(self.model, self.backend)
        if self.config.jacobian_grid == "fine" or small:
            return None
        if 1 not in self._coarser:
            self._coarser[1] = coarser_model(self.model)
        whole = self._coarser[1]
        if parts not in self._coarser and whole is not None:
            self._coarser[parts] = whole.with_step(self.steps.into(max(1, parts // 2)).integrator)
        return self._coarser.get(parts)

    def go_on(
        self, fit: WindowFit, frame: Frame, in_time: Callable[[float], bool], felt: Sequence[WrenchFrame] = ()
    ) -> bool:
        """Take a frame into a window, after what was felt since the last one, and let the window slide where it is
        full: whether it did."""
        config = self.config
        if self.free and len(fit.frames) == 1 and not fit.slid:
            velocity = first_velocity(fit.frames[0].frame, frame, self.lasting.reference.gravity_m_s2)
            if velocity is not None:
                fit.set_motion(velocity)
        last_s = fit.frames[-1].frame.time_s if fit.frames else np.inf
        for reading in sorted(felt, key=lambda reading: reading.time_s):
            if last_s <= reading.time_s <= frame.time_s and not self.kinds.of(reading).check(reading):
                fit.add(reading)
        fit.add(frame)
        fit.refine(config.iterations, in_time)
        if fit.held and looks(fit) >= self._rigid_frames:
            fit.refine(TO_THE_END, in_time)
            fit.let_go()
            fit.refine(config.iterations, in_time)
        self._doubt_pose(fit)
        self.shorten(fit, in_time)
        limit = config.frames if fit.slid else config.grow_to_frames
        before = keep = len(fit.frames)
        if looks(fit) > limit:  # what was felt goes with the look that followed it
            seen = [k for k, e in enumerate(fit.frames) if not isinstance(e.frame, WrenchFrame)]
            keep = before - 1 - seen[-config.frames - 1]
        if keep < before:
            if config.time_budget_s is not None and not fit.holds and in_time(0.0):
                # What is marginalised stays as it was made linear: worth a simulation that the next frames pay for.
                fit.refine(1, lambda seconds: True)
            fit.slide(keep, self._drift(), config.forgetting)
        return keep < before

    def above_cells(self, fit: WindowFit) -> float:
        """How far the body is above the plane in a window's newest frame, in cells; inf without a plane."""
        if self.model.contact is None:
            return np.inf
        body, values = self.model.body, fit.motion.parameters(fit.at.z)
        u = self.backend.to_host(fit.frames[-1].after.state.u).astype(np.float64)
        height_m = body.surface_positions_m(u) @ values.plane_normal + values.plane_offset_m
        return float(height_m.min()) / body.grid.spacing_m

    def _doubt_pose(self, fit: WindowFit) -> None:
        """Widen the prior of a held body's pose where that turns out to be further off than was stated."""
        if fit.slid or self.lasting.begun or not self.lasting.beside or not fit.holds:
            return
        variables = fit.motion.variables
        wider = with_wider_pose(variables, fit.at.z[: len(variables)])
        if wider is not None:
            fit.doubt(wider)

    def shorten(self, fit: WindowFit, in_time: Callable[[float], bool]) -> bool:
        """Go on with more parts of the step where the body turns out to be stiffer than it was taken for, by a standard
        deviation at least: whether it did. That of a body in the air wanders by what rounding shows of it."""
        variables, parts = fit.motion.variables, self.steps.parts(fit.motion.model)
        if fit.slid or not in_time(2 * fit.seconds) or self._parts(variables, fit.at.z) <= parts:
            return False
        surely, chosen = fit.at.z.copy(), stiffnesses(variables)
        surely[chosen] -= fit.deviations[chosen]
        if self._parts(variables, surely) <= parts:
            return False
        fit.use(self._motion(variables, 2 * parts))
        self._begun_with = 2 * parts
        return True

    def _drift(self) -> np.ndarray:
        """Standard deviations of `POSE` that the model misses between two frames, (12,)."""
        c, radius = self.config, 0.5 * self.size_m
        sizes = (c.position_drift_m, c.position_drift_m / radius, c.velocity_drift_m_s, c.velocity_drift_m_s / radius)
        return np.repeat(sizes, 3)

    def model_variance(self, bent_std: float) -> np.ndarray:
        """Variance of the lasting variables that no number of frames takes away: the model is not the body, (P,).

        bent_std: relative deviation that a bent start adds.
        """
        c = self.config
        relative = float(np.hypot(c.model_std, bent_std))
        std = {"log": relative, "logit": relative}
        kinds = self.lasting.variables.variables
        return np.array([std.get(v.transform, c.surface_std_m if v.unit == "m" else 0.0) ** 2 for v in kinds])

    def estimate(
        self,
        fit: WindowFit,
        answer: Answer,
        newest: PredictedFrame,
        bent_std: float,
        shift: np.ndarray,
        more: Sequence[Effect],
        changes: Sequence[Sequence[np.ndarray]] = (),
        ended: bool = False,
    ) -> LiveEstimate:
        """What to publish of a window's answer; its stamp, time and notes are left to be filled in.

        shift: what to add to the lasting variables, (P,). more: what more there is to their deviations. changes: of the
            frames' residuals with half the step, or half the spacing: a misfit that is theirs is none of the body.
            ended: no search follows.
        """
        u, v, a = fit.newest_state(answer.z)
        variables, count = self.lasting.variables, len(self.lasting.variables)
        statistical, effects = answer.covariance[:count, :count], [*self._effects(fit, answer, bent_std), *more]
        covariance = sum((e.covariance for e in effects), statistical)
        theta, information = answer.z[:count] + shift, answer.information[:count, :count]
        judged = self.verdict.of(fit, answer, ended=ended)
        if not judged.fits and changes:
            refined = self.verdict.of(fit, answer, changes, ended)
            judged = refined if refined.fits else judged
        verdict = with_pose(judged, variables, theta, covariance, self.model, self.known)
        if answer.settled or ended:
            verdict = with_told_plane(verdict, variables, answer.z[:count])
            verdict = with_small_bend(verdict, self.model, fit.motion.parameters(answer.z))
            verdict = self.verdict.with_felt_force(verdict, fit, answer)
        answers = describe(variables, theta, information, statistical, answer.touched, effects, verdict)
        points, off = _distances(newest.frame, newest.residual)
        return LiveEstimate(
            stamp_s=0.0,
            status="tracking",
            parameters=tuple(answers[j] for j in self.lasting.chosen),
            values=fit.motion.parameters(np.concatenate([theta, answer.z[count:]])),
            u_m=u,
            v_m_s=v,
            a=a,
            noise_scale=answer.scale,
            cost=answer.cost,
            rms_residual_m=float(np.sqrt(np.mean(off**2))) if len(off) else 0.0,
            residual_m=off,
            points_m=points,
            frames_in_window=len(fit.frames),
            seconds=0.0,
            posterior=self.lasting.asked_for(theta, covariance),
            memory=fit.newest_memory(answer.z),
            verdict=verdict,
            settled=answer.settled,
        )

    def _effects(self, fit: WindowFit, answer: Answer, bent_std: float) -> list[Effect]:
        """What adds to the covariance of the lasting variables: what is held fixed, and the model's own error."""
        count, first, out = len(self.lasting.variables), 0, []
        for source in fit.motion.held_fixed:
            last = first + len(source.directions)
            out.append(Effect(source.name, source.title, source.remedy, answer.by_fixed[:count, first:last]))
            first = last
        out.append(Effect(*DETAILS, answer.by_fixed[:count, first:]))
        return [*out, Effect(*MODEL, np.diag(np.sqrt(self.model_variance(bent_std))))]


def looks(fit: WindowFit) -> int:
    """How many of a window's frames were seen, not felt."""
    return sum(not isinstance(e.frame, WrenchFrame) for e in fit.frames)


def _distances(frame: Any, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A cloud's points (n, 3) and their distances (n,) [m]; none of other frames."""
    if isinstance(frame, ObservedFrame) and len(residual) == len(frame.points_m):
        return frame.points_m, residual * frame.std_m
    return np.zeros((0, 3)), np.zeros(0)
