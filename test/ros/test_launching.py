"""The graphs under the real `launch`, which a ROS install has: how a launch ends is how its processes ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


def launched(*code: str, linger_s: float = 0.0) -> subprocess.CompletedProcess[str]:
    """A graph of one command, started by launch."""
    program = (
        "import sys; from launch import LaunchDescription, LaunchService\n"
        "from soft_estimator.ros.graph import Graph\nfrom soft_estimator.ros.launching import graph_actions\n"
        f"graph = Graph((), ((sys.executable, '-c', {chr(10).join(code)!r}),), linger_s={linger_s})\n"
        "service = LaunchService()\nservice.include_launch_description(LaunchDescription(graph_actions(graph)))\n"
        "sys.exit(service.run())"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=60)


def test_a_player_that_ends_well_ends_the_launch_with_0() -> None:
    pytest.importorskip("launch_ros")
    done = launched("print('played')")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "played" in done.stdout + done.stderr


@pytest.mark.parametrize(("code", "ends"), [(0, False), (1, False), (-9, False), (2, True)])
def test_of_nodes_that_are_started_anew_only_a_mistake_in_their_parameters_ends_all(code: int, ends: bool) -> None:
    pytest.importorskip("launch_ros")
    from soft_estimator.ros.launching import after_end

    react = after_end("cloud_node", [], restart=True)
    event, context = SimpleNamespace(returncode=code), SimpleNamespace(is_shutdown=False)
    if ends:
        with pytest.raises(RuntimeError, match="cloud_node ended with exit code 2"):
            react(event, context)
    else:
        assert react(event, context) is None


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise SystemExit(3)", "player ended with exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "player ended with signal SIGKILL"),
    ],
)
def test_a_process_that_fails_makes_the_launch_fail_in_one_line(code: str, told: str) -> None:
    """launch alone would end with 0 after a node has died, and a script that started it would go on."""
    pytest.importorskip("launch_ros")
    done = launched(code)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "ended with" in line]
    assert done.returncode == 1, done.stdout + done.stderr
    assert len(said) == 1 and told in said[0]
    assert "Traceback" not in done.stdout + done.stderr
