"""Simulated scenes that the perception tests and benchmark share: bodies on a table before a D435-like camera."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from soft_estimator.camera.depth_sensor import DepthNoise, incidence_cosine
from soft_estimator.camera.pinhole import PinholeCamera, depth_and_mesh_images
from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.sdf_file import read_sdf
from soft_estimator.geometry.shapes import Box, Capsule, Shape, Sphere, Torus, Union, sample
from soft_estimator.geometry.surface import extract_surface, mesh_volume_m3, vertex_areas_m2
from soft_estimator.perception.cloud import Cloud, Intrinsics, cloud_from_depth
from soft_estimator.perception.objects import NothingFound, ObjectFinder, ObjectPoints, Why
from soft_estimator.perception.register import PoseRefused, register
from soft_estimator.perception.scan import ScannedBody

DATA = Path(os.environ.get("SOFT_ESTIMATOR_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
NOISE = DepthNoise()
UP = np.array([0.0, 0.0, 1.0])


@dataclass(frozen=True, eq=False)
class Body:
    """A body that rests on z = 0: its mesh, its signed distance, its true volume [m³] and its rest grid."""

    name: str
    vertices_m: np.ndarray
    faces: np.ndarray
    distance_m: Callable[[np.ndarray], np.ndarray]
    volume_m3: float
    grid: SignedDistanceGrid

    @property
    def mesh(self) -> tuple[np.ndarray, np.ndarray]:
        return self.vertices_m, self.faces


@cache
def make_body(name: str) -> Body:
    """torus, ball, box, brick (three different sides), duck (no symmetry but one), bunny (needs the data folder)."""
    if name == "bunny":
        return _bunny()
    shape, spacing = _SHAPES[name]
    grid = sample(shape, spacing)
    surface = extract_surface(grid)
    vertices = surface.positions_m(grid.node_positions_m())
    exact = {"box": 0.10**3, "brick": 0.06 * 0.11 * 0.08, "ball": 4 / 3 * np.pi * 0.05**3}
    exact["torus"] = 2 * np.pi**2 * 0.06 * 0.025**2
    volume = exact.get(name, mesh_volume_m3(vertices, surface.faces))
    return Body(name, vertices, surface.faces, shape.distance_m, volume, grid)


_SHAPES: dict[str, tuple[Shape, float]] = {
    "torus": (Torus(0.06, 0.025, (0.0, 0.0, 0.025)), 0.0025),
    "ball": (Sphere(0.05, (0.0, 0.0, 0.05)), 0.0025),
    "box": (Box((0.10, 0.10, 0.10), (0.0, 0.0, 0.05)), 0.0025),
    "brick": (Box((0.06, 0.11, 0.08), (0.0, 0.0, 0.04)), 0.0025),
    "duck": (
        Union(
            [
                Capsule((-0.04, 0.0, 0.035), (0.04, 0.0, 0.035), 0.035),
                Sphere(0.028, (0.05, 0.01, 0.085)),
                Capsule((0.07, 0.012, 0.083), (0.09, 0.02, 0.08), 0.01),
                Capsule((-0.06, 0.0, 0.05), (-0.085, -0.01, 0.075), 0.013),
            ]
        ),
        0.0025,
    ),
}


def has_bunny() -> bool:
    return (DATA / "bunny_medium.sdf").is_file()


def _bunny() -> Body:
    read = read_sdf(DATA / "bunny_medium.sdf", size_m=0.14)
    # y is up in the file: (x, y, z) goes to (x, -z, y)
    phi = np.moveaxis(read.phi_m, (0, 1, 2), (0, 2, 1))[:, ::-1, :]
    last_z = read.origin_m[2] + read.spacing_m * (read.shape[2] - 1)
    grid = SignedDistanceGrid(phi, np.array([read.origin_m[0], -last_z, read.origin_m[1]]), read.spacing_m)
    surface = extract_surface(grid)
    vertices = surface.positions_m(grid.node_positions_m())
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    shift = -np.array([0.5 * (low[0] + high[0]), 0.5 * (low[1] + high[1]), low[2]])
    grid = SignedDistanceGrid(grid.phi_m, grid.origin_m + shift, grid.spacing_m)
    vertices = vertices + shift
    return Body(
        "bunny",
        vertices,
        surface.faces,
        mesh_distance(vertices, surface.faces),
        mesh_volume_m3(vertices, surface.faces),
        grid,
    )


def mesh_distance(vertices: np.ndarray, faces: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Unsigned distance [m] to a mesh."""
    import igl

    points, triangles = np.ascontiguousarray(vertices), np.ascontiguousarray(faces, dtype=np.int64)

    def distance(query: np.ndarray) -> np.ndarray:
        return np.sqrt(igl.point_mesh_squared_distance(np.ascontiguousarray(query), points, triangles)[0])

    return distance


