"""Clouds, depth images and stamps as ROS messages, and back (see recordings/messages.py for what is read).

Messages carry uint8[] as `array('B')`: filling one from bytes takes under a millisecond where assigning a NumPy array
would iterate for hundreds.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from sensor_msgs.msg import CameraInfo, Image, PointCloud2, PointField
from std_msgs.msg import Header

from soft_estimator.camera.pinhole import PinholeCamera
from soft_estimator.perception.cloud import Cloud, cloud_from_depth, cloud_from_points
from soft_estimator.recordings.messages import depth_of, field_views, lens_of, points_of

VIEWPOINT = ("vp_x", "vp_y", "vp_z")  # PCL's names for where the sensor was [m], in the cloud's frame


def stamp_of(seconds: float) -> Time:
    """Seconds as a stamp."""
    nanoseconds = round(seconds * 1e9)
    return Time(sec=nanoseconds // 10**9, nanosec=nanoseconds % 10**9)


def header_at(stamp: Time, frame_id: str) -> Header:
    return Header(stamp=stamp, frame_id=frame_id)


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


def viewpoint_of(message: PointCloud2) -> np.ndarray | None:
    """Where the camera was that saw an object's points (3,) [m], None where they do not say."""
    if message.width * message.height == 0 or not set(VIEWPOINT) <= {field.name for field in message.fields}:
        return None
    at = np.array([view.ravel()[0] for view in field_views(message, VIEWPOINT)], dtype=np.float64)
    return at if np.isfinite(at).all() else None


def byte_array(values: np.ndarray) -> array[int]:
    """The bytes of an array as messages want them."""
    made = array("B")
    if values.size:
        made.frombytes(np.ascontiguousarray(values).data.cast("B"))
    return made


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
