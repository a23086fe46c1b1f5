"""Playing a bag into a running graph: every message arrives, with /clock, at the wanted pace, and it can be paused."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("rclpy") is None, reason="rclpy is not installed")

LISTENER = """
import json, sys, time
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import PointCloud2
rclpy.init()
node = rclpy.create_node("listener")
got = {"clock": [], "cloud": [], "truth": []}
node.create_subscription(Clock, "/clock", lambda m: got["clock"].append(m.clock.sec + 1e-9 * m.clock.nanosec), 100)
node.create_subscription(DiagnosticArray, "/ground_truth", lambda m: got["truth"].append(m.status[0].name), 10)
def cloud(m):
    if not got["cloud"]:
        print("first", flush=True)
    got["cloud"].append((time.monotonic(), m.header.stamp.sec + 1e-9 * m.header.stamp.nanosec, m.width * m.height))
node.create_subscription(PointCloud2, "/camera/points", cloud, 10)
print("listening", flush=True)
end = time.monotonic() + 40
while time.monotonic() < end and min(len(got["cloud"]), len(got["truth"])) < 4:
    rclpy.spin_once(node, timeout_sec=0.1)
end = time.monotonic() + 0.5
while time.monotonic() < end:
    rclpy.spin_once(node, timeout_sec=0.1)
