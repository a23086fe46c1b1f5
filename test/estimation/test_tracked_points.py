"""Tracked points: known places of the material against measured positions; and a residual given from outside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from estimation_experiments import Experiment

from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.fitting.least_squares import fit
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.interface import (
    FrameAdjoint,
    FrameChanges,
    FrameState,
    Weighed,
    weigh_by_loss,
)
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.residuals.tracked_points import TrackedFrame, TrackedPoints
from soft_estimator.estimation.variables import make_variables
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.physics.frame_times import displacements_from
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.step import Simulation

NAMES = ["youngs_modulus_pa", "plane_offset_m", "velocity_m_s"]


@pytest.fixture(scope="module")
def markers(ball: Experiment) -> TrackedPoints:
    """Six on the ball's surface and two inside it."""
    ends = 0.04 * np.concatenate([np.eye(3), -np.eye(3)])
    return TrackedPoints(ball.field, np.concatenate([ends, [[0.01, 0.005, 0.0], [-0.02, 0.0, 0.01]]]))


def tracked(ball: Experiment, markers: TrackedPoints, std_m: float, noise_m: float) -> list[TrackedFrame]:
    """What is measured of the ball's true motion, between its steps; one marker is hidden, another now and then."""
    rng, times = np.random.default_rng(1), [0.0175, 0.05, 0.0925, 0.14]
    simulation, out = Simulation(ball.model, ball.truth), []
    for k, u in enumerate(displacements_from(simulation, simulation.initial_state(), times)):
        points = markers.positions_m(u) + noise_m * rng.normal(size=markers.rest_m.shape)
        points[3] = np.nan
        points[k % 2] = np.nan
        out.append(TrackedFrame.of(times[k], points, std_m))
    return out


def central_difference(problem: Problem, theta: np.ndarray, d: np.ndarray, e: float) -> float:
    def slope(e: float) -> float:
        ahead, behind = (problem.evaluate(theta + s * e * d).cost for s in (1, -1))
        return (ahead - behind) / (2 * e)

    return (4 * slope(e / 2) - slope(e)) / 3


def check_derivatives(problem: Problem, theta: np.ndarray) -> None:
    """J = Σ ρ(r) + prior: ∂J/∂θ by the adjoint = by the tangent (both exact; 1e-8 is what a solver's 1e-12 leaves after
    30 steps) = by fourth-order differences, 1e-6: what the solver leaves of the cost, 1e-12 of it, over the step."""
    at = problem.evaluate(theta, gradient=True, jacobian=True)
    prior = (theta - problem.variables.prior_mean) / problem.variables.prior_std**2
    by_tangent = at.known_jacobian.T @ at.slope + prior
    np.testing.assert_allclose(by_tangent, at.known_gradient, rtol=1e-8, atol=1e-9 * np.abs(at.known_gradient).max())
    rng = np.random.default_rng(0)
    for _ in range(2):
        d = rng.normal(size=len(theta)) * np.minimum(problem.variables.prior_std, 0.1)
        assert at.known_gradient @ d == pytest.approx(central_difference(problem, theta, d, 1e-5), rel=1e-6)


def test_points_ride_with_the_material(ball: Experiment, markers: TrackedPoints) -> None:
    """Trilinear weights reproduce affine motions: x ↦ A x + t moves a point to A x + t, to rounding."""
    a, t = np.array([[1.1, 0.2, 0.0], [-0.1, 0.9, 0.1], [0.0, 0.1, 1.0]]), np.array([0.1, -0.2, 0.3])
    x = ball.model.body.node_position_m
    np.testing.assert_allclose(markers.positions_m(x @ a.T + t - x), markers.rest_m @ a.T + t, atol=1e-13)
    with pytest.raises(ValueError, match="point 1 at"):
        TrackedPoints(ball.field, np.array([[0.0, 0.0, 0.0], [0.5, 0.0, 0.0]]))


def test_derivatives_of_markers_and_clouds_together(ball: Experiment, markers: TrackedPoints) -> None:
    """Two kinds of frames in one problem, through contact; the huber loss is in force (noise of 3 deviations)."""
    frames = tracked(ball, markers, 1e-3, 3e-3)
    variables = make_variables(replace(ball.truth, youngs_modulus_pa=np.array([2.2e4])), NAMES)
    problem = Problem(ball.model, variables, frames, field=ball.field, residual=markers)
    assert problem.evaluate(variables.start()).residual.shape == (4 * 3 * 6,)
    check_derivatives(problem, variables.start() + 1e-3)
    clouds = ball.frames(1e-3, count=40)
    both = Problem(ball.model, variables, [*clouds, *frames], field=ball.field, residual=markers)
    at = both.evaluate(variables.start(), gradient=True, jacobian=True)
    assert len(at.residual) == 72 + 40 * len(clouds)
    prior = np.zeros(len(variables))
    np.testing.assert_allclose(at.known_jacobian.T @ at.slope + prior, at.known_gradient, rtol=1e-7)


