"""Files with wrong bytes: bodies, grids, meshes, clouds, frame folders and bags.

A file is read or refused by a ValueError of one line; anything else is a finding.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_scenes import check_line

from soft_estimator.geometry.body_file import read_body, write_body
from soft_estimator.geometry.mesh_file import load_mesh, write_ply
from soft_estimator.geometry.sdf_file import read_sdf, write_sdf
from soft_estimator.geometry.shapes import Sphere, sample
from soft_estimator.recordings.bag_frames import BagRecording
from soft_estimator.recordings.bag_writing import BagWriter
from soft_estimator.recordings.interface import Recording
from soft_estimator.recordings.observed_frames import read_frames
from soft_estimator.recordings.opening import open_recording
from soft_estimator.recordings.point_files import read_point_file

CORNERS = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
FACES = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
WORDS = [b"\x00" * 4, b"\xff" * 4, b"\xff" * 8, b"nan", b"inf", b"-1", b"1e999", b"999999999999", b"\n", b" ", b",",
         b"../", b'"', b"\x80", struct.pack("<I", 2**31), struct.pack("<Q", 2**40), b"{", b"PK\x03\x04",
         b"\x93NUMPY"]  # fmt: skip


def with_wrong_bytes(data: bytes, rng: random.Random) -> bytes:
    """Up to six changes; most near the beginning, where headers are."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 3, 6])):
        if not out:
            break
        at = rng.randrange(min(len(out), rng.choice([16, 200, len(out)])))
        kind = rng.randrange(6)
        if kind == 0:
            out[at] = rng.randrange(256)
        elif kind == 1:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            word = rng.choice(WORDS)
            out[at : at + len(word)] = word
        elif kind == 3:
            out[at:at] = rng.choice(WORDS)
        elif kind == 4:
            del out[at : at + rng.choice([1, 4, 100])]
        else:
            del out[rng.choice([at, len(out) // 2, len(out) - 1]) :]
    return bytes(out)


def make_files(folder: Path) -> dict[str, bytes]:
    """A good file of each kind, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    ball, points = sample(Sphere(0.05), 0.02, align="origin"), np.random.default_rng(0).random((20, 3))
    write_body(folder / "body.npz", ball)
    write_sdf(folder / "ball.sdf", ball)
    write_ply(folder / "mesh.ply", CORNERS, FACES)
    axes = "\n".join(f"v {x} {y} {z}" for x, y, z in CORNERS.tolist())
    (folder / "mesh.obj").write_text(axes + "\n" + "\n".join(f"f {a} {b} {c}" for a, b, c in (FACES + 1).tolist()))
    triangles = b"".join(struct.pack("<12fH", 0, 0, 1, *CORNERS[f].ravel(), 0) for f in FACES)
    (folder / "mesh.stl").write_bytes(bytes(80) + struct.pack("<I", len(FACES)) + triangles)
    np.save(folder / "cloud.npy", points)
    header = "VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH 20\nHEIGHT 1\nPOINTS 20\n"
    (folder / "cloud.pcd").write_bytes(f"{header}DATA binary\n".encode() + points.astype("<f4").tobytes())
    text = "\n".join(" ".join(map(str, row)) for row in points.tolist())
    (folder / "text.pcd").write_text(f"{header}DATA ascii\n{text}\n")
    lens = {"width": 5, "height": 4, "fx": 5, "fy": 5, "cx": 2, "cy": 2, "d": [0.1, 0, 0, 0, 0], "transform": None}
    (folder / "camera.json").write_text(json.dumps(lens))
    (folder / "stamps.csv").write_text("file,seconds\ncloud.npy,0.0\ncloud.pcd,0.1\ntext.pcd,0.2\n")
    (folder / "poses.csv").write_text("".join(f"{n},0,0,0,0,0,0,1\n" for n in ("cloud.npy", "cloud.pcd", "text.pcd")))
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def check_frames(recording: Recording) -> None:
    """Go through a recording; what a frame that cannot be used says of it is a line, too."""
    for frame in recording:
        if frame.cloud is None:
            check_line(ValueError(frame.problem))


def read_folder(folder: Path) -> None:
    """The folder as `replay` sees it, and as `estimate --frames` does."""
    with open_recording(folder) as recording:
        check_frames(recording)
    read_frames(folder, lambda points: (np.full(len(points), 1e-3), np.zeros(len(points))))


def reader_of(name: str, folder: Path) -> Callable[[], Any]:
    """What reads a file of this name."""
    path = folder / name
    if name in ("stamps.csv", "poses.csv", "camera.json", "cloud.npy"):
        return lambda: read_folder(folder)
    by_ending = {".npz": read_body, ".sdf": read_sdf, ".pcd": read_point_file}
    return lambda: by_ending[path.suffix](path) if path.suffix in by_ending else load_mesh(path, 1.0)


def try_file(seed: int, folder: Path, good: dict[str, bytes]) -> str:
    """Damage the file of a seed and read it: "read" or "refused"; then it is put back."""
    rng = random.Random(f"file {seed}")
    name = rng.choice(sorted(good))
    (folder / name).write_bytes(with_wrong_bytes(good[name], rng))
    try:
        with np.errstate(all="ignore"):
            reader_of(name, folder)()
    except ValueError as error:
        check_line(error)
        return "refused"
    finally:
        (folder / name).write_bytes(good[name])
    return "read"


def make_bags(folder: Path) -> dict[str, bytes]:
    """A small bag of each storage, by the name of its file."""
    out = {}
    for storage in ("mcap", "sqlite3"):
        shutil.rmtree(folder / storage, ignore_errors=True)
        with BagWriter(folder / storage, storage) as writer:
            for k in range(1, 4):
                writer.cloud("/camera/points", k * 10**9, "camera", np.random.default_rng(k).random((4, 5, 3)))
                writer.mesh("/ground_truth/mesh", k * 10**9, "world", CORNERS, FACES)
        file = next(f for f in (folder / storage).iterdir() if f.suffix in (".mcap", ".db3"))
        out[file.name] = file.read_bytes()
    return out


def try_bag(seed: int, folder: Path, good: dict[str, bytes]) -> str:
    """Damage the bag of a seed and read it by both ways: "read" or "refused"."""
    rng = random.Random(f"bag {seed}")
    name = rng.choice(sorted(good))
    path = folder / f"damaged{Path(name).suffix}"
    path.write_bytes(with_wrong_bytes(good[name], rng))
    try:
        with np.errstate(all="ignore"):
            for fixed_frame in (None, "world"):
                with BagRecording(path, fixed_frame=fixed_frame) as recording:
                    check_frames(recording)
    except ValueError as error:
        check_line(error)
        return "refused"
    return "read"
