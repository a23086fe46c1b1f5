"""The obstacles of a scene: laws of contact, and meshes to draw and to see them by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from soft_estimator.config import SceneConfig
from soft_estimator.config_body import BoxShape, CapsuleShape, MeshShape, SphereShape
from soft_estimator.config_contact import FrictionConfig, ObstacleConfig, PlaneShape
from soft_estimator.geometry import shapes
from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.live_path import FROM_STAMPS, LATE_S, LedPath, LivePath
from soft_estimator.geometry.mesh_file import mesh_to_sdf
from soft_estimator.geometry.pose_path import PosePath, read_pose_path
from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.surface import extract_surface
from soft_estimator.parameters import NUMBER
from soft_estimator.physics.body import Body
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solids import OWN_SHIFT, OWN_TURN, SHIFT, TURN, Field, HalfSpace, Round, Solid, SolidLaw
from soft_estimator.physics.start import initial_displacement
from soft_estimator.physics.terms.contact import ContactLaw
from soft_estimator.physics.terms.patch import REACH
from soft_estimator.scene.body_grid import Files, GridShape, build_shape
from soft_estimator.schema import ConfigError

# A body may begin pressed into an obstacle by this part of its own size, as what lies on something soft does.
DEEPEST_START = 0.1
CELLS_OF_A_MESH = 48  # along its longest side, where nobody says how finely it is sampled
_PICTURE_ROWS = 24  # of a round solid's mesh, from pole to pole; even, so that none lies on the equator


@dataclass(frozen=True, eq=False)
class SceneObstacle:
    """An obstacle made ready: contact law, and its surface in its own frame, vertices (V, 3) [m] and faces (T, 3).

    log: the poses of its path_file, where their times are stamps of a recording.
    """

    law: ContactLaw
    place: SolidLaw
    vertices_m: np.ndarray
    faces: np.ndarray
    log: PosePath | None = None

    @property
    def placed(self) -> bool:
        """Whether it is known where it is; not of a tool whose poses come with the frames."""
        path = self.place.path
        return not isinstance(path, LivePath) or bool(path.stamps_s)

    @property
    def narrow_m(self) -> float:
        """The radius of a ball or rod, half the width of a bar [m]: half the middle one of its sizes; inf of a
        plane."""
        solid = self.place.solid
        if isinstance(solid, HalfSpace):
            return float("inf")
        if isinstance(solid, Round):
            return float(np.sort(solid.half_m)[1]) + solid.radius_m
        return 0.5 * float(np.sort(np.ptp(self.vertices_m, axis=0))[1])

    def mesh(self, time_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Its surface in the world at a time."""
        turn, origin = self.place.pose(time_s)
        return self.vertices_m @ turn.T + origin, self.faces


def build_obstacles(config: SceneConfig, folder: Path, data: Path | None = None) -> tuple[SceneObstacle, ...]:
    """The obstacles of a scene; folder, data: where their files are looked for."""
    files = Files(folder, data)
    made = tuple(_obstacle(o, config, files, f"obstacles[{k}]") for k, o in enumerate(config.obstacles))
    made = _posed(made, posing(config))
    for k, wrench in enumerate(config.observe.wrenches if config.observe is not None else ()):
        place = made[wrench.obstacle].place
        if place.pivot_m is not None:
            problem = f"= {wrench.obstacle} rests, and the force on it is not known while '{place.turn}' is asked for"
            raise ConfigError(f"{problem}; leave one of them out", f"observe.wrenches[{k}].obstacle")
    return made


def posing(config: SceneConfig) -> list[str]:
    """The parameters that move and turn a scene's obstacles: the shift of all, and what its estimate asks for."""
    if not config.obstacles:
        return []
    own = [o.replace(NUMBER, str(k)) for k in range(len(config.obstacles)) for o in (OWN_SHIFT, OWN_TURN)]
    asked = config.estimate
    return [SHIFT, *(name for name in (TURN, *own) if asked is not None and asked.asks_for(name))]


