"""Contact with a plane: balance, independence of the grid, both ways to step it, and its energy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from soft_estimator.backends.cpu.contact import softplus_and_slope
from soft_estimator.backends.cpu.soft_contact import softplus_integral
from soft_estimator.geometry.shapes import Box, Placed, Sphere, sample
from soft_estimator.geometry.surface import extract_surface
from soft_estimator.physics.body import build_body
from soft_estimator.physics.energy import balance
from soft_estimator.physics.integrator import hht_scheme, theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.statics import solve_static
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import Contact, ContactLaw
from soft_estimator.physics.terms.interface import Assembly

DENSITY, GRAVITY = 1000.0, 9.81
HARD, SOFT = ContactLaw(1e6, 2000.0), ContactLaw(1e5, 500.0)
BOX = Box((0.1, 0.06, 0.08))


def simulation_of(body, law, parameters, scheme=None, tolerance=1e-6):
    model = build_model(body, scheme or hht_scheme(0.01), contact=law, solver=SolverSettings(tolerance, 5000))
    return Simulation(model, parameters)


def resting(shape, h, law, height_m, tolerance, youngs_modulus_pa=2e4):
    """The body at rest on the floor, started touching it."""
    body = build_body(sample(shape, h, align="origin"))
    parameters = Parameters(youngs_modulus_pa, 0.3, DENSITY, translation_m=(0, height_m, 0))
    simulation = simulation_of(body, law, parameters)
    return simulation, solve_static(simulation, tolerance=tolerance)[0]


@pytest.mark.parametrize("law", [HARD, SOFT], ids=["hard", "soft"])
def test_static_rest_is_carried_by_the_weight(law):
    """Contact force = m g n on a plane of any tilt, gravity along -n: 1e-3 is asked, the solve leaves 1e-5."""
    normal = np.array([0.3, 0.8, -0.5])
    normal /= np.linalg.norm(normal)
    turn = Rotation.align_vectors(normal[None], [[0.0, 1.0, 0.0]])[0].as_rotvec()
    body = build_body(sample(BOX, 0.01))
    offset = 0.2
    parameters = Parameters(
        2e4,
        0.3,
        DENSITY,
        gravity_m_s2=-GRAVITY * normal,
        plane_normal=normal,
        plane_offset_m=offset,
        rotation_rad=turn,
        translation_m=(0.03 - offset) * normal,
    )
    simulation = simulation_of(body, law, parameters)
    state, _ = solve_static(simulation, tolerance=1e-5)
    weight = DENSITY * GRAVITY * body.volume_m3
    np.testing.assert_allclose(balance(simulation, state).contact_force_n, weight * normal, atol=1e-4 * weight)


@pytest.mark.parametrize("implicit", [True, False])
def test_damped_fall_comes_to_rest_on_the_weight(implicit):
    """A ball dropped from 5 mm with damping: after 1.5 s the floor carries its weight to 1e-3, nothing moves."""
    body = build_body(sample(Sphere(0.05), 0.0125))
    parameters = Parameters(2e4, 0.3, DENSITY, 20.0, 0.01, translation_m=(0, 0.055, 0))
    law = ContactLaw(SOFT.stiffness_pa_per_m, SOFT.sharpness_per_m, implicit)
    simulation = simulation_of(body, law, parameters)
    state = simulation.initial_state()
    for _ in range(150):
        state, _ = simulation.step(state)
    weight = DENSITY * GRAVITY * body.volume_m3
    force = balance(simulation, state).contact_force_n
    np.testing.assert_allclose(force, (0, weight, 0), atol=1e-3 * weight)


def test_penetration_of_a_stiff_block_has_a_closed_form():
    """Pressure ρ g H = k log(1 + exp(-a δ))/a under all of a stiff block, so δ = -log(exp(a ρ g H/k) - 1)/a; the block
    gives a little (E = 10 MPa), 1 % allowed."""
    simulation, state = resting(BOX, 0.01, HARD, 0.03, 1e-6, youngs_modulus_pa=1e7)
    t = HARD.sharpness_per_m * DENSITY * GRAVITY * 0.06 / HARD.stiffness_pa_per_m
    expected = -np.log(np.expm1(t)) / HARD.sharpness_per_m
    heights = simulation.model.body.surface_positions_m(state.u)[:, 1]
    assert heights.min() == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("law", [HARD, SOFT], ids=["hard", "soft"])
def test_penetration_of_a_block_does_not_depend_on_the_grid(law):
    """A block whose sharp edges lie on grid planes, at 6 and at 12 cells of height: the issue's 5 %.

    What is left is the feet of the walls, which the finer grid sees within reach of the plane (1.5-2 %). Areas taken at
    the vertices, walls counted in full at the bottom edge, gave 32 %.
    """
    depth = []
    for h in (0.01, 0.005):
        simulation, state = resting(BOX, h, law, 0.03, 1e-5, youngs_modulus_pa=1e6)
        depth.append(-simulation.model.body.surface_positions_m(state.u)[:, 1].min())
    assert depth[1] == pytest.approx(depth[0], rel=0.05)


@pytest.mark.parametrize("centre", [(0.001, 0.0023, 0.0017), (0.0, 0.0, 0.0)], ids=["anywhere", "on a node"])
@pytest.mark.parametrize("law", [HARD, SOFT], ids=["hard", "soft"])
def test_penetration_of_a_ball_does_not_depend_on_the_grid(law, centre):
    """Deepest surface point of a ball at rest at R = 6 h and 12 h: within the issue's 5 %, as each triangle stands for
    its area.

    A ball may roll on a frictionless plane at no cost, and the last half percent of the balance is the faceted ball
    rolling to its favourite facet: 6e-3 is enough for the depth.
    """
    depth = []
    for h in (0.05 / 6, 0.05 / 12):
        simulation, state = resting(Sphere(0.05, centre), h, law, 0.05 - centre[1], 6e-3)
        depth.append(-simulation.model.body.surface_positions_m(state.u)[:, 1].min())
    assert depth[0] > 2e-3
    assert depth[1] == pytest.approx(depth[0], rel=0.05)


def bodies():
    """With edges on grid planes, with slivers anyhow, and with specks of slivers away from the rest."""
    rng = np.random.default_rng(3)
    turned = Placed(Box((0.07, 0.05, 0.06)), Rotation.from_rotvec(rng.normal(size=3)).as_matrix(), (0.001, 0.002, 0))
    for shape, h, options in (
        (BOX, 0.01, {}),
        (Sphere(0.05, (0.001, 0.0023, 0.0017)), 0.05 / 8, {}),
        (turned, 0.009, {}),
        (turned, 0.012, {"min_fill": 0.3}),
    ):
        yield build_body(sample(shape, h, align="origin"), **options)


def test_contact_points_are_the_middles_of_the_triangles():
    """Σ_p weight_p x_p is a triangle's middle at rest, also where a neighbour carries a sliver's triangle (the order is
    the cells'); weights sum to 1, so a shift of the body is a shift of the points; areas sum to the mesh's."""
    for body in bodies():
        points, simulation = body.contact_points, simulation_of(body, HARD, Parameters(1e4, 0.3, DENSITY))
        grid = body.grid
        mesh = extract_surface(grid)
        triangles = mesh.positions_m(grid.node_positions_m())[mesh.faces]
        middle, place = triangles.mean(axis=1), simulation.device.at_points(body.node_position_m)
        gap = cKDTree(middle).query(place)[0]
        assert gap.max() < 1e-9 * grid.spacing_m
        np.testing.assert_allclose(points.weight.sum(axis=1), 1.0, atol=1e-12)
        cross = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
        assert points.area_m2.sum() == pytest.approx(0.5 * np.linalg.norm(cross, axis=1).sum(), rel=1e-12)
        inside = np.repeat(np.arange(body.cell_count), np.diff(points.point_start))
        np.testing.assert_array_equal(points.nodes, body.cell_nodes[inside])


def test_point_areas_cover_the_surface():
    """Σ area = 4πR², within 1 % at R = 8 h: what makes the penalty a pressure."""
    body = build_body(sample(Sphere(0.05), 0.05 / 8))
    assert body.contact_points.area_m2.sum() == pytest.approx(4 * np.pi * 0.05**2, rel=0.01)


def bounced(implicit, dt):
    """Centre height and velocity [m, m/s] of a small ball 0.1 s after it fell from 4 mm."""
    body = build_body(sample(Sphere(0.02), 0.008))
    law = ContactLaw(SOFT.stiffness_pa_per_m, SOFT.sharpness_per_m, implicit)
    parameters = Parameters(1e4, 0.3, DENSITY, 1.0, 0.001, translation_m=(0, 0.024, 0))
    simulation = simulation_of(body, law, parameters, theta_scheme(dt), 1e-10)
    state = simulation.initial_state()
    for _ in range(round(0.1 / dt)):
        state, _ = simulation.step(state)
    return body.node_position_m + state.u


def test_implicit_and_extrapolated_contact_agree_for_small_steps():
    """Both are consistent: their difference vanishes with Δt, by 3 or more for each halving (second order is 4)."""
    gaps = [np.abs(bounced(True, dt) - bounced(False, dt)).max() for dt in (4e-3, 2e-3, 1e-3)]
    assert gaps[2] < 1e-4
    assert gaps[0] / gaps[1] > 3 and gaps[1] / gaps[2] > 3


def test_softmin_is_safe_for_any_depth():
    """log(1 + e^-t) = logaddexp(0, -t) and σ = 1/(1 + e^t), for t from -1e9 to 1e9: no overflow, limits exact."""
    a = 3.0
    for t in (-1e9, -800.0, -50.0, -1.0, -1e-9, 0.0, 1e-9, 1.0, 50.0, 700.0, 1e9):
        depth, slope = softplus_and_slope(a, t / a)
        assert depth == pytest.approx(np.logaddexp(0.0, -t) / a, rel=1e-13, abs=1e-300)
        assert slope == pytest.approx(np.exp(-np.logaddexp(0.0, t)), rel=1e-12, abs=1e-300)
    step = 1e-5
    for x in np.linspace(-2, 2, 9):
        slope = (softplus_and_slope(a, x - step)[0] - softplus_and_slope(a, x + step)[0]) / (2 * step)
        assert softplus_and_slope(a, x)[1] == pytest.approx(slope, rel=1e-8)


def test_body_started_deep_under_the_floor_is_pushed_out():
    """Ten metres under a hard floor: forces of 1e10 Pa, but no overflow, and the centre moves up."""
    body = build_body(sample(Sphere(0.02), 0.008))
    parameters = Parameters(1e5, 0.3, DENSITY, translation_m=(0, -10.0, 0))
    simulation = simulation_of(body, HARD, parameters, theta_scheme(0.01, 1.0))
    state = simulation.initial_state()
    for _ in range(20):
        state, _ = simulation.step(state)
        assert np.isfinite(state.u).all()
    assert balance(simulation, state).centre_of_mass_m[1] > -10.0


def test_contact_energy_is_the_integral_of_the_force():
    """E(δ) = ∫_δ^∞ softplus: by quadrature, to the last digits, also far under and far over the plane."""
    a = 40.0
    for distance in (-2.0, -0.3, -0.01, 0.0, 0.02, 0.2):
        expected, _ = quad(lambda t: np.logaddexp(0.0, -a * t) / a, distance, distance + 3.0, limit=200, epsabs=1e-15)
        assert softplus_integral(a, np.array([distance]))[0] == pytest.approx(expected, rel=1e-8, abs=1e-12)
    assert np.isfinite(softplus_integral(a, np.array([-1e8, 1e8]))).all()


@pytest.mark.parametrize(("widths", "felt"), [(30.0, True), (44.0, True), (50.0, False)])
def test_what_lies_far_away_is_felt_as_the_law_says_and_then_not_at_all(widths, felt):
    """Σ k A log(1 + exp(-a δ))/a, which is 1e-20 of firm contact at 46 widths 1/a; beyond, where no derivative is taken
    either, it is zero to the bit, as it is where a step's energy is watched. Points over 60 widths away are left out:
    e⁻¹⁶ = 1e-7 of a face's force at 44."""
    body = build_body(sample(BOX, 0.02))
    offset = 0.03 + widths / SOFT.sharpness_per_m
    simulation = simulation_of(body, SOFT, Parameters(1e4, 0.3, DENSITY, plane_offset_m=offset))
    contact, device = simulation.term(Contact), simulation.device
    stage, _ = simulation.force_balance(device.zero)
    out, residual = np.zeros((2, body.node_count, 3))
    contact.add_force(stage, contact.prepare(stage), out)
    contact.add_residual(stage, contact.prepare(stage), residual)
    distance = device.rest_points[:, 1] + offset
    pressure = SOFT.stiffness_pa_per_m * np.log1p(np.exp(-SOFT.sharpness_per_m * distance)) / SOFT.sharpness_per_m
    expected = (device.point_area * pressure).sum() if felt else 0.0
    watched = balance(simulation, stage.state).contact_force_n
    for force in (out.sum(axis=0), residual.sum(axis=0), watched):
        np.testing.assert_allclose(force, [0.0, expected, 0.0], rtol=1e-6, atol=0.0)
    assert (expected > 0.0) == felt


@pytest.mark.parametrize("min_fill", [0.02, 0.3])
def test_contact_force_and_stiffness_are_derivatives_of_the_energy(min_fill):
    """f = -∂E/∂u and C = -∂f/∂u = Cᵀ of the whole body, by central differences: O(ε²) of the fourth digit's square.
    With min_fill = 0.3 many triangles lie in slivers and ride on a neighbouring cell."""
    body = build_body(sample(Sphere(0.02, (0.001, 0.002, 0.0005)), 0.008, align="origin"), min_fill=min_fill)
    normal = np.array([0.2, 0.9, 0.1]) / np.linalg.norm([0.2, 0.9, 0.1])
    simulation = simulation_of(body, SOFT, Parameters(1e4, 0.3, DENSITY, plane_normal=normal, plane_offset_m=0.005))
    rng = np.random.default_rng(1)
    u, du = rng.normal(size=(2, body.node_count, 3)) * 1e-3
    contact = simulation.term(Contact)

    def energy_and_force(at):
        stage, _ = simulation.force_balance(at)
        out = np.zeros_like(at)
        contact.add_force(stage, contact.prepare(stage), out)
        return contact.energies_j(stage.state, stage.rotations)["contact_j"], out

    step = 1e-3
    (e_plus, f_plus), (e_minus, f_minus) = (energy_and_force(u + sign * step * du) for sign in (1, -1))
    assert (energy_and_force(u)[1] * du).sum() == pytest.approx(-(e_plus - e_minus) / (2 * step), rel=1e-6)
    stage, _ = simulation.force_balance(u)
    stage = replace(stage, scheme=replace(stage.scheme, c_k=1.0))
    assembly = Assembly(simulation.device)
    contact.add_blocks(stage, contact.prepare(stage), assembly)
    matrix = simulation.system_of(assembly).to_scipy(simulation.backend)
    assert abs(matrix - matrix.T).max() <= 1e-12 * abs(matrix).max()
    difference = -(f_plus - f_minus).ravel() / (2 * step)
    np.testing.assert_allclose(matrix @ du.ravel(), difference, atol=1e-6 * np.abs(difference).max())


def test_bounce_keeps_the_total_energy():
    """Undamped, 1 ms steps: kinetic + elastic + gravity + contact stays within 1 % of the energy of the fall through a
    bounce, while each of them changes by most of it."""
    body = build_body(sample(Sphere(0.02), 0.008))
    parameters = Parameters(1e4, 0.3, DENSITY, translation_m=(0, 0.03, 0))
    simulation = simulation_of(body, SOFT, parameters, theta_scheme(1e-3), 1e-9)
    state = simulation.initial_state()
    start = balance(simulation, state)
    fall = DENSITY * GRAVITY * body.volume_m3 * 0.01
    totals, contact = [], []
    for _ in range(120):
        state, _ = simulation.step(state)
        now = balance(simulation, state)
        totals.append(now.total_j - start.total_j)
        contact.append(now.contact_j)
    assert max(contact) > 0.5 * fall  # it did bounce
    assert np.abs(totals).max() < 0.01 * fall


def test_law_refuses_nonsense():
    with pytest.raises(ValueError, match=r"stiffness_pa_per_m = -1\.0 must be positive"):
        ContactLaw(-1.0, 100.0)
