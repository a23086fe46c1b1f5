"""ROS 2 bags (MCAP or SQLite) without ROS: PointCloud2, or depth images with their CameraInfo, and the transform
tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from soft_estimator.perception.cloud import Cloud, Intrinsics, cloud_from_depth, cloud_from_points

BAG_ENDINGS = (".mcap", ".db3")
_CLOUD, _IMAGE, _INFO = "sensor_msgs/msg/PointCloud2", "sensor_msgs/msg/Image", "sensor_msgs/msg/CameraInfo"
_TREE = "tf2_msgs/msg/TFMessage"
_DATATYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
_DEPTH_ENCODINGS = {"16UC1": "u2", "mono16": "u2", "32FC1": "f4"}


def is_bag(path: Path) -> bool:
    """Whether a path is a ROS 2 bag: its folder or its storage file."""
    return path.suffix.lower() in BAG_ENDINGS or (path / "metadata.yaml").is_file()


def read_bag(path: Path, topic: str | None = None, fixed_frame: str | None = None) -> Iterator[tuple[float, Cloud]]:
    """Time [s] and cloud of every message of one topic; points in fixed_frame where the bag's transforms lead there."""
    reader_class, typestore = _import_rosbags()
    # the storage files themselves: a folder's metadata may hide topics whose QoS it tells differently
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.suffix in BAG_ENDINGS)
    if not files:
        raise ValueError(f"bag {path} holds no .mcap or .db3 file; was the recording copied completely?")
    with reader_class(files, default_typestore=typestore) as reader:
        types = {c.topic: c.msgtype for c in reader.connections}
        chosen = _choose_topic(path, types, topic)
        wanted = [c for c in reader.connections if c.topic == chosen or c.msgtype in (_INFO, _TREE)]
        tree, lenses = _TransformTree(), {}
        info_topic = _info_topic(path, chosen, types) if types[chosen] == _IMAGE else None
        for connection, stamp_ns, raw in reader.messages(wanted):
            message = reader.deserialize(raw, connection.msgtype)
            if connection.msgtype == _TREE:
                tree.add(message)
            elif connection.msgtype == _INFO:
                lenses[connection.topic] = message
            elif connection.topic == chosen:
                pose = tree.pose(message.header.frame_id, fixed_frame) if fixed_frame else None
                cloud = _cloud_of(message, connection.msgtype, lenses.get(info_topic), pose)
                if cloud is not None:
                    yield _time_s(message, stamp_ns), cloud


def _import_rosbags() -> tuple[Any, Any]:
    try:
        from rosbags.highlevel import AnyReader
        from rosbags.typesys import Stores, get_typestore
    except ImportError as error:
        raise ValueError("reading a bag needs rosbags; run: pip install soft_estimator[perception]") from error
    return AnyReader, get_typestore(Stores.ROS2_JAZZY)


def _choose_topic(path: Path, types: dict[str, str], topic: str | None) -> str:
    usable = sorted(name for name, kind in types.items() if kind == _CLOUD) or sorted(
        name for name, kind in types.items() if kind == _IMAGE and "depth" in name
    )
    if topic is not None:
        if types.get(topic) not in (_CLOUD, _IMAGE):
            raise ValueError(
                f"bag {path} has no cloud or depth topic {topic!r}; it has {', '.join(sorted(types)) or 'none'}"
            )
        return topic
    if len(usable) != 1:
        found = ", ".join(usable) if usable else f"none among {', '.join(sorted(types)) or 'no topics'}"
        raise ValueError(f"bag {path} needs exactly one cloud or depth topic, found {found}; name one with --topic")
    return usable[0]


def _info_topic(path: Path, topic: str, types: dict[str, str]) -> str:
    """The CameraInfo topic beside an image topic, as image_transport places it."""
    wanted = topic.rsplit("/", 1)[0] + "/camera_info"
    infos = [name for name, kind in types.items() if kind == _INFO]
    if wanted in infos or len(infos) == 1:
        return wanted if wanted in infos else infos[0]
    raise ValueError(f"bag {path} has no {wanted} for {topic}; record the camera's CameraInfo, too")


def _time_s(message: Any, stamp_ns: int) -> float:
    stamp = message.header.stamp
    return stamp.sec + 1e-9 * stamp.nanosec if stamp.sec or stamp.nanosec else 1e-9 * stamp_ns


