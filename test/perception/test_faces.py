"""Walls and boxes beside an object that is moved about: found where they are, as sure as is said, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from measure_objects import CASES, Case
from measure_recordings import scene_of

from soft_estimator.camera.rendering import SceneView
from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.perception.cloud import Cloud, cloud_from_points
from soft_estimator.perception.faces import Face, Faces, find_faces, still_there
from soft_estimator.perception.settings import FinderSettings

WALL = {"plane": {"normal": [0.9, 0.3, 0.05], "through_m": [-0.11, 0.0, 0.0]}}
BOX_TURN, BOX_SIZE, BOX_CENTRE = [0.0, 0.0, 0.2], np.array([0.06, 0.09, 0.07]), np.array([0.03, -0.14, 0.035])
BOX = {"box": {"size_m": BOX_SIZE.tolist(), "center_m": BOX_CENTRE.tolist(), "rotation_rad": BOX_TURN}}
# Lies, is gone, comes back elsewhere, and flies: a brick, whose own faces are as flat as any.
PLACES_M = ([0, 0, 0], [0, 0, 0], [0.04, 0.05, 0.09], [0.05, 0.06, 0.0], [0.03, 0.07, 0.0], [1, 0, 0.5], [0, 0, 0])
FINDER = FinderSettings()


@cache
def clouds_of(*obstacles: str) -> list[Cloud]:
    """A brick among obstacles, in every place."""
    shapes: dict[str, Any] = {"wall": WALL, "box": BOX}
    case: Case = replace(CASES["brick"], spacing_m=0.012, obstacles=tuple(shapes[name] for name in obstacles))
    scene = scene_of(case, 0.0, (0.0, 0.0, 0.0), (240, 180))
    view, camera = SceneView(scene), SceneView(scene).cameras[0]
    transform = np.eye(4)
    transform[:3, :3], transform[:3, 3] = camera.rotation, camera.position_m
    still = np.zeros_like(scene.body.node_position_m)
    return [cloud_from_points(view.look(0.0, still + place).points_m[0], transform) for place in PLACES_M]


def faces_among(*obstacles: str) -> list[Face]:
    clouds = clouds_of(*obstacles)
    return still_there(find_faces(clouds, FINDER), clouds, FINDER.noise)


def test_a_brick_that_moves_has_no_faces_that_stay() -> None:
    assert faces_among() == []
    lying = clouds_of()[0]
    assert len(find_faces([lying] * 3, FINDER)) >= 2  # they would be found if it stayed


@pytest.mark.parametrize("heights_m", [(0.03, 0.02, 0.01), (0.02, 0.05, 0.08)])
def test_a_brick_that_is_lifted_straight_up_and_falls_back_has_none(heights_m: tuple[float, ...]) -> None:
    """It lies in two thirds of the frames, and hides where it lay in the others."""
    scene = scene_of(replace(CASES["brick"], spacing_m=0.012), 0.0, (0.0, 0.0, 0.0), (240, 180))
    view, still = SceneView(scene), np.zeros_like(scene.body.node_position_m)
    rotation, position = view.cameras[0].rotation, view.cameras[0].position_m
    transform = np.block([[rotation, position[:, None]], [np.zeros((1, 3)), np.ones((1, 1))]])
    places = [np.array([0.0, 0.0, z]) for z in (*[0.0] * 6, *heights_m)]
    clouds = [cloud_from_points(view.look(0.0, still + place).points_m[0], transform) for place in places]
    assert still_there(find_faces(clouds, FINDER), clouds, FINDER.noise) == []


def test_a_wall_is_found_where_it_is() -> None:
    faces = faces_among("wall")
    assert len(faces) == 1
    normal = np.array(WALL["plane"]["normal"]) / np.linalg.norm(WALL["plane"]["normal"])
    assert np.degrees(np.arccos(faces[0].plane.normal @ normal)) < 0.5
    near = np.array([-0.1, 0.0, 0.05])
    off = faces[0].plane.height_m(near) - (near - np.array(WALL["plane"]["through_m"])) @ normal
    assert abs(off) < 5 * faces[0].plane.height_std_m(near) + 1e-4
    assert faces[0].size_m.min() > 0.1


def test_a_box_is_found_by_its_faces() -> None:
    """Each of the faces towards the camera lies in a side of the box, and none is larger than that."""
    faces, turn = faces_among("box"), rotation_matrix(np.array(BOX_TURN))
    assert len(faces) == 3
    found = set()
    for face in faces:
        local = turn.T @ face.plane.normal
        axis = int(np.argmax(np.abs(local)))
        assert np.degrees(np.arccos(abs(local[axis]))) < 2.0
        side = BOX_CENTRE + 0.5 * np.sign(local[axis]) * BOX_SIZE[axis] * turn[:, axis]
        assert abs(face.plane.height_m(side)) < 0.001
        wide = np.sort(np.delete(BOX_SIZE, axis))
        np.testing.assert_array_less(np.sort(face.size_m), wide + 0.004)
        np.testing.assert_array_less(0.75 * wide, np.sort(face.size_m))
        found.add(axis)
    assert found == {0, 1, 2}


def test_points_of_faces_are_known_and_those_of_the_object_are_not() -> None:
    faces, cloud = Faces(faces_among("wall", "box")), clouds_of("wall", "box")[2]
    points = cloud.flat_m[np.isfinite(cloud.flat_m).all(axis=1)]
    owned = faces.owned(points, np.full(len(points), 0.001), 0.0)
    brick = np.abs(points - [0.04, 0.05, 0.128]).max(axis=1) < 0.06
    assert brick.sum() > 500 and not owned[brick].any()
    normal = np.array(WALL["plane"]["normal"]) / np.linalg.norm(WALL["plane"]["normal"])
    on_wall = np.abs((points - WALL["plane"]["through_m"]) @ normal) < 0.002
    on_wall &= points[:, 2] > 0.03
    assert on_wall.sum() > 500 and owned[on_wall].mean() > 0.97


@pytest.mark.parametrize("count", [0, 1])
def test_clouds_without_a_table_have_no_faces(count: int) -> None:
    empty = cloud_from_points(np.full((40, 50, 3), np.nan))
    assert find_faces([empty] * count, FINDER) == []


def test_a_wall_goes_on_beyond_the_picture_and_a_box_ends() -> None:
    wall, box = faces_among("wall")[0], faces_among("box")[0]
    assert wall.leaves.any() and not box.leaves.any()
