"""Solids as obstacles: their distances, derivatives of steps that touch them, Hertz, and nothing falls through."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_suite import check_simulation
from scipy.spatial.transform import Rotation

from soft_estimator.backends import choose_backend
from soft_estimator.geometry import shapes
from soft_estimator.geometry.pose_path import PosePath, read_pose_path
from soft_estimator.geometry.shapes import Box, Sphere, sample
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.energy import balance
from soft_estimator.physics.integrator import hht_scheme, theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solids import Field, HalfSpace, Round, Solid, SolidLaw
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.statics import solve_static
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw
from soft_estimator.physics.terms.obstacle_contact import ObstacleContact

RNG = np.random.default_rng(4)
BALL, ROD, BLOCK = Round((0.0, 0.0, 0.0), 0.03), Round((0.0, 0.0, 0.04), 0.02), Round((0.03, 0.02, 0.01), 0.005)
SOLIDS: dict[str, Solid] = {
    "half-space": HalfSpace(),
    "ball": BALL,
    "rod": ROD,
    "block": BLOCK,
    "field": Field(sample(Sphere(0.03), 0.004, margin_cells=6)),
}


@pytest.mark.parametrize("name", SOLIDS)
def test_gradient_and_curvature_are_derivatives_of_the_distance(name):
    """∇δ and ∇∇δ by central differences of 1e-6 m: errors of 1e-10 relative to the size of a cell, 1e-6 asked.

    Points off the places where the distance has kinks, the middle planes of a block."""
    solid, step = SOLIDS[name], 1e-6
    y = RNG.normal(size=(60, 3)) * 0.025
    y = y[np.abs(solid.distance(np, y)) < 0.012]
    gradient, curvature = solid.gradient(np, y), solid.curvature(np, y)
    for axis in range(3):
        ahead, behind = (y + sign * step * np.eye(3)[axis] for sign in (1, -1))
        slope = (solid.distance(np, ahead) - solid.distance(np, behind)) / (2 * step)
        np.testing.assert_allclose(gradient[:, axis], slope, atol=1e-6)
        if curvature is not None:
            turn = (solid.gradient(np, ahead) - solid.gradient(np, behind)) / (2 * step)
            same = np.abs(turn - curvature[:, :, axis]).max(axis=1) < 1e-3 * np.abs(curvature).max()
            assert same.mean() > 0.97  # a difference may straddle where a block's edge begins
    assert len(y) > 10


def test_distances_are_those_of_the_shapes():
    """Ball and rod exactly, a block with round edges outside of its edges' reach, a field to h⁴: 1e-5 of its radius."""
    y = RNG.normal(size=(200, 3)) * 0.03
    rod = shapes.Capsule((0, 0, -0.04), (0, 0, 0.04), 0.02)
    np.testing.assert_allclose(BALL.distance(np, y), Sphere(0.03).distance_m(y), atol=1e-15)
    np.testing.assert_allclose(ROD.distance(np, y), rod.distance_m(y), atol=1e-15)
    box = Box((0.07, 0.05, 0.03)).distance_m(y)
    flat = (np.abs(y) > [0.03, 0.02, 0.01]).sum(axis=1) <= 1
    np.testing.assert_allclose(BLOCK.distance(np, y)[flat], box[flat], atol=1e-15)
    near = np.abs(Sphere(0.03).distance_m(y)) < 0.01
    found = SOLIDS["field"].distance(np, y)[near]
    assert np.abs(found - Sphere(0.03).distance_m(y)[near]).max() < 3e-4 * 0.03


def turning_path() -> PosePath:
    turns = Rotation.from_rotvec([[0, 0, 0], [0.3, -0.2, 0.5], [0.3, 0.4, 0.5]]).as_matrix()
    return PosePath(np.array([0.0, 0.1, 0.3]), turns, np.array([[0, 0, 0], [0.01, 0.02, 0], [0.05, 0, 0.01]]))


def test_a_path_moves_as_it_says():
    """drift + spin x is the velocity of a carried point, by differences; outside of its times the path rests."""
    path, x0, e = turning_path(), np.array([0.3, -0.1, 0.2]), 1e-6
    for time in (0.03, 0.17, 0.28):
        (q1, b1), (q0, b0) = path.at(time + e), path.at(time - e)
        q, b = path.at(time)
        drift, spin = path.motion(time)
        np.testing.assert_allclose(drift + spin @ (q @ x0 + b), (q1 @ x0 + b1 - q0 @ x0 - b0) / (2 * e), atol=1e-7)
    assert path.motion(-0.1) is None and path.motion(0.3) is None
    np.testing.assert_array_equal(path.at(9.0)[1], [0.05, 0, 0.01])


