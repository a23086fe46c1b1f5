"""The estimation problem by whole steps: cost, Jacobian and gradient of a point-cloud fit are the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.interface import Kinds
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.estimation.residuals.tracked_points import TrackedFrame, TrackedPoints
from soft_estimator.estimation.runs import FusedRun, PlainRun
from soft_estimator.estimation.trajectory import Moment, Trajectory
from soft_estimator.estimation.variables import make_variables
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent

NAMES = ["youngs_modulus_pa", "poissons_ratio", "stiffness_damping_s", "plane_normal", "plane_offset_m", "velocity_m_s"]


@pytest.fixture
def case(whole, make_whole_scene):
    """Frames between the steps of a motion with contact, seen with noise, some points far off."""
    model, parameters = make_whole_scene("contact")
    count = 50 if whole.name == "reference" else 300
    sim = Simulation(model, parameters)
    states, rng = [sim.initial_state()], np.random.default_rng(0)
    for _ in range(6):
        states.append(sim.step(states[-1])[0])
    frames = []
    for at in (1.0, 2.4, 2.7, 5.5):
        n, w = int(at), at - int(at)
        u = (1 - w) * states[n].u + w * states[n + 1].u
        surface = model.body.surface_positions_m(u)
        points = surface[rng.integers(len(surface), size=count)] + rng.normal(scale=2e-3, size=(count, 3))
        points[:5] += [0.3, 0.1, 0.0]
        frames.append(ObservedFrame.of(at * model.integrator.step_s, points, 2e-3))
    variables = make_variables(parameters, NAMES)
    # And two markers on the surface, one of them hidden in the second of its frames: a kind the device does not know.
    field = carry_field(model.body)
    markers = TrackedPoints(field, model.body.surface_positions_m()[[0, -1]])
    seen = markers.positions_m(states[3].u)
    step_s = model.integrator.step_s
    frames.insert(2, TrackedFrame.of(2.5 * step_s, seen, 1e-3))
    frames.append(TrackedFrame.of(5.6 * step_s, np.where([[True], [False]], seen, np.nan), 1e-3))
    kinds = Kinds([markers, SurfaceDistance(model.body, field)])
    return model, kinds, frames, variables, variables.start() + 0.02


def same(got, want, tolerance):
    assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want)


def test_run_through_the_frames(whole, case):
    """Residuals, Jacobian and gradient by the adjoint; and twice the same bits."""
    model, kinds, frames, variables, theta = case
    parameters, directions = variables.parameters(theta), variables.directions(theta)
    cpu = PlainRun(model, parameters, frames, directions, Simulation(model, parameters).backend, kinds)
    gpu = [FusedRun(model, parameters, frames, directions, whole, kinds) for _ in range(2)]
    plain = PlainRun(model, parameters, frames, directions, whole, kinds)
    bar = np.cos(np.arange(sum(map(len, cpu.residuals))))
    want = cpu.gradient(bar)[0]
    for run in (gpu[0], plain):
        same(np.concatenate(run.residuals), np.concatenate(cpu.residuals), 1e-8)
        same(run.jacobian, cpu.jacobian, 1e-6)
        assert run.far == cpu.far > 0
        found = run.gradient(bar)[0]
        by = [np.array([found.dot(d), want.dot(d)]) for d in directions]
        assert all(abs(a - b) <= 1e-6 * np.abs(np.array(by)).max() for a, b in by)
    assert all(map(np.array_equal, gpu[0].residuals, gpu[1].residuals)) and np.array_equal(
        gpu[0].jacobian, gpu[1].jacobian
    )
    # The adjoint's gradient is the Jacobian's: Σ bar · ∂r/∂θ.
    same(np.array([want.dot(d) for d in directions]), cpu.jacobian.T @ bar, 1e-6)


def test_trajectory(whole, case):
    """A sliding window's trajectory: residuals of every frame, and the Jacobian to what its loose solves leave open."""
    from soft_estimator.estimation.fused_trajectory import FusedTrajectory

    model, kinds, frames, variables, theta = case
    parameters, directions = variables.parameters(theta), variables.directions(theta)
    results = []
    for kind, backend in ((Trajectory, None), (FusedTrajectory, whole)):
        sim = Simulation(model, parameters, backend)
        start = Moment(sim.initial_state(), Tangent(sim, directions).initial())
        trajectory = kind(model, parameters, directions, start, sim.backend, kinds)
        results.append([trajectory.through(frame) for frame in frames])
        moved = results[-1][-1].after.moved(np.linspace(0.01, 0.02, len(directions)))
        results[-1].append(sim.backend.to_host(moved.state.u))
    for want, got in zip(results[0][:-1], results[1][:-1]):
        same(got.residual, want.residual, 1e-7)
        same(got.jacobian, want.jacobian, 1e-2)
        assert got.share == pytest.approx(want.share, abs=1e-9)
    same(results[1][-1], results[0][-1], 1e-3)


def test_weakly_held_scene_takes_the_plain_way(whole, whole_torus):
    """Nitsche's regions are not in the fused steps: `can_fuse` says so, and the run is loop by loop, as on the CPU."""
    from soft_estimator.estimation.runs import run_through
    from soft_estimator.geometry.shapes import Box
    from soft_estimator.physics.dirichlet import FixedRegion
    from soft_estimator.physics.fused import can_fuse
    from soft_estimator.physics.integrator import hht_scheme
    from soft_estimator.physics.model import build_model
    from soft_estimator.physics.parameters import Parameters
    from soft_estimator.physics.solver import SolverSettings

    grip = FixedRegion(Box((0.06, 0.2, 0.2), (-0.1, 0.0, 0.0)), "nitsche")
    model = build_model(whole_torus, hht_scheme(0.005, -0.1), fixed=[grip], solver=SolverSettings(1e-12, 3000))
    parameters = Parameters(np.array([3e4, 6e4]), 0.35, 900.0, 0.4, 2e-3)
    kinds = Kinds([SurfaceDistance(whole_torus, carry_field(whole_torus))])
    assert not can_fuse(model, whole)
    surface = whole_torus.surface_positions_m()[::4]
    frames = [ObservedFrame.of(0.005 * k, surface - np.array([0, 0.001 * k, 0]), 1e-3) for k in (1, 3)]
    variables = make_variables(parameters, ["youngs_modulus_pa", "poissons_ratio"])
    directions = variables.directions(variables.start())
    backends = (Simulation(model, parameters).backend, whole)
    cpu, gpu = (run_through(model, parameters, frames, directions, backend, kinds) for backend in backends)
    assert isinstance(gpu, PlainRun)
    same(np.concatenate(gpu.residuals), np.concatenate(cpu.residuals), 1e-7)
    same(gpu.jacobian, cpu.jacobian, 1e-6)
    bar = np.cos(np.arange(sum(map(len, cpu.residuals))))
    slopes = (run.gradient(bar)[0] for run in (gpu, cpu))
    same(*(np.array([slope.dot(d) for d in directions]) for slope in slopes), 1e-6)
