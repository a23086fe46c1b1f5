"""What `record` writes is what the scene's camera would have published, and ROS can read it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tiny_ball import ball, scene_of, write_scene

from soft_estimator.backends.choose import choose_backend
from soft_estimator.camera.scene_cameras import scene_cameras, scene_lasting
from soft_estimator.cli import main
from soft_estimator.live.metrics import distance_to_triangles
from soft_estimator.recordings.bag_files import Bag, storage_files
from soft_estimator.recordings.bag_frames import BagRecording
from soft_estimator.recordings.frame_folder import pose_matrix
from soft_estimator.recordings.ground_truth import parameters_from_rows
from soft_estimator.recordings.messages import points_of
from soft_estimator.recordings.record import record_scene
from soft_estimator.scene.scene import Scene

TOPICS = {
    "/camera/points": "sensor_msgs/msg/PointCloud2",
    "/camera/depth/image": "sensor_msgs/msg/Image",
    "/camera/depth/camera_info": "sensor_msgs/msg/CameraInfo",
    "/tf_static": "tf2_msgs/msg/TFMessage",
    "/ground_truth": "diagnostic_msgs/msg/DiagnosticArray",
    "/ground_truth/mesh": "visualization_msgs/msg/Marker",
}


def read(path: Path, topic: str) -> list[Any]:
    with Bag(path) as bag:
        return [bag.decode(message) for message in bag.messages([topic])]


def test_topics_types_and_counts(short_bag: Path) -> None:
    with Bag(short_bag) as bag:
        assert {t.name: t.kind for t in bag.topics} == TOPICS
        counts = {t.name: t.count for t in bag.topics}
    assert counts.pop("/tf_static") == 1
    assert set(counts.values()) == {4}  # at 0, 15, 30 and 45 ms


def test_metadata_tells_what_real_rosbag2_wants_to_know(short_bag: Path) -> None:
    data = yaml.safe_load((short_bag / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
    assert data["version"] == 8 and data["message_count"] == 21
    assert data["relative_file_paths"] == [file.name for file in storage_files(short_bag)]
    assert data["duration"]["nanoseconds"] == 45_000_000
    for entry in data["topics_with_message_count"]:
        topic = entry["topic_metadata"]
        (qos,) = yaml.safe_load(topic["offered_qos_profiles"])  # text up to version 8
        assert topic["type_description_hash"].startswith("RIHS01_") and topic["serialization_format"] == "cdr"
        # reliable (1); transient local (1) for the latched topic, volatile (2) for the others
        assert qos["reliability"] == 1 and qos["durability"] == (1 if topic["name"] == "/tf_static" else 2)


def test_stamps_and_frames(short_bag: Path) -> None:
    for topic, frame in (("/camera/points", "camera_optical_frame"), ("/ground_truth/mesh", "world")):
        headers = [message.header for message in read(short_bag, topic)]
        assert [h.stamp.sec for h in headers] == [1, 1, 1, 1]
        assert [h.stamp.nanosec for h in headers] == [0, 15_000_000, 30_000_000, 45_000_000]
        assert {h.frame_id for h in headers} == {frame}


def world_points(path: Path) -> list[np.ndarray]:
    """Organised clouds in the world, by the bag's own transform."""
    (tree,) = read(path, "/tf_static")
    (entry,) = tree.transforms
    assert (entry.header.frame_id, entry.child_frame_id) == ("world", "camera_optical_frame")
    t, r = entry.transform.translation, entry.transform.rotation
    pose = pose_matrix([t.x, t.y, t.z], [r.x, r.y, r.z, r.w], "camera")
    return [points_of(m).astype(np.float64) @ pose[:3, :3].T + pose[:3, 3] for m in read(path, "/camera/points")]


