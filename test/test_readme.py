"""Every command of README.md is run, as it stands there, with the files it names put in place."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from measuring_film import write_ball

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
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recording of an object that lies still, and is dropped."""
    folder = tmp_path_factory.mktemp("readme")
    write_ball(folder / "BAG")
    return folder


def call(arguments: list[str], folder: Path, seconds: float = 1200) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ROS_LOG_DIR": str(folder), "NO_COLOR": "1"}
    if "PYTEST_XDIST_WORKER" in os.environ:  # the other core is busy
        environment["NUMBA_NUM_THREADS"] = "1"
    command = [sys.executable, "-m", "soft_estimator", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds)


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in COMMANDS if not line.startswith(SERVING)])
def test_command_works(line: str, place: Path) -> None:
    ran = call(shlex.split(line)[1:], place)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("soft-estimator run live")])
def test_live_graph_starts(line: str, place: Path) -> None:
    """Without a camera nothing comes, but the nodes must come up, wait, and end cleanly."""
    pytest.importorskip("rclpy")
    if not (place / "out" / "mine").is_dir():  # the object that README measures before; another process may have it
        measured = next(line for line in COMMANDS if line.startswith("soft-estimator measure"))
        assert call(shlex.split(measured)[1:], place).returncode == 0
    ran = call([*shlex.split(line)[1:], "--seconds", "12"], place)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-2000:]


@pytest.mark.slow
def test_viewer_serves(place: Path) -> None:
    pytest.importorskip("viser")
    pytest.importorskip("rclpy")
    command = [sys.executable, "-m", "soft_estimator", "view", "--topics", "--port", "8765"]
    environment = {**os.environ, "ROS_DOMAIN_ID": str(1 + os.getpid() % 100), "ROS_LOG_DIR": str(place)}
    process = subprocess.Popen(command, cwd=place, env=environment, start_new_session=True)
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
