"""Clouds, depth images and stamps between ROS messages and arrays.

Messages carry uint8[] as `array('B')`: filling one from bytes takes under a millisecond where assigning a NumPy array
would iterate for hundreds. Reading is by views with offsets and strides; nothing is copied.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from sensor_msgs.msg import CameraInfo, Image, PointCloud2, PointField
from std_msgs.msg import Header

from soft_estimator.camera.pinhole import PinholeCamera
from soft_estimator.perception.cloud import Cloud, Intrinsics, cloud_from_depth, cloud_from_points

_DATATYPES = {
    PointField.INT8: "i1",
    PointField.UINT8: "u1",
    PointField.INT16: "i2",
    PointField.UINT16: "u2",
    PointField.INT32: "i4",
    PointField.UINT32: "u4",
    PointField.FLOAT32: "f4",
    PointField.FLOAT64: "f8",
}
_DEPTH_ENCODINGS = {"16UC1": "u2", "mono16": "u2", "32FC1": "f4"}


def seconds_of(stamp: Time) -> float:
    """A stamp as seconds."""
    return float(stamp.sec) + 1e-9 * float(stamp.nanosec)


def stamp_of(seconds: float) -> Time:
    """Seconds as a stamp."""
    nanoseconds = round(seconds * 1e9)
    return Time(sec=nanoseconds // 10**9, nanosec=nanoseconds % 10**9)


def header_at(stamp: Time, frame_id: str) -> Header:
    return Header(stamp=stamp, frame_id=frame_id)


def field_views(message: PointCloud2, names: tuple[str, ...]) -> list[np.ndarray]:
    """The named fields of a cloud, (height, width) each, views in the message's own type and byte order."""
    fields = {field.name: field for field in message.fields}
    missing = [name for name in names if name not in fields]
    if missing:
        raise ValueError(f"the cloud lacks the field {', '.join(missing)}; it has {', '.join(fields) or 'none'}")
    size = message.height * message.width
    row_step = message.row_step if message.height > 1 else message.width * message.point_step
    data = np.frombuffer(message.data, dtype=np.uint8) if len(message.data) else np.empty(0, dtype=np.uint8)
    if size and (row_step < message.width * message.point_step or len(data) < (message.height - 1) * row_step
                 + message.width * message.point_step):  # fmt: skip
        raise ValueError(
            f"the cloud of {message.height}x{message.width} points of {message.point_step} bytes has {len(data)} bytes "
            f"in rows of {row_step}; it is cut short"
        )
    out = []
    for name in names:
        field = fields[name]
        if field.datatype not in _DATATYPES:
            raise ValueError(f"the cloud's field {name} has the datatype {field.datatype}; only 1 to 8 are known")
        dtype = np.dtype((">" if message.is_bigendian else "<") + _DATATYPES[field.datatype])
        if field.offset + dtype.itemsize > message.point_step:
            raise ValueError(
                f"the cloud's field {name} ends at byte {field.offset + dtype.itemsize} of points of "
                f"{message.point_step} bytes; the message is malformed"
            )
        if size == 0:
            out.append(np.empty((message.height, message.width), dtype=dtype))
            continue
        out.append(
            np.ndarray((message.height, message.width), dtype, data, field.offset, (row_step, message.point_step))
        )
    return out


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


def cloud_from_message(
    message: PointCloud2, transform: np.ndarray | None, optical_axis: tuple[float, float, float] = (0.0, 0.0, 1.0)
) -> Cloud:
    """A cloud in the fixed frame; transform (4, 4) is sensor frame to fixed frame."""
    return cloud_from_points(points_of(message), transform, optical_axis=optical_axis)


