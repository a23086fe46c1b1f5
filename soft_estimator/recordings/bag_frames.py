"""Frames of a depth camera, and the ground truth beside them, out of a recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from soft_estimator.perception.cloud import Cloud
from soft_estimator.recordings.bag_files import Bag, BagMessage, Topic, list_topics
from soft_estimator.recordings.bags import cloud_of, info_topic_of, time_of
from soft_estimator.recordings.ground_truth import TRUTH_MESH_TOPIC, TRUTH_TOPIC, TruthRow
from soft_estimator.recordings.messages import CLOUD, IMAGE, INFO, TREE
from soft_estimator.recordings.transforms import TransformTree

_TRUTH, _MARKER = "diagnostic_msgs/msg/DiagnosticArray", "visualization_msgs/msg/Marker"
_TRIANGLE_LIST = 11
# The topic our nodes listen to by themselves; it wins where a bag has several.
USUAL_TOPIC = "/camera/points"


@dataclass(frozen=True, eq=False)
class CameraFrame:
    """A message of the camera: its stamp [s], the cloud in the fixed frame, or why there is none."""

    stamp_s: float
    cloud: Cloud | None
    problem: str = ""


@dataclass(frozen=True, eq=False)
class TrueSurface:
    """The true surface at a stamp [s]: corners of its triangles (F, 3, 3) [m]."""

    stamp_s: float
    triangles_m: np.ndarray


@dataclass
class CameraRecording:
    """One camera's part of a bag.

    Attributes:
        topic: the camera's clouds or depth images. count: how many. fixed_frame: frame the clouds come in.
        truth: true numbers, empty where the bag has none. notes: what a reader should know, in plain words.
    """

    bag: Bag
    topic: Topic
    fixed_frame: str
    truth: tuple[TruthRow, ...] = ()
    notes: list[str] = field(default_factory=list)
    _tree: Any = None
    _info: Any = None
    _mesh: Topic | None = None

    @property
    def count(self) -> int:
        return self.topic.count

    def __iter__(self) -> Iterator[CameraFrame | TrueSurface]:
        """Frames and true surfaces in the order of the recording."""
        names = {self.topic.name} | ({self._mesh.name} if self._mesh else set())
        for item in self.bag.messages(names):
            if item.topic == self.topic.name:
                yield self._frame(item)
            elif (surface := _surface(self.bag, item)) is not None:
                yield surface

    def _frame(self, item: BagMessage) -> CameraFrame:
        stamp_s = 1e-9 * item.stamp_ns
        try:
            message = self.bag.decode(item)
            stamp_s = time_of(message, item.stamp_ns)
            pose = self._tree.pose(message.header.frame_id, self.fixed_frame, stamp_s) if self._tree.parents else None
            cloud = cloud_of(message, item.kind, self._info, pose)
        except ValueError as error:
            return CameraFrame(stamp_s, None, " ".join(str(error).split()))
        return CameraFrame(stamp_s, cloud, "" if cloud is not None else "it came without a CameraInfo")


def open_camera(bag: Bag, topic: str | None = None, fixed_frame: str = "world") -> CameraRecording:
    """The camera's part of an open bag: its topic chosen, transforms, lens and ground truth read."""
    topics = bag.topics
    chosen, others = choose_topic(bag, topics, topic)
    made = CameraRecording(bag, chosen, fixed_frame, _tree=TransformTree())
    if others:
        made.notes.append(f"took {chosen.name}; there is also {', '.join(others)}: choose with --topic")
    kinds = {t.name: t.kind for t in topics if t.count}
    info = info_topic_of(bag.path, chosen.name, kinds) if chosen.kind == IMAGE else None
    truth = next((t for t in topics if t.kind == _TRUTH and _ends(t.name, TRUTH_TOPIC)), None)
    made._mesh = next((t for t in topics if t.kind == _MARKER and _ends(t.name, TRUTH_MESH_TOPIC)), None)
    first = {t.name for t in topics if t.kind == TREE} | {name for name in (info, truth and truth.name) if name}
    # Read ahead: a latched transform or lens may have been recorded later than the first image.
    for item in bag.messages(first):
        if item.kind == TREE:
            made._tree.add(bag.decode(item), static=item.topic.endswith("tf_static"))
        elif item.kind == INFO:
            made._info = bag.decode(item) if made._info is None else made._info
        elif not made.truth:
            made.truth = _truth_rows(bag.decode(item))
    if not made._tree.parents:
        made.notes.append(f"the bag has no transforms: the camera's own frame is taken for {fixed_frame}")
    return made


def choose_topic(bag: Bag, topics: Sequence[Topic], wanted: str | None) -> tuple[Topic, list[str]]:
    """The camera's topic, and the names of the others it could have been."""
    usable = [t for t in topics if t.kind == CLOUD and t.count]
    usable = usable or [t for t in topics if t.kind == IMAGE and "depth" in t.name and t.count]
    listed = list_topics(topics)
    if wanted is not None:
        named = next((t for t in topics if t.name == wanted or t.name == f"/{wanted}"), None)
        if named is None or named.kind not in (CLOUD, IMAGE) or not named.count:
            why = "no such topic" if named is None else "no messages" if not named.count else f"a {named.kind}"
            raise ValueError(
                f"bag {bag.path} cannot be replayed from --topic {wanted} ({why}); name a PointCloud2 or depth Image: "
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
        names = ", ".join(t.name for t in usable)
        raise ValueError(f"bag {bag.path} has several usable topics, {names}; name one with --topic")
    return usual[0], [t.name for t in usable if t is not usual[0]]


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
