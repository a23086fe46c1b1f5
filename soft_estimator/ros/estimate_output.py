"""The estimator's topics: what is known of the object, as messages."""

from __future__ import annotations

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from std_msgs.msg import Float64, Float64MultiArray
from visualization_msgs.msg import Marker

from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.ros.conversions import header_at
from soft_estimator.ros.drawings import plane_marker, plane_pose
from soft_estimator.ros.reports import estimate_message, shown_names, state_message, topic_of
from soft_estimator.scene.scene import Scene

_PLANE_COLOUR = (0.35, 0.55, 0.75, 0.35)


class EstimateOutput:
    """Publishers of an estimate. `estimate` and `estimate_state` are latched: who comes late gets the newest."""

    def __init__(self, node: Node, frame: str) -> None:
        self._node, self._frame = node, frame
        latched = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
        self._all = node.create_publisher(DiagnosticArray, "estimate", latched)
        self._state = node.create_publisher(Float64MultiArray, "estimate_state", latched)
        self._plane = node.create_publisher(PoseStamped, "contact_plane", 10)
        self._plane_marker = node.create_publisher(Marker, "contact_plane_marker", 10)
        self._single: dict[str, object] = {}

    def publish(self, stamp: Time, estimate: LiveEstimate, scene: Scene) -> None:
        """Send an estimate to everyone."""
        header = header_at(stamp, self._frame)
        self._all.publish(estimate_message(header, estimate, scene.config.name))
        for name, parameter in zip(shown_names(estimate.parameters), estimate.parameters):
            if name not in self._single:
                self._single[name] = self._node.create_publisher(Float64, f"estimate/{topic_of(name)}", 10)
            self._single[name].publish(Float64(data=float(parameter.value)))  # type: ignore[attr-defined]
        if estimate.status != "lost":
            self._state.publish(state_message(stamp, estimate))
        if scene.config.contact is not None:
            self._publish_plane(header, estimate, scene)

    def _publish_plane(self, header: object, estimate: LiveEstimate, scene: Scene) -> None:
        surface = scene.body.surface_positions_m(estimate.u_m)
        values = estimate.values
        pose = plane_pose(header, values.plane_normal, values.plane_offset_m, surface.mean(axis=0))
        self._plane.publish(pose)
        if self._plane_marker.get_subscription_count():
            size = 6.0 * float(np.linalg.norm(np.ptp(surface, axis=0)))
            self._plane_marker.publish(plane_marker(pose, size, _PLANE_COLOUR))
