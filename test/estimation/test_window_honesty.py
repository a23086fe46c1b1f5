"""The window's intervals hold what is fixed but not known, and it says when it does not fit or has not settled."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from dropped_ball import GUESS, SMALL, TRUE_PA, frames, said, window

from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.window.arrival import Knowledge
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.estimation.window.window_fit import Answer

KNOWN = KnownToConfig()


@cache
def exact() -> LiveEstimate:
    """Where everything that is fixed counts as exact, three frames after the window began to slide."""
    return said(window(), frames()[:12])[-1]


@cache
def known() -> tuple[LiveEstimate, Answer, list[str]]:
    """The same with the usual deviations: the last estimate, the window's answer, and the names of its columns."""
    target = window(known=KNOWN)
    last = said(target, frames()[:12])[-1]
    fit = target._fit
    assert fit is not None and fit.slid
    answer = fit.answer()
    return last, answer, [source.name for source in fit.motion.sources(answer.z) for _ in source.directions]


def test_the_columns_change_no_value_and_widen_the_interval() -> None:
    last, _, names = known()
    one, other = last.parameters[0], exact().parameters[0]
    # Columns more or fewer are other rounds of conjugate gradients, to their tolerance.
    assert one.value == pytest.approx(other.value, rel=1e-3) and last.verdict.fits and exact().verdict.fits
    # E/ρ is what is seen: the density's 3 % are in the deviation.
    assert one.std > np.hypot(other.std, 0.02 * one.value)
    assert one.std_statistical == pytest.approx(other.std_statistical, rel=0.02)
    assert set(names) == {"poissons_ratio", "density_kg_m3", "plane_normal", "shape_scale"}


def test_a_wrong_density_stays_inside() -> None:
    """5 % of density are 5 % of E, several of the noise's deviations; the column foretells the move, after sliding,
    too: what left the window has passed on how it depends on the density."""
    e = said(window(GUESS.replace(density_kg_m3=1050.0), known=KNOWN), frames()[:12])[-1].parameters[0]
    moved = e.value / exact().parameters[0].value - 1
    assert 0.03 < moved < 0.07 and e.low < TRUE_PA < e.high
    _, answer, names = known()
    foretold = answer.by_fixed[0, names.index("density_kg_m3")] / KNOWN.density_kg_m3
    assert foretold == pytest.approx(moved / 0.05, rel=0.25)  # a finite step of a motion with a touch in it


def test_knowledge_passes_on_how_it_depends_on_what_is_fixed() -> None:
    """Two batches of linear data joined one after the other depend on a fixed number as both at once do."""
    rng = np.random.default_rng(0)
    rows, columns, data = rng.normal(size=(40, 3)), rng.normal(size=(40, 2)), rng.normal(size=40)
    knowledge = Knowledge(np.zeros(3), np.eye(3), np.zeros((3, 2)))
    for part in (slice(0, 25), slice(25, 40)):
        j, c = rows[part], columns[part]
        knowledge = knowledge.joined(np.zeros(3), j.T @ j, j.T @ data[part], j.T @ c)
    inverse = np.linalg.inv(rows.T @ rows + np.eye(3))
    np.testing.assert_allclose(knowledge.by_fixed, -inverse @ rows.T @ columns, atol=1e-10)
    np.testing.assert_allclose(knowledge.mean, -inverse @ rows.T @ data, atol=1e-10)


def test_another_body_is_called_so() -> None:
    """Points pulled to an egg, 12 % longer upwards: 6 mm at the poles, against noise of 0.5 mm. No patience: it would
    wait for a frame that looks like the ball."""
    eggs, impatient = [], replace(SMALL, bent_patience_s=0.0)
    for frame in frames()[:9]:
        centre = frame.points_m.mean(axis=0)
        eggs.append(replace(frame, points_m=centre + (frame.points_m - centre) * np.array([1, 1.12, 1])))
    told = [e for e in said(window(config=impatient, known=KNOWN), tuple(eggs)) if not e.verdict.fits]
    assert told, "never called a misfit"
    assert all(not p.observable and "does not fit" in p.reason for e in told for p in e.parameters)
    assert any("does not fit" in note for note in told[0].notes)


