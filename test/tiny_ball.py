"""The scene of these tests: a small ball that falls onto a table."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import yaml

from soft_estimator.config import SceneConfig
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load


def ball(**changes: Any) -> dict[str, Any]:
    """A ball of 10 cm, some 120 cells, 2.5 cm above a table and falling at 0.8 m/s: it lands after 30 ms."""
    return {
        "name": "tiny_ball",
        "body": {"shape": {"sphere": {"radius_m": 0.05, "center_m": [0, 0.075, 0]}}, "spacing_m": "20 mm"},
        "material": {"youngs_modulus_pa": "30 kPa", "poissons_ratio": 0.4, "stiffness_damping_s": "1 ms"},
        "initial": {"velocity_m_s": [0, -0.8, 0]},
        "contact": {"stiffness_pa_per_m": "20 kPa/mm", "sharpness_per_m": "2 1/mm"},
        "time": {"step_s": "5 ms", "duration_s": 0.12},
        "observe": {
            "cameras": [
                {"eye_m": [0.45, 0.25, 0], "target_m": [0, 0.05, 0], "width_px": 160, "height_px": 120}
                | {"horizontal_fov_rad": 0.7}
            ],
            "every_steps": 3,
            "duration_s": 0.12,
            "noise": {"kind": "none"},
        },
        "estimate": {
            "parameters": ["youngs_modulus_pa", "plane_offset_m"],
            "guess": {"youngs_modulus_pa": "60 kPa"},
        },
        **changes,
    }


def scene_of(**changes: Any) -> Scene:
    return build_scene(load(SceneConfig, ball(**changes), "scene"), Path())


def write_scene(folder: Path, **changes: Any) -> Path:
    path = folder / "scene.yaml"
    path.write_text(yaml.safe_dump(ball(**changes)))
    return path


class Dies:
    """A listener that ends its process as the kernel would, out of memory."""

    def begin(self, scene: Scene) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
