"""cloud_node as a process: what it makes of clouds, good and bad, and that nothing ends it but Ctrl-C."""

from __future__ import annotations

import signal
import time
from typing import Any

import numpy as np
import pytest
import trimesh

pytest.importorskip("rclpy")

from geometry_msgs.msg import PoseStamped
from rcl_interfaces.msg import Parameter, ParameterValue
from rcl_interfaces.srv import SetParametersAtomically
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from std_msgs.msg import Header

from soft_estimator.camera.depth_sensor import observe_meshes
from soft_estimator.camera.pinhole import Mesh, PinholeCamera
from soft_estimator.ros.conversions import (
    camera_info_message,
    depth_message,
    message_from_points,
    object_from_message,
    stamp_of,
    viewpoint_of,
)
from soft_estimator.ros.drawings import plane_of

CAMERA = PinholeCamera.looking_at((0.6, 0.0, 0.5), (0.0, 0.0, 0.05), width_px=160, height_px=120)
RADIUS, CENTRE = 0.05, np.array([0.0, 0.0, 0.08])


def pose_parameters() -> dict[str, Any]:
    from scipy.spatial.transform import Rotation

    turn = Rotation.from_matrix(CAMERA.rotation).as_quat().tolist()
    return {"sensor_frame": "camera", "sensor_pose": [*CAMERA.position_m.tolist(), *turn]}


def depth(*more: Mesh) -> np.ndarray:
    """A ball above a table, and what stands beside it, without noise."""
    n = 40
    theta, phi = np.meshgrid(np.linspace(0, np.pi, n), np.linspace(0, 2 * np.pi, 2 * n), indexing="ij")
    ball = CENTRE + RADIUS * np.stack([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)], -1)
    index = np.arange(ball.shape[0] * ball.shape[1]).reshape(ball.shape[:2])
    a, b, c, d = (index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:])
    faces = np.concatenate([np.stack(t, -1).reshape(-1, 3) for t in ((a, b, c), (a, c, d))])
    table = np.array([[-1.0, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]])
    frame = observe_meshes(CAMERA, [(ball.reshape(-1, 3), faces), (table, np.array([[0, 1, 2], [0, 2, 3]])), *more])
    return frame.depth_m


DEPTH = depth()
POINTS = CAMERA.rays() * np.where(DEPTH > 0, DEPTH, np.nan)[..., None]


def cloud(time_s: float, frame: str = "camera", points: np.ndarray = POINTS) -> PointCloud2:
    return message_from_points(Header(stamp=stamp_of(time_s), frame_id=frame), points)


def start(peer: Any, processes: Any, **parameters: Any) -> tuple[Any, Any, list[Any]]:
    process = processes.node("cloud_node", **{**pose_parameters(), **parameters})
    found = peer.listen(PointCloud2, "object_points")
    peer.listen(PoseStamped, "support_plane")
    publisher = peer.node.create_publisher(PointCloud2, "camera/points", 10)
    peer.until(lambda: publisher.get_subscription_count() or process.poll() is not None, 90, "the node listens")
    assert process.poll() is None, processes.output(process)
    return process, publisher, found


@pytest.fixture(scope="module")
def node(together: Any) -> tuple[Any, Any, Any, Any, list[Any]]:
    """A node without settings of its own, for all that may be told and asked of the same one: who speaks to it, its
    processes, itself, what sends it clouds and what it found."""
    peer, processes = together
    return peer, processes, *start(peer, processes)


def send_until(peer: Any, publisher: Any, message: Any, condition: Any, what: str) -> Any:
    def again() -> Any:
        publisher.publish(message)
        peer.spin(0.2)
        return condition()

    return peer.until(again, 90, what)


def says(peer: Any, text: str) -> Any:
    def look() -> Any:
        status = peer.diagnosis("cloud_node")
        return status if status is not None and text in status.message else None

    return look


def test_the_ball_and_the_table_are_found(node: Any) -> None:
    peer, _, _, publisher, found = node
    message = cloud(100.0)
    planes = peer.heard["support_plane"]
    send_until(
        peer, publisher, message, lambda: planes and [m for m in found if m.width], "object points and a plane come"
    )
    got = next(m for m in found if m.width)
    assert got.header.stamp == message.header.stamp
    assert got.header.frame_id == "world"
    points, std = object_from_message(got)
    assert std is not None and (std > 0).all()
    # averages over voxels of a few millimetres lie that little inside the ball
    off = np.linalg.norm(points - CENTRE, axis=1) - RADIUS
    assert np.abs(off).max() < 0.003
    normal, offset = plane_of(planes[-1])
    np.testing.assert_allclose(normal, [0, 0, 1], atol=1e-3)
    assert abs(offset) < 1e-3


