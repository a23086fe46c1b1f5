"""The consider covariance against its definition, and against a fit whose fixed numbers really are wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from soft_estimator.estimation.fitting.consider import Effect, details_effect, effects, model_effect, mostly
from soft_estimator.estimation.fitting.uncertainty import describe
from soft_estimator.estimation.fitting.widening import Before, beyond_chance, halves_apart, widening
from soft_estimator.estimation.fixed_numbers import Source
from soft_estimator.estimation.inspection import Inspection
from soft_estimator.estimation.problem import Evaluation
from soft_estimator.estimation.variables import make_variables
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.parameters import Parameters

RNG = np.random.default_rng(3)
ROWS, FRAMES = 60, 6
JACOBIAN, WEIGHT = RNG.normal(size=(ROWS, 2)), RNG.uniform(0.2, 1.0, ROWS)
FRAME = np.repeat(np.arange(FRAMES), ROWS // FRAMES)
PRIOR = np.diag([0.5, 2.0])
INVERSE = np.linalg.inv(JACOBIAN.T @ (JACOBIAN * WEIGHT[:, None]) + PRIOR)


def inspection(columns: np.ndarray, *, each_frame: bool = False) -> Inspection:
    still = tuple(ParameterGradient.zero(1) for _ in range(columns.shape[1]))
    source = Source("density_kg_m3", "the density", "weigh it", still, None, each_frame)
    nothing = np.zeros(ROWS)
    return Inspection(
        (source,), (columns,), nothing.astype(int), nothing, nothing.astype(int), nothing, nothing.astype(int)
    )


def minimum(residual: np.ndarray) -> np.ndarray:
    """Of ½ |r + Jθ|²_W + ½ |θ|²_prior, in closed form."""
    return -INVERSE @ JACOBIAN.T @ (WEIGHT * residual)


def test_the_estimate_moves_by_s_times_the_error() -> None:
    columns = RNG.normal(size=(ROWS, 3))
    (effect,) = effects(inspection(columns), JACOBIAN, WEIGHT, FRAME, INVERSE)
    error, noise = RNG.normal(size=3), RNG.normal(size=ROWS)
    # A linear problem: the move is exact, to rounding.
    np.testing.assert_allclose(minimum(noise + columns @ error) - minimum(noise), effect.moves @ error, atol=1e-12)
    np.testing.assert_allclose(np.diag(effect.covariance), effect.std**2)


def test_an_error_of_its_own_in_every_frame_averages_out() -> None:
    """K independent errors of one size: covariance Σ_k S_k S_kᵀ; drawn 4000 times, its deviation is known to 1.1 %."""
    columns = RNG.normal(size=(ROWS, 1)) + 3.0
    (each,) = effects(inspection(columns, each_frame=True), JACOBIAN, WEIGHT, FRAME, INVERSE)
    (common,) = effects(inspection(columns), JACOBIAN, WEIGHT, FRAME, INVERSE)
    drawn = [minimum(columns[:, 0] * RNG.normal(size=FRAMES)[FRAME]) for _ in range(4000)]
    np.testing.assert_allclose(np.std(drawn, axis=0), each.std, rtol=0.05)
    assert each.moves.shape == (2, FRAMES) and common.moves.shape == (2, 1)


def test_patches_that_lie_off_move_the_estimate_each_by_itself() -> None:
    """Offsets d_p of the patches, the same in all frames, change residuals by b d_p: in a linear problem the estimate
    moves by S d exactly, to rounding. Rows that lie on no patch (-1) have no offset."""
    by_offset, patch = RNG.normal(size=ROWS), RNG.integers(-1, 4, ROWS)
    found = replace(inspection(np.zeros((ROWS, 1))), patch=patch, by_offset=by_offset)
    effect = details_effect(found, JACOBIAN, WEIGHT, INVERSE, 0.5)
    offsets, noise = RNG.normal(size=4), RNG.normal(size=ROWS)
    moved = noise + by_offset * np.where(patch >= 0, 0.5 * offsets[patch], 0.0)
    np.testing.assert_allclose(minimum(moved) - minimum(noise), effect.moves @ offsets, atol=1e-12)


def test_what_dominates_is_said_with_its_remedy() -> None:
    density = Effect("density_kg_m3", "the density", "weigh it", np.array([[0.03], [0.0]]))
    plane = Effect("plane_offset_m", "the offset of the plane", "estimate it too", np.array([[0.01], [0.02]]))
    variance = np.array([0.03**2 + 0.01**2 + 0.005**2, 0.02**2 + 0.05**2])
    assert mostly([density, plane], variance) == ["mostly the density: weigh it", ""]
    assert mostly([], variance) == ["", ""]


def test_the_model_itself_adds_to_what_has_a_logarithm() -> None:
    variables = make_variables(Parameters(1e4, 0.3, 1000.0), ["youngs_modulus_pa", "gravity_m_s2[1]"])
    np.testing.assert_array_equal(model_effect(variables, 0.01).std, [0.01, 0.0])


@pytest.mark.parametrize(("apart", "expected"), [(0.0, 1.0), (3.0, 3.0)])
def test_halves_that_disagree_widen(apart: float, expected: float) -> None:
    """Two halves of one variable whose own estimates lie `apart` of their common deviations from each other."""
    rows = np.ones((100, 1))
    frame = np.repeat([0, 1], 50)
    std = np.sqrt(1 / 50 + 1 / 50)
    residual = np.where(frame == 0, -0.5, 0.5) * apart * std
    one = np.ones(100)
    at = Evaluation(np.zeros(1), 0.0, 0.0, residual, residual, one, frame, one.astype(bool), 0, jacobian=rows)
    before = Before(np.array([[1e-9]]), np.zeros(1))  # of no weight
    assert halves_apart(at, 1.0, before) == pytest.approx([expected], rel=1e-6)


def one_half_alone(second: float) -> Evaluation:
    """Residuals of two halves, of which only the later one moves with the second variable, at so much of it."""
    frame, one = np.repeat([0, 1], 50), np.ones(100)
    rows = np.stack([one, np.where(frame == 1, np.linspace(-5, 5, 100), 0.0)], axis=1)
    noise = np.random.default_rng(0).normal(size=100)
    residual = noise - rows @ np.linalg.lstsq(rows, noise, rcond=None)[0] + second * rows[:, 1]
    return Evaluation(
        np.array([0.0, second]), 0.0, 0.0, residual, residual, one, frame, one.astype(bool), 0, jacobian=rows
    )


@pytest.mark.parametrize("known", [0.0, 1e-9])
def test_what_one_half_shows_nothing_of_widens_nothing(known: float) -> None:
    """Nothing was known of the second variable before, or as good as nothing."""
    at = one_half_alone(0.0)
    apart = halves_apart(at, 1.0, Before(np.diag([0.0, known]), np.zeros(2)))
    assert np.isfinite(apart).all() and apart[1] == 1.0


def test_halves_that_agree_widen_nothing_beside_the_minimum() -> None:
    """0.3 deviations beside it: the slope that is left there is not what was known before, which has its minimum in the
    same place as the residuals. Taken for it, it sent the half that shows nothing of the second variable 12 of its
    deviations away."""
    prior = np.diag([0.0, 1 / 1.5**2])
    deviation = 1 / np.sqrt((np.linspace(-5, 5, 100)[50:] ** 2).sum() + prior[1, 1])
    at = one_half_alone(0.3 * deviation)
    taken_for_prior = (at.slope @ at.known_jacobian)[1] * 1.5
    assert taken_for_prior > 8
    apart = halves_apart(at, 1.0, Before(prior, prior @ at.theta))
    np.testing.assert_array_less(apart, 1.96)
    assert apart[1] == 1.0


def test_independent_noise_does_not_widen() -> None:
    """r ~ N(0, 1) of 12 frames and 12 patches, fitted by one column: the error over the stated deviation is normal.

    Of 2000 draws 50 % lie within 0.674, to three binomial deviations (3.4 %) and the 2 % that widenings by chance, one
    time in twenty each for frames, patches and halves, may add. To widen by every spread above one gave 58 %.
    """
    rng, count, draws, within = np.random.default_rng(0), 288, 2000, 0
    frame, patch = np.repeat(np.arange(12), 24), np.tile(np.arange(12), 24)
    one, rows = np.ones(count), rng.normal(size=(count, 1))
    covariance = np.linalg.inv(rows.T @ rows)
    for _ in range(draws):
        noise = rng.normal(size=count)
        move = -float((covariance @ rows.T @ noise)[0])
        left = noise + rows[:, 0] * move
        at = Evaluation(np.zeros(1), 0.0, 0.0, left, left, one, frame, one.astype(bool), 0, jacobian=rows)
        widen = widening(at, covariance, 1.0, patch, Before(np.zeros((1, 1)), np.zeros(1)))
        within += abs(move) < 0.674 * widen[0] * np.sqrt(covariance[0, 0])
    assert 0.466 < within / draws < 0.554


@pytest.mark.parametrize(("units", "limit"), [(12, 1.337), (2, 1.960)])
def test_what_chance_gives_one_time_in_twenty(units: int, limit: float) -> None:
    """√(χ²₀.₉₅(f) / f) for f = 11 (19.675) and f = 1 (3.841), from tables."""
    np.testing.assert_array_equal(beyond_chance(np.array([limit - 1e-3, limit + 1e-3]), units - 1), [1.0, limit + 1e-3])


def test_what_nothing_dominates_is_said_to_be_several_things() -> None:
    """Three sources of 0.5 each in the logarithm of E, whose prior has 1: no one makes half of the variance of 0.75,
    and together they leave it as unknown as √0.75 = 0.87 of the prior: the reason has an end."""
    variables = make_variables(
        Parameters(1e4, 0.3, 500.0, 0.0, 0.01), ["youngs_modulus_pa"], {"youngs_modulus_pa": 1.0}
    )
    three = [Effect(name, f"the {name}", "weigh it", np.array([[0.5]])) for name in ("ruler", "scale", "clock")]
    (said,) = describe(variables, variables.start(), np.array([[1e4]]), np.array([[1e-4]]), True, three)
    assert said.reason.endswith(": several things together")
    (said,) = describe(
        variables,
        variables.start(),
        np.array([[1e4]]),
        np.array([[1e-4]]),
        True,
        [Effect("scale", "the scale", "weigh it", np.array([[0.9]]))],
    )
    assert said.reason.endswith(": mostly the scale: weigh it")