def _posed(obstacles: tuple[SceneObstacle, ...], names: list[str]) -> tuple[SceneObstacle, ...]:
    """The obstacles, free to be moved and turned by these parameters: with all others about the middle of those that
    rest, or each about its own centre."""
    resting = [o.place.centre_m for o in obstacles if o.place.path is None]
    if TURN in names and not resting:
        problem = f"= '{TURN}' needs an obstacle that rests, and all are led; leave it out"
        raise ConfigError(problem, "estimate.parameters")
    out = []
    for k, obstacle in enumerate(obstacles):
        place, (shift, turn) = obstacle.place, (own.replace(NUMBER, str(k)) for own in (OWN_SHIFT, OWN_TURN))
        if shift in names:
            place = replace(place, shifts=(SHIFT, shift))
        if turn in names:
            if place.path is not None:
                raise ConfigError(f"= '{turn}' is of an obstacle that is led; leave it out", "estimate.parameters")
            if TURN in names:
                raise ConfigError(f"= '{turn}' and '{TURN}' both turn it; leave one out", "estimate.parameters")
            place = replace(place, turn=turn, pivot_m=place.centre_m)
        elif TURN in names and place.path is None:
            place = replace(place, pivot_m=np.mean(resting, axis=0))
        out.append(replace(obstacle, place=place, law=replace(obstacle.law, obstacle=place)))
    return tuple(out)


def with_friction(law: ContactLaw, friction: FrictionConfig) -> ContactLaw:
    """The same contact on a rough surface."""
    slow, substeps = friction.slip_speed_m_s, friction.substeps
    return replace(law, friction=friction.coefficient, slip_speed_m_s=slow, substeps=substeps)


def _obstacle(obstacle: ObstacleConfig, config: SceneConfig, files: Files, key: str) -> SceneObstacle:
    solid, turn, centre, vertices, faces = _shape(obstacle, files, f"{key}.shape")
    log = None
    if obstacle.path_clock == "stamps":
        log = read_pose_path(files.find(str(obstacle.path_file), f"{key}.path_file"))
    path: LedPath | None
    if log is not None:  # its poses come with the frames
        path = LivePath(f"{key}.path_file", otherwise=FROM_STAMPS)
    elif obstacle.tool_frame is not None:
        path = LivePath(f"tool frame '{obstacle.tool_frame}'")
    else:
        path = _path(obstacle, config, files, centre, key)
    # Waypoints lead the frame that has the shape's centre as its origin.
    place = SolidLaw(solid, turn, np.zeros(3) if obstacle.path else centre, path)
    law = ContactLaw(obstacle.stiffness_pa_per_m, obstacle.sharpness_per_m, obstacle=place, own=True)
    if obstacle.friction is not None:
        law = with_friction(law, obstacle.friction)
    return SceneObstacle(law, place, vertices, faces, log)


