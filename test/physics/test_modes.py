"""Modes of a body, and motions that start bent and swinging along them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gradient_suite import check_simulation

from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.shapes import Box, Sphere, Torus, interpolated, sample
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.matrices import assemble_matrices
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.modes import Modes, lowest_modes
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation

RADIUS_M = 0.05
SOFT = Parameters(8e3, 0.3, 1000.0, gravity_m_s2=np.zeros(3))


def modes_of(model: Model, parameters: Parameters, count: int) -> Modes:
    return lowest_modes(*assemble_matrices(Simulation(model, parameters)).parts, count)


@pytest.fixture(scope="module")
def ball() -> Body:
    return build_body(sample(Sphere(RADIUS_M), RADIUS_M / 4))


def test_a_free_ball_has_no_rigid_modes_and_those_of_the_closed_form(ball):
    """ωR/c_s of the two lowest kinds of modes of a free sphere at ν .3 are 2.50113 (torsion) and 2.64622, five each:
    within 2 % on eight cells across. Shapes have root mean square 1 over the mass."""
    model = build_model(ball, theta_scheme(0.005))
    found = modes_of(model, SOFT, 10)
    shear_m_s = np.sqrt(8e3 / 2.6 / 1000.0)
    exact = np.repeat([2.50113, 2.64622], 5) * shear_m_s / RADIUS_M / (2 * np.pi)
    np.testing.assert_allclose(found.hertz, exact, rtol=0.02)
    mass = ball.mass_matrix_m3
    means = [np.sum(shape * (mass @ shape)) / mass.sum() for shape in found.shapes]
    np.testing.assert_allclose(means, 1.0, rtol=1e-9)
    rigid = [np.abs((mass @ shape).sum(axis=0)).max() / mass.sum() for shape in found.shapes]
    assert max(rigid) < 1e-6


def test_a_held_body_has_as_many_modes_as_asked_for(ball):
    """Nothing of a body that is held costs nothing; held nodes stay."""
    model = build_model(ball, theta_scheme(0.005), fixed=[FixedRegion(Box((0.2, 0.02, 0.2), (0.0, 0.05, 0.0)))])
    found = modes_of(model, SOFT, 4)
    held = model.dirichlet.free == 0
    assert found.count == 4 and held.any() and not found.shapes[:, held].any()


@pytest.mark.parametrize("bent", [True, False], ids=["bent", "swinging"])
def test_a_start_along_a_mode_swings_at_its_frequency(ball, bent):
    """Undamped and free: the part along the mode goes as cos ωt, or as sin ωt / ω. The θ-scheme with θ = ½ slows it by
    (ωΔt)²/12, 0.2 % here, and lagging rotations matter by the square of a strain of 1 %: within 2 % over a period."""
    plain = build_model(ball, theta_scheme(0.001), solver=SolverSettings(1e-10, 2000))
    modes = modes_of(plain, SOFT, 7)
    k, omega = 6, 2 * np.pi * modes.hertz[6]
    amount = np.zeros(7)
    amount[k] = 2e-4
    name = "modal_displacement_m" if bent else "modal_velocity_m_s"
    simulation = Simulation(replace(plain, modes=modes), SOFT.replace(**{name: amount}))
    mass, state, seen = ball.mass_matrix_m3 / ball.mass_matrix_m3.sum(), simulation.initial_state(), []
    shape = mass @ modes.shapes[k]
    steps = round(1 / modes.hertz[k] / 0.001)
    for _ in range(steps):
        seen.append(float(np.sum(shape * state.u)))
        state, _ = simulation.step(state)
    t = 0.001 * np.arange(steps)
    want = 2e-4 * (np.cos(omega * t) * modes.hertz[0] / modes.hertz[k] if bent else np.sin(omega * t) / omega)
    assert np.abs(np.array(seen) - want).max() < 0.02 * np.abs(want).max()


def test_every_derivative():
    """Of a torus that spins, is bent and swings, before it lands: amplitudes among all other parameters."""
    body = build_body(sample(Torus(major_radius_m=0.05, minor_radius_m=0.02, axis=(0, 0.3, 1)), 0.014))
    plain = build_model(body, theta_scheme(0.01), solver=SolverSettings(1e-13, 2000))
    given = Parameters(
        5e3, 0.3, 1000.0, 2.0, 0.003,
        rotation_rad=np.array([0.2, -0.1, 0.3]),
        velocity_m_s=np.array([0.2, -0.3, 0.1]),
        angular_velocity_rad_s=np.array([1.0, 2.0, -3.0]),
        modal_displacement_m=np.array([2e-3, -1e-3, 1.5e-3]),
        modal_velocity_m_s=np.array([0.1, 0.05, -0.07]),
    )  # fmt: skip
    model = replace(plain, modes=modes_of(plain, given, 3))
    judge = ("youngs_modulus_pa", "rotation_rad", "modal_displacement_m", "modal_velocity_m_s")
    check_simulation(lambda p: Simulation(model, p), given, 2, judge=judge)


def test_shapes_are_carried_to_a_finer_grid(ball):
    """Linear fields are carried exactly wherever the coarse body has all nodes around a fine one."""
    grid = ball.grid
    fine = build_body(
        SignedDistanceGrid(interpolated(grid.phi_m, 2), grid.origin_m, 0.5 * grid.spacing_m), correct=False
    )
    slope = np.array([[0.3, -0.1, 0.2], [0.0, 0.5, 0.1], [-0.2, 0.4, 0.6]])
    linear = Modes(np.ones(1), (ball.node_position_m @ slope)[None])
    found, want = linear.on(ball, fine).shapes[0], fine.node_position_m @ slope
    inside = np.linalg.norm(fine.node_position_m, axis=1) < RADIUS_M
    np.testing.assert_allclose(found[inside], want[inside], atol=1e-12)
    assert np.abs(found - want).max() < grid.spacing_m
