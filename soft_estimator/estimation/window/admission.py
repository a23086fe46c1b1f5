"""Which frames a window takes in, and which of their points.

A frame comes in order of time; where tools are then is known; the body in it moves; and its points are the body's own.
What is found out on the way may end the episode at hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.window.current_episode import CurrentEpisode
from soft_estimator.estimation.window.incoming import FrameOrder, finite_points, usable_points
from soft_estimator.estimation.window.live_estimate import Counters
from soft_estimator.estimation.window.own_points import foreign_points
from soft_estimator.estimation.window.refusals import Refusals
from soft_estimator.estimation.window.still import QUIET_S, RESTS, WAITS, StillWatch
from soft_estimator.estimation.window.tool_paths import ToolPaths
from soft_estimator.estimation.window.window_fit import WindowFit


class Admission:
    """Looks at every frame before the episode at hand goes on with it.

    Args:
        counters, refusals: where frames and points that are not used are counted.
    """

    def __init__(self, episode: CurrentEpisode, tools: ToolPaths, counters: Counters, refusals: Refusals) -> None:
        self.episode, self.tools, self.counters, self.refusals = episode, tools, counters, refusals
        self._still = StillWatch()

    def in_order(self, stamp_s: float) -> tuple[str, ...] | None:
        """Count a frame: what to note of its time; None where it is not to be used."""
        self.counters.frames_in += 1
        if not np.isfinite(stamp_s):
            self.counters.frames_refused += 1
            self.refusals.add(stamp_s, "its stamp is not a number")
            return None
        notes = self.check_order(stamp_s)
        if notes is not None:
            self.episode.order.newest_s = stamp_s
        return notes

    def check_order(self, stamp_s: float) -> tuple[str, ...] | None:
        """What to note of a frame's time; None where the frame is not to be used."""
        episode = self.episode
        verdict = episode.order.look(stamp_s, episode.episodes.config, episode.status == "starting")
        if verdict.jumped:
            self._still = StillWatch()
            episode.conclude()
            self.counters.resets += 1
        elif verdict.gap:
            episode.end()
        self.counters.frames_late += verdict.late
        self.counters.frames_thinned += verdict.thinned
        if verdict.late:
            self.refusals.add(stamp_s, "its stamp is not later than the frame's before it")
        elif verdict.thinned:
            self.refusals.add(stamp_s, "it followed the last one sooner than window.least_interval_s")
        return None if verdict.late or verdict.thinned else verdict.notes

    def skipped(self, frames: int, stamp_s: float) -> None:
        """Count frames that there was no time for, the newest of them at stamp_s [s]."""
        self.counters.frames_in += frames
        self.counters.frames_skipped += frames
        self.refusals.add(stamp_s, "work was late: newer frames went first", frames)

    def lead_tools(self, stamp_s: float) -> str:
        """Let the tools' times count from the episode's start: why a frame cannot be simulated, "" where it can."""
        episode = self.episode
        missing = self.tools.missing(stamp_s)
        if missing:
            self.counters.frames_refused += 1
            return missing
        if episode.fit is not None and self.tools.missing(stamp_s, episode.order.used_s):  # the way there is not known
            episode.conclude(FrameOrder(stamp_s))
        self.tools.count_from(episode.since_s)
        return ""

    def touched(self, stamp_s: float) -> bool:
        """Whether a tool that is known touches the body where it was last."""
        fit = self.episode.fit
        return fit is not None and bool(self.tools.paths) and self.tools.touch(fit.last_surface_m(), stamp_s)

    def stays(self, frame: Any, settled: bool) -> str:
        """Why nothing is to be learnt of a free body that is where it was before, "" where it moves.

        At the start of an episode, that has not begun then; after a motion, which is over: the next one begins anew.
        settled: whether the last estimate was.
        """
        episode, watch = self.episode, self._still
        if not episode.episodes.free or not isinstance(frame, ObservedFrame):
            return ""
        watch.look(frame, episode.lasting.reference.gravity_m_s2)
        if self._led_on(frame.time_s):
            return ""
        if episode.fit is not None and watch.since_s > episode.since_s:
            return self._rests(episode.fit, frame, settled)
        if watch.still_s == 0.0:
            return ""
        episode.end(FrameOrder(frame.time_s, frame.time_s))
        return WAITS

    def _led_on(self, stamp_s: float) -> bool:
        """Whether a body that stays is to be followed all the same: it starts at rest, or a tool that is known holds
        it."""
        return bool(self.tools.paths) and (self.episode.episodes.model.rests or self.touched(stamp_s))

    def _rests(self, fit: WindowFit, frame: ObservedFrame, settled: bool) -> str:
        """The same of a body that has moved since the episode began."""
        episode, watch = self.episode, self._still
        if watch.still_s == 0.0:
            if episode.rests:
                episode.conclude()
        elif episode.status == "tracking" and watch.still_s >= QUIET_S:
            moved_m = fit.motion_since(watch.since_s - episode.since_s) if settled else np.inf
            episode.rests = episode.rests or watch.rests(moved_m / float(np.mean(frame.std_m)))
        if episode.rests:
            episode.order.used_s = frame.time_s
        return RESTS if episode.rests else ""

    def points(
        self, stamp_s: float, points_m: np.ndarray, std_m: np.ndarray | float
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """A cloud's own points near where the body is expected, no more than wanted: (n, 3) [m], their stds (n,) [m],
        and whether points of what touches it were cut off."""
        points, std = finite_points(points_m, std_m)
        own = self._own(points, stamp_s, std)
        self.counters.points_set_aside += np.size(points_m) // 3 - int(own.sum())
        cut = not own.all()
        if cut:
            points, std = points[own], std[own]
            self.counters.frames_cut += 1
        fit, episodes, near = self.episode.fit, self.episode.episodes, None
        if fit is not None:
            body, reach_m = fit.last_surface_m(), episodes.config.stray_sizes * episodes.size_m
            near = (body.min(axis=0) - reach_m, body.max(axis=0) + reach_m)
        points, std, aside = usable_points(points, std, near, episodes.config.points_per_frame)
        self.counters.points_set_aside += aside
        return points, std, cut

    def _own(self, points: np.ndarray, stamp_s: float, std: np.ndarray) -> np.ndarray:
        """Which points are the body's own, (n,) bool: where its motion is known, what touches it is not."""
        fit, used_s = self.episode.fit, self.episode.order.used_s
        if fit is None or used_s is None:
            return np.ones(len(points), dtype=bool)
        gone_m = (stamp_s - used_s) * fit.last_velocity_m_s()
        width_m = self.episode.episodes.width_m
        return ~foreign_points(points, std, fit.last_surface_m(), width_m, (np.zeros(3), gone_m))