def message_from_points(header: Header, points_m: np.ndarray, **fields: np.ndarray) -> PointCloud2:
    """A cloud of float32 x, y, z and any further fields, organised if the points (h, w, 3) are."""
    points = np.asarray(points_m)
    height, width = (points.shape[0], points.shape[1]) if points.ndim == 3 else (1, len(points))
    columns = 3 + len(fields)
    packed = np.empty((height, width, columns), dtype="<f4")
    packed[..., :3] = points.reshape(height, width, 3)
    for k, values in enumerate(fields.values()):
        packed[..., 3 + k] = np.asarray(values).reshape(height, width)
    made = [
        PointField(name=name, offset=4 * k, datatype=PointField.FLOAT32, count=1)
        for k, name in enumerate(("x", "y", "z", *fields))
    ]
    return PointCloud2(
        header=header,
        height=height,
        width=width,
        fields=made,
        is_bigendian=False,
        point_step=4 * columns,
        row_step=4 * columns * width,
        data=byte_array(packed),
        is_dense=bool(np.isfinite(packed).all()),
    )


def object_from_message(message: PointCloud2) -> tuple[np.ndarray, np.ndarray | None]:
    """Object points (n, 3) [m] and their deviation (n,) [m] (None without the field std), those that are finite."""
    points = np.asarray(points_of(message), dtype=np.float64).reshape(-1, 3)
    std = None
    if any(field.name == "std" for field in message.fields):
        std = field_views(message, ("std",))[0].astype(np.float64).ravel()
    fine = np.isfinite(points).all(axis=1)
    if std is not None:
        fine &= np.isfinite(std) & (std > 0)
    return points[fine], None if std is None else std[fine]


def byte_array(values: np.ndarray) -> array[int]:
    """The bytes of an array as messages want them."""
    made = array("B")
    if values.size:
        made.frombytes(memoryview(np.ascontiguousarray(values)).cast("B"))
    return made


def depth_of(message: Image) -> np.ndarray:
    """A depth image (h, w), uint16 [mm] or float32 [m], in this machine's byte order."""
    if message.encoding not in _DEPTH_ENCODINGS:
        raise ValueError(f"the image's encoding {message.encoding!r} is no depth; choose a topic with 16UC1 or 32FC1")
    item = np.dtype((">" if message.is_bigendian else "<") + _DEPTH_ENCODINGS[message.encoding])
    if message.step < message.width * item.itemsize or len(message.data) < message.height * message.step:
        raise ValueError(
            f"the {message.height}x{message.width} depth image has {len(message.data)} bytes in rows of {message.step};"
            " it is cut short"
        )
    if message.height * message.width == 0:
        raise ValueError(f"the depth image has {message.height}x{message.width} pixels; is the camera running?")
    view = np.ndarray((message.height, message.width), item, memoryview(message.data), 0, (message.step, item.itemsize))
    return view.astype(item.newbyteorder("="))


def lens_of(info: CameraInfo) -> Intrinsics:
    """The lens that a CameraInfo describes."""
    return Intrinsics.from_camera_info(info.width, info.height, info.k, info.distortion_model, tuple(info.d))


def cloud_from_depth_message(message: Image, info: CameraInfo, transform: np.ndarray | None) -> Cloud:
    """A cloud in the fixed frame from a depth image and its camera."""
    return cloud_from_depth(depth_of(message), lens_of(info), transform)


def depth_message(header: Header, depth_m: np.ndarray) -> Image:
    """A 32FC1 image of depths (h, w) [m]."""
    depth = np.ascontiguousarray(depth_m, dtype="<f4")
    height, width = depth.shape
    return Image(
        header=header, height=height, width=width, encoding="32FC1", is_bigendian=0, step=4 * width,
        data=byte_array(depth),
    )  # fmt: skip


def camera_info_message(header: Header, camera: PinholeCamera) -> CameraInfo:
    """What a simulated camera says of itself."""
    fx, fy, cx, cy = camera.fx_px, camera.fy_px, camera.cx_px, camera.cy_px
    made: Any = CameraInfo(header=header, height=camera.height_px, width=camera.width_px)
    made.distortion_model, made.d = "plumb_bob", [0.0] * 5
    made.k = [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0]
    made.r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    made.p = [fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0]
    return made
