"""Frames in, estimates out: a window over the newest frames that starts, follows, loses and finds its object again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.backends.interface import Backend
from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.fitting.parameter_posterior import ParameterPosterior
from soft_estimator.estimation.fitting.uncertainty import describe
from soft_estimator.estimation.problem import kinds_of
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.residuals.interface import Frame, Residual
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.estimation.variables import make_variables
from soft_estimator.estimation.window.arrival import POSE
from soft_estimator.estimation.window.bent_start import BentStarts
from soft_estimator.estimation.window.incoming import LEAST_POINTS, FrameOrder, first_velocity, frame_of, usable_points
from soft_estimator.estimation.window.lasting import Lasting, Learnt, ToldPlane
from soft_estimator.estimation.window.live_estimate import Counters, LiveEstimate
from soft_estimator.estimation.window.misfit import MisfitWatch
from soft_estimator.estimation.window.window_fit import Answer, WindowFit
from soft_estimator.estimation.window.window_motion import WindowMotion
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverError

# Standard deviations of the first pose beyond what the fit of the shape claims (its figures: 0.7 mm and 0.4 degrees at
# worst, for bodies whose shape is exact), and of the first motion: what a hand or a drop of 5 cm gives a body.
_POSE_STD = {"translation_m": 0.005, "rotation_rad": 0.1, "velocity_m_s": 1.0, "angular_velocity_rad_s": 3.0}


@dataclass(frozen=True)
class FoundPose:
    """Where the body is: a rotation vector about its centroid, then a shift; or why it was not found."""

    translation_m: np.ndarray | None
    rotation_rad: np.ndarray | None
    reason: str = ""


Locate = Callable[[np.ndarray, np.ndarray], FoundPose]  # points (n, 3) [m], standard deviations (n,) [m]


class SlidingWindow:
    """A live estimator: give it frames in order of time, it returns what it knows.

    Args:
        reference: first guesses, and everything that is not estimated.
        names: parameters to estimate, as `make_variables` takes them; pose and motion are added for a free body.
        prior_std: of the variables, instead of the usual ones.
        locate: finds the body in a frame's points; without it the body starts where `reference` says.
        sensor_m: where the depth camera is [m], (3,): noise acts along its rays, and residuals are taken along them.
        residual: what frames are measured against, as in `Problem`; clouds by default against the surface.
        clock: wall-clock seconds, used for the time budget only.
    """

    def __init__(
        self,
        model: Model,
        reference: Parameters,
        names: list[str],
        config: WindowConfig | None = None,
        *,
        prior_std: dict[str, float] | None = None,
        backend: Backend | None = None,
        locate: Locate | None = None,
        sensor_m: np.ndarray | None = None,
        loss: RobustLoss | None = None,
        field: CarriedField | None = None,
        residual: Residual[Any] | Sequence[Residual[Any]] = (),
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.model, self.config, self.locate, self.clock = model, config or WindowConfig(), locate, clock
        self.loss = loss or RobustLoss()
        self.backend: Backend = backend or CpuBackend()
        self.kinds = kinds_of(model.body, field or carry_field(model.body), self.backend, residual)
        self.sensor_m = None if sensor_m is None else np.asarray(sensor_m, dtype=np.float64)
        self.free = not (model.dirichlet.held or model.dirichlet.weak)
        material = [n for n in names if n.partition("[")[0] not in POSE]
        self.lasting = Lasting(reference, material, dict(prior_std or {}), self.config.surface_std_m)
        self.size_m = float(np.linalg.norm(np.ptp(model.body.surface_positions_m(), axis=0)))
        self.counters = Counters()
        self._bent = BentStarts()
        self.last: LiveEstimate | None = None
        self.waiting_for = ""  # why the last frame did not count
        self._end_episode()

    def _end_episode(self) -> None:
        self._fit: WindowFit | None = None
        self._since_s = 0.0
        self._order = FrameOrder(self.config)
        self._lost = False
        self._misfit = MisfitWatch()

    def know_plane(self, normal: np.ndarray, offset_m: float, tilt_std_rad: float, offset_std_m: float) -> None:
        """The plane as a camera sees it: a guess, and how much it may be off. Takes effect with the next start; a first
        plane that comes while the window is still starting lets it start anew.

        The same plane told again changes nothing: what was learnt of it stays. normal: unit vector towards the body,
        (3,). offset_m: d in n·x + d = 0.
        """
        first = not self.lasting.plane_is_told
        plane = ToldPlane(np.array(normal, dtype=np.float64), float(offset_m), tilt_std_rad, offset_std_m)
        self.lasting.tell_plane(plane)
        if first and self._fit is not None and self.status == "starting":
            self._end_episode()

    @property
    def status(self) -> str:
        if self._lost:
            return "lost"
        if self._fit is None or (len(self._fit.frames) < self.config.least_frames and not self._fit.slid):
            return "starting"
        return "tracking"

    def reset(self, keep_parameters: bool = False) -> None:
        """Start anew with the next frame: from the first guesses, or with what is known of material and plane."""
        if keep_parameters:
            self._learn()
        else:
            self.lasting.forget()
            self.last = None
        self._end_episode()
        self.counters.resets += 1

    def skip_ahead(self, frames: int) -> None:
        """So many frames were dropped because work was late; begin anew at the next one, knowing what is known."""
        self.counters.frames_in += frames
        self.counters.frames_late += frames
        self._learn()
        self._end_episode()

    def add_nothing(self, stamp_s: float, reason: str) -> LiveEstimate | None:
        """A frame without the object: hold the last estimate; after a while, call the object lost."""
        self.counters.frames_in += 1
        self.counters.frames_empty += 1
        self._check_order(stamp_s)
        self._order.newest_s = stamp_s
        return self._without_object(stamp_s, reason)

    def add_frame(self, stamp_s: float, points_m: np.ndarray, std_m: np.ndarray | float) -> LiveEstimate | None:
        """Take in a cloud.

        Args:
            stamp_s: when it was taken [s]. points_m: on the object, in the world frame (n, 3) [m].
            std_m: noise of each along the view [m], (n,) or one for all.
        Returns:
            what is known now; None while there is nothing new.
        """
        start = self.clock()
        notes = self._admitted(stamp_s)
        if notes is None:
            return None
        points, std = self._usable(points_m, std_m)
        if len(points) < LEAST_POINTS:
            self.counters.frames_empty += 1
            return self._without_object(stamp_s, f"{len(points)} usable points; {LEAST_POINTS} are needed")
        return self._take_in(frame_of(stamp_s, points, std, self.sensor_m), start, notes)

    def add_measurement(self, frame: Any) -> LiveEstimate | None:
        """Take in a frame of any kind that the window's residuals take; its time_s is its stamp [s]."""
        start = self.clock()
        notes = self._admitted(frame.time_s)
        if notes is None:
            return None
        wrong = self.kinds.of(frame).check(frame)
        if wrong:
            self.counters.frames_empty += 1
            return self._without_object(frame.time_s, f"the frame {wrong}")
        return self._take_in(frame, start, notes)

    def _admitted(self, stamp_s: float) -> tuple[str, ...] | None:
        """Count a frame: what to note of its time; None where it is not to be used."""
        self.counters.frames_in += 1
        if not np.isfinite(stamp_s):
            self.counters.frames_refused += 1
            return None
        notes = self._check_order(stamp_s)
        if notes is not None:
            self._order.newest_s = stamp_s
        return notes

    def _take_in(self, frame: Any, start: float, notes: tuple[str, ...]) -> LiveEstimate | None:
        stamp_s = frame.time_s
        try:
            fit, refused = self._fit, ""
            if fit is None:
                fit, refused = self._begin(frame)
            if fit is not None:
                self._refine(fit, replace(frame, time_s=stamp_s - self._since_s), start)
                refused = self._bent_start(fit, stamp_s)
        except SolverError as error:
            self.counters.frames_refused += 1
            self._learn()
            self._end_episode()
            return self._without_object(stamp_s, f"started anew: {error}")
        if fit is None or refused:
            self.counters.frames_refused += 1
            return self._without_object(stamp_s, refused)
        self.counters.frames_used += 1
        self._order.used_s, self._lost, self.waiting_for = stamp_s, False, ""
        return self._estimate(fit, stamp_s, start, notes)

    def _check_order(self, stamp_s: float) -> tuple[str, ...] | None:
        """What to note of a frame's time; None where the frame is not to be used."""
        verdict = self._order.look(stamp_s, self.status == "starting")
        if verdict.jumped:
            self._learn()
            self.counters.resets += 1
        if verdict.jumped or verdict.gap:
            self._end_episode()
        self.counters.frames_late += verdict.late
        self.counters.frames_thinned += verdict.thinned
        return None if verdict.late or verdict.thinned else verdict.notes

    def _usable(self, points_m: np.ndarray, std_m: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Finite points near where the body is expected, no more than wanted."""
        near = None
        if self._fit is not None:
            u = self.backend.to_host(self._fit.at.trajectory.after.state.u).astype(np.float64)
            body, reach = self.model.body.surface_positions_m(u), self.config.stray_sizes * self.size_m
            near = (body.min(axis=0) - reach, body.max(axis=0) + reach)
        points, std, aside = usable_points(points_m, std_m, near, self.config.points_per_frame)
        self.counters.points_set_aside += aside
        return points, std

    def _begin(self, frame: Any) -> tuple[WindowFit | None, str]:
        """Start an episode at a frame; or the reason why not, where the body was not found in it."""
        self.lasting.begin_episode()
        reference, given = self.lasting.reference, self.lasting.prior_std
        if self.locate is not None and self.free and isinstance(frame, ObservedFrame):
            pose = self.locate(frame.points_m, frame.std_m)
            if pose.translation_m is None or pose.rotation_rad is None:
                return None, pose.reason
            reference = replace(reference, translation_m=pose.translation_m, rotation_rad=pose.rotation_rad)
        names = [*self.lasting.names, *(POSE if self.free else ())]
        variables = make_variables(reference, names, {**_POSE_STD, **given})
        motion = WindowMotion(self.model, variables, self.backend, self.kinds)
        fit = WindowFit(motion, self.lasting.prior_of(variables), self.loss)
        count = len(self.lasting.variables)
        fit.information[:count, :count] = self.lasting.learnt.information
        fit.touched = self.lasting.touched
        self._fit, self._since_s = fit, frame.time_s
        return fit, ""

    def _refine(self, fit: WindowFit, frame: Frame, start: float) -> None:
        """Take a frame into the window, and let the window slide where it is full."""
        config = self.config
        if self.free and len(fit.frames) == 1 and not fit.slid:
            velocity = first_velocity(fit.frames[0].frame, frame, self.lasting.reference.gravity_m_s2)
            if velocity is not None:
                fit.set_motion(velocity)
        fit.add(frame)

        def in_time(seconds: float) -> bool:
            budget = config.time_budget_s
            return budget is None or self.clock() - start + seconds <= budget

        fit.refine(config.iterations, in_time)
        limit = config.frames if fit.slid else config.grow_to_frames
        keep = config.frames if len(fit.frames) > limit else len(fit.frames)
        budget = config.time_budget_s
        if budget is not None and config.least_frames < keep == len(fit.frames) and fit.seconds > budget:
            keep -= 1  # a window that cannot be simulated within the budget could never be refined again
        if keep < len(fit.frames):
            fit.slide(keep, self._drift(), config.forgetting)

    def _drift(self) -> np.ndarray:
        """Standard deviations of `POSE` that the model misses between two frames, (12,)."""
        c, radius = self.config, 0.5 * self.size_m
        sizes = (c.position_drift_m, c.position_drift_m / radius, c.velocity_drift_m_s, c.velocity_drift_m_s / radius)
        return np.repeat(sizes, 3)

    def _bent_start(self, fit: WindowFit, stamp_s: float) -> str:
        """Why an episode should not begin with its first frame, "" where it may; then the episode is over."""
        first = fit.frames[0].frame
        if len(fit.frames) != 1 or fit.slid or not self.free or not isinstance(self.kinds.of(first), SurfaceDistance):
            return ""
        bent = self._bent.look(stamp_s, fit.settled(0), self.config.bent_patience_s)
        if bent:
            self._end_episode()
            self._order.newest_s = stamp_s
        return bent

    def _estimate(self, fit: WindowFit, stamp_s: float, start: float, notes: tuple[str, ...]) -> LiveEstimate | None:
        answer = fit.answer()
        newest = fit.settled(-1, answer.z)
        notes = notes + self._bent.notes + self._watch_fit(fit, answer, newest.residual)
        if self._fit is None:
            return self._without_object(stamp_s, notes[-1])
        if self.status == "starting":
            return None
        u, v, a = fit.newest_state(answer.z)
        variables, count = self.lasting.variables, len(self.lasting.variables)
        covariance = answer.covariance[:count, :count] + np.diag(self._model_variance())
        posterior = ParameterPosterior(variables, answer.z[:count], covariance)
        information = answer.information[:count, :count]
        material = describe(variables, posterior.theta, information, covariance, answer.touched)
        points, off = _distances(newest.frame, newest.residual)
        self.last = LiveEstimate(
            stamp_s=stamp_s,
            status="tracking",
            parameters=material,
            values=fit.motion.parameters(answer.z),
            u_m=u,
            v_m_s=v,
            a=a,
            noise_scale=answer.scale,
            cost=answer.cost,
            rms_residual_m=float(np.sqrt(np.mean(off**2))) if len(off) else 0.0,
            residual_m=off,
            points_m=points,
            frames_in_window=len(fit.frames),
            seconds=self.clock() - start,
            notes=notes,
            posterior=posterior,
        )
        return self.last

    def _model_variance(self) -> np.ndarray:
        """Variance of the variables that no number of frames takes away: the model is not the body, (P,)."""
        c = self.config
        relative = float(np.hypot(c.model_std, self._bent.model_std))
        std = {"log": relative, "logit": relative}
        kinds = self.lasting.variables.variables
        return np.array([std.get(v.transform, c.surface_std_m if v.unit == "m" else 0.0) ** 2 for v in kinds])

    def _watch_fit(self, fit: WindowFit, answer: Answer, off: np.ndarray) -> tuple[str, ...]:
        """Notice when the body no longer moves as the model does, and go back to what was known before that."""
        counts = len(fit.frames) >= self.config.least_frames and self.kinds.of(fit.frames[-1].frame).whitened
        note, back_to = self._misfit.look(off, answer.scale, self._learnt_from(answer), counts)
        if back_to is not None:
            self.lasting.learnt = back_to
            order = self._order
            self._end_episode()
            self._order = order
            self.counters.resets += 1
        return (note,) if note else ()

    def _learnt_from(self, answer: Answer) -> Learnt:
        """What the window knows of the lasting variables; what a bent start did to one episode must not count as known
        in the next."""
        return self.lasting.of_answer(answer, self._bent.variance(self.lasting.variables))

    def _learn(self) -> None:
        """Keep what an episode that ends knows of the lasting variables."""
        if self._fit is not None and self._fit.frames and self.status == "tracking":
            answer = self._fit.answer()
            self.lasting.learnt = self._learnt_from(answer)
            self.lasting.touched = self.lasting.touched or answer.touched

    def _without_object(self, stamp_s: float, reason: str) -> LiveEstimate | None:
        """Hold the last estimate; call the object lost when it has been away for too long."""
        self.waiting_for = reason
        if self.last is None:
            return None
        used_s = self._order.used_s
        away = stamp_s - (used_s if used_s is not None else self.last.stamp_s)
        if away <= self.config.lost_after_s and not self._lost:
            return None
        if not self._lost:
            self._learn()
            newest_s = self._order.newest_s
            self._end_episode()
            self._order.newest_s = newest_s
            self._lost = True
        self.last = replace(self.last, status="lost", notes=(reason,), seconds=0.0)
        return self.last


def _distances(frame: Any, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A cloud's points (n, 3) and their distances (n,) [m]; none of other frames."""
    if isinstance(frame, ObservedFrame) and len(residual) == len(frame.points_m):
        return frame.points_m, residual * frame.std_m
    return np.zeros((0, 3)), np.zeros(0)
