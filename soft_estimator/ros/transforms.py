"""Frames on /tf and /tf_static, where tf2_msgs is installed; a ROS install has it, the wheels do not."""

from __future__ import annotations

from typing import Any

from builtin_interfaces.msg import Time
from geometry_msgs.msg import Pose, TransformStamped
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile

from soft_estimator.ros.conversions import header_at


def transform_publisher(node: Node, static: bool) -> Any:
    """A publisher of /tf or /tf_static; None where tf2_msgs is not installed."""
    try:
        from tf2_msgs.msg import TFMessage
    except ImportError:
        return None
    durability = QoSDurabilityPolicy.TRANSIENT_LOCAL if static else QoSDurabilityPolicy.VOLATILE
    qos = QoSProfile(depth=1 if static else 100, durability=durability)
    return node.create_publisher(TFMessage, "/tf_static" if static else "/tf", qos)


def transforms_message(stamp: Time, parent: str, poses: dict[str, Pose]) -> Any:
    """Frames by name, placed in a parent frame."""
    from tf2_msgs.msg import TFMessage

    made = []
    for child, pose in poses.items():
        entry = TransformStamped(header=header_at(stamp, parent), child_frame_id=child)
        at = entry.transform.translation
        at.x, at.y, at.z = pose.position.x, pose.position.y, pose.position.z
        entry.transform.rotation = pose.orientation
        made.append(entry)
    return TFMessage(transforms=made)


def publish_static(node: Node, parent: str, poses: dict[str, Pose]) -> Any:
    """Frames that stay where they are; returns the publisher, which must be kept. None without tf2_msgs."""
    publisher = transform_publisher(node, static=True)
    if publisher is not None:
        publisher.publish(transforms_message(node.get_clock().now().to_msg(), parent, poses))
    return publisher
