"""Recordings as a user would make them: an object that lies still, then is dropped a few times, before one camera
without a tf.

The truth is simulated on a finer grid and with other steps than the estimate's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from soft_estimator.backends import choose_backend
from soft_estimator.camera.rendering import SceneView
from soft_estimator.config import SceneConfig
from soft_estimator.physics.statics import solve_static
from soft_estimator.physics.step import Simulation
from soft_estimator.recordings.bag_writing import BagWriter
from soft_estimator.scene.motion import displacements
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load

FIRST_STAMP_S = 1.0


@dataclass(frozen=True)
class Case:
    """One object: its shape resting on z = 0 [m], E [Pa], ν, ρ [kg/m³], and the spacing of the truth's grid [m]."""

    name: str
    shape: dict[str, Any]
    youngs_modulus_pa: float
    poissons_ratio: float = 0.3
    density_kg_m3: float = 300.0
    stiffness_damping_s: float = 0.002
    spacing_m: float = 0.007
    drops: tuple[tuple[float, tuple[float, float, float]], ...] = ((0.08, (0.1, 0.0, 0.3)), (0.06, (0.0, 0.15, -0.4)))


CASES = {
    case.name: case
    for case in (
        Case("brick", {"box": {"size_m": [0.063, 0.112, 0.077], "center_m": [0, 0, 0.0385]}}, 12e3),
        Case("box", {"box": {"size_m": [0.077, 0.077, 0.077], "center_m": [0, 0, 0.0385]}}, 40e3, 0.4, 700.0),
        Case("ball", {"sphere": {"radius_m": 0.045, "center_m": [0, 0, 0.045]}}, 20e3, 0.35, 500.0),
        Case(
            "capsule",
            {"capsule": {"radius_m": 0.035, "start_m": [-0.04, 0, 0.035], "end_m": [0.04, 0, 0.035]}},
            80e3, 0.45, 1000.0,
        ),
        Case("soft_brick", {"box": {"size_m": [0.105, 0.07, 0.049], "center_m": [0, 0, 0.0245]}}, 3e3, 0.2, 100.0),
    )
}  # fmt: skip


def scene_of(case: Case, height_m: float, turn_rad: tuple[float, float, float], image: tuple[int, int]) -> Scene:
    """The object above the table, ready to be dropped."""
    camera = {"eye_m": [0.42, 0.16, 0.34], "target_m": [0, 0, 0.06], "up": [0, 0, 1], "horizontal_fov_rad": 0.8}
    data = {
        "name": case.name,
        "body": {"shape": case.shape, "spacing_m": case.spacing_m},
        "material": {
            "youngs_modulus_pa": case.youngs_modulus_pa,
            "poissons_ratio": case.poissons_ratio,
            "density_kg_m3": case.density_kg_m3,
            "stiffness_damping_s": case.stiffness_damping_s,
        },
        "gravity_m_s2": [0, 0, -9.81],
        "initial": {"translation_m": [0, 0, height_m], "rotation_rad": list(turn_rad)},
        "contact": {"normal": [0, 0, 1], "stiffness_pa_per_m": 5e6, "sharpness_per_m": 2000},
        "time": {"step_s": 0.0015, "duration_s": 2.0},
        "observe": {"cameras": [{**camera, "width_px": image[0], "height_px": image[1]}]},
    }
    return build_scene(load(SceneConfig, data, "scene"), Path())


def film(
    case: Case, image: tuple[int, int] = (240, 180), rate_hz: float = 30.0, still: int = 12, seconds: float = 0.7
) -> Iterator[tuple[float, np.ndarray, Scene]]:
    """Stamps [s], organised points in the camera's frame (h, w, 3) [m], and the scene they are of."""
    backend = choose_backend("cpu")
    scene = scene_of(case, 0.0, (0.0, 0.0, 0.0), image)
    # A few per cent of the weight out of balance are hundredths of a millimetre of sag.
    rest, _ = solve_static(Simulation(scene.model, scene.parameters, backend), tolerance=0.03)
    view, stamp = SceneView(scene), FIRST_STAMP_S
    table = view.table
    for _ in range(still):
        yield stamp, view.look(stamp, np.asarray(rest.u)).points_m[0], scene
        stamp += 1.0 / rate_hz
    for number, (height, turn) in enumerate(case.drops, 1):
        stamp += 1.5  # picked up again, out of view
        scene = scene_of(case, height, turn, image)
        view = SceneView(scene)
        view.table, view.rng = table, np.random.default_rng(number)
        times = np.arange(0.0, seconds, 1.0 / rate_hz)
        for at, u in zip(times, displacements(Simulation(scene.model, scene.parameters, backend), times)):
            yield stamp + at, view.look(at, u).points_m[0], scene
        stamp += times[-1]


def write_recording(case: Case, out: Path, depth: bool = False, storage: str = "mcap", **options: Any) -> Scene:
    """Write a film as a bag without transforms: a cloud topic, or depth images with their CameraInfo."""
    with BagWriter(out, storage) as bag:
        for stamp, points, scene in film(case, **options):
            stamp_ns = round(1e9 * stamp)
            if depth:
                bag.depth_image("/camera/depth/image", stamp_ns, "camera_optical_frame", points[..., 2])
                camera = SceneView(scene).cameras[0]
                bag.camera_info("/camera/depth/camera_info", stamp_ns, "camera_optical_frame", camera)
            else:
                bag.cloud("/camera/points", stamp_ns, "camera_optical_frame", points)
    return scene
