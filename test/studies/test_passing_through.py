"""A body that gets through an obstacle is noticed, whatever the step, and one that does not is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soft_estimator.config import SceneConfig
from soft_estimator.geometry.shapes import Sphere, sample
from soft_estimator.physics.solids import Field, HalfSpace, Round
from soft_estimator.scene.scene import build_scene
from soft_estimator.schema import load
from soft_estimator.studies.passing_through import middle_m
from soft_estimator.studies.simulate import SimulationResult, simulate

PLATE = {"box": {"size_m": [0.2, 0.006, 0.2], "center_m": [0, -0.02, 0]}}
ROD = {"capsule": {"radius_m": 0.004, "start_m": [-0.1, 0, 0], "end_m": [0.1, 0, 0]}}
GAP = [{"shape": {"plane": {"normal": normal}}} for normal in ([1, 0.7, 0], [-1, 0.7, 0])]


def dropped(obstacles: list[dict[str, Any]], step_s: float, speed_m_s: float, duration_s: float) -> SimulationResult:
    """A soft ball of 6 cm, its middle 6 cm up, thrown down."""
    data = {
        "name": "thrown",
        "body": {"shape": {"sphere": {"radius_m": 0.03}}, "spacing_m": 0.015},
        "material": {"youngs_modulus_pa": 5e4, "poissons_ratio": 0.35, "stiffness_damping_s": 0.001},
        "initial": {"translation_m": [0.001, 0.06, 0.002], "velocity_m_s": [0, -speed_m_s, 0]},
        "obstacles": obstacles,
        "time": {"step_s": step_s, "duration_s": duration_s},
    }
    return simulate(build_scene(load(SceneConfig, data, "scene"), Path()), keep=[])


@pytest.mark.parametrize("step_s", [0.001, 0.004, 0.01, 0.032, 0.05])
@pytest.mark.parametrize("obstacle", [{"shape": PLATE}, {"shape": PLATE, "stiffness_pa_per_m": 1e8}, {"shape": ROD}])
def test_a_thrown_ball_bounces_off_or_is_said_to_get_through(obstacle: dict[str, Any], step_s: float) -> None:
    """At 2 m/s a step of 32 ms is longer than the ball: it is above the plate before one, below it after."""
    found = dropped([obstacle], step_s, 2.0, 0.1)
    lowest = min(b.centre_of_mass_m[1] for b in found.balances)
    assert lowest > -0.02 or any("obstacles[0]" in line and "got through" in line for line in found.warnings)


def test_a_plate_that_is_hard_enough_is_not_suspected() -> None:
    found = dropped([{"shape": PLATE, "stiffness_pa_per_m": 1e8}], 0.001, 2.0, 0.1)
    assert found.balances[-1].centre_of_mass_m[1] > 0.02 and not found.warnings
    assert found.deepest_m[0] < 0.0015


@pytest.mark.parametrize("step_s", [0.002, 0.008, 0.016, 0.032])
def test_a_gap_holds_a_ball_in_any_step(step_s: float) -> None:
    """Planes have no other side: 5 mm of 60, and no doubt."""
    found = dropped(GAP, step_s, 0.0, 0.4)
    assert min(b.centre_of_mass_m[1] for b in found.balances) > 0.035
    assert not any("got through" in line for line in found.warnings)


def test_the_middle_of_a_solid() -> None:
    """A rod's is its radius deep, a rounded box's half of its shortest side, a field's as its values say."""
    assert middle_m(Round((0.0, 0.0, 0.1), 0.004)) == 0.004
    assert middle_m(Round((0.099, 0.002, 0.099), 0.001)) == pytest.approx(0.003)
    assert middle_m(Field(sample(Sphere(0.02), 0.002, 2))) == pytest.approx(0.02, abs=0.002)
    assert middle_m(HalfSpace()) == np.inf
