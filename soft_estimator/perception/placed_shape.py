"""A rest shape placed in the world: how far points are from it, and how well it explains what a sensor saw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from soft_estimator.backends.cpu.align import distances
from soft_estimator.backends.cpu.raster import rasterise_depth
from soft_estimator.geometry.grid import SignedDistanceGrid, correct_curvature
from soft_estimator.geometry.surface import extract_surface, vertex_areas_m2, vertex_normals

Pose = tuple[np.ndarray, np.ndarray]  # rotation and translation [m]: x_fixed = R x_body + t

_PICTURE_PX = 64  # side of the image in which the shape's visible side is drawn


@dataclass(frozen=True, eq=False)
class ShapeModel:
    """The rest shape prepared: its grid, and its surface's vertices [m], faces, normals and areas [m²]."""

    grid: SignedDistanceGrid
    vertices: np.ndarray
    faces: np.ndarray
    normals: np.ndarray
    areas: np.ndarray


def prepare_model(rest: SignedDistanceGrid) -> ShapeModel:
    rest = correct_curvature(rest)  # or every curved shape would seem smaller by h²/12 Δφ
    surface = extract_surface(rest)
    vertices = surface.positions_m(rest.node_positions_m())
    faces = surface.faces.astype(np.int64)
    return ShapeModel(rest, vertices, faces, vertex_normals(vertices, faces), vertex_areas_m2(vertices, faces))


def distances_to(model: ShapeModel, points: np.ndarray, pose: Pose) -> tuple[np.ndarray, np.ndarray]:
    """Signed distance (n,) [m] of points to the placed shape, and its gradient (n, 3) in the fixed frame."""
    out, slope = np.empty(len(points)), np.empty((len(points), 3))
    local = np.ascontiguousarray((points - pose[1]) @ pose[0])
    distances(local, model.grid.phi_m, model.grid.origin_m, model.grid.spacing_m, out, slope)
    return out, slope @ pose[0].T


def visible_points(model: ShapeModel, pose: Pose, sensor: np.ndarray) -> np.ndarray:
    """Points (n, 3) [m] on the side of the placed shape that the sensor sees."""
    vertices = model.vertices @ pose[0].T + pose[1]
    middle = 0.5 * (vertices.min(axis=0) + vertices.max(axis=0))
    forward = middle - sensor
    far = float(np.linalg.norm(forward))
    radius = float(np.linalg.norm(vertices - middle, axis=1).max())
    if far <= 1.05 * radius:
        return np.empty((0, 3))
    forward /= far
    right = _crossed(forward, np.eye(3)[int(np.argmin(np.abs(forward)))])
    right /= np.linalg.norm(right)
    rotation = np.stack([right, _crossed(forward, right), forward], axis=1)
    focal, centre = 0.49 * _PICTURE_PX * np.sqrt(far**2 - radius**2) / radius, 0.5 * (_PICTURE_PX - 1)
    picture = (focal, focal, centre, centre, _PICTURE_PX, _PICTURE_PX)
    depth, face = rasterise_depth((vertices - sensor) @ rotation, model.faces, *picture)
    v, u = np.nonzero(face >= 0)
    z = depth[v, u]
    return np.stack([(u - centre) / focal * z, (v - centre) / focal * z, z], axis=1) @ rotation.T + sensor


def _crossed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a × b of two vectors (3,); NumPy's own takes twenty times as long."""
    return np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


class PoseScore:
    """How well poses of a shape explain points (n, 3) [m] that a sensor saw.

    Args:
        cut_m: no distance counts for more. every: of the shape's visible side so many points are looked at.
    """

    def __init__(self, model: ShapeModel, points: np.ndarray, sensor: np.ndarray, cut_m: float, every: int = 1) -> None:
        self._model, self._points, self._sensor, self._cut_m, self._every = model, points, sensor, cut_m, every
        self._tree = cKDTree(points)
        self._apart_m = float(np.median(self._tree.query(points[:200], k=2)[0][:, 1]))  # of neighbours

    def of(self, pose: Pose) -> tuple[float, float]:
        """Mean distance [m] of points to shape plus of the shape's visible side to points, and the share of that side
        with points."""
        distance, _ = distances_to(self._model, self._points, pose)
        shown = visible_points(self._model, pose, self._sensor)[:: self._every]
        if len(shown) == 0:
            return np.inf, 0.0
        cut_m, apart_m = self._cut_m, self._apart_m
        gap = self._tree.query(shown, distance_upper_bound=cut_m)[0]
        score = np.minimum(np.abs(distance), cut_m).mean() + np.maximum(np.minimum(gap, cut_m) - apart_m, 0.0).mean()
        return float(score), float((gap < max(3 * apart_m, 2 * self._model.grid.spacing_m)).mean())
