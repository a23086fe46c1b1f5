"""Frames of a depth camera, and the ground truth beside them, out of a ROS 2 bag (MCAP or SQLite). No ROS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from soft_estimator.geometry.pose_path import PosePath
from soft_estimator.geometry.rigid import quaternion
from soft_estimator.perception.cloud import Cloud, cloud_from_depth, cloud_from_points
from soft_estimator.recordings.bag_files import Bag, BagMessage, Topic, list_topics
from soft_estimator.recordings.ground_truth import TRUTH_MESH_TOPIC, TRUTH_TOPIC, TruthRow
from soft_estimator.recordings.interface import Frame, TrueSurface, WrenchReading
from soft_estimator.recordings.messages import (
    CLOUD,
    IMAGE,
    INFO,
    TREE,
    WRENCH,
    depth_of,
    lens_of,
    points_of,
    seconds_of,
)
from soft_estimator.recordings.transforms import TransformTree
from soft_estimator.schema.section import printable, shown

_TRUTH, _MARKER = "diagnostic_msgs/msg/DiagnosticArray", "visualization_msgs/msg/Marker"
_TRIANGLE_LIST = 11  # type of a Marker
# The topic our nodes listen to by themselves; it wins where a bag has several.
USUAL_TOPIC = "/camera/points"


class BagRecording:
    """One camera's part of a bag, as a `Recording`; use it in a `with` block.

    Frames come in the order of the recording. Asking for an earlier one than the last reads the bag anew.

    Args:
        path: the bag's folder, or one of its storage files.
        topic: a PointCloud2 or depth image topic; needed only where the usual one is not there and several are.
        fixed_frame: frame to give points in, at each message's stamp; the root of the transforms above the sensor's
            frame if left out, which is the sensor's frame itself if the bag has none.
    """

    def __init__(self, path: Path | str, topic: str | None = None, fixed_frame: str | None = None) -> None:
        self.bag, self._wanted, self.fixed_frame = Bag(path), topic, fixed_frame
        self.truth: tuple[TruthRow, ...] = ()
        self.notes: list[str] = []
        self._tree = TransformTree()
        self._lenses: list[tuple[int, Any]] = []  # descriptions of the camera with their stamps [ns]
        self._next = 0

    def __enter__(self) -> BagRecording:
        self.bag.__enter__()
        try:
            self._read_ahead()
        except BaseException:
            self.bag.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bag.__exit__(kind, error, trace)

    def _read_ahead(self) -> None:
        """Choose the topic; read all transforms, the camera's descriptions and the true numbers.

        Before the clouds: a transform between two stamps needs the later one, and a latched description may have been
        recorded after the first image.
        """
        bag, topics = self.bag, self.bag.topics
        self.topic, others = choose_topic(bag, topics, self._wanted)
        self.source = self.topic.name
        if others:
            listed = printable(", ".join(others))
            self.notes.append(f"took {printable(self.source)}; there is also {listed}: choose with --topic")
        kinds = {t.name: t.kind for t in topics if t.count}
        info = info_topic_of(bag.path, self.source, kinds) if self.topic.kind == IMAGE else None
        truth = next((t.name for t in topics if t.kind == _TRUTH and _ends(t.name, TRUTH_TOPIC)), None)
        self._mesh = next((t.name for t in topics if t.kind == _MARKER and _ends(t.name, TRUTH_MESH_TOPIC)), None)
        for item in bag.messages({t.name for t in topics if t.kind == TREE} | {n for n in (info, truth) if n}):
            if item.kind == TREE:
                self._tree.add(bag.decode(item), static=item.topic.endswith("tf_static"))
            elif item.kind == INFO:
                self._lenses.append((item.stamp_ns, bag.decode(item)))
            elif not self.truth:
                self.truth = _truth_rows(bag.decode(item))
        self._messages = self._grouped()

    @property
    def posed(self) -> bool:
        return bool(self._tree.parents)

    def path_of(self, frame: str) -> tuple[PosePath, bool]:
        try:
            return self._tree.path(frame, self.fixed_frame or self._tree.root(frame))
        except ValueError as error:
            raise ValueError(f"bag {self.bag.path}, tool_frame {shown(frame)}: {error}") from None

    def wrenches_of(self, topic: str) -> Sequence[WrenchReading]:
        out = []
        named = [t.name for t in self.bag.topics if t.kind == WRENCH and t.name.lstrip("/") == topic.lstrip("/")]
        for item in self.bag.messages(set(named)) if named else ():
            try:
                out.append(wrench_of(self.bag.decode(item), item.stamp_ns))
            except ValueError:  # one that cannot be read costs itself
                continue
        return out

    @property
    def start_s(self) -> float:
        for item in self.bag.messages({self.source}):
            try:
                return time_of(self.bag.decode(item), item.stamp_ns)
            except ValueError:
                continue
        return np.nan

    def __len__(self) -> int:
        return self.topic.count

    def __iter__(self) -> Iterator[Frame]:
        """All that can be read: a damaged bag may hold fewer than it says."""
        return (self._frame(number, *found) for number, found in enumerate(self._grouped()))

    def __getitem__(self, index: int) -> Frame:
        if not 0 <= index < len(self):
            raise IndexError(f"bag {self.bag.path} has {len(self)} frames on {self.source}; there is no frame {index}")
        if index < self._next:
            self._messages, self._next = self._grouped(), 0
        for found in self._messages:
            self._next += 1
            if self._next > index:
                return self._frame(index, *found)
        raise IndexError(
            f"bag {self.bag.path} has {len(self)} messages on {self.source}, but {self._next} could be read; record it "
            "again"
        )

    def _grouped(self) -> Iterator[tuple[BagMessage, list[BagMessage]]]:
        """The camera's messages, each with the true surfaces that were recorded up to the next one."""
        at: BagMessage | None = None
        meshes: list[BagMessage] = []
        for item in self.bag.messages({self.source, self._mesh} - {None}):  # type: ignore[arg-type]
            if item.topic != self.source:
                meshes.append(item)
                continue
            if at is not None:
                yield at, meshes
                meshes = []
            at = item
        if at is not None:
            yield at, meshes

    def _frame(self, number: int, item: BagMessage, meshes: list[BagMessage]) -> Frame:
        name, stamp_s = f"message {number}", 1e-9 * item.stamp_ns
        surfaces = tuple(found for mesh in meshes if (found := _surface(self.bag, mesh)) is not None)
        try:
            message = self.bag.decode(item)
            stamp_s, own = time_of(message, item.stamp_ns), str(message.header.frame_id)
            pose = None
            if self._tree.parents:
                pose = self._tree.pose(own, self.fixed_frame or self._tree.root(own), stamp_s)
            cloud = cloud_of(message, item.kind, _lens_at(self._lenses, item.stamp_ns), pose)
        except ValueError as error:
            return Frame(stamp_s, name, None, " ".join(str(error).split()), "unreadable", surfaces=surfaces)
        if cloud is None:
            return Frame(stamp_s, name, None, "it came without a CameraInfo", "without a CameraInfo", surfaces=surfaces)
        return Frame(stamp_s, name, cloud, frame_id=own.lstrip("/"), surfaces=surfaces)


