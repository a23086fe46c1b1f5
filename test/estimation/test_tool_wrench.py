"""Forces on a tool: their derivatives, and a poke that tells how stiff a body of unknown mass is."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from soft_estimator.backends import choose_backend
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.fitting.felt_force import untared
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.interface import FrameState
from soft_estimator.estimation.residuals.tool_wrench import ToolWrench, WrenchFrame
from soft_estimator.geometry.pose_path import PosePath
from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.energy import balance
from soft_estimator.physics.gradient import ParameterGradient, shifted
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solids import Round, SolidLaw
from soft_estimator.physics.state import State
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw
from soft_estimator.recordings.observed_frames import FrameSet
from soft_estimator.scene.finer import on_finer_grid
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.scene.wrenches import feel_truth, readings_of_motion
from soft_estimator.schema import ConfigError, load
from soft_estimator.studies.estimate import estimate_scene
from soft_estimator.studies.estimate_setup import observe_truth


def poked() -> Model:
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    path = PosePath(np.array([0.0, 1.0]), np.array([turn, turn]), np.array([[0.01, 0.1, 0.0], [0.01, 0.08, 0.0]]))
    shape, shifts = Round((0.0, 0.0, 0.02), 0.03), ("obstacle_shift_m", "obstacle_0_shift_m")
    tool = SolidLaw(shape, centre_m=np.array([-0.05, 0.0, 0.0]), path=path, shifts=shifts)
    law = ContactLaw(2e5, 800.0, obstacle=tool, own=True)
    return build_model(build_body(sample(Box((0.06, 0.04, 0.05)), 0.02)), theta_scheme(0.01), obstacles=[law])


def test_derivatives_of_a_reading():
    """Change of the residuals with u and with the tool's two shifts, that of all and its own: by differences over
    1e-6 m, to 1e-6 of the largest; and the adjoint is the transpose, to rounding."""
    model, rng = poked(), np.random.default_rng(3)
    kind, own = ToolWrench(model), (0.0, 0.001, -0.001)
    p = Parameters(1e4, 0.3, 1000.0, obstacle_shift_m=(0.001, -0.002, 0.0), obstacle_0_shift_m=own)
    frame = WrenchFrame(0.3, rng.normal(size=6), np.array([0.1, 0.2, 0.3, 0.01, 0.02, 0.03]))
    u, du = rng.normal(size=(2, model.body.node_count, 3))
    u, direction = 1e-3 * u, ParameterGradient.zero(1)
    direction.obstacle_shift_m, direction.obstacle_0_shift_m = rng.normal(size=(2, 3))

    def at(e):
        moved = shifted(p, direction, e)
        return kind.predict(frame, state_of(u + e * du, moved))

    prediction, step = at(0.0), 1e-6
    assert np.abs(prediction.residual * frame.std + frame.wrench)[0] > 0.1  # it presses
    differences = (at(step).residual - at(-step).residual) / (2 * step)
    changes = type("Changes", (), {"u": du[:, :, None], "parameters": [direction]})
    found = prediction.changes(changes)[:, 0]
    np.testing.assert_allclose(found, differences, atol=1e-6 * np.abs(found).max())
    bar = rng.normal(size=6)
    adjoint = prediction.changes_adjoint(bar)
    assert (adjoint.u * du).sum() + adjoint.parameters.dot(direction) == pytest.approx(bar @ found, rel=1e-12)


def state_of(u, parameters):
    still = State(u, np.zeros_like(u), np.zeros_like(u), 0.0)
    return FrameState(still, still, 0.0, parameters, np.asarray)


def test_the_force_on_the_tool_is_that_on_the_body():
    """Minus the contact force, turned into the tool's frame; its moment that of the same forces about its origin."""
    model, p = poked(), Parameters(1e4, 0.3, 1000.0)
    u = np.zeros((model.body.node_count, 3))
    simulation, time_s = Simulation(model, p), 0.5
    on_body = balance(simulation, State(u, u, u, time_s)).contact_force_n
    wrench, _, patch = ToolWrench(model).wrench(0, u, time_s, p)
    turn, origin = model.obstacles[0].obstacle.path.at(time_s)
    np.testing.assert_allclose(turn @ wrench[:3], -on_body, rtol=1e-12)
    forces = -patch.press[:, None] * patch.normal
    np.testing.assert_allclose(turn @ wrench[3:], np.cross(patch.x - origin, forces).sum(axis=0), atol=1e-12)


