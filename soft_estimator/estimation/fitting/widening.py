"""How much wider an estimate spreads than point-by-point noise makes it: one rule, for recordings and for windows.

Errors that points share (a matcher's bias, the model's own error) do not average out over points. Frames, patches of
the surface, and the earlier and later half of the data, taken as units, show by how much they disagree that there are
such errors. A search that has not come to its minimum is off by the way that is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaincinv

from soft_estimator.estimation.problem import Evaluation

_LEAST_FRAMES = 4  # whose scores' spread means anything
_LEAST_PATCHES = 6  # the same of patches
# Spreads that noise alone gives in as many cases say nothing. To widen by every spread that happens to exceed what was
# expected made intervals of clean data a sixth too wide: 50 % of them held 58 % of the truths.
_CHANCE = 0.95


@dataclass(frozen=True, eq=False)
class Before:
    """What was known before the residuals: the curvature (P, P) of its cost, and its gradient (P,) where they are."""

    information: np.ndarray
    gradient: np.ndarray


def widening(at: Evaluation, covariance: np.ndarray, scale: float, patch: np.ndarray, before: Before) -> np.ndarray:
    """How much wider than point-by-point noise each variable spreads, (P,), at least 1: the most of what frames,
    patches of the surface and halves of the data show, where chance has not done it.

    Args:
        at: at the minimum, with its Jacobian. covariance: (JᵀWJ + prior)⁻¹. scale: noise over the stated one.
        patch: of each residual, (n,), -1 for none. before: what was known without them, the prior of `covariance`.
    """
    widen = np.maximum(frame_widening(at, covariance, scale), beyond_chance(halves_apart(at, scale, before), 1))
    clouds = np.flatnonzero(patch >= 0)
    seen = np.bincount(patch[clouds]) > 0
    count = int(seen.sum())
    if count < _LEAST_PATCHES:
        return widen
    place = (np.cumsum(seen) - 1)[patch[clouds]]
    units = sp.csr_matrix((_slope(at, scale)[clouds], (place, clouds)), (count, len(patch)))
    scores = units @ at.known_jacobian
    return np.maximum(widen, beyond_chance(unit_widening(scores, covariance), count - 1))


def frame_widening(at: Evaluation, covariance: np.ndarray, scale: float) -> np.ndarray:
    """The same of what frames alone show."""
    frames = int(at.frame[-1]) + 1
    jacobian, slope, ends = at.known_jacobian, _slope(at, scale), np.searchsorted(at.frame, np.arange(frames + 1))
    scores = np.array([slope[a:b] @ jacobian[a:b] for a, b in pairwise(ends)])
    return beyond_chance(unit_widening(scores, covariance), frames - 1)


def _slope(at: Evaluation, scale: float) -> np.ndarray:
    """What each residual pulls at the variables by along its row of the Jacobian, (n,)."""
    return at.slope / np.where(at.whitened, scale, 1.0) ** 2


def beyond_chance(widen: np.ndarray, freedom: int) -> np.ndarray:
    """Widenings (P,), 1 for those that noise alone would exceed one time in twenty or more: their squares, times the
    degrees of freedom of the spread they come from, are then χ²."""
    limit = np.sqrt(2 * gammaincinv(freedom / 2, _CHANCE) / freedom) if freedom > 0 else 1.0
    return np.where(widen > limit, widen, 1.0)


def halves_apart(at: Evaluation, scale: float, before: Before) -> np.ndarray:
    """By how many of their common standard deviations the estimates from the earlier and from the later half of the
    residuals differ, (P,), at least 1: each half's own Gauss-Newton step from where they are.

    That need not be the minimum: a slope of a hundredth of a deviation that was left over there, taken for a pull of
    what was known before, sent the half that shows nothing of a variable far away, and made a window's damping seem 25
    deviations apart where it is 0.03.
    """
    rows, count = len(at.frame), len(before.gradient)
    middle = int(np.searchsorted(at.frame, at.frame[(rows - 1) // 2], side="right"))  # after the frame that holds it
    if middle == rows:
        return np.ones(count)
    jacobian, slope, unit = at.known_jacobian, _slope(at, scale), np.where(at.whitened, scale, 1.0) ** 2
    weighted = at.weighted if (unit == 1.0).all() else at.weighted / unit[:, None]
    apart, variance = np.zeros(count), np.zeros(count)
    for half, sign in ((slice(None, middle), -1.0), (slice(middle, None), 1.0)):
        try:
            own = np.linalg.inv(before.information + jacobian[half].T @ weighted[half])
        except np.linalg.LinAlgError:  # of a variable that a half shows nothing of nothing was known before
            return np.ones(count)
        apart += sign * own @ (before.gradient + slope[half] @ jacobian[half])
        variance += np.diag(own)
    return np.maximum(np.abs(apart) / np.sqrt(variance), 1.0)


def unit_widening(scores: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """How much wider than point-by-point noise each variable spreads when whole frames or patches are taken as the
    units, at least 1.

    The units' scores Σ J r (K, P), which sum to zero at the minimum, show by their spread how much of what they are off
    by is their points' together.
    """
    units = len(scores)
    if units < _LEAST_FRAMES:
        return np.ones(len(covariance))
    scores = scores - scores.mean(axis=0)
    spread = covariance @ (scores.T @ scores * units / (units - 1)) @ covariance
    return np.sqrt(np.maximum(np.diag(spread) / np.diag(covariance), 1.0))


def with_way_left(step: np.ndarray, covariance: np.ndarray) -> float:
    """Factor of the variances of an estimate that is a step (P,) away from the minimum: 1 + λ² with λ² = sᵀ C⁻¹ s, the
    square of that way in deviations C (Newton's decrement). Where the step did not lower the cost, the linearisation
    that says how wide the minimum is holds no further than that.
    """
    return 1.0 + float(step @ np.linalg.solve(covariance, step))
