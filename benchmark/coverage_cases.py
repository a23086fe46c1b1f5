"""Scenes drawn at random for the coverage benchmark: what is true, and what an estimate is told.

Every draw follows from its seed: material, shape, camera, noise and start; and, for the second table, what is wrong in
the scene: density, plane, Poisson's ratio, size, grid, steps, missing frames. Clamps are told as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from soft_estimator.backends.choose import choose_backend
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.recordings.observed_frames import FrameSet
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load
from soft_estimator.studies.estimate_setup import observe_truth

SHAPES = ("sphere", "box", "torus", "capsule", "dumbbell")
SIZE_M, SPACING_M, STEP_S = 0.1, 0.0125, 0.004
# Nothing is wrong in the first table, so nothing is to be allowed for.
EXACT = (
    "youngs_modulus_pa", "poissons_ratio", "density_kg_m3", "mass_damping_per_s", "stiffness_damping_s",
    "gravity_m_s2", "plane_normal", "plane_offset_m", "translation_m", "rotation_rad", "velocity_m_s",
    "angular_velocity_rad_s", "contact_stiffness_pa_per_m", "contact_sharpness_per_m", "shape_offset_m", "shape_scale",
    "camera_position_m", "camera_rotation_rad", "time_offset_s", "time_rate", "stamp_jitter_s", "model",
)  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """truth: what happens. told: the scene that an estimate gets. dropped: share of the frames that are missing."""

    truth: dict[str, Any]
    told: dict[str, Any]
    dropped: float
    words: str


def shape_of(kind: str, size: float) -> dict[str, Any]:
    """A shape some 10 cm across with its middle at the origin."""
    r = 0.5 * SIZE_M * size
    shapes: dict[str, dict[str, Any]] = {
        "sphere": {"sphere": {"radius_m": r}},
        "box": {"box": {"size_m": [1.6 * r, 1.4 * r, 1.6 * r]}},
        "torus": {"torus": {"major_radius_m": 0.65 * r, "minor_radius_m": 0.35 * r, "axis": "z"}},
        "capsule": {"capsule": {"radius_m": 0.5 * r, "start_m": [-0.6 * r, 0, 0], "end_m": [0.6 * r, 0, 0]}},
        "dumbbell": {
            "union": {
                "of": [
                    {"sphere": {"radius_m": 0.6 * r, "center_m": [-0.45 * r, 0, 0]}},
                    {"sphere": {"radius_m": 0.5 * r, "center_m": [0.5 * r, 0, 0]}},
                ]
            }
        },
    }
    return shapes[kind]


CLAMPED = 0.6  # part of the half height at which the clamp of a held body begins
LOWEST = {"sphere": 1.0, "box": 0.7, "torus": 1.0, "capsule": 0.5, "dumbbell": 0.6}  # half heights, of the radius


def draw(seed: int, wrong: bool) -> Drawn:
    """The scene of a seed, with model errors or without."""
    rng = np.random.default_rng(seed)
    kind = SHAPES[rng.integers(len(SHAPES))]
    youngs = float(np.exp(rng.uniform(np.log(2e3), np.log(200e3))))
    nu, damping = float(rng.uniform(0.2, 0.48)), float(np.exp(rng.uniform(np.log(3e-4), np.log(3e-3))))
    falls = bool(rng.integers(2))
    azimuth, distance = rng.uniform(0, 2 * np.pi), rng.uniform(0.35, 0.5)
    eye = [distance * np.cos(azimuth), 0.15, distance * np.sin(azimuth)]
    isotropic = rng.uniform() < 0.3
    noise = {"kind": "isotropic", "isotropic_std_m": 0.0007} if isotropic else {}
    common: dict[str, Any] = {"name": f"{kind}_{seed}", "time": {"step_s": STEP_S, "duration_s": 0.16}}
    camera = {"eye_m": eye, "target_m": [0, -0.01, 0], "width_px": 160, "height_px": 120, "horizontal_fov_rad": 0.5}
    common["observe"] = {
        "cameras": [camera], "frame_rate_hz": 80, "points_per_frame": 300, "noise": noise, "seed": seed + 1
    }  # fmt: skip
    bottom = -0.5 * SIZE_M * LOWEST[kind]
    estimated = ["youngs_modulus_pa", "stiffness_damping_s"]
    if falls:
        common["initial"] = {"velocity_m_s": [0, -float(rng.uniform(0.5, 1.0)), 0]}
        common["contact"] = {"stiffness_pa_per_m": 2e7, "sharpness_per_m": 2000, "offset_m": 0.01 - bottom}
        estimated.append("plane_offset_m")
    else:
        common["fixed"] = [{"low_m": [-0.1, -CLAMPED * bottom, -0.1], "high_m": [0.1, 0.1, 0.1]}]
    material = {"youngs_modulus_pa": youngs, "poissons_ratio": nu, "stiffness_damping_s": damping}
    truth = {
        **common,
        "body": {"shape": shape_of(kind, 1.0), "spacing_m": SPACING_M},
        "material": material,
    }
    estimate: dict[str, Any] = {
        "parameters": estimated,
        "guess": {
            "youngs_modulus_pa": youngs * float(np.exp(rng.uniform(-0.7, 0.7))),
            "stiffness_damping_s": damping * float(np.exp(rng.uniform(-0.5, 0.5))),
        },
    }
    words = f"{kind}, {'falls' if falls else 'swings'}, {'isotropic' if isotropic else 'depth'} noise"
    if not wrong:
        estimate["known_to"] = dict.fromkeys(EXACT, 0.0)
        estimate["grid_error_nodes"] = 0  # the truth is made on this very grid
        return Drawn(truth, {**truth, "estimate": estimate}, 0.0, words)
    told = {**truth, "estimate": estimate}
    told["material"] = {
        **material,
        "density_kg_m3": 1000.0 * float(1 + 0.03 * rng.normal()),
        "poissons_ratio": float(np.clip(nu + rng.uniform(-0.1, 0.1), 0.15, 0.49)),
    }
    if falls:
        told["contact"] = {**common["contact"], "offset_m": common["contact"]["offset_m"] + 0.001 * float(rng.normal())}
    size = float(1 + 0.01 * rng.normal())
    truth = {
        **truth,
        "body": {"shape": shape_of(kind, size), "spacing_m": 0.8 * SPACING_M},
        "time": {**common["time"], "step_s": 0.5 * STEP_S},
    }
    if not falls:
        told["fixed"] = [{**common["fixed"][0], "low_m": [-0.1, clamp_end_m(truth), -0.1]}]
    return Drawn(truth, told, float(rng.uniform(0, 0.4)), words)


def clamp_end_m(truth: dict[str, Any]) -> float:
    """Height of the lowest nodes that the truth holds on its own grid: there its clamp really ends."""
    scene = scene_of(truth)
    return min(float(scene.body.node_position_m[nodes, 1].min()) for nodes, _ in scene.model.dirichlet.held)


def scene_of(data: dict[str, Any]) -> Scene:
    return build_scene(load(SceneConfig, data, "scene"), Path())


def frames_of(drawn: Drawn, seed: int) -> FrameSet:
    """What the camera sees of the truth, some frames missing."""
    scene = scene_of({**drawn.truth, "estimate": None})
    seen = observe_truth(scene, carry_field(scene.body), choose_backend("cpu"))
    rng = np.random.default_rng(seed + 2)
    kept = [k for k in range(len(seen.frames)) if rng.uniform() >= drawn.dropped] or [0]
    return replace(seen, frames=tuple(seen.frames[k] for k in kept), names=tuple(seen.names[k] for k in kept))
