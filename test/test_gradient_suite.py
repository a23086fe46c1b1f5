"""The gradient suite itself: it must see a wrong gradient, a lost effect and a test that shows nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gradient_suite import RollOut, check_cost, difference_of, noise_of

from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

PARAMETERS = Parameters(
    np.array([8000.0]),
    0.3,
    1000.0,
    0.4,
    0.003,
    plane_offset_m=0.021,
    velocity_m_s=np.array([0.2, -0.3, 0.1]),
    angular_velocity_rad_s=np.array([1.0, 2.0, -3.0]),
)
JUDGED = ("youngs_modulus_pa", "density_kg_m3", "plane_offset_m")


@pytest.fixture(scope="module")
def cost() -> RollOut:
    body = build_body(sample(Box(size_m=(0.06, 0.04, 0.05)), 0.02))
    model = build_model(
        body, theta_scheme(0.01), contact=ContactLaw(2e5, 500.0), solver=SolverSettings(1e-13, 3000)
    )  # fmt: skip
    return RollOut(lambda p: Simulation(model, p), 2)


class Spoiled:
    """A cost whose derivatives are changed on the way out."""

    def __init__(self, cost: RollOut, adjoint: Callable[[ParameterGradient], None], tangent: float = 1.0) -> None:
        self._cost, self._adjoint, self._tangent = cost, adjoint, tangent

    def value(self, parameters: Parameters) -> float:
        return self._cost.value(parameters)

    def adjoint(self, parameters: Parameters) -> ParameterGradient:
        gradient = self._cost.adjoint(parameters)
        self._adjoint(gradient)
        return gradient

    def tangent(self, parameters: Parameters, directions: list[ParameterGradient]) -> np.ndarray:
        return self._tangent * self._cost.tangent(parameters, directions)


def test_a_right_gradient_passes(cost: RollOut) -> None:
    rows = check_cost(cost, PARAMETERS, judge=JUDGED)
    assert {row.label.partition("[")[0] for row in rows} == set(PARAMETERS)


@pytest.mark.parametrize("name", JUDGED)
def test_a_gradient_off_by_a_hundred_thousandth_is_seen(cost: RollOut, name: str) -> None:
    """Adjoint and tangent wrong alike, as from a wrong formula in both: ten times the tolerance of 1e-6."""

    def spoil(gradient: ParameterGradient) -> None:
        for entry in PARAMETERS:
            setattr(gradient, entry, getattr(gradient, entry) * (1 + 1e-5))

    with pytest.raises(AssertionError, match=f"adjoint and differences differ: {name}"):
        check_cost(Spoiled(cost, spoil, 1 + 1e-5), PARAMETERS, judge=(name,))


def test_one_number_of_a_vector_is_seen_in_its_mixture(cost: RollOut) -> None:
    """The spin about one axis wrong by 1e-4 in tangent and adjoint: along the mixture it is wrong as well."""

    def spoil(gradient: ParameterGradient) -> None:
        gradient.angular_velocity_rad_s[1] *= 1 + 1e-4

    class Both(Spoiled):
        def tangent(self, parameters: Parameters, directions: list[ParameterGradient]) -> np.ndarray:
            out = self._cost.tangent(parameters, directions)
            spun = [bool(d.angular_velocity_rad_s[1]) for d in directions]
            return np.where(spun, 1 + 1e-4, 1.0) * out

    with pytest.raises(AssertionError, match="adjoint and differences differ: angular_velocity_rad_s:"):
        check_cost(Both(cost, spoil), PARAMETERS, judge=("angular_velocity_rad_s",))


def test_a_tangent_that_is_not_the_adjoints_is_seen(cost: RollOut) -> None:
    """1e-8 off in one entry: a hundred times what linear solves to 1e-13 leave."""

    def spoil(gradient: ParameterGradient) -> None:
        gradient.poissons_ratio *= 1 + 1e-8

    with pytest.raises(AssertionError, match="tangent and adjoint differ: poissons_ratio"):
        check_cost(Spoiled(cost, spoil), PARAMETERS, judge=())


def test_an_effect_where_there_should_be_none_is_seen(cost: RollOut) -> None:
    with pytest.raises(AssertionError, match="has an effect, but should have none: plane_offset_m"):
        check_cost(cost, PARAMETERS, zero=("plane_offset_m",), judge=("plane_offset_m",))


def test_a_parameter_that_shows_nothing_is_reported(cost: RollOut) -> None:
    """The plane a metre below: its derivative is exp(-500) of what the contact would show, nothing to compare."""
    far = Parameters(**{**vars(PARAMETERS), "plane_offset_m": 1.0})
    with pytest.raises(AssertionError, match="plane_offset_m: the differences cannot judge it"):
        check_cost(cost, far, judge=("plane_offset_m",))


def test_noise_and_difference_of_a_known_function() -> None:
    """exp with added errors of deviation 1e-12: the noise is found within a factor of three (three fourth differences
    of seven values estimate a deviation no better), and the difference's own bound holds its error."""
    rng = np.random.default_rng(5)

    def value(x: float) -> float:
        return float(np.exp(3 * x) + 1e-12 * rng.normal())

    noise = float(np.median([noise_of(value) for _ in range(21)]))
    assert 1e-12 / 3 < noise < 3e-12
    difference, doubt = difference_of(value, noise)
    assert abs(difference - 3) <= doubt < 3e-6
