"""Damped Gauss-Newton steps (Levenberg-Marquardt): one loop for distances, whole clouds and the sliding window.

A step solves (H + λ diag H) s = -g. The damping λ falls after steps that kept their promise and rises after steps that
did not lower the cost; a simulation that fails counts as one of those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from soft_estimator.physics.solver import SolverError

NO_DECREASE = "no further decrease: at the minimum to working accuracy"


@dataclass(frozen=True)
class Damping:
    """How the damping goes. Factors of ten, as Marquardt took them: the right order of magnitude is found in a few
    trials, and more precision than that buys nothing.

    Attributes:
        first: of the first step. least: never below this. retry: at least this after a failed step. most: a step damped
            beyond this is too short to tell from rounding. good: part of the promised fall that a good step keeps.
        poor: factor after a step that fell by less; poor_least: and at least this then. shorter: a step that failed is
            damped on, untried, until a variable moves by so much of its own move less.
    """

    first: float = 1e-3
    least: float = 1e-9
    retry: float = 1e-3
    most: float = 1e10
    good: float = 0.25
    poor: float = 0.5
    poor_least: float = 1e-9
    shorter: float = 0.0

    def accepted(self, damping: float, fall: float, predicted: float) -> float:
        """The next damping after a step that lowered the cost by `fall`."""
        if fall > self.good * predicted:
            return max(damping / 10, self.least)
        return max(self.poor * damping, self.poor_least)

    def rejected(self, damping: float) -> float:
        """The next damping after a step that did not lower it."""
        return max(10 * damping, self.retry)

    def another(self, step: Step, failed: Step) -> bool:
        """Whether a step leads elsewhere than one that failed."""
        return bool((np.abs(step.by - failed.by) >= self.shorter * np.abs(failed.by)).any())


@dataclass(frozen=True)
class Step:
    """A step of the variables (P,), and the fall of the cost that the quadratic model predicts for it."""

    by: np.ndarray
    predicted: float

    @property
    def longest(self) -> float:
        """Of any variable."""
        return float(np.abs(self.by).max())


class Place(Protocol):
    """Where a minimisation stands."""

    @property
    def cost(self) -> float: ...


P = TypeVar("P", bound=Place)


class Objective(Protocol[P]):
    """What is minimised."""

    def step(self, at: P, damping: float) -> Step:
        """The damped step from a place, see `damped_step`."""

    def moved(self, at: P, step: Step) -> P:
        """The place a step leads to; raises SolverError where it cannot be simulated."""

    def arrived(self, at: P, trial: P) -> P:
        """The place to go on from, after a step that lowered the cost."""

    def stop_before(self, at: P, step: Step) -> str:
        """Why not to try a step, "" to try it."""

    def stop_after(self, at: P, trial: P, step: Step) -> str:
        """Why to end with a step that lowered the cost, "" to go on."""

    def stop_failed(self, step: Step) -> str:
        """Why to end after a step that did not lower the cost, "" to try a shorter one."""

    def renewed(self, at: P) -> P | None:
        """The place linearised anew, where a stale linearisation may be why a step failed; None where it is fresh."""


@dataclass(frozen=True)
class Minimum(Generic[P]):
    """Where a minimisation ended and why; how many steps it began; the damping to go on with; whether it was the limit
    of steps or trials that ended it."""

    at: P
    reason: str
    steps: int
    damping: float
    reached_limit: bool = False


def minimise(
    objective: Objective[P],
    at: P,
    rule: Damping,
    *,
    most_steps: int | None = None,
    most_trials: int | None = None,
    damping: float | None = None,
) -> Minimum[P]:
    """Steps until the objective is content.

    Args:
        most_steps: that lower the cost. most_trials: steps tried, whether they lower it or not.
        damping: to begin with; the rule's first by default.
    """
    damping = rule.first if damping is None else damping
    steps = trials = 0
    while (most_steps is None or steps < most_steps) and (most_trials is None or trials < most_trials):
        step = objective.step(at, damping)
        if not np.isfinite(step.by).all():
            return Minimum(at, "the slope of the cost is not a number here", steps, damping)
        reason = objective.stop_before(at, step)
        if reason:
            return Minimum(at, reason, steps, damping)
        trials += 1
        try:
            trial: P | None = objective.moved(at, step)
        except SolverError:
            trial = None
        fall = -np.inf if trial is None else at.cost - trial.cost
        if trial is None or not fall > 0:
            fresh = None if trial is None else objective.renewed(at)
            if fresh is not None:
                at = fresh
                continue
            damping = _damped_on(objective, at, rule, rule.rejected(damping), step)
            reason = objective.stop_failed(step) or (NO_DECREASE if damping > rule.most else "")
            if reason:
                return Minimum(at, reason, steps + 1, damping)
            continue
        damping = rule.accepted(damping, fall, step.predicted)
        steps += 1
        reason = objective.stop_after(at, trial, step)
        at = objective.arrived(at, trial)
        if reason:
            return Minimum(at, reason, steps, damping)
    return Minimum(at, limit_reason(steps), steps, damping, reached_limit=True)


def limit_reason(iterations: int) -> str:
    """Why a search ended that had no more iterations than these."""
    return f"reached {iterations} iterations"


def _damped_on(objective: Objective[P], at: P, rule: Damping, damping: float, failed: Step) -> float:
    """The least damping from the given one on that leads elsewhere than a step that failed: one that was cut to the
    longest allowed stays what it is while the damping is small."""
    while damping <= rule.most and not rule.another(objective.step(at, damping), failed):
        damping = rule.rejected(damping)
    return damping


def damped_step(
    hessian: np.ndarray, gradient: np.ndarray, damping: float, longest: float | np.ndarray, limited: int | None = None
) -> Step:
    """The step -(H + λ diag H)⁻¹ g, cut to a longest one of any of the first `limited` variables (default: all); of
    each its own, where there are several.

    Solved in units in which the diagonal of H is one: variables of different sizes then lose no digits to each other.
    """
    scale = np.sqrt(np.diag(hessian))
    inner = hessian / np.outer(scale, scale) + damping * np.eye(len(scale))
    by = -np.linalg.solve(inner, gradient / scale) / scale
    by = by * min(1.0, 1.0 / max(float(np.max(np.abs(by[:limited]) / longest)), 1e-300))
    return Step(by, float(-(gradient @ by) - 0.5 * by @ hessian @ by))
