"""Files that lie: about their size, their kind or where they are. One line each, and never more memory than is allowed.

Bombs are measured by the peak of what Python and NumPy take (tracemalloc), against the bound plus what a reader holds
beside it.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hostile import peak_bytes, refused

from soft_estimator.geometry.array_files import read_npy, read_npz
from soft_estimator.geometry.body_file import read_body, write_body
from soft_estimator.geometry.mesh_file import load_mesh
from soft_estimator.geometry.sdf_file import read_sdf, write_sdf
from soft_estimator.geometry.shapes import Sphere, sample
from soft_estimator.perception.cloud import MOST_POINTS, Intrinsics, cloud_from_points
from soft_estimator.recordings.observed_frames import read_frames as read_observed
from soft_estimator.recordings.opening import read_frames
from soft_estimator.recordings.point_files import read_point_file
from soft_estimator.recordings.tables import file_inside

GOOD = sample(Sphere(0.05), 0.02, align="origin")


def npy(shape: str, descr: str = "<f8", body: bytes = b"") -> bytes:
    """A .npy file whose header says this shape."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + body


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (npy("(1000000000000, 3)"), "24000000000000 bytes, but 0 are there"),
        (npy("(5, 3)", body=bytes(119)), "120 bytes, but 119 are there"),
        (npy("(-1, 3)"), "not numbers"),
        (npy("(2, 3)", "|O", bytes(48)), "not numbers"),
        (npy("(2, 3)", "<c16", bytes(96)), "not numbers"),
        (npy("(2, 3)", "<U3", bytes(96)), "not numbers"),
        (npy("__import__('os')"), "no header"),
        (npy("(" * 90), "no header"),
        (zipped(a=npy("(2, 3)", body=bytes(48))), "no header"),
        (b"\x93NUMPY\x09\x00", "no header"),
        (b"", "no header"),
        (b"\x80\x04K\x01.", "no header"),
    ],
    ids=str.split(
        "huge short negative objects complex text code nested zip version empty pickle"
    ),  # bytes with a zip's time of writing make no name
)
def test_a_npy_file_that_lies_is_one_line(tmp_path: Path, data: bytes, part: str) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(data)
    for read in (read_npy, read_point_file, lambda p: list(read_frames(p))):
        assert part in refused(lambda read=read: read(path)) and str(path) in refused(lambda read=read: read(path))


def test_a_npy_file_reads_as_numpy_does(tmp_path: Path) -> None:
    for array in (
        np.arange(24.0).reshape(2, 4, 3),
        np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
        np.zeros(0),
    ):
        np.save(tmp_path / "a.npy", array)
        read = read_npy(tmp_path / "a.npy")
        assert np.array_equal(read, array) and read.dtype == array.dtype and read.flags.writeable


def test_an_archive_that_unpacks_to_gigabytes_is_refused_within_its_bound(tmp_path: Path) -> None:
    """300 MB of zeros in 300 kB. The sizes in the archive are believed first; a lie about them is cut at the lie."""
    path, small = tmp_path / "body.npz", 1 << 20
    bomb = zipped(phi_m=npy("(40000000,)", body=bytes(320_000_000)))
    path.write_bytes(bomb)
    assert peak_bytes(lambda: read_npz(path, ["phi_m"], small)) < 4 * small
    # the central directory says 1000 bytes instead; what is there is read no farther than that
    path.write_bytes(bomb.replace(struct.pack("<I", 320_000_128), struct.pack("<I", 1000)))
    assert peak_bytes(lambda: read_npz(path, ["phi_m"], small)) < 4 * small
    assert "is no body file" in refused(lambda: read_body(path))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"origin_m": np.array([np.nan, 0, 0])}, "origin_m must be finite"),
        ({"origin_m": np.zeros(2)}, "origin_m"),
        ({"spacing_m": np.array(np.inf)}, "spacing_m must be positive and finite"),
        ({"spacing_m": np.array(-1.0)}, "spacing_m must be positive"),
        ({"phi_m": np.full((3, 3, 3), np.nan)}, "phi_m holds NaN"),
        ({"phi_m": np.zeros((3, 3))}, "3-D"),
        ({"phi_m": np.ones((3, 3, 3))}, "no negative distance"),
    ],
)
def test_a_body_file_of_no_body_is_one_line(tmp_path: Path, changes: dict[str, np.ndarray], part: str) -> None:
    content = {"phi_m": GOOD.phi_m, "origin_m": GOOD.origin_m, "spacing_m": np.array(GOOD.spacing_m)}
    np.savez(tmp_path / "body.npz", **(content | changes))
    assert part in refused(lambda: read_body(tmp_path / "body.npz"))


def test_any_byte_of_a_body_or_grid_file_may_be_wrong(tmp_path: Path) -> None:
    """Every header byte of a .sdf, and bytes all over a .npz, changed in turn: a grid comes out, or one line."""
    sdf, npz = tmp_path / "a.sdf", tmp_path / "a.npz"
    write_sdf(sdf, GOOD)
    write_body(npz, GOOD)
    for path, read, places in (
        (sdf, lambda: read_sdf(sdf), range(28)),
        (npz, lambda: read_body(npz), range(0, 4000, 23)),
    ):
        good = path.read_bytes()
        for place in (k for k in places if k < len(good)):
            for value in (0, 1, 0x7F, 0xFF):
                path.write_bytes(good[:place] + bytes([value]) + good[place + 1 :])
                try:
                    read()
                except ValueError as error:
                    assert str(error).isprintable()


