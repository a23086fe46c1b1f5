"""A fit that takes the plane far from where it was seen contradicts one of the two, and vouches for nothing."""

from __future__ import annotations

import numpy as np
import pytest
from dropped_ball import TRUTH, frames, said, window

from soft_estimator.estimation.fitting.told_plane import FAR, plane_off, with_told_plane
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.variables import make_variables
from soft_estimator.estimation.window.live_estimate import LiveEstimate

NAMES = ["youngs_modulus_pa", "plane_normal", "plane_offset_m", "contact_stiffness_pa_per_m"]
STD = {"plane_normal": 0.005, "plane_offset_m": 0.0005}
UP = np.array([0.0, 1.0, 0.0])


def test_only_the_plane_counts_by_its_own_deviations() -> None:
    """(θ - prior)/deviation of its tilt and offset; a stiffness, which is guessed, may be any number of them off."""
    v = make_variables(TRUTH.replace(contact_stiffness_pa_per_m=2e6), NAMES, STD)
    theta = v.prior_mean + v.prior_std * np.array([9.0, 0.5, -1.0, 2.0, 9.0])
    np.testing.assert_allclose(plane_off(v, theta), [0.0, 0.5, -1.0, 2.0, 0.0], atol=1e-9)
    assert with_told_plane(FitVerdict(), v, theta).fits


@pytest.mark.parametrize(("label", "by", "words"), [
    ("plane_offset_m", 1.0, "2.1 mm lower"), ("plane_offset_m", -1.0, "2.1 mm higher"),
    ("plane_normal[1]", 1.0, "tilted by 1.2 degrees"),
])  # fmt: skip
def test_beyond_four_deviations_it_does_not_fit(label: str, by: float, words: str) -> None:
    v = make_variables(TRUTH.replace(contact_stiffness_pa_per_m=2e6), NAMES, STD)
    one = v.prior_std * (np.array(v.labels) == label) * by
    figures = {"patches": 0.5}
    assert with_told_plane(FitVerdict(figures=figures), v, v.prior_mean + 0.99 * FAR * one).fits
    found = with_told_plane(FitVerdict(figures=figures), v, v.prior_mean + 1.05 * FAR * one)
    assert not found.fits and found.cause == "contact" and words in found.reason
    assert found.figures == {**figures, "plane": pytest.approx(1.05 * FAR)}
    other = FitVerdict(False, "the clock", "clock")  # what was wrong before stays the reason
    assert with_told_plane(other, v, v.prior_mean + 9 * one) is other


def told(offset_m: float) -> list[LiveEstimate]:
    """A window over a drop on a plane at zero that was told to lie elsewhere, to half a millimetre; from where the ball
    lies in it on."""
    target = window()
    target.know_plane(UP, offset_m, 0.005, 0.0005)
    return [e for e in said(target, frames()[:9])[5:] if e.settled]


def test_a_window_that_finds_the_ground_elsewhere_vouches_for_nothing() -> None:
    """The ball shows the plane to some tenths of a millimetre: told 6 mm too high, it is found more than four
    deviations lower. Nothing but the ball says which of the two is right."""
    right, wrong = told(0.0), told(-0.006)
    assert right and all(e.verdict.fits for e in right) and any(e.parameters[0].observable for e in right)
    assert wrong and not any(p.observable for e in wrong for p in e.parameters)
    assert all("the model does not fit" in e.notes[-1] for e in wrong)
    assert any(e.verdict.cause == "contact" for e in wrong)