def test_a_misfit_that_finer_steps_or_cells_do_not_show_is_none_of_the_body() -> None:
    """A falling ball's points pulled to an egg, 6 mm at the poles, do not fit. Were the ball's own residuals those of a
    finer grid, r' = r + Δr, they would: the window then has nothing to complain of. A tenth of Δr is not enough."""
    impatient, seen, eggs = replace(SMALL, bent_patience_s=0.0), frames()[:3], []
    for frame in seen:
        centre = frame.points_m.mean(axis=0)
        eggs.append(replace(frame, points_m=centre + (frame.points_m - centre) * np.array([1, 1.12, 1])))
    target, ball = (window(config=impatient, known=KNOWN) for _ in range(2))
    for one, shown in ((target, tuple(eggs)), (ball, seen)):
        said(one, shown)
        assert one.settle(10) is not None
    fit, own = target._fit, ball._fit
    assert fit is not None and own is not None
    change = [own.settled(k).residual - fit.settled(k).residual for k in range(3)]
    little, rest = ([share * part for part in change] for share in (0.1, 0.9))
    nothing = np.zeros(len(target.lasting.variables))

    def fits(*changes: list[np.ndarray]) -> bool:
        made = target.episodes.estimate(fit, fit.answer(), fit.settled(-1), 0.0, nothing, (), changes)
        return made.verdict.fits

    assert not fits() and not fits(little) and fits(change) and fits(little, rest)


def test_a_fit_that_ends_unsettled_is_judged_where_it_stands() -> None:
    """Points pulled to an egg, 6 mm at the poles. On its way a fit is not judged: it may yet come to fit. Where no
    search follows it is: a number of a fit that neither settled nor fits is worse than none."""
    target = window(config=replace(SMALL, bent_patience_s=0.0), known=KNOWN)
    eggs = []
    for frame in frames()[:3]:
        centre = frame.points_m.mean(axis=0)
        eggs.append(replace(frame, points_m=centre + (frame.points_m - centre) * np.array([1, 1.12, 1])))
    said(target, tuple(eggs))
    fit, verdict = target._fit, target.episodes.verdict
    assert fit is not None
    unsettled = replace(fit.answer(), settled=False)
    assert verdict.of(fit, unsettled).fits and not verdict.of(fit, unsettled, ended=True).fits
    made = target.settle(1)
    assert made is not None and not made.verdict.fits


def test_an_episode_that_is_abandoned_has_never_been() -> None:
    """A drop, then one that nothing fits, then the first again: the same bits as without the one in between."""
    seen = frames()[:6]
    spoilt = [replace(f, points_m=1.1 * f.points_m) for f in frames()[:4]]  # a fifth ends it by itself: no such motion
    with_it = window(config=replace(SMALL, bent_patience_s=0.0), known=KNOWN)  # it would wait for one that fits
    said(with_it, seen)
    with_it.reset(keep_parameters=True)
    shared = [with_it.model, with_it.backend, *with_it.made_once.values()]  # no frame changes them
    without = deepcopy(with_it, {id(part): part for part in shared})
    for frame in spoilt:
        with_it.add_frame(200.0 + frame.time_s, frame.points_m, frame.std_m)
    assert with_it.settle(5) is not None  # it was tracked, and looked at with half the step
    with_it.abandon()
    for target in (with_it, without):
        for frame in seen:
            target.add_frame(300.0 + frame.time_s, frame.points_m, frame.std_m)
    one, other = (target.settle(5) for target in (with_it, without))
    assert one is not None and other is not None
    assert [(p.value, p.std) for p in one.parameters] == [(p.value, p.std) for p in other.parameters]
