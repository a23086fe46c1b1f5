"""How clouds travel between the nodes: Fast DDS with shared memory that is large enough for them.

Nothing here needs ROS.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from soft_estimator.ros.config_files import config_file

SHARED_MEMORY = Path("/dev/shm")
PROFILES = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")  # to Jazzy, from Kilted on
_MIB = 2**20
_SEGMENT, _MESSAGE = 64 * _MIB, 16 * _MIB  # as in fastdds_shm.xml
_PARTICIPANTS = 6  # four nodes, a player or viewer, and somebody who looks
_LEAST = 8 * _MIB  # two clouds of 640 x 480 points


def free_bytes(folder: Path = SHARED_MEMORY) -> int | None:
    """What is free in the shared memory; None where there is none."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def segment_bytes(free: int | None) -> int:
    """Shared memory of each participant, so that all of them fit; 0 where too little is there for a cloud."""
    if free is None:
        return 0
    share = free // _PARTICIPANTS // _MIB * _MIB
    return min(share, _SEGMENT) if share >= _LEAST else 0


def transport_environment(folder: Path = SHARED_MEMORY) -> dict[str, str]:
    """The variables that name the profile; what the user has set already stays."""
    given = {name: os.environ[name] for name in PROFILES if os.environ.get(name)}
    if len(given) == len(PROFILES):
        return given
    segment = segment_bytes(free_bytes(folder))
    if segment == 0:
        return given
    return {name: given.get(name, str(_profile(segment))) for name in PROFILES}


def transport_note(folder: Path = SHARED_MEMORY) -> str:
    """What a user should know of the shared memory, "" where it is as it should be."""
    if any(os.environ.get(name) for name in PROFILES):
        return ""
    free = free_bytes(folder)
    segment = segment_bytes(free)
    if segment == _SEGMENT:
        return ""
    room = "is missing" if free is None else f"has {free / _MIB:.0f} MiB free"
    remedy = f"give it {_PARTICIPANTS * _SEGMENT // _MIB} MiB (docker run --shm-size=512m)"
    if segment == 0:
        return f"{folder} {room}, too little for clouds: they travel by UDP, which loses some; {remedy}"
    return f"{folder} {room}: each node takes {segment // _MIB} MiB instead of {_SEGMENT // _MIB}; {remedy}"


def _profile(segment: int) -> Path:
    """The package's profile, or a copy of it with smaller segments."""
    full = config_file("fastdds_shm.xml")
    if segment == _SEGMENT:
        return full
    text = full.read_text(encoding="utf-8").replace(str(_SEGMENT), str(segment))
    text = text.replace(str(_MESSAGE), str(min(_MESSAGE, segment)))
    folder = Path(tempfile.gettempdir()) / f"soft_estimator_{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"fastdds_{segment // _MIB}_mib.xml"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return path
