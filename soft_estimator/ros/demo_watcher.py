"""What the demo keeps of a running graph: every estimate, the truth beside it, and a bag of the first repetitions."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy
from sensor_msgs.msg import Image, PointCloud2
from std_msgs.msg import Float64MultiArray

from soft_estimator.camera.scene_cameras import scene_cameras
from soft_estimator.estimation.fitting.uncertainty import Estimate
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import point_residuals
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.live.metrics import ParameterTracks
from soft_estimator.recordings.bag_writing import BagWriter
from soft_estimator.recordings.ground_truth import TRUTH_TOPIC, truth_rows
from soft_estimator.recordings.messages import depth_of, seconds_of
from soft_estimator.recordings.record import FIXED_FRAME
from soft_estimator.report.of_live import LiveHistory
from soft_estimator.ros.conversions import object_from_message
from soft_estimator.ros.reports import state_of, values_in
from soft_estimator.scene.scene import Scene

_REMEMBERED = 200  # messages that wait for their counterpart of the same stamp
_LATCHED = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
_SENSOR = QoSProfile(depth=5, reliability=QoSReliabilityPolicy.BEST_EFFORT)


class DemoWatcher(Node):
    """Listens to the whole graph.

    Attributes:
        history: for the report. tracks: metrics against the truth. newest: the last estimate; recent: the last ones.
        seen_states: (time in the scene [s], estimated displacement (N, 3) [m]), to compare with the truth afterwards.
        counts: messages by topic. first_frame_s: when the first frame came, on the monotonic clock.
    """

    def __init__(self, scene: Scene, bag: Path, recorded_frames: int) -> None:
        super().__init__("demo_watcher")
        self.scene, self.field = scene, carry_field(scene.body)
        self.history = LiveHistory(scene)
        self.tracks = ParameterTracks()
        self.seen_states: deque[tuple[float, np.ndarray]] = deque(maxlen=_REMEMBERED)
        self.newest: LiveEstimate | None = None
        self.recent: deque[LiveEstimate] = deque(maxlen=_REMEMBERED)
        self.counts = {"frames": 0, "object_points": 0, "estimates": 0}
        self.latency_s: list[float] = []
        self.first_frame_s: float | None = None
        self._points: deque[tuple[float, np.ndarray, np.ndarray]] = deque(maxlen=_REMEMBERED)
        self._said: deque[tuple[float, dict[str, dict[str, str]]]] = deque(maxlen=_REMEMBERED)
        self._sent: dict[float, tuple[float, float | None]] = {}  # stamp → when it came, time in the scene
        self._bag, self._left = BagWriter(bag), recorded_frames
        self._bag.__enter__()
        self._camera = scene_cameras(scene.config)[0]
        self._rows = truth_rows(scene.parameters, plane=scene.config.contact is not None)
        self._listen()

    def _listen(self) -> None:
        self.create_subscription(DiagnosticArray, TRUTH_TOPIC, self._on_truth, 10)
        self.create_subscription(PointCloud2, "object_points", self._on_points, _SENSOR)
        self.create_subscription(DiagnosticArray, "estimate", self._on_estimate, _LATCHED)
        self.create_subscription(Float64MultiArray, "estimate_state", self._on_state, _LATCHED)
        self._depth = self.create_subscription(Image, "camera/depth/image", self._on_depth, 10)

    def _on_truth(self, message: DiagnosticArray) -> None:
        if self.first_frame_s is None:
            self.first_frame_s = monotonic()
        self.counts["frames"] += 1
        stamp_s = seconds_of(message.header.stamp)
        time_s = next((float(row["time_s"]) for row in values_in(message).values() if "time_s" in row), None)
        self._sent[stamp_s] = (monotonic(), time_s)
        if len(self._sent) > 10 * _REMEMBERED:
            del self._sent[next(iter(self._sent))]

    def _on_points(self, message: PointCloud2) -> None:
        self.counts["object_points"] += 1
        points, std = object_from_message(message)
        self._points.append(
            (seconds_of(message.header.stamp), points, np.full(len(points), 1e-3) if std is None else std)
        )

    def _on_depth(self, message: Image) -> None:
        """Keep the first frames: a bag that `replay` takes, and that anybody can mail."""
        if self._left <= 0:
            return
        stamp_ns = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec
        frame = message.header.frame_id
        if not self._bag.counts:
            self._bag.static_transforms(stamp_ns, FIXED_FRAME, [(frame, self._camera)])
        self._bag.depth_image("/camera/depth/image", stamp_ns, frame, depth_of(message))
        self._bag.camera_info("/camera/depth/camera_info", stamp_ns, frame, self._camera)
        self._bag.truth(f"/{TRUTH_TOPIC}", stamp_ns, FIXED_FRAME, self.scene.config.name, self._rows)
        self._left -= 1
        if self._left == 0:
            self.destroy_subscription(self._depth)

    def _on_estimate(self, message: DiagnosticArray) -> None:
        rows = values_in(message)
        for status in message.status:
            if status.name == "window":
                rows["window"]["notes"] = "; ".join(status.message.split("; ")[1:])
        self._said.append((seconds_of(message.header.stamp), rows))

    def _on_state(self, message: Float64MultiArray) -> None:
        stamp, values, (u, v, a) = state_of(message)
        stamp_s = seconds_of(stamp)
        said = next((rows for at, rows in reversed(self._said) if abs(at - stamp_s) < 1e-6), None)
        if said is None:
            return
        points, std = next(
            ((p, s) for at, p, s in reversed(self._points) if abs(at - stamp_s) < 1e-6), (np.zeros((0, 3)), np.zeros(0))
        )
        residual = np.zeros(0)
        if len(points):
            residual = point_residuals(self.scene.body, self.field, ObservedFrame.of(0.0, points, std), u).value_m
        window = said.get("window", {})
        estimate = LiveEstimate(
            stamp_s=stamp_s,
            status=window.get("status", "tracking"),
            parameters=tuple(_estimate(name, row) for name, row in said.items() if "low" in row),
            values=values,
            u_m=u,
            v_m_s=v,
            a=a,
            noise_scale=_number(window, "noise_scale"),
            cost=_number(window, "cost"),
            rms_residual_m=_number(window, "rms_residual_m"),
            residual_m=residual,
            points_m=points,
            frames_in_window=int(_number(window, "frames_in_window")),
            seconds=_number(window, "update_s"),
            notes=tuple(n for n in window.get("notes", "").split("; ") if n),
        )
        self.counts["estimates"] += 1
        came_s, time_s = self._sent.get(stamp_s, (None, None))
        if came_s is not None:
            self.latency_s.append(monotonic() - came_s)
        self.newest = estimate
        self.recent.append(estimate)
        self.history.add(estimate)
        self.tracks.add(estimate)
        if time_s is not None:
            self.seen_states.append((time_s, u))

    def close(self) -> None:
        """Finish the bag."""
        self._bag.__exit__(None, None, None)


def _number(row: dict[str, str], key: str) -> float:
    try:
        return float(row[key])
    except (KeyError, ValueError):
        return float("nan")


def _estimate(name: str, row: dict[str, Any]) -> Estimate:
    value, std, low, high = (_number(row, key) for key in ("value", "std", "low", "high"))
    observable = row.get("observable") == "true"
    return Estimate(name, row.get("unit", ""), value, std, low, high, observable, row.get("reason", ""))
