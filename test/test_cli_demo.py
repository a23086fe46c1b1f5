"""`demo` where there is no ROS: said in one line, and the same job done from a bag."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tiny_ball import write_scene

from soft_estimator.cli import main


@pytest.fixture
def without_ros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rclpy", None)  # as where it is not installed


def test_without_ros_the_demo_runs_from_a_bag(
    tmp_path: Path, without_ros: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Camera, bag, replay and report of a small ball's drop: exit code 0, one line on ROS, the files of the demo.

    The ball was made by the model itself and without noise: E comes back within 1 %, as in test_replay.
    """
    scene, out = write_scene(tmp_path), tmp_path / "demo"
    asked = ["demo", "--scene", str(scene), "--out", str(out), "--backend", "cpu"]
    assert main([*asked, "--json"]) == 0
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("soft-estimator: note: rclpy is not installed")
    metrics = json.loads(printed.out)
    assert abs(metrics["parameters"][0]["error_relative"]) < 0.01
    files = {"report.html", "metrics.json", "animation.gif", "estimates.csv", "replay.yaml", "rest_shape.npz", "bag"}
    assert {path.name for path in out.iterdir()} == files
    assert b"<html" in (out / "report.html").read_bytes()[:200].lower()
    assert (out / "animation.gif").read_bytes()[:6] == b"GIF89a"


def test_a_demo_too_short_for_an_estimate_says_so(
    tmp_path: Path, without_ros: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """One frame is not enough for the window; exit code 2 and the remedy."""
    scene = write_scene(tmp_path)
    assert main(["demo", "--scene", str(scene), "--out", str(tmp_path / "demo"), "--seconds", "0.016"]) == 2
    assert "gave no estimate; watch longer with --seconds" in capsys.readouterr().err
