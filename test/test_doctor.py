"""The doctor tells the truth: what it asks is hidden from it, or replaced by something broken, in real interpreters."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from soft_estimator.commands import doctor_checks as checks
from soft_estimator.commands.doctor import core_works, self_test
from soft_estimator.commands.doctor_checks import VARIABLES, check_profile, own_profile, segment_bytes
from soft_estimator.commands.doctor_probes import ask

ROOT = Path(__file__).resolve().parent.parent
HIDDEN = "raise ModuleNotFoundError(\"No module named '{0}'\", name='{0}')\n"
NO_GPU: dict[str, Any] = {"cuda": 0, "present": False}

# As CuPy answers: for CUDA 13, where the driver takes 12.4 only.
WRONG_CUPY = """
__version__ = "13.6.0"
class CUDARuntimeError(RuntimeError):
    pass
class _Runtime:
    def runtimeGetVersion(self): return 13000
    def driverGetVersion(self): return {driver}
    def getDeviceCount(self): raise CUDARuntimeError({error!r})
class cuda:
    runtime = _Runtime()
"""


class Fakes:
    """A folder that comes before all others on the path of every interpreter the doctor starts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.setenv("PYTHONPATH", str(folder))

    def hide(self, *names: str) -> None:
        for name in names:
            (self.folder / f"{name}.py").write_text(HIDDEN.format(name))

    def put(self, name: str, source: str) -> None:
        (self.folder / f"{name}.py").write_text(source)


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fakes:
    (tmp_path / "fakes").mkdir()
    return Fakes(tmp_path / "fakes", monkeypatch)


def wrong_cupy(driver: int, error: str) -> str:
    return WRONG_CUPY.format(driver=driver, error=error)


def test_without_rclpy_only_the_live_graph_is_missing(fakes: Fakes) -> None:
    fakes.hide("rclpy")
    (found,) = checks.check_ros()
    assert found.status == "missing" and not found.essential
    assert "rclpy is not installed" in found.detail and "/opt/ros" in found.advice
    # Wheels are advised where there are some.
    assert ("soft_estimator[ros]" in found.advice) == (platform.machine() == "x86_64" and sys.platform == "linux")


def test_messages_may_be_missing_although_rclpy_is_there(fakes: Fakes) -> None:
    pytest.importorskip("rclpy")
    fakes.hide("lifecycle_msgs")
    (found,) = checks.check_ros()
    assert found.status == "missing" and "lifecycle_msgs is not installed" in found.detail


def test_an_rclpy_that_crashes_does_not_take_the_doctor_with_it(fakes: Fakes) -> None:
    fakes.put("rclpy", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    (found,) = checks.check_ros()
    assert found.status == "warning" and "signal 11" in found.detail


def test_rclpy_and_its_middleware_are_named() -> None:
    pytest.importorskip("rclpy")
    ros, rmw, shm = checks.check_ros()
    assert ros.status == "ok" and rmw.detail.startswith("rmw_") and shm.name == "shared memory"


def test_without_cupy_and_gpu_nothing_is_asked_for(fakes: Fakes) -> None:
    fakes.hide("cupy")
    found = checks.check_cupy(NO_GPU)
    assert found.status == "missing" and "not needed" in found.detail and found.advice == ""


@pytest.mark.parametrize(("cuda", "extra"), [(12040, "cuda12"), (13010, "cuda13")])
def test_without_cupy_a_gpu_asks_for_the_one_its_driver_takes(fakes: Fakes, cuda: int, extra: str) -> None:
    fakes.hide("cupy")
    found = checks.check_cupy({"cuda": cuda, "present": True})
    assert found.status == "missing" and f"soft_estimator[{extra}]" in found.advice


def test_a_cupy_too_new_for_the_driver_is_named(fakes: Fakes) -> None:
    error = "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
    fakes.put("cupy", wrong_cupy(12040, error))
    found = checks.check_cupy({"cuda": 12040, "present": True})
    assert found.status == "warning" and not found.essential
    assert "13.6.0 for CUDA 13.0 cannot be used: the driver takes CUDA 12.4 at most" in found.detail
    assert "cudaErrorInsufficientDriver" in found.detail
    assert "uninstall cupy-cuda13x" in found.advice and "soft_estimator[cuda12]" in found.advice


def test_a_cupy_without_a_gpu_is_no_fault_of_the_core(fakes: Fakes) -> None:
    fakes.put("cupy", wrong_cupy(0, "cudaErrorNoDevice: no CUDA-capable device is detected"))
    found = checks.check_cupy(NO_GPU)
    assert found.status == "warning" and "cudaErrorNoDevice" in found.detail and found.advice == "the CPU is used"
    assert checks.check_backend().detail == "simulations run on the CPU"


def test_a_cupy_whose_libraries_are_gone_is_quoted(fakes: Fakes) -> None:
    fakes.put("cupy", "raise ImportError('libcublas.so.12: cannot open shared object file')\n")
    found = checks.check_cupy({"cuda": 12040, "present": True})
    assert found.status == "warning" and "libcublas.so.12" in found.detail and "uninstall" in found.advice


def test_a_gpu_is_named_as_its_driver_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H200, 550.54.14, 143771 MiB'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found, facts = checks.check_gpu()
    assert found.status == "ok" and facts["present"] and found.detail.startswith("NVIDIA H200, driver 550.54.14")


def test_no_gpu_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    found, facts = checks.check_gpu()
    if facts["present"]:
        pytest.skip("there is a CUDA device here, seen through its driver")
    assert found.status in ("missing", "warning") and not found.essential and "the CPU is used" in found.advice


def test_without_numba_the_core_does_not_work(fakes: Fakes) -> None:
    fakes.hide("numba")
    found = checks.check_numba()
    assert found.status == "missing" and found.essential and "pip install numba" in found.advice
    assert not core_works([checks.check_python(), found])
    assert checks.check_backend().status == "failed"


def test_a_missing_library_is_named_as_pip_knows_it(fakes: Fakes) -> None:
    fakes.hide("yaml")
    found = checks.check_required()
    assert found.status == "missing" and found.essential and found.advice.endswith("pip install pyyaml")


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "nowhere"))
    found = {c.name: c for c in checks.check_write_access()}
    assert found["compiled loops"].status == "warning" and "nowhere" in found["compiled loops"].detail
    assert found["temporary folder"].status == "ok"


