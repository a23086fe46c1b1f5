"""Obstacles of a scene: from its file to the model and to the cameras, and what is wrong with one in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from soft_estimator.backends import choose_backend
from soft_estimator.camera.pinhole import PinholeCamera
from soft_estimator.camera.rendering import SceneView
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.residuals.tool_wrench import ToolWrench
from soft_estimator.geometry.mesh_file import write_ply
from soft_estimator.geometry.shapes import Sphere, sample
from soft_estimator.geometry.surface import extract_surface
from soft_estimator.physics.fused import can_fuse
from soft_estimator.scene.files import read_scene
from soft_estimator.scene.finer import on_finer_grid
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import ConfigError, load
from soft_estimator.studies.simulate import simulate

SHAPES: dict[str, dict[str, Any]] = {
    "plane": {"normal": [0, 2, 0], "through_m": [0, -0.1, 0]},
    "sphere": {"radius_m": 0.05, "center_m": [0, -0.15, 0]},
    "capsule": {"radius_m": 0.05, "start_m": [0, -0.15, -0.1], "end_m": [0, -0.15, 0.1]},
    "box": {"size_m": [0.2, 0.05, 0.1], "center_m": [0, -0.125, 0], "rotation_rad": [0, 0.3, 0]},
}


def scene_of(*obstacles: dict[str, Any], folder: Path = Path(), **more: Any) -> Scene:
    data = {
        "name": "test",
        "body": {"shape": {"sphere": {"radius_m": 0.03}}, "spacing_m": 0.015},
        "material": {"youngs_modulus_pa": 2e4},
        "obstacles": list(obstacles),
        "time": {"step_s": 0.005, "duration_s": 0.1},
        **more,
    }
    return build_scene(load(SceneConfig, data, name="scene"), folder)


@pytest.mark.parametrize("tag", SHAPES)
def test_a_shape_is_where_the_file_puts_it(tag: str) -> None:
    """Each of these reaches up to y = -0.1 over the origin: distance y + 0.1 there, gradient up, both to rounding; and
    so does the mesh that cameras see, to a part of its cells."""
    made = scene_of({"shape": {tag: SHAPES[tag]}, "stiffness_pa_per_m": 3e6, "sharpness_per_m": 900})
    law = made.model.obstacles[0]
    assert (law.stiffness_pa_per_m, law.sharpness_per_m, law.own, law.friction) == (3e6, 900.0, True, None)
    obstacle = law.obstacle.bind(choose_backend("cpu"), made.parameters)
    x = np.array([[0.0, 0.02, 0.0], [0.0, -0.1, 0.0], [0.0, -0.11, 0.0]])
    np.testing.assert_allclose(obstacle.distance(x, 0.0), x[:, 1] + 0.1, atol=1e-12)
    np.testing.assert_allclose(obstacle.gradient(x, 0.0), np.tile([0, 1, 0], (3, 1)), atol=1e-12)
    assert made.obstacles[0].mesh(0.0)[0][:, 1].max() == pytest.approx(-0.1, abs=1e-3)


def off_integral(depth_m: float, across_m: float) -> float:
    """How far the force of a rod on a block of 12 mm cells that does not give is off the integral of its pressure,
    ∫ k log(1 + exp(-a δ))/a n_x dA, over the face it meets and the two that it reaches over, by sums of 0.05 mm."""
    radius, fine, block = 0.01, 5e-5, {"size_m": [0.06, 0.048, 0.048]}
    rod = {"radius_m": radius, "start_m": [0.041, -0.03, across_m], "end_m": [0.041, 0.03, across_m]}
    made = scene_of({"shape": {"capsule": rod}}, body={"shape": {"box": block}, "spacing_m": 0.012})
    u = np.tile([0.001 + depth_m, 0.0, 0.0], (made.body.node_count, 1))
    force = ToolWrench(made.model).wrench(0, u, 0.0, made.parameters)[0][0]
    law, z = made.model.obstacles[0], np.arange(-0.024 + fine / 2, 0.024, fine) - across_m
    behind = np.arange(fine / 2, 0.012, fine)[:, None]  # how far a place of the two faces lies behind the first one

    def pressure(ahead_m: np.ndarray | float) -> np.ndarray:
        off = np.hypot(z, ahead_m)
        soft = np.logaddexp(0.0, -law.sharpness_per_m * (off - radius)) / law.sharpness_per_m
        return np.asarray(law.stiffness_pa_per_m * soft * ahead_m / off)

    met, sides = pressure(radius - depth_m), pressure(radius - depth_m + behind)
    return float(force / (0.048 * fine * met.sum() + 2 * fine**2 * sides.sum()) - 1.0)


def test_a_tool_narrower_than_the_cells_is_felt_between_their_middles() -> None:
    """A rod of 1 cm radius on cells of 12 mm at three places across a cell, pressed in by 1 to 6 mm. The sum over
    triangles a quarter as large is off the integral by 4.5 % at most; with one point a triangle it was by 38 %."""
    for depth_m in (0.001, 0.002, 0.004, 0.006):
        for across_m in (0.0, 0.003, 0.006):
            assert abs(off_integral(depth_m, across_m)) < 0.06


def test_only_narrow_tools_split_the_triangles_that_feel_them() -> None:
    """A ball of 3 cm radius beside cells of 15 mm asks for no more points than there are triangles, one of 12 mm for
    more, which stand for the same area."""
    wide, narrow = (
        scene_of({"shape": {"sphere": {"radius_m": r, "center_m": [0, -0.2, 0]}}}).body for r in (0.03, 0.012)
    )
    assert len(wide.contact_points.area_m2) == len(wide.surface.faces) < len(narrow.contact_points.area_m2)
    assert narrow.contact_points.area_m2.sum() == pytest.approx(wide.contact_points.area_m2.sum(), rel=1e-12)


def test_a_mesh_is_a_smooth_field(tmp_path: Path) -> None:
    """A ball of triangles: distances to 1 % of its radius, and an edge of its own for the cells it is sampled on."""
    grid = sample(Sphere(0.05, (0, -0.15, 0)), 0.004)
    surface = extract_surface(grid)
    write_ply(tmp_path / "ball.ply", surface.positions_m(grid.node_positions_m()), surface.faces)
    made = scene_of({"shape": {"mesh": {"file": "ball.ply"}}, "spacing_m": "5 mm"}, folder=tmp_path)
    place = made.obstacles[0].place
    assert place.solid.grid.spacing_m == 0.005
    x = 0.06 * np.array([[0.6, 0.8, 0], [0, 1, 0], [0.0, -0.6, 0.8]]) + [0, -0.15, 0]
    np.testing.assert_allclose(place.solid.distance(np, x), 0.01, atol=5e-4)


def test_friction_path_and_finer_grid() -> None:
    """Its friction is its own, no parameter; waypoints are relative to where it starts; the finer scene keeps it."""
    path = [{"time_s": 0.0}, {"time_s": 0.1, "translation_m": [0, 0.02, 0], "rotation_rad": [0, 0, 1.0]}]
    rough = {"shape": {"sphere": SHAPES["sphere"]}, "friction": {"coefficient": 0.4}, "path": path}
    made = scene_of(rough)
    assert made.model.obstacles[0].friction == 0.4 and "friction_coefficient" not in made.parameters
    names = [type(law).__name__ for law in made.model.laws]
    assert names[-2:] == ["ContactLaw", "FrictionLaw"]
    turn, origin = made.obstacles[0].place.pose(0.05)
    np.testing.assert_allclose(origin, [0, -0.14, 0], atol=1e-12)
    assert turn[0, 0] == pytest.approx(np.cos(0.5))
    assert on_finer_grid(made).model.obstacles == made.model.obstacles
    assert can_fuse(made.model, choose_backend("reference"))


def test_cameras_see_it() -> None:
    """A ball before the body hides it: the depth in the middle of the image is that of the ball."""
    made = scene_of({"shape": {"sphere": {"radius_m": 0.05, "center_m": [0, 0, 0.2]}}})
    camera = PinholeCamera.looking_at((0, 0, 1.0), (0, 0, 0), (0, 1, 0), 32, 24, 0.5)
    seen = SceneView(made, [camera]).look(0.0, np.zeros((made.body.node_count, 3))).points_m[0]
    assert seen[12, 16, 2] == pytest.approx(0.75, abs=3e-3)


HEAD = "time_s,x_m,y_m,z_m,qx,qy,qz,qw\n"


@pytest.mark.parametrize(
    ("obstacle", "line"),
    [
        ({"shape": {"plane": {"normal": [0, 0, 0]}}}, "obstacles[0].shape.plane.normal = [0, 0, 0] has no direction"),
        ({"shape": {"box": {**SHAPES["box"]}}, "edge_m": 0.03}, "obstacles[0].edge_m = 0.03 must be below half"),
        ({"shape": {"sphere": {"radius_m": 0.02}}}, "obstacles[0] is 0.011 m inside the body at time 0"),
        ({"shape": {"box": {"size_m": [1, 1, 1]}}}, "obstacles[0] is 0.48 m inside the body at time 0"),
        ({"shape": {"sphere": SHAPES["sphere"]}, "path_file": "no.csv"}, "obstacles[0].path_file = 'no.csv' is not in"),
        (
            {"shape": {"sphere": SHAPES["sphere"]}, "path_file": "short.csv"},
            "obstacles[0].path_file = 'short.csv' ends at 0.05 s, before the motion does (0.1 s)",
        ),
        (
            {"shape": {"sphere": SHAPES["sphere"]}, "path_file": "stamps.csv"},
            "obstacles[0].path_file = 'stamps.csv' begins at 1.7e+09 s, after the motion does (0 s); count its times",
        ),
        (
            {"shape": {"sphere": SHAPES["sphere"]}, "path_file": "a.csv", "path": [{"time_s": 0}]},
            "obstacles[0].path_file = 'a.csv' and path both lead it; give only one",
        ),
        (
            {"shape": {"sphere": SHAPES["sphere"]}, "friction": {"coefficient": -1}},
            "obstacles[0].friction.coefficient = -1 must be >= 0",
        ),
    ],
)
def test_a_mistake_gets_one_line(obstacle: dict[str, Any], line: str, tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text(HEAD + "0,0,0,0,0,0,0,1\n0.05,0,0,0,0,0,0,1\n")
    (tmp_path / "stamps.csv").write_text(HEAD + "1.7e9,0,0,0,0,0,0,1\n1700000001,0,0,0,0,0,0,1\n")
    with pytest.raises(ConfigError) as refused:
        scene_of(obstacle, folder=tmp_path)
    assert line in str(refused.value) and "\n" not in str(refused.value)


def test_a_tool_may_touch_the_body_from_the_start() -> None:
    made = scene_of({"shape": {"sphere": {"radius_m": 0.02, "center_m": [0, 0.049, 0]}}})
    assert replace(made.config).obstacles and made.obstacles


def test_a_gripper_lifts_a_block_by_friction_alone() -> None:
    """The fingers rise by 6 cm: the block with them, but for 2 mm that it slips and stretches, and no step falls back;
    without friction it stays on the table."""
    config, folder = read_scene("gripper")
    heights = []
    for rough in (True, False):
        friction = [o.friction if rough else None for o in config.obstacles]
        obstacles = tuple(replace(o, friction=f) for o, f in zip(config.obstacles, friction))
        result = simulate(build_scene(replace(config, obstacles=obstacles), folder), keep=(), steps=125)
        assert not result.warnings
        heights.append([b.centre_of_mass_m[1] for b in result.balances])
    assert heights[0][-1] - heights[0][0] == pytest.approx(0.06, abs=0.002)
    assert abs(heights[1][-1] - heights[1][0]) < 0.002
