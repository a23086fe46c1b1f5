"""Point files: .npy as NumPy writes it, PLY through trimesh, PCD in ASCII and binary (organised ones keep their order).

A fourth column of a .npy file, or a property `std_m` of a PLY or PCD file, is the standard deviation of each point.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from soft_estimator.geometry.array_files import one_line, read_npy
from soft_estimator.perception.cloud import MOST_POINTS

MOST_FILE_BYTES = 1 << 30
POINT_ENDINGS = (".npy", ".ply", ".pcd")
STD_FIELD = "std_m"
_KINDS = {("F", 4): "<f4", ("F", 8): "<f8", ("I", 1): "i1", ("I", 2): "<i2", ("I", 4): "<i4", ("I", 8): "<i8",
          ("U", 1): "u1", ("U", 2): "<u2", ("U", 4): "<u4", ("U", 8): "<u8"}  # fmt: skip


class CompressedPcd(ValueError):
    """A PCD file with compressed data, which is not read here."""


@dataclass(frozen=True, eq=False)
class PointFile:
    """What a point file holds.

    Attributes:
        points_m: (n, 3) or, from an organised PCD file or a 3-D array, (h, w, 3).
        colours: (n, 3) uint8, only from PLY. std_m: standard deviation of each point, (n,), None where not given.
        more: further columns of a .npy file, (n, k), None where there are none.
    """

    points_m: np.ndarray
    colours: np.ndarray | None = None
    std_m: np.ndarray | None = None
    more: np.ndarray | None = None


def read_point_file(path: str | Path) -> PointFile:
    """Read a .npy, .ply or .pcd file; every failure is a ValueError of one line."""
    path = Path(path)
    readers = {".npy": _read_npy, ".ply": _read_ply, ".pcd": _read_pcd}
    if path.suffix.lower() not in readers:
        raise ValueError(
            f"{path} cannot be read (its ending is {path.suffix!r}); give one of {', '.join(POINT_ENDINGS)}"
        )
    return readers[path.suffix.lower()](path)


def _read_npy(path: Path) -> PointFile:
    return points_from_array(read_npy(path, MOST_FILE_BYTES), path)


def points_from_array(array: np.ndarray, path: Path) -> PointFile:
    """The points of the array of a .npy file."""
    if array.size == 0:
        return PointFile(np.zeros((0, 3)))
    if array.ndim == 3 and array.dtype == np.uint8:
        raise ValueError(f"{path} is a colour picture of the shape {array.shape}; give points (n, 3) or a depth image")
    numbers = array.astype(np.float64)
    if numbers.ndim == 3 and numbers.shape[2] == 3:
        return PointFile(numbers)
    if numbers.ndim != 2 or numbers.shape[1] < 3:
        raise ValueError(f"{path} has the shape {numbers.shape}; points are (n, 3), or (n, 4) with their deviation")
    columns = numbers.shape[1]
    return PointFile(
        numbers[:, :3],
        std_m=numbers[:, 3] if columns > 3 else None,
        more=numbers[:, 4:] if columns > 4 else None,
    )


def _read_ply(path: Path) -> PointFile:
    import trimesh

    try:
        # as a stream: by its path the library would follow the file's word to other files, such as textures
        loaded: Any = trimesh.load(io.BytesIO(_content(path)), file_type="ply", process=False)
        if isinstance(loaded, trimesh.Scene) and not loaded.geometry:  # what trimesh makes of a file without points
            return PointFile(np.zeros((0, 3)))
        points = np.asarray(loaded.vertices, dtype=np.float64).reshape(-1, 3)
        colours = getattr(loaded, "colors", None)
        raw = loaded.metadata.get("_ply_raw", {}).get("vertex", {}).get("data")
    except Exception as error:  # a parser may raise anything on a damaged file
        raise ValueError(f"{path} cannot be read ({one_line(error)}); export it again") from error
    kept = None
    if colours is not None and np.shape(colours)[:1] == (len(points),) and len(points):
        kept = np.ascontiguousarray(np.asarray(colours)[:, :3], dtype=np.uint8)
    return PointFile(points, kept, _ply_std(raw, len(points)))


def _ply_std(raw: Any, count: int) -> np.ndarray | None:
    """The property std_m of a PLY file's vertices as trimesh keeps it: a record array or a mapping."""
    names = getattr(getattr(raw, "dtype", None), "names", None) or (raw.keys() if isinstance(raw, dict) else ())
    if STD_FIELD not in names:
        return None
    std = np.asarray(raw[STD_FIELD], dtype=np.float64).ravel()
    return std if len(std) == count else None


