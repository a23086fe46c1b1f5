"""The bottom of a rough valley is found by parabolas, with a spread that covers the roughness."""

from __future__ import annotations

import numpy as np

from soft_estimator.estimation.valley import find_bottom
from soft_estimator.physics.solver import SolverError


def test_a_smooth_valley_is_met_exactly() -> None:
    """A quadratic with correlated variables: two sweeps along its own axes end at the minimum, spread unchanged."""
    hessian = np.array([[4e4, 1e4], [1e4, 9e3]])
    bottom = np.array([0.03, -0.05])

    def cost(theta: np.ndarray) -> float:
        off = theta - bottom
        return 100.0 + 0.5 * float(off @ hessian @ off)

    found = find_bottom(cost, np.zeros(2), np.linalg.inv(hessian), 1.0)
    assert np.allclose(found.theta, bottom, atol=1e-9)
    assert np.allclose(found.covariance, np.linalg.inv(hessian), rtol=1e-6)


def test_jumps_and_a_jacobian_that_is_too_sure() -> None:
    """The cost jumps by five from place to place; the stated deviation is a fifth of the true one, 0.01.

    From fifty starts the mean error is below the roughness' own, and the stated spread is that of the ends.
    """
    rng = np.random.default_rng(2)
    ends, stated = [], []
    for _ in range(50):
        phase = rng.uniform(0, 2 * np.pi, 8)
        waves = rng.uniform(200, 900, 8)

        def cost(theta: np.ndarray, phase: np.ndarray = phase, waves: np.ndarray = waves) -> float:
            rough = 5.0 * float(np.sign(np.sin(waves * theta[0] + phase)).mean())
            return 7000.0 + 0.5 * (theta[0] / 0.01) ** 2 + rough

        found = find_bottom(cost, np.array([-0.06]), np.array([[0.002**2]]), 1.0)
        ends.append(found.theta[0])
        stated.append(np.sqrt(found.covariance[0, 0]))
    assert abs(np.mean(ends)) < 0.003
    assert np.std(ends) < np.median(stated) < 0.015
    assert np.mean(np.abs(ends) < 1.96 * np.array(stated)) > 0.9


def test_places_that_cannot_be_simulated_are_passed_over() -> None:
    def cost(theta: np.ndarray) -> float:
        if theta[0] > 0.02:
            raise SolverError("too soft")
        return 0.5 * ((theta[0] + 0.01) / 0.005) ** 2

    found = find_bottom(cost, np.zeros(1), np.array([[0.005**2]]), 1.0)
    assert abs(found.theta[0] + 0.01) < 1e-3