@pytest.mark.parametrize("header", ["WIDTH 100000000000000000000\nHEIGHT 1", "WIDTH -2\nHEIGHT -2", "WIDTH 1e3",
                                    "WIDTH 2\nHEIGHT 1\nCOUNT 1 1 99999999999", "WIDTH", "HEIGHT 1"])  # fmt: skip
@pytest.mark.parametrize("data", ["ascii", "binary"])
def test_a_pcd_header_that_lies_is_one_line(tmp_path: Path, header: str, data: str) -> None:
    path = tmp_path / "a.pcd"
    path.write_text(f"VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\n{header}\nDATA {data}\n1 2 3\n4 5 6\n")
    assert str(path) in refused(lambda: read_point_file(path))


@pytest.mark.parametrize("data", ["ascii", "binary_little_endian", "binary_big_endian"])
def test_a_ply_header_that_lies_is_one_line(tmp_path: Path, data: str) -> None:
    path = tmp_path / "a.ply"
    axes = "".join(f"property float {axis}\n" for axis in "xyz")
    path.write_bytes(f"ply\nformat {data} 1.0\nelement vertex 999999999999\n{axes}end_header\n1 2 3\n".encode())
    assert peak_bytes(lambda: load_mesh(path, 1.0)) < 50 << 20
    assert str(path) in refused(lambda: load_mesh(path, 1.0))


def test_a_mesh_names_no_other_file(tmp_path: Path) -> None:
    """An OBJ whose material library is a pipe nobody writes to would be read for ever, were it opened."""
    import os

    os.mkfifo(tmp_path / "trap.mtl")
    corners = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
    (tmp_path / "a.obj").write_text(f"mtllib trap.mtl\nusemtl x\n{corners}")
    assert len(load_mesh(tmp_path / "a.obj", 1.0)[1]) == 4


@pytest.mark.parametrize(
    "name", ["../secret.npy", "/etc/passwd", "a/../../secret.npy", "..\\secret.npy", "C:\\x", "a\0b", ""]
)
def test_stamps_stay_inside_their_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "frames"
    folder.mkdir()
    np.save(tmp_path / "secret.npy", np.ones((5, 3)))
    (folder / "stamps.csv").write_text(f'file,seconds\n"{name}",1.0\n')
    assert file_inside(folder, name) is None
    assert "outside its folder" in refused(lambda: list(read_frames(folder))) or "\0" in name
    assert (
        "1 outside the folder" in refused(lambda: read_observed(folder, lambda p: (p[:, 0], p[:, 0]))) or "\0" in name
    )


@pytest.mark.parametrize("name", ["a.npy", "part/a.npy", "..a.npy", "a..npy"])
def test_names_inside_the_folder_stay_allowed(tmp_path: Path, name: str) -> None:
    assert file_inside(tmp_path, name) == tmp_path / name


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"width": 1e999}', '{"width": "x"}', "[]", "\xff", "{", '{"width": 1e9}']
)
def test_a_camera_file_that_is_none_is_one_line(tmp_path: Path, text: str) -> None:
    np.save(tmp_path / "a.npy", np.ones((4, 5), dtype=np.uint16))
    data = {"width": 5, "height": 4, "fx": 5, "fy": 5, "cx": 2, "cy": 2}
    if text.startswith('{"'):
        text = json.dumps(data | json.loads(text))
    (tmp_path / "camera.json").write_text(text, encoding="latin-1")
    assert "camera.json" in refused(lambda: list(read_frames(tmp_path / "a.npy"))) or "1e9" in text


def test_a_mask_that_unpacks_to_gigapixels_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """A PNG of 60000x60000 black pixels, 3.6 GB, in 4 kB of its first rows."""

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", 60000, 60000, 8, 0, 0, 0, 0)
    pixels = part(b"IHDR", size) + part(b"IDAT", zlib.compress(bytes(60001 * 20))) + part(b"IEND", b"")
    np.save(tmp_path / "a.npy", np.ones((4, 5, 3)))
    (tmp_path / "masks").mkdir()
    for content in (b"\x89PNG\r\n\x1a\n" + pixels, b"\x89PNG\r\n\x1a\n", b"GIF89a", b""):
        (tmp_path / "masks" / "a.png").write_bytes(content)
        assert peak_bytes(lambda: list(read_frames(tmp_path / "a.npy"))) < 50 << 20
        assert "a.png cannot be read" in refused(lambda: list(read_frames(tmp_path / "a.npy")))


def test_a_cloud_above_the_set_size_is_refused() -> None:
    """Views of one point take no memory, and are refused by their size alone."""
    many = np.broadcast_to(np.float32(1.0), (MOST_POINTS + 1, 3))
    assert f"{MOST_POINTS + 1} points" in refused(lambda: cloud_from_points(many))
    assert "points is over" in refused(lambda: Intrinsics(100_000, 100_000, 1.0, 1.0, 0.0, 0.0))
