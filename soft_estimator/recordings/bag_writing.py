"""Writing a rosbag2 without ROS: what a depth camera publishes, and the ground truth of a simulated one.

Metadata is of version 8, which every rosbag2 from Humble on reads; newer ones write version 9.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from soft_estimator.camera.pinhole import PinholeCamera
from soft_estimator.geometry.rigid import quaternion
from soft_estimator.recordings.bag_files import message_types
from soft_estimator.recordings.cut_off import RecordingCutOff, finish_mcap
from soft_estimator.recordings.ground_truth import TruthRow

FORMATS = ("mcap", "sqlite3")
_METADATA_VERSION = 8  # see above
_COMMIT_BYTES = 4 << 20  # about one cloud of a VGA camera: what a full disk may cost
_FLOAT32 = 7  # datatype of a PointField
_TRIANGLE_LIST = 11  # type of a Marker
_BODY_COLOUR = (0.91, 0.42, 0.30, 1.0)  # the coral of the pictures


class BagWriter:
    """A bag to be written; use it in a `with` block. Without an error it is complete when the block is left.

    Where the disk takes no more, a RecordingCutOff names the file; what was written up to there can be read.
    """

    def __init__(self, path: Path | str, storage: str = "mcap") -> None:
        path = Path(path)
        if storage not in FORMATS:
            raise ValueError(f"bag format '{storage}' does not exist; use one of {', '.join(FORMATS)}")
        if path.exists():
            raise ValueError(f"bag {path} exists already; name a folder that does not, or remove it")
        writer, plugins, self.store = _import_rosbags()
        plugin = plugins.MCAP if storage == "mcap" else plugins.SQLITE3
        self.path, self._writer = path, writer(path, version=_METADATA_VERSION, storage_plugin=plugin)
        self.file = path / f"{path.name}.{'mcap' if storage == 'mcap' else 'db3'}"
        self._connections: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        self._pending_bytes, self._is_cut_off = 0, False

    def __enter__(self) -> BagWriter:
        self._writer.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_cut_off:
            return
        try:
            self._writer.__exit__(kind, error, trace)
        except (OSError, sqlite3.Error) as failure:
            raise self._cut_off(failure) from failure

    def _cut_off(self, failure: Exception) -> RecordingCutOff:
        """Make readable what is there; the error to raise."""
        self._is_cut_off = True
        with suppress(Exception):  # what could not be written before cannot be written now either
            self._writer.abort()
        if self.file.suffix == ".mcap":
            with suppress(OSError):
                finish_mcap(self.file)
        said = failure.strerror if isinstance(failure, OSError) else failure
        return RecordingCutOff(
            f"{self.file} could not be written any further ({said}); what was recorded up to there can be read. Free "
            "some space, or record to another disk"
        )

    def make(self, kind: str, **fields: Any) -> Any:
        """A message such as std_msgs/msg/Header."""
        return self.store.types[kind](**fields)

    def header(self, stamp_ns: int, frame_id: str) -> Any:
        seconds, rest = divmod(int(stamp_ns), 10**9)
        time = self.make("builtin_interfaces/msg/Time", sec=seconds, nanosec=rest)
        return self.make("std_msgs/msg/Header", stamp=time, frame_id=frame_id)

    def write(self, topic: str, stamp_ns: int, message: Any, latched: bool = False) -> None:
        """Add a message; a latched topic is offered to those who come later, as /tf_static is."""
        kind = message.__msgtype__
        data = self.store.serialize_cdr(message, kind)
        try:
            if topic not in self._connections:
                self._connections[topic] = self._writer.add_connection(
                    topic, kind, typestore=self.store, offered_qos_profiles=[_qos(latched)]
                )
            self._writer.write(self._connections[topic], int(stamp_ns), data)
            self._keep(len(data))
        except (OSError, sqlite3.Error) as failure:
            raise self._cut_off(failure) from failure
        self.counts[topic] = self.counts.get(topic, 0) + 1

    def _keep(self, written_bytes: int) -> None:
        """Have a database keep what it got every few megabytes: all since then is lost when the disk runs full."""
        self._pending_bytes += written_bytes
        if self.file.suffix == ".db3" and self._pending_bytes > _COMMIT_BYTES:
            self._writer.storage.conn.commit()
            self._pending_bytes = 0

    def cloud(self, topic: str, stamp_ns: int, frame_id: str, points_m: np.ndarray) -> None:
        """An organised PointCloud2 of points (h, w, 3) [m], NaN where nothing was measured."""
        height, width = points_m.shape[:2]
        fields = [
            self.make("sensor_msgs/msg/PointField", name=axis, offset=4 * k, datatype=_FLOAT32, count=1)
            for k, axis in enumerate("xyz")
        ]
        message = self.make(
            "sensor_msgs/msg/PointCloud2",
            header=self.header(stamp_ns, frame_id),
            height=height,
            width=width,
            fields=fields,
            is_bigendian=False,
            point_step=12,
            row_step=12 * width,
            data=np.ascontiguousarray(points_m, dtype="<f4").reshape(-1).view(np.uint8),
            is_dense=bool(np.isfinite(points_m).all()),
        )
        self.write(topic, stamp_ns, message)

    def depth_image(self, topic: str, stamp_ns: int, frame_id: str, depth_m: np.ndarray) -> None:
        """A 16UC1 image (h, w) in millimetres, 0 where nothing was measured or 65.5 m do not suffice."""
        height, width = depth_m.shape
        millimetres = np.rint(1e3 * np.nan_to_num(depth_m))
        pixels = np.where((millimetres > 0) & (millimetres < 65536), millimetres, 0).astype("<u2")
        message = self.make(
            "sensor_msgs/msg/Image",
            header=self.header(stamp_ns, frame_id),
            height=height,
            width=width,
            encoding="16UC1",
            is_bigendian=0,
            step=2 * width,
            data=pixels.reshape(-1).view(np.uint8),
        )
        self.write(topic, stamp_ns, message)

    def camera_info(self, topic: str, stamp_ns: int, frame_id: str, camera: PinholeCamera) -> None:
        """The CameraInfo of an ideal pinhole."""
        fx, fy, cx, cy = camera.fx_px, camera.fy_px, camera.cx_px, camera.cy_px
        nothing = {"x_offset": 0, "y_offset": 0, "height": 0, "width": 0, "do_rectify": False}
        message = self.make(
            "sensor_msgs/msg/CameraInfo",
            header=self.header(stamp_ns, frame_id),
            height=camera.height_px,
            width=camera.width_px,
            distortion_model="plumb_bob",
            d=np.zeros(5),
            k=np.array([fx, 0, cx, 0, fy, cy, 0, 0, 1], dtype=np.float64),
            r=np.eye(3).ravel(),
            p=np.array([fx, 0, cx, 0, 0, fy, cy, 0, 0, 0, 1, 0], dtype=np.float64),
            binning_x=0,
            binning_y=0,
            roi=self.make("sensor_msgs/msg/RegionOfInterest", **nothing),
        )
        self.write(topic, stamp_ns, message)

    def static_transforms(self, stamp_ns: int, fixed: str, cameras: Sequence[tuple[str, PinholeCamera]]) -> None:
        """/tf_static from a fixed frame to the optical frame of each camera."""
        self.transforms(stamp_ns, fixed, [(frame, c.rotation, c.position_m) for frame, c in cameras], static=True)

    def transforms(
        self, stamp_ns: int, fixed: str, frames: Sequence[tuple[str, np.ndarray, np.ndarray]], static: bool = False
    ) -> None:
        """/tf, or /tf_static, from a fixed frame to frames: name, rotation (3, 3) and origin (3,) [m] of each."""
        entries = []
        for frame_id, rotation, origin_m in frames:
            x, y, z = (float(a) for a in origin_m)
            qx, qy, qz, qw = (float(a) for a in quaternion(rotation))
            transform = self.make(
                "geometry_msgs/msg/Transform",
                translation=self.make("geometry_msgs/msg/Vector3", x=x, y=y, z=z),
                rotation=self.make("geometry_msgs/msg/Quaternion", x=qx, y=qy, z=qz, w=qw),
            )
            header = self.header(stamp_ns, fixed)
            entries.append(
                self.make(
                    "geometry_msgs/msg/TransformStamped", header=header, child_frame_id=frame_id, transform=transform
                )
            )
        message = self.make("tf2_msgs/msg/TFMessage", transforms=entries)
        self.write("/tf_static" if static else "/tf", stamp_ns, message, latched=static)

    def wrench(self, topic: str, stamp_ns: int, frame_id: str, wrench: np.ndarray) -> None:
        """A WrenchStamped of force [N] and moment [N m], (6,)."""
        parts = [{axis: float(a) for axis, a in zip("xyz", part)} for part in (wrench[:3], wrench[3:])]
        force, torque = (self.make("geometry_msgs/msg/Vector3", **part) for part in parts)
        felt = self.make("geometry_msgs/msg/Wrench", force=force, torque=torque)
        kind = "geometry_msgs/msg/WrenchStamped"
        self.write(topic, stamp_ns, self.make(kind, header=self.header(stamp_ns, frame_id), wrench=felt))

    def truth(self, topic: str, stamp_ns: int, frame_id: str, scene: str, rows: Sequence[TruthRow]) -> None:
        """A DiagnosticArray with one status for each true number."""
        status = []
        for row in rows:
            values = [
                self.make("diagnostic_msgs/msg/KeyValue", key=key, value=value)
                for key, value in (("value", repr(row.value)), ("unit", row.unit))
            ]
            kind = "diagnostic_msgs/msg/DiagnosticStatus"
            message = f"{row.value:.6g} {row.unit}".strip()
            status.append(self.make(kind, level=0, name=row.label, message=message, hardware_id=scene, values=values))
        array = self.make("diagnostic_msgs/msg/DiagnosticArray", header=self.header(stamp_ns, frame_id), status=status)
        self.write(topic, stamp_ns, array)

    def mesh(self, topic: str, stamp_ns: int, frame_id: str, vertices_m: np.ndarray, faces: np.ndarray) -> None:
        """A surface as a Marker of triangles, corner by corner."""
        point = self.store.types["geometry_msgs/msg/Point"]
        corners = [point(x=x, y=y, z=z) for x, y, z in vertices_m[faces].reshape(-1, 3).tolist()]
        zero_time = self.make("builtin_interfaces/msg/Time", sec=0, nanosec=0)
        message = self.make(
            "visualization_msgs/msg/Marker",
            header=self.header(stamp_ns, frame_id),
            ns="ground_truth",
            id=0,
            type=_TRIANGLE_LIST,
            action=0,
            pose=self.make(
                "geometry_msgs/msg/Pose",
                position=point(x=0.0, y=0.0, z=0.0),
                orientation=self.make("geometry_msgs/msg/Quaternion", x=0.0, y=0.0, z=0.0, w=1.0),
            ),
            scale=self.make("geometry_msgs/msg/Vector3", x=1.0, y=1.0, z=1.0),
            color=self.make("std_msgs/msg/ColorRGBA", **dict(zip("rgba", _BODY_COLOUR))),
            lifetime=self.make("builtin_interfaces/msg/Duration", sec=0, nanosec=0),
            frame_locked=False,
            points=corners,
            colors=[],
            texture_resource="",
            texture=self.make(
                "sensor_msgs/msg/CompressedImage",
                header=self.make("std_msgs/msg/Header", stamp=zero_time, frame_id=""),
                format="",
                data=np.zeros(0, dtype=np.uint8),
            ),
            uv_coordinates=[],
            text="",
            mesh_resource="",
            mesh_file=self.make("visualization_msgs/msg/MeshFile", filename="", data=np.zeros(0, dtype=np.uint8)),
            mesh_use_embedded_materials=False,
        )
        self.write(topic, stamp_ns, message)


def _import_rosbags() -> tuple[Any, Any, Any]:
    try:
        from rosbags.rosbag2 import StoragePlugin, Writer
    except ImportError as error:
        raise ValueError("writing a bag needs rosbags; run: pip install 'rosbags>=0.11.6,<0.12'") from error
    return Writer, StoragePlugin, message_types()


def _qos(latched: bool) -> Any:
    """Reliable, so that `ros2 bag play` reaches every subscriber; kept for those who come later if latched."""
    from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime

    for_ever = QosTime(9223372036, 854775807)
    return Qos(
        history=QosHistory.KEEP_LAST,
        depth=1 if latched else 10,
        reliability=QosReliability.RELIABLE,
        durability=QosDurability.TRANSIENT_LOCAL if latched else QosDurability.VOLATILE,
        deadline=for_ever,
        lifespan=for_ever,
        liveliness=QosLiveliness.AUTOMATIC,
        liveliness_lease_duration=for_ever,
        avoid_ros_namespace_conventions=False,
    )
