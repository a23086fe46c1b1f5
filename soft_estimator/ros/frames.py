"""From a cloud's frame to the fixed frame: as declared, or by tf2 where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.time import Time as RclTime

from soft_estimator.recordings.frame_folder import pose_matrix
from soft_estimator.ros.settings import FrameSettings

_WAIT_S = 0.1  # a transform may come a little after the cloud it belongs to


class Frames:
    """Transforms to the fixed frame. Ask from a worker's thread: tf2 may wait."""

    def __init__(self, node: Node, settings: FrameSettings) -> None:
        self.settings = settings
        self._declared = pose_matrix(list(settings.sensor_pose[:3]), list(settings.sensor_pose[3:]), "sensor_pose")
        self._tf2, self._buffer, self._listener = _start_tf2(node)

    def to_fixed(self, frame_id: str, stamp: Time) -> np.ndarray:
        """(4, 4) from a frame to the fixed frame; ValueError where nobody knows it."""
        s, frame = self.settings, frame_id.lstrip("/")
        if frame == s.fixed_frame:
            return np.eye(4)
        if frame and frame == s.sensor_frame:
            return self._declared
        if not frame:
            raise ValueError(f"the cloud names no frame_id; its sender must name {s.sensor_frame or s.fixed_frame!r}")
        if self._tf2 is None:
            wanted = " or ".join(repr(f) for f in (s.fixed_frame, s.sensor_frame) if f)
            raise ValueError(
                f"the cloud is in frame {frame!r}, not in {wanted}, and tf2 is not installed; set sensor_frame to "
                f"{frame!r} and sensor_pose to where it is"
            )
        return self.pose(frame, stamp, _WAIT_S)

    def pose(self, frame: str, stamp: Time, wait_s: float) -> np.ndarray:
        """(4, 4) from a frame to the fixed frame as tf2 knows it, waiting for it [s]; ValueError where it does not."""
        fixed = self.settings.fixed_frame
        if self._tf2 is None:
            raise ValueError(f"where frame {frame!r} is nobody knows: tf2 is not installed")
        try:
            found = self._buffer.lookup_transform(
                fixed, frame, RclTime.from_msg(stamp), timeout=Duration(seconds=wait_s)
            ).transform
        except self._tf2.TransformException as error:
            raise ValueError(f"tf2 knows no way from {frame!r} to {fixed!r}: {error}") from None
        t, r = found.translation, found.rotation
        return pose_matrix([t.x, t.y, t.z], [r.x, r.y, r.z, r.w], f"transform of {frame}")


def _start_tf2(node: Node) -> tuple[Any, Any, Any]:
    try:
        import tf2_ros
    except ImportError:
        return None, None, None
    buffer = tf2_ros.Buffer()
    return tf2_ros, buffer, tf2_ros.TransformListener(buffer, node)
