"""Estimates as lines of text, with first guesses and true values under the labels that estimates have."""

from __future__ import annotations

import numpy as np
from tiny_ball import scene_of

from soft_estimator.estimation.fitting.uncertainty import Estimate
from soft_estimator.live.bands import band_view, in_few_words, true_values
from soft_estimator.scene.variables import variables_of


def test_every_estimated_number_has_its_truth_and_its_guess() -> None:
    """The stiffness of a body of one material is published without a number, and marked as that, whether an estimate
    comes from the window or from a topic."""
    scene = scene_of()
    assert scene.config.estimate is not None
    variables, view = variables_of(scene, scene.config.estimate), band_view(scene)
    label, published = "youngs_modulus_pa[0]", "youngs_modulus_pa"
    labels = {published if name == label else name for name in variables.labels}
    assert published in labels
    assert set(view.truth) == set(view.guess) == labels == set(true_values(scene))
    assert view.truth[published] == scene.parameters.youngs_modulus_pa[0] and np.isfinite(view.guess[published])
    true = view.truth[published]
    for name in (label, published):
        e = Estimate(name, "Pa", 1.1 * true, 0.1 * true, 0.9 * true, 1.3 * true, True, "", 0.1 * true)
        line = view.lines([e])[0]
        assert line.startswith(f"  {published} ") and f"truth {true / 1e3:.4g} (+10.0 %)" in line
        assert "┃" in line and "●" in line


STIFFNESS = Estimate("youngs_modulus_pa", "Pa", 12840.0, 290.0, 12280.0, 13420.0, True, "")
RATIO = Estimate("poissons_ratio", "", 0.44, 0.07, 0.28, 0.48, False, "the data cannot tell it")


def test_what_is_vouched_for_is_shown_in_a_unit_without_zeros_and_nothing_else() -> None:
    assert in_few_words([STIFFNESS, RATIO]) == "youngs_modulus_pa 12.84 (12.28 to 13.42) kPa"


def test_where_nothing_is_vouched_for_the_reason_is_shown_and_no_number() -> None:
    assert in_few_words([RATIO]) == "nothing is vouched for yet: the data cannot tell it"
    assert in_few_words([]) == "no estimate yet"
