"""Patch tests: what an affine map and a rigid motion must do to a cut body, to rounding."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.shapes import Box, Placed, Sphere, Torus, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters, lame
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.corotated import Corotated

YOUNG = 4000.0
SHAPES = {
    "sphere": (Sphere(0.1, (0.003, -0.002, 0.001)), 0.021),
    "torus": (Torus(0.08, 0.03, axis=(0.3, 1.0, 0.2)), 0.013),
    "tilted box": (Placed(Box((0.2, 0.1, 0.06)), rotation_matrix(np.array([0.3, 0.5, -0.2])), (0, 0, 0)), 0.014),
}


@pytest.fixture(scope="module", params=SHAPES)
def simulation(request):
    """A free body without gravity; every cell kept, so that the surface is the whole of the cut cells'."""
    shape, h = SHAPES[request.param]
    body = build_body(sample(shape, h), min_fill=0.0)
    parameters = Parameters(YOUNG, 0.3, 1000.0, gravity_m_s2=np.zeros(3))
    return Simulation(build_model(body, theta_scheme(0.01)), parameters)


def internal_force(simulation, u, turned=None):
    device, term = simulation.device, simulation.term(Corotated)
    corner = np.empty((device.cells, 24))
    turned = device.rotations(u) if turned is None else turned
    device.backend.cell_forces(u, device.zero, 1.0, turned, *term.cell_arguments, corner)
    return device.gathered(corner)


def inner_nodes(body):
    """Nodes around which all eight cells are whole: the boundary does not reach their shape functions."""
    whole = (body.node_cells >= 0).all(axis=1)
    full = body.cells.gradient_index == 0
    return whole & full[body.node_cells].all(axis=1)


def test_affine_displacement_is_felt_at_the_surface_only(simulation):
    """u = A x: σ = λ tr(ε) I + 2με is constant, so ∫B_iᵀσ = σ ∫∇N_i = σ ∫_Γ N_i n: zero inside, the surface traction at
    the boundary. Both hold to rounding: 1e-9 of the largest nodal force of a single cell."""
    body, s = simulation.model.body, simulation
    a = np.random.default_rng(1).normal(size=(3, 3)) * 0.01
    u = body.node_position_m @ a.T + np.array([0.1, -0.2, 0.05])
    still = np.tile(np.eye(3).ravel(), (body.cell_count, 1))  # rotations at rest: the linear theory
    force = internal_force(s, u, still)
    lam, mu = lame(0.3)
    strain = 0.5 * (a + a.T)
    stress = YOUNG * (lam * np.trace(strain) * np.eye(3) + 2 * mu * strain)
    traction = np.zeros_like(force)
    np.add.at(traction, body.cell_nodes, body.cells.boundary_normals_m2 @ stress)
    scale = np.abs(stress).max() * body.grid.spacing_m**2
    inner = inner_nodes(body)
    assert inner.sum() > 5
    assert np.abs(force[inner]).max() < 1e-9 * scale
    np.testing.assert_allclose(force, traction, atol=1e-9 * scale)


def test_corotated_affine_displacement(simulation):
    """x + u = F x with F = R S: every cell finds R, its strain is S - I, and the force is R σ(S - I) ∫N_i n."""
    body, s = simulation.model.body, simulation
    rng = np.random.default_rng(2)
    stretch = rng.normal(size=(3, 3)) * 0.05
    stretch = np.eye(3) + 0.5 * (stretch + stretch.T)
    turn = rotation_matrix(rng.normal(size=3) * 1.3)
    u = body.node_position_m @ (turn @ stretch).T - body.node_position_m
    np.testing.assert_allclose(s.device.rotations(u), np.tile(turn.ravel(), (body.cell_count, 1)), atol=1e-12)
    lam, mu = lame(0.3)
    strain = stretch - np.eye(3)
    stress = YOUNG * (lam * np.trace(strain) * np.eye(3) + 2 * mu * strain)
    traction = np.zeros_like(u)
    np.add.at(traction, body.cell_nodes, body.cells.boundary_normals_m2 @ stress @ turn.T)
    scale = np.abs(stress).max() * body.grid.spacing_m**2
    np.testing.assert_allclose(internal_force(s, u), traction, atol=1e-9 * scale)


def turns():
    rng = np.random.default_rng(3)
    axes = rng.normal(size=(8, 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    angles = [1e-6, 0.3, 1.0, 0.5 * np.pi, 2.0, 3.0, np.pi, 5.0]
    return [angle * axis for angle, axis in zip(angles, axes)] + [np.array([np.pi, 0, 0]), np.array([0, 0, -np.pi / 2])]


@pytest.mark.parametrize("turn", turns(), ids=lambda r: f"{np.degrees(np.linalg.norm(r)):.3g} degrees")
def test_rigid_motion_gives_no_force(simulation, turn):
    """u = (Q - I)(x - c) + b for any angle: zero force, to rounding of E h² (the force of a strain of one)."""
    body, s = simulation.model.body, simulation
    q = rotation_matrix(turn)
    u = (body.node_position_m - 0.7) @ (q - np.eye(3)).T + np.array([3.0, -1.0, 2.0])
    np.testing.assert_allclose(s.device.rotations(u), np.tile(q.ravel(), (body.cell_count, 1)), atol=1e-12)
    assert np.abs(internal_force(s, u)).max() < 1e-9 * YOUNG * body.grid.spacing_m**2


def test_elastic_force_is_objective(simulation):
    """f(Q∘(x+u)) = Q f(x+u): turning a deformed body turns its force, whatever the deformation."""
    body, s = simulation.model.body, simulation
    rng = np.random.default_rng(4)
    u = rng.normal(size=(body.node_count, 3)) * 0.1 * body.grid.spacing_m
    q = rotation_matrix(rng.normal(size=3) * 2.0)
    turned = (body.node_position_m + u) @ q.T - body.node_position_m
    expected = internal_force(s, u) @ q.T
    np.testing.assert_allclose(internal_force(s, turned), expected, atol=1e-10 * np.abs(expected).max())


def test_internal_force_moves_no_centre(simulation):
    """Σ f = 0 for any displacement: internal forces cannot push the body as a whole."""
    body = simulation.model.body
    u = np.random.default_rng(5).normal(size=(body.node_count, 3)) * body.grid.spacing_m
    force = internal_force(simulation, u)
    assert np.abs(force.sum(axis=0)).max() < 1e-12 * np.abs(force).sum()


def test_slivers_do_not_spoil_the_patch():
    """With the default sliver removal a constant strain still gives no force away from the surface."""
    shape, h = SHAPES["sphere"]
    body = build_body(sample(shape, h))
    parameters = Parameters(YOUNG, 0.3, 1000.0, gravity_m_s2=np.zeros(3))
    s = Simulation(build_model(body, theta_scheme(0.01)), parameters)
    a = np.random.default_rng(6).normal(size=(3, 3)) * 0.01
    u = body.node_position_m @ a.T
    still = np.tile(np.eye(3).ravel(), (body.cell_count, 1))
    force = internal_force(s, u, still)
    assert np.abs(force[inner_nodes(body)]).max() < 1e-9 * np.abs(force).max()