def test_profiles_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = own_profile()
    assert own is not None and segment_bytes(own) >= 16 * 2**20
    small = tmp_path / "small.xml"
    small.write_text(own.read_text().replace(str(segment_bytes(own)), "1000000"))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert check_profile("rmw_fastrtps_cpp")[1].startswith("no profile is set")
    assert "takes no Fast DDS profile" in check_profile("rmw_cyclonedds_cpp")[1]
    for path, expected in ((own, "segment of"), (small, "will get lost"), (tmp_path / "none.xml", "cannot be read")):
        monkeypatch.setenv(VARIABLES[0], str(path))
        status, detail, _ = check_profile("rmw_fastrtps_cpp")
        if "/dev/shm" not in detail:  # a machine with little shared memory is told so first
            assert expected in detail and (status == "ok") == (path == own)


def test_an_open3d_without_its_system_library_is_named(fakes: Fakes) -> None:
    fakes.put("open3d", "raise ImportError('libgfortran.so.5: cannot open shared object file')\n")
    (found,) = [check for check in checks.check_optional() if check.name == "Open3D"]
    assert found.status == "warning" and "libgfortran.so.5" in found.detail
    assert found.advice == "apt install libgfortran5"


def test_a_probe_that_hangs_is_given_up() -> None:
    assert ask("    import time; time.sleep(60)", timeout_s=1.0) == {"error": "no answer within 1 s"}


def test_a_broken_simulation_is_found(fakes: Fakes) -> None:
    """The self-test fails where the numbers are wrong: here NumPy's norm is, for every interpreter it starts."""
    fakes.put("sitecustomize", "import numpy.linalg as l\nl.norm = lambda *a, **k: 1.0\n")
    (found,) = list(self_test(with_ros=False))
    assert "failed" in {c.status for c in found} and not core_works(found)


@pytest.mark.slow
def test_the_command_as_a_whole(fakes: Fakes) -> None:
    """With ROS and CuPy hidden the core works: exit code 0, and the self-test is right."""
    fakes.hide("rclpy", "cupy", "open3d")
    done = subprocess.run(
        [sys.executable, "-m", "soft_estimator", "doctor", "--json"],
        capture_output=True, text=True, timeout=400, cwd=ROOT, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    answer = json.loads(done.stdout)
    rows = {row["name"]: row for row in answer["checks"]}
    assert done.returncode == 0 and answer["core_works"] is True, rows
    assert rows["ROS 2"]["status"] == rows["CuPy"]["status"] == rows["Open3D"]["status"] == "missing"
    assert rows["simulate"]["status"] == rows["gradient"]["status"] == "ok"


def test_the_command_without_numba_ends_with_1(fakes: Fakes) -> None:
    fakes.hide("numba", "open3d")  # which takes its seconds to load, and is none of the core
    done = subprocess.run(
        [sys.executable, "-m", "soft_estimator", "doctor", "--quick"],
        capture_output=True, text=True, timeout=300, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "The core does not work: see Numba" in done.stdout and "\033" not in done.stdout
