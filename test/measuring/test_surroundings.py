"""Which of the faces about an object become obstacles of its scene, and as what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from measure_objects import CASES
from measure_recordings import scene_of

from soft_estimator.camera.rendering import SceneView
from soft_estimator.config_contact import ObstacleConfig
from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.measuring import looking
from soft_estimator.measuring.looking import MeasureOptions, NoDrop, NotMeasured, look_at
from soft_estimator.measuring.sightings import Sighting
from soft_estimator.measuring.surroundings import surroundings_of
from soft_estimator.perception.faces import Face
from soft_estimator.perception.plane import PlaneFit
from soft_estimator.perception.settings import FinderSettings, PlaneSettings
from soft_estimator.recordings.bag_writing import BagWriter
from soft_estimator.schema import load

# The scene's frame in the fixed one: turned, and elsewhere.
FRAME = (rotation_matrix(np.array([0.3, -0.5, 0.8])), np.array([0.4, -0.2, 1.1]))
WIDTH_M = 0.09
UP = np.array([0.0, 0.0, 1.0])


def face(
    normal: np.ndarray, middle: np.ndarray, size_m: tuple[float, float], leaves: bool = False, variance: float = 1e-8
) -> Face:
    """A face given in the scene's frame, its second side upright, or along y where it lies; variance: of its plane's
    tilts and offset."""
    second = np.array([0.0, 1.0, 0.0]) if abs(normal[2]) > 0.9 else UP - (UP @ normal) * normal
    axes = np.stack([np.cross(second, normal), second]) / np.linalg.norm(second)
    grid = np.stack(np.meshgrid(*(np.linspace(-0.5, 0.5, 40) * s for s in size_m)), axis=-1).reshape(-1, 2)
    points = (middle + grid @ axes) @ FRAME[0].T + FRAME[1]
    n, axes = FRAME[0] @ normal, axes @ FRAME[0].T
    plane = PlaneFit(n, -float(n @ points[0]), axes, variance * np.eye(3), len(points), 1.0)
    along = points @ axes.T
    return Face(plane, axes, along.min(axis=0), along.max(axis=0), points, points, np.full((2, 2), leaves))


def flight(*middles: tuple[float, float, float]) -> list[Sighting]:
    """Sightings of a ball of 9 cm, its middle given in the scene's frame."""
    z = 1 - 2 * (np.arange(400) + 0.5) / 400
    around, ring = 2.4 * np.arange(400), np.sqrt(1 - z**2)
    ball = 0.045 * np.stack([ring * np.cos(around), ring * np.sin(around), z], axis=1)
    out = []
    for k, middle in enumerate(middles):
        points = (ball + middle) @ FRAME[0].T + FRAME[1]
        out.append(Sighting(k, k / 30, points, np.full(400, 0.001), np.zeros(3), 0.0, 0.1, points.mean(axis=0), False))
    return out


NORMAL = np.array([np.cos(0.3), np.sin(0.3), 0.0])


def test_a_large_face_near_the_object_is_a_wall() -> None:
    """In the scene's frame, as far off as its plane is known, and no farther than it is calibrated."""
    seen = flight((0.0, 0.0, 0.1), (0.0, 0.0, 0.05))
    found = surroundings_of([face(NORMAL, -0.06 * NORMAL + 0.2 * UP, (0.5, 0.4))], FRAME, WIDTH_M, seen, [0, 1])
    (shape,) = found.obstacles
    np.testing.assert_allclose(shape["plane"]["normal"], NORMAL, atol=1e-6)
    assert np.array(shape["plane"]["through_m"]) @ NORMAL == pytest.approx(-0.06, abs=1e-6)
    assert 0.0003 < found.stds_m[0] < 0.0005
    assert "a wall" in found.notes[0] and "60 mm" in found.notes[0]
    load(ObstacleConfig, {"shape": shape}, "obstacle")


def test_a_face_out_of_reach_is_none() -> None:
    """The ball's middle is 11 cm off, and it is 9 cm wide; when it was held near to it does not count."""
    seen = flight((0.0, 0.0, 0.1), (-0.05, 0.0, 0.1))
    found = surroundings_of([face(NORMAL, -0.11 * NORMAL + 0.2 * UP, (0.5, 0.4))], FRAME, WIDTH_M, seen, [0])
    assert found.obstacles == () and found.notes == ()


