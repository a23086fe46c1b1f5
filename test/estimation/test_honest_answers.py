"""Whole estimates of a ball that falls onto a table, with one thing wrong at a time: caught, or inside the interval."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from honest_cases import QUICK, TRUTH_PA, changed, clean, found, holds, released, seen
from misfit_cases import recording
from tiny_ball import ball

from soft_estimator.backends.choose import choose_backend
from soft_estimator.estimation.fitting.least_squares import normal_equations
from soft_estimator.studies.estimate import estimate_scene

MATERIAL, CONTACT = ball()["material"], ball()["contact"]
X, _, Z = np.eye(3)
pytestmark = pytest.mark.slow


def test_a_clean_recording_fits_and_says_what_its_interval_comes_from() -> None:
    """The truth has other cells and steps. The plane of 1.5 mm is the larger part of E's deviation: 2 mm of it moved E
    by 25 % (METHOD §15), noise by less than a per cent."""
    result = clean()
    (e,) = result.posterior.estimates
    assert result.posterior.verdict.fits and holds(result) and e.observable
    assert e.mostly == "mostly the offset of the plane: estimate it too"
    assert e.std_statistical is not None and 0 < e.std_statistical < 0.3 * e.std
    # Σ of the parts is the whole, to rounding.
    parts = sum((x.covariance for x in result.posterior.effects), result.posterior.statistical)
    np.testing.assert_allclose(parts, result.posterior.covariance, rtol=1e-12)


def test_a_search_ends_at_its_minimum() -> None:
    """The next Gauss-Newton step, along the Jacobian of where it ended, lowers the cost by hardly anything: a twentieth
    of the noise's variance. Along one of a few steps before it ended 65 above, with E 5 % too low."""
    result = clean()
    at = result.best.evaluation
    hessian, slope = normal_equations(result.problem, at)
    noise = max(1.0, 2 * at.cost / len(at.residual))
    assert 0.5 * slope @ np.linalg.solve(hessian, slope) < 0.05 * noise


@pytest.mark.parametrize(
    "wrong",
    [
        {"material": {**MATERIAL, "density_kg_m3": 1050}},
        {"contact": {**CONTACT, "offset_m": 0.002}},
        {"contact": {**CONTACT, "offset_m": -0.002}},
        {"material": {**MATERIAL, "poissons_ratio": 0.3}},
    ],
    ids=["density", "plane above", "plane below", "poissons ratio"],
)
def test_a_fixed_number_that_is_wrong_leaves_the_truth_in_the_interval(wrong: dict[str, Any]) -> None:
    result = found(seen(), **wrong)
    assert holds(result)
    (e,) = result.posterior.estimates
    # And not by an interval that says nothing: within a factor of two either way.
    assert e.low > 0.5 * TRUTH_PA and e.high < 2.5 * TRUTH_PA


def test_estimating_the_plane_takes_it_off_the_list() -> None:
    estimate = {
        "parameters": ["youngs_modulus_pa", "plane_offset_m"],
        "guess": {"youngs_modulus_pa": "33 kPa"},
        **QUICK,
    }
    result = found(seen(), estimate=estimate)
    alone = clean()
    assert "plane_offset_m" in {x.name for x in alone.posterior.effects} - {x.name for x in result.posterior.effects}
    assert holds(result)


def _noise(points: np.ndarray, time_s: float) -> np.ndarray:
    rng = np.random.default_rng(round(1e4 * time_s))
    return rng.uniform(-0.06, 0.06, points.shape) + np.array([0, 0.07, 0])


@pytest.mark.parametrize(
    ("frames", "causes"),
    [
        (lambda: changed(seen(), points=lambda p, t: p + 0.03 * X), {"pose"}),
        (lambda: changed(seen(), points=lambda p, t: p + 0.3 * t * Z), {"start", "pose"}),
        (lambda: seen(0, "box"), {"shape", "body", "size"}),
        (lambda: seen(0, "larger"), {"size", "pose"}),
        (lambda: changed(seen(), points=_noise), {"noise", "body", "shape"}),
        (lambda: changed(seen(), points=lambda p, t: p + 0.2 * max(t - 0.045, 0) * Z), {"touched"}),
        (lambda: changed(seen(), time=lambda t: 0.5 * t), {"clock"}),
    ],
    ids=["shifted 30 mm", "slides away", "a box", "a larger ball", "pure noise", "a hand midway", "half speed"],
)
def test_a_model_that_does_not_fit_is_called_so(frames: Any, causes: set[str]) -> None:
    result = found(frames())
    verdict = result.posterior.verdict
    assert not verdict.fits and verdict.cause in causes and verdict.reason
    assert not any(e.observable for e in result.posterior.estimates)  # no confident number beside it
    assert "hardly deformed" not in result.posterior.estimates[0].reason


def test_a_body_released_from_a_pinch_is_called_so() -> None:
    """Pinched by 12 mm, twelve times the camera's noise; a ball of 30 kPa swings at 170/s and loses 14/s of that, so
    most of it is there in all of the 0.09 s. Not pinched, the same way of making frames makes those that fit."""
    verdict = found(released(0.012)).posterior.verdict
    assert not verdict.fits and verdict.cause in {"start", "shape"}
    for frame, other in zip(released(0.0).frames, seen().frames, strict=True):
        assert frame.time_s == other.time_s
        np.testing.assert_array_equal(frame.points_m, other.points_m)
        np.testing.assert_array_equal(frame.std_m, other.std_m)
    assert clean().posterior.verdict.fits


def test_copies_do_not_count_twice() -> None:
    once, often = clean(), found(changed(seen(), points=lambda p, t: np.tile(p, (30, 1))))
    assert often.frames.copied_points == 29 * once.frames.points
    np.testing.assert_array_equal(often.posterior.covariance, once.posterior.covariance)


def test_early_frames_that_lead_astray_are_left_again() -> None:
    """A soft ring let go (E 3.1 kPa): its first frames fit best without stiffness and with much damping, and from there
    the fit went to 0.08 Pa with residuals five times the noise, called a touch. Three cells through the ring's section
    are some 40 % too soft, which is not what is tested here."""
    drawn = recording(1038, "")
    config = drawn.told.config
    assert config.estimate is not None
    told = replace(drawn.told, config=replace(config, estimate=replace(config.estimate, grid_error_nodes=0)))
    result = estimate_scene(told, choose_backend("cpu"), frames=drawn.frames)
    assert result.posterior.verdict.fits and result.posterior.noise_scale < 2
    assert 0.5 < result.posterior.estimates[0].value / drawn.truth_pa < 2
