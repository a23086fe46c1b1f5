"""Every command of README.md is run, as it stands there, with the files it names put in place."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from measuring_film import BALL

import soft_estimator as se
from soft_estimator.export import export

ROOT = Path(__file__).resolve().parent.parent


def readme_commands(program: str) -> list[str]:
    """Lines of README's code blocks that call a program, without their comments."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    found = [line.strip().partition("  #")[0].strip() for line in lines if line.startswith(f"    {program} ")]
    return [line.partition(" # ")[0].strip() for line in found]


COMMANDS = readme_commands("soft-estimator")
# These go on until they are interrupted.
SERVING = ("soft-estimator view", "soft-estimator run live")


def test_readme_has_commands() -> None:
    names = {shlex.split(line)[1] for line in COMMANDS}
    assert {
        "doctor",
        "measure",
        "view",
        "inspect",
        "scan",
        "run",
        "replay",
        "scenes",
        "simulate",
        "estimate",
        "record",
    } <= names


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {shlex.split(line)[1] for line in readme_commands("make")}
    assert {"demo", "test"} <= named <= targets


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def place(film: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recording of an object that lies still, and is dropped."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(film, folder / "BAG")
    return folder


def call(arguments: list[str], folder: Path, seconds: float = 1200) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ROS_LOG_DIR": str(folder), "NO_COLOR": "1"}
    if "PYTEST_XDIST_WORKER" in os.environ:  # the other core is busy
        environment["NUMBA_NUM_THREADS"] = "1"
    command = [sys.executable, "-m", "soft_estimator", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds)


MEASURE = next(line for line in COMMANDS if line.startswith("soft-estimator measure"))
ENDING = [line for line in COMMANDS if not line.startswith((*SERVING, MEASURE))]
RECORDED = [line for line in ENDING if "BAG" in line or "out/mine" in line]


@pytest.fixture(scope="module")
def measured(place: Path) -> subprocess.CompletedProcess[str]:
    """The object that README measures, for the commands that go on from it."""
    return call(shlex.split(MEASURE)[1:], place)


@pytest.mark.slow
def test_a_ball_is_measured_with_one_command(measured: subprocess.CompletedProcess[str], place: Path) -> None:
    """The truth was simulated with other cells and steps. A shape from one side is good to some per cent, and E follows
    it: within 20 %, and inside its 95 % interval. The scene that is written is read again as it is."""
    assert measured.returncode == 0, measured.stdout[-2000:] + measured.stderr[-2000:]
    out = place / "out" / "mine"
    written = {"scene.yaml", "body.npz", "rest_shape.npz", "measurement.json", "report.html"}
    assert {file.name for file in out.iterdir()} == written
    found = json.loads((out / "measurement.json").read_text(encoding="utf-8"))
    assert found["sentence"].startswith("Young's modulus is ") and found["sentence"] in measured.stdout
    assert found["shape"]["kind"] == "ball"
    assert found["shape"]["volume_m3"] == pytest.approx(4 / 3 * np.pi * 0.045**3, rel=0.1)
    stiffness, truth = found["parameters"][0], BALL.youngs_modulus_pa
    assert stiffness["value"] == pytest.approx(truth, rel=0.2) and stiffness["low_95"] < truth < stiffness["high_95"]
    (pose,) = re.findall(r"--sensor-pose '([^']*)'", (out / "scene.yaml").read_text(encoding="utf-8"))
    numbers = np.array([float(word) for word in pose.split()])
    assert np.linalg.norm(numbers[3:]) == pytest.approx(1.0, abs=1e-4)
    # The film's camera stands 0.34 m above the table; the fitted plane is good to a millimetre or so.
    assert numbers[2] == pytest.approx(0.34, abs=0.005)
    # It was weighed: whatever the volume, the mass is right.
    assert se.read_scene(out / "scene.yaml").mass_kg == pytest.approx(0.158, rel=0.01)
    assert export(out, "json", place / "bodies", 1)["mesh"]["mass_kg"] == pytest.approx(0.158, rel=0.02)


def check_command(line: str, folder: Path) -> None:
    ran = call(shlex.split(line)[1:], folder)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("line", RECORDED)
def test_command_on_a_recording_works(line: str, place: Path, measured: subprocess.CompletedProcess[str]) -> None:
    check_command(line, place)


@pytest.mark.slow
@pytest.mark.xdist_group("README's scenes")  # needs nothing of the others: the other process may take it
@pytest.mark.parametrize("line", [line for line in ENDING if line not in RECORDED])
def test_command_works(line: str, empty: Path) -> None:
    check_command(line, empty)


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("soft-estimator run live")])
def test_live_graph_starts(
    line: str, place: Path, measured: subprocess.CompletedProcess[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a camera nothing comes, but the nodes must come up, wait, and end cleanly.

    In a domain of its own, beside the other graphs: the recording and what was measured of it are in this process.
    """
    pytest.importorskip("rclpy")
    monkeypatch.setenv("ROS_DOMAIN_ID", "101")  # those of other tests are up to 100
    ran = call([*shlex.split(line)[1:], "--seconds", "12"], place)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-2000:]


@pytest.mark.slow
def test_viewer_serves(tmp_path: Path) -> None:
    pytest.importorskip("viser")
    pytest.importorskip("rclpy")
    command = [sys.executable, "-m", "soft_estimator", "view", "--topics", "--port", "8765"]
    environment = {**os.environ, "ROS_DOMAIN_ID": str(1 + os.getpid() % 100), "ROS_LOG_DIR": str(tmp_path)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)
    try:
        for _ in range(120):
            time.sleep(0.5)
            assert process.poll() is None, "the viewer ended by itself"
            try:
                page = urllib.request.urlopen("http://127.0.0.1:8765/", timeout=5).read()
                break
            except OSError:
                continue
        assert b"<html" in page.lower()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
