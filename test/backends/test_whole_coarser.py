"""Changes on the coarser grid by whole steps, and a body on that grid alone: the same as loop by loop."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.camera.observing import surface_frame
from soft_estimator.estimation.carried_changes import CarriedChanges
from soft_estimator.estimation.fused_carried_changes import FusedCarriedChanges
from soft_estimator.estimation.fused_trajectory import FusedCoarserTrajectory, FusedTrajectory
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.interface import Kinds
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.estimation.trajectory import (
    CarriedTrajectory,
    CoarserTrajectory,
    coarser_trajectory_from,
    initial_moment,
    trajectory_from,
)
from soft_estimator.estimation.variables import make_variables
from soft_estimator.geometry.shapes import Sphere, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.coarser import coarser_model
from soft_estimator.physics.fused_coarser import DeviceGrids
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

TRUTH = Parameters(
    8000.0, 0.4, 1000.0, 0.0, 0.003, translation_m=np.array([0.0, 0.056, 0.0]), velocity_m_s=[0.05, -1.0, 0.0]
)
NAMES = ["youngs_modulus_pa", "stiffness_damping_s", "plane_offset_m", "velocity_m_s"]
FINE_S = 0.01 / 2


@pytest.fixture(scope="module")
def grids():
    """A ball in halves of the steps that its coarser one takes, just above the ground."""
    body = build_body(sample(Sphere(radius_m=0.05), 0.0105))
    contact, solver = ContactLaw(1e6, 1000.0), SolverSettings(1e-10, 3000)
    model = build_model(body, theta_scheme(FINE_S), contact=contact, solver=solver)
    found = coarser_model(model)
    assert found is not None
    return model, found.with_step(theta_scheme(2 * FINE_S))


@pytest.fixture(scope="module")
def case(grids):
    """Frames at steps of both bodies, within steps of both, and at the end of a step of the fine one alone."""
    model, _ = grids
    field, rng = carry_field(model.body), np.random.default_rng(1)
    simulation, states = Simulation(model, TRUTH), []
    states.append(simulation.initial_state())
    for _ in range(9):
        states.append(simulation.step(states[-1])[0])
    frames = [
        surface_frame(at * FINE_S, model.body, field, states[int(at + 0.5)].u, 60, 5e-4, rng)
        for at in (2.0, 4.7, 5.0, 8.3)
    ]
    variables = make_variables(TRUTH, NAMES)
    theta = variables.start()
    kinds = Kinds([SurfaceDistance(model.body, field)])
    return frames, variables.parameters(theta), variables.directions(theta), kinds


def same(got, want, tolerance):
    assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want), np.linalg.norm(got - want)


def test_fields_between_the_grids(whole, grids):
    """To the coarser grid, back, and moved after the fine body, as on the host."""
    model, coarser = grids
    there, rng = DeviceGrids(coarser, whole), np.random.default_rng(0)
    body, host = model.body, whole.to_host
    fine = Simulation(model, TRUTH).initial_state()
    fine = type(fine)(*(x + rng.normal(size=x.shape, scale=0.002) for x in (fine.u, fine.v, fine.a)), 0.0)
    want = coarser.restricted_state(fine)
    up = type(fine)(*map(whole.to_device, (fine.u, fine.v, fine.a)), 0.0)
    same(host(there.restricted(up.u)), want.u, 1e-12)
    several = rng.normal(size=(5, coarser.model.body.node_count, 3))
    got = host(there.prolonged(whole.to_device(several)))
    assert got.shape == (5, body.node_count, 3)
    for one, column in zip(got, several):
        same(one, coarser.prolonged(column), 1e-12)
    moved = type(fine)(want.u * 0.9, want.v + 0.1, want.a - 0.2, 0.0)
    own = type(fine)(*map(whole.to_device, (moved.u, moved.v, moved.a)), 0.0)
    for name in ("u", "v", "a"):
        same(host(getattr(there.followed(own, up), name)), getattr(coarser.followed(moved, fine), name), 1e-12)


@pytest.mark.parametrize("alone", [False, True])
def test_trajectory(whole, grids, case, alone):
    """Frame by frame and all in one go: residuals and changes, and where the motion goes on from."""
    model, coarser = grids
    frames, parameters, directions, kinds = case
    results = []
    for backend in (CpuBackend(), whole):
        start = initial_moment(model, parameters, directions, backend)
        given = (parameters, directions, start, backend, kinds)

        def fresh(given=given):
            if alone:
                return coarser_trajectory_from(coarser, *given)
            return trajectory_from(model, *given, None, coarser)

        made = [fresh(), fresh()]
        kind = (CoarserTrajectory, FusedCoarserTrajectory) if alone else (CarriedTrajectory, FusedTrajectory)
        assert type(made[0]) is kind[backend is whole]
        seen = [[made[0].through(frame) for frame in frames], made[1].through_all(frames)]
        for one, other in zip(*seen):
            same(other.residual, one.residual, 1e-9)
            same(other.jacobian, one.jacobian, 1e-2)
        newest = seen[0][-1].after.moved(np.linspace(0.001, 0.002, len(directions)))
        assert isinstance(newest.changes, CarriedChanges if backend is not whole else FusedCarriedChanges)
        results.append((seen[0], backend.to_host(newest.state.u), backend.to_host(newest.changes.state.u)))
    for want, got in zip(results[0][0], results[1][0]):
        same(got.residual, want.residual, 1e-6)
        same(got.jacobian, want.jacobian, 1e-2)
    assert np.linalg.norm(results[0][0][-1].jacobian[:, 0]) > 0  # it touched: E shows
    same(results[1][1], results[0][1], 1e-3)
    same(results[1][2], results[0][2], 1e-3)


def test_changes_go_on_mixed(whole, grids, case):
    """In terms of other variables, after the fine body, as a window slides: the next frame's changes are those of a
    motion on the CPU that was mixed alike."""
    model, coarser = grids
    frames, parameters, directions, kinds = case
    mixing = np.eye(len(directions)) + 0.1 * np.cos(np.arange(len(directions) ** 2)).reshape(-1, len(directions))
    results = []
    for backend in (CpuBackend(), whole):
        start = initial_moment(model, parameters, directions, backend)
        first = trajectory_from(model, parameters, directions, start, backend, kinds, None, coarser)
        newest = first.through_all(frames[:2])[-1].in_terms_of(mixing)
        on = trajectory_from(model, parameters, directions, newest.after, backend, kinds, None, coarser)
        on.before = newest.before
        results.append(on.through_all(frames[2:]))
    for want, got in zip(*results):
        same(got.residual, want.residual, 1e-6)
        same(got.jacobian, want.jacobian, 1e-2)