def _read_pcd(path: Path) -> PointFile:
    fields, body = _pcd_parts(path)
    if fields["DATA"] == ["binary_compressed"]:
        raise CompressedPcd(f"{path} holds compressed data; write it as PCD with DATA binary or ascii")
    try:
        columns = _columns(fields, body)
        height, width = int(fields["HEIGHT"][0]), int(fields["WIDTH"][0])
        points = np.stack([columns[axis] for axis in "xyz"], axis=-1).astype(np.float64)
        std = columns[STD_FIELD].astype(np.float64) if STD_FIELD in columns else None
        return PointFile(points.reshape(height, width, 3) if height > 1 else points, std_m=std)
    except (KeyError, ValueError, IndexError, TypeError, OverflowError) as error:
        raise ValueError(f"{path} cannot be read ({one_line(error)}); it needs fields x, y, z") from error


def _pcd_parts(path: Path) -> tuple[dict[str, list[str]], bytes]:
    """The header of a PCD file, words by key, and what comes after it."""
    content = _content(path)
    fields: dict[str, list[str]] = {}
    place = 0
    while "DATA" not in fields:
        end = content.find(b"\n", place)
        if end < 0 or place > 10_000:
            raise ValueError(f"{path} has no PCD header with a DATA line; is it a PCD file?")
        words = content[place:end].decode("ascii", "replace").split()
        place = end + 1
        if words and not words[0].startswith("#"):
            fields[words[0].upper()] = words[1:]
    return fields, content[place:]


def _content(path: Path) -> bytes:
    """The bytes of a file that is not too large; a ValueError of one line where there are none."""
    try:
        size = path.stat().st_size
        if size > MOST_FILE_BYTES:
            raise ValueError(f"{path} has {size} bytes, over the {MOST_FILE_BYTES} that are read; split or thin it")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}); check the path") from error


def _check_compressed(path: Path) -> None:
    """Refuse compressed data that unpack to something else than the header's points."""
    fields, body = _pcd_parts(path)
    try:
        total = int(fields["HEIGHT"][0]) * int(fields["WIDTH"][0])
        counts = [int(n) for n in fields.get("COUNT", ["1"] * len(fields["FIELDS"]))]
        point_bytes = sum(int(size) * count for size, count in zip(fields["SIZE"], counts))
        unpacked = int.from_bytes(body[4:8], "little")
    except (KeyError, ValueError, IndexError) as error:
        raise ValueError(f"{path} cannot be read ({one_line(error)}); it needs fields x, y, z") from error
    if not 0 <= total <= MOST_POINTS or unpacked != total * point_bytes:
        raise ValueError(
            f"{path} unpacks to {unpacked} bytes where its header says {total} points of {point_bytes} bytes (at most "
            f"{MOST_POINTS} points are read); write it again"
        )


def _columns(fields: dict[str, list[str]], body: bytes) -> dict[str, np.ndarray]:
    """Column per field name."""
    names, counts = fields["FIELDS"], [int(n) for n in fields.get("COUNT", ["1"] * len(fields["FIELDS"]))]
    total = int(fields["HEIGHT"][0]) * int(fields["WIDTH"][0])
    if fields["DATA"] == ["ascii"]:
        table = np.array(body.split(), dtype=np.float64).reshape(total, sum(counts))
        first = np.cumsum([0, *counts])
        return {name: table[:, first[i]] for i, name in enumerate(names)}
    kinds = [_KINDS[kind, int(size)] for kind, size in zip(fields["TYPE"], fields["SIZE"])]
    # names may repeat (padding is called _): the position keeps them apart
    layout = np.dtype(
        [(f"{i} {name}", kind, (count,)) for i, (name, kind, count) in enumerate(zip(names, kinds, counts))]
    )
    rows = np.frombuffer(body, dtype=layout, count=total)
    return {name: rows[f"{i} {name}"][:, 0] for i, name in enumerate(names)}


def read_any_point_file(path: Path) -> PointFile:
    """As `read_point_file`, and compressed PCD through Open3D, where it is installed."""
    try:
        return read_point_file(path)
    except CompressedPcd:
        return PointFile(_through_open3d(path))


def _through_open3d(path: Path) -> np.ndarray:
    from soft_estimator.perception.open3d_import import import_open3d

    _check_compressed(path)
    return np.asarray(import_open3d().io.read_point_cloud(str(path)).points)
