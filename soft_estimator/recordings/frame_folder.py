"""A folder of recorded frames: point files or depth images.

A folder holds `stamps.csv` (columns: file name, seconds) beside .npy, .ply or .pcd point files, or beside depth images
as .npy (uint16 millimetres or float metres, 2-D) or 16-bit .png with a `camera.json`. Optional: `poses.csv` (file name,
x, y, z [m], qx, qy, qz, qw: camera to fixed frame), and `masks/<file stem>.npy` or `.png`, true where the object may
be.

camera.json: width, height, fx, fy, cx, cy [px]; optional distortion_model and d, transform (4x4, camera to fixed
frame), depth_unit_m (metres that a unit of an integer image stands for; 0.001 if left out).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from soft_estimator.geometry.array_files import one_line, read_npy
from soft_estimator.geometry.pose_path import PosePath
from soft_estimator.perception.cloud import (
    MOST_POINTS,
    Cloud,
    Intrinsics,
    check_size,
    cloud_from_depth,
    cloud_from_points,
)
from soft_estimator.recordings.ground_truth import TruthRow
from soft_estimator.recordings.interface import Frame, WrenchReading
from soft_estimator.recordings.point_files import MOST_FILE_BYTES, PointFile, points_from_array, read_any_point_file
from soft_estimator.recordings.tables import file_inside, read_table
from soft_estimator.recordings.transforms import rotation_of
from soft_estimator.schema.section import shown

STAMPS, POSES, CAMERA = "stamps.csv", "poses.csv", "camera.json"
# x, y, z, deviation, curvature share and a direction are the most columns that a point has; a wider array is an image.
_MOST_COLUMNS = 8
_MOST_CAMERA_BYTES = 1 << 20  # of camera.json


class Row(NamedTuple):
    """A line of stamps.csv: a file's name, its stamp [s] (NaN without one), and the line's number."""

    name: str
    time_s: float
    line: int


class FrameFolder:
    """The frames of a folder, in order of their stamps; those without a stamp first.

    Args:
        in_file_order: in the order of stamps.csv instead.
    """

    def __init__(self, folder: str | Path, *, in_file_order: bool = False) -> None:
        self.folder = Path(folder)
        self.source = str(folder)
        self.truth: tuple[TruthRow, ...] = ()
        self.notes: list[str] = []
        self._poses = dict(_numbers(self.folder / POSES, 8))
        self.rows = _read_stamps(self.folder)
        if not in_file_order:
            self.rows.sort(key=lambda row: row.time_s if np.isfinite(row.time_s) else -np.inf)

    @classmethod
    def of_file(cls, path: Path) -> FrameFolder:
        """A single point file or depth image, taken at time 0."""
        made = cls.__new__(cls)
        made.folder, made.source, made.truth, made.notes = path.parent, str(path), (), []
        made._poses, made.rows = {}, [Row(path.name, 0.0, 1)]
        return made

    def __enter__(self) -> FrameFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held open."""

    @property
    def posed(self) -> bool:
        camera = self.folder / CAMERA
        return bool(self._poses) or (camera.is_file() and read_camera(camera)[1] is not None)

    def path_of(self, frame: str) -> tuple[PosePath, bool]:
        raise ValueError(
            f"{self.source} is a folder of frames and holds no transforms, so that tool_frame {shown(frame)} has no "
            "pose; give the obstacle a path_file"
        )

    def wrenches_of(self, topic: str) -> Sequence[WrenchReading]:
        return ()

    @property
    def start_s(self) -> float:
        return next((row.time_s for row in self.rows if np.isfinite(row.time_s)), np.nan)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Frame]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Frame:
        name, time_s, line = self.rows[index]
        stamps, file = self.folder / STAMPS, file_inside(self.folder, name)
        if not np.isfinite(time_s):
            problem = f"{stamps} line {line} gives {shown(name)} no stamp; it needs a file name and seconds"
            return Frame(time_s, name, None, problem, "without a stamp")
        if file is None:
            problem = f"{stamps} names {shown(name)}, which is outside its folder; move the file beside it"
            return Frame(time_s, name, None, problem, "outside the folder")
        if not file.is_file():
            problem = f"{stamps} names {shown(name)}, which does not exist in {self.folder}"
            return Frame(time_s, name, None, problem, "missing from the folder")
        try:
            cloud, content = self._read(file)
            return Frame(time_s, name, cloud, mask=_mask_of(file), content=content)
        except (ValueError, OSError) as error:
            return Frame(time_s, name, None, " ".join(str(error).split()), "unreadable")

    def _pose_of(self, name: str) -> np.ndarray | None:
        if self._poses and name not in self._poses:
            raise ValueError(f"{self.folder / POSES} has no line for {shown(name)}; give every frame a pose, or none")
        values = self._poses.get(name)
        return None if values is None else pose_matrix(values[:3], values[3:], f"a pose in {self.folder / POSES}")

    def _read(self, file: Path) -> tuple[Cloud, PointFile | None]:
        """The cloud, and what a point file says of its points."""
        pose, camera_file = self._pose_of(file.name), self.folder / CAMERA
        lens, transform = read_camera(camera_file) if camera_file.is_file() else (None, None)
        pose = transform if pose is None else pose
        if file.suffix.lower() in (".npy", ".png"):
            array = read_npy(file, MOST_FILE_BYTES) if file.suffix.lower() == ".npy" else _read_depth_png(file)
            if _is_depth(array, lens):
                if lens is None:
                    raise ValueError(f"{file} is a depth image of shape {array.shape} and needs {CAMERA} beside it")
                return cloud_from_depth(_in_metres(array, camera_file), lens, pose), None
            content = points_from_array(array, file)
        else:
            content = read_any_point_file(file)
        cloud = cloud_from_points(content.points_m, pose, content.colours)
        if pose is None:
            return cloud, content
        more = content.more
        if more is not None and more.shape[1] >= 4:  # a share and a direction, which turns with the sensor
            more = np.column_stack([more[:, :1], more[:, 1:4] @ pose[:3, :3].T, more[:, 4:]])
        return cloud, replace(content, points_m=cloud.points_m, more=more)


