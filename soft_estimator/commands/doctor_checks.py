"""What the doctor looks at, one function for each part, and what it advises."""

from __future__ import annotations

import importlib.metadata as metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soft_estimator.commands.doctor_probes import BACKEND, CUPY, DRIVER, NUMBA, RCLPY, VERSION, ask
from soft_estimator.perception.open3d_import import open3d_remedy

OK, WARNING, MISSING, FAILED = "ok", "warning", "missing", "failed"
SUPPORTED = ((3, 10), (3, 13))
# What the core imports, by the name it is imported and the name it is installed under.
REQUIRED = {
    "numpy": "numpy", "scipy": "scipy", "yaml": "pyyaml", "trimesh": "trimesh", "igl": "libigl",
    "matplotlib": "matplotlib", "PIL": "pillow", "tqdm": "tqdm",
}  # fmt: skip
INSTALL = "python -m pip install"
# Name the Fast DDS profile that lets clouds travel through shared memory: Jazzy and before, Kilted and after.
VARIABLES = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
CLOUD_BYTES = 640 * 480 * 12  # x, y, z in float32 of a VGA depth camera


@dataclass(frozen=True)
class Check:
    """One line: a name, how it stands (ok, warning, missing, failed), what was seen, what to do.

    essential: without it the core does not work.
    """

    name: str
    status: str
    detail: str
    advice: str = ""
    essential: bool = False


def check_python() -> Check:
    version, at = sys.version.split()[0], sys.executable
    low, high = SUPPORTED
    if low <= sys.version_info[:2] <= high:
        return Check("Python", OK, f"{version}, {at}", essential=True)
    wanted = f"{low[0]}.{low[1]} to {high[0]}.{high[1]}"
    return Check("Python", FAILED, f"{version}, {at}", f"use Python {wanted}: make PYTHON=python3.12", True)


def check_required() -> Check:
    """The plain libraries of the core, all in one fresh interpreter."""
    body = "\n".join(
        f"    import {module}\n    out[{module!r}] = str(getattr({module}, '__version__', ''))" for module in REQUIRED
    )
    answer = ask(body)
    if "missing" in answer:
        name = REQUIRED.get(answer["missing"].partition(".")[0], answer["missing"])
        return Check("NumPy and friends", MISSING, f"{name} is not installed", f"{INSTALL} {name}", True)
    if "error" in answer:
        return Check("NumPy and friends", FAILED, answer["error"], f"{INSTALL} --force-reinstall numpy scipy", True)
    listed = ", ".join(f"{REQUIRED[m]} {v or _installed(REQUIRED[m])}" for m, v in answer.items() if m in REQUIRED)
    return Check("NumPy and friends", OK, listed, essential=True)


def check_numba() -> Check:
    answer = ask(NUMBA, 120)
    if "missing" in answer:
        return Check("Numba", MISSING, f"{answer['missing']} is not installed", f"{INSTALL} numba", True)
    if "error" in answer or not answer.get("works"):
        detail = answer.get("error", "a compiled function gave a wrong result")
        return Check("Numba", FAILED, detail, f"{INSTALL} --upgrade numba numpy", True)
    return Check("Numba", OK, f"{answer['version']}, {answer['threads']} threads", essential=True)


def check_gpu() -> tuple[Check, dict[str, Any]]:
    """The GPU and its driver, and the CUDA version the driver takes (12040 for 12.4, 0 for none)."""
    answer = ask(DRIVER, 30)
    cuda, seen = int(answer.get("cuda", 0)), _nvidia_smi()
    facts = {"cuda": cuda, "present": bool(seen) or answer.get("devices", 0) > 0}
    if seen:
        takes = f", takes CUDA {cuda_name(cuda)}" if cuda else ""
        return Check("GPU", OK, f"{seen}{takes}"), facts
    if answer.get("devices", 0) > 0:
        return Check("GPU", OK, f"{answer['devices']} NVIDIA device(s), driver takes CUDA {cuda_name(cuda)}"), facts
    if "cuda" in answer:
        detail = f"there is a driver, but it finds no NVIDIA GPU (cuInit says {answer.get('init')})"
        return Check("GPU", WARNING, detail, "the CPU is used; see what nvidia-smi says"), facts
    advice = "none is needed, the CPU is used; with an NVIDIA GPU, install its driver"
    return Check("GPU", MISSING, "no NVIDIA driver here", advice), facts


