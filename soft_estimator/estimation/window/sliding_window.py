"""Frames in, estimates out: a window over the newest frames that starts, follows, loses and finds its object again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.backends.interface import Backend
from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.fitting.parameter_posterior import ParameterPosterior
from soft_estimator.estimation.fitting.uncertainty import describe
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.variables import Variables, make_variables
from soft_estimator.estimation.window.arrival import POSE, Knowledge, inverse_of
from soft_estimator.estimation.window.bent_start import BentStarts
from soft_estimator.estimation.window.incoming import LEAST_POINTS, first_velocity, frame_of, usable_points
from soft_estimator.estimation.window.live_estimate import Counters, LiveEstimate
from soft_estimator.estimation.window.window_fit import Answer, WindowFit
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverError

_OUT_OF_ORDER_S = 0.2  # a stamp that goes back by less is a straggler, by more a jump
_START_GAP_S = 0.15  # a stretch begins with frames at most this far apart: they must tell how the body moves
_MISFIT_SCALE = 4.0  # residuals this many times the usual ones are not the model's motion any more
_MISFIT_FRAMES = 3
# Standard deviations of the first pose beyond what the fit of the shape claims, and of the first motion.
_POSE_STD = {"translation_m": 0.005, "rotation_rad": 0.1, "velocity_m_s": 1.0, "angular_velocity_rad_s": 3.0}


@dataclass(frozen=True)
class FoundPose:
    """Where the body is: a rotation vector about its centroid, then a shift; or why it was not found."""

    translation_m: np.ndarray | None
    rotation_rad: np.ndarray | None
    reason: str = ""


Locate = Callable[[np.ndarray, np.ndarray], FoundPose]  # points (n, 3) [m], standard deviations (n,) [m]


class SlidingWindow:
    """A live estimator: give it frames in order of time, it says what it knows.

    Args:
        reference: first guesses, and everything that is not estimated.
        names: parameters to estimate, as `make_variables` takes them; pose and motion are added for a free body.
        prior_std: of the variables, instead of the usual ones.
        locate: finds the body in a frame's points; without it the body starts where `reference` says.
        sensor_m: where the depth camera is [m], (3,): noise acts along its rays, and residuals are taken along them.
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
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.model, self.reference, self.config = model, reference, config or WindowConfig()
        self.backend, self.locate, self.loss = backend or CpuBackend(), locate, loss or RobustLoss()
        self.field = field or carry_field(model.body)
        self.sensor_m = None if sensor_m is None else np.asarray(sensor_m, dtype=np.float64)
        self.clock = clock
        self.free = not (model.dirichlet.held or model.dirichlet.weak)
        self.names = [n for n in names if n.partition("[")[0] not in POSE]
        self.prior_std = dict(prior_std or {})
        self._material = make_variables(reference, self.names, self.prior_std)
        corners = model.body.surface_positions_m()
        self.size_m = float(np.linalg.norm(np.ptp(corners, axis=0)))
        self.counters = Counters()
        self._bent = BentStarts()
        self._plane: tuple[np.ndarray, float] | None = None
        self.last: LiveEstimate | None = None
        self.waiting_for = ""  # why the last frame did not count
        self._forget()

    def _forget(self) -> None:
        v = self._material
        self._knowledge = self._prior()
        self._told = np.zeros((len(v), len(v)))
        self._touched = False
        self._end_stretch()

    def _prior(self) -> Knowledge:
        """What is known before any frame: of material and plane, and last of how far the seen surface is off.

        The camera's habit and the shape's error stay the same from stretch to stretch, so they are carried along:
        no number of stretches averages them out.
        """
        v = self._material
        std = np.append(v.prior_std, self.config.surface_std_m)
        return Knowledge(np.append(v.prior_mean, 0.0), np.diag(std**-2.0))

    def _end_stretch(self) -> None:
        self._fit: WindowFit | None = None
        self._variables: Variables = self._material
        self._since_s = 0.0
        self._newest_s: float | None = None  # of any frame
        self._used_s: float | None = None  # of a frame with the object in it
        self._lost = False
        self._misfits = 0
        self._behind: deque[tuple[Knowledge, np.ndarray]] = deque(maxlen=_MISFIT_FRAMES + 1)

    def know_plane(self, normal: np.ndarray, offset_m: float, tilt_std_rad: float, offset_std_m: float) -> None:
        """The plane as a camera sees it: a guess, and how much it may be off. Takes effect with the next start.

        The same plane told again changes nothing: what was learnt of it stays. normal: unit vector towards the body,
        (3,). offset_m: d in n·x + d = 0.
        """
        if self._plane is not None:
            turned = float(np.linalg.norm(np.asarray(normal) - self._plane[0]))
            if turned < tilt_std_rad and abs(offset_m - self._plane[1]) < offset_std_m:
                return
        self._plane = (np.array(normal, dtype=np.float64), float(offset_m))
        v = self._material
        before = self._knowledge
        self.reference = replace(self.reference, plane_normal=np.asarray(normal, float), plane_offset_m=float(offset_m))
        self.prior_std = {**self.prior_std, "plane_normal": tilt_std_rad, "plane_offset_m": offset_std_m}
        self._material = make_variables(self.reference, self.names, self.prior_std)
        planes = np.array([x.name.startswith("plane") for x in v.variables])
        fresh = self._prior()
        others = np.flatnonzero(~np.append(planes, False))
        kept = before.of(others)
        fresh.mean[others] = kept.mean
        fresh.information[np.ix_(others, others)] = kept.information
        self._knowledge = fresh
        self._told[planes, :] = self._told[:, planes] = 0.0

    @property
    def status(self) -> str:
        if self._lost:
            return "lost"
        if self._fit is None or (len(self._fit.explained) < self.config.least_frames and not self._fit.slid):
            return "starting"
        return "tracking"

    def reset(self, keep_parameters: bool = False) -> None:
        """Start anew with the next frame: from the first guesses, or with what is known of material and plane."""
        if keep_parameters:
            self._remember()
            self._end_stretch()
        else:
            self._forget()
            self.last = None
        self.counters.resets += 1

    def skip_ahead(self, frames: int) -> None:
        """So many frames were dropped because work was late; begin anew at the next one, knowing what is known."""
        self.counters.frames_in += frames
        self.counters.frames_late += frames
        self._remember()
        self._end_stretch()

    def add_nothing(self, stamp_s: float, reason: str) -> LiveEstimate | None:
        """A frame without the object: hold the last estimate; after a while, call the object lost."""
        self.counters.frames_in += 1
        self.counters.frames_empty += 1
        self._check_order(stamp_s)
        self._newest_s = stamp_s
        return self._without_object(stamp_s, reason)

    def add_frame(self, stamp_s: float, points_m: np.ndarray, std_m: np.ndarray | float) -> LiveEstimate | None:
        """Take in a frame.

        Args:
            stamp_s: when it was taken [s]. points_m: on the object, in the world frame (n, 3) [m].
            std_m: noise of each along the view [m], (n,) or one for all.
        Returns:
            what is known now; None while there is nothing new to say.
        """
        start = self.clock()
        self.counters.frames_in += 1
        if not np.isfinite(stamp_s):
            self.counters.frames_refused += 1
            return None
        notes = self._check_order(stamp_s)
        if notes is None:
            return None
        self._newest_s = stamp_s
        points, std = self._usable(points_m, std_m)
        if len(points) < LEAST_POINTS:
            self.counters.frames_empty += 1
            return self._without_object(stamp_s, f"{len(points)} usable points; {LEAST_POINTS} are needed")
        frame = frame_of(stamp_s, points, std, self.sensor_m)
        try:
            if self._fit is None:
                found = self._begin(stamp_s, frame)
                if found:
                    self.counters.frames_refused += 1
                    return self._without_object(stamp_s, found)
            self._take(replace(frame, time_s=stamp_s - self._since_s), start)
            if len(self._fit.explained) == 1 and not self._fit.slid and self.free:
                bent = self._bent.look(stamp_s, self._fit.settled(0), self.config.bent_patience_s)
                if bent:
                    self.counters.frames_refused += 1
                    self._end_stretch()
                    self._newest_s = stamp_s
                    return self._without_object(stamp_s, bent)
        except SolverError as error:
            self.counters.frames_refused += 1
            self._remember()
            self._end_stretch()
            return self._without_object(stamp_s, f"started anew: {error}")
        self.counters.frames_used += 1
        self._used_s, self._lost, self.waiting_for = stamp_s, False, ""
        return self._say(stamp_s, start, notes)

    def _check_order(self, stamp_s: float) -> tuple[str, ...] | None:
        """What to say of a frame's time; None where the frame is not to be used."""
        if self._newest_s is None:
            return ()
        ahead = stamp_s - self._newest_s
        if ahead < -_OUT_OF_ORDER_S or ahead > self.config.jump_s:
            way = "forward" if ahead > 0 else "back"
            self._remember()
            self._end_stretch()
            self.counters.resets += 1
            return (f"time jumped {way} by {abs(ahead):.2f} s: started anew",)
        if ahead <= 0:
            self.counters.frames_late += 1
            return None
        if self.status == "starting" and self._used_s is not None and stamp_s - self._used_s > _START_GAP_S:
            self._end_stretch()
            return ("the first frames lay too far apart: started anew",)
        if self._used_s is not None and stamp_s - self._used_s < 0.999 * self.config.least_interval_s:
            self.counters.frames_thinned += 1
            return None
        return ()

    def _usable(self, points_m: np.ndarray, std_m: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """Finite points near where the body is expected, no more than wanted."""
        near = None
        if self._fit is not None:
            u = self.backend.to_host(self._fit.trajectory.after.state.u).astype(np.float64)
            body, reach = self.model.body.surface_positions_m(u), self.config.stray_sizes * self.size_m
            near = (body.min(axis=0) - reach, body.max(axis=0) + reach)
        points, std, aside = usable_points(points_m, std_m, near, self.config.points_per_frame)
        self.counters.points_set_aside += aside
        return points, std

    def _begin(self, stamp_s: float, frame: ObservedFrame) -> str:
        """Start a stretch at a frame; a reason where the body was not found in it."""
        reference = self.reference
        if self.locate is not None and self.free:
            pose = self.locate(frame.points_m, frame.std_m)
            if pose.translation_m is None or pose.rotation_rad is None:
                return pose.reason
            reference = replace(reference, translation_m=pose.translation_m, rotation_rad=pose.rotation_rad)
        names = [*self.names, *(POSE if self.free else ())]
        prior = {**self.prior_std, **{n: s for n, s in _POSE_STD.items() if n not in self.prior_std}}
        self._variables = v = make_variables(reference, names, prior)
        count = len(self._material)
        mean = np.append(v.prior_mean, 0.0)
        information = np.diag(np.append(v.prior_std, 1.0) ** -2.0)
        lasting = self._lasting(len(mean))
        mean[lasting] = self._knowledge.mean
        information[np.ix_(lasting, lasting)] = self._knowledge.information
        self._fit = WindowFit(self.model, v, Knowledge(mean, information), self.backend, self.field, self.loss)
        self._fit.told[:count, :count] = self._told
        self._fit.touched = self._touched
        self._since_s = stamp_s
        return ""

    def _take(self, frame: ObservedFrame, start: float) -> None:
        fit, config = self._fit, self.config
        if self.free and len(fit.explained) == 1 and not fit.slid:
            fit.set_motion(first_velocity(fit.explained[0].frame, frame, self.reference.gravity_m_s2))
        fit.add(frame)

        def in_time(seconds: float) -> bool:
            budget = config.time_budget_s
            return budget is None or self.clock() - start + seconds <= budget

        fit.refine(config.iterations, in_time)
        limit = config.frames if fit.slid else config.grow_to_frames
        keep = config.frames if len(fit.explained) > limit else len(fit.explained)
        whole_s, budget = fit.seconds_per_step * fit.trajectory.steps, config.time_budget_s
        if budget is not None and config.least_frames < keep == len(fit.explained) and whole_s > budget:
            keep -= 1  # a window that cannot be simulated within the budget could never be refined again
        if keep < len(fit.explained):
            fit.slide(keep, self._drift(), config.forgetting)

    def _drift(self) -> np.ndarray:
        """Standard deviations of `POSE` that the model misses between two frames, (12,)."""
        c, radius = self.config, 0.5 * self.size_m
        sizes = (c.position_drift_m, c.position_drift_m / radius, c.velocity_drift_m_s, c.velocity_drift_m_s / radius)
        return np.repeat(sizes, 3)

    def _say(self, stamp_s: float, start: float, notes: tuple[str, ...]) -> LiveEstimate | None:
        fit = self._fit
        answer = fit.answer()
        u, v, a, newest = fit.newest_state(answer.z)
        off = fit.settled(-1, answer.z).residual
        notes = notes + self._bent.notes + self._watch_fit(answer, off)
        if self._fit is None:
            return self._without_object(stamp_s, notes[-1])
        if self.status == "starting":
            return None
        count = len(self._material)
        covariance = answer.covariance[:count, :count] + np.diag(self._model_variance())
        posterior = ParameterPosterior(self._material, answer.z[:count], covariance)
        information = answer.information[:count, :count]
        material = describe(self._material, posterior.theta, information, covariance, answer.touched)
        self.last = LiveEstimate(
            stamp_s=stamp_s,
            status="tracking",
            parameters=material,
            values=fit.parameters(answer.z),
            u_m=u,
            v_m_s=v,
            a=a,
            noise_scale=answer.scale,
            cost=answer.cost,
            rms_residual_m=float(np.sqrt(np.mean((off * newest.frame.std_m) ** 2))),
            residual_m=off * newest.frame.std_m,
            points_m=newest.frame.points_m,
            frames_in_window=len(fit.explained),
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
        kinds = self._material.variables
        return np.array([std.get(v.transform, c.surface_std_m if v.unit == "m" else 0.0) ** 2 for v in kinds])

    def _watch_fit(self, answer: Answer, off: np.ndarray) -> tuple[str, ...]:
        """Notice when the body no longer moves as the model does, and go back to what was known before that."""
        size = 1.4826 * float(np.median(np.abs(off)))
        usual = max(1.0, min(answer.scale, 3.0))
        known = self._known(answer)
        if size <= _MISFIT_SCALE * usual or len(self._fit.explained) < self.config.least_frames:
            self._misfits = 0
            self._behind.append(known)
            return ()
        self._misfits += 1
        self._behind.append(known)
        if self._misfits < _MISFIT_FRAMES:
            return (f"the newest points lie {size:.1f} standard deviations off the model",)
        self._knowledge, self._told = self._behind[0]
        touched = self._touched
        newest, used = self._newest_s, self._used_s
        self._end_stretch()
        self._newest_s, self._used_s, self._touched = newest, used, touched
        self.counters.resets += 1
        return ("the body does not move as its model does (was it touched?): started anew",)

    def _known(self, answer: Answer) -> tuple[Knowledge, np.ndarray]:
        """What the window knows of the material and the plane, and what the data said of them."""
        chosen, count = self._lasting(len(answer.z)), len(self._material)
        covariance = answer.covariance[np.ix_(chosen, chosen)]
        # What a bent start did to one stretch must not count as known in the next.
        covariance[: len(self._material), : len(self._material)] += np.diag(self._bent.variance(self._material))
        known = Knowledge(answer.z[chosen], inverse_of(covariance))
        return known, answer.information[:count, :count]

    def _lasting(self, total: int) -> np.ndarray:
        """Which of a stretch's variables outlast it: material and plane, and the last one."""
        return np.append(np.arange(len(self._material)), total - 1)

    def _remember(self) -> None:
        if self._fit is not None and self._fit.explained and self.status == "tracking":
            answer = self._fit.answer()
            self._knowledge, self._told = self._known(answer)
            self._touched = self._touched or answer.touched

    def _without_object(self, stamp_s: float, reason: str) -> LiveEstimate | None:
        """Hold the last estimate; call the object lost when it has been away for too long."""
        self.waiting_for = reason
        if self.last is None:
            return None
        away = stamp_s - (self._used_s if self._used_s is not None else self.last.stamp_s)
        if away <= self.config.lost_after_s and not self._lost:
            return None
        if not self._lost:
            self._remember()
            newest = self._newest_s
            self._end_stretch()
            self._newest_s = newest
            self._lost = True
        self.last = replace(self.last, status="lost", notes=(reason,), seconds=0.0)
        return self.last