def _read_depth_png(file: Path) -> np.ndarray:
    """A 16-bit depth image (h, w), uint16."""
    from PIL import Image

    try:
        with Image.open(file, formats=("PNG",)) as image:
            check_size(image.width * image.height)  # its pixels are not unpacked yet
            mode, pixels = image.mode, np.asarray(image)
    except Exception as error:  # a parser may raise anything on a damaged file
        raise ValueError(f"depth image {file} cannot be read ({one_line(error)}); write it again as PNG") from error
    if not mode.startswith("I") or pixels.ndim != 2:
        raise ValueError(f"{file} is a picture of mode {mode}, not a depth image; write 16 bits a pixel, one channel")
    return np.clip(pixels, 0, 65535).astype(np.uint16)


def _in_metres(array: np.ndarray, camera_file: Path) -> np.ndarray:
    """An integer image in another unit than millimetres, in metres; any other as it is."""
    unit = depth_unit_m(camera_file)
    return array if array.dtype.kind == "f" or unit == 0.001 else array.astype(np.float32) * np.float32(unit)


def depth_unit_m(camera_file: Path) -> float:
    """Metres that a unit of an integer depth image stands for."""
    if not camera_file.is_file():
        return 0.001
    with camera_file.open("rb") as stream:
        unit = json.loads(stream.read(_MOST_CAMERA_BYTES)).get("depth_unit_m", 0.001)
    if not isinstance(unit, int | float) or not 1e-7 < unit < 1:
        raise ValueError(f"{camera_file} has depth_unit_m {shown(unit)}; give metres such as 0.001 or 0.0002")
    return float(unit)


def _is_depth(array: np.ndarray, lens: Intrinsics | None) -> bool:
    """Whether an array is an image of depths, not a table of points."""
    if array.ndim != 2 or array.size == 0:
        return False
    as_seen = lens is not None and array.shape == (lens.height_px, lens.width_px)
    return array.dtype == np.uint16 or as_seen or array.shape[1] > _MOST_COLUMNS


def _read_stamps(folder: Path) -> list[Row]:
    """The lines; a stamp that is no number becomes NaN. The first line may be a header."""
    stamps = folder / STAMPS
    if not stamps.is_file():
        raise ValueError(
            f"{folder} has no {STAMPS}, and no .mcap or .db3 of a bag; write {STAMPS} with a line for each frame: file "
            "name, seconds"
        )
    rows = []
    for place, (number, line) in enumerate(read_table(stamps)):
        value = _number(line[1]) if len(line) > 1 else np.nan
        if place == 0 and np.isnan(value) and not _names_a_file(folder, line):
            continue
        rows.append(Row(line[0].strip(), value, number))
    if not rows:
        raise ValueError(f"{stamps} names no frames; give a line for each: file name, seconds")
    return rows


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def _names_a_file(folder: Path, line: list[str]) -> bool:
    """Whether a line is about a file of the folder, and no header."""
    file = file_inside(folder, line[0].strip())
    return file is not None and file.is_file()


def _numbers(path: Path, columns: int) -> Iterator[tuple[str, list[float]]]:
    """(name, numbers) of each line; a first line that names no file may be a header. Nothing if there is no table."""
    for place, (number, line) in enumerate(read_table(path) if path.is_file() else []):
        values = [_number(cell) for cell in line[1:columns]]
        if len(values) == columns - 1 and np.isfinite(values).all():
            yield line[0].strip(), values
        elif place > 0 or _names_a_file(path.parent, line):
            raise ValueError(f"{path} line {number} is {shown(line)}; it needs a name and {columns - 1} numbers")


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
    for name, rows in ((STAMPS, stamps), (POSES, poses)):
        with (folder / name).open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows(rows)


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