def test_a_path_file_with_a_mistake_gets_one_line(tmp_path):
    file, head = tmp_path / "tool.csv", "time_s,x_m,y_m,z_m,qx,qy,qz,qw\n"
    good = "0,0,0,0,0,0,0,1\n0.5,0,0.1,0,0,0,0,1\n"
    file.write_text(head + good)
    np.testing.assert_allclose(read_pose_path(file).at(0.25)[1], [0, 0.05, 0])
    for text, line in (
        ("", "must read time_s,x_m"),
        (head, "there must be one"),
        (head + "0,0,0,0,0,0,0,2\n", "the quaternion of line 2 has length 2; make it 1"),
        (head + good + "0.5,0,0,0,0,0,0,1\n", "time_s must rise"),
        (head + good + "0.7,0,x,0,0,0,0,1\n", "line 4 holds '0.7,0,x"),
        (head + good + "0.7,0,nan,0,0,0,0,1\n", "not 8 numbers"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=r"^[^\n]*$") as refused:
            read_pose_path(file)
        assert line in str(refused.value)


PARAMETERS = Parameters(
    np.array([8000.0]),
    0.3,
    1000.0,
    0.4,
    0.003,
    velocity_m_s=np.array([0.2, -0.3, 0.1]),
    angular_velocity_rad_s=np.array([1.0, 2.0, -3.0]),
)
NO_PLANE = ("plane_normal", "plane_offset_m")


@pytest.fixture(scope="module")
def block() -> Body:
    return build_body(sample(Box(size_m=(0.06, 0.04, 0.05)), 0.02))


def below(solid: Solid, **more) -> ContactLaw:
    """A contact with a solid under the block, spinning."""
    path = turning_path()
    place = SolidLaw(solid, Rotation.from_rotvec([0.4, 0.2, 0.1]).as_matrix(), np.array([0.0, -0.045, 0.005]), path)
    return ContactLaw(2e5, 500.0, obstacle=place, own=True, friction=0.4, slip_speed_m_s=0.03, **more)


@pytest.mark.parametrize(
    ("name", "scheme", "backend"),
    [
        ("ball", theta_scheme(0.01), "cpu"),
        ("field", theta_scheme(0.01), "cpu"),
        ("rod", hht_scheme(0.01), "cpu"),
        ("block", theta_scheme(0.01, 0.6), "reference"),
    ],
)
def test_every_derivative_of_steps_on_a_moving_solid(block, name, scheme, backend):
    """Two steps with friction on a solid that turns: its normals turn with it, and along it."""
    model = build_model(block, scheme, obstacles=[below(SOLIDS[name])], solver=SolverSettings(1e-13, 3000))
    where = choose_backend(backend)
    start = Simulation(model, PARAMETERS, where)
    assert start.term(ObstacleContact).force_n(start.initial_state())[1] > 0.01
    judge = ("youngs_modulus_pa", "velocity_m_s", "rotation_rad", "obstacle_shift_m")
    complete = model.complete(PARAMETERS)
    check_simulation(lambda p: Simulation(model, p, where), complete, 2, zero=NO_PLANE, judge=judge)


@pytest.mark.parametrize(
    ("name", "backend"), [("half-space", "cpu"), ("ball", "cpu"), ("block", "reference"), ("field", "cpu")]
)
def test_every_derivative_of_steps_on_a_solid_that_may_be_turned(block, name, backend):
    """Shifted, and turned by a third of a radian about a point that is not its own; with friction."""
    low = 0.03 if name == "half-space" else 0.045
    place = SolidLaw(
        SOLIDS[name], Rotation.from_rotvec([-1.3, 0.2, 0.1]).as_matrix(), np.array([0.0, -low, 0.005]),
        pivot_m=np.array([0.01, -0.03, 0.02]),
    )  # fmt: skip
    law = ContactLaw(2e5, 500.0, obstacle=place, own=True, friction=0.4, slip_speed_m_s=0.03)
    model = build_model(block, theta_scheme(0.01), obstacles=[law], solver=SolverSettings(1e-13, 3000))
    where, p = choose_backend(backend), model.complete(PARAMETERS)
    assert "obstacle_turn_rad" in p and place.posed and law.fused
    p = p.replace(obstacle_turn_rad=np.array([0.2, -0.1, 0.25]), obstacle_shift_m=np.array([0.001, 0.002, -0.001]))
    start = Simulation(model, p, where)
    assert start.term(ObstacleContact).force_n(start.initial_state())[1] > 0.01
    judge = ("youngs_modulus_pa", "velocity_m_s", "obstacle_shift_m", "obstacle_turn_rad")
    check_simulation(lambda q: Simulation(model, q, where), p, 2, zero=NO_PLANE, judge=judge)


@pytest.mark.parametrize(("solver", "backend"), [("theta", "cpu"), ("hht", "reference")])
def test_every_derivative_of_steps_between_solids_that_are_each_shifted_and_turned(block, solver, backend):
    """A shelf below and a rod beside the block, pressed by both: each with its own shift and turn, both with that of
    all; the last one's turn alone is that of all."""
    tilted = Rotation.from_rotvec([-1.3, 0.2, 0.1]).as_matrix()
    low = SolidLaw(
        BLOCK, tilted, np.array([0.0, -0.045, 0.005]), pivot_m=np.array([0.01, -0.03, 0.02]),
        turn="obstacle_0_turn_rad", shifts=("obstacle_shift_m", "obstacle_0_shift_m"),
    )  # fmt: skip
    beside = SolidLaw(
        ROD, tilted, np.array([0.05, 0.0, 0.0]), pivot_m=np.array([0.05, 0.0, 0.0]), turn="obstacle_1_turn_rad",
        shifts=("obstacle_shift_m", "obstacle_1_shift_m"),
    )  # fmt: skip
    above = SolidLaw(BALL, centre_m=np.array([0.0, 0.045, 0.0]), pivot_m=np.array([0.01, 0.03, 0.02]))
    laws = [
        ContactLaw(2e5, 500.0, obstacle=place, own=True, friction=0.4, slip_speed_m_s=0.03)
        for place in (low, beside, above)
    ]
    scheme = theta_scheme(0.01) if solver == "theta" else hht_scheme(0.01)
    model = build_model(block, scheme, obstacles=laws, solver=SolverSettings(1e-13, 3000))
    assert all(law.obstacle.posed and law.fused for law in laws)
    p = model.complete(PARAMETERS)
    own = {f"obstacle_{k}_{what}" for k in (0, 1) for what in ("shift_m", "turn_rad")}
    posed = {name for name in p if name.startswith("obstacle")}
    assert posed == own | {"obstacle_shift_m", "obstacle_turn_rad"}
    rng = np.random.default_rng(3)
    p = p.replace(**{n: rng.normal(size=3) * (0.1 if n.endswith("rad") else 0.001) for n in sorted(posed)})
    where = choose_backend(backend)
    rows = check_simulation(lambda q: Simulation(model, q, where), p, 2, zero=NO_PLANE, judge=posed)
    felt = {row.label: row.adjoint for row in rows}
    assert all(felt[name] != 0.0 for name in own), felt  # a test that can fail


def test_a_turn_is_one_about_the_pivot():
    """Of a ball about a point beside it: the ball is where that takes it."""
    pivot, centre, turn = np.array([0.1, 0.0, 0.0]), np.array([0.1, 0.2, 0.0]), np.array([0.0, 0.0, np.pi / 2])
    law = SolidLaw(BALL, centre_m=centre, pivot_m=pivot)
    values = Parameters(1e4, 0.3, 1000.0, obstacle_turn_rad=turn, obstacle_shift_m=np.array([0.0, 0.0, 0.3]))
    there = np.array([[-0.1, 0.0, 0.3]])
    found = law.bind(choose_backend("cpu"), values).distance(there, 0.0)
    np.testing.assert_allclose(found, BALL.distance(np, np.zeros((1, 3))), atol=1e-15)


def test_what_is_led_is_not_turned():
    with pytest.raises(ValueError, match="on a path cannot be turned"):
        SolidLaw(BALL, path=turning_path(), pivot_m=np.zeros(3))


def test_every_derivative_of_steps_that_minimise(block):
    """Newton's matrix leaves out how a ball's normals turn: derivatives go by rounds."""
    law = replace(below(BALL), friction=0.2)
    model = build_model(
        block,
        theta_scheme(0.01),
        obstacles=[law],
        solver=SolverSettings(1e-13, 3000, 60, 1e-13),
        material="neo_hookean",
    )
    check_simulation(lambda p: Simulation(model, p), PARAMETERS, 1, zero=NO_PLANE, judge=("youngs_modulus_pa",))


def squeezed(solid: Solid, reach: float, overlap: float) -> tuple[float, float]:
    """Force [N] and radius [m] of the contact of a soft ball, held in its middle, between two solids.

    reach: from a solid's centre to its surface [m]. overlap: of ball and solid, undeformed [m].
    """
    radius, young, nu = 0.02, 1e5, 0.3
    body = build_body(sample(Sphere(radius), radius / 8))
    held = FixedRegion(Box((0.004,) * 3))
    laws = [
        ContactLaw(
            3e9, 2e4, own=True,
            obstacle=SolidLaw(solid, np.diag([1.0, s, s]), np.array([0.0, 0.0, -s * (radius + reach - overlap)])),
        )
        for s in (1.0, -1.0)
    ]  # fmt: skip
    model = build_model(body, theta_scheme(0.01), fixed=[held], obstacles=laws)
    simulation = Simulation(model, Parameters(young, nu, 1000.0, gravity_m_s2=(0, 0, 0)))
    state, _ = solve_static(simulation, tolerance=1e-4)
    contact = simulation.term(ObstacleContact)
    at = contact.touched.near(state.u, 0.0)
    press = at.press
    return float(press.sum()), float(np.sqrt(2.5 * (press * (at.x[:, :2] ** 2).sum(axis=1)).sum() / press.sum()))


def test_a_soft_ball_on_a_rigid_ball_is_hertz():
    """F = 4/3 E* √R* d^{3/2}, a = (3 F R*/(4 E*))^{1/3}, E* = E/(1 - ν²), 1/R* = 1/R₁ + 1/R₂.

    The contact's radius follows from the force alone, within 5 %; the force at an overlap d also from what the rest of
    the ball gives, which is that against a plane: of their ratio √(R*/R₁) = 0.707, within 5 %. Seen: +1.0 and
    -2.4 % with a = 1.7 cells, a tenth of the radius.
    """
    radius, overlap = 0.02, 0.0016
    force, found = squeezed(Round((0.0, 0.0, 0.0), radius), radius, overlap)
    hertz = (3 * force * (radius / 2) * (1 - 0.3**2) / (4 * 1e5)) ** (1 / 3)
    assert found == pytest.approx(hertz, rel=0.05)
    on_plane, _ = squeezed(HalfSpace(), 0.0, overlap)
    assert force / on_plane == pytest.approx(np.sqrt(0.5), rel=0.05)


def upright(normal: tuple[float, float, float]) -> np.ndarray:
    """A rotation that puts z along a direction."""
    return Rotation.align_vectors([np.array(normal) / np.linalg.norm(normal)], [[0.0, 0.0, 1.0]])[0].as_matrix()


@pytest.mark.parametrize("name", ["edge", "gap", "corner"])
def test_nothing_falls_through(name):
    """A soft ball dropped on a box's edge, into the gap of two tilted planes, into a corner of three: after 0.4 s its
    centre is still above, its energy not above that of the start by more than 1 %, and no step fell back."""
    body = build_body(sample(Sphere(0.03), 0.012))
    tilted = Rotation.from_rotvec([0, 0, np.pi / 4]).as_matrix()
    places = {
        "edge": [SolidLaw(Round((0.1, 0.03, 0.1), 0.002), tilted, np.array([0, -0.095, 0]))],
        "gap": [SolidLaw(HalfSpace(), upright((s, 0.7, 0.0))) for s in (1, -1)],
        "corner": [SolidLaw(HalfSpace(), upright(n)) for n in ((1, 0.7, 0.6), (-1, 0.7, 0.6), (0, 0.7, -1))],
    }[name]
    laws = [ContactLaw(1e7, 2000.0, obstacle=place, own=True, friction=0.3) for place in places]
    model = build_model(body, theta_scheme(0.004), obstacles=laws)
    parameters = Parameters(5e4, 0.35, 1000.0, 0.0, 1e-3, translation_m=(0.001, 0.06, 0.002))
    simulation = Simulation(model, parameters)
    state = simulation.initial_state()
    start = balance(simulation, state).total_j
    for _ in range(100):
        state, report = simulation.step(state)
        assert not report.retaken_parts
    end = balance(simulation, state)
    deepest = min(
        place.bind(simulation.backend, parameters).distance(body.surface_positions_m(state.u), 0.0).min()
        for place in places
    )
    assert deepest > -0.002
    assert end.total_j <= start + 0.01 * abs(start)
