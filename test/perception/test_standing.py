"""What stands about is learnt while frames come: none of it is the object, and where the object comes near is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from measure_objects import CASES, Case
from measure_recordings import scene_of

from soft_estimator.camera.rendering import SceneView
from soft_estimator.geometry.extent import widest_m
from soft_estimator.live.replay_state import read_state, state_bytes
from soft_estimator.perception.cloud import Cloud, cloud_from_points
from soft_estimator.perception.objects import NothingFound, ObjectFinder, ObjectPoints
from soft_estimator.perception.settings import FinderSettings
from soft_estimator.perception.standing import StandingFaces

BOX = {"box": {"size_m": [0.1, 0.12, 0.1], "center_m": [-0.14, 0.0, 0.05], "rotation_rad": [0.0, 0.0, 0.25]}}
CRATE = np.array([0.1, 0.12, 0.1])
BALL = replace(CASES["ball"], spacing_m=0.012)
SEEN = list[tuple[int, Cloud, ObjectPoints | NothingFound]]


def film(case: Case, moves_m: np.ndarray) -> Iterator[tuple[int, Cloud]]:
    """What a camera sees of an undeformed object, moved by (n, 3) [m], in the scene's frame."""
    view = SceneView(scene_of(case, 0.0, (0.0, 0.0, 0.0), (200, 150)))
    still, camera = np.zeros_like(view.scene.body.node_position_m), view.cameras[0]
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = camera.rotation, camera.position_m
    for k, moved in enumerate(moves_m):
        yield k, cloud_from_points(view.look(0.0, still + moved).points_m[0], pose)


def followed(case: Case, moves_m: np.ndarray, standing: StandingFaces) -> SEEN:
    finder, out = ObjectFinder(FinderSettings()), []
    for k, cloud in film(case, moves_m):
        found = finder.process(cloud, None, k / 30, standing)
        if standing.look(cloud, found, k / 30):
            finder.forget()
        out.append((k, cloud, found))
    return out


def at_rest_then(falling: int, still: int = 30) -> np.ndarray:
    """Still frames, then it is lifted by 3 cm a frame and falls beside where it lay."""
    fall = [max(0.1 - 0.5 * 9.81 * (k / 30) ** 2, 0.0) for k in range(falling)]
    path = [*np.arange(0.03, 0.1, 0.03), *fall] if falling else []
    return np.array([*([[0.0, 0.0, 0.0]] * still), *([-0.04, 0.0, z] for z in path)])


def off_ball_m(points_m: np.ndarray, moved_m: np.ndarray) -> np.ndarray:
    return np.abs(np.linalg.norm(points_m - moved_m - np.array([0.0, 0.0, 0.045]), axis=1) - 0.045)


def test_a_box_that_stands_there_is_none_of_the_object() -> None:
    """It has more points than the ball, and is taken for it until it was seen for a second; then the ball is found
    alone as it lies and as it falls beside the box, and a reader is told how near. The noise is 0.6 mm at 0.5 m."""
    standing, moves = StandingFaces(FinderSettings(), 0.09), at_rest_then(7)
    told = followed(replace(BALL, obstacles=(BOX,)), moves, standing)
    first = told[0][2]
    assert isinstance(first, NothingFound) or np.median(off_ball_m(first.points_m, moves[0])) > 0.01
    assert 2 <= len(standing.faces) <= 3
    box = np.array(BOX["box"]["center_m"])
    for face in standing.faces:
        assert np.linalg.norm(face.points_m - box, axis=1).max() < 0.5 * np.linalg.norm(CRATE) + 0.005
    learnt = [(k, found) for k, _, found in told if k >= 29]
    assert all(isinstance(found, ObjectPoints) for _, found in learnt)
    for k, found in learnt:
        off = off_ball_m(found.points_m, moves[k])  # type: ignore[union-attr]
        assert np.quantile(off, 0.99) < 0.004 and len(off) > 500, (k, off.max())
    # The ball's middle is 54 mm from the box's front; that of the side that is seen is half its radius farther off.
    note = standing.beside(learnt[-1][1].points_m)  # type: ignore[union-attr]
    assert "flat face" in note and float(note.split(" mm")[0].split()[-1]) == pytest.approx(54 + 22, abs=5)
    far = learnt[-1][1].points_m + np.array([0.1, 0.0, 0.0])  # type: ignore[union-attr]
    assert standing.beside(far) == ""
    again = read_state(state_bytes({"standing": standing}, {}), {})["standing"]  # as a replay is gone on with
    points = told[-1][1].flat_m[np.isfinite(told[-1][1].flat_m).all(axis=1)]
    std = np.full(len(points), 0.001)
    np.testing.assert_array_equal(again.owned(points, std, 0.0), standing.owned(points, std, 0.0))


def test_the_object_itself_is_never_what_stands_there() -> None:
    """A box as an object lies still for a second beside nothing, and beside a box: its faces are not learnt."""
    case = replace(CASES["box"], spacing_m=0.0154)
    lies = np.zeros((36, 3))
    size_m = widest_m(scene_of(case, 0.0, (0.0, 0.0, 0.0), (16, 12)).body.surface_positions_m())
    alone = StandingFaces(FinderSettings(), size_m)
    assert all(isinstance(found, ObjectPoints) for _, _, found in followed(case, lies, alone))
    assert alone.faces == ()
    among = StandingFaces(FinderSettings(), size_m)
    large = {"box": {**BOX["box"], "size_m": [0.14, 0.2, 0.16], "center_m": [-0.2, 0.0, 0.08]}}
    told = followed(replace(case, obstacles=(large,)), lies, among)
    assert among.faces and all(face.points_m[:, 0].max() < -0.06 for face in among.faces)
    last = told[-1][2]
    assert isinstance(last, ObjectPoints)
    assert np.quantile(np.abs(last.points_m[:, :2]), 0.99) < 0.0385 + 0.003  # but for pixels that fly off its edges


@pytest.mark.parametrize("organised", [True, False])
def test_what_goes_away_is_forgotten(organised: bool) -> None:
    """A box that was taken away is seen through, and what is seen where it was may be the object again."""
    standing = StandingFaces(FinderSettings(), 0.09)
    followed(replace(BALL, obstacles=(BOX,)), at_rest_then(0), standing)
    assert standing.faces
    assert standing.owned(np.array(BOX["box"]["center_m"])[None] + [[0.051, 0.0, 0.02]], np.array([1e-3]), 1.0).any()
    (_, cloud), *_ = film(BALL, at_rest_then(0, 1))
    if not organised:
        cloud = replace(cloud, points_m=cloud.flat_m)
    assert standing.look(cloud, ObjectFinder().process(cloud), 9.0) and not standing.faces
    assert not standing.owned(cloud.flat_m[:100], np.full(100, 0.001), 9.0).any()