POKE = {
    "name": "poke",
    "body": {"shape": {"box": {"size_m": [0.072, 0.048, 0.072], "center_m": [0, 0.024, 0]}}, "spacing_m": 0.012},
    "material": {"youngs_modulus_pa": 3e4, "poissons_ratio": 0.4, "stiffness_damping_s": 0.005},
    "fixed": [{"low_m": [-1, -0.001, -1], "high_m": [1, 0.001, 1]}],
    "obstacles": [
        {
            "shape": {"sphere": {"radius_m": 0.08, "center_m": [0, 0.129, 0]}},
            "stiffness_pa_per_m": 2e7,
            "path": [{"time_s": 0}, {"time_s": 0.2, "translation_m": [0, -0.009, 0]}],
        }
    ],
    "time": {"step_s": 0.01, "duration_s": 0.2},
    "observe": {
        "cameras": [
            {"eye_m": [0.25, 0.25, 0.25], "target_m": [0, 0.03, 0], "width_px": 96, "height_px": 72}
            | {"horizontal_fov_rad": 0.4}
        ],
        "every_steps": 10,
        "points_per_frame": 100,
        "wrenches": [{"obstacle": 0, "force_std_n": 0.05}],
    },
    "estimate": {
        "parameters": ["youngs_modulus_pa", "density_kg_m3"],
        "guess": {"youngs_modulus_pa": 5e4, "density_kg_m3": 700},
        "grid_error_nodes": 0,
    },
}


def scene_of(**changes) -> Scene:
    return build_scene(load(SceneConfig, {**POKE, **changes}, "scene"), Path())


def test_a_poke_tells_the_stiffness_of_a_body_of_unknown_mass():
    """Truth with half the spacing and half the step: E within 5 % and in its interval, the density in its own or said
    to be not observable. Seen: E -2.3 %, stated 3.0 %."""
    scene, backend = scene_of(), choose_backend("cpu")
    fine = on_finer_grid(replace(scene, config=replace(scene.config, time=replace(scene.config.time, step_s=0.005))))
    observe = replace(scene.config.observe, every_steps=20)
    fine = replace(fine, config=replace(fine.config, observe=observe))
    frames = observe_truth(fine, carry_field(fine.body), backend)
    readings = feel_truth(fine, backend, [frame.time_s for frame in frames.frames])
    assert max(np.linalg.norm(reading.wrench[:3]) for reading in readings) > 1.0
    young, density = estimate_scene(scene, backend, frames=frames, readings=readings).estimates
    assert young.value == pytest.approx(3e4, rel=0.05)
    assert young.observable and young.low < 3e4 < young.high
    assert not density.observable or density.low < 1000 < density.high


@cache
def there_and_back() -> tuple[Scene, FrameSet, list[WrenchFrame]]:
    """A poke from the air into the body, of cells of 24 mm and a known mass, and out again: its scene, points and exact
    readings."""
    path = [{"time_s": 0.06}, {"time_s": 0.12, "translation_m": [0, -0.009, 0]}, {"time_s": 0.18}]
    obstacle, observe = {**POKE["obstacles"][0], "path": path}, {**POKE["observe"], "every_steps": 2}
    coarse, backend = {**POKE["body"], "spacing_m": 0.024}, choose_backend("cpu")
    estimate = {**POKE["estimate"], "parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": 5e4}}
    scene = scene_of(body=coarse, obstacles=[obstacle], observe=observe, estimate=estimate)
    frames = observe_truth(scene, carry_field(scene.body), backend)
    return scene, frames, feel_truth(scene, backend, [frame.time_s for frame in frames.frames])


def verdict_of(change) -> FitVerdict:
    """The verdict on that poke when its readings (6,) are changed."""
    scene, frames, exact = there_and_back()
    readings = [replace(reading, wrench=change(reading.wrench)) for reading in exact]
    return estimate_scene(scene, choose_backend("cpu"), frames=frames, readings=readings).posterior.verdict


@pytest.mark.slow
def test_a_sensor_that_nobody_tared_is_said():
    """2 N of 13, which it reads in the air, too: points, which are many more, go with any stiffness."""
    verdict = verdict_of(lambda w: w - [0, 2, 0, 0, 0, 0])
    assert not verdict.fits and verdict.cause == "force"
    assert re.fullmatch(
        r"the sensor of obstacles\[0\] reads (1.9|2) N while that touches nothing: tare it, or look at its path",
        verdict.reason,
    )


