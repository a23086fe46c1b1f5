"""Recorded frames: a folder of point files or depth images, a single point file, or a ROS bag (see bags.py).

A folder holds `stamps.csv` (columns: file name, seconds) beside .npy, .ply or .pcd point files, or beside depth images
as .npy
(uint16 millimetres or float metres, 2-D) with a `camera.json`. Optional: `poses.csv` (file name, x, y, z [m], qx, qy,
qz, qw:
camera to fixed frame), and `masks/<file stem>.npy` or `.png`, true where the object may be.

camera.json: width, height, fx, fy, cx, cy [px]; optional distortion_model and d, transform (4x4, camera to fixed
frame).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from soft_estimator.geometry.array_files import one_line, read_npy
from soft_estimator.perception.cloud import (
    MOST_POINTS,
    Cloud,
    Intrinsics,
    check_size,
    cloud_from_depth,
    cloud_from_points,
)
from soft_estimator.recordings.bag_files import BAG_ENDINGS, is_recording
from soft_estimator.recordings.bags import read_bag
from soft_estimator.recordings.point_files import MOST_FILE_BYTES, POINT_ENDINGS, read_points
from soft_estimator.recordings.tables import file_inside, read_table
from soft_estimator.recordings.transforms import rotation_of
from soft_estimator.schema.section import shown

_MOST_CAMERA_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class Frame:
    """One recorded frame: when [s], the cloud, what to call it, and where the object may be (None: anywhere)."""

    time_s: float
    cloud: Cloud
    name: str
    mask: np.ndarray | None = None


def read_frames(path: str | Path, topic: str | None = None, fixed_frame: str | None = None) -> Iterator[Frame]:
    """Frames in order of time.

    Args:
        path: a folder with stamps.csv, a point file, or a bag (a folder with metadata.yaml, .mcap or .db3).
        topic: which topic of a bag; needed only if it has several.
        fixed_frame: frame of a bag's transform tree to give points in; the root above the sensor if left out.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path} does not exist; give a folder with stamps.csv, a point file or a bag")
    if is_recording(path):
        for index, (time_s, cloud) in enumerate(read_bag(path, topic, fixed_frame)):
            yield Frame(time_s, cloud, f"message {index}")
    elif path.is_dir():
        yield from _read_folder(path)
    elif path.suffix.lower() in POINT_ENDINGS:
        yield Frame(0.0, _read_cloud(path, path.parent / "camera.json", None), path.name, _mask_of(path))
    else:
        known = ", ".join((*POINT_ENDINGS, *BAG_ENDINGS))
        raise ValueError(f"{path} has the ending {path.suffix!r}; give one of {known}, or a folder with stamps.csv")


