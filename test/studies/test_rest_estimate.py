"""Stiffness from a body that hangs still: how far it sags tells E/ρ, from one frame on."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from soft_estimator.backends.choose import choose_backend
from soft_estimator.config import SceneConfig
from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.live.setup import build_window
from soft_estimator.recordings.observed_frames import FrameSet
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import ConfigError, load
from soft_estimator.studies.estimate import estimate_scene
from soft_estimator.studies.estimate_setup import observe_truth

TRUTH_PA = 150e3


def sagging(**changes: Any) -> dict[str, Any]:
    """A clamped beam of jelly that has sagged by some 10 mm and hangs still."""
    return {
        "name": "sagging",
        "body": {"shape": {"box": {"size_m": [0.08, 0.02, 0.02]}}, "spacing_m": "6.7 mm"},
        "material": {"youngs_modulus_pa": TRUTH_PA, "stiffness_damping_s": 0.002},
        "fixed": [{"low_m": [-0.05, -0.02, -0.02], "high_m": [-0.035, 0.02, 0.02]}],
        "start": {"equilibrium": {}},
        "time": {"step_s": 0.02, "duration_s": 0.1},
        "observe": {
            "cameras": [{"eye_m": [0.1, 0.2, 0.35], "target_m": [0, -0.01, 0], "horizontal_fov_rad": 0.4}],
            "every_steps": 1,
            "points_per_frame": 400,
        },
        # What the grid does to an answer has tests of its own.
        "estimate": {
            "parameters": ["youngs_modulus_pa"],
            "guess": {"youngs_modulus_pa": "300 kPa"},
            "grid_error_nodes": 0,
        },
        **changes,
    }


def scene_of(**changes: Any) -> Scene:
    return build_scene(load(SceneConfig, sagging(**changes), "scene"), Path())


@cache
def seen() -> FrameSet:
    scene = scene_of()
    return observe_truth(scene, carry_field(scene.body), choose_backend("cpu"))


def test_one_still_frame_tells_the_stiffness() -> None:
    """400 points with 0.7 mm of noise on a sag of 10 mm: E to a few per cent, and inside the interval."""
    one = replace(seen(), frames=seen().frames[:1], names=seen().names[:1])
    result = estimate_scene(scene_of(), frames=one)
    (e,) = result.estimates
    assert e.observable and result.posterior.verdict.fits
    assert e.value == pytest.approx(TRUTH_PA, rel=0.06) and e.low < TRUTH_PA < e.high


def test_the_weight_is_part_of_the_answer() -> None:
    """Only E/ρ is seen of what hangs still: a density 5 % too high gives an E 5 % too high, within the interval."""
    right = estimate_scene(scene_of(), frames=seen()).estimates[0]
    wrong = estimate_scene(
        scene_of(material={**sagging()["material"], "density_kg_m3": 1050.0}), frames=seen()
    ).estimates[0]
    assert wrong.value / right.value == pytest.approx(1.05, abs=0.002)
    assert wrong.low < TRUTH_PA < wrong.high


def test_the_window_starts_from_a_body_that_hangs() -> None:
    scene = scene_of()
    window = build_window(scene, WindowConfig(frames=3, grow_to_frames=4, points_per_frame=300, start="scene"))
    said = [window.add_frame(10.0 + f.time_s, f.points_m, f.std_m) for f in seen().frames]
    assert said[-1] is not None and said[-1].status == "tracking"
    (e,) = said[-1].parameters
    assert e.observable and e.low < TRUTH_PA < e.high and e.value == pytest.approx(TRUTH_PA, rel=0.06)


def block(spacing_mm: float, **changes: Any) -> Scene:
    """A soft block that lies on a table and has sagged by some 1.6 mm of its 40."""
    data = sagging(
        body={
            "shape": {"box": {"size_m": [0.06, 0.04, 0.04], "center_m": [0, 0.02, 0]}},
            "spacing_m": 1e-3 * spacing_mm,
        },
        material={"youngs_modulus_pa": "5 kPa", "poissons_ratio": 0.3, "stiffness_damping_s": 0.002},
        fixed=[],
        contact={"stiffness_pa_per_m": "20 kPa/mm", "sharpness_per_m": "4 1/mm"},
        observe={
            "cameras": [{"eye_m": [0.1, 0.25, 0.3], "target_m": [0, 0.02, 0], "horizontal_fov_rad": 0.4}],
            "every_steps": 1,
            "points_per_frame": 600,
        },
        estimate={"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": "12 kPa"}},
    )
    return build_scene(load(SceneConfig, {**data, **changes}, "scene"), Path())


def test_a_body_that_lies_on_a_table_tells_its_stiffness() -> None:
    """Cells of two thirds the size make the frames. 0.7 mm of noise on six frames of 600 points, 12 µm of their mean,
    tell a sag of 1.6 mm to some 2 % where plane, camera and shape are measured well; how far the ground gives way,
    0.1 to 0.3 mm, is not known as well: a fifth of E."""
    scene = block(20 / 3)
    frames = observe_truth(scene, carry_field(scene.body), choose_backend("cpu"))
    measured = {"plane_offset_m": 1e-4, "shape_offset_m": 1e-4, "shape_scale": 0.001, "camera_position_m": 1e-4}
    known = {**measured, "camera_rotation_rad": 1e-3, "translation_m": 1e-4, "rotation_rad": 1e-3}
    told = block(10.0, estimate={"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": "12 kPa"},
                                 "known_to": known})  # fmt: skip
    result = estimate_scene(told, frames=frames)
    (e,) = result.estimates
    assert result.posterior.verdict.fits and e.observable
    assert e.low < 5e3 < e.high and e.value == pytest.approx(5e3, rel=0.1) and e.std < 0.3 * e.value
    assert e.std_statistical is not None and e.std_statistical < 0.05 * e.value


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"fixed": []}, "start.equilibrium needs a part of the body that is held, or a plane that it lies on"),
        (
            {"initial": {"velocity_m_s": [0, 1, 0]}},
            "start.equilibrium is a start at rest, and initial gives a velocity",
        ),
    ],
)
def test_a_start_that_cannot_be(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        scene_of(**changes)