def _nvidia_smi() -> str:
    """ "NVIDIA H200, driver 550.54, 143771 MiB", "" where there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    call = [program, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = [line.split(", ") for line in done.stdout.strip().splitlines()] if done.returncode == 0 else []
    return "; ".join(f"{row[0]}, driver {row[1]}, {row[2]}" for row in lines if len(row) == 3)


def cuda_name(number: int) -> str:
    """ "12.4" for 12040."""
    return f"{number // 1000}.{number % 1000 // 10}"


def check_cupy(gpu: Mapping[str, Any]) -> Check:
    extra = "cuda13" if gpu["cuda"] >= 13000 else "cuda12"
    install = f"{INSTALL} 'soft_estimator[{extra}]'"
    answer = ask(CUPY, 120)
    several = sorted(n for n in _distributions() if re.fullmatch(r"cupy(-cuda\w+)?", n))
    if answer.get("missing", "").partition(".")[0] == "cupy":
        if gpu["present"]:
            return Check("CuPy", MISSING, "not installed, though there is a GPU", f"{install} to use it")
        return Check("CuPy", MISSING, "not installed; without a GPU it is not needed", "")
    if len(several) > 1:
        advice = f"python -m pip uninstall {' '.join(several)}, then {install}"
        return Check("CuPy", WARNING, f"{len(several)} are installed, which clash: {', '.join(several)}", advice)
    runtime, driver = int(answer.get("runtime", 0)), int(answer.get("driver", 0)) or gpu["cuda"]
    made_for = f"{answer.get('version', '?')}" + (f" for CUDA {cuda_name(runtime)}" if runtime else "")
    if "error" in answer or "missing" in answer or not answer.get("works"):
        why = answer.get("error") or answer.get("missing", "") or "it computes wrongly"
        advice = "the CPU is used"
        if runtime and driver and runtime // 1000 > driver // 1000:
            why = f"the driver takes CUDA {cuda_name(driver)} at most; {why}"
            old = several[0] if several else f"cupy-cuda{runtime // 1000}x"
            advice = f"python -m pip uninstall {old}, then {INSTALL} 'soft_estimator[cuda12]', or a newer driver"
        elif gpu["present"]:
            advice = f"python -m pip uninstall {several[0] if several else 'cupy'}, then {install}"
        return Check("CuPy", WARNING, f"{made_for} cannot be used: {why}", advice)
    return Check("CuPy", OK, f"{made_for}, driver takes {cuda_name(driver)}, {answer['devices']} device(s)")


def check_backend() -> Check:
    answer = ask(BACKEND, 120)
    if "name" not in answer:
        detail = answer.get("error") or f"{answer.get('missing')} is not installed"
        return Check("backend", FAILED, detail, "see the lines above", True)
    where = {"cpu": "the CPU", "cuda": "the GPU"}.get(answer["name"], answer["name"])
    return Check("backend", OK, f"simulations run on {where}", essential=True)


def check_ros() -> list[Check]:
    """rclpy and its distro, the middleware, the shared-memory profile."""
    answer = ask(RCLPY, 60)
    if "missing" in answer:
        install = "source /opt/ros/<distro>/setup.bash; wheels of ROS 2 exist for x86-64 Linux only"
        if platform.machine() == "x86_64" and sys.platform == "linux":
            install = f"{INSTALL} 'soft_estimator[ros]', or source /opt/ros/<distro>/setup.bash"
        what = "rclpy is" if answer["missing"] == "rclpy" else f"rclpy is there, {answer['missing']} is"
        return [Check("ROS 2", MISSING, f"{what} not installed; only the live graph needs it", install)]
    if "error" in answer:
        advice = "one ROS in one environment: wheels and /opt/ros do not mix; try a fresh terminal"
        return [Check("ROS 2", WARNING, f"rclpy does not load: {answer['error']}", advice)]
    rmw = answer["rmw"]
    checks = [Check("ROS 2", OK, f"{_distro()}, rclpy {_installed('rclpy')}, {Path(answer['file']).parent}")]
    tested = "rmw_fastrtps_cpp"
    advice = "" if rmw == tested else f"export RMW_IMPLEMENTATION={tested} if clouds get lost; others are not tested"
    checks.append(Check("RMW", OK if rmw == tested else WARNING, rmw, advice))
    status, detail, advice = check_profile(rmw)
    return [*checks, Check("shared memory", status, detail, advice)]


def _distro() -> str:
    wheels = [m.group(1) for n in _distributions() if (m := re.fullmatch(r"ros-(\w+)-rclpy", n))]
    named = os.environ.get("ROS_DISTRO", "")
    return named or (wheels[0] if wheels else "distro not known")


def check_optional() -> list[Check]:
    """Libraries that single commands need."""
    parts = (
        ("plotly", "plotly", "the report's 3D view", "plotly"),
        ("shtab", "shtab", "shell completion", "shtab"),
        ("Open3D", "open3d", "scan --prior poisson", "'soft_estimator[perception]'"),
        ("rosbags", "rosbags", "reading and writing bags", "'rosbags>=0.11.6,<0.12'"),
        ("viser", "viser", "soft-estimator view", "'soft_estimator[viewer]'"),
    )
    out = []
    for name, module, use, what in parts:
        answer = ask(VERSION.format(name=module), 90)
        if "missing" in answer:
            out.append(Check(name, MISSING, f"not installed; {use} needs it", f"{INSTALL} {what}"))
        elif "error" in answer:
            remedy = f"{INSTALL} --force-reinstall {what}"
            if module == "open3d" and (system := open3d_remedy(answer["error"])).startswith("apt"):
                remedy = system
            out.append(Check(name, WARNING, answer["error"], remedy))
        else:
            version = answer["version"] or _installed("open3d-cpu" if module == "open3d" else module)
            out.append(Check(name, OK, f"{version}, for {use}"))
    return out


def check_write_access() -> list[Check]:
    """Where results, temporary files and compiled loops go."""
    out = []
    for name, folder, essential, advice in (
        ("this folder", Path.cwd(), False, "give --out a folder you may write to"),
        ("temporary folder", Path(tempfile.gettempdir()), True, "set TMPDIR to a folder you may write to"),
        ("compiled loops", _cache_folder(), False, "export NUMBA_CACHE_DIR=~/.cache/numba, or every start compiles"),
    ):
        try:
            with tempfile.TemporaryFile(dir=folder):
                free = shutil.disk_usage(folder).free
        except OSError as error:
            status = FAILED if essential else WARNING
            out.append(Check(name, status, f"cannot write to {folder} ({error.strerror})", advice, essential))
            continue
        low = free < 200e6
        detail = f"{folder}, {free / 1e9:.1f} GB free"
        out.append(Check(name, WARNING if low else OK, detail, "make room on the disk" if low else "", essential))
    return out


def _cache_folder() -> Path:
    import soft_estimator

    folder = os.environ.get("NUMBA_CACHE_DIR") or Path(soft_estimator.__file__).parent / "backends" / "cpu"
    return Path(folder)


def _distributions() -> set[str]:
    return {str(d.metadata["Name"] or "").lower().replace("_", "-") for d in metadata.distributions()}


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def own_profile() -> Path | None:
    """The profile that comes with the package: installed, or in the source tree."""
    import soft_estimator

    package = Path(soft_estimator.__file__).resolve().parent
    files = [folder / "fastdds_shm.xml" for folder in (package / "builtin_config", package.parent / "config")]
    return next((file for file in files if file.is_file()), None)


def segment_bytes(path: Path) -> int:
    """Size of the shared-memory segment a profile asks for, 0 for none; ValueError where it cannot be read."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise ValueError(f"profile {path} cannot be read ({' '.join(str(error).split())}); use ours") from None
    for transport in root.iter():
        if transport.tag.endswith("transport_descriptor"):
            parts = {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in transport}
            if parts.get("type") == "SHM":
                size = parts.get("segment_size", "")
                return int(size) if size.isdecimal() else 512 * 1024  # Fast DDS' default
    return 0


