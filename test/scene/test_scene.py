"""From a scene's configuration to a body and a model: shapes, files, regions, fixed boxes, specks, memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soft_estimator.config import SceneConfig, load_scene
from soft_estimator.geometry.extent import widest_m
from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.mesh_file import write_ply
from soft_estimator.geometry.sdf_file import write_sdf
from soft_estimator.geometry.shapes import Box, Sphere, sample
from soft_estimator.scene.body_grid import body_width_m, build_grid
from soft_estimator.scene.files import builtin_scene_path
from soft_estimator.scene.memory import available_memory_bytes, count_active_nodes
from soft_estimator.scene.scene import build_scene
from soft_estimator.scene.variables import check_names
from soft_estimator.schema import ConfigError, load

HERE = Path()
BALL = {"sphere": {"radius_m": 0.05}}
BEAM = {"box": {"size_m": [0.08, 0.02, 0.02]}}


def config(shape: dict[str, Any], body: dict[str, Any] | None = None, **rest: Any) -> SceneConfig:
    data = {"name": "test", "body": {"shape": shape, **(body or {"spacing_m": 0.01})}, **rest}
    data.setdefault("material", {"youngs_modulus_pa": 1e4})
    return load(SceneConfig, data, name="scene")


@pytest.mark.parametrize(
    ("shape", "volume"),
    [
        ({"box": {"size_m": [0.1, 0.06, 0.08], "rotation_rad": [0, 0, 0.5], "center_m": [1, 2, 3]}}, 0.00048),
        ({"sphere": {"radius_m": 0.05, "center_m": [0, 1, 0]}}, 4 / 3 * np.pi * 0.05**3),
        ({"torus": {"major_radius_m": 0.06, "minor_radius_m": 0.025, "axis": "x"}}, 2 * np.pi**2 * 0.06 * 0.025**2),
        (
            {"capsule": {"radius_m": 0.03, "start_m": [0, 0, 0], "end_m": [0.06, 0, 0.08]}},
            np.pi * 0.03**2 * (0.1 + 4 / 3 * 0.03),
        ),
        ({"cylinder": {"radius_m": 0.05, "height_m": 0.06, "rotation_rad": [0, 0.3, 0]}}, np.pi * 0.05**2 * 0.06),
        (
            {"union": {"of": [BALL, {"sphere": {"radius_m": 0.04, "center_m": [0.2, 0, 0]}}]}},
            4 / 3 * np.pi * (0.05**3 + 0.04**3),
        ),
    ],
)
def test_a_shape_has_its_volume(shape: dict[str, Any], volume: float) -> None:
    # A body of 4-10 cells across: cut-cell volumes are second order, and 2 % is what that resolution leaves. Edges of a
    # turned box are cut off within a cell: 12 of them, each up to h²/8 of section, are 4 % here.
    made = build_scene(config(shape), HERE)
    assert made.body.volume_m3 == pytest.approx(volume, rel=0.04 if "box" in shape else 0.02)
    assert made.mass_kg == pytest.approx(1000 * made.body.volume_m3)


@pytest.mark.parametrize(
    ("shape", "width_m"),
    [
        (BALL, 0.1),
        ({"box": {"size_m": [0.03, 0.04, 0.12], "rotation_rad": [0.3, 0, 0.5], "center_m": [1, 2, 3]}}, 0.13),
        ({"torus": {"major_radius_m": 0.06, "minor_radius_m": 0.025, "axis": "x"}}, 0.17),
        ({"capsule": {"radius_m": 0.03, "start_m": [0, 0, 0], "end_m": [0.06, 0, 0.08]}}, 0.16),
        ({"cylinder": {"radius_m": 0.04, "height_m": 0.06, "axis": "x", "rotation_rad": [0.1, 0.5, 0]}}, 0.1),
        ({"union": {"of": [BALL, {"sphere": {"radius_m": 0.04, "center_m": [0.2, 0, 0]}}]}}, 0.29),
    ],
)
def test_a_shape_tells_how_wide_the_body_is(shape: dict[str, Any], width_m: float) -> None:
    # Of the 100 directions one is within 12 degrees of the widest, and cos 12° = 0.978. Sampled, corners are cut off
    # within a cell, and rounded faces bulge by up to their sagitta in one, h²/8R = 0.3 mm of the narrowest tube.
    told_m = body_width_m(config(shape).body, HERE, None)
    assert 0.978 * width_m < told_m < width_m + 1e-9
    sampled_m = widest_m(build_scene(config(shape, {"spacing_m": 0.005}), HERE).body.surface_positions_m())
    assert sampled_m == pytest.approx(told_m, rel=0.03)


def test_files_tell_how_wide_their_body_is(tmp_path: Path) -> None:
    # 10 cm across the corners of the mesh, twice that by its scale; the ball's field has its surface between nodes.
    corners = np.array([[0, 0, 0], [0.06, 0, 0], [0, 0.08, 0], [0, 0, 0.01]])
    write_ply(tmp_path / "a.ply", corners, np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]))
    write_sdf(tmp_path / "b.sdf", sample(Sphere(0.05), 0.005))
    mesh = body_width_m(config({"mesh": {"file": "a.ply", "scale_to_m": 2}}).body, tmp_path, None)
    assert 0.978 * 0.2 < mesh < 0.2 + 1e-6  # single precision
    field = config({"sdf": {"file": "b.sdf", "spacing_m": 0.005}}).body
    assert body_width_m(field, HERE, tmp_path) == pytest.approx(0.1, rel=0.01)
    with pytest.raises(ConfigError, match=r"body\.shape\.sdf\.file = 'b\.sdf' is not in"):
        body_width_m(field, HERE, None)


def test_a_turned_shape_turns_about_its_own_centre() -> None:
    # A box turned by 90 degrees about z is the box with x and y exchanged, about the same centre.
    turned = {"box": {"size_m": [0.1, 0.04, 0.06], "center_m": [0.3, 0, 0], "rotation_rad": [0, 0, np.pi / 2]}}
    body = build_scene(config(turned), HERE).body
    low, high = body.surface_positions_m().min(axis=0), body.surface_positions_m().max(axis=0)
    np.testing.assert_allclose(high - low, [0.04, 0.1, 0.06], atol=1e-9)
    np.testing.assert_allclose(0.5 * (high + low), [0.3, 0, 0], atol=1e-9)


def test_files_are_found_beside_the_scene_and_in_the_data_folder(tmp_path: Path) -> None:
    grid = sample(Sphere(0.05), 0.01, align="origin")
    data = tmp_path / "data"
    data.mkdir()
    write_sdf(data / "ball.sdf", grid)
    shape = {"sdf": {"file": "ball.sdf", "spacing_m": 0.01}}
    made = build_grid(config(shape, {"min_fill": 0.02}).body, tmp_path, data)
    np.testing.assert_allclose(made.phi_m, grid.phi_m, atol=1e-8)  # float32 of 0.05 m
    with pytest.raises(ConfigError, match=r"body\.shape\.sdf\.file = 'ball\.sdf' is not in .*; give .* with --data"):
        build_grid(config(shape, {"min_fill": 0.02}).body, tmp_path, None)
    with pytest.raises(ConfigError, match=r"is neither in .* nor in .*; check the name or --data"):
        build_grid(config(shape, {"min_fill": 0.02}).body, tmp_path, tmp_path)


def test_an_sdf_may_be_turned_and_resampled(tmp_path: Path) -> None:
    # A box of 8 x 4 x 4 cm turned by 90 degrees about z; trilinear resampling of a distance field moves faces by
    # far less than a tenth of a cell.
    write_sdf(tmp_path / "box.sdf", sample(Box((0.08, 0.04, 0.04)), 0.005, align="origin"))
    shape = {"sdf": {"file": "box.sdf", "spacing_m": 0.005, "rotation_rad": [0, 0, np.pi / 2]}}
    body = build_scene(config(shape, {"spacing_m": 0.004}), tmp_path).body
    np.testing.assert_allclose(np.ptp(body.surface_positions_m(), axis=0), [0.04, 0.08, 0.04], atol=0.0004)


def test_a_mesh_alone_and_in_a_union_is_the_same_body(tmp_path: Path) -> None:
    # In a union it is sampled at 1/96 of its size first; both volumes are second order in the grid's 1/10.
    ball = build_scene(config(BALL, {"spacing_m": 0.005}), HERE).body
    write_ply(tmp_path / "ball.ply", 1000 * ball.surface_positions_m(), ball.surface.faces)
    mesh = {"mesh": {"file": "ball.ply", "scale_to_m": "1 mm"}}
    alone = build_scene(config(mesh, {"cells_along_longest": 10}), tmp_path).body
    joined = build_scene(config({"union": {"of": [mesh]}}, {"cells_along_longest": 10}), tmp_path).body
    assert alone.grid.spacing_m == pytest.approx(0.01, rel=0.02)
    assert joined.volume_m3 == pytest.approx(alone.volume_m3, rel=0.005)
    assert alone.volume_m3 == pytest.approx(ball.volume_m3, rel=0.02)


def test_a_mesh_in_millimetres_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """A ball of 10 cm as most CAD programs write it, which would be 100 m wide and fill any memory."""
    ball = build_scene(config(BALL), HERE).body
    write_ply(tmp_path / "part.ply", 1000 * ball.surface_positions_m(), ball.surface.faces)
    for body in ({"cells_along_longest": 10}, {"spacing_m": 0.01}):
        with pytest.raises(ValueError, match=r"shape.mesh.file = 'part.ply' is .* m large .*scale_to_m: 0.001"):
            build_scene(config({"mesh": {"file": "part.ply"}}, body), tmp_path)


def test_an_open_mesh_is_refused(tmp_path: Path) -> None:
    ball = build_scene(config(BALL), HERE).body
    write_ply(tmp_path / "open.ply", ball.surface_positions_m(), ball.surface.faces[1:])
    with pytest.raises(ValueError, match="is not watertight: 3 of"):
        build_scene(config({"mesh": {"file": "open.ply"}}), tmp_path)


def test_regions_give_cells_their_stiffness_and_the_last_wins() -> None:
    half = {"low_m": [0, -1, -1], "high_m": [1, 1, 1], "youngs_modulus_pa": 5e4}
    tip = {"low_m": [0.02, -1, -1], "high_m": [1, 1, 1], "youngs_modulus_pa": 9e4}
    made = build_scene(config(BEAM, material={"youngs_modulus_pa": 1e4, "regions": [half, tip]}), HERE)
    x = made.body.node_position_m[made.body.cell_nodes].mean(axis=1)[:, 0]
    stiffness = made.parameters.youngs_modulus_pa[made.body.cell_region]
    np.testing.assert_array_equal(stiffness, np.where(x < 0, 1e4, np.where(x < 0.02, 5e4, 9e4)))


def test_a_region_without_cells_is_named() -> None:
    away = {"low_m": [1, 1, 1], "high_m": [2, 2, 2], "youngs_modulus_pa": 5e4}
    with pytest.raises(ConfigError, match=r"material\.regions\[0\] from .* holds no cell of the body"):
        build_scene(config(BEAM, material={"youngs_modulus_pa": 1e4, "regions": [away]}), HERE)


def test_a_gripper_turns_about_its_box_where_the_initial_pose_puts_it() -> None:
    # The box centre (0.035, 0, 0) is a fixed point of the pure rotation; the pose turns it to (0, 0.035, 0) + t.
    box = {"low_m": [0.03, -1, -1], "high_m": [0.04, 1, 1]}
    path = [{"time_s": 0}, {"time_s": 1, "rotation_rad": [0, 0, 1]}]
    start = {"rotation_rad": [0, 0, np.pi / 2], "translation_m": [0, 0.5, 0]}
    made = build_scene(config(BEAM, fixed=[{**box, "path": path}], initial=start), HERE)
    (_, motion), *_ = made.model.dirichlet.held
    q, shift = motion.at(1.0)
    np.testing.assert_allclose(q @ [0, 0.535, 0] + shift, [0, 0.535, 0], atol=1e-12)


def test_loads_contact_and_precision_reach_the_model() -> None:
    load_box = {"low_m": [0.039, -1, -1], "high_m": [1, 1, 1], "force_n": [0, 0, -0.5]}
    contact = {"normal": [0, 3, 4], "offset_m": 0.1, "stiffness_pa_per_m": 5e5, "method": "extrapolated"}
    made = build_scene(config(BEAM, loads=[load_box], contact=contact, solver={"precision": "float32"}), HERE)
    np.testing.assert_allclose(made.model.load_n.sum(axis=0), [0, 0, -0.5], atol=1e-12)
    np.testing.assert_allclose(made.parameters.plane_normal, [0, 0.6, 0.8])
    assert made.parameters.plane_offset_m == 0.1
    assert made.model.contact is not None
    assert (made.model.contact.stiffness_pa_per_m, made.model.contact.implicit) == (5e5, False)
    assert made.model.dtype is np.float32


def test_specks_are_removed_and_larger_pieces_are_mentioned() -> None:
    speck = {"sphere": {"radius_m": 0.008, "center_m": [0.15, 0, 0]}}
    second = {"sphere": {"radius_m": 0.03, "center_m": [-0.15, 0, 0]}}
    whole = build_scene(config({"union": {"of": [BALL, second]}}), HERE)
    made = build_scene(config({"union": {"of": [BALL, second, speck]}}), HERE)
    assert any("removed 1 loose speck" in line for line in made.warnings)
    assert any("in 2 pieces" in line for line in made.warnings)
    assert made.body.volume_m3 == pytest.approx(whole.body.volume_m3, rel=1e-3)
    assert made.body.node_position_m[:, 0].max() < 0.1
    assert build_scene(config(BALL), HERE).warnings == ()


def test_the_cuboid_is_the_one_of_the_thesis() -> None:
    # Table 4.1: 26 x 8 x 16 cells and 27 x 9 x 17 nodes at resolution 10.
    path = builtin_scene_path("cuboid")
    body = build_scene(load_scene(path), path.parent).body
    assert (body.cell_count, body.node_count) == (3328, 4131)
    assert body.volume_m3 == pytest.approx(
        1.29 * 0.4 * 0.8, rel=0.01
    )  # edges of the end faces are cut off within a cell


def test_a_grid_that_does_not_fit_names_spacing_nodes_memory_and_a_spacing_that_fits() -> None:
    with pytest.raises(ConfigError) as caught:
        build_scene(config(BALL, {"spacing_m": 1e-5}), HERE, memory_bytes=1e9)
    line = str(caught.value)
    assert line.startswith("body.spacing_m = 1e-05 m makes about 5.2") and "e+11 nodes" in line and "GB" in line
    fitting = float(line.split("use a spacing of ")[1].split(" m")[0])
    # It must fit, and not be far too coarse: a third finer must not.
    check = config(BALL, {"spacing_m": fitting})
    grid = build_grid(check.body, HERE, None, memory_bytes=1e9)
    with pytest.raises(ConfigError):
        build_grid(config(BALL, {"spacing_m": fitting / 1.3}).body, HERE, None, memory_bytes=1e9)
    # 0.52 of the ball's box is ball: nodes ≈ volume / h³, and 4.5 h/R = 15 % more for the layer outside.
    expected = 4 / 3 * np.pi * (0.05 / fitting) ** 3
    assert expected < count_active_nodes(grid) < 1.2 * expected


def test_active_nodes_of_one_inside_node_are_its_27_neighbours() -> None:
    phi = np.ones((6, 6, 6))
    phi[2, 3, 2] = -1
    assert count_active_nodes(SignedDistanceGrid(phi, np.zeros(3), 1.0)) == 27


def test_the_machine_has_memory() -> None:
    assert 1e8 < available_memory_bytes() < 1e15


def test_relaxation_weights_and_a_support_reach_the_model() -> None:
    """Each section is one law; a weight is shared out to its whole mass, and the support carries it along."""
    material = {"youngs_modulus_pa": 1e4, "relaxation": {"share": 0.3, "time_s": 0.2}}
    loads = [{"low_m": [0.039, -1, -1], "high_m": [1, 1, 1], "mass_kg": 0.052}]
    support = {"until_s": 0.1, "gone_within_s": 0.03}
    made = build_scene(config(BEAM, material=material, loads=loads, support=support), HERE)
    assert [type(law).__name__ for law in made.model.more] == ["RelaxationLaw", "WeightsLaw", "SupportLaw"]
    weights, carried = made.model.more[1], made.model.more[2]
    assert weights.mass_kg.sum() == pytest.approx(0.052) and carried.weights_kg is weights.mass_kg
    assert not made.model.load_n.any()
    p = made.parameters
    assert (p.relaxation_share, p.relaxation_time_s) == (0.3, 0.2)
    assert (p.support_until_s, p.support_gone_within_s) == (0.1, 0.03)
    assert build_scene(config(BEAM), HERE).model.more == ()


@pytest.mark.parametrize(
    ("material", "key", "line"),
    [
        ({"share": 1.2, "time_s": 0.1}, "share", "= 1.2"),
        ({"share": -0.1, "time_s": 0.1}, "share", "= -0.1"),
        ({"share": 0.2, "time_s": 0.0}, "time_s", "= 0.0"),
    ],
)
def test_bad_relaxation_gets_one_line(material: dict[str, float], key: str, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(BEAM, material={"youngs_modulus_pa": 1e4, "relaxation": material})
    assert f"relaxation.{key}" in str(refused.value) and line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_load_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="load nothing; give one of them, or leave it out"):
        config(BEAM, loads=[{"low_m": [0, 0, 0], "high_m": [1, 1, 1]}])


def test_friction_of_a_scene_reaches_the_model() -> None:
    """The coefficient is a parameter of the simulation and of the contact's law; a scene without has neither."""
    friction = {"coefficient": 0.3, "slip_speed_m_s": "5 mm/s", "substeps": 4}
    rough = build_scene(config(BEAM, contact={"friction": friction}), HERE)
    law = rough.model.contact
    assert law is not None and (law.friction, law.slip_speed_m_s, law.substeps) == (0.3, 0.005, 4)
    assert rough.parameters.friction_coefficient == 0.3
    plain = build_scene(config(BEAM, contact={}), HERE)
    assert "friction_coefficient" not in plain.parameters
    check_names(rough.config, ["friction_coefficient"])
    with pytest.raises(ConfigError, match=r"needs contact\.friction, and the scene has none; add it"):
        check_names(plain.config, ["friction_coefficient"])
    with pytest.raises(ConfigError, match=r"^contact\.friction\.coefficient = -0\.1 must be >= 0$"):
        config(BEAM, contact={"friction": {"coefficient": -0.1}})
    with pytest.raises(ConfigError, match=r"^contact\.friction\.substeps = 0 must be >= 1, <= 64$"):
        config(BEAM, contact={"friction": {"coefficient": 0.1, "substeps": 0}})