def write_frames(folder: str | Path, clouds: list[Cloud], times_s: list[float]) -> None:
    """Write clouds as organised .npy point files in the sensor frame, with stamps.csv and poses.csv."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    stamps, poses = [["file", "seconds"]], [["file", "x", "y", "z", "qx", "qy", "qz", "qw"]]
    for index, (cloud, time_s) in enumerate(zip(clouds, times_s)):
        name = f"{index:05d}.npy"
        np.save(folder / name, ((cloud.points_m - cloud.sensor_m) @ cloud.rotation).astype(np.float32))
        stamps.append([name, repr(float(time_s))])
        poses.append([name, *(repr(float(a)) for a in (*cloud.sensor_m, *_quaternion(cloud.rotation)))])
    for name, rows in (("stamps.csv", stamps), ("poses.csv", poses)):
        with (folder / name).open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows(rows)


def _read_folder(folder: Path) -> Iterator[Frame]:
    stamps = folder / "stamps.csv"
    if not stamps.is_file():
        raise ValueError(f"{folder} has no stamps.csv; write one with columns file name and seconds")
    rows = _rows(stamps, 2)
    if not rows:
        raise ValueError(f"{stamps} names no frames; give one line per file: name, seconds")
    poses = {name: _pose(values, folder) for name, values in _rows(folder / "poses.csv", 8)}
    for name, values in sorted(rows, key=lambda row: row[1][0]):
        file = file_inside(folder, name)
        if file is None:
            raise ValueError(f"{stamps} names {shown(name)}, which is outside its folder; move the file beside it")
        if not file.is_file():
            raise ValueError(f"{stamps} names {shown(name)}, which does not exist in {folder}")
        if poses and name not in poses:
            raise ValueError(f"{folder / 'poses.csv'} has no line for {shown(name)}; give every frame a pose, or none")
        yield Frame(values[0], _read_cloud(file, folder / "camera.json", poses.get(name)), name, _mask_of(file))


def _rows(path: Path, columns: int) -> list[tuple[str, list[float]]]:
    """(name, numbers) of each line; a first line without numbers is a header. Empty if there is no such file."""
    if not path.is_file():
        return []
    rows = []
    for number, line in read_table(path):
        try:
            values = [float(cell) for cell in line[1:columns]]
            if len(values) != columns - 1 or not np.isfinite(values).all():
                raise ValueError
        except ValueError:
            if number == 1:
                continue
            raise ValueError(
                f"{path} line {number} is {shown(line)}; it needs a name and {columns - 1} numbers"
            ) from None
        rows.append((line[0].strip(), values))
    return rows


def _read_cloud(file: Path, camera_file: Path, pose: np.ndarray | None) -> Cloud:
    if file.suffix.lower() == ".npy":
        array = read_npy(file, MOST_FILE_BYTES)
        if array.ndim == 2 and (array.shape[1] != 3 or array.dtype == np.uint16):
            if not camera_file.is_file():
                raise ValueError(
                    f"{file} is a depth image of shape {array.shape} and needs {camera_file.name} beside it"
                )
            lens, transform = read_camera(camera_file)
            return cloud_from_depth(array, lens, transform if pose is None else pose)
        points, colour = array, None
    else:
        points, colour = read_points(file)
    if pose is None and camera_file.is_file():
        pose = read_camera(camera_file)[1]
    return cloud_from_points(points, pose, colour)


def read_camera(path: str | Path) -> tuple[Intrinsics, np.ndarray | None]:
    """Lens and transform (4, 4), if there is one, of a camera.json."""
    try:
        with Path(path).open("rb") as stream:
            data = json.loads(stream.read(_MOST_CAMERA_BYTES))
        matrix = [data["fx"], 0, data["cx"], 0, data["fy"], data["cy"], 0, 0, 1]
        lens = Intrinsics.from_camera_info(
            int(data["width"]),
            int(data["height"]),
            np.array(matrix),
            data.get("distortion_model", ""),
            data.get("d", ()),
        )
        transform = data.get("transform")
        return lens, None if transform is None else np.asarray(transform, dtype=np.float64)
    except KeyError as error:
        raise ValueError(f"{path} lacks {error}; it needs width, height, fx, fy, cx and cy") from None
    except (TypeError, AttributeError, ValueError, OverflowError, RecursionError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({one_line(error)}); see the format of camera.json") from error


def _mask_of(file: Path) -> np.ndarray | None:
    stored = file.parent / "masks" / f"{file.stem}.npy"
    if stored.is_file():
        return read_npy(stored, MOST_POINTS).astype(bool)
    picture = stored.with_suffix(".png")
    if picture.is_file():
        return _read_mask(picture)
    return None


def _read_mask(picture: Path) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(picture, formats=("PNG",)) as image:
            check_size(image.width * image.height)  # its pixels are not unpacked yet
            return np.asarray(image.convert("L")) > 127
    except Exception as error:  # a parser may raise anything on a damaged file
        raise ValueError(f"mask {picture} cannot be read ({one_line(error)}); write it again as PNG") from error


def _pose(values: list[float], folder: Path) -> np.ndarray:
    return pose_matrix(values[:3], values[3:], f"a pose in {folder / 'poses.csv'}")


def pose_matrix(position_m: list[float], quaternion: list[float], what: str) -> np.ndarray:
    """(4, 4) from a position [m] and a quaternion (x, y, z, w)."""
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation_of(quaternion, what), position_m
    return matrix


def _quaternion(rotation: np.ndarray) -> np.ndarray:
    """(x, y, z, w) of a rotation: the eigenvector of its quaternion matrix with the largest eigenvalue."""
    r = rotation
    k = np.array(
        [
            [r[0, 0] - r[1, 1] - r[2, 2], r[0, 1] + r[1, 0], r[0, 2] + r[2, 0], r[2, 1] - r[1, 2]],
            [r[0, 1] + r[1, 0], r[1, 1] - r[0, 0] - r[2, 2], r[1, 2] + r[2, 1], r[0, 2] - r[2, 0]],
            [r[0, 2] + r[2, 0], r[1, 2] + r[2, 1], r[2, 2] - r[0, 0] - r[1, 1], r[1, 0] - r[0, 1]],
            [r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1], r[0, 0] + r[1, 1] + r[2, 2]],
        ]
    )
    return np.linalg.eigh(k)[1][:, -1]