def _cloud_of(message: Any, kind: str, info: Any, pose: np.ndarray | None) -> Cloud | None:
    if kind == _CLOUD:
        points = points_of(message)
        return cloud_from_points(points, pose)
    if info is None:
        return None  # the camera has not said yet what it is
    if message.encoding not in _DEPTH_ENCODINGS:
        raise ValueError(f"image encoding {message.encoding!r} is no depth; choose a topic with 16UC1 or 32FC1")
    item = np.dtype(_DEPTH_ENCODINGS[message.encoding]).newbyteorder(">" if message.is_bigendian else "<")
    rows = np.frombuffer(_bytes(message.data), dtype=np.uint8).reshape(message.height, message.step)
    image = rows[:, : message.width * item.itemsize].copy().view(item)
    lens = Intrinsics.from_camera_info(info.width, info.height, info.k, info.distortion_model, info.d)
    return cloud_from_depth(image.astype(item.newbyteorder("=")), lens, pose)


def points_of(message: Any) -> np.ndarray:
    """Points (n, 3) or, for an organised cloud, (h, w, 3) of a PointCloud2, a view where the layout allows."""
    fields = {field.name: field for field in message.fields}
    missing = [axis for axis in "xyz" if axis not in fields]
    if missing:
        raise ValueError(f"PointCloud2 lacks field {', '.join(missing)}; it has {', '.join(fields) or 'none'}")
    if any(fields[axis].datatype not in _DATATYPES for axis in "xyz"):
        raise ValueError(f"PointCloud2 x, y, z have datatype {fields['x'].datatype}; only 1 to 8 are known")
    order = ">" if message.is_bigendian else "<"
    spec: Any = {
        "names": ["x", "y", "z"],
        "formats": [order + _DATATYPES[fields[axis].datatype] for axis in "xyz"],
        "offsets": [fields[axis].offset for axis in "xyz"],
        "itemsize": message.point_step,
    }
    layout = np.dtype(spec)
    data = np.frombuffer(_bytes(message.data), dtype=np.uint8)
    if message.row_step < message.width * message.point_step or len(data) < message.height * message.row_step:
        raise ValueError(
            f"PointCloud2 of {message.height}x{message.width} points has {len(data)} bytes of data in rows of "
            f"{message.row_step}; it is cut short"
        )
    rows = data[: message.height * message.row_step].reshape(message.height, message.row_step)
    records = np.ascontiguousarray(rows[:, : message.width * message.point_step]).view(layout)
    points = np.stack(
        [records[axis].astype(np.float32 if fields[axis].datatype == 7 else np.float64) for axis in "xyz"], -1
    )
    return points if message.height > 1 else points.reshape(-1, 3)


def _bytes(data: Any) -> memoryview:
    return memoryview(np.ascontiguousarray(data)).cast("B") if isinstance(data, np.ndarray) else memoryview(bytes(data))


def rotation_of(quaternion: Any, what: str) -> np.ndarray:
    """(3, 3) of a quaternion (x, y, z, w), of unit length within a percent."""
    q = np.asarray(quaternion, dtype=np.float64)
    length = float(np.linalg.norm(q))
    if q.shape != (4,) or not abs(length - 1) < 0.01:
        raise ValueError(f"{what} has the quaternion {q.tolist()}; give x, y, z, w of unit length")
    x, y, z, w = q / length
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


class _TransformTree:
    """The newest transform of every frame to its parent."""

    def __init__(self) -> None:
        self.parents: dict[str, tuple[str, np.ndarray]] = {}

    def add(self, message: Any) -> None:
        for entry in message.transforms:
            matrix, t = np.eye(4), entry.transform
            r = t.rotation
            matrix[:3, :3] = rotation_of((r.x, r.y, r.z, r.w), f"transform of {entry.child_frame_id}")
            matrix[:3, 3] = t.translation.x, t.translation.y, t.translation.z
            self.parents[entry.child_frame_id.lstrip("/")] = (entry.header.frame_id.lstrip("/"), matrix)

    def pose(self, frame: str, fixed: str) -> np.ndarray:
        """(4, 4) from a frame to the fixed frame, up to their common ancestor and down again."""
        up, down = self._to_root(frame.lstrip("/")), self._to_root(fixed.lstrip("/"))
        for ancestor, matrix in up.items():
            if ancestor in down:
                return np.linalg.inv(down[ancestor]) @ matrix
        known = ", ".join(sorted(self.parents)) or "none"
        raise ValueError(f"the bag's transforms do not lead from {frame!r} to {fixed!r}; known frames: {known}")

    def _to_root(self, frame: str) -> dict[str, np.ndarray]:
        """Ancestors in order, each with the transform from `frame` to it."""
        chain = {frame: np.eye(4)}
        while frame in self.parents and self.parents[frame][0] not in chain:
            parent, matrix = self.parents[frame]
            chain[parent] = matrix @ chain[frame]
            frame = parent
        return chain
