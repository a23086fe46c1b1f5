"""Bodies on a table whose contact begins softly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import trimesh

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.config import SceneConfig
from soft_estimator.measuring.resting import floats_by_m
from soft_estimator.physics.step import Simulation
from soft_estimator.scene.scene import build_scene
from soft_estimator.schema import load

K, A = 5e6, 1500.0  # of the contact [Pa/m], [1/m]


def test_a_wide_base_floats_by_the_closed_form() -> None:
    """A k log(1 + exp(-a d))/a = m g: d = -log(exp(a m g/(A k)) - 1)/a, to rounding on a base of one height."""
    box = trimesh.creation.box((0.1, 0.06, 0.04)).apply_translation((0, 0, 0.02))
    pressure = 1.6 / (0.1 * 0.06)
    expected = -np.log(np.expm1(A * pressure / K)) / A
    assert expected == pytest.approx(1.66e-3, rel=0.01)
    assert floats_by_m(box.vertices, box.faces, 1.6, K, A) == pytest.approx(expected, rel=1e-9)


def test_a_body_that_sinks_in_lies_on_its_table() -> None:
    """A ball of 45 mm and 1.9 N: a base of a square millimetre carries nothing."""
    ball = trimesh.creation.icosphere(4, radius=0.045).apply_translation((0, 0, 0.045))
    assert floats_by_m(ball.vertices, ball.faces, 1.9, K, A) == 0.0


def test_the_simulation_stays_where_it_is_put() -> None:
    """A brick of 200 kPa on the plane below its table: after half a second, damped, its underside lies within a tenth
    of a millimetre of z = 0; with the plane at the table it floats 1.6 mm up."""
    scene = build_scene(load(SceneConfig, _brick(0.0), "scene"), Path())
    mesh = trimesh.creation.box((0.1, 0.06, 0.04)).apply_translation((0, 0, 0.02))
    d = floats_by_m(mesh.vertices, mesh.faces, 9.81 * scene.body.volume_m3 * 600.0, K, A)
    below, at = (_underside_m(_brick(offset_m)) for offset_m in (d, 0.0))
    assert abs(below) < 1e-4 and at == pytest.approx(d, abs=1e-4) and d > 1e-3


def _brick(offset_m: float) -> dict[str, object]:
    return {
        "name": "brick",
        "body": {"shape": {"box": {"size_m": [0.1, 0.06, 0.04], "center_m": [0, 0, 0.02]}}, "spacing_m": 0.02},
        "material": {
            "youngs_modulus_pa": 2e5,
            "poissons_ratio": 0.3,
            "density_kg_m3": 600.0,
            "mass_damping_per_s": 30.0,
        },
        "gravity_m_s2": [0, 0, -9.81],
        "contact": {"normal": [0, 0, 1], "offset_m": offset_m, "stiffness_pa_per_m": K, "sharpness_per_m": A},
        "time": {"step_s": 0.01, "duration_s": 0.5},
    }


def _underside_m(plain: dict[str, object]) -> float:
    scene = build_scene(load(SceneConfig, plain, "scene"), Path())
    simulation = Simulation(scene.model, scene.parameters, CpuBackend())
    state = simulation.initial_state()
    for _ in range(50):
        state, _ = simulation.step(state)
    rest = scene.body.surface_positions_m()
    low = rest[:, 2] < rest[:, 2].min() + 1e-6
    return float(scene.body.surface_positions_m(state.u)[low, 2].mean())
