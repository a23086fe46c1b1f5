"""The scene configuration: its bounds, its checks across fields, and the scenes that ship with it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from soft_estimator.config import ContactConfig, SceneConfig, load_scene
from soft_estimator.scene.files import builtin_scene_names, builtin_scene_path
from soft_estimator.schema import ConfigError, describe, load, parse_unit, to_plain

BOX = {"low_m": [0, 0, 0], "high_m": [1, 1, 1]}


def scene(**changes: Any) -> dict[str, Any]:
    return {
        "name": "test",
        "body": {"shape": {"sphere": {"radius_m": 0.1}}, "spacing_m": 0.01},
        "material": {"youngs_modulus_pa": "5 kPa"},
        **changes,
    }


def shape(**kind: Any) -> dict[str, Any]:
    return scene(body={"shape": kind, "spacing_m": 0.01})


def material(**changes: Any) -> dict[str, Any]:
    return scene(material={"youngs_modulus_pa": 1000, **changes})


def test_the_smallest_scene() -> None:
    made = load(SceneConfig, scene())
    assert made.material.youngs_modulus_pa == 5000.0
    assert made.gravity_m_s2 == (0.0, -9.81, 0.0)
    assert made.contact is None and made.fixed == () and made.loads == ()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (scene(materail={}), "unknown key 'materail' in scene; did you mean 'material'?"),
        (
            material(poissons_ratio=0.5),
            "material.poissons_ratio = 0.5 must be >= 0, <= 0.499; a material at 0.5 is",
        ),
        (material(poissons_ratio=-0.1), "material.poissons_ratio = -0.1 must be >= 0"),
        (material(density_kg_m3=-1), "material.density_kg_m3 = -1 must be > 0 [kg/m^3]"),
        (material(stiffness_damping_s=-1), "material.stiffness_damping_s = -1 must be >= 0 [s]"),
        (material(regions=[{**BOX, "youngs_modulus_pa": 0}]), "material.regions[0].youngs_modulus_pa = 0 must be > 0"),
        (scene(body={"shape": {"sphere": {"radius_m": 1}}}), "body.spacing_m is missing; give the edge of a cell"),
        (
            scene(body={"shape": {"sphere": {"radius_m": 1}}, "spacing_m": 0.1, "cells_along_longest": 9}),
            "body.cells_along_longest = 9 and spacing_m = 0.1 both set the grid; give only one",
        ),
        (
            shape(torus={"major_radius_m": 1, "minor_radius_m": 2}),
            "body.shape.torus.minor_radius_m = 2.0 must be",
        ),
        (shape(capsule={"radius_m": 1, "start_m": [0, 0, 0], "end_m": [0, 0, 0]}), "body.shape.capsule.end_m = "),
        (shape(union={"of": []}), "body.shape.union.of = [] must hold at least one shape"),
        (shape(sdf={"file": "a.sdf"}), "body.shape.sdf.size_m or spacing_m sets the scale, and neither is given"),
        (shape(sdf={"file": "a.sdf", "size_m": 1, "spacing_m": 1}), "both are given; give exactly one"),
        (shape(box={"size_m": [1, 0, 1]}), "body.shape.box.size_m[1] = 0 must be > 0 [m]"),
        (shape(cube={}), "unknown key 'cube' in body.shape"),
        (
            scene(fixed=[{"low_m": [0, 2, 0], "high_m": [1, 1, 1]}]),
            "fixed[0].low_m = [0.0, 2.0, 0.0] must be below",
        ),
        (
            scene(fixed=[{**BOX, "path": [{"time_s": 0}, {"time_s": 2}, {"time_s": 2}]}]),
            "fixed[0].path[2].time_s = 2.0 must be later than the waypoint before it (2.0)",
        ),
        (scene(loads=[{**BOX, "force_n": [0, 1]}]), "loads[0].force_n = [0, 1] has 2 entries; it needs 3"),
        (scene(loads=[BOX]), "loads[0].force_n = [0, 0, 0] and mass_kg = 0 load nothing"),
        (scene(contact={"normal": [0, 0, 0]}), "contact.normal = [0, 0, 0] has no direction"),
        (
            scene(contact={"stiffness_pa_per_m": "3 kPa"}),
            "contact.stiffness_pa_per_m = '3 kPa' has a unit that",
        ),
        (scene(time={"step_s": 0.1, "duration_s": 0.05}), "time.duration_s = 0.05 must be at least step_s (0.1)"),
        (scene(time={"theta": 0.4}), "time.theta = 0.4 must be >= 0.5, <= 1; below 0.5 the scheme is unstable"),
        (scene(time={"hht_alpha": 0.1}), "time.hht_alpha = 0.1 must be"),
        (scene(time={"integrator": "euler"}), "time.integrator = 'euler' must be one of theta, hht"),
        (scene(solver={"max_iterations": 0}), "solver.max_iterations = 0 must be >= 1"),
        (scene(picture={"up": [0, 0, 0]}), "picture.up = [0, 0, 0] has no direction"),
        (scene(picture={"eye_m": [1, 1, 1], "target_m": [1, 1, 1]}), "picture.eye_m = [1.0, 1.0, 1.0] must differ"),
    ],
)
def test_a_mistake_gets_one_line_with_key_value_and_remedy(data: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(SceneConfig, data, name="scene")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bounds_include_their_ends_where_they_should() -> None:
    load(SceneConfig, material(poissons_ratio=0.499))
    load(SceneConfig, material(poissons_ratio=0))
    load(SceneConfig, scene(time={"theta": 1, "hht_alpha": -1 / 3, "step_s": 0.1, "duration_s": 0.1}))


def test_an_sdf_brings_its_own_grid_unless_it_is_turned() -> None:
    file = {"file": "a.sdf", "size_m": 1}
    load(SceneConfig, scene(body={"shape": {"sdf": file}}))
    with pytest.raises(ConfigError, match=r"body\.spacing_m is missing"):
        load(SceneConfig, scene(body={"shape": {"sdf": {**file, "rotation_rad": [0, 1, 0]}}}))


@pytest.mark.parametrize("normal", [[0, 3, 4], [1e-90, 0, 0], [1e15, -1e15, 0]])
def test_unit_normal_has_length_one(normal: list[float]) -> None:
    # |n| = 1 up to the rounding of three divisions and a square root.
    contact = ContactConfig(normal=tuple(normal))
    assert math.hypot(*contact.unit_normal) == pytest.approx(1.0, abs=1e-15)
    largest = max(range(3), key=lambda i: abs(normal[i]))
    assert contact.unit_normal[largest] * normal[largest] > 0


def test_steps_round_to_the_duration() -> None:
    # 0.3 / 0.1 is 2.9999999999999996 in floating point; cutting it off would lose a step.
    assert load(SceneConfig, scene(time={"step_s": 0.1, "duration_s": 0.3})).time.steps == 3


def test_every_key_says_what_it_is_and_carries_its_unit() -> None:
    # The unit's last letter group ends the key's name: youngs_modulus_pa [Pa], gravity_m_s2 [m/s^2].
    suffixes = {
        **{"m": "_m", "s": "_s", "Pa": "_pa", "N": "_n", "rad": "_rad", "rad/s": "_rad_s", "m/s": "_m_s", "Hz": "_hz"},
        **{"m/s^2": "_m_s2", "kg": "_kg", "kg/m^3": "_kg_m3", "1/s": "_per_s", "1/m": "_per_m", "Pa/m": "_pa_per_m"},
        **{"N*m": "_nm"},
    }
    rows = describe(SceneConfig)
    assert len(rows) > 60
    for row in rows:
        assert row.doc, row.key
        if row.unit:
            assert parse_unit(row.unit)[0] == 1.0, f"{row.key} is not in SI"
            assert row.key.removesuffix("[]").endswith(suffixes[row.unit]), row.key


def test_the_scenes_asked_for_are_there() -> None:
    names = {"swinging_torus", "bouncing_ball", "bunny_on_tilted_plane", "dragon", "cantilever", "cuboid"}
    assert names <= set(builtin_scene_names())


@pytest.mark.parametrize("name", builtin_scene_names())
def test_shipped_scene_loads_and_survives_the_round_trip(name: str, tmp_path: Path) -> None:
    made = load_scene(builtin_scene_path(name))
    assert made.name == name and made.description
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(yaml.safe_dump(to_plain(made), sort_keys=False))
    assert load_scene(resolved) == made


def test_an_unknown_scene_is_named() -> None:
    with pytest.raises(ValueError, match=r"no built-in scene 'dragn'; did you mean 'dragon'\?"):
        builtin_scene_path("dragn")


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    with pytest.raises(ConfigError, match="is empty; a scene needs at least name, body and material"):
        load_scene(tmp_path / "empty.yaml")
