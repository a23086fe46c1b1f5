"""Whatever the data and the errors of fixed numbers do, an interval is no wider than the prior leaves it."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.estimation.fitting.consider import Effect
from soft_estimator.estimation.fitting.uncertainty import Posterior, describe, with_effect
from soft_estimator.estimation.fitting.within_prior import within_prior
from soft_estimator.estimation.variables import make_variables
from soft_estimator.physics.parameters import Parameters

VARIABLES = make_variables(Parameters(1e4, 0.3, 1000.0), ["youngs_modulus_pa", "poissons_ratio"])
FAR = 0.7  # of ν from its prior's mean, in log(ν / (½ - ν))


def found(moves: list[list[float]]) -> Posterior:
    """E known to 5 %, ν to a tenth by the noise alone, and moved so far by the error of one fixed number."""
    theta = np.array([VARIABLES.prior_mean[0], VARIABLES.prior_mean[1] + FAR])
    noise = np.array([[0.05**2, 0.002], [0.002, 0.1**2]])
    information = np.linalg.inv(noise)
    bare = Posterior(
        theta, noise, information, 1.0, True, describe(VARIABLES, theta, information, noise, True), statistical=noise
    )
    return with_effect(VARIABLES, bare, Effect("density_kg_m3", "the density", "weigh it", np.array(moves)))


def test_a_deviation_beyond_the_prior_is_what_the_prior_leaves() -> None:
    """The prior's deviations are 3 and 1: ν's 16 becomes √(1 + 0.7²); E keeps its own, both their correlation."""
    before = found([[0.3], [16.0]])
    after = within_prior(VARIABLES, before)
    deviations = np.sqrt(np.diag(after.covariance))
    np.testing.assert_allclose(deviations, [np.hypot(0.05, 0.3), np.hypot(1.0, FAR)], rtol=1e-12)
    was, now = (p.covariance / np.sqrt(np.outer(*[np.diag(p.covariance)] * 2)) for p in (before, after))
    np.testing.assert_allclose(now, was, rtol=1e-12)
    total = after.statistical + sum(effect.covariance for effect in after.effects)
    np.testing.assert_allclose(total, after.covariance, rtol=1e-12)
    _, wide = before.estimates
    young, ratio = after.estimates
    assert wide.low < 1e-10 and not wide.observable
    assert (ratio.observable, ratio.reason) == (False, wide.reason) and "weigh it" in ratio.reason
    half = 1.96 * np.hypot(1.0, FAR)
    spread = [np.log(x / (0.5 - x)) - after.theta[1] for x in (ratio.low, min(ratio.high, 0.4999999))]
    assert spread[0] == pytest.approx(-half, rel=1e-3) and ratio.high <= 0.499
    assert (young.low, young.high) == (before.estimates[0].low, before.estimates[0].high) and young.observable


def test_what_the_data_know_stays_as_it_is() -> None:
    before = found([[0.3], [0.4]])
    assert within_prior(VARIABLES, before) is before