def test_a_box_that_stands_there_is_told_and_none_of_the_object(peer: Any, processes: Any) -> None:
    """The node knows how wide the ball is: nothing is found until eight looks in a second have told the box from it."""
    process, publisher, found = start(peer, processes, **{"finder.track.size_m": 2 * RADIUS})
    box = trimesh.creation.box((0.12, 0.2, 0.2))
    seen = depth((np.asarray(box.vertices) + np.array([-0.117, 0.0, 0.1]), np.asarray(box.faces)))
    points = CAMERA.rays() * np.where(seen > 0, seen, np.nan)[..., None]
    stamps = iter(300.0 + np.arange(10_000) / 30)

    def again() -> Any:
        """One more look, and its answer: a slow node would leave out looks that come faster, and see too few."""
        answers, end = len(found), time.monotonic() + 2.0
        publisher.publish(cloud(next(stamps), points=points))
        while len(found) == answers and time.monotonic() < end:
            peer.spin(0.02)
        return says(peer, "flat face of")()

    status = peer.until(again, 120, "the box is told")
    assert "no obstacle of the scene" in status.message and process.poll() is None
    found.clear()
    send_until(
        peer, publisher, cloud(next(stamps) + 1.0, points=points), lambda: [m for m in found if m.width], "points"
    )
    alone, _ = object_from_message(next(m for m in found if m.width))
    assert np.abs(np.linalg.norm(alone - CENTRE, axis=1) - RADIUS).max() < 0.004


def test_bad_clouds_are_told_and_good_ones_still_work(node: Any) -> None:
    peer, _, process, publisher, found = node
    flat = message_from_points(Header(stamp=stamp_of(200.0), frame_id="camera"), POINTS)
    flat.fields = [f for f in flat.fields if f.name != "z"]
    short = cloud(200.0)
    short.data = short.data[:100]
    bad = [
        (flat, "lacks the field z; it has x, y"),
        (cloud(200.0, points=np.full((4, 5, 3), np.nan)), "20 not measured"),
        (cloud(200.0, points=np.empty((0, 3))), "the cloud is empty"),
        (cloud(200.0, frame="elsewhere"), "'elsewhere'"),  # in frame ..., or no way from ..., where tf2 is installed
        (cloud(200.0, frame=""), "names no frame_id"),
        (short, "cut short"),
    ]
    for message, text in bad:
        status = send_until(peer, publisher, message, says(peer, text), f"a diagnostic with {text!r}")
        assert status.level != b"\x00"
        assert process.poll() is None
    found.clear()
    send_until(peer, publisher, cloud(201.0), lambda: [m for m in found if m.width], "object points after bad clouds")


def test_tf2_tells_where_the_camera_is_and_is_told(peer: Any, processes: Any) -> None:
    """The camera on an arm, by two static transforms; a second camera, placed by sensor_pose, is found by others."""
    tf2_ros = pytest.importorskip("tf2_ros")
    from geometry_msgs.msg import TransformStamped
    from rclpy.time import Time

    def placed(parent: str, child: str, at: Any, turn: Any) -> TransformStamped:
        made = TransformStamped(header=Header(frame_id=parent), child_frame_id=child)
        move, spin = made.transform.translation, made.transform.rotation
        move.x, move.y, move.z = map(float, at)
        spin.x, spin.y, spin.z, spin.w = turn
        return made

    _, publisher, found = start(peer, processes)
    *camera_m, qx, qy, qz, qw = pose_parameters()["sensor_pose"]
    hand_m = np.array([0.1, -0.2, 0.3])
    broadcaster = tf2_ros.StaticTransformBroadcaster(peer.node)
    broadcaster.sendTransform(
        [
            placed("world", "hand", hand_m, (0.0, 0.0, 0.0, 1.0)),
            placed("hand", "eye", camera_m - hand_m, (qx, qy, qz, qw)),
        ]
    )
    send_until(peer, publisher, cloud(100.0, frame="eye"), lambda: [m for m in found if m.width], "points through tf2")
    got = next(m for m in found if m.width)
    np.testing.assert_allclose(viewpoint_of(got), camera_m, atol=1e-6)  # float32
    off = np.linalg.norm(object_from_message(got)[0] - CENTRE, axis=1) - RADIUS
    assert np.abs(off).max() < 0.003
    buffer = tf2_ros.Buffer()
    listener = tf2_ros.TransformListener(buffer, peer.node)  # must be kept
    peer.until(lambda: buffer.can_transform("world", "camera", Time()), 60, "sensor_pose on /tf_static")
    at = buffer.lookup_transform("world", "camera", Time()).transform.translation
    np.testing.assert_allclose([at.x, at.y, at.z], camera_m, atol=1e-12)
    listener.unregister()


