"""The estimator's topics: what is known of the object, as messages."""

from __future__ import annotations

from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Pose, PoseStamped
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from std_msgs.msg import Float64, Float64MultiArray
from visualization_msgs.msg import Marker

from soft_estimator.estimation.fitting.uncertainty import shown_labels
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.ros.conversions import header_at
from soft_estimator.ros.drawings import plane_marker, plane_pose, pose_of
from soft_estimator.ros.reports import Delay, estimate_message, shown_names, state_message, topic_of
from soft_estimator.ros.transforms import transform_publisher, transforms_message
from soft_estimator.scene.scene import Scene

_PLANE_COLOUR = (0.35, 0.55, 0.75, 0.35)


_LATCHED = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)


class EstimateOutput:
    """Publishers of an estimate. `estimate`, `estimate/...` and `estimate_state` are latched: who comes late gets the
    newest.

    Args:
        frame: that everything is given in. tf: whether plane and object are published as frames, too.
    """

    def __init__(self, node: Node, frame: str, tf: bool = False) -> None:
        self._node, self._frame = node, frame
        self._all = node.create_publisher(DiagnosticArray, "estimate", _LATCHED)
        self._state = node.create_publisher(Float64MultiArray, "estimate_state", _LATCHED)
        self._tf = transform_publisher(node, static=False) if tf else None
        if tf and self._tf is None:
            node.get_logger().warning("publish_tf is on, but tf2_msgs is not installed; no frames are published")
        prefix = node.get_namespace().strip("/")
        self._frames = [f"{prefix}/{name}" if prefix else name for name in ("contact_plane", "soft_object")]
        self._plane = node.create_publisher(PoseStamped, "contact_plane", 10)
        self._plane_marker = node.create_publisher(Marker, "contact_plane_marker", 10)
        self._single: dict[str, object] = {}

    def offer(self, labels: list[str]) -> None:
        """Have the topics of single numbers there before there is a number."""
        for name in shown_labels(labels):
            self._single_publisher(name)

    def _single_publisher(self, name: str) -> Any:
        if name not in self._single:
            self._single[name] = self._node.create_publisher(Float64, f"estimate/{topic_of(name)}", _LATCHED)
        return self._single[name]

    def publish(
        self, stamp: Time, estimate: LiveEstimate, scene: Scene, delay: Delay, began: Time | None = None
    ) -> None:
        """Send an estimate to everyone; began: as in `state_message`."""
        header = header_at(stamp, self._frame)
        self._all.publish(estimate_message(header, estimate, scene.config.name, delay))
        for name, parameter in zip(shown_names(estimate.parameters), estimate.parameters):
            self._single_publisher(name).publish(Float64(data=float(parameter.value)))
        if estimate.status != "lost":
            self._state.publish(state_message(stamp, estimate, began))
        pose = self._publish_plane(header, estimate, scene) if scene.config.contact is not None else None
        if self._tf is not None and estimate.status != "lost":
            poses = {} if pose is None else {self._frames[0]: pose.pose}
            poses[self._frames[1]] = _object_pose(estimate, scene)
            self._tf.publish(transforms_message(stamp, self._frame, poses))

    def _publish_plane(self, header: object, estimate: LiveEstimate, scene: Scene) -> PoseStamped:
        surface = scene.body.surface_positions_m(estimate.u_m)
        values = estimate.values
        pose = plane_pose(header, values.plane_normal, values.plane_offset_m, surface.mean(axis=0))
        self._plane.publish(pose)
        if self._plane_marker.get_subscription_count():
            size = 6.0 * float(np.linalg.norm(np.ptp(surface, axis=0)))
            self._plane_marker.publish(plane_marker(pose, size, _PLANE_COLOUR))
        return pose


def _object_pose(estimate: LiveEstimate, scene: Scene) -> Pose:
    """The turn and shift that bring the rest shape closest to the body as it is, weighed by volume."""
    rest, weight = scene.body.node_position_m, scene.body.node_volume_m3 / scene.body.volume_m3
    now = rest + estimate.u_m
    middle = weight @ now
    left, _, right = np.linalg.svd((now - middle).T @ (weight[:, None] * (rest - scene.body.centroid_m)))
    turn = left @ np.diag([1.0, 1.0, np.linalg.det(left @ right)]) @ right
    return pose_of(turn, middle)
