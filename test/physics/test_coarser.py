"""The body on a grid twice as coarse: fields between the grids, and the changes of a bounce on both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.camera.observing import surface_frame
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.interface import Kinds
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.estimation.trajectory import initial_moment, trajectory_from
from soft_estimator.estimation.variables import make_variables
from soft_estimator.geometry.shapes import Box, Shape, Sphere, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.coarser import CoarserModel, coarser_model
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

TRUTH = Parameters(
    8000.0, 0.4, 1000.0, 0.0, 0.003, translation_m=np.array([0.0, 0.056, 0.0]), velocity_m_s=[0.05, -1.0, 0.0]
)


def model_of(shape: Shape, spacing_m: float, **more) -> Model:
    body = build_body(sample(shape, spacing_m))
    return build_model(body, theta_scheme(0.01), contact=ContactLaw(1e6, 1000.0), **more)


@pytest.fixture(scope="module")
def ball() -> Model:
    return model_of(Sphere(radius_m=0.05), 0.0105)


@pytest.fixture(scope="module")
def grids(ball: Model) -> CoarserModel:
    found = coarser_model(ball)
    assert found is not None
    return found


def test_affine_fields_and_the_volume_are_the_same_on_both_grids(ball: Model, grids: CoarserModel) -> None:
    """P and R take x to A x + b on the other grid's nodes, to rounding; the cells are cut along the fine surface, so
    both bodies hold the same volume but for cells that hardly hold anything (2 % of one at most)."""
    fine, coarse = ball.body, grids.model.body
    assert coarse.cell_count < fine.cell_count / 5
    rng = np.random.default_rng(0)
    turn, shift = rng.normal(size=(3, 3)), rng.normal(size=3)
    there, here = (body.node_position_m @ turn + shift for body in (coarse, fine))
    np.testing.assert_allclose(grids.prolonged(there), here, atol=1e-12)
    np.testing.assert_allclose(grids.restricted(here), there, atol=1e-9)
    assert coarse.volume_m3 == pytest.approx(fine.volume_m3, rel=0.01)


def test_the_coarse_body_is_moved_to_the_fine_one(ball: Model, grids: CoarserModel) -> None:
    """Both turned and shifted by a little, with other velocities: afterwards they lie and move alike. A turn of 0.02
    is made linear, so what is left of it is of the order of its square times the radius."""

    def rigid(body, angle: float, shift: float) -> State:
        arm = body.node_position_m
        u = Rotation.from_rotvec([angle, 0, 0]).apply(arm) - arm + shift
        v = np.cross([0, angle, 1.0], arm) + shift
        return State(u, v, v.copy(), 0.0)

    want, given = rigid(ball.body, 0.02, 0.01), rigid(grids.model.body, 0.0, 0.0)
    moved = grids.followed(given, want)
    np.testing.assert_allclose(moved.u, grids.restricted(want.u), atol=2 * 0.02**2 * 0.06)
    np.testing.assert_allclose(moved.v, grids.restricted(want.v), atol=2 * 0.02 * 0.06)


def test_a_body_that_is_held_or_thin_has_none(ball: Model) -> None:
    held = FixedRegion(Box(size_m=(0.2, 0.02, 0.2), centre_m=(0, 0.05, 0)), "strong")
    assert coarser_model(model_of(Sphere(radius_m=0.05), 0.0105, fixed=[held])) is None
    assert coarser_model(model_of(Box(size_m=(0.1, 0.1, 0.015)), 0.0105)) is None
    assert coarser_model(replace(ball, rests=True)) is None


def test_changes_of_a_bounce_are_alike_on_both_grids(ball: Model, grids: CoarserModel) -> None:
    """∂r/∂θ of a frame in the middle of a bounce, on the coarse grid and on the fine one: of E, damping and plane, and
    of the first motion. The coarse ball has five cells across: its changes are right to 20 % and point the same way,
    but for the angle (cosine 0.95) that a bounce some per cent longer or shorter makes near its turning point.
    Residuals are those of the fine grid to the bit."""
    variables = make_variables(TRUTH, ["youngs_modulus_pa", "stiffness_damping_s", "plane_offset_m", "velocity_m_s"])
    theta, backend, field = variables.start(), CpuBackend(), carry_field(ball.body)
    simulation, states = Simulation(ball, TRUTH), []
    states.append(simulation.initial_state())
    for _ in range(12):
        states.append(simulation.step(states[-1])[0])
    rng = np.random.default_rng(1)
    frames = [surface_frame(states[k].time_s, ball.body, field, states[k].u, 200, 5e-4, rng) for k in (6, 12)]
    parameters, directions = variables.parameters(theta), variables.directions(theta)
    start, kinds = initial_moment(ball, parameters, directions, backend), Kinds([SurfaceDistance(ball.body, field)])
    seen = []
    for coarser in (None, grids):
        trajectory = trajectory_from(ball, parameters, directions, start, backend, kinds, None, coarser)
        seen.append(trajectory.through_all(frames))
    for fine, coarse in zip(*seen):
        np.testing.assert_array_equal(coarse.residual, fine.residual)
        a, b = fine.jacobian, coarse.jacobian
        cosine = (a * b).sum(axis=0) / np.linalg.norm(a, axis=0) / np.linalg.norm(b, axis=0)
        assert (cosine > 0.95).all(), cosine
        assert (abs(np.linalg.norm(b, axis=0) / np.linalg.norm(a, axis=0) - 1) < 0.2).all()
