"""What the viewer is fed with by the live graph: its topics in, updates out; reset goes to the estimator's service."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import PointCloud2
from std_srvs.srv import Trigger
from visualization_msgs.msg import Marker

from soft_estimator.recordings.messages import seconds_of
from soft_estimator.ros.conversions import object_from_message
from soft_estimator.ros.drawings import plane_of, vertices_of
from soft_estimator.ros.reports import values_in
from soft_estimator.viewer.twin import SharedCorners
from soft_estimator.viewer.updates import ParameterNow, Shows, ViewUpdate

WINDOW = "window"  # the status of `estimate` that speaks of the whole


class TopicSource:
    """Listens to object_points, mesh, tool_mesh, contact_plane, estimate and ground_truth below a namespace."""

    def __init__(self, namespace: str = "", up: Sequence[float] = (0.0, 0.0, 1.0)) -> None:
        self.up, self._namespace = up, namespace
        self._viewer: Shows | None = None
        self._start_s: float | None = None
        self._truth: dict[str, float] = {}
        self._corners = SharedCorners()
        self._reset: rclpy.client.Client | None = None

    def reset(self) -> str:
        """Ask the estimator to start anew."""
        if self._reset is None or not self._reset.service_is_ready():
            return "the estimator does not answer; is it running in this namespace?"
        self._reset.call_async(Trigger.Request())
        self._start_s = None
        return "asked the estimator to start anew"

    def pause(self, paused: bool) -> str:
        """The view stands still; the graph goes on."""
        return "the view stands still; the graph goes on" if paused else ""

    def run(self, viewer: Shows, stop: threading.Event) -> None:
        """Listen until `stop` is set."""
        self._viewer = viewer
        context = rclpy.Context()
        rclpy.init(context=context)
        node = rclpy.create_node("view", namespace=self._namespace or None, context=context)
        latched = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
        node.create_subscription(PointCloud2, "object_points", self._on_points, qos_profile_sensor_data)
        node.create_subscription(Marker, "mesh", self._on_mesh, 1)
        node.create_subscription(Marker, "tool_mesh", self._on_tool, 10)
        node.create_subscription(PoseStamped, "contact_plane", self._on_plane, 10)
        node.create_subscription(DiagnosticArray, "estimate", self._on_estimate, latched)
        node.create_subscription(DiagnosticArray, "ground_truth", self._on_truth, 10)
        self._reset = node.create_client(Trigger, "estimator_node/reset")
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        try:
            while not stop.is_set():
                executor.spin_once(timeout_sec=0.1)
        except ExternalShutdownException:
            pass
        finally:
            executor.shutdown()
            node.destroy_node()
            rclpy.try_shutdown(context=context)

    def _since(self, message: PointCloud2 | Marker | PoseStamped | DiagnosticArray) -> float:
        stamp_s = seconds_of(message.header.stamp)
        if self._start_s is None or stamp_s < self._start_s - 1.0:  # a bag that begins anew
            self._start_s = stamp_s
            if self._viewer is not None:
                self._viewer.clear()
        return stamp_s - self._start_s

    def _show(self, update: ViewUpdate) -> None:
        if self._viewer is not None:
            self._viewer.show(update)

    def _on_points(self, message: PointCloud2) -> None:
        try:
            points = object_from_message(message)[0]
        except ValueError as error:
            self._show(ViewUpdate(self._since(message), line=str(error)))
            return
        self._show(ViewUpdate(self._since(message), points_m=points))

    def _on_mesh(self, message: Marker) -> None:
        if message.type != Marker.TRIANGLE_LIST or not message.points:
            return
        corners, plain = vertices_of(message), message.color
        tones: np.ndarray = np.array([(c.r, c.g, c.b) for c in message.colors]).reshape(-1, 3)
        if len(tones) != len(corners):
            tones = np.array([[plain.r, plain.g, plain.b]])
        try:
            mesh = self._corners.mesh(corners, tones, "as the twin node says")
        except ValueError as error:
            self._show(ViewUpdate(self._since(message), line=str(error)))
            return
        self._show(ViewUpdate(self._since(message), mesh=mesh))

    def _on_tool(self, message: Marker) -> None:
        corners = vertices_of(message)
        if (
            message.type == Marker.TRIANGLE_LIST
            and len(corners)
            and not len(corners) % 3
            and np.isfinite(corners).all()
        ):
            faces = np.arange(len(corners)).reshape(-1, 3)
            self._show(ViewUpdate(self._since(message), tools={message.ns: (corners, faces)}))

    def _on_plane(self, message: PoseStamped) -> None:
        try:
            self._show(ViewUpdate(self._since(message), plane=plane_of(message)))
        except ValueError as error:
            self._show(ViewUpdate(self._since(message), line=str(error)))

    def _on_truth(self, message: DiagnosticArray) -> None:
        self._truth = {
            name: float(row["value"]) for name, row in values_in(message).items() if _is_number(row.get("value", ""))
        }

    def _on_estimate(self, message: DiagnosticArray) -> None:
        rows = values_in(message)
        whole = rows.pop(WINDOW, {})
        parameters = tuple(
            ParameterNow(
                name, row.get("unit", ""), float(row["value"]), float(row["low"]), float(row["high"]),
                row.get("observable") == "true", row.get("reason", ""), self._truth.get(name),
            )
            for name, row in rows.items()
            if all(_is_number(row.get(key, "")) for key in ("value", "low", "high"))
        )  # fmt: skip
        self._show(ViewUpdate(self._since(message), whole.get("status"), parameters=parameters, line=_line(whole)))


def _line(whole: dict[str, str]) -> str:
    if not all(_is_number(whole.get(key, "")) for key in ("rms_residual_m", "update_s")):
        return ""
    rms_mm, update_ms = 1e3 * float(whole["rms_residual_m"]), 1e3 * float(whole["update_s"])
    frames = whole.get("frames_in_window", "?")
    return f"{frames} frames in the window, {rms_mm:.2f} mm off, {update_ms:.0f} ms an update"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
