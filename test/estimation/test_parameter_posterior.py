"""The posterior in a file and as draws: the same Gaussian in θ, and materials that can exist."""

from __future__ import annotations

import json

import numpy as np
import pytest

from soft_estimator.estimation.fitting.parameter_posterior import ParameterPosterior
from soft_estimator.estimation.variables import make_variables
from soft_estimator.physics.parameters import Parameters

NAMES = ["youngs_modulus_pa", "poissons_ratio", "plane_normal", "plane_offset_m"]


def made(factor: np.ndarray | None = None) -> ParameterPosterior:
    normal = np.array([0.1, 1.0, -0.2])
    reference = Parameters(np.array([2e3, 5e4]), 0.4, 900.0, plane_normal=normal / np.linalg.norm(normal))
    variables = make_variables(reference, NAMES)
    count = len(variables)
    factor = 0.2 * np.random.default_rng(3).normal(size=(count, count)) if factor is None else factor
    return ParameterPosterior(variables, variables.start() + 0.1, factor @ factor.T)


def test_draws_have_the_mean_and_covariance_of_the_posterior() -> None:
    """θ of n draws: mean within 5 σ/√n, covariance within 5 √(2/n) of the variances, which chance exceeds in 1e-6."""
    posterior, count = made(), 3000
    v = posterior.variables
    theta = np.array(
        [
            [
                *np.log(p.youngs_modulus_pa),
                np.log(p.poissons_ratio / (0.5 - p.poissons_ratio)),
                *v.tangents["plane_normal"].steps_to(p.plane_normal),
                p.plane_offset_m,
            ]
            for p in posterior.draw(count)
        ]
    )
    std = np.sqrt(np.diag(posterior.covariance))
    assert np.all(np.abs(theta.mean(axis=0) - posterior.theta) < 5 * std / np.sqrt(count))
    assert np.all(np.abs(np.cov(theta.T) - posterior.covariance) < 5 * np.sqrt(2 / count) * np.outer(std, std))


def test_every_draw_is_a_material_however_wide_the_posterior() -> None:
    """Four e-folds of deviation in E and in the odds of ν: natural values drawn directly would leave their bounds."""
    for p in made(4.0 * np.eye(6)).draw(300):
        assert (p.youngs_modulus_pa > 0).all() and 0 < p.poissons_ratio < 0.5
        assert np.linalg.norm(p.plane_normal) == pytest.approx(1.0)


def test_the_file_gives_the_same_draws_to_the_bit() -> None:
    posterior = made()
    read = ParameterPosterior.from_plain(json.loads(json.dumps(posterior.as_plain())), "estimate.json")
    for a, b in zip([posterior.parameters(), *posterior.draw(3, seed=7)], [read.parameters(), *read.draw(3, seed=7)]):
        assert a == b


def test_few_draws_are_the_first_of_many_and_a_singular_covariance_is_no_obstacle() -> None:
    column = np.array([[0.1], [0.2], [0.0], [0.0], [0.0], [0.0]])
    posterior = made(column)
    few, many = posterior.draw(2), posterior.draw(5)
    assert [p.poissons_ratio for p in few] == [p.poissons_ratio for p in many[:2]]
    # of rank one: log E₂ moves twice as far as log E₁, to the rounding of √(1e-16 · 0.05)
    for p in many:
        first, second = np.log(p.youngs_modulus_pa) - posterior.theta[:2]
        assert second == pytest.approx(2 * first, abs=1e-8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: None, "no posterior"),
        (lambda d: {**d, "variables": [{"name": "hardness"}]}, "another version"),
        (lambda d: {**d, "reference": {"colour": 3}}, "another version"),
        (lambda d: {**d, "theta": d["theta"][:2]}, "6 variables"),
        (lambda d: {**d, "theta": [float("nan")] * 6}, "not finite"),
    ],
)
def test_a_damaged_file_gets_one_line_that_names_it(change, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message) as caught:
        ParameterPosterior.from_plain(change(made().as_plain()), "out/estimate.json")
    assert "out/estimate.json" in str(caught.value) and "\n" not in str(caught.value)
