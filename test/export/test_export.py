"""From a result's folder to files: what is in them, what is refused, and that a real estimate goes all the way."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from export_results import RADIUS_M, free_ball, write_result
from test_cli_estimate import write_scene as write_beam
from tiny_ball import scene_of

from soft_estimator.cli import main
from soft_estimator.export import FORMATS, export, read_result
from soft_estimator.export.asset import asset_maker
from soft_estimator.export.exporting import safe_name
from soft_estimator.export.text import rotation_from_z
from soft_estimator.geometry.rigid import rotation_matrix


def body_of(path: Path) -> dict:  # type: ignore[type-arg]
    return json.loads(path.read_text())


def test_an_estimate_is_exported_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real estimate of a small held beam, from its cameras to files: the numbers are those of estimate.json."""
    out = tmp_path / "out"
    scene = write_beam(tmp_path)
    assert main(["estimate", scene, "--out", str(out), "--no-plots", "--backend", "cpu"]) == 0
    capsys.readouterr()
    assert main(["export", str(out), "--to", "json", "--samples", "2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["files"] == ["tiny.json", "tiny_000.json", "tiny_001.json", "tiny_samples.csv"]
    value = json.loads((out / "estimate.json").read_text())["parameters"][0]["value"]
    body = body_of(out / "export" / "tiny.json")
    assert body["material"]["youngs_modulus_pa"] == [value] and body["contact_plane"] is None
    assert any("held a part of the body" in line for line in body["remarks"])
    drawn = [body_of(out / "export" / name)["material"]["youngs_modulus_pa"][0] for name in printed["files"][1:3]]
    assert len({*drawn, value}) == 3


def test_every_format_holds_the_same_body(tmp_path: Path) -> None:
    """Vertices, tetrahedra, mass, material and plane of MJCF and SOFA are those of the JSON file, to nine digits."""
    result = write_result(tmp_path, scene_of(material={"youngs_modulus_pa": 4e4, "mass_damping_per_s": 0.3}))
    for to in FORMATS:
        export(result, to, tmp_path, spacing_m=0.03)
    body = body_of(tmp_path / "tiny_ball.json")
    vertices, elements = np.array(body["vertices_m"]), np.array(body["tetrahedra"])
    mjcf = ElementTree.parse(tmp_path / "tiny_ball.xml").getroot()
    bodies = mjcf.findall("worldbody/body")
    assert np.array([b.get("pos", "").split() for b in bodies], dtype=float) == pytest.approx(
        vertices, rel=1e-8, abs=1e-9
    )
    mass = [float(b.find("inertial").get("mass")) for b in bodies]  # type: ignore[union-attr, arg-type]
    assert mass == pytest.approx(body["vertex_mass_kg"], rel=1e-8)
    flex = mjcf.find("deformable/flex")
    assert flex is not None and np.array_equal(np.array(flex.get("element", "").split(), dtype=int), elements.ravel())
    sofa = ElementTree.parse(tmp_path / "tiny_ball.scn").getroot()
    topology, solver = sofa.find("Node/TetrahedronSetTopologyContainer"), sofa.find("Node/EulerImplicitSolver")
    assert topology is not None and solver is not None
    assert np.array(topology.get("position", "").split(), dtype=float) == pytest.approx(
        vertices.ravel(), rel=1e-8, abs=1e-9
    )
    assert np.array_equal(np.array(topology.get("tetrahedra", "").split(), dtype=int), elements.ravel())
    assert solver.get("rayleighMass") == "0.3"
    force = sofa.find("Node/TetrahedronFEMForceField")
    assert force is not None and float(force.get("youngModulus", "")) == 4e4
    plane = sofa.find("Node/Node/PlaneForceField")
    assert plane is not None and plane.get("normal") == "0 1 0" and float(plane.get("d", "")) == 0
    for name in ("tiny_ball.xml", "tiny_ball.usda", "tiny_ball.scn", "tiny_ball.json"):
        text = (tmp_path / name).read_text()
        assert "units: m, kg, s, N, Pa" in text and "axes: right-handed world axes" in text


def test_what_was_estimated_of_the_plane_is_exported(tmp_path: Path) -> None:
    """Friction and stiffness of a sample are those that were drawn, not the scene's; where the scene has no friction
    the file has none either."""
    names = ["friction_coefficient", "contact_stiffness_pa_per_m"]
    rough = {"stiffness_pa_per_m": 2e7, "friction": {"coefficient": 0.35}}
    result = write_result(tmp_path / "rough", scene_of(contact=rough, estimate={"parameters": names}))
    for to in FORMATS:
        export(result, to, tmp_path, 1, spacing_m=0.04)
    with (tmp_path / "tiny_ball_samples.csv").open() as stream:
        drawn = list(csv.DictReader(stream))[1]
    friction, stiffness = (float(drawn[name]) for name in names)
    assert abs(friction - 0.35) > 1e-3 and abs(stiffness - 2e7) > 1e3
    plane = body_of(tmp_path / "tiny_ball_000.json")["contact_plane"]
    assert plane["friction_coefficient"] == pytest.approx(friction, rel=1e-8)
    assert plane["stiffness_pa_per_m"] == pytest.approx(stiffness, rel=1e-8)
    geom = ElementTree.parse(tmp_path / "tiny_ball_000.xml").getroot().find("worldbody/geom")
    assert geom is not None and float(geom.get("friction", "").split()[0]) == pytest.approx(friction, rel=1e-8)
    assert f"physics:dynamicFriction = {friction:.4g}"[:-1] in (tmp_path / "tiny_ball_000.usda").read_text()
    assert "left out: the plane's friction" in (tmp_path / "tiny_ball_000.scn").read_text()
    export(write_result(tmp_path / "smooth", scene_of()), "json", tmp_path / "smooth", spacing_m=0.04)
    smooth = body_of(tmp_path / "smooth" / "tiny_ball.json")
    assert smooth["contact_plane"]["friction_coefficient"] is None
    assert any("friction was not estimated" in line for line in smooth["remarks"])


def test_samples_follow_the_posterior_and_the_table_says_what_is_in_them(tmp_path: Path) -> None:
    """log E of 40 samples: mean within 4 σ/√n, deviation within a factor of 1.6, which chance exceeds in 1e-4."""
    summary = export(write_result(tmp_path, free_ball("20 mm"), std=0.2), "json", tmp_path, 40, spacing_m=0.04, seed=5)
    with (tmp_path / "free_ball_samples.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["file"] for row in rows] == summary["files"][:-1] and len(rows) == 41
    young = np.array([float(row["youngs_modulus_pa"]) for row in rows])
    assert young[0] == pytest.approx(8e3)
    log = np.log(young[1:] / 8e3)
    assert abs(log.mean()) < 4 * 0.2 / np.sqrt(40) and 0.2 / 1.6 < log.std() < 0.2 * 1.6
    assert body_of(tmp_path / "free_ball_007.json")["material"]["youngs_modulus_pa"] == [young[8]]


def test_the_body_stands_where_the_scene_puts_it(tmp_path: Path) -> None:
    """x = c + R (X - c) + t of the initial pose, as the simulation places it."""
    turn, shift = [0.3, -0.2, 0.5], [0.1, 0.2, -0.3]
    still, moved = scene_of(initial={}), scene_of(initial={"rotation_rad": turn, "translation_m": shift})
    for folder, scene in (("a", still), ("b", moved)):
        export(write_result(tmp_path / folder, scene), "json", tmp_path / folder, spacing_m=0.03)
    before, after = (np.array(body_of(tmp_path / f / "tiny_ball.json")["vertices_m"]) for f in "ab")
    centre = still.body.centroid_m
    expected = centre + (before - centre) @ rotation_matrix(np.array(turn)).T + shift
    assert after == pytest.approx(expected, abs=1e-12)


def test_steps_up_to_the_stated_one_are_stable(tmp_path: Path) -> None:
    """ω_max by the elements is above the true one of the assembled K u = ω² M u, and at most twice: a bound that holds
    and does not waste. K is assembled here from K_e = V (λ g gᵀ + μ (g·g I + g gᵀ)) apart from the code under test."""
    result = read_result(write_result(tmp_path, free_ball("20 mm")))
    asset = asset_maker(result, 0.04)("ball", result.estimate(), "")
    mesh, (lam, mu) = asset.mesh, asset.lame_pa()
    count = len(mesh.vertices_m)
    stiffness = np.zeros((count, 3, count, 3))
    for element, volume, one_lam, one_mu in zip(mesh.elements, mesh.element_volumes_m3(), lam, mu):
        corners = np.column_stack([np.ones(4), mesh.vertices_m[element]])
        slope = np.linalg.inv(corners)[1:].T  # (4, 3): ∇N of each node
        for p in range(4):
            for q in range(4):
                block = one_lam * np.outer(slope[p], slope[q]) + one_mu * np.outer(slope[q], slope[p])
                stiffness[element[p], :, element[q]] += volume * (block + one_mu * slope[p] @ slope[q] * np.eye(3))
    root = np.sqrt(np.repeat(asset.vertex_masses_kg(), 3))
    square = stiffness.reshape(3 * count, -1) / np.outer(root, root)
    fastest = np.sqrt(np.linalg.eigvalsh(square)[-1])
    assert 0.5 * 2 / fastest < asset.stable_step_s() / 0.7 <= 2 / fastest


@pytest.mark.parametrize(
    ("normal", "quaternion"),
    [((0, 0, 1), (1, 0, 0, 0)), ((0, 0, -1), (0, 1, 0, 0)), ((0, 1, 0), (np.sqrt(0.5), -np.sqrt(0.5), 0, 0))],
)
def test_the_rotation_that_lifts_z_to_the_normal(normal: tuple[float, ...], quaternion: tuple[float, ...]) -> None:
    assert rotation_from_z(np.array(normal, dtype=float)) == pytest.approx(quaternion)


@pytest.mark.parametrize(
    ("name", "clean"), [("free ball", "free_ball"), ("3 <b>&--", "body_3_b"), ("äö", "body"), ("a-b/../c", "a_b_c")]
)
def test_names_become_identifiers(name: str, clean: str) -> None:
    assert safe_name(name) == clean


def test_a_name_that_would_break_xml_does_not(tmp_path: Path) -> None:
    result = write_result(tmp_path, scene_of(name='a --> "b" & <c>'))
    for to in FORMATS:
        export(result, to, tmp_path, spacing_m=0.04)
    for ending in (".xml", ".scn"):
        ElementTree.parse(tmp_path / f"a_b_c{ending}")


def test_mistakes_get_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_result(tmp_path / "good", scene_of())
    (tmp_path / "empty").mkdir()
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    (fleet / "metrics.json").write_text(json.dumps({"bags": [{"bag": "first"}, {"bag": "second"}]}))
    broken = write_result(tmp_path / "broken", scene_of())
    (broken / "estimate.json").write_text("{")
    old = write_result(tmp_path / "old", scene_of())
    (old / "estimate.json").write_text(json.dumps({"parameters": []}))
    bare = write_result(tmp_path / "bare", scene_of())
    (bare / "rest_shape.npz").unlink()
    for arguments, words in (
        (["nowhere", "--to", "json"], "does not exist"),
        ([str(tmp_path / "empty"), "--to", "json"], "holds none of estimate.json, metrics.json, measurement.json"),
        ([str(fleet), "--to", "json"], "first, second"),
        ([str(good / "scene.yaml"), "--to", "json"], "is no result"),
        ([str(broken), "--to", "json"], "not a JSON file"),
        ([str(old), "--to", "json"], "has no posterior"),
        ([str(bare), "--to", "json"], "rest_shape.npz"),
        ([str(good), "--to", "json", "--samples", "-1"], "samples = -1"),
        ([str(good), "--to", "json", "--spacing-mm", "200"], "finer spacing"),
        ([str(good), "--to", "json", "--out", str(good / "scene.yaml")], "is a file"),
    ):
        assert main(["export", *arguments]) == 2
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1 and "Traceback" not in error, error
    with pytest.raises(ValueError, match="choose from mjcf"):
        export(good, "obj", tmp_path)


def test_a_ball_s_mass_is_that_of_the_estimate(tmp_path: Path) -> None:
    """Σ m = ρ V of the body's own cells to rounding, within 1 % of 4/3 π R³ ρ."""
    scene = free_ball()
    summary = export(write_result(tmp_path, scene), "json", tmp_path)
    assert summary["mesh"]["mass_kg"] == pytest.approx(scene.mass_kg, rel=1e-12)
    assert summary["mesh"]["mass_kg"] == pytest.approx(4 / 3 * np.pi * RADIUS_M**3 * 1000, rel=0.01)
    assert summary["mesh"]["dihedral_min_deg"] > 10.78