def table(half_m: float = 0.8, height_m: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """A square table top as a mesh."""
    corners = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]]) * half_m + height_m * UP
    return corners, np.array([[0, 1, 2], [0, 2, 3]])


def moved(
    mesh: tuple[np.ndarray, np.ndarray], rotation: np.ndarray, shift: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    return mesh[0] @ rotation.T + shift, mesh[1]


def yaw(angle_rad: float) -> np.ndarray:
    c, s = np.cos(angle_rad), np.sin(angle_rad)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def camera_at(
    azimuth_rad: float = 0.0, elevation_rad: float = 0.7, distance_m: float = 0.6, target_m: tuple = (0, 0, 0.04)
) -> PinholeCamera:
    """640x480 with the D435's depth field of view (about 75 by 60 degrees at 4:3)."""
    out = np.array(
        [
            np.cos(elevation_rad) * np.cos(azimuth_rad),
            np.cos(elevation_rad) * np.sin(azimuth_rad),
            np.sin(elevation_rad),
        ]
    )
    target = np.asarray(target_m, dtype=float)
    return PinholeCamera.looking_at(target + distance_m * out, target, horizontal_fov_rad=1.3)


def lens_of(camera: PinholeCamera) -> Intrinsics:
    return Intrinsics(camera.width_px, camera.height_px, camera.fx_px, camera.fy_px, camera.cx_px, camera.cy_px)


def pose_of(camera: PinholeCamera) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = camera.rotation, camera.position_m
    return matrix


@dataclass(frozen=True, eq=False)
class Shot:
    """A simulated frame: the cloud, and for every pixel the true depth [m] and the mesh truly seen (-1: none)."""

    cloud: Cloud
    depth_m: np.ndarray
    true_depth_m: np.ndarray
    owner: np.ndarray
    camera: PinholeCamera


def shoot(camera: PinholeCamera, meshes: list, seed: int, noise: DepthNoise | None = NOISE) -> Shot:
    true, owner = depth_and_mesh_images(camera, meshes)
    depth = true if noise is None else noise.apply(true, camera, np.random.default_rng(seed))
    depth = depth.astype(np.float32)
    return Shot(cloud_from_depth(depth, lens_of(camera), pose_of(camera)), depth, true, owner, camera)


def bounce_heights(frames: int = 30, step_s: float = 1 / 30, drop_m: float = 0.18, keep: float = 0.75) -> np.ndarray:
    """Heights [m] of a body's underside that drops and bounces with restitution `keep`."""
    height, velocity, heights = drop_m, 0.0, []
    fine = 50
    for _ in range(frames):
        heights.append(height)
        for _ in range(fine):
            velocity -= 9.81 * step_s / fine
            height += velocity * step_s / fine
            if height < 0:
                height, velocity = -height, -keep * velocity
    return np.array(heights)


def hand(at_m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A fist on a forearm that comes in from +y, as a mesh."""
    shape = Union([Sphere(0.045), Capsule((0.0, 0.02, 0.0), (0.1, 0.45, 0.12), 0.032)])
    grid = sample(shape, 0.012)
    surface = extract_surface(grid)
    return surface.positions_m(grid.node_positions_m()) + at_m, surface.faces


def bounce_with_hand(name: str, seed: int, frames: int = 30) -> list[Shot]:
    """A bounce before a fixed camera while a hand sweeps by, nearer to the camera, and hides part of the object for a
    while."""
    body, camera, ground = make_body(name), camera_at(0.0, 0.45, 0.8, (0, 0, 0.09)), table()
    shots, fist = [], hand(np.zeros(3))
    for i, height in enumerate(bounce_heights(frames)):
        place = np.array([0.004 * i - 0.06, 0.003 * i - 0.04, height])
        meshes = [moved(body.mesh, yaw(0.1 * i), place), ground]
        if 6 <= i < 26:
            sweep = (i - 6) / 19
            meshes.append((fist[0] + np.array([0.22, 0.34 - 0.50 * sweep, 0.15]), fist[1]))
        shots.append(shoot(camera, meshes, seed + i))
    return shots


COVERED_M = 0.004  # a point this near stands for a piece of surface: the distance of points in a thinned cloud


def judge_points(body: Body, shot: Shot, found: ObjectPoints) -> dict[str, float]:
    """How good the object points of a frame are; the body stands where its mesh was when it was shot.

    outliers: share of kept pixels farther from the true surface than four standard deviations of the depth noise;
    kept: share of the object's pixels that were measured within four standard deviations of the truth and are kept;
    covered: share of the truly visible surface (its pixels) within 4 mm of a handed-on point;
    covered_80: the same for surface seen at an incidence below 80 degrees;
    coverable: what `covered` would be if every pixel measured within four standard deviations were handed on: the rest
    the camera itself did not measure.
    """
    camera, kept, own = shot.camera, found.why == Why.KEPT, shot.owner == 0
    points = shot.cloud.points_m[kept]
    std = NOISE.std_m((points - camera.position_m) @ camera.rotation[:, 2], camera)
    good = own & (shot.depth_m > 0)
    good &= np.abs(shot.depth_m - shot.true_depth_m) < 4 * NOISE.std_m(shot.true_depth_m, camera)
    surface = camera.to_world_frame(camera.rays()[own] * shot.true_depth_m[own][:, None])
    gap = cKDTree(found.points_m).query(surface)[0]
    level = incidence_cosine(camera, shot.true_depth_m)[own] > np.cos(np.radians(80))
    assert found.plane is not None
    return {
        "plane_deg": float(np.degrees(np.arccos(np.clip(found.plane.normal @ UP, -1, 1)))),
        "plane_mm": 1e3 * abs(float(found.plane.height_m(np.zeros(3)))),
        "outliers": float((np.abs(body.distance_m(points)) > 4 * std).mean()),
        "kept": float((kept & good).sum() / good.sum()),
        "covered": float((gap < COVERED_M).mean()),
        "covered_80": float((gap < COVERED_M)[level].mean()),
        "coverable": float((cKDTree(shot.cloud.points_m[good]).query(surface)[0] < COVERED_M).mean()),
        "points": len(found.points_m),
    }


def judge_scan(body: Body, scan: ScannedBody, views: list[Shot]) -> dict[str, float]:
    """How good a scanned body is: volume, true coverage, and how far its surface lies from the true one [mm].

    seen: vertices the scan says it saw, to the true surface. true_seen: vertices of the true surface that a camera
    truly sees, whatever the scan says of them, to the scan's surface. unseen: the scan's other vertices. Each as the
    95 % and 99 % value and the largest.
    """
    world = scan.vertices_m @ scan.rotation.T + scan.translation_m
    there, back = np.abs(body.distance_m(world)), mesh_distance(world, scan.faces)(body.vertices_m)
    seen_back = _visible(body, views)
    areas = vertex_areas_m2(body.vertices_m, body.faces)
    errors = {"": there, "seen_": there[scan.seen], "true_seen_": back[seen_back], "unseen_": there[~scan.seen]}
    table = {
        f"{kind}{name}_mm": 1e3 * float(np.quantile(values, share)) if len(values) else 0.0
        for kind, values in errors.items()
        for name, share in (("p95", 0.95), ("p99", 0.99), ("max", 1.0))
    }
    return {
        "volume": scan.volume_m3 / body.volume_m3 - 1,
        "voxel_mm": 1e3 * scan.voxel_m,
        "cell_mm": 1e3 * scan.grid.spacing_m,
        "mean_mm": 1e3 * float(there.mean()),
        **table,
        "back_p95_mm": 1e3 * float(np.quantile(back, 0.95)),
        "coverage": scan.coverage,
        "true_coverage": float(areas[seen_back].sum() / areas.sum()),
    }


def _visible(body: Body, views: list[Shot]) -> np.ndarray:
    """Vertices of the body that at least one view truly sees: nothing nearer in the exact depth image."""
    seen = np.zeros(len(body.vertices_m), dtype=bool)
    for shot in views:
        camera = shot.camera
        local = camera.to_camera_frame(body.vertices_m)
        u = np.rint(local[:, 0] / local[:, 2] * camera.fx_px + camera.cx_px).astype(int)
        v = np.rint(local[:, 1] / local[:, 2] * camera.fy_px + camera.cy_px).astype(int)
        seen |= (shot.owner[v, u] == 0) & (local[:, 2] < shot.true_depth_m[v, u] + 0.003)
    return seen


@cache
def scan_views(body: Body, count: int, seed: int = 0, first_rad: float = 0.3) -> list[Shot]:
    """Views from all around, 40 degrees above the table."""
    angles = first_rad + 2 * np.pi * np.arange(count) / count
    return [shoot(camera_at(angle), [body.mesh, table()], seed + i) for i, angle in enumerate(angles)]


def pose_error(
    name: str, pose: tuple[np.ndarray, np.ndarray], true: tuple[np.ndarray, np.ndarray], body: Body
) -> tuple:
    """Angle [deg] and shift of the body's middle [mm], the best over the body's symmetries."""
    middle = 0.5 * (body.vertices_m.min(axis=0) + body.vertices_m.max(axis=0))
    shift = np.linalg.norm(pose[0] @ middle + pose[1] - true[0] @ middle - true[1])
    turn = true[0].T @ pose[0]
    if name == "torus":  # any turn about the axis, and upside down
        angle = np.arccos(min(1.0, abs(turn[2, 2])))
    else:
        group = _cube_turns() if name == "box" else [np.eye(3)]
        if name == "brick":
            group = [g for g in _cube_turns() if np.allclose(np.abs(g), np.eye(3))]
        angle = min(np.arccos(np.clip((np.trace(turn @ g.T) - 1) / 2, -1, 1)) for g in group)
    return float(np.degrees(angle)), 1e3 * float(shift)


def _cube_turns() -> list[np.ndarray]:
    turns = []
    for order in permutations(range(3)):
        for signs in product((1.0, -1.0), repeat=3):
            turn = np.zeros((3, 3))
            turn[range(3), order] = signs
            if np.linalg.det(turn) > 0:
                turns.append(turn)
    return turns


def pose_trial(body: Body, rest: SignedDistanceGrid, trial: int) -> tuple[float, float] | str:
    """One body at a random yaw and place on the table, found and registered; its error, or why there is none."""
    rng = np.random.default_rng(1000 + trial)
    true = (yaw(rng.uniform(0, 2 * np.pi)), np.append(rng.uniform(-0.05, 0.05, 2), 0.0))
    shot = shoot(camera_at(rng.uniform(0, 2 * np.pi)), [moved(body.mesh, *true), table()], trial)
    found = ObjectFinder().process(shot.cloud)
    if isinstance(found, NothingFound):
        return found.reason
    up = found.plane.normal if found.plane is not None else UP
    fit = register(rest, found.points_m, found.std_m, shot.camera.position_m, up)
    if isinstance(fit, PoseRefused):
        return fit.reason
    return pose_error(body.name, (fit.rotation, fit.translation_m), true, body)
