"""The end of a node: within seconds, with the right code, whatever the middleware waits for."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
needs_ros = pytest.mark.skipif(importlib.util.find_spec("rclpy") is None, reason="needs rclpy")

# A call of C that keeps the interpreter's lock, as rclpy's do: no other thread of Python runs, nor any handler.
STUCK = "import ctypes\ndef stuck(): ctypes.PyDLL(None).sleep(60)\n"
NODE = """
import os, signal, sys, rclpy
from rclpy.node import Node
from soft_estimator.ros.running import run_node

class Some(Node):
    def __init__(self):
        super().__init__("some")
        self.create_timer(0.2, lambda: print("spins", flush=True))
    def close(self):
        return True
"""
MAIN = "sys.exit(run_node(Some, []))\n"


def start(text: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("code", [0, 2])
def test_the_time_ends_a_process_that_keeps_the_interpreters_lock(code: int) -> None:
    text = STUCK + f"from soft_estimator.ros.ending import exit_after\nexit_after(0.6, {code})\nexit_after(0.1, 9)\n"
    process = start(text + "stuck()\n")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code
    assert "in stuck" in errors  # where it stood


def test_a_process_that_ends_in_time_is_left_alone() -> None:
    process = start("import sys\nfrom soft_estimator.ros.ending import exit_after\nexit_after(30.0, 2)\nsys.exit(3)\n")
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (3, "")


@pytest.mark.parametrize("node", ["camera_node", "cloud_node", "estimator_node", "twin_node"])
def test_an_interrupt_while_a_node_loads_ends_it_cleanly(node: str, tmp_path: Path) -> None:
    """numpy stands for all that is loaded before rclpy; here it takes half a minute."""
    (tmp_path / "numpy.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(30)\n")
    paths = f"{tmp_path}:{ROOT}"
    process = start(f"from soft_estimator.ros.start import {node}\n{node}()\n", PYTHONPATH=paths)
    assert process.stdout is not None and process.stdout.readline() == "loading\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize("given, threads", [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_numpy_is_loaded_with_one_blas_thread_unless_told_otherwise(given, threads, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text(
        "import os\nprint(os.environ['OPENBLAS_NUM_THREADS'], flush=True)\nos._exit(0)\n"
    )
    none = {"OPENBLAS_NUM_THREADS": "", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    code = "import os\nif not os.environ['OPENBLAS_NUM_THREADS']: del os.environ['OPENBLAS_NUM_THREADS']\n"
    process = start(
        f"{code}from soft_estimator.ros.start import estimator_node\nestimator_node()\n", **{**none, **given}
    )
    assert process.communicate(timeout=20)[0] == f"{threads}\n"


@needs_ros
def test_a_node_ends_though_the_middleware_does_not_let_go(domain: int) -> None:
    hung = "Some.destroy_node = lambda self: stuck()\n"
    process = start(STUCK + NODE + hung + MAIN, ROS_DOMAIN_ID=str(domain))
    assert process.stdout is not None and process.stdout.readline() == "spins\n"
    begun_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=40)
    assert process.returncode == 0, errors
    assert time.monotonic() - begun_s < 5.0  # when `ros2 launch` sends SIGTERM
    assert "in stuck" in errors


@needs_ros
def test_an_interrupt_before_rclpy_listens_is_not_lost(domain: int) -> None:
    """Between Python's handler and rclpy's lies the start of the middleware."""
    early = "begin = rclpy.init\ndef init(**given):\n    os.kill(os.getpid(), signal.SIGINT)\n    begin(**given)\n"
    process = start(NODE + early + "rclpy.init = init\n" + MAIN, ROS_DOMAIN_ID=str(domain))
    try:
        out, errors = process.communicate(timeout=40)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail("the node spins on")
    assert (process.returncode, out) == (0, ""), errors
