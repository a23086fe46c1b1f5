"""A simulated scene and the files it leaves: laws of motion in the series, counts in the summary, readable meshes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from soft_estimator.config import SceneConfig, load_scene
from soft_estimator.geometry.mesh_file import load_mesh
from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.pictures.motion_pictures import Frame, choose_camera, strain_scale
from soft_estimator.pictures.surface_values import equivalent_strain
from soft_estimator.scene.files import read_scene
from soft_estimator.scene.scene import build_scene
from soft_estimator.schema import load
from soft_estimator.studies.simulate import (
    SimulationResult,
    gif_steps,
    lasting_gain_j,
    simulate,
    strip_steps,
    write_result,
)


def small_scene(**changes: Any) -> SceneConfig:
    return load(
        SceneConfig,
        {
            "name": "drop",
            "body": {"shape": {"sphere": {"radius_m": 0.03, "center_m": [0, 0.05, 0]}}, "spacing_m": "1 cm"},
            "material": {"youngs_modulus_pa": "50 kPa"},
            "contact": {},
            "time": {"step_s": "5 ms", "duration_s": 0.05},
            "picture": {"frames": 3, "width_px": 480},
            **changes,
        },
    )


@pytest.fixture(scope="module")
def fall() -> SimulationResult:
    return simulate(build_scene(small_scene(), Path()))


def test_free_fall_follows_the_parabola(fall: SimulationResult) -> None:
    # y = y0 - g t²/2; the trapezoidal rule is exact for it, the solver stops at 1e-6 of the load. 0.05 s of fall are
    # 12 mm of the 20 mm to the plane, where the soft contact's force is exp(-2000/m · 8 mm) ≈ 1e-7 of its scale.
    height = np.array([b.centre_of_mass_m[1] for b in fall.balances])
    np.testing.assert_allclose(height, height[0] - 0.5 * 9.81 * fall.time_s**2, atol=1e-6)
    total = np.array([b.total_j for b in fall.balances])
    scale = max(b.kinetic_j for b in fall.balances)
    np.testing.assert_allclose(total, total[0], atol=1e-4 * scale)


def test_progress_counts_every_step() -> None:
    seen: list[tuple[str, int, int]] = []
    scene = build_scene(small_scene(), Path())
    simulate(scene, progress=lambda *at: seen.append(at), keep=(), steps=4)
    assert seen == [("simulating", n, 4) for n in (1, 2, 3, 4)]


def test_kept_frames_move_with_the_body(fall: SimulationResult) -> None:
    # The surface falls as a whole: the strain of a body in free fall is none.
    first, last = fall.frames[0], fall.frames[10]
    moved = last.vertices_m - first.vertices_m
    np.testing.assert_allclose(moved, np.broadcast_to([0, -0.5 * 9.81 * 0.05**2, 0], moved.shape), atol=2e-6)
    assert last.strain.max() < 1e-3


@pytest.mark.slow
def test_written_files(tmp_path: Path) -> None:
    small = {"time": {"step_s": "5 ms", "duration_s": 0.015}, "picture": {"frames": 2, "width_px": 160}}
    fall = simulate(build_scene(small_scene(**small), Path()))
    summary = write_result(fall, tmp_path / "new" / "folder", meshes=True)
    out = tmp_path / "new" / "folder"
    assert json.loads((out / "summary.json").read_text()) == summary
    assert all((out / name).stat().st_size > 0 for name in summary["files"])
    assert load_scene(out / "scene.yaml") == fall.scene.config
    body = fall.scene.body
    assert (summary["nodes"], summary["cells"]) == (body.node_count, body.cell_count)
    assert summary["mass_kg"] == pytest.approx(1000 * summary["volume_m3"])
    assert summary["steps"] == 3 == len(summary["cg_iterations"]) == len(summary["step_ms"])
    assert {len(values) for values in summary["series"].values()} == {4}
    assert set(summary["stage_mean_ms"]) == {"rotations", "assembly", "forces", "solve"}
    # PLY stores float32: 1e-7 of 5 cm.
    vertices, _ = load_mesh(out / "meshes" / "step_00003.ply", 1.0)
    assert vertices[:, 1].min() == pytest.approx(float(fall.frames[3].vertices_m[:, 1].min()), abs=1e-7)
    with Image.open(out / "strip.png") as strip:
        assert 140 <= strip.width <= 160
    with Image.open(out / "animation.gif") as animation:
        assert animation.n_frames == len(gif_steps(fall.scene))


def test_energy_from_nowhere_is_reported(fall: SimulationResult) -> None:
    # Total energy less the work of loads is constant in free fall; a run that gained the kinetic energy once more is
    # what an unstable scheme looks like.
    assert fall.warnings == ()
    gain = np.linspace(0, max(b.kinetic_j for b in fall.balances), len(fall.balances))
    faulty = [replace(b, elastic_j=b.elastic_j + g) for b, g in zip(fall.balances, gain, strict=True)]
    assert any("came from nowhere" in line for line in replace(fall, balances=faulty).warnings)


def test_steps_too_long_for_friction_are_reported() -> None:
    """The brick as it is shipped, and in steps that are not cut while it rubs."""
    config, folder = read_scene("tumbling_brick")
    assert config.contact is not None and config.contact.friction is not None
    long = replace(config, contact=replace(config.contact, friction=replace(config.contact.friction, substeps=1)))
    shipped, uncut = (simulate(build_scene(c, folder), steps=50, keep=()) for c in (config, long))
    assert shipped.friction_missed < 0.01 and shipped.warnings == ()
    assert uncut.friction_missed > 0.3
    (line,) = uncut.warnings
    assert line.startswith("friction is off by ") and "substeps: 8" in line
    # What its substeps took is all counted, where it rubs.
    assert max(r.solve.iterations for r in shipped.reports) > 16


def test_the_work_of_loads_is_counted() -> None:
    # A free body without gravity: what the load puts in is kinetic and elastic energy, to the solver's 1e-6 and the
    # scheme's own error, second order in a step of a fiftieth of the load's time.
    push = {"low_m": [-1, -1, -1], "high_m": [1, 1, 1], "force_n": [1.0, 0, 0]}
    scene = build_scene(small_scene(gravity_m_s2=[0, 0, 0], contact=None, loads=[push]), Path())
    made = simulate(scene, keep=())
    stored = made.balances[-1].kinetic_j + made.balances[-1].elastic_j
    assert -made.balances[-1].load_j == pytest.approx(stored, rel=0.02)


def test_nothing_to_draw_is_said(fall: SimulationResult, tmp_path: Path) -> None:
    bare = simulate(fall.scene, keep=(), steps=1)
    with pytest.raises(ValueError, match="no surface was kept to draw"):
        write_result(bare, tmp_path)
    summary = write_result(bare, tmp_path, gif=False, strip=False)
    assert summary["files"] == ["summary.json", "scene.yaml"]


def test_shown_steps_start_and_end_with_the_motion(fall: SimulationResult) -> None:
    assert strip_steps(fall.scene) == [0, 5, 10]
    assert strip_steps(fall.scene, 1) == [0, 1]
    long = build_scene(small_scene(time={"step_s": 0.001, "duration_s": 10}), Path())
    assert gif_steps(long)[0] == 0 and gif_steps(long)[-1] == 10000 and len(gif_steps(long)) == 60


def test_equivalent_strain_of_a_turned_stretch(fall: SimulationResult) -> None:
    # F = R diag(1 + e, 1 - e/2, 1 - e/2): ε' = ε, √(2/3 (e² + e²/2)) = e, whatever the rotation.
    body = fall.scene.body
    f = rotation_matrix(np.array([0.4, -1.0, 2.0])) @ np.diag([1.1, 0.95, 0.95])
    strain = equivalent_strain(body, body.node_position_m @ (f - np.eye(3)).T)
    np.testing.assert_allclose(strain, 0.1, rtol=1e-9)


@pytest.mark.parametrize(("high", "scale"), [(0.0, 1e-4), (0.018, 0.02), (0.3, 0.5), (0.52, 0.5), (0.9, 1.0)])
def test_the_colour_scale_ends_at_a_round_number(high: float, scale: float) -> None:
    frame = Frame(0.0, np.zeros((9, 3)), np.full(9, high))
    assert strain_scale([frame]) == pytest.approx(scale)


def test_the_camera_sees_the_whole_motion(fall: SimulationResult) -> None:
    camera = choose_camera(fall.scene, list(fall.frames.values()), (320, 240))
    for frame in fall.frames.values():
        x, y, z = camera.to_camera_frame(frame.vertices_m).T
        u, v = camera.fx_px * x / z + camera.cx_px, camera.fy_px * y / z + camera.cy_px
        assert (z > 0).all() and u.min() > 0 and u.max() < 319 and v.min() > 0 and v.max() < 239


def test_a_gain_counts_where_it_lasts() -> None:
    """One state above the start is taken out again by the next; five in a row are a gain, by the least of them."""
    total = np.array([1.0, 1.5, 1.0, 0.9, 0.9, 0.9, 0.9])
    assert lasting_gain_j(total) == 0.0
    assert lasting_gain_j(np.array([1.0, 1.3, 1.2, 1.4, 1.25, 1.3, 0.5])) == pytest.approx(0.2)
    assert lasting_gain_j(np.array([1.0, 1.2])) == 0.0
