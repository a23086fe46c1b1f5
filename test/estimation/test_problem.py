"""Cost, adjoint gradient and tangent Jacobian of the whole problem: 30 steps, contact, corotation, point clouds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from estimation_experiments import Experiment

from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.runs import PlainRun
from soft_estimator.estimation.variables import make_variables


def problem_of(experiment: Experiment, names: list[str], std_m: float, **guess: object) -> Problem:
    variables = make_variables(experiment.truth.replace(**guess), names)
    return Problem(experiment.model, variables, experiment.frames(std_m), field=experiment.field)


def test_gradient_against_central_differences_through_a_bounce(ball: Experiment) -> None:
    """Every kind of parameter at once, off the truth, through 30 steps with contact and the robust point-cloud cost.

    Fourth-order differences at a step of 1e-6: what is left are the kinks where one of the 1,800 points crosses a
    cell face within the step, each of them worth less than 1e-6 of the gradient.
    """
    problem = problem_of(ball, list(ball.truth), 2e-4, youngs_modulus_pa=np.array([2.2e4]), poissons_ratio=0.33)
    theta = problem.variables.start() + 1e-3
    at = problem.evaluate(theta, gradient=True, jacobian=True)

    prior = (theta - problem.variables.prior_mean) / problem.variables.prior_std**2
    by_tangent = at.jacobian.T @ (at.weight * at.residual) + prior
    np.testing.assert_allclose(by_tangent, at.gradient, rtol=1e-8, atol=1e-10 * np.abs(at.gradient).max())

    rng = np.random.default_rng(0)
    for _ in range(2):
        d = rng.normal(size=len(theta)) * np.minimum(problem.variables.prior_std, 1.0)

        def slope(e: float, d: np.ndarray = d) -> float:
            ahead, behind = (problem.evaluate(theta + s * e * d).cost for s in (1, -1))
            return (ahead - behind) / (2 * e)

        e = 1e-6
        difference = (4 * slope(e / 2) - slope(e)) / 3
        assert at.gradient @ d == pytest.approx(difference, rel=2e-6)


def test_cost_and_gradient_vanish_at_the_truth(torus: Experiment) -> None:
    """Exact points: no residual, no slope. The scale is the cost 10 % away from the truth."""
    names = ["youngs_modulus_pa", "poissons_ratio"]
    problem = problem_of(torus, names, 0.0)
    theta = problem.variables.start()
    at, away = problem.evaluate(theta, gradient=True), problem.evaluate(theta + 0.1, gradient=True)
    assert at.cost < 1e-8 * away.cost
    assert np.abs(at.gradient).max() < 1e-4 * np.abs(away.gradient).max()


def test_more_frames_at_the_same_place_go_on_where_the_last_run_ended(torus: Experiment, monkeypatch) -> None:
    """The bits of a run from the start, at the cost of the new frames' steps alone; another θ starts anew."""
    steps = []
    plain = PlainRun._step
    monkeypatch.setattr(PlainRun, "_step", lambda run, n: (steps.append(n), plain(run, n))[1])
    names = ["youngs_modulus_pa", "poissons_ratio"]
    problem, fresh = (problem_of(torus, names, 2e-4) for _ in range(2))
    theta = problem.variables.start() + 0.1
    problem.evaluate(theta, 2, jacobian=True)
    problem.evaluate(theta + 0.1, 2, jacobian=True)
    before = len(steps)
    at = problem.evaluate(theta, jacobian=True)
    grown = len(steps) - before
    want = fresh.evaluate(theta, jacobian=True)
    assert grown == max(steps) + 1 - before // 2 and steps[-max(steps) - 1 :] == list(range(max(steps) + 1))
    assert at.cost == want.cost
    np.testing.assert_array_equal(at.residual, want.residual)
    np.testing.assert_array_equal(at.known_jacobian, want.known_jacobian)
    assert problem.evaluate(theta + 0.1, 3).cost == fresh.evaluate(theta + 0.1, 3, gradient=True).cost


