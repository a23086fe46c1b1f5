"""The whole graph as separate processes: a simulated camera films a bouncing ball, and its stiffness is found.

None of it asks for the demo's 823 cells: the nodes film its ball on 179, or a smaller one of 120.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("rclpy")

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, qos_profile_sensor_data
from scipy.spatial import cKDTree
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Header
from std_srvs.srv import Trigger
from tiny_ball import write_scene
from visualization_msgs.msg import Marker

from soft_estimator.recordings.messages import seconds_of
from soft_estimator.ros.conversions import message_from_points, stamp_of
from soft_estimator.ros.drawings import vertices_of
from soft_estimator.ros.graph import GraphOptions, build_graph
from soft_estimator.ros.reports import STALE, values_in
from soft_estimator.ros.run import node_command
from soft_estimator.scene.files import read_scene
from soft_estimator.schema import to_plain

pytestmark = pytest.mark.slow

LATCHED = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
NODES = ("cloud_node", "estimator_node", "twin_node", "camera_node")
STIFFNESS = "youngs_modulus_pa"
# Beside other tests the machine is busy: film in slow motion. Stamps are the scene's time, so only waiting scales.
RATE = float(os.environ.get("SOFT_ESTIMATOR_FILM_RATE", "0.5"))


def coarser_demo(folder: Path) -> Path:
    """The demo's scene on 179 cells where its own are 823, before a camera of a quarter of the pixels."""
    scene = to_plain(read_scene("demo_drop")[0])
    scene["body"]["spacing_m"] = 0.0165
    scene["observe"]["cameras"][0] |= {"width_px": 320, "height_px": 240}
    path = folder / "demo.yaml"
    path.write_text(yaml.safe_dump(scene))
    return path


class DemoGraph:
    """The demo's four nodes, each a process that can be killed and started again."""

    def __init__(self, peer: Any, processes: Any, folder: Path, **options: Any) -> None:
        self.peer, self.processes, self.running = peer, processes, {}
        graph = build_graph("demo", GraphOptions(**{"rate": RATE, **options}))
        processes.environment.update(graph.environment)
        self.commands = {}
        for spec in graph.nodes:
            if spec.executable == "estimator_node":
                spec.parameters["save_to"] = str(folder / "saved")
            self.commands[spec.executable] = node_command(spec, folder)[2:]
        self.estimates = peer.listen(DiagnosticArray, "estimate", LATCHED)
        self.truth = peer.listen(DiagnosticArray, "ground_truth")
        self.clouds = peer.listen(PointCloud2, "object_points", qos_profile_sensor_data)
        self.meshes: list[Any] = []
        self.true_meshes: list[Any] = []

    def watch_meshes(self) -> None:
        """Take in the meshes, too: thousands of corners each, which take this process as long to read as a node needs
        for an update."""
        self.meshes = self.peer.listen(Marker, "mesh")
        self.true_meshes = self.peer.listen(Marker, "ground_truth/mesh", 100)

    def start(self, name: str) -> None:
        self.running[name] = self.processes.start(*self.commands[name])

    def all_alive(self) -> bool:
        return all(process.poll() is None for process in self.running.values())

    def newest_error(self) -> float | None:
        """Relative error of the newest stiffness, from what the graph itself publishes."""
        assert self.all_alive(), "a node has died"
        if not self.estimates or not self.truth:
            return None
        found, true = values_in(self.estimates[-1]), values_in(self.truth[-1])
        row = found.get(STIFFNESS)
        if row is None or row["level"] != "0":
            return None
        return abs(float(row["value"]) / float(true[f"{STIFFNESS}[0]"]["value"]) - 1.0)

    def tells_the_stiffness(self) -> bool:
        """Whether the newest stiffness is vouched for, known to a fifth, and holds the truth within two deviations."""
        error = self.newest_error()
        if error is None:
            return False
        row = values_in(self.estimates[-1])[STIFFNESS]
        relative_std = float(row["std"]) / float(row["value"])
        return relative_std < 0.2 and error * self._true_pa() < 2.0 * float(row["std"])

    def _true_pa(self) -> float:
        return float(values_in(self.truth[-1])[f"{STIFFNESS}[0]"]["value"])

    def mesh_distance(self) -> float | None:
        """Largest distance [m] of the newest mesh's vertices to the true mesh at the same time, both ways."""
        if not self.meshes:
            return None
        mesh = self.meshes[-1]
        stamp = seconds_of(mesh.header.stamp)
        true = sorted(self.true_meshes, key=lambda m: seconds_of(m.header.stamp))
        after = next((k for k, m in enumerate(true) if seconds_of(m.header.stamp) >= stamp - 1e-6), None)
        if after is None:
            return None
        late = true[after]
        early = true[max(after - 1, 0)]
        end, begin = seconds_of(late.header.stamp), seconds_of(early.header.stamp)
        if end - begin > 0.2 or stamp < begin - 1e-6:
            return None  # between two repetitions nobody knows
        share = 1.0 if end == begin else (stamp - begin) / (end - begin)
        surface = share * vertices_of(late) + (1 - share) * vertices_of(early)
        own = vertices_of(mesh)
        return max(cKDTree(surface).query(own)[0].max(), cKDTree(own).query(surface)[0].max())