def test_clouds_show_the_true_surface_on_the_table(short_bag: Path, short_scene: Scene) -> None:
    meshes = [np.array([(p.x, p.y, p.z) for p in m.points]) for m in read(short_bag, "/ground_truth/mesh")]
    for points, corners in zip(world_points(short_bag), meshes, strict=True):
        assert points.shape == (120, 160, 3)
        seen = points[np.isfinite(points).all(axis=2)]
        off = distance_to_triangles(seen, corners.reshape(-1, 3, 3))
        on_table = np.abs(seen[:, 1]) < 2e-6  # float32 of some 0.5 m: 3e-8, turned and shifted
        # A sphere's triangles of edge h lie up to h²/(6 R) = 1.3 mm within it; the cloud shows the sphere itself.
        on_body = off < 0.02**2 / (6 * 0.05) + 2e-4
        assert (on_table | on_body).all()
        assert on_table.sum() > 3000 and on_body.sum() > 1000


def test_the_first_frame_shows_the_scene_at_rest(short_bag: Path, short_scene: Scene) -> None:
    first = read(short_bag, "/ground_truth/mesh")[0]
    points = np.array([(p.x, p.y, p.z) for p in first.points])
    body = short_scene.body
    np.testing.assert_array_equal(points, body.surface_positions_m()[body.surface.faces].reshape(-1, 3))
    assert first.type == first.TRIANGLE_LIST


def test_depth_image_and_cloud_agree(short_bag: Path, short_scene: Scene) -> None:
    (camera,) = scene_cameras(short_scene.config)
    triples = zip(*(read(short_bag, f"/camera/{name}") for name in ("points", "depth/image", "depth/camera_info")))
    for cloud, image, info in triples:
        points = points_of(cloud)
        assert image.encoding == "16UC1" and (image.height, image.width) == (120, 160)
        depth = np.frombuffer(image.data.tobytes(), "<u2").reshape(120, 160)
        seen = np.isfinite(points[..., 2])
        np.testing.assert_array_equal(depth > 0, seen)
        assert np.abs(1e-3 * depth - points[..., 2])[seen].max() <= 0.0005 + 1e-6  # rounding to a millimetre
        v, u = np.nonzero(seen)
        fx, cx, fy, cy = info.k[0], info.k[2], info.k[4], info.k[5]
        np.testing.assert_allclose(points[seen][:, 0], (u - cx) / fx * points[seen][:, 2], atol=1e-6)
        np.testing.assert_allclose(points[seen][:, 1], (v - cy) / fy * points[seen][:, 2], atol=1e-6)
        assert (fx, cy) == (camera.fx_px, camera.cy_px) and not info.d.any()


def test_ground_truth_gives_the_parameters_back(short_bag: Path, short_scene: Scene) -> None:
    with BagRecording(short_bag) as recording:
        rows = recording.truth
    by_label = {row.label: row for row in rows}
    assert by_label["youngs_modulus_pa[0]"].value == 30000 and by_label["youngs_modulus_pa[0]"].unit == "Pa"
    other = replace(short_scene.parameters, youngs_modulus_pa=np.array([1.0]), plane_offset_m=9.0, poissons_ratio=0.1)
    made, known = parameters_from_rows(rows, other)
    assert {"youngs_modulus_pa", "plane_offset_m", "poissons_ratio", "plane_normal"} <= known
    assert made.youngs_modulus_pa[0] == 30000 and made.plane_offset_m == 0 and made.poissons_ratio == 0.4
    np.testing.assert_array_equal(made.plane_normal, short_scene.parameters.plane_normal)


