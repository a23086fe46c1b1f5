"""Recordings as a user would make them: a hand places an object on a table, it lies still, then it is held up and
dropped a few times, before one camera without a tf.

The truth is simulated on cells of 3.5 mm (the bunny's: on those of its file, 3.4 mm), with shorter steps and on a
harder table, felt at points a quarter of a cell apart, and seen as finely as it is integrated over: the surface of
cells of 7 mm has creases filled by up to 1.9 mm. A box that fell on an edge was 8 to 10 % too stiff (five noises of
six) where the truth had cells of 7 mm and felt the table in the middles of its triangles, a third of a cell from that
edge; with points a quarter apart, on cells of 3.85 mm, it was -4 to +1 % off (three of three).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from measure_objects import Case
from scipy.spatial.transform import Rotation

from soft_estimator.backends import choose_backend
from soft_estimator.camera.pinhole import Mesh
from soft_estimator.camera.rendering import SceneView
from soft_estimator.camera.scene_cameras import scene_cameras
from soft_estimator.config import SceneConfig
from soft_estimator.geometry.body_file import write_body
from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.sdf_file import read_sdf
from soft_estimator.geometry.shapes import Capsule, Sphere, Union, sample
from soft_estimator.geometry.surface import extract_surface
from soft_estimator.physics.body import felt_by
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.statics import solve_static
from soft_estimator.physics.step import Simulation
from soft_estimator.recordings.bag_writing import BagWriter
from soft_estimator.scene.motion import displacements
from soft_estimator.scene.scene import Scene, assemble_scene, build_scene
from soft_estimator.schema import load

FIRST_STAMP_S = 1.0
UP = np.array([0.0, 0.0, 1.0])
_PLACED_FROM_M, _PLACING_FRAMES, _LEAVING_FRAMES, _HOLDING_FRAMES = 0.08, 8, 10, 5
# The table: twice as hard as the one that measure takes, and followed in steps half as long; and one on which a body of
# few points finds its balance, too.
_HARD = {"stiffness_pa_per_m": 1.2e8, "sharpness_per_m": 18000.0}
_SOFTER = {"stiffness_pa_per_m": 5e6, "sharpness_per_m": 2000.0}
_LYING_M = 0.007  # cells of a body at rest: it sags by millimetres at most, and has no bounce to get wrong
_MOST_STEPS, _AT_REST_M = 1500, 0.0001  # of 2 ms until a body moves by less in fifty
_LEAVING_M_S = 1.0  # how fast a hand goes that has let go


def scene_of(
    case: Case,
    height_m: float,
    turn_rad: tuple[float, float, float],
    image: tuple[int, int],
    folder: Path = Path(),
    contact: Mapping[str, float] = _HARD,
    thrown: bool = False,
) -> Scene:
    """The object above the table, ready to be dropped, or thrown; folder: where the file of its shape lies."""
    camera = {"eye_m": [0.42, 0.16, 0.34], "target_m": [0, 0, 0.06], "up": [0, 0, 1], "horizontal_fov_rad": 0.8}
    skin = {"skin": "detail", "detail": 4 if case.spacing_m >= _LYING_M else 2}
    body: dict[str, Any] = {"shape": case.shape, "spacing_m": case.spacing_m, **skin}
    if isinstance(case.shape, str):
        body = {"shape": {"scan": {"file": _body_file(case)}}, "skin": "detail"}
    data: dict[str, Any] = {
        "name": case.name,
        "body": body,
        "material": {
            "youngs_modulus_pa": case.youngs_modulus_pa,
            "poissons_ratio": case.poissons_ratio,
            "density_kg_m3": case.density_kg_m3,
            "stiffness_damping_s": case.stiffness_damping_s,
        },
        "gravity_m_s2": [0, 0, -9.81],
        "initial": {"translation_m": [0, 0, height_m], "rotation_rad": list(turn_rad)},
        "contact": {"normal": [0, 0, 1], **contact},
        "obstacles": [{"shape": shape, **contact} for shape in case.obstacles],
        "time": {"step_s": 0.0005, "duration_s": 2.0},
        "observe": {"cameras": [{**camera, "width_px": image[0], "height_px": image[1]}]},
    }
    if thrown:
        data["initial"]["velocity_m_s"] = list(case.thrown_m_s)
    scene = build_scene(load(SceneConfig, data, "scene"), folder)
    return assemble_scene(scene.config, felt_by(scene.body, case.felt_m), scene.obstacles)


def _body_file(case: Case) -> str:
    return f"{Path(str(case.shape)).stem}{'_lying' if case.spacing_m >= _LYING_M else ''}.npz"


def write_standing(sdf: Path, case: Case, folder: Path, size_m: float = 0.14) -> None:
    """An .sdf file whose y is up as body files: z up, standing on z = 0 over the origin, on its own cells, and on cells
    twice as large, which lie."""
    read = read_sdf(sdf, size_m=size_m)
    phi = np.moveaxis(read.phi_m, (0, 1, 2), (0, 2, 1))[:, ::-1, :]  # (x, y, z) goes to (x, -z, y)
    last_z = read.origin_m[2] + read.spacing_m * (read.shape[2] - 1)
    grid = SignedDistanceGrid(phi, np.array([read.origin_m[0], -last_z, read.origin_m[1]]), read.spacing_m)
    vertices = extract_surface(grid).positions_m(grid.node_positions_m())
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    shift = -np.array([0.5 * (low[0] + high[0]), 0.5 * (low[1] + high[1]), low[2]])
    own = SignedDistanceGrid(_even(grid.phi_m), grid.origin_m + shift, grid.spacing_m)
    write_body(folder / _body_file(replace(case, spacing_m=own.spacing_m)), own)
    lying = SignedDistanceGrid(own.phi_m[::2, ::2, ::2], own.origin_m, 2 * own.spacing_m)
    write_body(folder / _body_file(replace(case, spacing_m=_LYING_M)), lying, own)


def _even(phi_m: np.ndarray) -> np.ndarray:
    """With one more layer of the outermost nodes' values where the number of cells is odd."""
    return np.pad(phi_m, [(0, (n - 1) % 2) for n in phi_m.shape], mode="edge")