@pytest.mark.parametrize("leaves", [False, True])
def test_a_face_whose_edge_is_near_is_the_side_of_a_box(leaves: bool) -> None:
    """A side of 4 cm beside a ball of 9 cm: its depth is a guess. One that goes on beyond the picture is a wall."""
    seen = flight((0.0, 0.0, 0.06), (0.0, 0.0, 0.05))
    side = face(NORMAL, -0.06 * NORMAL + 0.02 * UP, (0.2, 0.04), leaves)
    found = surroundings_of([side], FRAME, WIDTH_M, seen, [0, 1])
    (shape,) = found.obstacles
    assert set(shape) == ({"plane"} if leaves else {"box"})
    assert ("a guess" in found.notes[0]) is not leaves
    if not leaves:
        box = shape["box"]
        turn = rotation_matrix(np.array(box["rotation_rad"]))
        np.testing.assert_allclose(turn[:, 0], NORMAL, atol=1e-5)
        front = np.array(box["center_m"]) + 0.5 * box["size_m"][0] * turn[:, 0]
        assert front @ NORMAL == pytest.approx(-0.06, abs=1e-5)
        np.testing.assert_allclose(box["size_m"][1:], [0.2, 0.04], atol=1e-3)


def test_faces_that_meet_are_one_box() -> None:
    """Top and front: nothing of it is a guess, and its size is what they show."""
    front = face(NORMAL, -0.05 * NORMAL + 0.03 * UP, (0.1, 0.06))
    across = np.cross(UP, NORMAL)
    top = face(UP, -0.05 * NORMAL - 0.04 * NORMAL + 0.06 * UP, (0.08, 0.1))
    turned = np.stack([NORMAL, across, UP], axis=1)  # the top's sides lie along the front's normal
    points = np.array([-0.09 * NORMAL + 0.06 * UP + turned @ [a, b, 0] for a in (-0.04, 0.04) for b in (-0.05, 0.05)])
    edges = np.concatenate([np.linspace(one, other, 60) for one in points for other in points])
    axes, edges = np.stack([NORMAL, across]) @ FRAME[0].T, edges @ FRAME[0].T + FRAME[1]
    along = edges @ axes.T
    top = replace(top, axes=axes, low_m=along.min(axis=0), high_m=along.max(axis=0), points_m=edges)
    seen = flight((0.0, 0.0, 0.09), (0.0, 0.0, 0.05))
    found = surroundings_of([top, front], FRAME, WIDTH_M, seen, [0, 1])
    (shape,) = found.obstacles
    box = shape["box"]
    turn = rotation_matrix(np.array(box["rotation_rad"]))
    np.testing.assert_allclose(turn.T @ NORMAL, [1, 0, 0], atol=1e-5)
    np.testing.assert_allclose(box["size_m"], [0.08, 0.1, 0.06], atol=1e-3)
    np.testing.assert_allclose(box["center_m"], -0.09 * NORMAL + 0.03 * UP, atol=1e-3)
    assert "guess" not in found.notes[0]


def test_each_obstacle_is_as_far_off_as_its_own_faces() -> None:
    """A wall whose plane is known ten times worse than a box's: theirs alone beside 0.3 mm of calibration."""
    seen = flight((0.0, 0.0, 0.06), (0.0, 0.0, 0.05))
    wall = face(NORMAL, -0.06 * NORMAL + 0.2 * UP, (0.5, 0.4), variance=1e-6)
    side = face(-NORMAL, 0.06 * NORMAL + 0.02 * UP, (0.2, 0.04))
    found = surroundings_of([wall, side], FRAME, WIDTH_M, seen, [0, 1])
    assert [next(iter(shape)) for shape in found.obstacles] == ["plane", "box"]
    noise_m = np.sqrt(np.square(found.stds_m) - 0.0003**2)
    expected_m = [f.plane.height_std_m(seen[0].middle_m) for f in (wall, side)]
    np.testing.assert_allclose(noise_m, expected_m, rtol=0.05)
    assert noise_m[0] > 5 * noise_m[1]


def test_a_ramp_that_ends_near_the_object_is_left_out_and_said() -> None:
    normal = np.array([np.sin(0.7), 0.0, np.cos(0.7)])
    ramp = face(normal, np.array([-0.05, 0.0, 0.02]), (0.05, 0.05))
    found = surroundings_of([ramp], FRAME, WIDTH_M, flight((0.0, 0.0, 0.06)), [0])
    assert found.obstacles == () and "slanted" in found.notes[0]


