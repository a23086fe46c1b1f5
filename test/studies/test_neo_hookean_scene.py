"""`material: {law: neo_hookean}` in a scene: simulated, differentiated and estimated like the linear law."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soft_estimator.backends import choose_backend
from soft_estimator.camera.observing import surface_frame
from soft_estimator.config import SceneConfig
from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.corotated import Corotated
from soft_estimator.physics.terms.neo_hookean import NeoHookean
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import ConfigError, load
from soft_estimator.studies.estimate import estimate_scene
from soft_estimator.studies.gradient_check import check_gradient, exact_config
from soft_estimator.studies.simulate import simulate, summarise


def beam(**material: Any) -> dict[str, Any]:
    """A beam of jelly held at one end that drops by half of its length."""
    return {
        "name": "beam",
        "body": {"shape": {"box": {"size_m": [0.08, 0.02, 0.02]}}, "spacing_m": "1 cm"},
        "material": {
            "law": "neo_hookean", "youngs_modulus_pa": 8000, "poissons_ratio": 0.45, "stiffness_damping_s": 0.002,
            **material,
        },
        "fixed": [{"low_m": [-0.05, -0.02, -0.02], "high_m": [-0.035, 0.02, 0.02]}],
        "time": {"step_s": 0.01, "duration_s": 0.1},
        "observe": {
            "cameras": [{"eye_m": [0.1, 0.2, 0.35], "target_m": [0, -0.01, 0], "horizontal_fov_rad": 0.4}],
            "every_steps": 2,
            "points_per_frame": 400,
        },
        "estimate": {
            "parameters": ["youngs_modulus_pa", "poissons_ratio"],
            "guess": {"youngs_modulus_pa": "16 kPa", "poissons_ratio": 0.35},
        },
    }  # fmt: skip


def scene_of(data: dict[str, Any]) -> Scene:
    return build_scene(load(SceneConfig, data, "scene"), Path())


def test_the_law_of_the_scene_is_simulated_and_its_rounds_are_told() -> None:
    scene = scene_of(beam())
    simulation = Simulation(scene.model, scene.parameters)
    assert simulation.term(NeoHookean) and not any(isinstance(t, Corotated) for t in simulation.terms)
    summary = summarise(simulate(scene, steps=4))
    assert summary["fallback_steps"] == 0 and 1 < summary["newton_rounds_mean"] <= summary["newton_rounds_max"] < 30
    assert summary["steps_not_converged"] == 0


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"material": {"law": "rubber", "youngs_modulus_pa": 1}},
            r"^material\.law = 'rubber' must be one of corotated",
        ),
        (
            {"fixed": [{**beam()["fixed"][0], "method": "nitsche"}]},
            r"^fixed\[0\]\.method = nitsche knows the linear law",
        ),
        ({"contact": {"method": "extrapolated"}}, r"^contact\.method = extrapolated goes with the linear law; use"),
    ],
)
def test_mistakes_are_one_line(change: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        load(SceneConfig, {**beam(), **change}, "scene")


@pytest.mark.slow
def test_the_three_gradients_of_the_scene_agree() -> None:
    """`check-gradient`: adjoint, tangent and differences of the clouds' cost to 1e-6, E and ν among them."""
    data = beam()
    data["contact"] = {"offset_m": 0.012}
    del data["estimate"]
    scene = build_scene(exact_config(load(SceneConfig, data, "scene")), Path())
    rows = {row.label: row for row in check_gradient(scene, choose_backend("cpu"), steps=4, points=70)}
    assert max(row.error for row in rows.values()) < 1e-6
    assert sum(abs(row.tangent) > 1 for row in rows.values()) >= 10  # no comparison of nothing with nothing


@pytest.mark.slow
def test_stiffness_and_poissons_ratio_are_found() -> None:
    """From twice E and ν 0.35, through one noisy camera: within four of their own standard deviations, E within 5 %."""
    found = estimate_scene(scene_of(beam()))
    young, poisson = found.estimates
    assert young.value == pytest.approx(8000, rel=0.05) and abs(young.value - 8000) < 4 * young.std
    assert abs(poisson.value - 0.45) < 4 * poisson.std


@pytest.mark.slow
def test_the_window_takes_the_law() -> None:
    """E from clouds of the same law with 0.5 mm of noise, frame by frame, from 1.5 times E: within three of its stated
    deviations and 5 % after twelve frames, while the window slides on."""
    scene = scene_of(beam())
    body, field, rng = scene.body, carry_field(scene.body), np.random.default_rng(3)
    truth, config = Simulation(scene.model, scene.parameters), WindowConfig(frames=6, grow_to_frames=8, start="scene")
    guess = scene.parameters.replace(youngs_modulus_pa=12000.0)
    window = SlidingWindow(scene.model, guess, ["youngs_modulus_pa"], config, field=field)
    window.add_frame(0.0, body.surface_positions_m(), 5e-4)
    state, said = truth.initial_state(), None
    for _ in range(12):
        for _ in range(2):
            state, _ = truth.step(state)
        frame = surface_frame(state.time_s, body, field, state.u, 60, 5e-4, rng)
        said = window.add_frame(frame.time_s, frame.points_m, frame.std_m) or said
    assert said is not None and said.status == "tracking"
    (young,) = said.parameters
    assert young.value == pytest.approx(8000, rel=0.05) and abs(young.value - 8000) < 3 * young.std