@pytest.mark.slow
def test_forces_a_little_off_pass():
    """A twenty-fifth of what was read."""
    verdict = verdict_of(lambda w: w - [0, 0.5, 0, 0, 0, 0])
    assert verdict.fits and verdict.figures["force"] < 0.1


def test_what_a_sensor_reads_in_the_air():
    """It counts against the force of the touch alone, from three readings on, and where noise is no reason."""
    air, touch = np.tile([0.0, 0.5, 0.0], (3, 1)), np.array([[0.0, 4.0, 3.0]])
    said = "the sensor of obstacles[1] reads 0.5 N while that touches nothing: tare it, or look at its path"
    assert untared(1, touch, air, 0.05) == said
    assert not untared(1, 2.0 * touch, air, 0.05) and not untared(1, touch, air[:2], 0.05)
    assert not untared(1, touch, air, 0.2) and not untared(1, touch[:0], air, 0.05)


def test_readings_from_a_file(tmp_path):
    """The mean of the readings within each step; what is wrong with a file or a sensor, in one line."""
    (tmp_path / "wrench.csv").write_text(
        "time_s,fx_n,fy_n,fz_n,tx_nm,ty_nm,tz_nm\n0.001,0,1,0,0,0,0\n0.003,0,3,0,0,0,0\n0.055,0,5,0,0,0,0.1\n9,0,9,0,0,0,0\n"
    )
    observe = {**POKE["observe"], "wrenches": [{"obstacle": 0, "force_std_n": "10 mN", "file": "wrench.csv"}]}
    config = load(SceneConfig, {**POKE, "observe": observe}, "scene")
    scene = build_scene(config, tmp_path)
    first, second = readings_of_motion(scene)
    assert scene.readings[:2] == (first, second) and scene.readings[2].time_s == 9.0  # a recording may be longer
    assert (first.time_s, first.wrench[1], second.wrench[1], second.wrench[5]) == (0.002, 2.0, 5.0, 0.1)
    np.testing.assert_array_equal(first.std, [0.01] * 3 + [0.001] * 3)
    (tmp_path / "wrench.csv").write_text("time_s,force\n0,1\n")
    with pytest.raises(ValueError, match=r"its first line 'time_s,force' must read time_s,fx_n,[^\n]*$"):
        build_scene(config, tmp_path)
    rough = [{**POKE["obstacles"][0], "friction": {"coefficient": 0.2}}]
    assert not scene_of().warnings
    assert "obstacles[0] is predicted without its friction" in scene_of(obstacles=rough).warnings[0]


@pytest.mark.parametrize(
    ("sensors", "said"),
    [
        ([{"obstacle": 1}], r"observe\.wrenches\[0\]\.obstacle = 1 is none of the 1 obstacles"),
        ([{"obstacle": 0}, {"obstacle": 0}], r"observe\.wrenches\[1\]\.obstacle = 0 has a sensor already"),
    ],
)
def test_sensors_without_an_obstacle_of_their_own_are_refused(sensors, said):
    with pytest.raises(ConfigError, match=said):
        scene_of(observe={**POKE["observe"], "wrenches": sensors})


@pytest.mark.parametrize(
    ("sensor", "said"),
    [
        (
            {"file": "wrench.csv", "clock": "stamps"},
            r"observe\.wrenches\[0\]\.clock = stamps is for replay and the nodes",
        ),
        ({}, r"observe\.wrenches\[0\]\.file is missing: of recorded frames no force is simulated; give its readings"),
        (
            {"file": "wrench.csv"},
            r"observe\.wrenches\[0\]\.file = 'wrench\.csv' has no reading from 0 to 0\.2 s, while the scene moves",
        ),
    ],
)
def test_a_force_that_would_not_be_used_is_refused(tmp_path, sensor, said):
    """A search over recorded points would go on without it, and say nothing of it."""
    (tmp_path / "wrench.csv").write_text("time_s,fx_n,fy_n,fz_n,tx_nm,ty_nm,tz_nm\n1.5,0,1,0,0,0,0\n")
    scene = build_scene(
        load(SceneConfig, {**POKE, "observe": {**POKE["observe"], "wrenches": [sensor]}}, "scene"), tmp_path
    )
    with pytest.raises(ConfigError, match=said):
        estimate_scene(scene, frames_dir=tmp_path)
