"""estimator_node: the object's points → stiffness, damping and contact plane, by a sliding window."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np
from geometry_msgs.msg import PoseStamped
from rclpy.lifecycle import State as LifecycleState
from rclpy.lifecycle import TransitionCallbackReturn
from sensor_msgs.msg import PointCloud2

from soft_estimator.backends import choose_backend
from soft_estimator.backends.cpu.side_by_side import leave_a_core
from soft_estimator.backends.interface import Backend
from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.live.lateness import Flow, RecordingWatch, age_of
from soft_estimator.live.newest_first import NewestFirst, need_of
from soft_estimator.live.setup import build_window, live_scene, look_from, start_from_plane
from soft_estimator.live.tools import Tools, tools_of
from soft_estimator.live.wrenches import Wrenches
from soft_estimator.recordings.messages import seconds_of
from soft_estimator.ros.conversions import object_from_message, stamp_of, viewpoint_of
from soft_estimator.ros.drawings import plane_of
from soft_estimator.ros.estimate_output import EstimateOutput
from soft_estimator.ros.estimator_services import serve
from soft_estimator.ros.frames import Frames
from soft_estimator.ros.health import Health
from soft_estimator.ros.managed_node import ManagedNode
from soft_estimator.ros.parameters import NodeParameters
from soft_estimator.ros.reports import Delay
from soft_estimator.ros.running import run_node
from soft_estimator.ros.scene import scene_config, scene_of
from soft_estimator.ros.settings import EstimatorSettings, FrameSettings, SceneSettings
from soft_estimator.ros.tool_feed import ToolFeed
from soft_estimator.ros.worker import Worker
from soft_estimator.scene.scene import Scene

_END_S = 3.0  # waited for the worker's end
_FIRST_MOTION_S = 10.0  # that frames wait for a first motion to be worked out, at most
_MOST_REASONS = 5  # why frames were not used, in /diagnostics
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


@dataclass(frozen=True)
class Waiting:
    """A frame that waits: its stamp [s], when it came by the steady clock [s], and the message."""

    stamp_s: float
    came_s: float
    message: PointCloud2


class EstimatorNode(ManagedNode):
    """Hands frames to the window in a thread of its own, and publishes what the window says."""

    def __init__(self) -> None:
        super().__init__("estimator_node")
        parameters = NodeParameters(self)
        self.scene_settings = parameters.add(SceneSettings)
        self.settings = parameters.add(EstimatorSettings)
        self.window_config = parameters.add(WindowConfig, "window", changed=self._change_window)
        frames = parameters.add(FrameSettings)
        self.frame = frames.fixed_frame
        self.starts_itself = self.settings.autostart
        self.recording = RecordingWatch("object_points", self.settings.quiet_after_s)
        self.health = Health(self, self._counters, self._complaint)
        self.output = EstimateOutput(self, self.frame, self.settings.publish_tf)
        self.worker: Worker[Waiting] | None = None
        self.scene: Scene | None = None
        self.window: SlidingWindow | None = None
        self.tools: Tools | None = None
        self.wrenches: Wrenches | None = None
        self.plane: tuple[np.ndarray, float] | None = None
        self.active = False
        self._active_since_s = monotonic()
        self._newest: tuple[float, float] | None = None  # stamp and arrival of the newest frame [s]
        self._lock = threading.Lock()  # over what the worker and the callbacks both set
        self.order = NewestFirst(self.settings.longest_gap_s, self.settings.most_behind_s, self.window_config.jump_s)
        self._begins_anew = False  # with the frame at hand
        self._left_out: Sequence[Waiting] = ()  # before the frame at hand
        self._first_since_s: float | None = None  # when frames began to wait for a first motion [s]
        self._newest_used: Waiting | None = None  # of the frames that gave an estimate
        self.create_subscription(PointCloud2, "object_points", self._on_points, 60)
        self.create_subscription(PoseStamped, "support_plane", self._on_plane, 10)
        serve(self)
        told = scene_config(self.scene_settings)[0]  # a wrong name is told at once, not when it is first needed
        led = any(obstacle.tool_frame for obstacle in told.obstacles)
        self.feed = ToolFeed(self, told, Frames(self, frames) if led else None, self.health, feels=True)
        if self.settings.autostart:
            self.trigger_configure()
            self.trigger_activate()

    # Lifecycle: configure makes the window (in the worker: it may compile for a while), activate lets frames in.
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            scene_config(self.scene_settings)
        except (ValueError, OSError) as error:
            self.health.error("scene", str(error))
            return FAILURE
        queue = self.settings.queue_frames
        done = (self._choose, self._catch_up, self._catches_up_first)
        self.worker = worker = Worker(self._work, self._failed, queue, "estimator", *done)
        worker.ask("build", lambda: self._build(worker))
        return SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.active, self._active_since_s = True, monotonic()
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.active = False
        if self.worker is not None:
            self.worker.clear()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        with self._lock:
            worker, self.worker, self.scene, self.window = self.worker, None, None, None
            if worker is not None:
                worker.stop(0.0)
        # A build may take a minute longer; what it makes then is not wanted any more, see `_build`.
        if worker is not None:
            worker.stop(_END_S)
        return SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.active = False
        self.close()
        return SUCCESS

    def _build(self, worker: Worker[Waiting]) -> None:
        """Make the window, and have everything compiled or loaded before the first frame."""
        leave_a_core()  # to camera and clouds
        scene = live_scene(scene_of(self.scene_settings))
        for warning in scene.warnings:
            self.get_logger().warning(warning)
        backend = choose_backend(self.scene_settings.backend, scene.config.solver.precision)
        sensor = None if self.settings.sensor_m is None else np.array(self.settings.sensor_m)
        _warm_up(scene, self.window_config, backend, sensor)
        tools = tools_of(scene)
        window = build_window(scene, self.window_config, backend=backend, sensor_m=sensor, tools=tools)
        window.hurry = lambda: worker.waiting > 0
        with self._lock:
            if worker.stopping:
                self.health.note("window", "the window is not wanted any more; it was made in vain")
                return
            self.scene, self.window = scene, window
            self.tools, self.wrenches = tools, Wrenches(scene)
        self.output.offer([window.lasting.variables.labels[j] for j in window.lasting.chosen])
        names = ", ".join(window.lasting.names)
        self.get_logger().info(f"ready: {scene.body.cell_count} cells, {window.backend.name}, estimating {names}")

    def _on_plane(self, message: PoseStamped) -> None:
        try:
            self.plane = plane_of(message)
        except ValueError as error:
            self.health.warn("plane", str(error))

    def _on_points(self, message: PointCloud2) -> None:
        self.health.count("frames")
        if not self.active or self.worker is None:
            return
        item = Waiting(seconds_of(message.header.stamp), monotonic(), message)
        self._newest = (item.stamp_s, item.came_s)
        self.worker.put(item)

    def _choose(self, waiting: Sequence[Waiting]) -> int:
        """The place of the next frame among those that wait: the newest that the window can follow."""
        choice = self.order.choose([item.stamp_s for item in waiting], need_of(self.window))
        self._left_out, self._begins_anew = waiting[: choice.place], choice.anew
        return choice.place

    def _skip(self, window: SlidingWindow) -> None:
        """Tell the window of the frames that there was no time for."""
        if self._left_out:
            count, newest_s = len(self._left_out), self._left_out[-1].stamp_s
            self.health.count("frames_skipped", count)
            (window.skip_ahead if self._begins_anew else window.leave_out)(count, newest_s)
            self._left_out = ()

    def _work(self, item: Waiting) -> None:
        window, scene, message, tools, wrenches = self.window, self.scene, item.message, self.tools, self.wrenches
        if window is None or scene is None or tools is None or wrenches is None:
            raise ValueError("frames come, but there is no window; see the lines about the scene")
        self._skip(window)
        if message.header.frame_id.lstrip("/") != self.frame:
            raise ValueError(f"object_points are in frame {message.header.frame_id!r}, not in {self.frame!r}")
        begun_s, stamp_s = monotonic(), item.stamp_s
        points, given = object_from_message(message)
        self.feed.follow(tools, stamp_s, wrenches)
        std = np.full(len(points), self.settings.point_std_m) if given is None else given
        own = ~tools.owned(points, std, stamp_s)
        points, std = points[own], std[own]
        seen_from = viewpoint_of(message) if self.settings.sensor_m is None else None
        if seen_from is not None:
            look_from(window, scene, seen_from)
        plane = self.plane if self.settings.use_support_plane and scene.config.contact is not None else None
        if plane is not None and window.status == "starting":
            start_from_plane(window, *plane)
        if len(points) == 0:
            estimate = window.add_nothing(stamp_s, "no object in view")
        else:
            estimate = window.add_frame(stamp_s, points, std, wrenches.at(stamp_s))
        if estimate is not None:
            self._newest_used = item
            self._say(window, scene, item, estimate, begun_s)

    def _catches_up_first(self) -> bool:
        """Whether frames wait for the first motion to be worked out: without it each is as far away as the first."""
        window = self.window
        if window is None or self._newest_used is None or not (self.active and window.learns_first):
            self._first_since_s = None
            return False
        if self._first_since_s is None:
            self._first_since_s = monotonic()
        return monotonic() - self._first_since_s < _FIRST_MOTION_S

    def _catch_up(self) -> bool:
        """While no frame waits: a piece of the work that the window put off, and whether there is more of it."""
        window, scene, item = self.window, self.scene, self._newest_used
        if window is None or scene is None or item is None or not self.active:
            return False
        begun_s = monotonic()
        estimate = window.catch_up()
        if estimate is not None:
            self._say(window, scene, item, estimate, begun_s)
        return window.puts_off

    def _say(self, window: SlidingWindow, scene: Scene, item: Waiting, estimate: LiveEstimate, begun_s: float) -> None:
        """Publish an estimate; item: the frame that it came with."""
        if self.window is not window:  # cleaned up meanwhile
            return
        stamp = item.message.header.stamp if estimate.stamp_s == item.stamp_s else stamp_of(estimate.stamp_s)
        age_s = age_of(estimate.stamp_s, 1e-9 * self.get_clock().now().nanoseconds, monotonic() - item.came_s)
        late = age_s > self.settings.late_after_s
        began_s = None if self.tools is None else self.tools.began_s
        began = None if began_s is None else stamp_of(began_s)
        self.output.publish(stamp, estimate, scene, Delay(age_s, late, window.counters.frames_skipped), began)
        self._tell(estimate, monotonic() - begun_s, age_s)

    def _tell(self, estimate: LiveEstimate, work_s: float, age_s: float) -> None:
        self.health.count("estimates")
        self.health.took("update", work_s)
        self.health.took("latency", age_s)
        for note in estimate.notes:
            self.health.warn("window", note)

    def _failed(self, error: Exception) -> None:
        self.health.error("window", f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}")

    def _counters(self) -> dict[str, Any]:
        worker, window = self.worker, self.window
        queue: dict[str, Any] = {}
        if worker is not None:
            queue = {"frames_dropped": worker.dropped, "frames_waiting": worker.waiting}
            queue["working"] = str(worker.working).lower()
        status = {"window": "preparing" if window is None else window.status, "active": str(self.active).lower()}
        if window is not None and window.waiting_for:
            status["waiting_for"] = window.waiting_for
        return {**status, **queue, **({} if window is None else {**window.counters.as_dict(), **_not_used(window)})}

    def _change_window(self, config: WindowConfig) -> None:
        if config.start != self.window_config.start:
            raise ValueError("window.start cannot change while the node runs; start it anew")
        self.window_config = config

        def exchange() -> None:
            self.order.episode_gap_s = config.jump_s
            if self.window is not None:
                self.window.use(config)

        if self.worker is not None:
            self.worker.ask("window settings", exchange)

    def _complaint(self) -> str:
        """What /diagnostics should warn of now: a silent camera, frames that wait, an estimate far behind them."""
        window, newest, worker = self.window, self._newest, self.worker
        if window is None or worker is None or not self.active:
            return ""
        stamp_s, came_s = newest if newest is not None else (0.0, self._active_since_s)
        last, quiet_s = window.last, monotonic() - max(came_s, self._active_since_s)
        if self.settings.recorded and newest is not None:
            self.health.note_news("recording", self.recording.news(quiet_s))
        flow = Flow(
            0.0 if self.settings.recorded else quiet_s,
            newest is not None,
            stamp_s,
            None if last is None else last.stamp_s,
            worker.waiting,
            window.waiting_for,
        )
        return flow.complaint(self.settings.quiet_after_s, self.settings.late_after_s)

    def close(self) -> bool:
        """End the worker; whether it ended."""
        return self.worker is None or self.worker.stop(_END_S)


def _not_used(window: SlidingWindow) -> dict[str, str]:
    """Why frames were not used, the most frequent reasons first, for /diagnostics."""
    reasons = window.refusals.most_first()[:_MOST_REASONS]
    return {f"not_used_because_{k}": f"{r.count} frames: {r.example}" for k, r in enumerate(reasons, 1)}


def _warm_up(scene: Scene, config: WindowConfig, backend: Backend, sensor_m: np.ndarray | None) -> None:
    """Have everything compiled or loaded before the first frame: it would be late by seconds."""
    tools = tools_of(scene)
    window = build_window(scene, config, backend=backend, sensor_m=sensor_m, tools=tools)
    tools.begin(0.0)
    for frame in tools.frames:  # where they begin they are far away
        tools.add_poses(frame, [(0.0, np.eye(3), np.full(3, 1e3))], rests=True)
    for k in range(window.config.least_frames + 1):
        window.add_frame(0.03 * k, scene.body.surface_positions_m(), 0.001)


def main(arguments: list[str] | None = None) -> int:
    """Run the node."""
    return run_node(EstimatorNode, arguments)


if __name__ == "__main__":
    sys.exit(main())