def choose_topic(bag: Bag, topics: Sequence[Topic], wanted: str | None) -> tuple[Topic, list[str]]:
    """The camera's topic, and the names of the others it could have been."""
    usable = [t for t in topics if t.kind == CLOUD and t.count]
    usable = usable or [t for t in topics if t.kind == IMAGE and "depth" in t.name and t.count]
    listed = list_topics(topics)
    if wanted is not None:
        named = next((t for t in topics if t.name == wanted or t.name == f"/{wanted}"), None)
        if named is None or named.kind not in (CLOUD, IMAGE) or not named.count:
            why = "no such topic" if named is None else f"a {printable(named.kind)}" if named.count else "no messages"
            raise ValueError(
                f"bag {bag.path} cannot be read from --topic {wanted} ({why}); name a PointCloud2 or depth Image: "
                f"{listed}"
            )
        return named, []
    if not usable:
        raise ValueError(
            f"bag {bag.path} has no usable topic, which is a PointCloud2, or an Image with 'depth' in its name and a "
            f"CameraInfo; {listed}"
        )
    usual = [t for t in usable if t.name == USUAL_TOPIC] or (usable if len(usable) == 1 else [])
    if not usual:
        names = printable(", ".join(t.name for t in usable))
        raise ValueError(f"bag {bag.path} has several usable topics, {names}; name one with --topic")
    return usual[0], [t.name for t in usable if t is not usual[0]]


