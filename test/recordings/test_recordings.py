"""Every kind of recording is so many frames by number: the same motion comes out of a bag, a folder, depth images."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from soft_estimator.perception.cloud import Cloud, Intrinsics, cloud_from_depth
from soft_estimator.recordings.bag_writing import BagWriter
from soft_estimator.recordings.frame_folder import FrameFolder, write_frames
from soft_estimator.recordings.interface import Recording
from soft_estimator.recordings.observed_frames import read_frames as read_observed
from soft_estimator.recordings.opening import open_recording, read_frames

LENS = Intrinsics(16, 12, 20.0, 20.0, 7.5, 5.5)
TIMES_S = (1.0, 1.25, 1.5, 2.0)


def depth_m(number: int) -> np.ndarray:
    """A slope that comes nearer, in whole millimetres: exact as 16UC1, and in float32 to 6e-8."""
    return np.round(np.linspace(0.6, 0.9, 192).reshape(12, 16) - 0.05 * number, 3)


def cloud_of(number: int) -> Cloud:
    return cloud_from_depth(depth_m(number), LENS)


def as_bag(path: Path) -> Path:
    with BagWriter(path / "bag", "mcap") as writer:
        for number, time_s in enumerate(TIMES_S):
            writer.cloud("/camera/points", round(1e9 * time_s), "camera", cloud_of(number).points_m)
    return path / "bag"


def as_points(path: Path) -> Path:
    write_frames(path, [cloud_of(k) for k in range(len(TIMES_S))], list(TIMES_S))
    return path


def as_depth(path: Path) -> Path:
    for number in range(len(TIMES_S)):
        np.save(path / f"{number}.npy", (1000 * depth_m(number) + 0.5).astype(np.uint16))
    rows = "".join(f"{number}.npy,{time_s}\n" for number, time_s in enumerate(TIMES_S))
    (path / "stamps.csv").write_text(rows)
    camera = {"width": 16, "height": 12, "fx": 20.0, "fy": 20.0, "cx": 7.5, "cy": 5.5}
    (path / "camera.json").write_text(json.dumps(camera))
    return path


@pytest.mark.parametrize("make", [as_bag, as_points, as_depth])
def test_frames_by_number_in_any_order(make: Callable[[Path], Path], tmp_path: Path) -> None:
    with open_recording(make(tmp_path)) as recording:
        assert len(recording) == len(TIMES_S)
        in_order = list(recording)
        assert [frame.time_s for frame in in_order] == list(TIMES_S)  # quarters of a second are exact
        for number in (2, 3, 0, 2, 1):
            frame = recording[number]
            assert frame.time_s == TIMES_S[number] and frame.name == in_order[number].name
            np.testing.assert_array_equal(frame.usable().points_m, in_order[number].usable().points_m)
            # bags and folders store float32: 6e-8 of coordinates below 1
            np.testing.assert_allclose(frame.usable().points_m, cloud_of(number).points_m, atol=1e-7)
        with pytest.raises(IndexError):
            recording[len(TIMES_S)]


def test_a_single_file_is_a_recording_of_one_frame(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", cloud_of(0).points_m)
    with open_recording(tmp_path / "a.npy") as recording:
        assert len(recording) == 1 and recording[0].time_s == 0.0
        np.testing.assert_array_equal(recording[0].usable().points_m, cloud_of(0).points_m)


def test_a_frame_that_cannot_be_used_costs_itself(tmp_path: Path) -> None:
    as_points(tmp_path)
    (tmp_path / "00001.npy").write_bytes(b"torn")
    (tmp_path / "00002.npy").unlink()
    recording: Recording = FrameFolder(tmp_path)
    assert [frame.reason for frame in recording] == ["", "unreadable", "missing from the folder", ""]
    assert [frame.cloud is None for frame in recording] == [False, True, True, False]
    with pytest.raises(ValueError, match=r"00001\.npy cannot be read"):
        recording[1].usable()
    with pytest.raises(ValueError, match=r"00001\.npy cannot be read"):
        list(read_frames(tmp_path))


def test_an_estimate_takes_masked_depth_images_with_a_pose(tmp_path: Path) -> None:
    as_depth(tmp_path)
    turn = np.array([[0.0, -1, 0, 0.1], [1, 0, 0, 0.2], [0, 0, 1, 0.3], [0, 0, 0, 1]])
    camera = json.loads((tmp_path / "camera.json").read_text())
    (tmp_path / "camera.json").write_text(json.dumps({**camera, "transform": turn.tolist()}))
    (tmp_path / "masks").mkdir()
    for number in range(len(TIMES_S)):
        np.save(tmp_path / "masks" / f"{number}.npy", depth_m(number) < 0.7)
    read = read_observed(tmp_path, lambda points: (np.full(len(points), 0.002), np.ones(len(points))))
    assert [frame.time_s for frame in read.frames] == list(TIMES_S) and read.set_aside == ()
    for number, frame in enumerate(read.frames):
        seen = cloud_of(number).points_m[depth_m(number) < 0.7]
        np.testing.assert_allclose(frame.points_m, seen @ turn[:3, :3].T + turn[:3, 3], atol=1e-7)


def test_the_direction_of_a_points_noise_turns_with_its_sensor(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    points, along = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    np.save(tmp_path / "a.npy", np.column_stack([points, np.full(5, 0.01), np.full(5, 0.5), along]))
    (tmp_path / "stamps.csv").write_text("a.npy,0\n")
    half = float(np.sqrt(0.5))
    (tmp_path / "poses.csv").write_text(f"a.npy,1,2,3,0,0,{half!r},{half!r}\n")  # a quarter turn about z
    turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    (frame,) = read_observed(tmp_path, lambda points: (np.full(len(points), 9.0), np.full(len(points), 9.0))).frames
    np.testing.assert_allclose(frame.points_m, points @ turn.T + [1, 2, 3], atol=1e-12)
    np.testing.assert_allclose(frame.along, along @ turn.T, atol=1e-12)
    np.testing.assert_array_equal(frame.std_m, 0.01)
