"""Messages to arrays and back, for every layout a sender may choose."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("rclpy")

from sensor_msgs.msg import CameraInfo, Image, PointCloud2, PointField
from std_msgs.msg import Header

from soft_estimator.camera.pinhole import PinholeCamera
from soft_estimator.recordings.messages import points_of, seconds_of
from soft_estimator.ros import conversions, drawings

DTYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}


@st.composite
def clouds(draw: st.DrawFn) -> tuple[PointCloud2, np.ndarray]:
    """A cloud of any layout, and the x, y, z in it as float64 (h, w, 3)."""
    height, width = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    big = draw(st.booleans())
    names = draw(st.permutations(["x", "y", "z", "intensity"]))
    types = {name: draw(st.sampled_from(sorted(DTYPES))) for name in names}
    if draw(st.booleans()):
        types = dict.fromkeys(names, 7)  # the usual case, which has a path of its own
    offset, fields = 0, []
    for name in names:
        offset += draw(st.sampled_from([0, 0, 4]))
        fields.append(PointField(name=name, offset=offset, datatype=types[name], count=1))
        offset += np.dtype(DTYPES[types[name]]).itemsize
    step = offset + draw(st.sampled_from([0, 1, 8]))
    row = width * step + (draw(st.sampled_from([0, 3, 16])) if height > 1 else 0)
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    data, wanted = np.zeros((height, row), dtype=np.uint8), np.empty((height, width, 3))
    for field in fields:
        dtype = np.dtype((">" if big else "<") + DTYPES[field.datatype])
        values = rng.integers(0, 100, (height, width)).astype(dtype)
        if dtype.kind == "f":
            values = (values + 0.25).astype(dtype)
            values[rng.random((height, width)) < 0.2] = np.nan
        for r in range(height):
            for c in range(width):
                at = c * step + field.offset
                data[r, at : at + dtype.itemsize] = np.frombuffer(values[r, c : c + 1].tobytes(), dtype=np.uint8)
        if field.name in "xyz":
            wanted[..., "xyz".index(field.name)] = values
    message = PointCloud2(height=height, width=width, fields=fields, is_bigendian=big, point_step=step, row_step=row)
    message.data = array("B", data.tobytes())
    return message, wanted


@given(clouds())
@settings(max_examples=150, deadline=None)
def test_points_are_read_from_any_layout(case: tuple[PointCloud2, np.ndarray]) -> None:
    # The values are small whole numbers and quarters: every type holds them exactly.
    message, wanted = case
    points = conversions.points_of(message)
    np.testing.assert_array_equal(points.reshape(wanted.shape), wanted)
    assert points.ndim == (3 if message.height > 1 else 2)


@given(st.integers(1, 5), st.integers(0, 6), st.booleans(), st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_points_come_back_as_they_were_sent(height: int, width: int, organised: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (height, width, 3) if organised and height > 1 else (width, 3)
    points = rng.normal(size=shape).astype(np.float32)
    std = rng.uniform(0.1, 1.0, shape[:-1]).astype(np.float32)
    message = conversions.message_from_points(Header(frame_id="a"), points, std=std)
    np.testing.assert_array_equal(conversions.points_of(message), points)
    back, deviation = conversions.object_from_message(message)
    np.testing.assert_array_equal(back, points.reshape(-1, 3))
    np.testing.assert_array_equal(deviation, std.ravel())


def test_the_cameras_place_travels_with_the_points() -> None:
    """Fields vp_x, vp_y, vp_z, to the precision of float32; without them, or with NaN, nobody knows."""
    points, at = np.ones((4, 3)), np.array([0.45, -0.1, 0.35])
    fields = {name: np.full(4, value) for name, value in zip(conversions.VIEWPOINT, at)}
    seen = conversions.viewpoint_of(conversions.message_from_points(Header(), points, std=np.ones(4), **fields))
    np.testing.assert_allclose(seen, at, rtol=1e-7)
    assert conversions.viewpoint_of(conversions.message_from_points(Header(), points, std=np.ones(4))) is None
    fields["vp_y"][:] = np.nan
    assert conversions.viewpoint_of(conversions.message_from_points(Header(), points, **fields)) is None
    empty = {name: np.empty(0) for name in conversions.VIEWPOINT}
    assert conversions.viewpoint_of(conversions.message_from_points(Header(), np.empty((0, 3)), **empty)) is None


def test_a_large_cloud_is_packed_fast() -> None:
    # Assigning a NumPy array to uint8[] takes over 300 ms; a tenth of that is allowed here, on a busy machine.
    import time

    points = np.ones((480, 640, 3), dtype=np.float32)
    conversions.message_from_points(Header(), points)
    begin = time.process_time()
    conversions.message_from_points(Header(), points)
    assert time.process_time() - begin < 0.03


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m.fields.pop(), "lacks the field z; it has x, y"),
        (lambda m: m.fields.clear(), "lacks the field x, y, z; it has none"),
        (lambda m: setattr(m, "data", m.data[:-1]), "cut short"),
        (lambda m: setattr(m, "width", 7), "cut short"),
        (lambda m: setattr(m.fields[2], "datatype", 9), "datatype 9"),
        (lambda m: setattr(m.fields[2], "offset", 10), "malformed"),
    ],
)
def test_a_broken_cloud_says_what_is_wrong(change: object, text: str) -> None:
    message = conversions.message_from_points(Header(), np.ones((6, 3)))
    change(message)  # type: ignore[operator]
    with pytest.raises(ValueError, match=text):
        conversions.points_of(message)


@given(
    st.sampled_from(["16UC1", "32FC1", "mono16"]), st.booleans(), st.sampled_from([0, 2, 5]), st.integers(1, 4),
    st.integers(1, 5),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_depth_images_are_read_in_either_byte_order(
    encoding: str, big: bool, padding: int, height: int, width: int
) -> None:
    item = np.dtype(">u2" if big else "<u2") if encoding != "32FC1" else np.dtype(">f4" if big else "<f4")
    values = np.arange(1, height * width + 1).reshape(height, width).astype(item)
    step = width * item.itemsize + padding
    rows = np.zeros((height, step), dtype=np.uint8)
    rows[:, : width * item.itemsize] = np.frombuffer(values.tobytes(), np.uint8).reshape(height, -1)
    message = Image(height=height, width=width, encoding=encoding, is_bigendian=int(big), step=step)
    message.data = array("B", rows.tobytes())
    depth = conversions.depth_of(message)
    np.testing.assert_array_equal(depth, values)
    assert depth.dtype.isnative


def test_a_depth_image_and_its_camera_give_the_points_the_camera_saw() -> None:
    # z (ray) of a pinhole: a plane at depth 2 m, seen by a camera that stands elsewhere and is turned.
    camera = PinholeCamera.looking_at((1.0, 2.0, 3.0), (0.0, 0.0, 0.0), width_px=8, height_px=6)
    depth = np.full((6, 8), 2.0)
    image = conversions.depth_message(Header(), depth)
    info = conversions.camera_info_message(Header(), camera)
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = camera.rotation, camera.position_m
    cloud = conversions.cloud_from_depth_message(image, info, pose)
    wanted = camera.to_world_frame((camera.rays() * depth[..., None]).reshape(-1, 3))
    np.testing.assert_allclose(cloud.flat_m, wanted, atol=1e-9)


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (Image(encoding="bgr8", height=1, width=1, step=3, data=array("B", [0] * 3)), "no depth"),
        (Image(encoding="16UC1", height=2, width=2, step=4, data=array("B", [0] * 4)), "cut short"),
        (Image(encoding="16UC1"), "is the camera running"),
    ],
)
def test_a_broken_image_says_what_is_wrong(image: Image, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        conversions.depth_of(image)


def test_a_camera_that_is_not_calibrated_is_refused() -> None:
    with pytest.raises(ValueError, match="calibrated"):
        conversions.lens_of(CameraInfo(width=4, height=4))


@given(st.integers(0, 2**31 - 1), st.integers(0, 10**9 - 1))
def test_stamps_keep_their_microsecond(sec: int, nanosec: int) -> None:
    # float64 seconds since 1970 resolve a quarter of a microsecond
    from builtin_interfaces.msg import Time

    back = conversions.stamp_of(seconds_of(Time(sec=sec, nanosec=nanosec)))
    assert abs((back.sec - sec) * 10**9 + back.nanosec - nanosec) <= 500


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=3).filter(lambda n: np.linalg.norm(n) > 0.1), st.floats(-2, 2))
def test_a_plane_comes_back_from_its_pose(direction: list[float], offset: float) -> None:
    normal = np.array(direction) / np.linalg.norm(direction)
    pose = drawings.plane_pose(Header(), normal, offset, np.array([0.3, -0.2, 0.5]))
    back, back_offset = drawings.plane_of(pose)
    np.testing.assert_allclose(back, normal, atol=1e-9)
    assert back_offset == pytest.approx(offset, abs=1e-9)
    p = pose.pose.position
    # the pose stands at the foot of the point: what is between them is along the normal
    away = np.array([0.3, -0.2, 0.5]) - [p.x, p.y, p.z]
    np.testing.assert_allclose(np.cross(away, normal), 0.0, atol=1e-9)


def test_a_mesh_marker_holds_the_corners_of_every_face() -> None:
    vertices = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    colours = np.linspace(0, 1, 12).reshape(4, 3)
    marker = drawings.mesh_marker(Header(), vertices, faces, colours, namespace="m")
    np.testing.assert_array_equal(drawings.vertices_of(marker), vertices[faces.ravel()])
    tones = np.array([(c.r, c.g, c.b) for c in marker.colors])
    np.testing.assert_allclose(tones, colours[faces.ravel()], atol=1e-7)  # float32
    shape = drawings.mesh_message(vertices, faces)
    assert [list(t.vertex_indices) for t in shape.triangles] == faces.tolist()


def test_clouds_are_read_as_a_ros_install_reads_them() -> None:
    """sensor_msgs_py, point for point: padded points and rows, either byte order, NaN, further fields."""
    theirs = pytest.importorskip("sensor_msgs_py.point_cloud2")
    rng = np.random.default_rng(0)
    for big, pad in ((False, 0), (False, 8), (True, 4)):
        order = ">" if big else "<"
        names = ["x", "y", "z", "rgb"]
        kind = np.dtype({"names": names, "formats": [f"{order}f4"] * 4, "offsets": [0, 4, 8, 16], "itemsize": 20 + pad})
        points = np.zeros((3, 5), kind)
        for name in names:
            points[name] = rng.normal(size=(3, 5))
        points["x"][1, 2] = np.nan
        fields = [
            PointField(name=n, offset=o, datatype=PointField.FLOAT32, count=1) for n, o in zip(names, (0, 4, 8, 16))
        ]
        message = PointCloud2(
            height=3, width=5, fields=fields, is_bigendian=big, point_step=20 + pad, row_step=5 * (20 + pad),
            data=conversions.byte_array(points.view(np.uint8)),
        )  # fmt: skip
        ours = points_of(message).reshape(-1, 3).copy()  # theirs may swap the message's bytes in place
        wanted = theirs.read_points(message, field_names=["x", "y", "z"], skip_nans=False)
        np.testing.assert_array_equal(ours, np.stack([wanted[n].ravel() for n in "xyz"], axis=1))