def info_topic_of(path: Path, topic: str, types: dict[str, str]) -> str:
    """The CameraInfo topic beside an image topic, as image_transport places it."""
    wanted = topic.rsplit("/", 1)[0] + "/camera_info"
    infos = [name for name, kind in types.items() if kind == INFO]
    if wanted in infos or len(infos) == 1:
        return wanted if wanted in infos else infos[0]
    wanted, topic = printable(wanted), printable(topic)
    raise ValueError(f"bag {path} has no {wanted} for {topic}; record the camera's CameraInfo, too")


def time_of(message: Any, stamp_ns: int) -> float:
    """A message's stamp [s], or when it was recorded [ns] if it has none."""
    stamp = message.header.stamp
    return seconds_of(stamp) if stamp.sec or stamp.nanosec else 1e-9 * stamp_ns


def wrench_of(message: Any, stamp_ns: int) -> WrenchReading:
    """The reading of a WrenchStamped, recorded at stamp_ns [ns]."""
    f, t = message.wrench.force, message.wrench.torque
    values = np.array([f.x, f.y, f.z, t.x, t.y, t.z], dtype=np.float64)
    return WrenchReading(time_of(message, stamp_ns), values, str(message.header.frame_id).lstrip("/"))


def cloud_of(message: Any, kind: str, info: Any, pose: np.ndarray | None) -> Cloud | None:
    """The cloud of a PointCloud2 or a depth image; None for an image while its camera's description is missing.

    Args:
        kind: the message's type. info: CameraInfo, for images. pose: sensor to fixed frame, (4, 4).
    """
    if kind == CLOUD:
        return cloud_from_points(points_of(message), pose)
    if info is None:
        return None
    return cloud_from_depth(depth_of(message), lens_of(info), pose)


def _lens_at(lenses: list[tuple[int, Any]], stamp_ns: int) -> Any:
    """The newest description of the camera up to a stamp, or the first one."""
    known = [info for at_ns, info in lenses if at_ns <= stamp_ns]
    return known[-1] if known else lenses[0][1] if lenses else None


def _ends(name: str, wanted: str) -> bool:
    return name == wanted or name.endswith(f"/{wanted}")


def _truth_rows(message: Any) -> tuple[TruthRow, ...]:
    rows = []
    for status in message.status:
        values = {item.key: item.value for item in status.values}
        try:
            rows.append(TruthRow(status.name, float(values["value"]), values.get("unit", "")))
        except (KeyError, ValueError):
            continue  # a status about something else
    return tuple(rows)


def _surface(bag: Bag, item: BagMessage) -> TrueSurface | None:
    try:
        message = bag.decode(item)
    except ValueError:
        return None  # a Marker of another age; the run is worth having without it
    if message.type != _TRIANGLE_LIST or len(message.points) < 3:
        return None
    points = np.array([(p.x, p.y, p.z) for p in message.points])
    return TrueSurface(time_of(message, item.stamp_ns), points[: len(points) // 3 * 3].reshape(-1, 3, 3))


@dataclass(frozen=True)
class BagCamera:
    """What nodes have to be told to take a bag's clouds: topic, points or depth, the sensor's frame and
    its pose, x, y, z [m] with a quaternion."""

    topic: str
    input: str
    frame: str
    pose: tuple[float, ...]


def bag_topic(path: Path | str, topic: str | None) -> tuple[str, str]:
    """The topic that a bag's camera is read from, and whether it holds "points" or "depth"."""
    with BagRecording(path, topic, "world") as recording:
        return recording.source, "points" if recording.topic.kind == CLOUD else "depth"


def bag_camera(path: Path | str, topic: str | None, fixed_frame: str) -> BagCamera:
    """The camera of a bag by its first usable message, for playing it where tf2 is not installed."""
    with BagRecording(path, topic, fixed_frame) as recording:
        problem = "it is empty"
        for frame in recording:
            if frame.cloud is not None:
                turn = quaternion(frame.cloud.rotation)
                kind = "points" if recording.topic.kind == CLOUD else "depth"
                pose = (*frame.cloud.sensor_m.tolist(), *turn.tolist())
                return BagCamera(recording.source, kind, frame.frame_id, pose)
            problem = frame.problem
    raise ValueError(f"bag {path} has no usable message on {recording.source}: {problem}")
