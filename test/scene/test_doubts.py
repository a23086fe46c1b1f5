"""Wrong signs and wrong units are told; what is only soft, or only lies on the ground, is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from soft_estimator.config import SceneConfig
from soft_estimator.scene.doubts import doubts
from soft_estimator.scene.files import read_scene
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load


def ball(**changes: Any) -> Scene:
    """A ball of 6 cm whose lowest point is 2 cm high."""
    shape = {"sphere": {"radius_m": 0.03, "center_m": [0, 0.05, 0]}}
    data = {
        "name": "ball",
        "body": {"shape": shape, "spacing_m": "1 cm"},
        "material": {"youngs_modulus_pa": "50 kPa"},
        "contact": {},
    }
    return build_scene(load(SceneConfig, {**data, **changes}), Path())


def test_a_start_deep_in_the_ground_is_doubted() -> None:
    """A ground 5 cm high is 3 cm above the lowest point; one 2.4 cm high 0.4 cm: that is no mistake."""
    (line,) = doubts(ball(contact={"offset_m": -0.05}))
    assert "begins 0.03" in line and "it is 0.05 m high" in line
    assert doubts(ball(contact={"offset_m": -0.024})) == ()
    assert doubts(ball(contact={"offset_m": -0.05}, initial={"translation_m": [0, 0.03, 0]})) == ()


@pytest.mark.parametrize(
    ("youngs_modulus", "gravity", "doubted"), [(50, 9.81, True), (200, 9.81, False), (50, 0, False)]
)
def test_a_body_that_its_weight_would_squash_is_doubted(youngs_modulus: float, gravity: float, doubted: bool) -> None:
    """ρ g L / E is 12 of a ball of 6 cm and 50 Pa, which were to be kPa, and 3 at 200 Pa; L is that of its cells."""
    lines = doubts(ball(material={"youngs_modulus_pa": youngs_modulus}, gravity_m_s2=[0, -gravity, 0]))
    assert [("times its stiffness" in line) for line in lines] == [True] * doubted


@pytest.mark.parametrize("name", ["thesis_torus", "gripper", "demo_drop", "ball_on_ball"])
def test_scenes_that_come_with_the_package_are_not_doubted(name: str) -> None:
    assert doubts(build_scene(*read_scene(name))) == ()
