"""A recording as it was meant: some of its frames, a camera pose that it does not hold, axes and units put right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

import numpy as np

from soft_estimator.geometry.pose_path import PosePath
from soft_estimator.perception.cloud import Cloud
from soft_estimator.recordings.ground_truth import TruthRow
from soft_estimator.recordings.interface import Frame, Recording, WrenchReading
from soft_estimator.recordings.transforms import rotation_of

_MILLIMETRES_M = 50.0  # a median distance beyond this many "metres" is one in millimetres: half a room is 5 m
_OPENGL_SHARE = 0.9  # share of points behind the camera that says that its z axis points backwards
_LOOKED_AT = 5000  # points of a cloud that are looked at for this


@dataclass(frozen=True)
class Choice:
    """What to take of a recording.

    Attributes:
        frames: which frames, as a slice of their numbers. sensor_pose: x, y, z [m] and the quaternion x, y, z, w of the
            camera in the fixed frame, in place of the recording's own; None for that.
    """

    frames: slice = field(default_factory=lambda: slice(None))
    sensor_pose: tuple[float, ...] | None = None

    @property
    def pose(self) -> np.ndarray | None:
        """The camera's pose as a matrix (4, 4)."""
        if self.sensor_pose is None:
            return None
        if len(self.sensor_pose) != 7:
            raise ValueError(f"sensor_pose has {len(self.sensor_pose)} numbers; it needs 7: x y z qx qy qz qw")
        matrix = np.eye(4)
        matrix[:3, :3] = rotation_of(self.sensor_pose[3:], "sensor_pose")
        matrix[:3, 3] = self.sensor_pose[:3]
        return matrix


def frames_of(text: str) -> slice:
    """Which frames: "20" for the first 20, "10:80", "10:80:2"; all for ""."""
    if not text.strip():
        return slice(None)
    try:
        numbers = [int(part) if part.strip() else None for part in text.split(":")]
    except ValueError:
        numbers = []
    given = [n for n in numbers if n is not None]
    if not 1 <= len(numbers) <= 3 or not given or min(given) < 0 or (len(numbers) == 3 and numbers[2] == 0):
        raise ValueError(f"'{text}' is no choice of frames; write 20 (the first 20), 10:80 or 10:80:2")
    return slice(numbers[0]) if len(numbers) == 1 else slice(*numbers)


class AdjustedRecording:
    """A recording with a choice applied, as a `Recording`.

    Clouds in millimetres, and clouds whose z axis points backwards (OpenGL's), are noticed by their first usable frame,
    put right, and noted.
    """

    def __init__(self, recording: Recording, choice: Choice | None = None) -> None:
        self._all, self._choice = recording, choice or Choice()
        self._pose = self._choice.pose
        self._fix: tuple[float, bool] | None = None
        self._notes: list[str] = []

    def __enter__(self) -> AdjustedRecording:
        self._all.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all.__exit__(kind, error, trace)

    @property
    def source(self) -> str:
        return self._all.source

    @property
    def truth(self) -> tuple[TruthRow, ...]:
        return self._all.truth

    @property
    def notes(self) -> list[str]:
        return [*self._all.notes, *self._notes]

    @property
    def posed(self) -> bool:
        return self._pose is not None or self._all.posed

    def path_of(self, frame: str) -> tuple[PosePath, bool]:
        return self._all.path_of(frame)

    def wrenches_of(self, topic: str) -> Sequence[WrenchReading]:
        return self._all.wrenches_of(topic)

    @property
    def start_s(self) -> float:
        return self._all.start_s

    def place_camera(self, pose: np.ndarray | None) -> None:
        """Take this camera pose (4, 4), where the recording holds none; without one, the camera's own frame is fixed.

        What was taken is noted.
        """
        if self.posed:
            return
        self._pose = pose
        if pose is None:
            self._notes.append("the recording has no transforms: the camera's own frame is taken for the scene's")
        else:
            self._notes.append("the recording has no transforms: the camera is taken to stand where the scene has it")

    @property
    def _numbers(self) -> Sequence[int]:
        return range(len(self._all))[self._choice.frames]

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Frame:
        if not 0 <= index < len(self):
            raise IndexError(f"{self.source} has {len(self)} chosen frames; there is no frame {index}")
        return self._adjusted(self._all[self._numbers[index]])

    def __iter__(self) -> Iterator[Frame]:
        wanted = self._choice.frames
        if wanted == slice(None):
            yield from map(self._adjusted, self._all)
            return
        numbers = set(self._numbers)
        for number, frame in enumerate(self._all):
            if number in numbers:
                yield self._adjusted(frame)

    def _adjusted(self, frame: Frame) -> Frame:
        cloud = frame.cloud
        if cloud is None:
            return frame
        if self._fix is None:
            self._fix = self._recognise(cloud)
        scale, backwards = self._fix
        if scale != 1.0 or backwards:
            cloud = _converted(cloud, scale, backwards)
        if self._pose is not None:
            cloud = _placed(cloud, self._pose)
        return frame if cloud is frame.cloud else replace(frame, cloud=cloud)

    def _recognise(self, cloud: Cloud) -> tuple[float, bool]:
        """Scale of its numbers, and whether its z axis points backwards; noted where something is to be changed."""
        depth = ((cloud.flat_m[:: max(1, cloud.size // _LOOKED_AT)] - cloud.sensor_m) @ cloud.axis).ravel()
        depth = depth[np.isfinite(depth) & (depth != 0)]
        if len(depth) == 0:
            return 1.0, False
        backwards = float(np.mean(depth < 0)) > _OPENGL_SHARE
        millimetres = float(np.median(np.abs(depth))) > _MILLIMETRES_M
        if backwards:
            self._notes.append("the points lie behind the camera: taken for OpenGL's axes (x right, y up, z backwards)")
        if millimetres:
            self._notes.append(f"the points lie {np.median(np.abs(depth)):.0f} m away: taken for millimetres")
        return (1e-3 if millimetres else 1.0), backwards


def _converted(cloud: Cloud, scale: float, backwards: bool) -> Cloud:
    local = (cloud.points_m - cloud.sensor_m) @ cloud.rotation * scale
    if backwards:
        local = local * np.array([1.0, -1.0, -1.0])
    return replace(cloud, points_m=local @ cloud.rotation.T + cloud.sensor_m)


def _placed(cloud: Cloud, pose: np.ndarray) -> Cloud:
    """The cloud seen by the same camera in another place; pose: camera to fixed frame, (4, 4)."""
    local, axis = (cloud.points_m - cloud.sensor_m) @ cloud.rotation, cloud.axis @ cloud.rotation
    rotation, sensor = np.ascontiguousarray(pose[:3, :3]), np.ascontiguousarray(pose[:3, 3])
    return replace(
        cloud, points_m=local @ rotation.T + sensor, rotation=rotation, sensor_m=sensor, axis=axis @ rotation.T
    )