def _shape(
    obstacle: ObstacleConfig, files: Files, key: str
) -> tuple[Solid, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The solid, its rotation (3, 3) and centre (3,), and its surface in its own frame."""
    shape = obstacle.shape
    if isinstance(shape, PlaneShape):
        return HalfSpace(), _upright(np.array(shape.normal)), np.array(shape.through_m), *_square()
    if isinstance(shape, MeshShape):
        vertices, faces = files.read_mesh(shape, f"{key}.mesh")
        spacing = obstacle.spacing_m or float(np.ptp(vertices[np.unique(faces)], axis=0).max()) / CELLS_OF_A_MESH
        margin = int(np.ceil(REACH / obstacle.sharpness_per_m / spacing)) + 2
        return Field(mesh_to_sdf(vertices, faces, spacing, margin)), np.eye(3), np.zeros(3), vertices, faces
    if isinstance(shape, SphereShape | CapsuleShape | BoxShape):
        turn = rotation_matrix(np.array(shape.rotation_rad))
        solid, turn, centre = _round(shape, turn, obstacle.edge_m)
        return solid, turn, centre, *_round_surface(solid)
    grid = _sampled(build_shape(shape, files, key), obstacle)
    surface = extract_surface(grid)
    return Field(grid), np.eye(3), np.zeros(3), surface.positions_m(grid.node_positions_m()), surface.faces


def _round(
    shape: SphereShape | CapsuleShape | BoxShape, turn: np.ndarray, edge_m: float
) -> tuple[Round, np.ndarray, np.ndarray]:
    if isinstance(shape, SphereShape):
        return Round((0.0, 0.0, 0.0), shape.radius_m), turn, np.array(shape.center_m)
    if isinstance(shape, BoxShape):
        half = tuple(0.5 * side - edge_m for side in shape.size_m)
        return Round(half, edge_m), turn, np.array(shape.center_m)  # type: ignore[arg-type]
    start, end = np.array(shape.start_m), np.array(shape.end_m)
    half_length = 0.5 * float(np.linalg.norm(end - start))
    return Round((0.0, 0.0, half_length), shape.radius_m), turn @ _upright(end - start), 0.5 * (start + end)


def _upright(direction: np.ndarray) -> np.ndarray:
    """A rotation (3, 3) that puts z along a direction."""
    z = direction / np.linalg.norm(direction)
    x = np.cross(np.eye(3)[int(np.argmin(np.abs(z)))], z)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], axis=1)


def _sampled(shape: shapes.Shape, obstacle: ObstacleConfig) -> SignedDistanceGrid:
    low, high = shape.bounds_m()
    spacing = obstacle.spacing_m or float((high - low).max()) / CELLS_OF_A_MESH
    margin = int(np.ceil(REACH / obstacle.sharpness_per_m / spacing)) + 2
    return shapes.sample(shape, spacing, margin)


def _round_surface(solid: Round) -> tuple[np.ndarray, np.ndarray]:
    """A mesh to look at, (V, 3) [m] and (T, 3): directions n over a sphere, each from the corner of the core it points
    away from."""
    rows, columns = _PICTURE_ROWS, 2 * _PICTURE_ROWS
    polar = np.pi * (np.arange(rows) + 0.5) / rows  # no direction lies along an axis, so each has one corner
    around = 2 * np.pi * (np.arange(columns) + 0.5) / columns
    n = np.stack(
        [
            np.outer(np.sin(polar), np.cos(around)),
            np.outer(np.sin(polar), np.sin(around)),
            np.repeat(np.cos(polar)[:, None], columns, axis=1),
        ],
        axis=2,
    )
    ends = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]])
    directions = np.concatenate([n.reshape(-1, 3), ends])
    corners = np.concatenate([np.sign(n.reshape(-1, 3)), ends])
    i, j = np.meshgrid(np.arange(rows - 1), np.arange(columns), indexing="ij")
    a, b = i * columns + j, i * columns + (j + 1) % columns
    sides = np.stack([a, a + columns, b, b, a + columns, b + columns], axis=-1).reshape(-1, 3)
    first, last, ring = rows * columns, rows * columns + 1, np.arange(columns)
    top = np.stack([np.full(columns, first), ring, (ring + 1) % columns], axis=1)
    low = ring + (rows - 1) * columns
    bottom = np.stack([low, np.full(columns, last), np.roll(low, -1)], axis=1)
    return corners * np.array(solid.half_m) + solid.radius_m * directions, np.concatenate([sides, top, bottom])


def _square(half_m: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """A piece of the plane z = 0."""
    corners = half_m * np.array([[-1.0, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]])
    return corners, np.array([[0, 1, 2], [0, 2, 3]])


def _path(obstacle: ObstacleConfig, config: SceneConfig, files: Files, centre: np.ndarray, key: str) -> PosePath | None:
    if obstacle.path_file is not None:
        path = read_pose_path(files.find(obstacle.path_file, f"{key}.path_file"))
        if path.time_s[0] > LATE_S:
            raise ConfigError(
                f"= '{obstacle.path_file}' begins at {path.time_s[0]:g} s, after the motion does (0 s); count its "
                "times from there, or give path_clock: stamps if they are a recording's",
                f"{key}.path_file",
            )
        if path.time_s[-1] < config.time.duration_s - 1e-9:
            raise ConfigError(
                f"= '{obstacle.path_file}' ends at {path.time_s[-1]:g} s, before the motion does "
                f"({config.time.duration_s:g} s); give a longer path or shorten time.duration_s",
                f"{key}.path_file",
            )
        return path
    if not obstacle.path:
        return None
    return PosePath(
        np.array([waypoint.time_s for waypoint in obstacle.path]),
        np.array([rotation_matrix(np.array(waypoint.rotation_rad)) for waypoint in obstacle.path]),
        centre + np.array([waypoint.translation_m for waypoint in obstacle.path]),
    )


def check_apart(obstacles: tuple[SceneObstacle, ...], body: Body, parameters: Parameters) -> None:
    """Refuse an obstacle that begins inside the body, or the body inside it: contact would throw them apart."""
    if not obstacles:
        return
    start = initial_displacement(body, parameters)
    surface, size = body.surface_positions_m(start), float(np.ptp(body.node_position_m, axis=0).max())
    inside = GridShape(lambda: body.grid, body.surface_positions_m())
    turn = rotation_matrix(parameters.rotation_rad)
    for k, obstacle in enumerate(obstacles):
        if not obstacle.placed:
            continue
        turned, origin = obstacle.place.pose(0.0)
        depth = -float(obstacle.place.solid.distance(np, (surface - origin) @ turned).min())
        if not isinstance(obstacle.place.solid, HalfSpace):
            vertices = obstacle.mesh(0.0)[0] - body.centroid_m - parameters.translation_m
            depth = max(depth, -float(inside.distance_m(vertices @ turn + body.centroid_m).min()))
        if depth > DEEPEST_START * size:
            raise ConfigError(
                f"is {depth:.2g} m inside the body at time 0; move one of them, or start its path outside",
                f"obstacles[{k}]",
            )