@pytest.mark.parametrize("name", ["youngs_modulus_pa", "density_kg_m3", "stiffness_damping_s"])
def test_one_minimum_within_a_factor_of_two(torus: Experiment, name: str) -> None:
    """Along a parameter, from half to twice the truth, the cost falls to the truth and rises after it."""
    problem = problem_of(torus, [name], 0.0)
    start = problem.variables.start()
    cost = [problem.evaluate(start + s).cost for s in np.linspace(-np.log(2), np.log(2), 7)]
    assert np.all(np.diff(cost[:4]) < 0)
    assert np.all(np.diff(cost[3:]) > 0)


def test_frames_between_steps_are_interpolated(torus: Experiment) -> None:
    """A frame half-way between two steps sees the mean of both states; its gradient still matches the tangent's."""
    frames = torus.frames()
    moved = [ObservedFrame.of(f.time_s - 0.003, f.points_m, 1e-3) for f in frames]
    problem = Problem(
        torus.model,
        make_variables(torus.truth, ["youngs_modulus_pa", "poissons_ratio"]),
        moved,
        field=torus.field,
        loss=RobustLoss("squares"),
    )
    at = problem.evaluate(problem.variables.start() + 0.1, gradient=True, jacobian=True)
    prior = 0.1 / problem.variables.prior_std**2
    np.testing.assert_allclose(at.jacobian.T @ at.residual + prior, at.gradient, rtol=1e-6)


def test_bad_frames_are_refused_with_a_reason(torus: Experiment) -> None:
    variables = make_variables(torus.truth, ["youngs_modulus_pa"])
    good = torus.frames(count=20)[0]

    def build(frames: list[ObservedFrame]) -> Problem:
        return Problem(torus.model, variables, frames, field=torus.field)

    with pytest.raises(ValueError, match="no frames"):
        build([])
    with pytest.raises(ValueError, match="no points"):
        build([ObservedFrame.of(0.1, np.zeros((0, 3)), 1e-3)])
    with pytest.raises(ValueError, match="NaN"):
        build([ObservedFrame.of(0.1, np.full((5, 3), np.nan), 1e-3)])
    with pytest.raises(ValueError, match="before the start"):
        build([replace(good, time_s=-0.1)])
    late_first = build([replace(good, time_s=0.2), replace(good, time_s=0.1)])
    assert [f.time_s for f in late_first.frames] == [0.1, 0.2]


def test_points_ten_metres_away_pull_but_do_not_break(torus: Experiment) -> None:
    frames = [ObservedFrame.of(f.time_s, f.points_m + 10.0, 1e-3) for f in torus.frames(count=20)]
    problem = Problem(torus.model, make_variables(torus.truth, ["translation_m"]), frames, field=torus.field)
    at = problem.evaluate(problem.variables.start(), gradient=True)
    assert at.far == sum(len(f.points_m) for f in frames)
    assert np.isfinite(at.cost)
    assert np.all(at.gradient < 0)


def test_a_loose_jacobian_leaves_everything_else_exact(torus: Experiment) -> None:
    """Residuals and adjoint gradient to the bit; the Jacobian to a few times the tolerance of its solves: errors of
    some ten steps add up, each column measured by its own size."""
    names = ["youngs_modulus_pa", "poissons_ratio", "stiffness_damping_s"]
    exact = problem_of(torus, names, 2e-4)
    loose = Problem(torus.model, exact.variables, exact.frames, field=torus.field, jacobian_tolerance=1e-3)
    theta = exact.variables.start() + 0.1
    want, got = (p.evaluate(theta, jacobian=True, gradient=True) for p in (exact, loose))
    np.testing.assert_array_equal(got.residual, want.residual)
    np.testing.assert_array_equal(got.gradient, want.gradient)
    off = np.linalg.norm(got.jacobian - want.jacobian, axis=0) / np.linalg.norm(want.jacobian, axis=0)
    assert (off > 0).all() and (off < 2e-2).all()