def test_the_stiffness_and_the_shape_of_a_bouncing_ball_are_found(peer: Any, processes: Any, tmp_path: Path) -> None:
    """E is vouched for and right, and the mesh within one voxel of the demo's own, two minutes after the camera began
    to film: it took 14 s on two cores that did little else; with the demo's own cells and camera 20, and 15 to 54
    beside other work. Right is what the interval says: on slow cores, which see few frames, E may stay 8 % off for two
    minutes, at ± 12 %."""
    graph = DemoGraph(peer, processes, tmp_path, scene=str(coarser_demo(tmp_path)))
    for name in NODES:
        graph.start(name)
    peer.until(lambda: graph.truth, 240 / RATE, "the camera films")  # rendering and compiling come before
    begin = time.monotonic()
    voxel = read_scene("demo_drop")[0].body.spacing_m
    assert voxel is not None

    def found() -> bool:
        if not graph.tells_the_stiffness():
            return False
        off = graph.mesh_distance()
        return off is not None and off < voxel

    peer.until(graph.tells_the_stiffness, 120.0 / RATE, "E known and right")
    graph.watch_meshes()
    peer.until(found, 120.0 / RATE - (time.monotonic() - begin), "E known and right, and the mesh within a voxel")
    print(f"found after {time.monotonic() - begin:.1f} s, E off by {100 * graph.newest_error():.2f} %")
    answer = peer.call(Trigger, "/estimator_node/save", Trigger.Request())
    assert answer.success, answer.message
    saved = json.loads(Path(answer.message).read_text())
    assert saved["parameters"][0]["name"] == STIFFNESS


def test_every_node_may_be_killed_and_comes_back(peer: Any, processes: Any, tmp_path: Path) -> None:
    """The others go on, and a minute after the restart there are new estimates and meshes. The camera and the twin,
    which say nothing to one another, are killed at once: each node's neighbours live on."""
    graph = DemoGraph(peer, processes, tmp_path, scene=str(write_scene(tmp_path)), pause_s=0.3)
    graph.watch_meshes()
    for name in NODES:
        graph.start(name)
    peer.until(lambda: graph.estimates and graph.meshes, 300 / RATE, "the graph estimates")
    for names in (("cloud_node",), ("twin_node", "camera_node"), ("estimator_node",)):
        for name in names:
            graph.running[name].kill()
            graph.running[name].wait(10)
        peer.spin(0.5)
        left = {n: p for n, p in graph.running.items() if n not in names}
        assert all(p.poll() is None for p in left.values()), f"{names} took another node along"
        for name in names:
            graph.start(name)
        graph.clouds.clear()
        peer.until(lambda: graph.clouds, 200 / RATE, f"an object is found after {names} were killed")
        graph.estimates.clear()  # also those of what was waiting
        graph.meshes.clear()
        peer.until(
            lambda: graph.estimates and graph.meshes, 200 / RATE, f"the graph recovers after {names} were killed"
        )
        assert graph.all_alive()


def test_start_stop_and_reset_answer_while_it_computes_and_a_lost_object_is_stale(
    peer: Any, processes: Any, tmp_path: Path
) -> None:
    """After the camera's last frame come empty ones: the last estimate stays, marked STALE. One graph for both."""
    graph = DemoGraph(peer, processes, tmp_path, scene=str(write_scene(tmp_path)), twin=False)
    for name in ("cloud_node", "estimator_node", "camera_node"):
        graph.start(name)
    peer.until(lambda: graph.estimates, 300 / RATE, "there is an estimate")

    def call(name: str) -> Any:
        begin = time.monotonic()
        answer = peer.call(Trigger, f"/estimator_node/{name}", Trigger.Request())
        assert time.monotonic() - begin < 5.0 / RATE
        return answer

    assert call("stop").success
    assert call("start").success
    assert call("reset").success
    # Without frames there is nothing to save after a reset, and with frames there soon is.
    assert call("stop").success
    assert call("reset").success

    def forgotten() -> bool:
        answer = call("save")
        return not answer.success and answer.message == "there is no estimate yet"

    peer.until(forgotten, 60 / RATE, "the reset, which waits for the update at hand, has forgotten the estimate")
    assert call("start").success
    peer.until(lambda: call("save").success, 200 / RATE, "there is an estimate to save again")
    assert graph.all_alive()
    graph.estimates.clear()  # those of before are not what is held
    peer.until(lambda: graph.estimates, 200 / RATE, "the estimate that was saved, or a later one")
    graph.running["camera_node"].kill()
    publisher = peer.node.create_publisher(PointCloud2, "object_points", 10)
    peer.until(publisher.get_subscription_count, 60, "the estimator listens")

    def lost() -> bool:
        now = seconds_of(graph.estimates[-1].header.stamp)
        publisher.publish(message_from_points(Header(stamp=stamp_of(now + 1.5), frame_id="world"), np.empty((0, 3))))
        peer.spin(0.5)
        return all(s.level == STALE for s in graph.estimates[-1].status)

    peer.until(lost, 120 / RATE, "the object is lost")
    assert STIFFNESS in values_in(graph.estimates[-1])
