"""Recordings of any making are read: split, compressed, with wrong or without metadata; damaged ones are named."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import CompressionFormat, CompressionMode, Reader

from soft_estimator.recordings.bag_files import Bag, storage_files
from soft_estimator.recordings.bag_frames import BagRecording
from soft_estimator.recordings.bag_writing import BagWriter
from soft_estimator.recordings.interface import Frame

GRID = np.arange(24.0).reshape(2, 4, 3) + 1.0


def frames_of(path: Path, fixed_frame: str = "world", **how: Any) -> list[Frame]:
    with BagRecording(path, fixed_frame=fixed_frame, **how) as recording:
        return list(recording)


def small_bag(path: Path, stamps_ns: list[int], storage: str = "mcap", compression: Any = None) -> Path:
    writer = BagWriter(path, storage)
    if compression is not None:
        writer._writer.set_compression(compression, CompressionFormat.ZSTD)
    with writer:
        for stamp_ns in stamps_ns:
            writer.cloud("/camera/points", stamp_ns, "camera", GRID * stamp_ns * 1e-9)
    return path


def test_frames_come_in_the_fixed_frame_with_true_surfaces_beside_them(short_bag: Path) -> None:
    with BagRecording(short_bag, fixed_frame="world") as camera:
        frames = list(camera)
    surfaces = [surface for frame in frames for surface in frame.surfaces]
    assert len(camera) == 4 and camera.topic.name == "/camera/points" and not camera.notes
    assert [f.time_s for f in frames] == [s.stamp_s for s in surfaces] == [1.0, 1.015, 1.03, 1.045]
    np.testing.assert_allclose(frames[0].cloud.sensor_m, [0.45, 0.25, 0], atol=1e-12)
    assert surfaces[0].triangles_m.shape[1:] == (3, 3)


def test_depth_images_show_the_same_as_clouds(short_bag: Path) -> None:
    # 16UC1 rounds the depth to a millimetre, half of which is the most a point may move along its ray of length < 1.2
    clouds, images = frames_of(short_bag), frames_of(short_bag, topic="/camera/depth/image")
    for a, b in zip(clouds, images, strict=True):
        np.testing.assert_allclose(a.cloud.points_m, b.cloud.points_m, atol=0.0006)


def test_wrong_qos_in_the_metadata_hides_nothing(short_bag: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(short_bag, copy)
    text = (copy / "metadata.yaml").read_text()
    assert "depth: 10" in text
    (copy / "metadata.yaml").write_text(text.replace("depth: 10", "depth: 7"))
    with Reader(copy) as reader:  # what makes this necessary: rosbags itself finds nothing
        assert [c.topic for c, _, _ in reader.messages() if c.topic == "/camera/points"] == []
    assert len(frames_of(copy)) == 4


def test_a_bag_without_metadata_is_read(short_bag: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(short_bag, copy)
    (copy / "metadata.yaml").unlink()
    assert len(frames_of(copy)) == 4
    assert len(frames_of(storage_files(copy)[0])) == 4


def test_split_files_are_joined_in_order_of_time(tmp_path: Path) -> None:
    folder = tmp_path / "split"
    folder.mkdir()
    for name, stamps in (("split_2", [10, 30, 50]), ("split_10", [20, 40, 60])):
        made = small_bag(tmp_path / name, [stamp * 10**9 for stamp in stamps])
        shutil.copy(storage_files(made)[0], folder / f"{name}.mcap")
    assert [file.stem for file in storage_files(folder)] == ["split_2", "split_10"]
    frames = frames_of(folder)
    assert [f.time_s for f in frames] == [10, 20, 30, 40, 50, 60]
    np.testing.assert_array_equal(frames[1].cloud.points_m, 20 * GRID)
    with Bag(folder) as bag:
        assert [(t.name, t.count) for t in bag.topics] == [("/camera/points", 6)]


@pytest.mark.parametrize("short_bag", ["mcap"], indirect=True)
def test_what_humble_records_is_read(short_bag: Path, tmp_path: Path) -> None:
    """The tables of `ros2 bag record` in Humble: no message definitions, sensor QoS, types that nobody has here."""
    qos = "- history: 3\n  depth: 0\n  reliability: 2\n  durability: 2\n"
    qos += "".join(f"  {name}:\n    sec: 9223372036\n    nsec: 854775807\n" for name in ("deadline", "lifespan"))
    qos += "  liveliness: 1\n  liveliness_lease_duration:\n    sec: 9223372036\n    nsec: 854775807\n"
    qos += "  avoid_ros_namespace_conventions: false"
    with Bag(short_bag) as bag:
        messages = list(bag.messages(["/camera/points", "/tf_static"]))
    for part, chosen in enumerate((messages[:3], messages[3:])):  # split while recording
        base = sqlite3.connect(tmp_path / f"rosbag2_{part}.db3")
        base.executescript(
            "CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,"
            "serialization_format TEXT NOT NULL,offered_qos_profiles TEXT NOT NULL);"
            "CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER NOT NULL,timestamp INTEGER NOT NULL,"
            "data BLOB NOT NULL);CREATE INDEX timestamp_idx ON messages (timestamp ASC);"
        )
        kinds = {m.topic: m.kind for m in messages} | {
            "/arm": "arm_msgs/msg/Pose7",
            "/rosout": "rcl_interfaces/msg/Log",
        }
        number = {name: k for k, name in enumerate(kinds, 1)}
        base.executemany(
            "INSERT INTO topics VALUES (?,?,?,'cdr',?)", [(number[n], n, kind, qos) for n, kind in kinds.items()]
        )
        rows = [(number[m.topic], m.stamp_ns, bytes(m.raw)) for m in chosen] + [(number["/arm"], 5, b"\0\1\0\0")]
        base.executemany("INSERT INTO messages(topic_id,timestamp,data) VALUES (?,?,?)", rows)
        base.commit()
        base.close()
    here, there = frames_of(tmp_path), frames_of(short_bag)
    assert [frame.time_s for frame in here] == [frame.time_s for frame in there]
    for a, b in zip(here, there, strict=True):
        np.testing.assert_array_equal(a.cloud.points_m, b.cloud.points_m)


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
@pytest.mark.parametrize("mode", [CompressionMode.FILE, CompressionMode.MESSAGE, CompressionMode.STORAGE])
def test_compressed_bags_are_read(storage: str, mode: CompressionMode, tmp_path: Path) -> None:
    if mode == CompressionMode.STORAGE and storage == "sqlite3":
        pytest.skip("SQLite has no compressed chunks")
    path = small_bag(tmp_path / "packed", [10**9, 2 * 10**9], storage, mode)
    assert (storage_files(path)[0].suffix == ".zstd") == (mode == CompressionMode.FILE)
    frames = frames_of(path)
    np.testing.assert_array_equal(frames[1].cloud.points_m, 2 * GRID)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.97])
def test_a_damaged_file_is_named(short_bag: Path, share: float, tmp_path: Path) -> None:
    file = storage_files(short_bag)[0]
    cut = tmp_path / file.name
    cut.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    with pytest.raises(ValueError, match="damaged or was cut short") as error:
        frames_of(cut)
    assert str(cut) in str(error.value) and "\n" not in str(error.value)


def test_random_damage_is_an_error_or_costs_messages(short_bag: Path, tmp_path: Path) -> None:
    file = storage_files(short_bag)[0]
    whole, cut = np.frombuffer(file.read_bytes(), np.uint8), tmp_path / file.name
    rng = np.random.default_rng(0)
    for _ in range(6):
        broken = whole.copy()
        # heads of records and tables lie near the start and the end, points in between
        place = rng.choice([rng.integers(4000), len(whole) - 1 - rng.integers(4000), rng.integers(len(whole) - 8)])
        broken[place : place + 4] = rng.integers(256, size=len(broken[place : place + 4]))
        cut.write_bytes(broken.tobytes())
        try:
            assert len(frames_of(cut)) <= 4
        except ValueError as error:
            assert "\n" not in str(error)


def test_garbage_is_no_bag(tmp_path: Path) -> None:
    (tmp_path / "noise.mcap").write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(ValueError, match=r"noise\.mcap cannot be read"):
        frames_of(tmp_path / "noise.mcap")
    (tmp_path / "notes.txt").write_text("nothing")
    for path, said in ((tmp_path / "notes.txt", "is no bag"), (tmp_path / "gone", "does not exist")):
        with pytest.raises(ValueError, match=said):
            Bag(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"holds no \.mcap or \.db3 file"):
        Bag(tmp_path / "empty")


def test_a_bag_without_usable_topics_says_what_it_has(tmp_path: Path) -> None:
    with BagWriter(tmp_path / "odd") as writer:
        for k in range(3):
            writer.write("/chatter", k + 1, writer.make("std_msgs/msg/String", data="hello"))
        writer.depth_image("/camera/colour", 5, "camera", np.ones((2, 2)))
    with pytest.raises(ValueError, match="no usable topic") as error, BagRecording(tmp_path / "odd"):
        pass
    assert "/chatter (std_msgs/msg/String, 3 messages)" in str(error.value)
    assert "/camera/colour (sensor_msgs/msg/Image, 1 messages)" in str(error.value)


def test_topics_asked_for_and_chosen(tmp_path: Path) -> None:
    with BagWriter(tmp_path / "two") as writer:
        for name in ("/left/points", "/right/points"):
            writer.cloud(name, 10**9, "camera", GRID)
    two = tmp_path / "two"
    several = "several usable topics, /left/points, /right/points; name one"
    with pytest.raises(ValueError, match=several), BagRecording(two):
        pass
    with BagRecording(two, "left/points") as recording:
        assert recording.source == "/left/points"
    unknown = r"--topic /nowhere \(no such topic\).*/left/points \(sensor_msgs"
    with pytest.raises(ValueError, match=unknown), BagRecording(two, "/nowhere"):
        pass
    with BagWriter(tmp_path / "three") as writer:
        for name in ("/camera/points", "/other/points", "/tf_wrong"):
            writer.cloud(name, 10**9, "camera", GRID)
    with BagRecording(tmp_path / "three") as camera:
        pass
    assert camera.source == "/camera/points" and "/other/points" in camera.notes[0]


def test_a_bad_message_costs_one_frame(tmp_path: Path) -> None:
    with BagWriter(tmp_path / "bad") as writer:
        writer.cloud("/camera/points", 10**9, "camera", GRID)
        header = writer.header(2 * 10**9, "camera")
        flat = writer.make("sensor_msgs/msg/PointField", name="x", offset=0, datatype=7, count=1)
        layout = {"height": 1, "width": 2, "fields": [flat], "is_bigendian": False, "point_step": 4, "row_step": 8}
        data = np.zeros(8, dtype=np.uint8)
        bad = writer.make("sensor_msgs/msg/PointCloud2", header=header, **layout, data=data, is_dense=True)
        writer.write("/camera/points", 2 * 10**9, bad)
        writer.cloud("/camera/points", 3 * 10**9, "camera", GRID)
    first, second, third = frames_of(tmp_path / "bad")
    assert first.cloud is not None and third.cloud is not None
    assert second.cloud is None and "lacks the field y, z" in second.problem


def test_a_frame_without_transform_is_told(short_bag: Path) -> None:
    problems = {frame.problem for frame in frames_of(short_bag, fixed_frame="map")}
    assert len(problems) == 1 and "'map'" in problems.pop()


def test_without_transforms_the_camera_is_the_world(tmp_path: Path) -> None:
    path = small_bag(tmp_path / "bare", [10**9])
    with BagRecording(path, fixed_frame="world") as camera:
        (frame,) = camera
    np.testing.assert_array_equal(frame.cloud.points_m, GRID)
    assert not camera.posed
