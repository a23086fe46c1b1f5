"""camera_node and twin_node as processes, each checked against the core it shows."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
from rclpy.qos import QoSDurabilityPolicy, QoSProfile
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from shape_msgs.msg import Mesh
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger
from visualization_msgs.msg import Marker

from soft_estimator.backends import choose_backend
from soft_estimator.camera.rendering import watch_scene
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.recordings.messages import depth_of, lens_of, points_of, seconds_of
from soft_estimator.ros.conversions import stamp_of
from soft_estimator.ros.drawings import vertices_of
from soft_estimator.ros.reports import state_message, values_in
from soft_estimator.scene.files import read_scene
from soft_estimator.scene.scene import Scene, build_scene

LATCHED = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
SCENE = """
name: small_drop
body: {shape: {sphere: {radius_m: 0.05, center_m: [0, 0, 0.1]}}, spacing_m: 0.025}
material: {youngs_modulus_pa: 20000}
gravity_m_s2: [0, 0, -9.81]
contact: {normal: [0, 0, 1]}
time: {step_s: 0.005, duration_s: 0.1}
observe:
  cameras: [{eye_m: [0.5, 0, 0.3], target_m: [0, 0, 0.05], up: [0, 0, 1], width_px: 64, height_px: 48}]
  frame_rate_hz: 40
  noise: {kind: none}
