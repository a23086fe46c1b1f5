"""Frames in, estimates out: a window over the newest frames that starts, follows, loses and finds its object again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.backends.interface import Backend
from soft_estimator.config_live import WindowConfig
from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.fixed_numbers import fixed_directions, window_sources
from soft_estimator.estimation.held_pose import held_pose
from soft_estimator.estimation.problem import kinds_of
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.residuals.interface import Residual
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.estimation.residuals.tool_wrench import WrenchFrame
from soft_estimator.estimation.window.admission import Admission
from soft_estimator.estimation.window.arrival import POSE
from soft_estimator.estimation.window.bent_start import BentStarts
from soft_estimator.estimation.window.current_episode import CurrentEpisode
from soft_estimator.estimation.window.episode import Episodes, Locate, looks
from soft_estimator.estimation.window.incoming import LEAST_POINTS, FrameOrder, frame_of
from soft_estimator.estimation.window.lasting import Lasting, SeenPlane
from soft_estimator.estimation.window.latest_estimate import LatestEstimate
from soft_estimator.estimation.window.live_estimate import Counters, LiveEstimate
from soft_estimator.estimation.window.own_grid import FinerGrid, OwnErrors, ToolGridError
from soft_estimator.estimation.window.own_points import TOUCHED
from soft_estimator.estimation.window.own_step import OwnError, Refined, StepError
from soft_estimator.estimation.window.put_off import WorkPutOff
from soft_estimator.estimation.window.refusals import Refusals
from soft_estimator.estimation.window.time_budget import UpdateTime
from soft_estimator.estimation.window.tool_paths import ToolPaths
from soft_estimator.estimation.window.window_fit import Answer, WindowFit, always
from soft_estimator.physics.model import Model
from soft_estimator.physics.modes import BEND, SWING
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverError

Refine = Callable[[WindowFit, Lasting], Refined]
_CLEAR = 0.25
# Beside each frame that others wait behind, a window is simulated at other stiffnesses as often as it would be itself
# in so many seconds, once at least: nothing is vouched for before they are done. Most of these tries are on its coarser
# grid, and take a quarter of that. On a slow core that is about four tries: in four runs of the demo's drops the first
# number came after 13 to over 40 s with one a frame, 11 to 22 s with two, 9 to 17 with four, 7 to 16 with eight. With a
# core four times as fast it is all of them, and 2.8 to 4.7 s for 3.6 to 5.4 with four (bench_live_schedule --count
# --slower 0.35 --seconds 12 --first 2000; six seeds, by 4.0).
_TRIES_S = 5.0


class SlidingWindow:
    """A live estimator: give it frames in order of time, it returns what it knows.

    Args:
        reference: first guesses, and everything that is not estimated.
        names: parameters to estimate, as `make_variables` takes them; pose and motion are added for a free body, the
            pose alone for a held one (`held_pose`), and for a model with modes how it is bent and swings along them.
        prior_std: of the variables, instead of the usual ones.
        locate: finds the body in a frame's points; without it the body starts where `reference` says.
        sensor_m: where the depth camera is [m], (3,): noise acts along its rays, and residuals are taken along them.
        residual: what frames are measured against, as in `Problem`; clouds by default against the surface.
        known: how far off what is not estimated may be; None: it is exact.
        finer: the model on half the spacing, to look at frames in which a tool touches; None: nobody looks.
        clock: wall-clock seconds, used for the time budget and to say how long an update took.

    Attributes:
        last: the estimate published last. waiting_for: why the last frame did not count.
        hurry: whether newer frames wait, asked of somebody who calls `catch_up` when none does: work that can wait is
            spread over updates or put off until then. None: everything is done at once, and the result depends on the
            input alone.
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
        known: KnownToConfig | None = None,
        finer: FinerGrid | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.model, self.config, self.locate, self.clock = model, config or WindowConfig(), locate, clock
        self.loss = loss or RobustLoss()
        self.backend: Backend = backend or CpuBackend()
        self.kinds = kinds_of(model.body, field or carry_field(model.body), self.backend, residual)
        self.sensor_m = None if sensor_m is None else np.asarray(sensor_m, dtype=np.float64)
        material = [n for n in names if n.partition("[")[0] not in (*POSE, BEND, SWING)]
        clamp = {} if known is None else held_pose(model, known)
        prior = {**clamp, **(prior_std or {})}
        self.lasting = Lasting(reference, material, prior, self.config.surface_std_m, list(clamp))
        self.episodes = Episodes(model, self.lasting, self.config, self.backend, self.kinds, self.loss, known, clock)
        if known is not None:
            sources = window_sources(model, self.lasting.variables, reference, known)
            self.lasting.hold_fixed(len(fixed_directions(sources)) + self.episodes.details.count)
        self.finer = finer
        errors: list[OwnError] = [StepError(self.episodes.steps, self.backend, self.kinds)]
        if finer is not None:
            errors.append(ToolGridError(finer, self.backend, self.kinds))
        self._own_errors = OwnErrors(errors)
        self.counters, self.refusals, self.tools = Counters(), Refusals(), ToolPaths(model)
        self._bent = BentStarts()
        self._episode = CurrentEpisode(self.episodes, self._own_errors, self._bent, led=bool(self.tools.paths))
        self._put_off = WorkPutOff(self._episode, self._own_errors)
        self._time = UpdateTime(self._episode, clock)
        self._admission = Admission(self._episode, self.tools, self.counters, self.refusals)
        self._latest = LatestEstimate(self._episode, self._own_errors, self._bent, self.refusals, clock)

    @property
    def hurry(self) -> Callable[[], bool] | None:
        return self._time.hurry

    @hurry.setter
    def hurry(self, waits: Callable[[], bool] | None) -> None:
        self._time.hurry, self._episode.live = waits, waits is not None

    @property
    def last(self) -> LiveEstimate | None:
        return self._latest.estimate

    @property
    def waiting_for(self) -> str:
        return self._latest.waiting_for

    @property
    def _fit(self) -> WindowFit | None:
        return self._episode.fit

    def use(self, config: WindowConfig) -> None:
        """Go on with other settings."""
        self.config = self.episodes.config = config

    def know_plane(self, normal: np.ndarray, offset_m: float, tilt_std_rad: float, offset_std_m: float) -> None:
        """The plane as a camera sees it: a guess, and how much it may be off. Takes effect with the next start; a first
        plane that comes while the window is still starting lets it start anew.

        The same plane once more changes nothing: what was learnt of it stays. normal: unit vector towards the body,
        (3,). offset_m: d in n·x + d = 0.
        """
        first = not self.lasting.has_plane
        plane = SeenPlane(np.array(normal, dtype=np.float64), float(offset_m), tilt_std_rad, offset_std_m)
        if self.lasting.note_plane(plane):
            self._own_errors.new_plane(self.lasting)
        if first and self.begun and self.status == "starting":
            self._episode.end()

    @property
    def made_once(self) -> dict[str, object]:
        """What the model makes, by name; no frame changes it."""
        parts = {"kinds": self.kinds, "finer grid": self.finer, "patches": self.episodes.places.patches}
        return {name: part for name, part in (parts | self.episodes.made_once).items() if part is not None}

    @property
    def status(self) -> str:
        return self._episode.status

    def reset(self, keep_parameters: bool = False) -> None:
        """Start anew with the next frame: from the first guesses, or with what is known of material and plane."""
        if keep_parameters:
            self._episode.learn()
        else:
            self.lasting.forget()
            self._own_errors.forget()
            self._episode.others.abandon_episode()
            self._latest.estimate = None
        self._episode.end()
        self.counters.resets += 1

    def abandon(self) -> None:
        """Start anew with the next frame, as if the episode at hand had never been."""
        self._own_errors.abandon_episode()
        self._episode.others.abandon_episode()
        self._episode.end()
        self.counters.resets += 1

    @property
    def begun(self) -> bool:
        """Whether there is an episode that the next frame goes on with."""
        return self._fit is not None

    def leave_out(self, frames: int, newest_s: float) -> None:
        """So many frames, the newest of them at newest_s [s], were left out because work was late: the motion is
        simulated through them to the next one."""
        self._admission.skipped(frames, newest_s)
        order = self._episode.order
        if order.newest_s is not None:  # the camera went on: a gap, but no jump
            order.newest_s = max(order.newest_s, newest_s)

    def skip_ahead(self, frames: int, newest_s: float) -> None:
        """The same, where too much lies between: begin anew at the next one, knowing what is known."""
        self._admission.skipped(frames, newest_s)
        self._episode.conclude()

    def add_nothing(self, stamp_s: float, reason: str) -> LiveEstimate | None:
        """A frame without the object: hold the last estimate; after a while, call the object lost."""
        self.counters.frames_in += 1
        self.counters.frames_empty += 1
        self._admission.check_order(stamp_s)
        self._episode.order.newest_s = stamp_s
        return self._latest.refused(stamp_s, reason)

    def add_frame(
        self, stamp_s: float, points_m: np.ndarray, std_m: np.ndarray | float, beside: Sequence[WrenchFrame] = ()
    ) -> LiveEstimate | None:
        """Take in a cloud.

        Args:
            stamp_s: when it was taken [s]. points_m: on the object, in the world frame (n, 3) [m].
            std_m: noise of each along the view [m], (n,) or one for all.
            beside: what was felt since the frame before, whose time_s are stamps [s].
        Returns:
            what is known now; None while there is nothing new.
        """
        start = self.clock()
        notes = self._admission.in_order(stamp_s)
        if notes is None:
            return None
        missing = self._admission.lead_tools(stamp_s)
        if missing:
            return self._latest.refused(stamp_s, missing)
        points, std, cut = self._admission.points(stamp_s, points_m, std_m)
        if len(points) < LEAST_POINTS:
            self.counters.frames_empty += 1
            return self._latest.refused(stamp_s, f"{len(points)} usable points; {LEAST_POINTS} are needed")
        notes = (*notes, TOUCHED) if cut else notes
        self._note_idle(points, beside)
        return self._take_in(frame_of(stamp_s, points, std, self.sensor_m), start, notes, beside)

    def add_measurement(self, frame: Any) -> LiveEstimate | None:
        """Take in a frame of any kind that the window's residuals take; its time_s is its stamp [s]."""
        start = self.clock()
        notes = self._admission.in_order(frame.time_s)
        if notes is None:
            return None
        missing = self._admission.lead_tools(frame.time_s)
        if missing:
            return self._latest.refused(frame.time_s, missing)
        wrong = self.kinds.of(frame).check(frame)
        if wrong:
            self.counters.frames_empty += 1
            return self._latest.refused(frame.time_s, f"the frame {wrong}")
        return self._take_in(frame, start, notes)

    def settle(self, iterations: int, refine: Refine | None = None) -> LiveEstimate | None:
        """Go on refining the frames at hand, however long it takes: what is known then; None where nothing is tracked.

        For recordings, where frames are taken in quickly and the whole of a motion is fitted at its end. refine: from a
        fit to what else moves its lasting variables, as `Episodes.estimate` takes it.
        """
        fit, last = self._fit, self.last
        if fit is None or last is None or self.status != "tracking":
            return None
        start = self.clock()
        self.tools.count_from(self._episode.since_s)
        fit.refine(iterations, always)
        while self.episodes.shorten(fit, always):  # it turned out to be stiffer than its frames let it seem one by one
            fit.refine(iterations, always)
        self._episode.worked_out = True
        answer = fit.answer()
        newest = fit.settled(-1, answer.z)
        self._own_errors.look(fit, answer, self.lasting)
        more = refine(fit, self.lasting) if refine is not None and not fit.slid else None
        return self._latest.publish(fit, answer, newest, last.stamp_s, start, self._bent.notes, more, ended=True)

    @property
    def puts_off(self) -> bool:
        """Whether there is work that waits for a pause between frames."""
        return self._put_off.waits

    @property
    def learns_first(self) -> bool:
        """Whether nothing is known yet, and a motion that is over is still to be worked out: it comes before others,
        of which each would be searched from as far away."""
        return not self.lasting.begun and self._episode.others.over

    def catch_up(self) -> LiveEstimate | None:
        """A piece of the work that was put off: what is known once it is done; None while there is more of it, or
        nothing new."""
        start, last = self.clock(), self.last
        if self.learns_first:
            self._latest.waiting_for = "the first motion is worked out before newer frames are taken in"
        self.tools.count_from(self._episode.since_s)
        fit = self._put_off.do_a_piece()
        if fit is None or last is None:
            return None
        answer = fit.answer()
        said = self._latest.publish(fit, answer, fit.settled(-1, answer.z), last.stamp_s, start, self._bent.notes)
        self._latest.estimate = self._put_off.vouched(said)
        return self.last

    def _take_in(
        self, frame: Any, start: float, notes: tuple[str, ...], beside: Sequence[WrenchFrame] = ()
    ) -> LiveEstimate | None:
        stamp_s = frame.time_s
        if stays := self._admission.stays(frame, self.last is not None and self.last.settled):
            self.counters.frames_refused += 1
            return self._latest.staying(stamp_s, start, stays)
        in_time = self._time.allowing(start)
        try:
            fit, refused = self._fit, ""
            if fit is None:
                self.tools.count_from(stamp_s)
                fit, refused = self.episodes.begin(frame, self.locate)
                self._episode.begin(fit, stamp_s)
            if fit is not None:
                felt = [replace(reading, time_s=reading.time_s - self._episode.since_s) for reading in beside]
                if self.episodes.go_on(fit, replace(frame, time_s=stamp_s - self._episode.since_s), in_time, felt):
                    self._own_errors.left_window()
                refused = self._bent_start(fit, stamp_s)
        except SolverError as error:
            self.counters.frames_refused += 1
            self._episode.conclude()
            return self._latest.refused(stamp_s, f"started anew: {error}")
        if fit is None or refused:
            if fit is not None:
                self._time.end_without(start, fit)
            self.counters.frames_refused += 1
            return self._latest.refused(stamp_s, refused)
        self.counters.frames_used += 1
        if self._admission.touched(stamp_s):
            self.counters.frames_touched += 1
            self._own_errors.touched()
        self._episode.order.used_s, self._episode.lost, self._latest.waiting_for = stamp_s, False, ""
        estimate = self._estimate(fit, stamp_s, start, notes, in_time)
        self._time.end(start, fit)
        return estimate

    def _note_idle(self, points_m: np.ndarray, beside: Sequence[WrenchFrame]) -> None:
        """Of what sensors read, keep what belongs to tools that are clear of the body: by a quarter of its width where
        its motion is known, else of what is seen of it by as much as it is wide."""
        if not beside:
            return
        fit, width_m = self._fit, self.episodes.width_m
        around_m, least_m = (points_m, width_m) if fit is None else (fit.last_surface_m(), _CLEAR * width_m)
        self.episodes.verdict.note_idle(self.tools.clear(beside, around_m, least_m))

    def _bent_start(self, fit: WindowFit, stamp_s: float) -> str:
        """Why an episode should not begin with its first frame, "" where it may; then the episode is over."""
        first = fit.only_frame
        if first is None or not self.episodes.free or not isinstance(self.kinds.of(first), SurfaceDistance):
            return ""
        above, along_modes = self.episodes.above_cells(fit), self.model.modes is not None
        bent = self._bent.look(stamp_s, fit.settled(0), self.config.bent_patience_s, above, along_modes)
        if bent:
            self._episode.end(FrameOrder(stamp_s))
        return bent

    def _estimate(
        self, fit: WindowFit, stamp_s: float, start: float, notes: tuple[str, ...], in_time: Callable[[float], bool]
    ) -> LiveEstimate | None:
        if fit.held:  # what else there is to know comes after the rigid motion
            return None
        answer, others = fit.answer(), self._episode.others
        most = self._time.tries(fit, _TRIES_S, led=bool(self.tools.paths))
        better = others.better(fit, answer, self.lasting.variables, in_time, most)
        if told := self._episode.correct():
            return self._latest.without_object(stamp_s, f"started anew: {told}")
        if better is not fit:
            self._episode.fit = fit = better
            answer = fit.answer()
        newest = fit.settled(-1, answer.z)
        notes = notes + self._bent.notes + self._watch_fit(fit, answer, newest.residual)
        if self._fit is None:
            return self._latest.without_object(stamp_s, notes[-1])
        if self.status == "starting":
            return None
        self._own_errors.look(fit, answer, self.lasting, in_time, self.hurry is not None)
        if others.doubtful:
            notes = (*notes, "other stiffnesses are still tried: no value is vouched for until they are")
        said = self._latest.publish(fit, answer, newest, stamp_s, start, notes)
        self._latest.estimate = self._put_off.vouched(said)
        return self.last

    def _watch_fit(self, fit: WindowFit, answer: Answer, off: np.ndarray) -> tuple[str, ...]:
        """Notice when the body no longer moves as the model does, and go back to what was known before that."""
        counts = looks(fit) >= self.config.least_frames and self.kinds.of(fit.frames[-1].frame).whitened
        episode = self._episode
        note, back_to = episode.misfit.look(off, answer.scale, episode.learnt_from(fit, answer), counts)
        if back_to is not None:
            self.lasting.learnt = back_to
            episode.others.abandon_episode()
            episode.end(episode.order)
            self.counters.resets += 1
        return (note,) if note else ()
