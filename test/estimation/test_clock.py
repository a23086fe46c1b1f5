"""The clock of a held body's stamps, told from how far and how fast it swings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from estimation_experiments import Experiment

from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.fitting.clock import (
    APART,
    clock_rate,
    is_by_clock,
    where_stiffness_is_known,
    with_clock,
    with_lost_phase,
    with_sag_and_swing,
)
from soft_estimator.estimation.fitting.completing import completed
from soft_estimator.estimation.fitting.least_squares import Fit, LeastSquaresSettings, fit
from soft_estimator.estimation.fitting.uncertainty import posterior
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.fixed_numbers import sources_of
from soft_estimator.estimation.inspection import Inspection, inspect_fit
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.variables import make_variables
from soft_estimator.physics.dirichlet import bind_dirichlet
from soft_estimator.physics.parameters import Parameters

STD_M = 5e-4
KNOWN = KnownToConfig()


def stamped(torus: Experiment, rate: float, youngs_pa: float = 2000.0) -> Problem:
    """The swinging ring, its stamps those of a clock that goes `rate` times as fast as it should."""
    ring = replace(torus, truth=Parameters(np.array([youngs_pa]), 0.3, 1000.0, 0.1, 0.01))
    frames = [replace(frame, time_s=rate * frame.time_s) for frame in ring.frames(STD_M)]
    variables = make_variables(ring.truth, ["youngs_modulus_pa", "stiffness_damping_s"])
    return Problem(torus.model, variables, frames, field=torus.field, known=KNOWN)


def solved(problem: Problem) -> Fit:
    settings = LeastSquaresSettings(max_iterations=8)
    return fit(problem, problem.variables.start(), windows=[len(problem.frames)], settings=settings)


def look(problem: Problem, theta: np.ndarray, known: KnownToConfig = KNOWN) -> Inspection:
    sources = sources_of(problem.model, problem.variables, problem.variables.parameters(theta), known)
    return inspect_fit(problem, theta, sources)


@pytest.mark.slow
def test_a_small_error_of_the_clock_is_found_as_it_is(torus: Experiment) -> None:
    """Stamps 2 % slow: 1/0.98 s go by in each of their seconds, to first order, within three deviations and a fifth of
    it, which its square and what E takes up leave room for. That small an error is no misfit."""
    problem = stamped(torus, 0.98)
    found = solved(problem)
    seen = look(problem, found.theta)
    rate = clock_rate(problem, found.evaluation, seen, 1.0)
    assert rate is not None and rate[1] < 0.01
    assert abs(rate[0] - 0.02) < 3 * rate[1] + 0.004
    assert with_clock(FitVerdict(), problem, found.evaluation, seen, 1.0).fits
    around = posterior(problem, found.evaluation)
    apart = with_sag_and_swing(problem, found.evaluation, around, [])
    assert apart.effects[-1].name == APART[0]  # more than chance: in the interval then, as the rate moves E
    again = clock_rate(problem, found.evaluation, seen, around.noise_scale)
    assert again is not None
    np.testing.assert_allclose(apart.covariance, around.covariance + np.outer(again.move, again.move))
    assert apart.estimates[0].std > around.estimates[0].std
    wrong = replace(around, verdict=FitVerdict(False, "another body", "body"))
    assert with_sag_and_swing(problem, found.evaluation, wrong, []) is wrong


def test_what_e_moves_by_is_as_if_the_clock_had_been_fitted(torus: Experiment) -> None:
    """The linear problem solved with the rate free and with its column taken out of the residuals at the rate found:
    the variables are the same. What grid or step change along with the rate takes it all up. A right clock, at the
    parameters themselves, is off by no more than chance."""
    problem = stamped(torus, 1.0).with_frames(stamped(torus, 1.0).frames[::2])
    at = problem.evaluate(problem.variables.start(), jacobian=True)
    seen, around = look(problem, at.theta), posterior(problem, at)
    assert with_sag_and_swing(problem, at, around, []) is around
    column = next(c for s, c in zip(seen.sources, seen.columns) if s.name == "time_rate")[:, 0] / KNOWN.time_rate
    late = replace(at, residual=at.residual - 0.3 * column, slope=at.slope - 0.3 * at.weight * column)
    before, after = clock_rate(problem, at, seen, 1.0), clock_rate(problem, late, seen, 1.0)
    assert before is not None and after is not None
    # of the 0.3 the rate's own prior, of as much as itself, keeps its variance's part
    assert after.off - before.off == pytest.approx(0.3 * (1 - after.std**2), rel=1e-6)
    assert after.move / after.off == pytest.approx(before.move / before.off)
    excused = clock_rate(problem, late, seen, 1.0, [3.0 * column])
    assert excused is not None and abs(excused.off) < 0.2 * abs(after.off)


@pytest.mark.slow
def test_a_clock_at_half_speed_is_called_wrong(torus: Experiment) -> None:
    """Of a ring that swings by a few millimetres: linear as the test is, it finds a third of the rate that is missing,
    by thirty deviations. A verdict that fits becomes one that does not, and says why."""
    problem = stamped(torus, 0.5, 20e3)
    found = solved(problem)
    verdict = with_clock(FitVerdict(), problem, found.evaluation, look(problem, found.theta), 1.0)
    assert is_by_clock(verdict) and verdict.cause == "clock" and "stamps" in verdict.reason
    assert not completed(problem, found.evaluation, posterior(problem, found.evaluation)).verdict.fits


def test_an_exact_clock_is_not_asked(torus: Experiment) -> None:
    problem = stamped(torus, 1.0).with_frames(torus.frames(STD_M)[:2])
    at = problem.evaluate(problem.variables.start(), jacobian=True)
    assert clock_rate(problem, at, look(problem, at.theta, KnownToConfig(time_rate=0.0)), 1.0) is None
    wrong = FitVerdict(False, "another body", "body")
    assert with_clock(wrong, problem, at, look(problem, at.theta), 1.0) is wrong and not is_by_clock(wrong)


def test_a_clock_is_not_judged_by_a_stiffness_that_nobody_knows(torus: Experiment) -> None:
    """Its deviation with what grid and clamp add to it: half of the prior's, and the clock stays wrong below that only.
    Another verdict is not the clock's, and stays."""
    variables = make_variables(torus.truth, ["youngs_modulus_pa", "stiffness_damping_s"])
    late, other = FitVerdict(False, "late", "clock", {"time_rate": -0.3}), FitVerdict(False, "another body", "body")
    for share, fits in ((0.4, False), (0.6, True)):
        covariance = np.diag((share * variables.prior_std) ** 2)
        assert where_stiffness_is_known(late, variables, covariance).fits == fits
        assert where_stiffness_is_known(other, variables, covariance) is other


def test_a_damping_is_known_no_better_than_the_swing_is_in_step(torus: Experiment) -> None:
    """log E to 0.5: log of the damping to 1.0 instead of 0.3, E as before. A body that nothing holds, and one whose E
    is known to a hundredth, keep what they have."""
    variables = make_variables(torus.truth, ["youngs_modulus_pa", "stiffness_damping_s"])
    problem = Problem(torus.model, variables, torus.frames(STD_M)[:2], field=torus.field)
    found = posterior(problem, problem.evaluate(variables.start(), jacobian=True))
    little = replace(found, covariance=np.array([[0.25, 0.06], [0.06, 0.09]]))
    wider = with_lost_phase(problem, little)
    np.testing.assert_allclose(wider.covariance, [[0.25, 0.06], [0.06, 1.0]])
    assert [effect.name for effect in wider.effects] == ["phase"]
    well = replace(found, covariance=np.diag([1e-4, 0.09]))
    assert with_lost_phase(problem, well) is well
    free = problem.with_model(replace(problem.model, dirichlet=bind_dirichlet(problem.model.body, [])))
    assert with_lost_phase(free, little) is little
