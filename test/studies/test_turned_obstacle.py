"""How an obstacle stands is estimated as the plane is: a block lands on a shelf whose place and tilt are guessed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soft_estimator.backends.choose import choose_backend
from soft_estimator.config import SceneConfig
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.scene.variables import check_names, guess_of
from soft_estimator.schema import ConfigError, load
from soft_estimator.studies.estimate import estimate_scene
from soft_estimator.studies.gradient_check import check_gradient, exact_config

SHELF = {"shape": {"box": {"size_m": [0.2, 0.02, 0.2], "center_m": [0.02, -0.05, 0.0]}}, "stiffness_pa_per_m": 3e6}
ASKED = ["youngs_modulus_pa", "obstacle_shift_m[1]", "obstacle_turn_rad[0]", "obstacle_turn_rad[2]"]

EXACT = (
    "translation_m", "rotation_rad", "velocity_m_s", "angular_velocity_rad_s", "gravity_m_s2", "camera_position_m",
    "camera_rotation_rad", "time_offset_s", "shape_offset_m", "shape_scale", "stiffness_damping_s", "obstacle_shift_m",
    "poissons_ratio", "density_kg_m3",
)  # fmt: skip


def scene_of(**changes: Any) -> Scene:
    data = {
        "name": "shelf",
        "body": {"shape": {"box": {"size_m": [0.06, 0.04, 0.05]}}, "spacing_m": 0.01},
        "material": {"youngs_modulus_pa": 8000, "density_kg_m3": 400, "stiffness_damping_s": 0.003},
        "initial": {"translation_m": [0, 0.0, 0], "rotation_rad": [0.1, 0.0, 0.1], "velocity_m_s": [0, -0.5, 0]},
        "obstacles": [SHELF],
        "time": {"step_s": 0.005, "duration_s": 0.15},
        "observe": {
            "cameras": [{"eye_m": [0.15, 0.1, 0.35], "target_m": [0, -0.02, 0], "horizontal_fov_rad": 0.4}],
            "every_steps": 3,
            "points_per_frame": 400,
        },
        "estimate": {
            "parameters": ASKED,
            "guess": {
                "youngs_modulus_pa": 12000,
                "obstacle_shift_m": [0.0, 0.002, 0.0],
                "obstacle_turn_rad": [0.06, 0.0, -0.05],
            },
            # How the body is thrown is known: else the shelf is known no better than that.
            "known_to": dict.fromkeys(EXACT, 0),
        },
        **changes,
    }
    return build_scene(load(SceneConfig, data, "scene"), Path())


def test_place_and_tilt_of_a_shelf_are_found() -> None:
    """Both within their intervals, which are narrower than a fifth of what the guesses were off."""
    found = {e.label: e for e in estimate_scene(scene_of()).posterior.estimates}
    stiff = found["youngs_modulus_pa[0]"]
    assert abs(stiff.value - 8000) < 3 * stiff.std and stiff.std < 800
    for label, off in (("obstacle_shift_m[1]", 0.002), ("obstacle_turn_rad[0]", 0.06), ("obstacle_turn_rad[2]", 0.05)):
        made = found[label]
        assert made.observable, label
        assert abs(made.value) < 3 * made.std and made.std < 0.2 * off, (label, made.value, made.std)


def test_its_gradient_is_right() -> None:
    rows = check_gradient(build_scene(exact_config(scene_of().config), Path()), choose_backend("cpu"), points=100)
    assert {row.label for row in rows} >= set(ASKED[1:])
    assert all(row.shown and row.error < 1e-6 for row in rows if row.label in ASKED), rows


def test_what_rests_alone_may_be_turned() -> None:
    led = {**SHELF, "path": [{"time_s": 0.0}, {"time_s": 0.1, "translation_m": [0, 0.01, 0]}]}
    with pytest.raises(ConfigError, match="needs an obstacle that rests"):
        scene_of(obstacles=[led])
    both = scene_of(obstacles=[led, SHELF])
    assert [o.place.pivot_m is None for o in both.obstacles] == [True, False]
    np.testing.assert_allclose(both.obstacles[1].place.pivot_m, [0.02, -0.05, 0.0])
    with pytest.raises(ConfigError, match="needs obstacles"):
        check_names(replace(scene_of().config, obstacles=()), ASKED)


def test_a_guess_alone_turns_it_too() -> None:
    guess = {"youngs_modulus_pa": 12000, "obstacle_turn_rad": [0.06, 0.0, 0.0]}
    scene = scene_of(estimate={"parameters": ["youngs_modulus_pa"], "guess": guess})
    assert scene.obstacles[0].place.pivot_m is not None
    np.testing.assert_array_equal(guess_of(scene).obstacle_turn_rad, [0.06, 0.0, 0.0])


def test_a_force_on_what_is_turned_is_refused() -> None:
    observe = {
        "cameras": [{"eye_m": [0.15, 0.1, 0.35], "target_m": [0, 0, 0]}],
        "wrenches": [{"obstacle": 0, "force_std_n": 0.01}],
    }
    with pytest.raises(ConfigError, match="rests, and the force on it is not known"):
        scene_of(observe=observe)
