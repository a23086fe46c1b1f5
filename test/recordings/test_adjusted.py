"""A recording as it was meant: which frames, where the camera stood, and axes and units that others use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from soft_estimator.perception.cloud import Cloud, cloud_from_points
from soft_estimator.recordings.adjusted import AdjustedRecording, Choice, frames_of
from soft_estimator.recordings.frame_folder import FrameFolder, write_frames
from soft_estimator.recordings.opening import open_recording

RNG = np.random.default_rng(3)
POINTS = RNG.uniform(-0.2, 0.2, (60, 3)) + np.array([0.0, 0.0, 0.6])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six frames whose points lie k mm farther in the k-th, without poses."""
    rows = ["file,seconds"]
    for k in range(6):
        np.save(tmp_path / f"{k}.npy", POINTS + np.array([0.0, 0.0, 1e-3 * k]))
        rows.append(f"{k}.npy,{0.1 * k}")
    (tmp_path / "stamps.csv").write_text("\n".join(rows))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "numbers"), [("", range(6)), ("2", [0, 1]), ("1:4", [1, 2, 3]), (":6:2", [0, 2, 4]), ("4:", [4, 5])]
)
def test_frames_are_chosen_by_their_numbers(folder: Path, text: str, numbers: list[int]) -> None:
    with open_recording(folder, choice=Choice(frames_of(text))) as chosen:
        assert len(chosen) == len(numbers)
        for index, (frame, number) in enumerate(zip(chosen, numbers)):
            assert frame.time_s == pytest.approx(0.1 * number)
            np.testing.assert_array_equal(chosen[index].usable().points_m, frame.usable().points_m)
        with pytest.raises(IndexError, match="there is no frame"):
            chosen[len(numbers)]


@pytest.mark.parametrize("text", ["x", "1:2:3:4", "-3", "1:9:0", ":"])
def test_what_is_no_choice_of_frames_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is no choice of frames; write 20"):
        frames_of(text)


def test_a_camera_pose_moves_points_and_sensor(folder: Path) -> None:
    """x_fixed = R x_camera + t: a quarter turn about x, then a shift; rounding of a few products."""
    half = np.sqrt(0.5)
    with open_recording(folder, choice=Choice(sensor_pose=(1.0, 2.0, 3.0, half, 0.0, 0.0, half))) as posed:
        cloud = posed[0].usable()
        assert posed.posed
    turn = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    np.testing.assert_allclose(cloud.points_m, POINTS @ turn.T + [1.0, 2.0, 3.0], atol=1e-12)
    np.testing.assert_allclose(cloud.sensor_m, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(cloud.axis, turn[:, 2], atol=1e-12)
    with pytest.raises(ValueError, match="it needs 7"):
        AdjustedRecording(FrameFolder(folder), Choice(sensor_pose=(0.0, 0.0, 1.0)))


def test_the_scene_places_a_camera_only_where_the_recording_does_not(folder: Path, tmp_path: Path) -> None:
    pose = np.eye(4)
    pose[:3, 3] = (0.0, 0.0, 5.0)
    with open_recording(folder) as recording:
        assert not recording.posed
        recording.place_camera(pose)
        assert recording[0].usable().sensor_m[2] == 5.0 and "where the scene has it" in recording.notes[0]
    with open_recording(folder) as recording:
        recording.place_camera(None)
        assert "the camera's own frame is taken" in recording.notes[0]
    own = cloud_from_points(POINTS)
    write_frames(tmp_path / "posed", [own], [0.0])
    with open_recording(tmp_path / "posed") as recording:
        recording.place_camera(pose)
        assert recording.posed and recording[0].usable().sensor_m[2] == 0.0 and recording.notes == []


def recognised(folder: Path, change: np.ndarray | float) -> tuple[Cloud, list[str]]:
    for k in range(6):
        np.save(folder / f"{k}.npy", np.load(folder / f"{k}.npy") * change)
    with open_recording(folder) as recording:
        return recording[0].usable(), recording.notes


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (1000.0, ["taken for millimetres"]),
        (np.array([1.0, -1.0, -1.0]), ["OpenGL's axes"]),
        (np.array([1000.0, -1000.0, -1000.0]), ["OpenGL's axes", "taken for millimetres"]),
        (1.0, []),
    ],
)
def test_other_axes_and_units_are_recognised_and_noted(
    folder: Path, change: np.ndarray | float, said: list[str]
) -> None:
    """The same points in millimetres, or seen along -z: put right to rounding."""
    cloud, notes = recognised(folder, change)
    np.testing.assert_allclose(cloud.points_m, POINTS, atol=1e-12)
    assert len(notes) == len(said) and all(any(s in note for note in notes) for s in said)
