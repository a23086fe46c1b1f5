"""From a scene to its parameters, end to end, on a small beam: truth found, files complete, frames round trip."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from soft_estimator.backends.choose import choose_backend
from soft_estimator.camera.depth_sensor import DepthNoise
from soft_estimator.camera.scene_cameras import depth_noise, frame_times_s
from soft_estimator.config import SceneConfig, load_scene
from soft_estimator.config_estimation import NoiseConfig
from soft_estimator.config_parameters import PARAMETERS, ObstaclePriorConfig, PriorConfig
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.parameters import REGISTRY
from soft_estimator.physics.step import Simulation
from soft_estimator.pictures.surface_values import mean_near
from soft_estimator.scene.files import builtin_scene_path
from soft_estimator.scene.motion import displacements
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.scene.variables import variables_of
from soft_estimator.schema import ConfigError, load, to_plain
from soft_estimator.studies.estimate import EstimateResult, estimate_scene
from soft_estimator.studies.estimate_files import write_estimate
from soft_estimator.studies.estimate_setup import observe_truth
from soft_estimator.studies.gradient_check import check_gradient, exact_config, steps_that_show


def beam(**changes: Any) -> dict[str, Any]:
    """A beam of jelly held at one end; it drops by most of its length within 0.1 s, more slowly the stiffer it is."""
    return {
        "name": "beam",
        "body": {"shape": {"box": {"size_m": [0.08, 0.02, 0.02]}}, "spacing_m": "6.7 mm"},
        "material": {"youngs_modulus_pa": 8000, "stiffness_damping_s": 0.002},
        "fixed": [{"low_m": [-0.05, -0.02, -0.02], "high_m": [-0.035, 0.02, 0.02]}],
        "time": {"step_s": 0.01, "duration_s": 0.1},
        "observe": {
            "cameras": [{"eye_m": [0.1, 0.2, 0.35], "target_m": [0, -0.01, 0], "horizontal_fov_rad": 0.4}],
            "every_steps": 2,
            "points_per_frame": 400,
        },
        "estimate": {
            "parameters": ["youngs_modulus_pa"],
            "guess": {"youngs_modulus_pa": "20 kPa"},
            # A pose that is known exactly is not refined from recorded frames.
            "known_to": dict.fromkeys(("translation_m", "rotation_rad", "camera_position_m", "camera_rotation_rad"), 0),
        },
        **changes,
    }


def scene_of(**changes: Any) -> Scene:
    return build_scene(load(SceneConfig, beam(**changes), "scene"), Path())


@pytest.fixture(scope="module")
def found() -> EstimateResult:
    return estimate_scene(scene_of())


def test_the_truth_is_found_through_one_noisy_camera(found: EstimateResult) -> None:
    # The posterior's own standard deviation is 0.7 % of E (2000 points with noise of 0.7 mm): 2 % are three of them.
    made = found.posterior.estimates[0]
    assert made.value == pytest.approx(8000, rel=0.02)
    assert abs(made.value - 8000) < 4 * made.std
    assert made.observable and 0.8 < found.posterior.noise_scale < 1.25


def test_the_files_are_complete(found: EstimateResult, tmp_path: Path) -> None:
    summary = write_estimate(found, tmp_path / "out", frames=True)
    assert summary == json.loads((tmp_path / "out" / "estimate.json").read_text())
    (row,) = summary["parameters"]
    assert row["name"] == "youngs_modulus_pa" and row["unit"] == "Pa" and row["truth"] == 8000
    assert row["guess"] == pytest.approx(20000)
    assert row["low_95"] < row["value"] < row["high_95"]
    assert row["error"] == pytest.approx(row["value"] - 8000) and abs(row["error_relative"]) < 0.02
    assert row["observable"] is True and row["reason"] == ""
    assert summary["iterations"] >= 1 and summary["stop_reason"] and summary["cost"] > 0
    assert summary["reached_limit"] is False and [start["reached_limit"] for start in summary["starts"]] == [False]
    assert summary["times"]["total_s"] > 0 and summary["simulations"] >= 2
    assert summary["frames"]["used"] == 5 and summary["frames"]["set_aside"] == 0
    assert summary["backend"] == "cpu" and summary["noise_scale"] > 0
    assert load_scene(tmp_path / "out" / "scene.yaml") == found.scene.config
    for name in ("cost.png", "parameters.png", "residuals.png"):
        with Image.open(tmp_path / "out" / name) as picture:
            # not a blank sheet
            assert picture.width > 300 and np.ptp(np.asarray(picture.convert("L"), dtype=int)) > 100


def test_recorded_frames_give_the_same_answer(found: EstimateResult, tmp_path: Path) -> None:
    # The same points, noise and start: the same search to the bit. The truth is not known then.
    write_estimate(found, tmp_path, plots=False, frames=True)
    again = estimate_scene(found.scene, frames_dir=tmp_path / "frames")
    assert again.truth is None and again.frames.points == found.frames.points
    np.testing.assert_array_equal(again.best.theta, found.best.theta)


def test_bad_frames_among_good_ones_do_not_move_the_answer(found: EstimateResult, tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    write_estimate(found, tmp_path, plots=False, frames=True)
    np.save(folder / "nan.npy", np.full((9, 3), np.nan))
    np.save(folder / "far.npy", np.full((9, 3), 10.0))
    with (folder / "stamps.csv").open("a") as stamps:
        stamps.write("nan.npy,0.1001\nfar.npy,0.1002\nfar.npy,0.01\n")
    scene = scene_of(time={"step_s": 0.01, "duration_s": 0.11})
    made = estimate_scene(scene, frames_dir=folder)
    np.testing.assert_array_equal(made.best.theta, found.best.theta)
    assert sorted(item.reason.split(" over ")[0] for item in made.frames.set_aside) == [
        "stamped out of order",
        "with every point",
        "with nothing but NaN",
    ]


@pytest.mark.parametrize("method", ["lbfgs", "barzilai_borwein"])
def test_the_gradient_methods_find_the_same_minimum(method: str, found: EstimateResult) -> None:
    estimate = {"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": 9000}, "method": method}
    made = estimate_scene(scene_of(estimate=estimate))
    # Where a point of the noisy cloud changes its cell the cost has a step (here of 0.03 % of it, between the two
    # ends): each side has a minimum of its own, within the standard deviation. This one must be no worse.
    one, other = made.posterior.estimates[0], found.posterior.estimates[0]
    assert abs(one.value - other.value) < 0.6 * other.std
    assert made.best.evaluation.cost < (1 + 1e-5) * found.best.evaluation.cost


def test_several_starts_meet(found: EstimateResult) -> None:
    estimate = {"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": 20000}, "starts": 2, "seed": 1}
    made = estimate_scene(scene_of(estimate=estimate))
    assert len(made.fits) == 2
    ends = [made.problem.variables.natural(f.theta)[0] for f in made.fits]
    assert ends == pytest.approx([8000, 8000], rel=0.02)


def test_exact_points_have_no_residual_at_the_truth() -> None:
    # Points off the time grid too: truth and model take the same straight line between two states.
    observe = {**beam()["observe"], "noise": {"kind": "none"}, "frame_rate_hz": 35}
    del observe["every_steps"]
    scene = scene_of(observe=observe)
    assert frame_times_s(scene.config) == pytest.approx([1 / 35, 2 / 35, 3 / 35])
    made = estimate_scene(scene_of(observe=observe, estimate={"parameters": ["youngs_modulus_pa"]}))
    # 1e-5 m is the deviation exact points are given; the surface is found to a thousandth of it.
    assert np.abs(made.best.evaluation.residual).max() < 1e-2


def test_displacements_lie_on_the_line_between_states() -> None:
    scene = scene_of()
    simulation = Simulation(scene.model, scene.parameters, choose_backend("cpu"))
    first, half, second = displacements(simulation, [0.01, 0.015, 0.02])
    np.testing.assert_allclose(half, 0.5 * (first + second), atol=1e-15)


def test_the_plane_is_known_in_its_own_tangent_steps() -> None:
    contact = {"normal": [0.1, 1, -0.05], "offset_m": 0.2}
    estimate = {"parameters": ["plane_normal", "plane_offset_m"], "guess": {"plane_normal": [-0.2, 2, 0]}}
    scene = scene_of(contact=contact, estimate=estimate)
    assert scene.config.estimate is not None
    variables = variables_of(scene, scene.config.estimate)
    again = variables.parameters(variables.natural_of(scene.parameters))
    np.testing.assert_allclose(again.plane_normal, scene.parameters.plane_normal, atol=1e-12)
    assert again.plane_offset_m == 0.2


def test_the_three_gradients_agree_for_every_parameter() -> None:
    config = load(SceneConfig, beam(contact={"offset_m": 0.012}, estimate=None), "scene")
    scene = build_scene(exact_config(config), Path())
    rows = check_gradient(scene, choose_backend("cpu"), steps=4, points=70)
    # mass damping is zero and has no logarithm; density, pose, velocity, gravity, plane, contact, E, ν and α₂ are 24
    assert len(rows) == 1 + 1 + 1 + 1 + 3 + 2 + 1 + 2 + 4 * 3
    assert max(row.error for row in rows) < 1e-6
    touched = [row for row in rows if row.label.startswith("plane")]
    assert all(abs(row.tangent) > 1 for row in touched)  # no comparison of nothing with nothing
    assert sum(abs(row.tangent) > 1 for row in rows) >= 15


def coarse_ball(height_m: float = 0.15) -> Scene:
    """The built-in bouncing ball on cells of 20 mm instead of 6, its centre so high."""
    data = yaml.safe_load(builtin_scene_path("bouncing_ball").read_text(encoding="utf-8"))
    data["body"]["spacing_m"] = "20 mm"
    data["body"]["shape"]["sphere"]["center_m"][1] = height_m
    return build_scene(exact_config(load(SceneConfig, data, "scene")), Path())


def test_the_bouncing_ball_is_watched_past_its_first_touch() -> None:
    """It falls 10 cm, √(2·0.1/9.81) = 143 ms or 72 steps, a step more where no vertex lies at the pole; two frames of 8
    steps follow."""
    assert 72 + 16 <= steps_that_show(coarse_ball(), choose_backend("cpu")) <= 73 + 16


@pytest.mark.slow
def test_the_bouncing_ball_shows_all_it_estimates() -> None:
    """Seen past the touch: none of its parameters is compared with nothing, and all agree (1e-9 to 4e-9 were seen).
    Let go 2 cm above the ground it touches in a third of the steps."""
    rows = check_gradient(coarse_ball(0.07), choose_backend("cpu"), points=100)
    assert all(row.shown and row.error < 1e-6 for row in rows), rows


def test_a_camera_that_looks_away_is_said() -> None:
    away = [{"eye_m": [0, 0, 1], "target_m": [0, 0, 2]}]
    scene = scene_of(observe={"cameras": away, "every_steps": 5})
    with pytest.raises(ConfigError, match=r"observe\.cameras see nothing of the body"):
        observe_truth(scene, carry_field(scene.body), choose_backend("cpu"))


def test_mean_of_points_near_each_vertex() -> None:
    vertices = np.array([[0.0, 0, 0], [1, 0, 0], [5, 0, 0]])
    points = np.array([[0.1, 0, 0], [-0.1, 0, 0], [1.2, 0, 0]])
    np.testing.assert_allclose(mean_near(vertices, points, np.array([1.0, 3.0, 7.0]), 0.3), [2, 7, np.nan])


# The configuration.


def test_every_parameter_has_a_guess_and_a_prior() -> None:
    assert PARAMETERS == REGISTRY.names() == tuple(f.name for f in fields(PriorConfig) if f.name != "obstacles")
    own = [(field, REGISTRY[f"obstacle_7_{field.name}"]) for field in fields(ObstaclePriorConfig)[:-1]]
    assert len(own) == len(REGISTRY.of_each())
    for field, kind in [*own, *((f, REGISTRY[f.name]) for f in fields(PriorConfig) if f.name != "obstacles")]:
        assert field.metadata["rule"].doc.endswith(f" {kind.prior_std:g} if left out")


def test_the_default_noise_is_that_of_the_simulated_sensor() -> None:
    assert depth_noise(NoiseConfig()) == DepthNoise()
    assert depth_noise(NoiseConfig(kind="isotropic", isotropic_std_m=0.001)) is None
    assert NoiseConfig(kind="isotropic", isotropic_std_voxels=0.5).isotropic_m(0.004) == 0.002


def test_a_list_of_names_survives_the_file() -> None:
    estimate = {"parameters": ["youngs_modulus_pa", "gravity_m_s2[1]"], "guess": {"gravity_m_s2": [0, -9, 0]}}
    config = load(SceneConfig, beam(estimate=estimate), "scene")
    assert config.estimate is not None and config.estimate.names == ("youngs_modulus_pa", "gravity_m_s2[1]")
    assert load(SceneConfig, to_plain(config), "scene") == config


CAMERA = {"eye_m": [0, 0, 1], "target_m": [0, 0, 0]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"estimate": {"parameters": ["youngs_modulos_pa"]}},
            "estimate.parameters[0] = 'youngs_modulos_pa' cannot be estimated; did you mean 'youngs_modulus_pa'?",
        ),
        ({"estimate": {"parameters": []}}, "estimate.parameters is empty; name at least one"),
        ({"estimate": {"parameters": [3]}}, "estimate.parameters[0] = 3 must be the name of a parameter"),
        ({"estimate": {"parameters": ["gravity_m_s2[3]"]}}, "does not exist; the last one is gravity_m_s2[2]"),
        ({"estimate": {"parameters": ["poissons_ratio[0]"]}}, "has no components; write poissons_ratio"),
        ({"estimate": {"parameters": ["gravity_m_s2", "gravity_m_s2[0]"]}}, "is named twice"),
        (
            {"estimate": {"parameters": ["poissons_ratio"], "guess": {"poisons_ratio": 0.3}}},
            "unknown key 'poisons_ratio' in estimate.guess; did you mean 'poissons_ratio'?",
        ),
        (
            {"estimate": {"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": "5 kg"}}},
            "estimate.guess.youngs_modulus_pa = '5 kg' has a unit that does not measure Pa",
        ),
        (
            {"estimate": {"parameters": ["youngs_modulus_pa"], "guess": {"youngs_modulus_pa": 0}}},
            "estimate.guess.youngs_modulus_pa = 0 must be > 0 [Pa]",
        ),
        (
            {"estimate": {"parameters": ["poissons_ratio"], "method": "newton"}},
            "estimate.method = 'newton' must be one of levenberg_marquardt, lbfgs, barzilai_borwein",
        ),
        ({"observe": {"cameras": [CAMERA], "every_steps": 0}}, "observe.every_steps = 0 must be >= 1"),
        (
            {"observe": {"cameras": [CAMERA], "every_steps": 1, "frame_rate_hz": 30}},
            "observe.frame_rate_hz and every_steps are both given; keep one",
        ),
        (
            {"observe": {"cameras": [{**CAMERA, "up": [0, 0, 1]}]}},
            "observe.cameras[0].up = [0.0, 0.0, 1.0] points along the view",
        ),
        ({"observe": {"noise": {"kind": "isotropic"}}}, "observe.noise.kind isotropic needs exactly one of"),
        (
            {"observe": {"noise": {"isotropic_std_m": 1}}},
            "observe.noise.isotropic_std_m is only used with kind isotropic, not depth_camera; remove it",
        ),
        ({"observe": {"ring": {"count": 3, "radius_m": -1}}}, "observe.ring.radius_m = -1 must be > 0 [m]"),
    ],
)
def test_a_mistake_in_the_sections_is_one_line(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(SceneConfig, beam(**changes), "scene")
    assert expected in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"estimate": {"parameters": ["plane_normal"]}}, "parameters[0] = 'plane_normal' needs a contact section"),
        (
            {"estimate": {"parameters": ["youngs_modulus_pa[1]"]}},
            "does not exist; the last one is youngs_modulus_pa[0]",
        ),
        ({"estimate": {"parameters": ["mass_damping_per_s"]}}, "mass_damping_per_s = 0 must be positive"),
        ({"estimate": None}, "has no estimate section; add one"),
        ({"observe": None}, "has no camera; add observe.cameras"),
        (
            {"observe": {"cameras": [CAMERA], "every_steps": 50}},
            "gives a frame every 0.5 s, but only 0.1 s are watched",
        ),
    ],
)
def test_a_mistake_that_only_the_scene_shows(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        estimate_scene(scene_of(**changes))
    assert expected in str(caught.value) and "\n" not in str(caught.value)