@pytest.mark.xdist_group("test/test_readme.py")  # which measures the same film
@pytest.mark.parametrize("alike", [False, True])
def test_where_both_looks_fail_both_reasons_are_said(film: Path, alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for all where they are the same."""

    def fails(recording: object, finder: object, faces: list[Face], *more: object) -> None:
        raise NotMeasured("it lies still" if alike or faces else "no drop was found")

    wall = face(NORMAL, 0.1 * NORMAL, (0.3, 0.2))
    monkeypatch.setattr(looking, "standing_faces", lambda *given: [wall])
    monkeypatch.setattr(looking, "_look_at", fails)
    with pytest.raises(NotMeasured) as told:
        look_at(film, MeasureOptions())
    both = "no drop was found; with 1 flat face(s) that stay where they are left out of it: it lies still"
    assert str(told.value) == ("it lies still" if alike else both)


@pytest.mark.xdist_group("test/test_readme.py")  # which measures the same film
@pytest.mark.parametrize("beside", [False, True])
def test_where_one_look_came_as_far_as_the_drops_only_its_reason_is_said(
    film: Path, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that only lies there has faces that never move: that nothing is left without them is no reason."""

    def fails(recording: object, finder: object, faces: list[Face], *more: object) -> None:
        if beside == bool(faces):
            raise NoDrop("no drop was found")
        raise ValueError("the object was found in none of 32 frames")

    monkeypatch.setattr(looking, "standing_faces", lambda *given: [face(NORMAL, 0.1 * NORMAL, (0.3, 0.2))])
    monkeypatch.setattr(looking, "_look_at", fails)
    with pytest.raises(NotMeasured) as told:
        look_at(film, MeasureOptions())
    assert str(told.value) == "no drop was found"


@pytest.mark.xdist_group("test/test_readme.py")  # which measures the same film
def test_upside_down_is_said_with_the_option_that_tells_it(film: Path) -> None:
    """The recording does not tell, which is no mistake of a file's: a NotMeasured that names the option."""
    finder = FinderSettings(plane=PlaneSettings(expected_normal=(0.0, 1.0, 0.0)))
    with pytest.raises(NotMeasured, match=r"0, 1, 0.*--up"):
        look_at(film, MeasureOptions(finder=finder))


def test_a_recording_beside_a_wall_and_a_box(tmp_path: Path) -> None:
    """A ball lies, is gone, and falls between a wall with more points than the table and a box: both are found beside
    the drop, in the scene's frame, and neither is taken for the object."""
    wall = {"plane": {"normal": [1.0, 0.2, 0.0], "through_m": [-0.07, 0.0, 0.0]}}
    box = {"box": {"size_m": [0.08, 0.06, 0.05], "center_m": [0.0, -0.1, 0.025]}}
    case = replace(CASES["ball"], spacing_m=0.012, obstacles=(wall, box))
    view = SceneView(scene_of(case, 0.0, (0.0, 0.0, 0.0), (200, 150)))
    still = np.zeros_like(view.scene.body.node_position_m)
    fall = [max(0.1 - 0.5 * 9.81 * t**2, 0.0) for t in np.arange(0, 0.34, 1 / 30)]
    path = [*([[0.0, 0.0, 0.0]] * 8), *([[2.0, 0.0, 0.0]] * 4), *([-0.01, 0.01, z] for z in fall)]
    with BagWriter(tmp_path / "bag", "mcap") as bag:
        for k, place in enumerate(path):
            points = view.look(0.0, still + place).points_m[0]
            bag.cloud("/camera/points", round(1e9 * (1 + k / 30)), "camera_optical_frame", points)
    seen = look_at(tmp_path / "bag", MeasureOptions())
    assert seen.body.prior == "ball" and len(seen.drops) == 1
    found = {name: shape[name] for shape in seen.around.obstacles for name in shape}
    assert set(found) == {"plane", "box"}
    # The scene's origin is on the table below the ball, its axes turned about the vertical.
    normal = np.array(found["plane"]["normal"])
    assert abs(normal[2]) < 0.01
    true_m = 0.07 / np.hypot(1.0, 0.2)
    assert np.dot(-np.array(found["plane"]["through_m"]), normal) == pytest.approx(true_m, abs=0.002)
    # A pixel is 2 mm wide there: so far off may be either end.
    np.testing.assert_allclose(np.sort(found["box"]["size_m"]), [0.05, 0.06, 0.08], atol=0.006)
    assert np.hypot(*found["box"]["center_m"][:2]) == pytest.approx(0.1, abs=0.004)
    assert len(seen.around.stds_m) == 2 and all(0.0003 <= std_m < 0.001 for std_m in seen.around.stds_m)
    assert sum("an obstacle now" in note for note in seen.notes) == 2
