"""ROS 2 bags (MCAP or SQLite) without ROS: PointCloud2, or depth images with their CameraInfo, and the transform
tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from soft_estimator.perception.cloud import Cloud, cloud_from_depth, cloud_from_points
from soft_estimator.recordings.bag_files import Bag
from soft_estimator.recordings.messages import CLOUD, IMAGE, INFO, TREE, depth_of, lens_of, points_of, seconds_of
from soft_estimator.recordings.transforms import TransformTree


def read_bag(path: Path, topic: str | None = None, fixed_frame: str | None = None) -> Iterator[tuple[float, Cloud]]:
    """Time [s] and cloud of every message of one topic.

    Args:
        path: the bag's folder, or one of its storage files.
        topic: a PointCloud2 or depth image topic; needed only if there are several.
        fixed_frame: frame to give points in, at each message's stamp; by default the root of the transforms above the
            sensor's frame, which is the sensor's frame itself if the bag has none.
    """
    with Bag(path) as bag:
        types = {t.name: t.kind for t in bag.topics}
        chosen = choose_topic(path, types, topic)
        info_topic = info_topic_of(path, chosen, types) if types[chosen] == IMAGE else None
        tree, lenses = _read_ahead(bag, info_topic)
        told, read = sum(t.count for t in bag.topics if t.name == chosen), 0
        for recorded in bag.messages([chosen]):
            message, read = bag.decode(recorded), read + 1
            seconds, own = time_of(message, recorded.stamp_ns), message.header.frame_id
            pose = tree.pose(own, fixed_frame or tree.root(own), seconds)
            cloud = cloud_of(message, recorded.kind, _lens_at(lenses, recorded.stamp_ns), pose)
            if cloud is not None:
                yield seconds, cloud
        if read < max(told, 1):
            raise ValueError(f"bag {path} has {told} messages on {chosen}, but {read} could be read; record it again")


def _read_ahead(bag: Bag, info_topic: str | None) -> tuple[TransformTree, list[tuple[int, Any]]]:
    """All transforms, and the camera's descriptions with their stamps [ns].

    Read before the clouds: a transform between two stamps needs the later one, and a latched description may have been
    recorded after the first image.
    """
    tree, lenses = TransformTree(), []
    wanted = [t.name for t in bag.topics if t.kind == TREE or t.name == info_topic]
    for recorded in bag.messages(wanted):
        message = bag.decode(recorded)
        if recorded.kind == TREE:
            tree.add(message, static=recorded.topic.endswith("tf_static"))
        else:
            lenses.append((recorded.stamp_ns, message))
    if info_topic is not None and not lenses:
        raise ValueError(f"the bag's {info_topic} holds no CameraInfo; record the camera's CameraInfo, too")
    return tree, lenses


def _lens_at(lenses: list[tuple[int, Any]], stamp_ns: int) -> Any:
    """The newest description of the camera up to a stamp, or the first one."""
    known = [info for at_ns, info in lenses if at_ns <= stamp_ns]
    return known[-1] if known else lenses[0][1] if lenses else None


def choose_topic(path: Path, types: dict[str, str], topic: str | None) -> str:
    """The topic asked for, or the only one of clouds or, without clouds, of depth images; types: topic to message
    type."""
    usable = sorted(name for name, kind in types.items() if kind == CLOUD) or sorted(
        name for name, kind in types.items() if kind == IMAGE and "depth" in name
    )
    if topic is not None:
        if types.get(topic) not in (CLOUD, IMAGE):
            raise ValueError(
                f"bag {path} has no cloud or depth topic {topic!r}; it has {', '.join(sorted(types)) or 'none'}"
            )
        return topic
    if len(usable) != 1:
        found = ", ".join(usable) if usable else f"none among {', '.join(sorted(types)) or 'no topics'}"
        raise ValueError(f"bag {path} needs exactly one cloud or depth topic, found {found}; name one with --topic")
    return usable[0]


def info_topic_of(path: Path, topic: str, types: dict[str, str]) -> str:
    """The CameraInfo topic beside an image topic, as image_transport places it."""
    wanted = topic.rsplit("/", 1)[0] + "/camera_info"
    infos = [name for name, kind in types.items() if kind == INFO]
    if wanted in infos or len(infos) == 1:
        return wanted if wanted in infos else infos[0]
    raise ValueError(f"bag {path} has no {wanted} for {topic}; record the camera's CameraInfo, too")


def time_of(message: Any, stamp_ns: int) -> float:
    """A message's stamp [s], or when it was recorded [ns] if it has none."""
    stamp = message.header.stamp
    return seconds_of(stamp) if stamp.sec or stamp.nanosec else 1e-9 * stamp_ns


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
