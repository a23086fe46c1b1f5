"""Sensor messages as arrays, by their fields alone: it does not matter whether rclpy or rosbags decoded them.

Reading is by views with offsets and strides; nothing is copied that need not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from soft_estimator.perception.cloud import Intrinsics
from soft_estimator.schema.section import printable, shown

CLOUD, IMAGE, INFO = "sensor_msgs/msg/PointCloud2", "sensor_msgs/msg/Image", "sensor_msgs/msg/CameraInfo"
TREE, WRENCH = "tf2_msgs/msg/TFMessage", "geometry_msgs/msg/WrenchStamped"

# sensor_msgs/msg/PointField: INT8 = 1 to FLOAT64 = 8
_DATATYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
_DEPTH_ENCODINGS = {"16UC1": "u2", "mono16": "u2", "32FC1": "f4"}


class PointField(Protocol):
    """One field of a cloud: its name, where it starts in a point [bytes], and its type."""

    name: str
    offset: int
    datatype: int


class PointCloud2(Protocol):
    """The fields of sensor_msgs/msg/PointCloud2 that hold points; data: array('B'), bytes or uint8 (n,)."""

    height: int
    width: int
    fields: Sequence[PointField]
    is_bigendian: bool
    point_step: int
    row_step: int
    data: Any


class Image(Protocol):
    """The fields of sensor_msgs/msg/Image that hold pixels; data: array('B'), bytes or uint8 (n,)."""

    height: int
    width: int
    encoding: str
    is_bigendian: int
    step: int
    data: Any


class CameraInfo(Protocol):
    """The fields of sensor_msgs/msg/CameraInfo that describe the lens."""

    height: int
    width: int
    distortion_model: str
    d: Any
    k: Any


class Stamp(Protocol):
    """builtin_interfaces/msg/Time."""

    sec: int
    nanosec: int


def seconds_of(stamp: Stamp) -> float:
    """A stamp as seconds."""
    return float(stamp.sec) + 1e-9 * float(stamp.nanosec)


def field_views(message: PointCloud2, names: tuple[str, ...]) -> list[np.ndarray]:
    """The named fields of a cloud, (height, width) each, views in the message's own type and byte order."""
    fields = {field.name: field for field in message.fields}
    missing = [name for name in names if name not in fields]
    if missing:
        there = printable(", ".join(fields)) or "none"
        raise ValueError(f"the cloud lacks the field {', '.join(missing)}; it has {there}")
    return [_field_view(message, fields[name]) for name in names]


def _field_view(message: PointCloud2, field: PointField) -> np.ndarray:
    if field.datatype not in _DATATYPES:
        raise ValueError(f"the cloud's field {field.name} has the datatype {field.datatype}; only 1 to 8 are known")
    dtype = np.dtype((">" if message.is_bigendian else "<") + _DATATYPES[field.datatype])
    if field.offset + dtype.itemsize > message.point_step:
        raise ValueError(
            f"the cloud's field {field.name} ends at byte {field.offset + dtype.itemsize} of points of "
            f"{message.point_step} bytes; the message is malformed"
        )
    shape = (message.height, message.width)
    if message.height * message.width == 0:
        return np.empty(shape, dtype=dtype)
    # Some drivers leave row_step at zero where a single row needs none.
    row_bytes = message.width * message.point_step
    row_step = message.row_step if message.height > 1 else row_bytes
    data = _bytes(message.data)
    if row_step < row_bytes or len(data) < (message.height - 1) * row_step + row_bytes:
        raise ValueError(
            f"the cloud of {message.height}x{message.width} points of {message.point_step} bytes has {len(data)} bytes "
            f"in rows of {row_step}; it is cut short"
        )
    return np.ndarray(shape, dtype, data, field.offset, (row_step, message.point_step))


def points_of(message: PointCloud2) -> np.ndarray:
    """x, y, z of a cloud, (h, w, 3) if it is organised, else (n, 3); float32 where the message has it, else float64."""
    x, y, z = field_views(message, ("x", "y", "z"))
    shape = (*x.shape, 3) if message.height > 1 else (x.size, 3)
    gaps = {y.__array_interface__["data"][0] - x.__array_interface__["data"][0],
            z.__array_interface__["data"][0] - y.__array_interface__["data"][0]}  # fmt: skip
    if x.dtype == y.dtype == z.dtype == np.dtype("<f4") and gaps == {4} and x.size:
        packed = np.lib.stride_tricks.as_strided(x, (*x.shape, 3), (*x.strides, 4), writeable=False)
        return packed.reshape(shape) if message.height > 1 else packed[0]
    wanted = np.float32 if all(a.dtype.newbyteorder("=") == np.float32 for a in (x, y, z)) else np.float64
    return np.stack([a.astype(wanted) for a in (x, y, z)], axis=-1).reshape(shape)


def depth_of(message: Image) -> np.ndarray:
    """A depth image (h, w), uint16 [mm] or float32 [m], in this machine's byte order."""
    if message.encoding not in _DEPTH_ENCODINGS:
        raise ValueError(
            f"the image's encoding {shown(message.encoding)} is no depth; choose a topic with 16UC1 or 32FC1"
        )
    item = np.dtype((">" if message.is_bigendian else "<") + _DEPTH_ENCODINGS[message.encoding])
    data = _bytes(message.data)
    if message.step < message.width * item.itemsize or len(data) < message.height * message.step:
        raise ValueError(
            f"the {message.height}x{message.width} depth image has {len(data)} bytes in rows of {message.step};"
            " it is cut short"
        )
    if message.height * message.width == 0:
        raise ValueError(f"the depth image has {message.height}x{message.width} pixels; is the camera running?")
    view: np.ndarray = np.ndarray((message.height, message.width), item, data, 0, (message.step, item.itemsize))
    return view.astype(item.newbyteorder("="))


def lens_of(info: CameraInfo) -> Intrinsics:
    """The lens that a CameraInfo describes."""
    return Intrinsics.from_camera_info(info.width, info.height, info.k, info.distortion_model, tuple(info.d))


def _bytes(data: Any) -> np.ndarray:
    """A message's data as uint8 (n,), a view."""
    return np.frombuffer(data, dtype=np.uint8) if len(data) else np.empty(0, dtype=np.uint8)
