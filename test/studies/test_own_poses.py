"""Where each obstacle stands by itself is estimated: two of them, guessed wrong by different amounts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soft_estimator.backends.choose import choose_backend
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.fixed_numbers import sources_of, window_sources
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.parameters import REGISTRY
from soft_estimator.physics.fused import can_fuse
from soft_estimator.physics.parameters import Parameters
from soft_estimator.pictures.wording import plain_name
from soft_estimator.scene.finer import on_finer_grid
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.scene.variables import guess_of, variables_of
from soft_estimator.schema import ConfigError, load, to_plain
from soft_estimator.studies.estimate import estimate_scene
from soft_estimator.studies.estimate_setup import observe_truth
from soft_estimator.studies.gradient_check import check_gradient, exact_config

SHELF = {"shape": {"box": {"size_m": [0.2, 0.02, 0.2], "center_m": [0.02, -0.05, 0.0]}}, "stiffness_pa_per_m": 3e6}
WALL = {"shape": {"box": {"size_m": [0.02, 0.2, 0.2], "center_m": [0.075, 0.0, 0.0]}}, "stiffness_pa_per_m": 3e6}
ASKED = ["youngs_modulus_pa", "obstacle_0_shift_m[1]", "obstacle_1_shift_m[0]", "obstacle_1_turn_rad[2]"]
GUESS = {
    "youngs_modulus_pa": 12000,
    "obstacles": [
        {"obstacle": 0, "shift_m": [0.0, 0.002, 0.0]},
        {"obstacle": 1, "shift_m": [-0.0015, 0.0, 0.0], "turn_rad": [0.0, 0.0, 0.05]},
    ],
}
# How the body is thrown, weighed and seen is known: else the shelf is known no better than that.
EXACT = dict.fromkeys((
    "translation_m", "rotation_rad", "velocity_m_s", "angular_velocity_rad_s", "gravity_m_s2", "camera_position_m",
    "camera_rotation_rad", "time_offset_s", "shape_offset_m", "shape_scale", "stiffness_damping_s", "poissons_ratio",
    "density_kg_m3",
), 0)  # fmt: skip


def scene_of(**changes: Any) -> Scene:
    data = {
        "name": "corner",
        "body": {"shape": {"box": {"size_m": [0.06, 0.04, 0.05]}}, "spacing_m": 0.01},
        "material": {"youngs_modulus_pa": 8000, "density_kg_m3": 400, "stiffness_damping_s": 0.003},
        "initial": {"rotation_rad": [0.1, 0.0, 0.1], "velocity_m_s": [0.7, -0.5, 0]},
        "obstacles": [SHELF, WALL],
        "time": {"step_s": 0.00375, "duration_s": 0.15},
        "observe": {
            "cameras": [{"eye_m": [-0.1, 0.15, 0.35], "target_m": [0.03, -0.02, 0], "horizontal_fov_rad": 0.4}],
            "every_steps": 4,
            "points_per_frame": 400,
        },
        "estimate": {"parameters": ASKED, "guess": GUESS, "known_to": EXACT | {"obstacle_shift_m": 0}},
        **changes,
    }
    return build_scene(load(SceneConfig, data, "scene"), Path())


def with_estimate(**more: Any) -> Scene:
    return scene_of(estimate={"parameters": ["youngs_modulus_pa"], **more})


@pytest.mark.slow
def test_a_shelf_and_a_wall_are_found_each_by_itself() -> None:
    """The truth is on half the spacing in half the step: all within their intervals, which are narrower than what the
    guesses were off."""
    scene, backend = scene_of(), choose_backend("cpu")
    half = replace(scene.config, time=replace(scene.config.time, step_s=0.001875))
    half = replace(half, observe=replace(half.observe, every_steps=8))
    fine = on_finer_grid(replace(scene, config=half))
    frames = observe_truth(fine, carry_field(fine.body), backend)
    found = {e.label: e for e in estimate_scene(scene, backend, frames=frames).posterior.estimates}
    stiff = found["youngs_modulus_pa[0]"]
    assert stiff.low < 8000 < stiff.high and stiff.std < 800
    off = {"obstacle_0_shift_m[1]": 0.002, "obstacle_1_shift_m[0]": 0.0015, "obstacle_1_turn_rad[2]": 0.05}
    for label, by in off.items():
        made = found[label]
        assert made.observable, label
        assert made.low < 0.0 < made.high and made.std < 0.2 * by, (label, made.low, made.high)


@pytest.mark.slow
def test_check_gradient_shows_them() -> None:
    """Of its own it goes on until the body has touched both."""
    short = {"step_s": 0.005, "duration_s": 0.1}
    scene = scene_of(time=short, observe=to_plain(scene_of().config.observe) | {"every_steps": 3})
    rows = check_gradient(build_scene(exact_config(scene.config), Path()), choose_backend("cpu"), points=100)
    assert [row.label for row in rows] == ["youngs_modulus_pa", *ASKED[1:]]
    assert all(row.shown and row.error < 1e-6 for row in rows), rows


def test_only_what_is_asked_for_is_a_parameter() -> None:
    """Estimated, guessed, or not known exactly; in whole steps on a device, too."""
    assert [o.place.posed for o in scene_of().obstacles] == [True, True]
    plain = with_estimate()
    assert [o.place.posed for o in plain.obstacles] == [False, False]
    assert [name for name in plain.parameters if name.startswith("obstacle")] == ["obstacle_shift_m"]
    for asked in (
        {"guess": {"obstacles": [{"obstacle": 1, "turn_rad": [0.0, 0.1, 0.0]}]}},
        {"known_to": {"obstacles": [{"obstacle": 1, "turn_rad": 0.02}]}},
    ):
        scene = with_estimate(**asked)
        assert [o.place.posed for o in scene.obstacles] == [False, True]
        assert can_fuse(scene.model, choose_backend("reference"))
        assert set(scene.model.complete(scene.parameters)) - set(plain.parameters) == {"obstacle_1_turn_rad"}
    assert scene_of(estimate=None).parameters == plain.parameters


def test_guesses_priors_and_what_is_not_known_are_of_one_obstacle() -> None:
    more = {"prior_std": {"obstacles": [{"obstacle": 0, "shift_m": 0.03}]}}
    known = {"known_to": {"obstacles": [{"obstacle": 0, "shift_m": 0.002}, {"obstacle": 1, "turn_rad": 0.02}]}}
    scene = scene_of(estimate={"parameters": ASKED, "guess": GUESS, **more, **known})
    guess = guess_of(scene)
    np.testing.assert_array_equal(guess.obstacle_0_shift_m, [0.0, 0.002, 0.0])
    np.testing.assert_array_equal(guess.obstacle_1_turn_rad, [0.0, 0.0, 0.05])
    variables = variables_of(scene, scene.config.estimate)
    assert {v.label: v.prior_std for v in variables.variables}["obstacle_0_shift_m[1]"] == 0.03
    for sources in (sources_of, window_sources):
        found = {s.name: s for s in sources(scene.model, variables, guess, scene.config.estimate.known_to)}
        assert {"obstacle_0_shift_m", "obstacle_1_turn_rad", "obstacle_shift_m"} <= set(found)
        assert "obstacle_1_shift_m" not in found  # exact but for the shift of all
        # Of each the components that are not estimated, in units of its deviation.
        shift = [d.obstacle_0_shift_m for d in found["obstacle_0_shift_m"].directions]
        np.testing.assert_allclose(shift, [[0.002, 0.0, 0.0], [0.0, 0.0, 0.002]])
        turn = [d.obstacle_1_turn_rad for d in found["obstacle_1_turn_rad"].directions]
        np.testing.assert_allclose(turn, [[0.02, 0.0, 0.0], [0.0, 0.02, 0.0]])
    again = load(SceneConfig, to_plain(scene.config), "scene")
    assert again == scene.config


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"estimate": {"parameters": ["obstacle_2_shift_m"]}}, "does not exist; the last obstacle is 1"),
        ({"estimate": {"parameters": ["obstacle_01_shift_m"]}}, "cannot be estimated"),
        ({"estimate": {"parameters": ["obstacle_#_shift_m"]}}, "cannot be estimated"),
        ({"estimate": {"parameters": ["obstacle_1_shift_m[3]"]}}, "the last one is obstacle_1_shift_m\\[2\\]"),
        (
            {"estimate": {"parameters": ASKED, "known_to": {"obstacles": [{"obstacle": 2, "shift_m": 1e-3}]}}},
            "known_to.obstacles\\[0\\].obstacle = 2 is none of the 2 obstacles",
        ),
        (
            {"estimate": {"parameters": ASKED, "guess": {"obstacles": [{"obstacle": 1}, {"obstacle": 1}]}}},
            "guess.obstacles\\[1\\].obstacle = 1 is given twice",
        ),
        ({"estimate": {"parameters": [*ASKED, "obstacle_turn_rad"]}}, "both turn it"),
        (
            {"obstacles": [SHELF, WALL | {"path": [{"time_s": 0.0}, {"time_s": 0.1, "translation_m": [0, 0.01, 0]}]}]},
            "'obstacle_1_turn_rad' is of an obstacle that is led",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as told:
        scene = scene_of(**changes)
        variables_of(scene, scene.config.estimate)
    assert "\n" not in str(told.value)


def test_the_registry_knows_them_by_any_number() -> None:
    assert REGISTRY["obstacle_12_shift_m"].title == "Shift of obstacle 12"
    assert "obstacle_12_shift_m" in REGISTRY and "obstacle_12_shift_m" not in REGISTRY.names()
    assert plain_name("obstacle_3_turn_rad[1]") == "Turn of obstacle 3, y"
    with pytest.raises(TypeError, match="there is no parameter 'obstacle_x_shift_m'"):
        Parameters(1e4, 0.3, 1000.0, obstacle_x_shift_m=np.zeros(3))
