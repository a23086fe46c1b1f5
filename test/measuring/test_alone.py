"""The object told from hands by its shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from perception_scenes import Body, make_body

from soft_estimator.geometry.surface import vertex_normals
from soft_estimator.measuring.alone import cut_to_shape
from soft_estimator.measuring.sightings import Sighting
from soft_estimator.perception.rest_shape import grid_with_cells
from soft_estimator.perception.scan import ScannedBody

TABLE, SENSOR_M = np.array([0.0, 0.0, 1.0, 0.0]), np.array([0.4, 0.1, 0.5])


def scanned(body: Body) -> ScannedBody:
    grid, all_of_it = grid_with_cells(*body.mesh, 400), np.ones(len(body.vertices_m), dtype=bool)
    return ScannedBody(grid, *body.mesh, all_of_it, 1.0, body.volume_m3, np.eye(3), np.zeros(3), 0.003, 8)


def sighting(points_m: np.ndarray) -> Sighting:
    """One that something seems to touch."""
    low, high = points_m[:, 2].min(), points_m[:, 2].max()
    std = np.full(len(points_m), 1e-3)
    return Sighting(0, 0.0, points_m, std, SENSOR_M, float(low), float(high), points_m.mean(axis=0), True)


def test_what_a_pose_of_its_shape_explains_is_alone() -> None:
    """A duck in the air that seemed touched, by what was beside it: all its points lie on it, and the frame counts.
    With an arm as wide as itself before it, the frame does not."""
    duck = make_body("duck")
    facing = (vertex_normals(*duck.mesh) * (SENSOR_M - duck.vertices_m)).sum(axis=1) > 0.2 * 0.5
    rng = np.random.default_rng(2)
    points = duck.vertices_m[facing] + [0.0, 0.0, 0.1]
    points = points[rng.permutation(len(points))[:900]] + 5e-4 * rng.standard_normal((900, 3))
    arm = np.array([0.0, 0.1, 0.25]) + rng.uniform(-1, 1, (900, 3)) * [0.02, 0.25, 0.02]
    body = scanned(duck)
    assert not cut_to_shape([sighting(points)], body, TABLE, 0.01)[0].touched
    held = cut_to_shape([sighting(np.concatenate([points, arm]))], body, TABLE, 0.01)[0]
    assert held.touched
    alone = replace(sighting(points), touched=False)
    assert not cut_to_shape([alone], body, TABLE, 0.01)[0].cut
