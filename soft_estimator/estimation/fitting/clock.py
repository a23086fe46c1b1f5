"""Does a held body keep the time of its stamps? One more variable, the rate of their clock, fitted at the solution.

How far a held body swings under its weight tells E/ρ, and so does how fast: stamps of a clock at half speed make it
four times too stiff for its sag. No patch need lie off by more than its shape may; all of them together tell.

Where both differ by more than chance, and not by enough to be called wrong, they are two parts of the data that
disagree: what E would move by with the rate that was found is in its deviation.

What swings at another frequency than the model, because its E is not known, loses step with it, and is fitted best by
a model that hardly swings: its damping comes out too large, by a factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.fitting.allowance import OFF_TOGETHER, shape_std_m
from soft_estimator.estimation.fitting.consider import Effect
from soft_estimator.estimation.fitting.explained import extended, patch_columns
from soft_estimator.estimation.fitting.uncertainty import NARROWED, Posterior, with_effect
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.fitting.widening import beyond_chance
from soft_estimator.estimation.inspection import Inspection, look_at
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.variables import Variables

STIFFNESS = "youngs_modulus_pa"
CLOCK = "clock"
RATE = "time_rate"
APART = ("sag_and_swing", "a sag and a swing that tell two stiffnesses", "check the stamps, gravity and how it began")
# A rate is wrong that is off by so many standard deviations, and by so much of itself: grid, step and clamp put the
# two ways of telling E/ρ apart, a rate by up to a sixth in clean recordings of the benchmark of misfits.
_DEVIATIONS, _LEAST_OFF = 5.0, 0.25
DAMPINGS = ("mass_damping_per_s", "stiffness_damping_s")
PHASE = ("phase", "a stiffness too little known to swing in step", "scan it finely, hold it as the scene has it")
# Deviations of a damping's logarithm for one of a stiffness'. Of 48 held bodies with model errors, E known to a
# factor of 1.5 to 4.5, dampings were 1.7 deviations off rms, up to 6.0, 42 of them too large; so 0.7 and 2.6.
_STEPS_LOST = 2.0
_STAMPS = ("time_rate", "time_offset_s")  # what the fitted rate stands for


class ClockRate(NamedTuple):
    """How much faster than its stamps a held body's time goes, relative, the standard deviation of that, and what θ
    moves by with it, (P,)."""

    off: float
    std: float
    move: np.ndarray


def clock_rate(
    problem: Problem,
    at: Evaluation,
    inspection: Inspection,
    noise_scale: float,
    changes: Sequence[np.ndarray] = (),
) -> ClockRate | None:
    """The rate at a fit; None of a body that nothing holds, and of a clock that is exact.

    Variables, everything held fixed and an offset of every patch of the surface move with it, within their priors.

    Args:
        at: with its Jacobian. noise_scale: noise over the stated one.
        changes: of the residuals with what grid, step and clamp are wrong by, (n,) each.
    """
    known: KnownToConfig | None = problem.known
    by_name = {source.name: columns for source, columns in zip(inspection.sources, inspection.columns)}
    if known is None or RATE not in by_name or not problem.model.dirichlet.any:
        return None
    fixed = [
        columns
        for source, columns in zip(inspection.sources, inspection.columns)
        if not source.each_frame and source.name not in _STAMPS
    ]
    off_m = OFF_TOGETHER * shape_std_m(known, problem.model.body)
    patches = off_m * patch_columns(inspection.patch, inspection.by_offset)
    # The rate's own prior, of as much as itself, keeps the equations regular where nothing moves.
    columns = [*fixed, patches, *(change[:, None] for change in changes), by_name[RATE] / known.time_rate]
    hessian, slope, _ = extended(problem, at, columns, noise_scale**2)
    covariance = np.linalg.inv(hessian)
    off, variance = float(-(covariance @ slope)[-1]), float(covariance[-1, -1])
    return ClockRate(off, float(np.sqrt(variance)), off / variance * covariance[: len(at.theta), -1])


def with_clock(
    verdict: FitVerdict, problem: Problem, at: Evaluation, inspection: Inspection, noise_scale: float
) -> FitVerdict:
    """The verdict on a fit whose body may move by another clock than that of its stamps."""
    found = clock_rate(problem, at, inspection, noise_scale) if verdict.fits else None
    if found is None or abs(found.off) <= max(_DEVIATIONS * found.std, _LEAST_OFF):
        return verdict
    reason = (
        f"sag and swing fit together only if {1 + found.off:.2g} s go by in a second of the stamps: the stamps are "
        "wrong, or gravity, or how it began"
    )
    return FitVerdict(False, reason, CLOCK, {**verdict.figures, RATE: found.off})


def is_by_clock(verdict: FitVerdict) -> bool:
    """Whether a fit was called wrong for its clock alone: no finer grid mends that."""
    return not verdict.fits and RATE in verdict.figures


def where_stiffness_is_known(verdict: FitVerdict, variables: Variables, covariance: np.ndarray) -> FitVerdict:
    """The verdict on a clock, taken back where errors of grid, step and clamp leave the stiffness as unknown as before:
    sag and swing cannot differ in what neither of them tells.

    covariance: of θ, with those errors in it, (P, P).
    """
    known = [
        np.sqrt(covariance[j, j]) < NARROWED * v.prior_std
        for j, v in enumerate(variables.variables)
        if v.name == STIFFNESS
    ]
    return FitVerdict(figures=verdict.figures) if is_by_clock(verdict) and not any(known) else verdict


def with_sag_and_swing(problem: Problem, at: Evaluation, found: Posterior, changes: Sequence[np.ndarray]) -> Posterior:
    """The posterior of a held body that fits, with what it moves by with the rate of the clock that was found, where
    that is off by more than noise would have it one time in twenty. Arguments as in `clock_rate`."""
    if not found.verdict.fits or problem.known is None or not problem.model.dirichlet.any:
        return found
    rate = clock_rate(problem, at, look_at(problem, at.theta), found.noise_scale, changes)
    if rate is None or beyond_chance(np.array([abs(rate.off) / rate.std]), 1)[0] == 1.0:
        return found
    return with_effect(problem.variables, found, Effect(*APART, rate.move[:, None]))


def with_lost_phase(problem: Problem, found: Posterior) -> Posterior:
    """The posterior of a held body with dampings, in logarithms, no better known than its stiffness is, times
    `_STEPS_LOST`."""
    v = problem.variables
    variance = np.diag(found.covariance)
    stiffnesses = [j for j, variable in enumerate(v.variables) if variable.name == STIFFNESS]
    dampings = np.array([variable.name in DAMPINGS for variable in v.variables])
    if not stiffnesses or not problem.model.dirichlet.any:
        return found
    least = _STEPS_LOST**2 * variance[stiffnesses].max()
    missing = np.where(dampings, np.maximum(least - variance, 0.0), 0.0)
    return with_effect(v, found, Effect(*PHASE, np.diag(np.sqrt(missing)))) if missing.any() else found