def test_jumps_in_time_are_told(node: Any) -> None:
    """A pause in the log, a clock that runs back as a warning."""
    peer, processes, process, publisher, found = node
    found.clear()
    send_until(peer, publisher, cloud(300.0), lambda: [m for m in found if m.width], "object points come")

    def gap_is_told() -> bool:
        return "no cloud for 5.0 s; the object" in processes.output(process)

    send_until(peer, publisher, cloud(305.0), gap_is_told, "the gap is told")  # again and again: a cloud may be lost
    send_until(peer, publisher, cloud(100.0), says(peer, "time went back by 205.000 s"), "the jump is told")


def test_depth_images_wait_for_their_camera(peer: Any, processes: Any) -> None:
    process = processes.node("cloud_node", **pose_parameters(), input="depth")
    found = peer.listen(PointCloud2, "object_points")
    images = peer.node.create_publisher(Image, "camera/depth/image", 10)
    infos = peer.node.create_publisher(CameraInfo, "camera/depth/camera_info", 10)
    peer.until(images.get_subscription_count, 90, "the node listens")
    header = Header(stamp=stamp_of(5.0), frame_id="camera")
    image = depth_message(header, DEPTH)
    send_until(peer, images, image, says(peer, "no CameraInfo yet"), "the missing CameraInfo is told")
    peer.until(infos.get_subscription_count, 60, "the node listens to the CameraInfo")

    def described() -> Any:
        infos.publish(camera_info_message(header, CAMERA))
        peer.spin(0.1)
        return [m for m in found if m.width]

    send_until(peer, images, image, described, "object points come")
    assert process.poll() is None


def set_parameter(peer: Any, name: str, value: ParameterValue) -> Any:
    request = SetParametersAtomically.Request(parameters=[Parameter(name=name, value=value)])
    return peer.call(SetParametersAtomically, "/cloud_node/set_parameters_atomically", request).result


def test_settings_change_while_it_runs_and_it_ends_by_ctrl_c(node: Any) -> None:
    """The last that this node is asked."""
    peer, _, process, publisher, found = node
    found.clear()
    send_until(peer, publisher, cloud(401.0), lambda: [m for m in found if m.width > 100], "object points come")
    assert set_parameter(peer, "finder.point_budget", ParameterValue(type=2, integer_value=100)).successful
    found.clear()
    send_until(peer, publisher, cloud(402.0), lambda: [m for m in found if 0 < m.width <= 100], "fewer points come")
    refused = set_parameter(peer, "finder.noise.max_depth_m", ParameterValue(type=3, double_value=0.05))
    assert not refused.successful
    assert "min_depth_m = 0.1 must be below max_depth_m" in refused.reason
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0


def test_a_wrong_parameter_ends_it_with_one_line(processes: Any) -> None:
    process = processes.node("cloud_node", sensor_pose=[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5])
    assert process.wait(60) == 2
    assert "error: sensor_pose = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5] must end in a quaternion" in processes.output(
        process
    )


def test_a_recording_that_is_silent_is_no_camera_at_fault(peer: Any, processes: Any) -> None:
    """Before its first cloud nothing is warned of, and after its last one its end is logged, once."""
    process, publisher, _ = start(peer, processes, recorded=True, quiet_after_s=1.0)
    peer.until(lambda: peer.diagnosis("cloud_node"), 60, "a report before the first cloud")
    assert peer.diagnosis("cloud_node").message == "fine"

    def counted() -> bool:
        return any(v.key == "clouds" for v in peer.diagnosis("cloud_node").values)

    send_until(peer, publisher, cloud(100.0), counted, "a cloud came")
    ended = "the recording has ended"
    peer.until(lambda: ended in processes.output(process), 60, "its end is logged")
    peer.spin(3.0)  # three reports more
    assert processes.output(process).count(ended) == 1
    assert "does the camera" not in processes.output(process)