def check_profile(rmw: str) -> tuple[str, str, str]:
    """(status, detail, advice) on the profile in the environment and on the room in /dev/shm."""
    if "fastrtps" not in rmw:
        return "ok", f"{rmw} takes no Fast DDS profile", ""
    shm = Path("/dev/shm")
    if shm.is_dir() and shutil.disk_usage(shm).free < 128e6:
        free = shutil.disk_usage(shm).free / 1e6
        advice = "remove what killed programs left: fastdds shm clean; in a container: --shm-size=512m"
        return "warning", f"only {free:.0f} MB are free in /dev/shm", advice
    own = own_profile()
    use = f"export {VARIABLES[0]}={own} {VARIABLES[1]}={own}" if own else "see config/fastdds_shm.xml in the sources"
    given = next((os.environ[name] for name in VARIABLES if os.environ.get(name)), None)
    if given is None:
        return "ok", "no profile is set; the launch files and `soft-estimator run` set ours", f"for your nodes: {use}"
    try:
        size = segment_bytes(Path(given))
    except ValueError as error:
        return "warning", str(error), use
    if size < 4 * CLOUD_BYTES:
        return "warning", f"{given} has room for {size / 1e6:.1f} MB; clouds of 3.7 MB will get lost", use
    return "ok", f"{given}, segment of {size / 2**20:.0f} MiB", ""
