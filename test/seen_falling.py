"""Bodies that are seen in the air: their rest shape, and sightings of them, for tests of `measure`."""

from __future__ import annotations

import numpy as np
from perception_scenes import Body

from soft_estimator.geometry.surface import vertex_normals
from soft_estimator.measuring.sightings import Sighting
from soft_estimator.perception.rest_shape import grid_with_cells
from soft_estimator.perception.scan import ScannedBody

SENSOR_M = np.array([0.4, 0.1, 0.5])


def scanned(body: Body) -> ScannedBody:
    """A body whose every side was seen."""
    grid, all_of_it = grid_with_cells(*body.mesh, 400), np.ones(len(body.vertices_m), dtype=bool)
    return ScannedBody(grid, *body.mesh, all_of_it, 1.0, body.volume_m3, np.eye(3), np.zeros(3), 0.003, 8)


def sighting(points_m: np.ndarray, touched: bool = True) -> Sighting:
    """One that something seems to touch, if told so."""
    low, high = points_m[:, 2].min(), points_m[:, 2].max()
    std = np.full(len(points_m), 1e-3)
    return Sighting(0, 0.0, points_m, std, SENSOR_M, float(low), float(high), points_m.mean(axis=0), touched)


def seen_in_the_air(body: Body, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """900 points of it that face the camera, 0.1 m up, with a noise of 0.5 mm, and its normals there, (900, 3) each."""
    normals = vertex_normals(*body.mesh)
    facing = np.flatnonzero((normals * (SENSOR_M - body.vertices_m)).sum(axis=1) > 0.2 * 0.5)
    some = rng.permutation(facing)[:900]
    return body.vertices_m[some] + [0.0, 0.0, 0.1] + 5e-4 * rng.standard_normal((900, 3)), normals[some]
