"""The Fast DDS profile that lets clouds travel through shared memory."""

from __future__ import annotations

import os
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

# Jazzy and before, Kilted and after.
VARIABLES = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
CLOUD_BYTES = 640 * 480 * 12


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
