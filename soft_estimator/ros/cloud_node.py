"""cloud_node: clouds or depth images → the object's points and the support plane."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion
from rclpy.node import Node
from rclpy.qos import QoSProfile, QoSReliabilityPolicy
from sensor_msgs.msg import CameraInfo, Image, PointCloud2

from soft_estimator.live.episodes import EpisodeWatch
from soft_estimator.live.lateness import RecordingWatch
from soft_estimator.live.tools import Tools
from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.objects import ObjectFinder, ObjectPoints, find_a_ball
from soft_estimator.perception.settings import FinderSettings
from soft_estimator.perception.standing import StandingFaces
from soft_estimator.recordings.messages import seconds_of
from soft_estimator.ros.conversions import (
    VIEWPOINT,
    cloud_from_depth_message,
    cloud_from_message,
    header_at,
    message_from_points,
)
from soft_estimator.ros.drawings import plane_pose
from soft_estimator.ros.frames import Frames
from soft_estimator.ros.health import Health
from soft_estimator.ros.parameters import NodeParameters
from soft_estimator.ros.running import run_node
from soft_estimator.ros.scene import scene_config
from soft_estimator.ros.settings import CloudSettings, FrameSettings, SceneSettings
from soft_estimator.ros.tool_feed import ToolFeed
from soft_estimator.ros.transforms import publish_static
from soft_estimator.ros.worker import Worker
from soft_estimator.scene.obstacles import build_obstacles

_INFOS = 30  # CameraInfos that wait for their image: a second of them
SENSOR_QOS = QoSProfile(depth=10, reliability=QoSReliabilityPolicy.BEST_EFFORT)


class CloudNode(Node):
    """Converts each cloud, has the object found in it, publishes its points."""

    def __init__(self) -> None:
        super().__init__("cloud_node")
        parameters = NodeParameters(self)
        self.settings = parameters.add(CloudSettings)
        self.frames = Frames(self, parameters.add(FrameSettings))
        self.finder = ObjectFinder(parameters.add(FinderSettings, "finder", changed=self._change_finder))
        self.recording = RecordingWatch("cloud", self.settings.quiet_after_s)
        self.tools: Tools | None = None
        self.health = Health(self, self._counters, self._complaint)
        self.preparing = True
        self.came_s: float | None = None  # when the newest cloud came, by the steady clock
        self.worker: Worker[tuple[float, PointCloud2 | Image]] = Worker(
            self._work, lambda error: self.health.error("cloud", str(error)), self.settings.queue_clouds
        )
        self.worker.ask("warm up", self._warm_up)
        if self.settings.tools:
            told, folder = scene_config(SceneSettings(scene=self.settings.tools, data=self.settings.tools_data))
            data = Path(self.settings.tools_data) if self.settings.tools_data else None
            self.tools = Tools(told, build_obstacles(told, folder, data))
            self.feed = ToolFeed(self, told, self.frames, self.health)
        self.standing = self._standing()
        self.infos: deque[CameraInfo] = deque(maxlen=_INFOS)
        self.episodes = EpisodeWatch()
        self.points = self.create_publisher(PointCloud2, "object_points", 10)
        self.plane = self.create_publisher(PoseStamped, "support_plane", 10)
        if self.settings.input == "points":
            source = self.create_subscription(PointCloud2, "camera/points", self._on_frame, SENSOR_QOS)
        else:
            source = self.create_subscription(Image, "camera/depth/image", self._on_frame, SENSOR_QOS)
            self.create_subscription(CameraInfo, "camera/depth/camera_info", self._on_info, SENSOR_QOS)
        self.input_topic = source.topic_name
        settings = self.frames.settings
        if settings.sensor_frame:  # who asks tf2 finds the camera there, too
            t, q = settings.sensor_pose[:3], settings.sensor_pose[3:]
            pose = Pose(position=Point(x=t[0], y=t[1], z=t[2]), orientation=Quaternion(x=q[0], y=q[1], z=q[2], w=q[3]))
            self.tf = publish_static(self, settings.fixed_frame, {settings.sensor_frame: pose})

    def _warm_up(self) -> None:
        try:
            find_a_ball()  # compiled or loaded before the first cloud
        finally:
            self.preparing = False

    def _counters(self) -> dict[str, Any]:
        waiting = {"clouds_dropped": self.worker.dropped, "clouds_waiting": self.worker.waiting}
        return {"preparing": str(self.preparing).lower(), "working": str(self.worker.working).lower(), **waiting}

    def _complaint(self) -> str:
        """What /diagnostics should warn of now."""
        if self.came_s is None:
            asked = f"nothing has come yet; does the camera publish on {self.input_topic}?"
            return "" if self.settings.recorded else asked
        quiet_s = monotonic() - self.came_s
        if self.settings.recorded:
            self.health.note_news("recording", self.recording.news(quiet_s))
            return ""
        return "" if quiet_s <= self.settings.quiet_after_s else f"no cloud for {quiet_s:.0f} s; does the camera run?"

    def _on_info(self, message: CameraInfo) -> None:
        self.infos.append(message)

    def _info_of(self, image: Image) -> CameraInfo:
        """The CameraInfo of an image: that of the same stamp, or the newest one of the same size."""
        infos = list(self.infos)
        if not infos:
            raise ValueError("a depth image came, but no CameraInfo yet; is camera/depth/camera_info remapped?")
        same = [i for i in infos if i.header.stamp == image.header.stamp]
        alike = [i for i in infos if (i.width, i.height) in ((image.width, image.height), (0, 0))]
        if not same and not alike:
            raise ValueError(
                f"the depth image is {image.width} x {image.height} pixels, its CameraInfo {infos[-1].width} x "
                f"{infos[-1].height}; are both of one camera?"
            )
        return (same or alike)[-1]

    def _on_frame(self, message: PointCloud2 | Image) -> None:
        self.health.count("clouds")
        self.came_s = monotonic()
        self.worker.put((monotonic(), message))

    def _standing(self) -> StandingFaces | None:
        """What learns which flat things stand about; only who knows how wide the object is can tell it from them."""
        settings = self.finder.settings
        return None if settings.track.size_m is None else StandingFaces(settings, settings.track.size_m, self.tools)

    def _change_finder(self, settings: FinderSettings) -> None:
        new = ObjectFinder(settings)

        def exchange() -> None:
            new.plane, new.track = self.finder.plane, self.finder.track
            self.finder = new
            self.standing = self._standing()

        self.worker.ask("settings", exchange)

    def _work(self, item: tuple[float, PointCloud2 | Image]) -> None:
        received_s, message = item
        stamp = message.header.stamp
        if stamp.sec == 0 and stamp.nanosec == 0:
            self.health.warn("stamp", "the cloud carries no stamp; the time of its arrival is taken")
            stamp = self.get_clock().now().to_msg()
        time_s = seconds_of(stamp)
        jump = self.episodes.jump(time_s, self.finder.settings.track.forget_after_s)
        if jump:
            # A pause between two recordings or repetitions is nothing to warn of; a clock that runs back is.
            (self.health.warn if "back" in jump else self.health.note)("time", f"{jump}; the object is looked for anew")
            self.finder.forget()
        transform = self.frames.to_fixed(message.header.frame_id, stamp)
        if isinstance(message, PointCloud2):
            cloud = cloud_from_message(message, transform, self.frames.settings.optical_axis)
        else:
            cloud = cloud_from_depth_message(message, self._info_of(message), transform)
        # A cloud that comes in the fixed frame does not say where its camera is.
        moved = message.header.frame_id.lstrip("/") != self.frames.settings.fixed_frame
        if self.tools is not None:
            self.feed.follow(self.tools, time_s)
        found = self.finder.process(cloud, time_s=time_s, tools=self.standing or self.tools)
        if self.standing is not None and self.standing.look(cloud, found, time_s):
            self.finder.forget()
        header = header_at(stamp, self.frames.settings.fixed_frame)
        if isinstance(found, ObjectPoints):
            self.health.count("objects")
            seen_from = _viewpoint(cloud, len(found.points_m)) if moved else {}
            self.points.publish(message_from_points(header, found.points_m, std=found.std_m, **seen_from))
            beside = "" if self.standing is None else self.standing.beside(found.points_m)
            for note in filter(None, (*found.notes, beside)):
                self.health.warn("note", note)
        else:
            self.health.warn("object", found.reason)
            self.points.publish(message_from_points(header, np.empty((0, 3)), std=np.empty(0)))
        if found.plane is not None:
            near = found.points_m.mean(axis=0) if isinstance(found, ObjectPoints) else cloud.sensor_m
            self.plane.publish(plane_pose(header, found.plane.normal, found.plane.offset_m, near))
        self.health.took("work", monotonic() - received_s)
        age_s = 1e-9 * self.get_clock().now().nanoseconds - time_s
        if 0 <= age_s < 3600:
            self.health.took("latency", age_s)

    def close(self) -> bool:
        """End the worker; whether it ended."""
        return self.worker.stop(2.0)


def _viewpoint(cloud: Cloud, count: int) -> dict[str, np.ndarray]:
    """Where the camera is, with each point: the estimator may know it from nobody else."""
    return {name: np.full(count, at) for name, at in zip(VIEWPOINT, cloud.sensor_m)}


def main(arguments: list[str] | None = None) -> int:
    """Run the node."""
    return run_node(CloudNode, arguments)


if __name__ == "__main__":
    sys.exit(main())
