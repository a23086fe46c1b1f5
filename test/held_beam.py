"""A clamped beam that sags, and what a camera sees of it where its clamp is not where the scene has it."""

from __future__ import annotations

from functools import cache
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

TRUTH_PA = 150e3
SHIFT_M = 0.003 * np.array([0.67, 0.5, -0.55])
TURN_RAD = np.radians(1.0) * np.array([0.49, -0.39, 0.78])
EXACT = {"translation_m": 0, "rotation_rad": 0, "camera_position_m": 0, "camera_rotation_rad": 0}
# What the grid does to an answer has tests of its own.
ESTIMATE = {"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": "300 kPa"}, "grid_error_nodes": 0}


def beam(spacing_mm: float, **changes: Any) -> Scene:
    """A clamped beam of jelly that has sagged by some 8 mm and hangs still; the clamp ends on a plane of both grids."""
    data = {
        "name": "sagging",
        "body": {"shape": {"box": {"size_m": [0.08, 0.02, 0.02]}}, "spacing_m": 1e-3 * spacing_mm},
        "material": {"youngs_modulus_pa": TRUTH_PA, "stiffness_damping_s": 0.002},
        "fixed": [{"low_m": [-0.05, -0.02, -0.02], "high_m": [-0.0333, 0.02, 0.02]}],
        "start": {"equilibrium": {}},
        "time": {"step_s": 0.02, "duration_s": 0.06},
        "observe": {
            "cameras": [{"eye_m": [0.1, 0.2, 0.35], "target_m": [0, -0.01, 0], "horizontal_fov_rad": 0.4}],
            "every_steps": 1,
            "points_per_frame": 400,
        },
        "estimate": ESTIMATE,
        **changes,
    }
    return build_scene(load(SceneConfig, data, "scene"), Path())


@cache
def seen(times: float = 1.0) -> FrameSet:
    """What happens, with cells of half the size: held so many times 3 mm away and turned by a degree."""
    where = {"translation_m": (times * SHIFT_M).tolist(), "rotation_rad": TURN_RAD.tolist()}
    scene = beam(20 / 6, initial=where)
    return observe_truth(scene, carry_field(scene.body), choose_backend("cpu"))