estimate: {parameters: [youngs_modulus_pa]}
"""


@pytest.fixture
def scene_file(tmp_path: Path) -> Path:
    path = tmp_path / "small_drop.yaml"
    path.write_text(SCENE)
    return path


def built(path: Path) -> Scene:
    config, folder = read_scene(str(path))
    return build_scene(config, folder)


def test_the_stepped_camera_shows_what_the_scene_shows(peer: Any, processes: Any, scene_file: Path) -> None:
    clouds = peer.listen(PointCloud2, "camera/points")
    images, infos = peer.listen(Image, "camera/depth/image"), peer.listen(CameraInfo, "camera/depth/camera_info")
    truth, meshes = peer.listen(DiagnosticArray, "ground_truth"), peer.listen(Marker, "ground_truth/mesh")
    poses = peer.listen(PoseStamped, "camera/pose", LATCHED)
    process = processes.node("camera_node", scene=str(scene_file), stepped=True, repeats=2, pause_s=1.0)
    heard = {
        "camera/points": clouds,
        "camera/depth/image": images,
        "camera/depth/camera_info": infos,
        "ground_truth": truth,
        "ground_truth/mesh": meshes,
    }
    peer.linked(*heard)
    scene = built(scene_file)
    wanted = list(watch_scene(scene, choose_backend("cpu", "float64")))
    assert len(wanted) == 5
    peer.until(lambda: step(peer).success, 120, "the film is ready")
    for _ in range(2 * len(wanted) - 1):
        assert step(peer).success
    refused = step(peer)
    assert not refused.success and refused.message == "every repetition was played"
    peer.until(lambda: all(len(box) == 10 for box in heard.values()), 60, "every frame came, on every topic")
    assert clouds[0].header.frame_id == "camera_depth_optical_frame"
    for got, seen in zip(clouds, wanted + wanted):
        # the scene's own points, as float32; this scene's camera has no noise
        np.testing.assert_allclose(points_of(got), seen.points_m[0], rtol=2e-6, atol=1e-7)
    begin = seconds_of(clouds[0].header.stamp)
    stamps = [seconds_of(m.header.stamp) - begin for m in clouds]
    times = [f.time_s for f in wanted]
    # the second repetition begins a frame and the pause after the first
    np.testing.assert_allclose(stamps, [*times, *(t + times[-1] + 0.025 + 1.0 for t in times)], atol=2e-6)
    row = values_in(truth[0])["youngs_modulus_pa[0]"]
    assert (float(row["value"]), row["unit"]) == (20000.0, "Pa")
    np.testing.assert_allclose(vertices_of(meshes[2]), wanted[2].surface_m[scene.body.surface.faces.ravel()], atol=1e-9)
    depth, lens = depth_of(images[-1]), lens_of(infos[-1])
    np.testing.assert_allclose(depth, np.nan_to_num(points_of(clouds[-1])[..., 2]), rtol=1e-6)
    assert (lens.width_px, lens.height_px) == (64, 48)
    peer.until(lambda: poses, 60, "the camera's pose is latched")
    assert poses[0].pose.position.x == 0.5
    assert process.poll() is None


def test_noise_is_drawn_anew_for_each_frame() -> None:
    """A film shown twice has other noise the second time, of a + b z² along the ray: 3,072 draws tell it to 5 %."""
    from types import SimpleNamespace

    from soft_estimator.config_estimation import NoiseConfig
    from soft_estimator.ros.camera_node import AxialNoise

    config: Any = SimpleNamespace(observe=SimpleNamespace(noise=NoiseConfig(), seed=0))
    noise = AxialNoise(config, (48, 64))
    exact = np.zeros((48, 64, 3), dtype=np.float32)
    exact[..., 0], exact[..., 2] = 0.1, 0.8
    first, second = noise.on(exact), noise.on(exact)
    for got in (first, second, (second - first) / np.sqrt(2) + exact):
        assert np.std(got[..., 2] - 0.8) == pytest.approx(0.0005 + 0.0025 * 0.8**2, rel=0.05)
    np.testing.assert_allclose(first[..., 0] / first[..., 2], 0.125, rtol=1e-5)  # along the ray


def step(peer: Any) -> Any:
    return peer.call(Trigger, "/camera_node/step", Trigger.Request(), 90)


def test_the_camera_plays_in_real_time(peer: Any, processes: Any, scene_file: Path) -> None:
    clouds = peer.listen(PointCloud2, "camera/points")
    processes.node("camera_node", scene=str(scene_file), rate=0.25)
    peer.until(lambda: clouds, 120, "the first frame came")
    # Stamps count the scene's time from when the film began, by the same clock as here: a frame half a second after
    # another is sent two seconds after that one's stamp, or later. A busy machine leaves frames out or is late, never
    # early, whenever this process gets to hear of it.
    first = seconds_of(clouds[0].header.stamp)
    peer.until(lambda: seconds_of(clouds[-1].header.stamp) - first > 0.5, 60, "the film goes on")
    assert time.time() - first > 4 * (seconds_of(clouds[-1].header.stamp) - first) - 0.01


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ({"scene": "no_such_scene"}, "no built-in scene 'no_such_scene'"),
        ({}, "missing key 'scene' in the parameters; add it: a scene file or the name of a built-in scene"),
        ({"scene": "demo_drop", "camera": 3}, "camera = 3 does not exist; the scene has 1"),
    ],
)
def test_a_wrong_scene_is_told_in_one_line(processes: Any, parameters: dict[str, Any], line: str) -> None:
    process = processes.node("camera_node", **parameters)
    assert process.wait(90) == 2
    assert f"error: {line}" in processes.output(process)


def falling(scene: Scene, nodes: int | None = None) -> LiveEstimate:
    """An estimate that says: at rest, undeformed, in the air."""
    count = scene.body.node_count if nodes is None else nodes
    zero = np.zeros((count, 3))
    return LiveEstimate(
        0.0, "tracking", (), scene.parameters, zero, zero, zero, 1.0, 0.0, 0.0, np.zeros(0), np.zeros((0, 3)), 3, 0.1
    )


def test_the_twin_falls_from_the_estimate_to_its_horizon(peer: Any, processes: Any, scene_file: Path) -> None:
    """Free fall: after t every point is g t²/2 lower. Backward Euler, the worst of schemes, is off by g dt t / 2."""
    scene = built(scene_file)
    meshes, rest = peer.listen(Marker, "mesh"), peer.listen(Marker, "mesh_rest", LATCHED)
    shapes, points = peer.listen(Mesh, "mesh_shape"), peer.listen(PointCloud2, "predicted_points")
    process = processes.node("twin_node", scene=str(scene_file), horizon_s=0.08, backend="cpu")
    publisher = peer.node.create_publisher(Float64MultiArray, "estimate_state", LATCHED)
    peer.until(lambda: rest, 90, "the rest mesh is latched")
    surface, faces = scene.body.surface_positions_m(), scene.body.surface.faces
    np.testing.assert_allclose(vertices_of(rest[0]), surface[faces.ravel()], atol=1e-9)
    now = stamp_of(time.time() - 10.0)
    publisher.publish(state_message(now, falling(scene)))

    def reached() -> bool:
        return bool(meshes) and seconds_of(meshes[-1].header.stamp) - seconds_of(now) > 0.079

    peer.until(reached, 60, "the twin has come to its horizon")
    t, g, dt = seconds_of(meshes[-1].header.stamp) - seconds_of(now), 9.81, 0.005
    assert t == pytest.approx(0.08, abs=1e-5)
    fallen = surface[faces.ravel()] - vertices_of(meshes[-1])
    np.testing.assert_allclose(fallen[:, 2], 0.5 * g * t**2, atol=0.5 * g * dt * t + 1e-4)
    np.testing.assert_allclose(fallen[:, :2], 0.0, atol=1e-4)
    peer.until(lambda: shapes and points, 60, "shape and points have come, too")
    assert len(shapes[-1].vertices) == len(surface) and points_of(points[-1]).shape == surface.shape
    late = peer.listen(Marker, "/mesh")  # by its full name: heard apart from the first
    peer.until(lambda: late, 60, "who comes to look at the horizon is shown it")
    assert vertices_of(late[-1]) == pytest.approx(vertices_of(meshes[-1]))
    publisher.publish(state_message(now, falling(scene, nodes=3)))
    told = "give both the same scene"
    peer.until(lambda: (d := peer.diagnosis("twin_node")) is not None and told in d.message, 60, "the mismatch is told")
    count = len(meshes)
    publisher.publish(state_message(stamp_of(time.time()), replace(falling(scene), status="tracking")))
    peer.until(lambda: len(meshes) > count, 60, "the twin goes on after a bad state")
    assert process.poll() is None
