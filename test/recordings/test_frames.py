"""Recorded frames: folders, point files and bags give the clouds that were put in, and mistakes are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soft_estimator.perception.cloud import Cloud, Intrinsics, cloud_from_depth
from soft_estimator.recordings.frame_folder import write_frames
from soft_estimator.recordings.opening import read_frames

LENS = Intrinsics(32, 24, 40.0, 40.0, 15.5, 11.5)
DEPTH = np.random.default_rng(0).uniform(0.5, 1.0, (24, 32)).astype(np.float32)
DEPTH[3, 4] = 0.0
TURN = np.array([[0.0, -1, 0, 0.1], [1, 0, 0, 0.2], [0, 0, 1, 0.3], [0, 0, 0, 1]])


def a_cloud(scale: float = 1.0) -> Cloud:
    return cloud_from_depth(scale * DEPTH, LENS, TURN)


def local_points() -> np.ndarray:
    points = cloud_from_depth(DEPTH, LENS).points_m
    return np.where(np.isnan(points), 0.0, points).astype(np.float32)


def test_a_written_folder_reads_back(tmp_path: Path) -> None:
    write_frames(tmp_path, [a_cloud(), a_cloud(0.9)], [2.0, 1.0])
    later, earlier = sorted(read_frames(tmp_path), key=lambda f: -f.time_s)
    assert [f.time_s for f in read_frames(tmp_path)] == [1.0, 2.0]  # in order of time, not of name
    for frame, cloud in ((later, a_cloud()), (earlier, a_cloud(0.9))):
        np.testing.assert_allclose(frame.cloud.points_m, cloud.points_m, atol=2e-7)  # stored as float32
        np.testing.assert_allclose(frame.cloud.rotation, TURN[:3, :3], atol=1e-12)


def test_depth_images_with_a_camera_file_and_a_mask(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", (1000 * DEPTH).astype(np.uint16))
    camera = {"width": 32, "height": 24, "fx": 40.0, "fy": 40.0, "cx": 15.5, "cy": 11.5, "transform": TURN.tolist()}
    (tmp_path / "camera.json").write_text(json.dumps(camera), encoding="utf-8")
    (tmp_path / "stamps.csv").write_text("a.npy,0.5\n", encoding="utf-8")
    (tmp_path / "masks").mkdir()
    np.save(tmp_path / "masks" / "a.npy", DEPTH > 0.7)
    (frame,) = read_frames(tmp_path)
    np.testing.assert_allclose(frame.cloud.points_m, a_cloud().points_m, atol=2e-3)  # whole millimetres, rays up to 1.1
    np.testing.assert_array_equal(frame.mask, DEPTH > 0.7)


def test_ply_and_pcd_points(tmp_path: Path) -> None:
    trimesh = pytest.importorskip("trimesh")
    points = local_points().reshape(-1, 3)
    trimesh.PointCloud(points, colors=np.full((len(points), 3), 9, dtype=np.uint8)).export(tmp_path / "a.ply")
    (frame,) = read_frames(tmp_path / "a.ply")
    measured = np.isfinite(frame.cloud.flat_m[:, 0])
    np.testing.assert_allclose(frame.cloud.flat_m[measured], points[measured], atol=1e-6)
    assert frame.cloud.colour is not None and (frame.cloud.colour == 9).all()
    header = "VERSION 0.7\nFIELDS x y z rgb\nSIZE 4 4 4 4\nTYPE F F F U\nCOUNT 1 1 1 1\n"
    header += "WIDTH 32\nHEIGHT 24\nPOINTS 768\nDATA "
    rows = np.zeros(768, dtype=[("p", "<f4", 3), ("rgb", "<u4")])
    rows["p"] = points
    (tmp_path / "b.pcd").write_bytes((header + "binary\n").encode() + rows.tobytes())
    text = "\n".join(f"{x:.7f} {y:.7f} {z:.7f} 0" for x, y, z in points)
    (tmp_path / "c.pcd").write_text(header + "ascii\n" + text + "\n", encoding="ascii")
    for name in ("b.pcd", "c.pcd"):
        (frame,) = read_frames(tmp_path / name)
        assert frame.cloud.points_m.shape == (24, 32, 3)
        np.testing.assert_allclose(frame.cloud.flat_m[measured], points[measured], atol=1e-6)


def test_a_compressed_pcd_goes_through_open3d(tmp_path: Path) -> None:
    open3d = pytest.importorskip("open3d", exc_type=ImportError)
    points = local_points().reshape(-1, 3)
    points = points[points[:, 2] > 0].astype(np.float64)
    cloud = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(points))
    open3d.io.write_point_cloud(str(tmp_path / "a.pcd"), cloud, compressed=True)
    (frame,) = read_frames(tmp_path / "a.pcd")
    np.testing.assert_allclose(frame.cloud.flat_m, points, atol=1e-6)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no stamps.csv, and no .mcap"),
        ({"stamps.csv": "file,seconds\n"}, "names no frames"),
        ({"stamps.csv": "a.npy,1\n"}, "does not exist"),
        ({"stamps.csv": "a.npy,1\na.npy,later\n"}, "line 2"),
        ({"stamps.csv": "a.npy,1\n", "a.npy": "not an array"}, "cannot be read"),
        ({"stamps.csv": "a.pcd,1\n", "a.pcd": "# no header\n"}, "DATA line"),
        ({"stamps.csv": "a.pcd,1\n", "a.pcd": "FIELDS a b\nWIDTH 1\nHEIGHT 1\nDATA ascii\n1 2\n"}, "x, y, z"),
        ({"stamps.csv": "a.xyz,1\n", "a.xyz": "1 2 3"}, "cannot be read"),
    ],
)
def test_mistakes_in_a_folder_are_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        list(read_frames(tmp_path))


def test_mistakes_in_camera_files_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", DEPTH)
    (tmp_path / "stamps.csv").write_text("a.npy,1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"needs camera\.json"):
        list(read_frames(tmp_path))
    (tmp_path / "camera.json").write_text('{"width": 32}', encoding="utf-8")
    with pytest.raises(ValueError, match="lacks 'fx'"):
        list(read_frames(tmp_path))
    with pytest.raises(ValueError, match="does not exist"):
        list(read_frames(tmp_path / "nowhere"))


def write_bag(path: Path, plugin: str, with_info: bool = True) -> None:
    """A bag with one organised cloud, one depth image with its camera, and the transform world ← camera."""
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    t: dict[str, Any] = store.types
    stamp = t["builtin_interfaces/msg/Time"](sec=3, nanosec=500_000_000)
    header = t["std_msgs/msg/Header"](stamp=stamp, frame_id="camera")
    field = t["sensor_msgs/msg/PointField"]
    fields = [field(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
    rows = np.zeros((24, 32), dtype=[("p", "<f4", 3), ("pad", "<u4")])
    rows["p"] = local_points()
    cloud = t["sensor_msgs/msg/PointCloud2"](
        header=header, height=24, width=32, fields=fields, is_bigendian=False, point_step=16, row_step=512,
        data=np.frombuffer(rows.tobytes(), dtype=np.uint8), is_dense=False,
    )  # fmt: skip
    image = t["sensor_msgs/msg/Image"](
        header=header, height=24, width=32, encoding="16UC1", is_bigendian=0, step=64,
        data=np.frombuffer((1000 * DEPTH).astype("<u2").tobytes(), dtype=np.uint8),
    )  # fmt: skip
    roi = t["sensor_msgs/msg/RegionOfInterest"](x_offset=0, y_offset=0, height=0, width=0, do_rectify=False)
    info = t["sensor_msgs/msg/CameraInfo"](
        header=header, height=24, width=32, distortion_model="plumb_bob", d=np.zeros(5),
        k=np.array([40.0, 0, 15.5, 0, 40.0, 11.5, 0, 0, 1]), r=np.eye(3).ravel(), p=np.zeros(12),
        binning_x=0, binning_y=0, roi=roi,
    )  # fmt: skip
    half = np.sqrt(0.5)
    transform = t["geometry_msgs/msg/Transform"](
        translation=t["geometry_msgs/msg/Vector3"](x=0.1, y=0.2, z=0.3),
        rotation=t["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=half, w=half),
    )
    parent = t["std_msgs/msg/Header"](stamp=stamp, frame_id="world")
    stamped = t["geometry_msgs/msg/TransformStamped"](header=parent, child_frame_id="camera", transform=transform)
    messages = [("/tf_static", t["tf2_msgs/msg/TFMessage"](transforms=[stamped])), ("/cam/points", cloud)]
    messages += [("/cam/depth/camera_info", info)] * with_info + [("/cam/depth/image", image)]
    with Writer(path, version=9, storage_plugin=StoragePlugin[plugin]) as writer:
        for index, (topic, message) in enumerate(messages):
            connection = writer.add_connection(topic, message.__msgtype__, typestore=store)
            writer.write(connection, 1000 + index, store.serialize_cdr(message, message.__msgtype__))


@pytest.mark.parametrize("plugin", ["MCAP", "SQLITE3"])
def test_bags_give_clouds_in_the_fixed_frame(tmp_path: Path, plugin: str) -> None:
    pytest.importorskip("rosbags")
    write_bag(tmp_path / "bag", plugin)
    (frame,) = read_frames(tmp_path / "bag", fixed_frame="world")
    assert frame.time_s == pytest.approx(3.5)
    np.testing.assert_allclose(frame.cloud.points_m, a_cloud().points_m, atol=1e-6)
    (image,) = read_frames(tmp_path / "bag", topic="/cam/depth/image", fixed_frame="world")
    np.testing.assert_allclose(image.cloud.points_m, a_cloud().points_m, atol=2e-3)  # whole millimetres
    (root,) = read_frames(tmp_path / "bag")  # by default the farthest frame the transforms lead to
    np.testing.assert_array_equal(root.cloud.points_m, frame.cloud.points_m)
    storage = next(p for p in (tmp_path / "bag").iterdir() if p.suffix in (".mcap", ".db3"))
    (own,) = read_frames(storage, fixed_frame="camera")
    np.testing.assert_allclose(own.cloud.points_m, cloud_from_depth(DEPTH, LENS).points_m, atol=1e-6)


def test_mistakes_with_bags_are_named(tmp_path: Path) -> None:
    pytest.importorskip("rosbags")
    write_bag(tmp_path / "bag", "SQLITE3", with_info=False)
    with pytest.raises(ValueError, match=r"--topic /nope \(no such topic\)"):
        list(read_frames(tmp_path / "bag", topic="/nope"))
    with pytest.raises(ValueError, match="do not lead from 'camera' to 'moon'"):
        list(read_frames(tmp_path / "bag", fixed_frame="moon"))
    with pytest.raises(ValueError, match="CameraInfo"):
        list(read_frames(tmp_path / "bag", topic="/cam/depth/image"))


def test_a_damaged_bag_is_one_clear_error(tmp_path: Path) -> None:
    """An empty file where the recording should be, as a copy that was cut off leaves it."""
    (tmp_path / "recording_0.db3").touch()
    with pytest.raises(ValueError, match=r"cannot be read.*damaged or was cut short"):
        list(read_frames(tmp_path))
