"""Poses of a scene's tools and readings of their force-torque sensors, as a node hears them."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterable
from functools import partial
from time import monotonic

import numpy as np
from geometry_msgs.msg import PoseStamped, WrenchStamped
from rclpy.node import Node

from soft_estimator.config import SceneConfig
from soft_estimator.geometry.live_path import LONGEST_GAP_S
from soft_estimator.live.tools import Pose, Tools
from soft_estimator.live.wrenches import Wrenches
from soft_estimator.recordings.bag_frames import wrench_of
from soft_estimator.recordings.frame_folder import pose_matrix
from soft_estimator.recordings.interface import WrenchReading
from soft_estimator.recordings.messages import seconds_of
from soft_estimator.ros.conversions import stamp_of
from soft_estimator.ros.frames import Frames
from soft_estimator.ros.health import Health
from soft_estimator.scene.wrenches import wrench_topics

_WAIT_S = 0.1  # a pose may come a little after the frame it belongs to
_EVERY_S = 0.01  # between two poses that are asked of tf2
_MOST = 2000  # poses or readings that wait for a frame
_KEEP_S = 60.0  # poses that a window may still ask for


def pose_topic(frame: str) -> str:
    """Where the pose of a tool's frame may be published instead of tf."""
    return f"tool_pose/{re.sub(r'[^A-Za-z0-9_]', '_', frame.lstrip('/'))}"


class ToolFeed:
    """Hands over to the tools what leads up to a frame.

    Poses come on `tool_pose/<frame>` where somebody publishes them, else from tf2 where it is installed.

    Args:
        frames: of the node, which asks tf2. feels: whether the sensors are listened to, too.
    """

    def __init__(self, node: Node, config: SceneConfig, frames: Frames | None, health: Health, feels: bool = False):
        self.frames, self.health = frames, health
        named = [(obstacle.tool_frame or "").lstrip("/") for obstacle in config.obstacles]
        self._poses: dict[str, deque[Pose]] = {name: deque(maxlen=_MOST) for name in named if name}
        self._newest_s = dict.fromkeys(self._poses, -np.inf)  # of what came on the topics
        self._heard = threading.Condition()
        for name in self._poses:
            node.create_subscription(PoseStamped, pose_topic(name), partial(self._on_pose, name), 200)
        sensors = config.observe.wrenches if feels and config.observe is not None else ()
        self._readings: list[deque[WrenchReading]] = [deque(maxlen=_MOST) for _ in sensors]
        for k, (sensor, topic) in enumerate(zip(sensors, wrench_topics(config))):
            if sensor.file is None:
                node.create_subscription(WrenchStamped, topic, partial(self._on_wrench, k), 200)

    def _on_pose(self, name: str, message: PoseStamped) -> None:
        p, q, given = message.pose.position, message.pose.orientation, message.header.frame_id.lstrip("/")
        fixed = "" if self.frames is None else self.frames.settings.fixed_frame
        if fixed and given != fixed:
            self.health.warn("tool", f"{pose_topic(name)} is in frame {given!r}, not in {fixed!r}; publish it there")
            return
        try:
            pose = pose_matrix([p.x, p.y, p.z], [q.x, q.y, q.z, q.w], f"the pose of {name}")
        except ValueError as error:
            self.health.warn("tool", str(error))
            return
        with self._heard:
            stamp_s = seconds_of(message.header.stamp)
            self._poses[name].append((stamp_s, pose[:3, :3], pose[:3, 3]))
            self._newest_s[name] = stamp_s
            self._heard.notify_all()

    def _on_wrench(self, sensor: int, message: WrenchStamped) -> None:
        with self._heard:
            self._readings[sensor].append(wrench_of(message, 0))

    def follow(self, tools: Tools, stamp_s: float, wrenches: Wrenches | None = None, wait: bool = True) -> None:
        """Hand over what came up to a stamp [s]. Call it from a worker's thread: it may wait for a pose.

        wait: for a frame of the camera; without it nobody waits, and the scene's start is somebody else's to tell
            (`Tools.begin_at`), since the stamp is no frame's.
        """
        if wait:
            tools.begin(stamp_s)
        for name in self._poses:
            self._wait_for(name, stamp_s if wait else -np.inf)
            with self._heard:
                came = list(self._poses[name])
                self._poses[name].clear()
            if came:
                tools.add_poses(name, came)
            elif self._newest_s[name] == -np.inf:
                tools.add_poses(name, self._asked(name, tools.newest_s(name), stamp_s, wait))
        tools.forget_before(stamp_s - _KEEP_S)
        if wrenches is None:
            return
        wrenches.begin(stamp_s)
        for k, readings in enumerate(self._readings):
            with self._heard:
                felt = list(readings)
                readings.clear()
            wrenches.add(k, felt)
        wrenches.forget_before(stamp_s - _KEEP_S)
        if wrenches.refused:
            self.health.warn("wrench", wrenches.refused)

    def _wait_for(self, name: str, stamp_s: float) -> None:
        """Until a pose has come that is as new as a stamp, where any have come before."""
        end_s = monotonic() + _WAIT_S
        with self._heard:
            while -np.inf < self._newest_s[name] < stamp_s and monotonic() < end_s:
                self._heard.wait(max(end_s - monotonic(), 0.0))

    def _asked(self, name: str, newest_s: float, stamp_s: float, wait: bool) -> Iterable[Pose]:
        """What tf2 knows of a frame since its newest pose, every 10 ms; said where it knows nothing."""
        if self.frames is None:
            return []
        try:
            last = self.frames.pose(name, stamp_of(stamp_s), _WAIT_S if wait else 0.0)
        except ValueError as error:
            if wait:
                self.health.warn("tool", f"{error}; poses may also come on {pose_topic(name)}")
            return []
        from_s = newest_s if 0.0 < stamp_s - newest_s < LONGEST_GAP_S else stamp_s - LONGEST_GAP_S
        out: list[Pose] = []
        for time_s in np.arange(from_s + _EVERY_S, stamp_s - 0.5 * _EVERY_S, _EVERY_S).tolist():
            try:
                pose = self.frames.pose(name, stamp_of(time_s), 0.0)
            except ValueError:  # the first transforms are younger than that
                continue
            out.append((time_s, pose[:3, :3], pose[:3, 3]))
        return [*out, (stamp_s, last[:3, :3], last[:3, 3])]