def test_markers_find_stiffness_and_plane(ball: Experiment, markers: TrackedPoints) -> None:
    """Exact positions: no residual at the truth, so E and the plane come back to the fit's tolerance, 1e-4.

    A deviation of 10 µm leaves the prior, which pulls towards the guess, less than that.
    """
    variables = make_variables(replace(ball.truth, youngs_modulus_pa=np.array([4e4]), plane_offset_m=0.047), NAMES[:2])
    problem = Problem(ball.model, variables, tracked(ball, markers, 1e-5, 0.0), field=ball.field, residual=markers)
    found = variables.natural(fit(problem, variables.start()).theta)
    np.testing.assert_allclose(found, [2e4, 0.045], rtol=1e-4)


def test_bad_tracked_frames_are_refused(ball: Experiment, markers: TrackedPoints) -> None:
    variables = make_variables(ball.truth, NAMES[:1])

    def build(points: np.ndarray, std_m: float = 1e-3) -> Problem:
        return Problem(ball.model, variables, [TrackedFrame.of(0.1, points, std_m)], field=ball.field, residual=markers)

    with pytest.raises(ValueError, match="holds 2 tracked points where 8 are known"):
        build(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="shows no tracked point"):
        build(np.full((8, 3), np.nan))
    with pytest.raises(ValueError, match="not positive"):
        build(np.zeros((8, 3)), 0.0)
    with pytest.raises(ValueError, match="no residual takes a frame of type TrackedFrame"):
        Problem(ball.model, variables, [TrackedFrame.of(0.1, np.zeros((8, 3)), 1e-3)], field=ball.field)


def test_the_window_follows_markers(ball: Experiment, markers: TrackedPoints) -> None:
    """Frames of markers alone, 1 mm of noise: the window tracks, and E is within 3 stated deviations of the truth."""
    rng = np.random.default_rng(2)
    simulation, times = Simulation(ball.model, ball.truth), 0.02 * np.arange(8)
    guess = replace(ball.truth, youngs_modulus_pa=np.array([3e4]))
    window = SlidingWindow(
        ball.model,
        guess,
        NAMES[:1],
        WindowConfig(frames=4, grow_to_frames=6, start="scene"),
        field=ball.field,
        residual=markers,
    )
    said = None
    for time_s, u in zip(times, displacements_from(simulation, simulation.initial_state(), times)):
        points = markers.positions_m(u) + 1e-3 * rng.normal(size=markers.rest_m.shape)
        said = window.add_measurement(TrackedFrame.of(50.0 + time_s, points, 1e-3))
    assert said is not None and said.status == "tracking" and said.frames_in_window == 4
    e = said.parameters[0]
    assert e.observable and abs(e.value - 2e4) < 3 * e.std
    assert window.add_measurement(TrackedFrame.of(50.16, np.full((8, 3), np.nan), 1e-3)) is None
    assert "no tracked point" in window.waiting_for


@dataclass(frozen=True)
class Speed:
    """A frame from outside the package: how fast the body's middle falls along an axis that leans with the plane."""

    time_s: float
    metres_per_s: float


class SpeedResidual:
    """r = (n·v̄ - measured) / 0.01: sees the velocity and, through the plane's normal n, a parameter itself."""

    whitened = True

    def __init__(self, weight: np.ndarray, regions: int) -> None:
        self.weight, self.regions = weight, regions

    def takes(self, frame: object) -> bool:
        return isinstance(frame, Speed)

    def check(self, frame: Speed) -> str:
        return "" if np.isfinite(frame.metres_per_s) else "holds no speed; leave it out"

    def count(self, frame: Speed) -> int:
        return 1

    def predict(self, frame: Speed, state: FrameState) -> Any:
        kind = self
        mean, normal = self.weight @ state.v, state.parameters.plane_normal

        class Seen:
            residual = np.array([(normal @ mean - frame.metres_per_s) / 0.01])
            far = 0

            def changes(self, changes: FrameChanges) -> np.ndarray:
                by_state = np.einsum("n,nap,a->p", kind.weight, changes.v, normal)
                by_normal = np.array([d.plane_normal @ mean for d in changes.parameters])
                return (by_state + by_normal)[None] / 0.01

            def changes_adjoint(self, residual_bar: np.ndarray) -> FrameAdjoint:
                bar = float(residual_bar[0]) / 0.01
                direct = ParameterGradient.zero(kind.regions)
                direct.plane_normal = bar * mean
                return FrameAdjoint(v=bar * kind.weight[:, None] * normal, parameters=direct)

        return Seen()

    def weigh(self, frame: Speed, residual: np.ndarray, loss: RobustLoss) -> Weighed:
        return weigh_by_loss(residual, RobustLoss("squares"))

    def by_offset(self, frame: Speed) -> np.ndarray:
        return np.zeros(1)


def test_a_residual_from_outside_the_package(ball: Experiment) -> None:
    """One class, no change in the package: velocity and parameters have derivatives as the displacement has."""
    weight = ball.model.body.node_volume_m3 / ball.model.body.volume_m3
    frames = [Speed(t, s) for t, s in ((0.012, -0.5), (0.06, 0.1), (0.12, 0.4))]
    variables = make_variables(ball.truth, ["youngs_modulus_pa", "plane_normal", "velocity_m_s"])
    problem = Problem(ball.model, variables, frames, field=ball.field, residual=[SpeedResidual(weight, 1)])
    check_derivatives(problem, variables.start() + 1e-2)