@cache
def hand() -> Mesh:
    """A hand that holds what lies below the origin: palm, three fingers and a forearm that goes off, up and back."""
    fingers = [
        Capsule((x, y, 0.01), (1.5 * x, 1.5 * y, -0.025), 0.009) for x, y in ((0.03, 0.0), (-0.02, 0.03), (0, -0.03))
    ]
    palm, arm = Sphere(0.035, (0.0, 0.0, 0.03)), Capsule((0.0, 0.0, 0.045), (-0.35, 0.1, 0.32), 0.028)
    grid = sample(Union([*fingers, palm, arm]), 0.006)
    surface = extract_surface(grid)
    return surface.positions_m(grid.node_positions_m()), surface.faces


class Film:
    """What the camera sees, frame by frame: stamps [s], organised points in its frame (h, w, 3) [m], the scene."""

    def __init__(
        self,
        case: Case,
        folder: Path,
        image: tuple[int, int] = (240, 180),
        rate_hz: float = 30.0,
        with_hand: bool = True,
        backend: str = "cpu",
    ) -> None:
        self.case, self.folder, self.image, self.rate_hz, self.with_hand = case, folder, image, rate_hz, with_hand
        self.backend, self.dropped_by, self.stamp_s = choose_backend("cpu"), choose_backend(backend), FIRST_STAMP_S
        self.rng = np.random.default_rng(0)
        self.table: Mesh | None = None

    def frames(
        self, still: int = 12, seconds: float = 0.7, sides: bool = False
    ) -> Iterator[tuple[float, np.ndarray, Scene]]:
        """All of it; still: frames in which it lies alone; seconds: after each release; sides: whether it is turned
        about by quarters, more or less, and laid on its side, before it is dropped."""
        yield from self._placed(still)
        for turn in sides_of(self.case, self.folder) if sides else []:
            self.stamp_s += 1.5  # turned, out of view
            yield from self._laid(turn, still - 2)
        for height, turn in self.case.drops:
            self.stamp_s += 1.5  # picked up again, out of view
            yield from self._dropped(height, turn, seconds)

    def _view(self, scene: Scene) -> SceneView:
        view = SceneView(scene)
        self.table = view.table if self.table is None else self.table
        view.table, view.rng = self.table, self.rng
        return view

    def _frame(self, view: SceneView, u: np.ndarray, hand_above_m: float | None) -> tuple[float, np.ndarray, Scene]:
        view.others = []
        if hand_above_m is not None:
            top = view.scene.body.surface_positions_m(u)
            top = top[int(np.argmax(top[:, 2]))]
            vertices, faces = hand()
            view.others = [(vertices + np.array([0.6 * top[0], 0.6 * top[1], top[2] + hand_above_m]), faces)]
        out = (self.stamp_s, view.look(self.stamp_s, u).points_m[0], view.scene)
        self.stamp_s += 1.0 / self.rate_hz
        return out

    def _placed(self, still: int) -> Iterator[tuple[float, np.ndarray, Scene]]:
        """Lowered onto the table, let go, left alone."""
        scene, u = self._lying()
        view = self._view(scene)
        for k in range(_PLACING_FRAMES if self.with_hand else 0):
            yield self._frame(view, u + _PLACED_FROM_M * (1 - k / _PLACING_FRAMES) * UP, 0.0)
        for k in range(_LEAVING_FRAMES if self.with_hand else 0):
            yield self._frame(view, u, _LEAVING_M_S * k / self.rate_hz)
        for _ in range(still):
            yield self._frame(view, u, None)

    def _laid(self, turn_rad: tuple[float, float, float], still: int) -> Iterator[tuple[float, np.ndarray, Scene]]:
        """Turned otherwise on the table, let go, left alone."""
        scene, u = self._lying(turn_rad)
        view = self._view(scene)
        for k in range(_LEAVING_FRAMES if self.with_hand else 0):
            yield self._frame(view, u, _LEAVING_M_S * k / self.rate_hz)
        for _ in range(still):
            yield self._frame(view, u, None)

    def _lying(self, turn_rad: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> tuple[Scene, np.ndarray]:
        """The scene of the object on the table, and its displacement at rest (N, 3) [m]."""
        for contact in (_HARD, _SOFTER):
            scene = self._laid_down(turn_rad, contact)
            try:
                # A few per cent of the weight out of balance are hundredths of a millimetre of sag.
                rest, _ = solve_static(Simulation(scene.model, scene.parameters, self.backend), tolerance=0.03)
                return scene, np.asarray(rest.u)
            except SolverError:  # the bunny's feet: its balance is not found within a hundredth of a millimetre
                continue
        return scene, come_to_rest(scene)

    def _laid_down(self, turn_rad: tuple[float, float, float], contact: Mapping[str, float]) -> Scene:
        """The scene of the object as it touches the table."""
        case = replace(self.case, spacing_m=max(self.case.spacing_m, _LYING_M))
        scene = scene_of(case, 0.0, turn_rad, self.image, self.folder, contact)
        if not any(turn_rad):
            return scene
        lowest = float(scene.body.surface_positions_m(_posed(scene))[:, 2].min())
        return scene_of(case, -lowest, turn_rad, self.image, self.folder, contact)

    def _dropped(
        self, height_m: float, turn_rad: tuple[float, float, float], seconds: float
    ) -> Iterator[tuple[float, np.ndarray, Scene]]:
        """Held, let go, and left to bounce; the hand goes up while it falls."""
        scene = scene_of(self.case, height_m, turn_rad, self.image, self.folder, thrown=True)
        view, simulation = self._view(scene), Simulation(scene.model, scene.parameters, self.dropped_by)
        first = np.asarray(self.dropped_by.to_host(simulation.initial_state().u))
        for _ in range(_HOLDING_FRAMES if self.with_hand else 0):
            yield self._frame(view, first, 0.0)
        times = np.arange(0.0, seconds, 1.0 / self.rate_hz)
        top = float(scene.body.surface_positions_m(first)[:, 2].max())
        for at, moved in zip(times, displacements(simulation, times)):
            u = np.asarray(self.dropped_by.to_host(moved))
            above = top + _LEAVING_M_S * float(at) - float(scene.body.surface_positions_m(u)[:, 2].max())
            yield self._frame(view, u, above if self.with_hand and at < 0.4 else None)


def come_to_rest(scene: Scene) -> np.ndarray:
    """Displacements (N, 3) [m] of a body that tips over as far as it does when it is let go, in honey."""
    slow = scene.parameters.replace(mass_damping_per_s=20.0, stiffness_damping_s=0.01)
    simulation = Simulation(scene.model.with_step(theta_scheme(0.002)), slow, choose_backend("cpu"))
    state = simulation.initial_state()
    before = state.u
    for k in range(1, _MOST_STEPS + 1):
        state, _ = simulation.step(state)
        if k % 50 == 0:
            moved_m, before = float(np.abs(state.u - before).max()), state.u
            if moved_m < _AT_REST_M:
                return np.asarray(state.u)
    raise SolverError(f"the body does not come to rest: it still moves by {1e3 * moved_m:.1f} mm in 0.1 s")


def _posed(scene: Scene) -> np.ndarray:
    """Displacements (N, 3) [m] of the undeformed body in its first pose."""
    return np.asarray(Simulation(scene.model, scene.parameters, choose_backend("cpu")).posed_state().u)


def sides_of(case: Case, folder: Path = Path()) -> list[tuple[float, float, float]]:
    """How an object is turned [rad] when it is shown from all sides: by about a quarter three times, and laid on its
    side, where it lies by itself, twice, its underside somewhat towards the camera."""
    scene = scene_of(replace(case, spacing_m=_LYING_M), 0.0, (0.0, 0.0, 0.0), (16, 12), folder)
    mesh = trimesh.Trimesh(scene.body.surface_positions_m(), scene.body.surface.faces)
    rng, eye = np.random.default_rng(3), scene_cameras(scene.config)[0].position_m
    turns = [Rotation.from_rotvec([0, 0, q * np.pi / 2 + rng.uniform(-0.25, 0.25)]) for q in (1, 2, 3)]
    poses = [pose[:3, :3] for pose in trimesh.poses.compute_stable_poses(mesh, threshold=0.01)[0]]
    for lying in [pose for pose in poses if abs(pose[2, 2]) < 0.75][:1]:  # the likeliest on a side
        base = lying @ (0, 0, -1)
        for more in (0.9, -0.8):
            yaw = np.arctan2(eye[1], eye[0]) - np.arctan2(base[1], base[0]) + more
            turns.append(Rotation.from_rotvec([0, 0, yaw]) * Rotation.from_matrix(lying))
    return [(float(x), float(y), float(z)) for x, y, z in (turn.as_rotvec() for turn in turns)]


def write_recording(
    case: Case,
    out: Path,
    depth: bool = False,
    storage: str = "mcap",
    data: Path = Path(),
    image: tuple[int, int] = (240, 180),
    with_hand: bool = True,
    backend: str = "cpu",
    **options: Any,
) -> Scene:
    """Write a film as a bag without transforms: a cloud topic, or depth images with their CameraInfo.

    Args:
        data: folder of the .sdf files that shapes are made from. backend: what simulates the drops.
        options: what `Film.frames` takes.
    """
    film = Film(case, out.parent, image, with_hand=with_hand, backend=backend)
    if isinstance(case.shape, str):
        write_standing(data / case.shape, case, out.parent)
    with BagWriter(out, storage) as bag:
        for stamp, points, scene in film.frames(**options):
            stamp_ns = round(1e9 * stamp)
            if depth:
                bag.depth_image("/camera/depth/image", stamp_ns, "camera_optical_frame", points[..., 2])
                camera = SceneView(scene).cameras[0]
                bag.camera_info("/camera/depth/camera_info", stamp_ns, "camera_optical_frame", camera)
            else:
                bag.cloud("/camera/points", stamp_ns, "camera_optical_frame", points)
    return scene


def look_at_rest(case: Case, frames: int = 6, image: tuple[int, int] = (240, 180)) -> tuple[Scene, list[np.ndarray]]:
    """An undeformed body on the table, and what the camera sees of it: organised points (h, w, 3) [m] in its frame."""
    scene = scene_of(case, 0.0, (0.0, 0.0, 0.0), image)
    view, still = SceneView(scene), np.zeros_like(scene.body.node_position_m)
    return scene, [view.look(k / 30.0, still).points_m[0] for k in range(frames)]
