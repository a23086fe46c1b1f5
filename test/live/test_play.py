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
while time.monotonic() < end and len(got["cloud"]) < 4:
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
            said = []
            assert player.stderr is not None
            said.append(player.stderr.readline())  # what is left out is said before the first message
            assert listener.stdout.readline() == "first\n"
            time.sleep(0.2)
            player.send_signal(signal.SIGUSR1)
            said.append(player.stderr.readline())
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
    assert "paused" in said[1]
    # The clock never runs back, stays within the recording, and ticks about a hundred times a second.
    clock = got["clock"]
    assert clock == sorted(clock) and clock[0] > 0.99 and clock[-1] < 1.046 and len(clock) > 60
    # 1.35 s of play and 1 s of pause; a busy machine may be late, never early.
    assert got["cloud"][-1][0] - got["cloud"][0][0] > 2.2
