"""What one motion tells the next: windows at a wrong stiffness, ended before they were searched, or on their way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from estimation_experiments import Experiment
from window_experiments import PLANES, feed, seen, swinging_fit, window_of

from soft_estimator.estimation.window import other_stiffness
from soft_estimator.estimation.window.current_episode import CurrentEpisode
from soft_estimator.estimation.window.other_stiffness import FACTORS, OtherStiffnesses
from soft_estimator.estimation.window.window_fit import WindowFit
from soft_estimator.physics.solver import SolverError


def test_a_window_that_follows_the_wrong_stiffness_leaves_it(torus: Experiment) -> None:
    """Before it vouches for half the true stiffness, a window tries twice of it, once: the cost there is lower, and E,
    which six frames tell to some 2 %, within 5 % of the truth. One that has no time for it, or that is at the lowest
    minimum, stays where it is."""
    frames = seen(torus, 6, 0.02)
    softer = replace(torus, truth=torus.truth.replace(youngs_modulus_pa=0.5 * torus.truth.youngs_modulus_pa))
    wrong = swinging_fit(softer, frames)
    # As narrow and settled as at a minimum.
    claimed = replace(wrong.answer(), settled=True, covariance=1e-4 * np.eye(len(wrong.at.z)))
    variables, others = wrong.motion.variables, OtherStiffnesses()
    assert others.better(wrong, claimed, variables, lambda seconds: False) is wrong and not others.looked
    right = others.better(wrong, claimed, variables, lambda seconds: True)
    assert right is not wrong and wrong.cost_of(right) < wrong.cost_of(wrong) - 2.0
    assert np.exp(right.at.z[0]) == pytest.approx(torus.truth.youngs_modulus_pa[0], rel=0.05)
    assert others.better(right, claimed, variables, lambda seconds: True) is right  # once is enough
    assert OtherStiffnesses().better(right, claimed, variables, lambda seconds: True) is right
    spread = OtherStiffnesses()  # by one simulation a call: the same in the end
    for _ in range(len(FACTORS) * 5):
        found = spread.better(wrong, claimed, variables, lambda seconds: True, most=1)
        if spread.looked:
            break
        assert found is wrong and spread.searching
    assert not spread.searching
    np.testing.assert_array_equal(found.at.z, right.at.z)


def test_a_window_that_ends_before_it_was_searched_is_searched_all_the_same(torus: Experiment) -> None:
    """While it has not settled it is not, as it may yet. What is found when its episode is over takes the place of what
    was learnt from it, and the episode at hand, which began with that, ends; what does not settle leaves nothing."""
    softer = replace(torus, truth=torus.truth.replace(youngs_modulus_pa=0.5 * torus.truth.youngs_modulus_pa))
    wrong = swinging_fit(softer, seen(torus, 6, 0.02))
    claimed = replace(wrong.answer(), settled=False, covariance=1e-4 * np.eye(len(wrong.at.z)))
    variables, others = wrong.motion.variables, OtherStiffnesses()
    assert others.better(wrong, claimed, variables, lambda seconds: True) is wrong and not others.searching
    claimed = replace(claimed, settled=True)
    others.before_learning(wrong, claimed, variables)
    others.end_episode()
    assert others.searching
    others.spend()
    assert others.taken(None) is None and others.looked and not others.searching
    late = others.found_late
    assert late is not None and late.answer().settled
    assert np.exp(late.at.z[0]) == pytest.approx(torus.truth.youngs_modulus_pa[0], rel=0.05)

    window = window_of(torus, ["youngs_modulus_pa", "poissons_ratio"])
    episode = window._episode
    assert not episode.correct()
    episode.begin(wrong, 10.0)
    episode.others.found_late = late
    assert episode.correct() and episode.fit is None and episode.others.found_late is None
    np.testing.assert_allclose(window.lasting.learnt.knowledge.mean[:2], late.answer().z[:2])
    for led in (False, True):  # tools' times count from one episode's start: a search there ends with it
        other = CurrentEpisode(window.episodes, window._own_errors, window._bent, led)
        other.others.before_learning(wrong, claimed, variables)
        other.end()
        assert other.others.searching is not led
    # At half the stiffness the minimum is beyond its linearisation.
    episode.others.found_late, episode.others.late_was_learnt = wrong, False
    assert not episode.correct() and window.lasting.begun
    episode.others.found_late, episode.others.late_was_learnt = wrong, True
    assert not wrong.answer().settled and episode.correct() and not window.lasting.begun


def test_a_window_that_ends_on_its_way_goes_to_its_minimum_first(
    torus: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the next episode begins with is a minimum, not the point on the way there; where none is reached, what was
    known before stays."""
    names = ["youngs_modulus_pa", "poissons_ratio"]
    softer = replace(torus, truth=torus.truth.replace(youngs_modulus_pa=0.6 * torus.truth.youngs_modulus_pa))
    episode = (window := window_of(torus, names))._episode
    episode.begin(swinging_fit(softer, seen(torus, 6, 0.02)), 10.0)
    assert episode.fit is not None and not episode.fit.answer().settled
    np.testing.assert_array_equal(episode.learnt_from(episode.fit, episode.fit.answer()).information, 0.0)
    episode.learn()
    assert episode.fit.answer().settled and window.lasting.begun
    found_pa = np.exp(window.lasting.learnt.knowledge.mean[0])
    assert found_pa == pytest.approx(torus.truth.youngs_modulus_pa[0], rel=0.05)

    episode = (window := window_of(torus, names))._episode
    stuck = swinging_fit(softer, seen(torus, 6, 0.02))
    monkeypatch.setattr(stuck, "refine", _gets_nowhere)
    episode.begin(stuck, 10.0)
    episode.conclude()
    assert not window.lasting.begun and not window.begun
    episode.begin(stuck, 10.0)
    episode.worked_out = True  # as `settle` leaves it: nearer than this it does not get, and that was judged
    episode.conclude()
    assert window.lasting.begun and not episode.worked_out


