"""camera_node: the simulated depth camera of a scene, in real time or step by step, with the ground truth beside it."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from std_srvs.srv import Trigger
from visualization_msgs.msg import Marker

from soft_estimator.backends import choose_backend
from soft_estimator.camera.pinhole import PinholeCamera
from soft_estimator.camera.rendering import watch_scene
from soft_estimator.camera.scene_cameras import scene_cameras, times_from_start
from soft_estimator.config import SceneConfig
from soft_estimator.recordings.ground_truth import truth_rows
from soft_estimator.recordings.messages import seconds_of
from soft_estimator.ros.conversions import camera_info_message, depth_message, header_at, message_from_points, stamp_of
from soft_estimator.ros.drawings import mesh_marker, pose_of
from soft_estimator.ros.health import Health
from soft_estimator.ros.parameters import NodeParameters
from soft_estimator.ros.reports import rows_message
from soft_estimator.ros.running import run_node
from soft_estimator.ros.scene import scene_config, scene_of
from soft_estimator.ros.settings import CameraSettings, SceneSettings
from soft_estimator.ros.transforms import publish_static
from soft_estimator.ros.worker import Worker
from soft_estimator.scene.scene import Scene

LATCHED_QOS = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
_TRUTH_COLOUR = np.array([0.35, 0.75, 0.40])


@dataclass(frozen=True, eq=False)
class Shown:
    """One frame, ready to be sent: time in the scene [s], points (h, w, 3) [m], true surface (V, 3) [m]."""

    time_s: float
    points_m: np.ndarray
    surface_m: np.ndarray


class CameraNode(Node):
    """Renders the whole scene when it starts, then only sends: a camera that computes while it films is late."""

    def __init__(self) -> None:
        super().__init__("camera_node")
        parameters = NodeParameters(self)
        self.scene_settings = parameters.add(SceneSettings)
        self.settings = parameters.add(CameraSettings)
        config = scene_config(self.scene_settings)[0]
        cameras = scene_cameras(config)
        if self.settings.camera >= len(cameras):
            raise ValueError(f"camera = {self.settings.camera} does not exist; the scene has {len(cameras)}, from 0")
        self.camera: PinholeCamera = cameras[self.settings.camera]
        self.health = Health(self, lambda: {"frames_ready": len(self.film)})
        self.film: list[Shown] = []
        self.scene: Scene | None = None
        self.noise = AxialNoise(config, (self.camera.height_px, self.camera.width_px))
        self.ready = False
        self.index, self.round = 0, 0
        self.played_s = 0.0  # length of the repetitions that are over, in the scene's time
        self.start_s, self.first_s = 0.0, 0.0  # when the film began, by the steady clock and by the node's
        latched = self.create_publisher(PoseStamped, "camera/pose", LATCHED_QOS)
        now = self.get_clock().now().to_msg()
        pose = pose_of(self.camera.rotation, self.camera.position_m)
        latched.publish(PoseStamped(header=header_at(now, self.settings.fixed_frame), pose=pose))
        self.points = self.create_publisher(PointCloud2, "camera/points", 10)
        self.depth = self.create_publisher(Image, "camera/depth/image", 10)
        self.info = self.create_publisher(CameraInfo, "camera/depth/camera_info", 10)
        self.truth = self.create_publisher(DiagnosticArray, "ground_truth", 10)
        self.truth_mesh = self.create_publisher(Marker, "ground_truth/mesh", 10)
        self.tf = publish_static(self, self.settings.fixed_frame, {self.settings.camera_frame: pose})
        self.create_service(Trigger, "~/step", self._on_step)
        self.ended = threading.Event()
        self.worker: Worker[None] = Worker(lambda _: None, lambda error: self.health.error("film", str(error)))
        self.worker.ask("render", self._render)

    def _render(self) -> None:
        """Make the scene ready, simulate and render every frame, once; the node answers meanwhile."""
        self.scene = scene = scene_of(self.scene_settings)
        backend = choose_backend(self.scene_settings.backend, scene.config.solver.precision)
        total, said_s = len(times_from_start(scene.config)), monotonic()
        for seen in watch_scene(without_axial_noise(scene), backend, [self.camera]):
            self.film.append(Shown(seen.time_s, seen.points_m[0].astype(np.float32), seen.surface_m))
            if monotonic() - said_s > 2.0:
                said_s = monotonic()
                self.get_logger().info(f"rendered {len(self.film)} of {total} frames")
        size_mb = sum(f.points_m.nbytes for f in self.film) / 1e6
        self.get_logger().info(f"{total} frames are ready ({size_mb:.0f} MB)")
        self.first_s = 1e-9 * self.get_clock().now().nanoseconds
        self.start_s, self.ready = monotonic(), True
        if not self.settings.stepped:
            self._play()

    def _play(self) -> None:
        """Send each frame when it is due; one whose successor is due already is left out, as cameras do."""
        while not self._is_over():
            elapsed_s = (monotonic() - self.start_s) * self.settings.rate - self.played_s
            if self.ended.wait(max(self.film[self.index].time_s - elapsed_s, 0.0) / self.settings.rate):
                return
            while self.index + 1 < len(self.film) and self.film[self.index + 1].time_s <= elapsed_s:
                self.index += 1
                self.health.count("frames_late")
            self._send_next()

    def _send_next(self) -> Shown:
        """Send the frame at hand and go on to the next.

        Stamps are the scene's time from the start of the film on: exact, and right at any rate.
        """
        frame = self.film[self.index]
        self._send(frame, stamp_of(self.first_s + self.played_s + frame.time_s))
        self.index += 1
        if self.index < len(self.film):
            return frame
        # The next repetition begins a frame's time after the last frame, and after the pause.
        length = self.film[-1].time_s + (self.film[-1].time_s - self.film[-2].time_s if len(self.film) > 1 else 0.1)
        self.played_s += length + self.settings.pause_s
        self.index, self.round = 0, self.round + 1
        return frame

    def _is_over(self) -> bool:
        return self.settings.repeats > 0 and self.round >= self.settings.repeats

    def _on_step(self, _: Trigger.Request, answer: Trigger.Response) -> Trigger.Response:
        answer.success = self.ready and self.settings.stepped and not self._is_over()
        if not answer.success:
            why = "stepped is false" if not self.settings.stepped else "every repetition was played"
            answer.message = why if self.ready else f"still rendering, {len(self.film)} frames so far"
            return answer
        frame = self._send_next()
        answer.message = f"frame at {frame.time_s:.4f} s was sent"
        return answer

    def _send(self, frame: Shown, stamp: Time) -> None:
        header = header_at(stamp, self.settings.camera_frame)
        points = self.noise.on(frame.points_m)
        self.points.publish(message_from_points(header, points))
        self.info.publish(camera_info_message(header, self.camera))
        if self.depth.get_subscription_count():
            self.depth.publish(depth_message(header, np.nan_to_num(points[..., 2])))
        fixed, scene = header_at(stamp, self.settings.fixed_frame), self.scene
        if scene is None:  # a frame is sent only when the film is ready
            raise AssertionError("no scene")
        config = scene.config
        rows = [(r.label, r.value, r.unit) for r in truth_rows(scene.parameters, plane=config.contact is not None)]
        extra: dict[str, Any] = {"time_s": frame.time_s, "repetition": self.round, "stamp_s": seconds_of(stamp)}
        self.truth.publish(rows_message(fixed, rows, config.name, **extra))
        if self.truth_mesh.get_subscription_count():
            faces = scene.body.surface.faces
            self.truth_mesh.publish(
                mesh_marker(fixed, frame.surface_m, faces, _TRUTH_COLOUR, namespace="truth", alpha=0.5)
            )
        self.health.count("frames")

    def close(self) -> bool:
        """End the film and the worker; whether they ended."""
        self.ended.set()
        return self.worker.stop(2.0)


def without_axial_noise(scene: Scene) -> Scene:
    """The scene with the part of its cameras' noise left out that is drawn anew each time a frame is sent."""
    observe = scene.config.observe
    if observe is None or observe.noise.kind != "depth_camera":
        return scene
    noise = replace(observe.noise, axial_floor_m=0.0, axial_per_m=0.0)
    return replace(scene, config=replace(scene.config, observe=replace(observe, noise=noise)))


class AxialNoise:
    """Depth noise, drawn afresh for every frame: a film that is shown again must not show the same noise again.

    A field of numbers is drawn once; each frame reads it from another offset.
    """

    def __init__(self, config: SceneConfig, shape: tuple[int, int]) -> None:
        observe = config.observe
        self.config = observe.noise if observe is not None and observe.noise.kind == "depth_camera" else None
        self.rng = np.random.default_rng(0 if observe is None else observe.seed + 1)
        self.shape = shape
        self.field = self.rng.standard_normal((shape[0] + 191, shape[1] + 193), dtype=np.float32)

    def on(self, points_m: np.ndarray) -> np.ndarray:
        """Points (h, w, 3) [m] moved along their rays."""
        if self.config is None:
            return points_m
        i, j = self.rng.integers(191), self.rng.integers(193)
        z = points_m[..., 2]
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (self.config.axial_floor_m / z + self.config.axial_per_m * z).astype(np.float32)
        return points_m * (1 + share * self.field[i : i + self.shape[0], j : j + self.shape[1]])[..., None]


def main(arguments: list[str] | None = None) -> int:
    """Run the node."""
    return run_node(CameraNode, arguments)


if __name__ == "__main__":
    sys.exit(main())