print(json.dumps(got))
"""


def environment(folder: Path) -> dict[str, str]:
    settings = {"ROS_DOMAIN_ID": str(os.getpid() % 100 + 1), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    return {**os.environ, **settings, "ROS_LOG_DIR": str(folder), "NUMBA_NUM_THREADS": "1"}


@pytest.mark.parametrize("short_bag", ["mcap"], indirect=True)
def test_a_bag_is_played_with_its_clock_and_paused(short_bag: Path, tmp_path: Path) -> None:
    around = environment(tmp_path)
    listener = subprocess.Popen(
        [sys.executable, "-c", LISTENER], env=around, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert listener.stdout is not None and listener.stdout.readline() == "listening\n"
        # 45 ms of recording at a thirtieth of its speed are 1.35 s
        command = [sys.executable, "-m", "soft_estimator", "replay", str(short_bag), "--play", "--rate", "0.03333"]
        with subprocess.Popen(
            [*command, "--json"], env=around, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as player:
            assert player.stderr is not None
            assert listener.stdout.readline() == "first\n"
            time.sleep(0.2)
            player.send_signal(signal.SIGUSR1)
            # What is left out comes first: /tf_static, where tf2_msgs is not installed.
            assert any("paused" in line for line in iter(player.stderr.readline, ""))
            time.sleep(1.0)
            player.send_signal(signal.SIGUSR1)
            out, rest = player.communicate(timeout=60)
            assert player.returncode == 0, rest
        heard, errors = listener.communicate(timeout=60)
    finally:
        listener.kill()
    got = json.loads(heard)
    assert [row[1] for row in got["cloud"]] == [1.0, 1.015, 1.03, 1.045], errors
    assert {row[2] for row in got["cloud"]} == {160 * 120}
    assert got["truth"] == ["youngs_modulus_pa[0]"] * 4
    assert json.loads(out)["/camera/points"] == 4
    # The clock never runs back, stays within the recording, and ticks about a hundred times a second.
    clock = got["clock"]
    assert clock == sorted(clock) and clock[0] > 0.99 and clock[-1] < 1.046 and len(clock) > 60
    # 1.35 s of play and 1 s of pause; a busy machine may be late, never early.
    assert got["cloud"][-1][0] - got["cloud"][0][0] > 2.2


# The middleware does not let go, and keeps the interpreter's lock meanwhile. Nobody listens.
STUCK_PLAYER = """
import ctypes, functools, sys
from rclpy.node import Node
from soft_estimator.cli import main
from soft_estimator.ros import play
Node.destroy_node = lambda self: ctypes.PyDLL(None).sleep(60)
play.play_bag = functools.partial(play.play_bag, wait_s=0.1)
sys.exit(main(["replay", sys.argv[1], "--play", "--json"]))
"""


@pytest.mark.parametrize("short_bag", ["mcap"], indirect=True)
def test_the_player_ends_though_the_middleware_does_not_let_go(short_bag: Path, tmp_path: Path) -> None:
    """A replay waits for its end; what it has to say is said before."""
    command = [sys.executable, "-c", STUCK_PLAYER, str(short_bag)]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=55, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["/camera/points"] == 4


def test_the_player_waits_for_estimators_that_are_ready_and_until_nothing_waits_anywhere() -> None:
    """By what nodes say on /diagnostics: a replay begins when windows are made, and ends when all frames are used."""
    from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

    from soft_estimator.ros.play import NodeWatch

    class Node:
        """Stands for the player's node: what comes in is handed over below."""

        def create_subscription(self, *_: object) -> None:
            pass

        def get_node_names_and_namespaces(self) -> list[tuple[str, str]]:
            return listed

    now_s, listed = [0.0], [("estimator_node", "/arm"), ("cloud_node", "/arm")]
    watch = NodeWatch(Node(), lambda: now_s[0])

    def says(name: str, **values: str) -> None:
        status = DiagnosticStatus(name=name, values=[KeyValue(key=k, value=v) for k, v in values.items()])
        watch.listen(DiagnosticArray(status=[status]))

    says("someone_else", window="tracking", active="true")
    assert not watch.estimating and not watch.ready
    says("arm/estimator_node", window="preparing", active="true", frames_waiting="0")
    assert watch.estimating and not watch.ready
    says("arm/estimator_node", window="starting", active="true", frames_waiting="0")
    assert watch.ready and not watch.finding
    says("arm/cloud_node", clouds_waiting="0", preparing="true")
    assert watch.finding and not watch.ready
    says("arm/cloud_node", clouds_waiting="0", preparing="false")
    assert watch.ready
    says("leg/estimator_node", window="starting", active="false", frames_waiting="0")
    assert not watch.ready  # a manager holds it back
    now_s[0] = 3.0
    says("arm/estimator_node", window="tracking", active="true", frames_waiting="2")
    says("arm/cloud_node", clouds_waiting="0")
    now_s[0] = 6.0  # the leg was not heard for longer than five seconds, and the graph has none: it is gone
    assert watch.ready and not watch.digested(2.0)
    says("arm/estimator_node", window="tracking", active="true", frames_waiting="0", working="true")
    assert not watch.digested(2.0)  # the last frame is at hand
    says("arm/estimator_node", window="tracking", active="true", frames_waiting="0", working="false")
    assert watch.digested(2.0)
    assert not watch.digested(4.0)  # the cloud's node has not reported since
    says("arm/estimator_node", window="tracking", active="true", frames_waiting="3", working="true")
    now_s[0] = 12.0  # the arm's estimator is silent, too, but still there: deep in its work
    says("arm/cloud_node", clouds_waiting="0")
    assert watch.estimating and not watch.digested(10.0)
    listed.pop(0)  # now it is gone
    assert not watch.estimating and watch.digested(10.0)


def test_of_all_who_listen_to_a_camera_the_player_waits_for_the_node_that_looks_for_the_object() -> None:
    """A recorder or RViz may listen long before: 28 clouds of a recording were played to one alone, and all lost."""
    from soft_estimator.recordings.bag_files import Topic
    from soft_estimator.ros.play import Player

    listeners = ["rviz2"]

    class Node:
        """Stands for the player's node: it tells who listens."""

        def create_publisher(self, kind: object, name: str, qos: object) -> SimpleNamespace:
            return SimpleNamespace(topic_name=name)

        def get_subscriptions_info_by_topic(self, name: str) -> list[SimpleNamespace]:
            return [SimpleNamespace(node_name=n) for n in listeners] if name == "/camera/points" else []

    topics = [Topic("/camera/points", "sensor_msgs/msg/PointCloud2", 28), Topic("/other", "std_msgs/msg/String", 1)]
    player = Player(Node(), SimpleNamespace(topics=topics))  # type: ignore[arg-type]
    assert not player.reaches("cloud_node")
    listeners.append("cloud_node")
    assert player.reaches("cloud_node")
