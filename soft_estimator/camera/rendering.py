"""What depth cameras see of a scene: the body as it moves, and the contact plane as a table under it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.camera.depth_sensor import DepthNoise
from soft_estimator.camera.observing import surface_hits
from soft_estimator.camera.pinhole import Mesh, PinholeCamera, depth_and_mesh_images
from soft_estimator.camera.scene_cameras import depth_noise, scene_cameras, times_from_start
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.scene.motion import displacements
from soft_estimator.scene.scene import Scene

# The table reaches this many body sizes to each side: it fills the lower part of an image, and has edges.
TABLE_BODY_SIZES = 3.0
# Of a step: errors of second order are a sixteenth of those of the step itself.
_TRUE_PARTS = 4


@dataclass(frozen=True, eq=False)
class SeenFrame:
    """One moment of a scene.

    Attributes:
        time_s: since the scene's time 0. u_m: displacement of the nodes (N, 3) [m].
        surface_m: vertices of the true surface (V, 3) [m].
        points_m: of each camera, organised (h, w, 3) in its optical frame [m], NaN where nothing was measured.
    """

    time_s: float
    u_m: np.ndarray
    surface_m: np.ndarray
    points_m: tuple[np.ndarray, ...]


def table_mesh(parameters: Parameters, centre_m: np.ndarray, half_m: float) -> Mesh:
    """A square piece of the contact plane, half_m to each side of the foot of centre_m."""
    normal = parameters.plane_normal / np.linalg.norm(parameters.plane_normal)
    foot = np.asarray(centre_m) - (normal @ centre_m + parameters.plane_offset_m) * normal
    first = np.cross(normal, np.eye(3)[np.argmin(np.abs(normal))])
    first /= np.linalg.norm(first)
    second = np.cross(normal, first)
    corners = [foot + half_m * (a * first + b * second) for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    return np.array(corners), np.array([[0, 1, 2], [0, 2, 3]])


class SceneView:
    """A scene's cameras and what stands before them."""

    def __init__(self, scene: Scene, cameras: Sequence[PinholeCamera] | None = None) -> None:
        observe = scene.config.observe
        self.scene, self.cameras = scene, list(scene_cameras(scene.config) if cameras is None else cameras)
        self.field: CarriedField = carry_field(scene.body)
        self.noise: DepthNoise | None = None if observe is None else depth_noise(observe.noise)
        self.isotropic_m = 0.0 if observe is None else observe.noise.isotropic_m(scene.body.grid.spacing_m)
        self.rng = np.random.default_rng(0 if observe is None else observe.seed)
        rest = scene.body.surface_positions_m()
        self.others: list[Mesh] = []  # what else is in view, a hand for one
        self.table: Mesh | None = None
        self.beside = [obstacle.mesh(0.0) for obstacle in scene.obstacles]
        if scene.config.contact is not None:
            size = float(np.linalg.norm(np.ptp(rest, axis=0)))
            centre = scene.body.centroid_m + scene.parameters.translation_m
            self.table = table_mesh(scene.parameters, centre, TABLE_BODY_SIZES * size)

    def look(self, time_s: float, u_m: np.ndarray) -> SeenFrame:
        """What every camera sees of the body displaced by u_m (N, 3) [m]."""
        surface = self.scene.body.surface_positions_m(u_m)
        self.beside = [obstacle.mesh(float(time_s)) for obstacle in self.scene.obstacles]
        points = tuple(self._points(camera, surface, u_m) for camera in self.cameras)
        return SeenFrame(float(time_s), u_m, surface, points)

    def _points(self, camera: PinholeCamera, surface_m: np.ndarray, u_m: np.ndarray) -> np.ndarray:
        depth = self.exact_depth(camera, surface_m, u_m)
        if self.noise is not None:
            depth = self.noise.apply(depth, camera, self.rng)
        seen = depth > 0
        points = np.full((*depth.shape, 3), np.nan)
        points[seen] = camera.rays()[seen] * depth[seen][:, None]
        if self.isotropic_m > 0:
            points[seen] += self.isotropic_m * self.rng.standard_normal((int(seen.sum()), 3))
        return points

    def exact_depth(self, camera: PinholeCamera, surface_m: np.ndarray, u_m: np.ndarray) -> np.ndarray:
        """Depth image (h, w) [m] without noise, 0 where nothing is."""
        body = self.scene.body
        table = [] if self.table is None else [self.table]
        meshes = [(surface_m, body.surface.faces), *table, *self.beside, *self.others]
        depth, owner = depth_and_mesh_images(camera, meshes)
        on_body = (owner == 0) & (depth > 0)
        if on_body.any():
            # A ray that grazes the outline may pass by the field's surface; there the triangle is what is seen.
            hits, found = surface_hits(camera, body, self.field, u_m, camera.rays()[on_body], depth[on_body])
            depth[on_body] = np.where(found, camera.to_camera_frame(hits)[:, 2], depth[on_body])
        return depth


def watch_scene(scene: Scene, backend: Backend, cameras: Sequence[PinholeCamera] | None = None) -> Iterator[SeenFrame]:
    """Every frame of a scene that moves with its own parameters, in shorter steps than whoever estimates from them
    would take: what a camera sees knows of no step."""
    view, times = SceneView(scene, cameras), times_from_start(scene.config)
    simulation = Simulation(scene.model.in_parts(_TRUE_PARTS), scene.parameters, backend)
    for time_s, u in zip(times, displacements(simulation, times)):
        yield view.look(time_s, u)