@pytest.mark.parametrize("short_bag", ["mcap"], indirect=True)
def test_noise_is_the_same_each_time_and_of_the_stated_size(tmp_path: Path, short_bag: Path) -> None:
    noisy = scene_of(observe={**ball()["observe"], "noise": {"kind": "depth_camera"}})
    for name in ("one", "two"):
        record_scene(replace(noisy, config=scene_lasting(noisy.config, 0.03)), choose_backend("cpu"), tmp_path / name)
    one, two, exact = (read(path, "/camera/points") for path in (tmp_path / "one", tmp_path / "two", short_bag))
    assert len(one) == len(two) == 3
    for a, b, c in zip(one, two, exact):
        np.testing.assert_array_equal(a.data, b.data)
        # The ball's middle, faced by the camera at 0.45 m: a + b z² = 0.5 mm + 2.5 mm/m² · z² is 1.0 mm. Steps of
        # disparity and the pixels' jitter on the curved surface add a little; 192 pixels tell it to 5 %.
        off = (points_of(a)[..., 2] - points_of(c)[..., 2])[50:62, 72:88]
        assert 0.00085 < np.nanstd(off) < 0.0013
        assert np.isfinite(points_of(a)).sum() < np.isfinite(points_of(c)).sum()  # some pixels are lost


@pytest.mark.skipif(importlib.util.find_spec("rclpy") is None, reason="rclpy is not installed")
@pytest.mark.parametrize("short_bag", ["mcap"], indirect=True)
def test_rclpy_reads_the_bytes(short_bag: Path) -> None:
    """The real deserialiser of ROS finds in the recorded bytes what we put in. tf2_msgs is not among the wheels."""
    program = f"""
import json, sys
from importlib import import_module
from rclpy.serialization import deserialize_message
from soft_estimator.recordings.bag_files import Bag
out = {{}}
with Bag({str(short_bag)!r}) as bag:
    for item in bag.messages({[t for t in TOPICS if t != "/tf_static"]!r}):
        package, _, name = item.kind.split("/")
        out[item.topic] = deserialize_message(bytes(item.raw), getattr(import_module(package + ".msg"), name))
p, i, k = (out["/camera/" + n] for n in ("points", "depth/image", "depth/camera_info"))
t, m = out["/ground_truth"], out["/ground_truth/mesh"]
print(json.dumps([p.width, p.height, p.point_step, [f.name for f in p.fields], len(p.data), p.header.frame_id,
                  i.encoding, len(i.data), k.k[0], k.distortion_model, t.status[0].name, t.status[0].values[0].value,
                  m.type, len(m.points), m.points[5].y, p.header.stamp.nanosec]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    info = read(short_bag, "/camera/depth/camera_info")[-1]
    mesh = read(short_bag, "/ground_truth/mesh")[-1]
    assert json.loads(done.stdout) == [
        160, 120, 12, ["x", "y", "z"], 12 * 160 * 120, "camera_optical_frame", "16UC1", 2 * 160 * 120, info.k[0],
        "plumb_bob", "youngs_modulus_pa[0]", "30000.0", 11, len(mesh.points), mesh.points[5].y, 45_000_000,
    ]  # fmt: skip


def test_an_interrupted_recording_leaves_nothing_behind(short_scene: Scene, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record_scene(short_scene, choose_backend("cpu"), tmp_path / "half", progress=stop)
    assert not (tmp_path / "half").exists()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = write_scene(tmp_path)
    out = tmp_path / "bag"
    assert main(["record", str(scene), "--out", str(out), "--seconds", "0.03", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["frames"] == 3 and summary["topics"]["/camera/depth/image"] == 3
    assert "/camera/points" not in summary["topics"]
    words = ["--seconds", "0.03", "--json", "--topics", "points", "depth"]
    assert main(["record", str(scene), "--out", str(tmp_path / "both"), *words]) == 0
    both = json.loads(capsys.readouterr().out)
    assert both["topics"]["/camera/points"] == both["topics"]["/camera/depth/image"] == 3
    # three clouds of 160x120 points of three floats, which the depth images (2 bytes a pixel) hold, too
    assert both["bytes"] - summary["bytes"] > 3 * 160 * 120 * 12
    assert main(["record", str(scene), "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    blind = write_scene(tmp_path, observe={"every_steps": 3})
    assert main(["record", str(blind), "--out", str(tmp_path / "b")]) == 2
    assert "has no camera" in capsys.readouterr().err and not (tmp_path / "b").exists()
