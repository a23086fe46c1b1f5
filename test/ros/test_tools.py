"""A tool in the graph: its pose on a topic, its points in the clouds, its force, its mesh; and what is said without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Point, PoseStamped, WrenchStamped
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Float64MultiArray, Header
from visualization_msgs.msg import Marker

from soft_estimator.config import SceneConfig
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.recordings.messages import points_of, seconds_of
from soft_estimator.ros.conversions import message_from_points, stamp_of
from soft_estimator.ros.drawings import vertices_of
from soft_estimator.ros.reports import state_message, values_in
from soft_estimator.ros.tool_feed import pose_topic
from soft_estimator.scene.scene import build_scene
from soft_estimator.schema import load

LATCHED = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
SCENE = """
name: beside_a_tool
body: {shape: {sphere: {radius_m: 0.05, center_m: [0, 0, 1]}}, spacing_m: 0.025} # before a camera at 0
material: {youngs_modulus_pa: 20000}
gravity_m_s2: [0, 0, -9.81]
obstacles: [{shape: {sphere: {radius_m: 0.03}}, tool_frame: arm/tip}]
time: {step_s: 0.01, duration_s: 0.5}
observe: {wrenches: [{obstacle: 0, topic: hand/ft}]}
estimate: {parameters: [youngs_modulus_pa]}
"""
FRAMES = 5


def sphere(radius_m: float, count: int) -> np.ndarray:
    """Points spread evenly over a sphere, (count, 3)."""
    z = 1 - 2 * (np.arange(count) + 0.5) / count
    around, ring = np.pi * (1 + np.sqrt(5)) * np.arange(count), np.sqrt(1 - z**2)
    return radius_m * np.stack([ring * np.cos(around), ring * np.sin(around), z], axis=1)


class Arm:
    """A camera, an arm and its force sensor: the ball falls, and where its pose is published the tip goes along beside
    it, 4 mm away."""

    def __init__(self, peer: Any) -> None:
        self.peer = peer
        self.clouds = peer.node.create_publisher(PointCloud2, "camera/points", 10)
        self.poses = peer.node.create_publisher(PoseStamped, pose_topic("arm/tip"), 10)
        self.forces = peer.node.create_publisher(WrenchStamped, "hand/ft", 10)
        self.ball, self.tip = sphere(0.05, 3000), sphere(0.03, 1200)

    def fall(self, start_s: float, posed: bool) -> None:
        for k in range(FRAMES):
            time_s = 0.03 * k
            drop = np.array([0.0, 0.0, 1.0 - 0.5 * 9.81 * time_s**2])
            place = np.array([0.084, 0.0, 0.0]) + drop
            header = Header(stamp=stamp_of(start_s + time_s), frame_id="world")
            if posed:
                message = PoseStamped(header=header)
                message.pose.position = Point(x=place[0], y=place[1], z=place[2])
                self.poses.publish(message)
                felt = WrenchStamped(header=Header(stamp=header.stamp, frame_id="arm/tip"))
                self.forces.publish(felt)
                self.peer.spin(0.05)
            points = np.concatenate([self.ball + drop, self.tip + place]) if posed else self.ball + drop
            self.clouds.publish(message_from_points(header, points))
            self.peer.spin(0.1)


def test_a_tool_beside_the_body(peer: Any, processes: Any, tmp_path: Path) -> None:
    """Three nodes. Without a pose frames wait and say what for; with it the ball is followed, its points are the ball's
    alone, what the sensor felt is in the window, and the twin shows the tool where it is."""
    file = tmp_path / "scene.yaml"
    file.write_text(SCENE)
    estimates = peer.listen(DiagnosticArray, "estimate", LATCHED)
    objects, meshes = peer.listen(PointCloud2, "object_points"), peer.listen(Marker, "tool_mesh")
    arm = Arm(peer)
    finder = {"support": "none", "min_points": 100}
    eager = {"bent_patience_s": 0.0}  # its coarse grid is 0.9 mm from a sphere: nothing to wait for
    running = [
        processes.node("cloud_node", tools=str(file), finder=finder),
        processes.node("estimator_node", scene=str(file), backend="cpu", sensor_m=[0.0, 0.0, 0.0], window=eager),
        processes.node("twin_node", scene=str(file), backend="cpu"),
    ]

    def value(key: str) -> str:
        status = peer.diagnosis("estimator_node")
        return "" if status is None else {v.key: v.value for v in status.values}.get(key, "")

    peer.until(lambda: value("window") == "starting" or any(p.poll() is not None for p in running), 120, "it is ready")
    assert all(p.poll() is None for p in running), [processes.output(p) for p in running]
    peer.until(
        lambda: arm.poses.get_subscription_count() == 3 and arm.clouds.get_subscription_count(), 60, "all listen"
    )
    falls = iter(range(100, 200, 2))

    def it_waits_for_the_pose() -> bool:
        arm.fall(next(falls), posed=False)  # as a camera goes on: first frames may pass before the two nodes are linked
        return "tool frame 'arm/tip' has no pose yet" in value("waiting_for")

    peer.until(it_waits_for_the_pose, 60, "it says what for")
    assert not estimates
    arm.fall(200.0, posed=True)
    last_s = 200.0 + 0.03 * (FRAMES - 1)
    peer.until(
        lambda: estimates and seconds_of(estimates[-1].header.stamp) > last_s - 0.001, 120, "the fall is explained"
    )
    window = values_in(estimates[-1])["window"]
    assert (
        float(window["rms_residual_m"]) < 0.002 and int(window["frames_in_window"]) > FRAMES
    )  # what was felt is among them

    def of_this_fall() -> list[PointCloud2]:
        return [m for m in objects if m.width and seconds_of(m.header.stamp) >= 200.0]

    seen = points_of(peer.until(of_this_fall, 60, "the object's points come here, too")[-1])
    assert np.abs(seen[:, 0]).max() < 0.052  # the tip begins at 54 mm
    peer.until(lambda: [m for m in meshes if seconds_of(m.header.stamp) >= last_s - 0.001], 60, "the twin shows it")
    shown = vertices_of(meshes[-1])
    assert meshes[-1].ns == "obstacles[0] arm/tip"
    np.testing.assert_allclose(0.5 * (shown.min(axis=0) + shown.max(axis=0))[:2], [0.084, 0.0], atol=1e-3)


def test_the_twin_draws_a_tool_that_the_scenes_own_path_leads(peer: Any, processes: Any, tmp_path: Path) -> None:
    """An estimate of half a second after the scene's start: the tool is where its path has it then, half of 10 cm on
    its way. Nothing is simulated beyond the estimate, so that its stamp is the mesh's."""
    file = tmp_path / "scene.yaml"
    path = "path: [{time_s: 0}, {time_s: 1, translation_m: [0.1, 0, 0]}]"
    place = "radius_m: 0.03, center_m: [0.2, 0, 1]}}"
    told = SCENE.replace("radius_m: 0.03}}", place).replace("tool_frame: arm/tip", path)
    file.write_text(told)
    scene = build_scene(load(SceneConfig, yaml.safe_load(told), "scene"), tmp_path)
    u, none = np.zeros((scene.body.node_count, 3)), np.zeros((0, 3))
    said = LiveEstimate(0.5, "tracking", (), scene.parameters, u, u, u, 1.0, 0.0, 0.0, np.zeros(0), none, 3, 0.1)
    meshes = peer.listen(Marker, "tool_mesh")
    process = processes.node("twin_node", scene=str(file), backend="cpu", horizon_s=0.0)
    states = peer.node.create_publisher(Float64MultiArray, "estimate_state", LATCHED)
    states.publish(state_message(stamp_of(100.5), said, stamp_of(100.0)))
    peer.until(lambda: meshes or process.poll() is not None, 90, "the tool is drawn")
    shown = vertices_of(meshes[-1])
    assert meshes[-1].ns == "obstacles[0]" and seconds_of(meshes[-1].header.stamp) == 100.5
    np.testing.assert_allclose(0.5 * (shown.min(axis=0) + shown.max(axis=0)), [0.25, 0.0, 1.0], atol=1e-3)