def test_a_live_window_that_ends_on_its_way_goes_there_beside_the_next(torus: Experiment) -> None:
    """By one simulation at a time; then the episode at hand, which began without what is found, begins anew."""
    softer = replace(torus, truth=torus.truth.replace(youngs_modulus_pa=0.6 * torus.truth.youngs_modulus_pa))
    episode = (window := window_of(torus, ["youngs_modulus_pa", "poissons_ratio"]))._episode
    window.hurry = lambda: True
    episode.begin(swinging_fit(softer, seen(torus, 6, 0.02)), 10.0)
    episode.conclude()
    others = episode.others
    assert not window.lasting.begun and others.searching and others.doubtful and window.puts_off
    assert window.learns_first  # frames that wait begin motions of which each would be searched from as far away
    pieces = 0
    while others.searching and pieces < 50:
        others.spend(1)
        assert others.taken(None) is None
        pieces += 1
    assert 5 < pieces < 50 and others.looked and others.found_late is not None
    assert episode.correct() == "an earlier motion was worked out" and window.lasting.begun and not window.learns_first
    found_pa = np.exp(window.lasting.learnt.knowledge.mean[0])
    assert found_pa == pytest.approx(torus.truth.youngs_modulus_pa[0], rel=0.05)
    # Once other stiffnesses were tried, what is said meanwhile is not in doubt.
    episode.begin(swinging_fit(softer, seen(torus, 6, 0.02)), 20.0)
    episode.conclude()
    assert others.searching and not others.doubtful and not window.learns_first
    window.reset()
    assert not episode.others.searching


def test_a_stiffness_that_cannot_be_simulated_leaves_the_others_their_time(
    torus: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one that is tried fails: the best before it is still followed to its minimum."""
    softer = replace(torus, truth=torus.truth.replace(youngs_modulus_pa=0.5 * torus.truth.youngs_modulus_pa))
    wrong, begun = swinging_fit(softer, seen(torus, 6, 0.02)), WindowFit.from_another
    claimed = replace(wrong.answer(), settled=True, covariance=1e-4 * np.eye(len(wrong.at.z)))
    others, stiffest = OtherStiffnesses(), wrong.at.z[0] + np.log(FACTORS[-1]) - 1e-9

    def but_the_stiffest(fit: WindowFit, z: np.ndarray) -> WindowFit:
        return _gets_nowhere(1, lambda seconds: True) if z[0] > stiffest else begun(fit, z)

    monkeypatch.setattr(WindowFit, "from_another", but_the_stiffest)
    monkeypatch.setattr(other_stiffness, "_ITERATIONS", 1)  # so that there is some of the way left
    others.before_learning(wrong, claimed, wrong.motion.variables)
    others.end_episode()
    others.spend()
    assert others.taken(None) is None and others.found_late is not None and others.found_late.answer().settled


def _gets_nowhere(iterations: int, in_time: Callable[[float], bool]) -> Any:
    raise SolverError("it did not converge")


def test_what_contradicts_the_plane_that_was_seen_is_not_kept(ball: Experiment) -> None:
    """A fit that takes the ground elsewhere is wrong in its stiffness as well: forgetting the plane alone would leave
    that."""
    window = window_of(ball, PLANES)
    normal, offset_m = ball.truth.plane_normal, ball.truth.plane_offset_m
    window.know_plane(normal, offset_m, 0.01, 0.0005)
    feed(window, seen(ball, 6, 0.01))
    assert window.last is not None and window.status == "tracking" and window._fit is not None
    answer = window._fit.answer()
    assert answer.settled
    fit = window._fit
    kept = window._episode.learnt_from(fit, answer)
    np.testing.assert_allclose(kept.knowledge.mean, answer.z[window.lasting.places(len(answer.z))])
    place = [v.name for v in window.lasting.variables.variables].index("plane_offset_m")
    z = answer.z.copy()
    z[place] = offset_m + 0.0019  # 3.8 deviations of what was seen
    assert window._episode.learnt_from(fit, replace(answer, z=z)) is not window.lasting.learnt
    z[place] = offset_m + 0.0021
    assert window._episode.learnt_from(fit, replace(answer, z=z)) is window.lasting.learnt


def test_other_stiffnesses_are_tried_by_half_octaves() -> None:
    """A search from twice a stiffness may end beyond the right one: neighbouring starts, the stiffness
    at hand among them, are a factor of no more than 2^1/2 apart, to two digits."""
    factors = np.sort([*FACTORS, 1.0])
    assert (np.diff(np.log2(factors)) < 0.52).all() and factors[0] <= 0.5 and factors[-1] >= 2.0
