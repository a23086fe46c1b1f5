"""Where the viewer's updates come from: the simulated camera, a recorded bag, and the topics of a graph."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soft_estimator.backends import choose_backend
from soft_estimator.live.replay_config import ReplayConfig, load_replay
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.viewer.replay_source import ReplaySource
from soft_estimator.viewer.updates import Source


@contextmanager
def running(source: Source, viewer: Any) -> Iterator[None]:
    """A source at work in a thread, as the command has it."""
    stop = threading.Event()
    thread = threading.Thread(target=source.run, args=(viewer, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def small() -> tuple[Scene, ReplayConfig]:
    """The demo's ball, coarser, seen in fewer pixels and just for its first frames."""
    config, folder = load_replay({"scene": "demo_drop"}, Path())
    scene = config.scene
    assert scene.observe is not None
    camera = replace(scene.observe.cameras[0], width_px=160, height_px=120)
    observe = replace(scene.observe, cameras=(camera,), duration_s=0.17)
    body = replace(scene.body, spacing_m=0.02)
    scene = replace(scene, observe=observe, body=body)
    config = replace(config, scene=scene, window=replace(config.window, start="scene", iterations=1))
    return build_scene(scene, folder), config


def test_a_simulated_camera_feeds_the_viewer(small: tuple[Scene, ReplayConfig], keeper: Any) -> None:
    scene, config = small
    source = ReplaySource(scene, config, choose_backend("cpu"), rate=100.0)
    with running(source, keeper):
        update = keeper.wait(lambda u: u.parameters is not None, 120)
        assert update.mesh is not None and update.points_m is not None and update.plane is not None
        assert update.mesh.vertices_m.shape == scene.body.surface_positions_m().shape
        assert set(update.mesh.colours) == {"residual", "strain"}
        # Points of the ball lie on the twin, to a few times the camera's noise of about 1 mm.
        away = np.linalg.norm(update.points_m[:, None] - update.mesh.vertices_m[None], axis=2).min(axis=1)
        assert np.median(away) < scene.body.grid.spacing_m
        names = {p.name: p for p in update.parameters}
        assert names["youngs_modulus_pa"].truth == pytest.approx(8000)
        assert names["youngs_modulus_pa"].low < names["youngs_modulus_pa"].value < names["youngs_modulus_pa"].high
        keeper.wait(lambda u: u.status == "ended", 120)
        # After a reset it begins anew; paused it takes no frame.
        source.pause(True)
        count, cleared = len(keeper.updates), keeper.cleared
        assert source.reset() == "begins anew"
        keeper.wait(lambda u: u in keeper.updates[count:], 120)
        assert keeper.cleared == cleared + 1


def test_the_graph_feeds_the_viewer(
    keeper: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: tuple[Scene, ReplayConfig]
) -> None:
    """Messages as the nodes make them go in; a service stands for the estimator's reset."""
    rclpy = pytest.importorskip("rclpy", reason="needs rclpy")
    monkeypatch.setenv("ROS_DOMAIN_ID", "87")
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    monkeypatch.setenv("ROS_LOG_DIR", str(tmp_path))
    from diagnostic_msgs.msg import DiagnosticArray
    from geometry_msgs.msg import PoseStamped
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.qos import QoSDurabilityPolicy, QoSProfile
    from sensor_msgs.msg import PointCloud2
    from std_srvs.srv import Trigger
    from visualization_msgs.msg import Marker

    from soft_estimator.ros.conversions import header_at, message_from_points, stamp_of
    from soft_estimator.ros.drawings import mesh_marker, plane_pose
    from soft_estimator.ros.reports import key_values
    from soft_estimator.ros.view_source import TopicSource

    scene = small[0]
    vertices, faces = scene.body.surface_positions_m(), scene.body.surface.faces
    colours = np.random.default_rng(0).random((len(vertices), 3))
    header = header_at(stamp_of(5.0), "world")
    row = {"value": 8100.0, "std": 100.0, "low": 7900.0, "high": 8300.0, "unit": "Pa", "observable": "true"}
    whole = {"status": "tracking", "frames_in_window": 7, "rms_residual_m": 0.0005, "update_s": 0.02}
    estimate = DiagnosticArray(header=header)
    for name, values in (("window", whole), ("youngs_modulus_pa", {**row, "reason": ""})):
        status = rclpy_status(name, key_values(values))
        estimate.status = [*estimate.status, status]
    messages = {
        "object_points": message_from_points(header, vertices[::3]),
        "mesh": mesh_marker(header, vertices, faces, colours, namespace="twin"),
        "contact_plane": plane_pose(header, np.array([0.0, 0, 1]), -0.01, vertices.mean(axis=0)),
        "estimate": estimate,
    }
    context, asked = rclpy.Context(), threading.Event()
    rclpy.init(context=context)
    node = rclpy.create_node("estimator_node", context=context)
    latched = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
    kinds = {"object_points": PointCloud2, "mesh": Marker, "contact_plane": PoseStamped, "estimate": DiagnosticArray}
    out = {n: node.create_publisher(kinds[n], n, latched if n == "estimate" else 10) for n in kinds}

    def answer(_: Any, response: Any) -> Any:
        asked.set()
        return response

    node.create_service(Trigger, "~/reset", answer)
    node.create_timer(0.1, lambda: [out[n].publish(m) for n, m in messages.items()])
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    done = threading.Event()

    def spin() -> None:
        while not done.is_set():
            executor.spin_once(timeout_sec=0.1)

    thread = threading.Thread(target=spin)
    thread.start()
    source = TopicSource()
    try:
        with running(source, keeper):
            points = keeper.wait(lambda u: u.points_m is not None).points_m
            assert points == pytest.approx(vertices[::3], abs=1e-6)
            twin = keeper.wait(lambda u: u.mesh is not None).mesh
            # The marker lists corners; put together again, the triangles are the ones that went in.
            assert twin.vertices_m[twin.faces] == pytest.approx(vertices[faces], abs=1e-9)
            shown = twin.colours["as the twin node says"][twin.faces]
            assert shown == pytest.approx(colours[faces], abs=1e-6)
            normal, offset_m = keeper.wait(lambda u: u.plane is not None).plane
            assert normal == pytest.approx([0, 0, 1], abs=1e-9) and offset_m == pytest.approx(-0.01)
            update = keeper.wait(lambda u: u.parameters is not None)
            assert update.status == "tracking" and update.parameters[0].value == 8100.0
            assert update.line == "7 frames in the window, 0.50 mm off, 20 ms an update"
            assert source.reset() == "asked the estimator to start anew"
            assert asked.wait(20)
    finally:
        done.set()
        thread.join()
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown(context=context)


def rclpy_status(name: str, values: Any) -> Any:
    from diagnostic_msgs.msg import DiagnosticStatus

    return DiagnosticStatus(level=DiagnosticStatus.OK, name=name, values=values)
