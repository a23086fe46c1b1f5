"""Levenberg-Marquardt on the tangent Jacobian, with the window grown frame by frame (METHOD §8, §9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from soft_estimator.estimation.fitting.gauss_newton import (
    NO_DECREASE,
    Damping,
    Minimum,
    Step,
    damped_step,
    limit_reason,
    minimise,
)
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.physics.solver import SolverError

NOTHING_PROMISED = "no further decrease is promised: at the minimum to working accuracy"
Progress = Callable[[int, int, Evaluation], None]
Note = Callable[[Evaluation], None]


@dataclass(frozen=True)
class LeastSquaresSettings:
    """step_tolerance: stop when no variable moves by more, in prior standard deviations or absolute (both of order
    one).

    cost_tolerance: stop when the cost falls by less than this part. max_iterations: for each window. max_step:
    longest step of a variable, in its `Variables.longest_steps`.
    """

    step_tolerance: float = 1e-4
    cost_tolerance: float = 1e-6
    max_iterations: int = 25
    max_step: float = 1.0


# A window that will grow is only a way to the next one: a hundredth of θ is near enough to start that from, and eight
# steps bound the time spent on a window that leads nowhere.
EARLY_WINDOWS = LeastSquaresSettings(step_tolerance=1e-2, cost_tolerance=1e-3, max_iterations=8)
# Early frames may lead astray, a soft body's to no stiffness and much damping. A variable that has gone further than
# this in θ (a factor of 2.7 for most) is set beside the start again, whenever more frames can tell which is better.
_FAR = 1.0
# Within so many steps over which a motion counts as linear the last window keeps its Jacobian: the residuals are exact,
# and a direction that is a little off still leads to the minimum, in a third of the time.
_KEPT_WITHIN = 4.0
# A step that does not lower the cost and was to lower it by no more than this, a third of a standard deviation in the
# variables, is at the minimum: points that cross a cell's face make the cost rough on that scale, by 3 for the 45
# frames of a beam. Deviations are those of the residuals: where they are five times the stated noise, 25 times as much.
_HARDLY = 0.05
# Along a kept Jacobian no step is tried that promises less than this part of that: the way that is left is a tenth of a
# deviation, and the Jacobian that is taken anew next tells of a longer one.
_KEPT_HARDLY = 0.1
# A trial costs a simulation of all frames: not for a place within a tenth of one that failed.
_RULE = Damping(shorter=0.1)


@dataclass
class Fit:
    """Where a minimisation ended, why, and how it got there; whether it was the limit of iterations that ended it."""

    evaluation: Evaluation
    reason: str
    iterations: int
    history: list[dict] = field(default_factory=list)
    reached_limit: bool = False

    @property
    def theta(self) -> np.ndarray:
        return self.evaluation.theta


def growing_windows(frames: int) -> list[int]:
    """1, 2, 3, 5, 8, ... up to all frames: early frames are nearly convex in the parameters, late ones are not.

    Growth by 1.7 keeps the work of all windows below two and a half times that of the last (1 + 1/1.7 + ...).
    """
    out = []
    size = 1.0
    while size < frames:
        out.append(int(size))
        size = max(size + 1, 1.7 * size)
    return [*sorted(set(out)), frames]


def fit(
    problem: Problem,
    theta: np.ndarray,
    *,
    windows: list[int] | None = None,
    settings: LeastSquaresSettings | None = None,
    progress: Progress | None = None,
    guess: np.ndarray | None = None,
) -> Fit:
    """Minimise over ever more frames, each window from where the last one ended, or from the guess if that is better.

    Windows whose frames say nothing of any variable yet (a ball before it touches the ground) are passed over.

    Args:
        theta: where to start, (P,). guess: where windows may start anew, (P,); theta by default.
    """
    settings = settings or LeastSquaresSettings()
    guess = theta if guess is None else guess
    history: list[dict] = []
    windows = windows or growing_windows(len(problem.frames))
    total, found = 0, None
    for k, frames in enumerate(windows):
        last = k == len(windows) - 1
        part = settings if last else replace(EARLY_WINDOWS, max_step=settings.max_step)
        start = _better_start(problem, theta, guess, frames)
        if not last and not informs(problem, start):
            continue

        def note(at: Evaluation, frames: int = frames) -> None:
            history.append({"frames": frames, "cost": at.cost, "theta": at.theta.copy()})
            if progress:
                progress(len(history), frames, at)

        note(start)
        objective = _Distances(problem, frames, part, note, more_to_come=not last)
        found = _minimum(objective, start, part.max_iterations)
        theta, total = found.at.theta, total + found.steps
    if found is None:
        raise ValueError("no windows to fit; give at least one number of frames")
    return Fit(found.at, found.reason, total, history, found.reached_limit)


def _minimum(objective: _Distances, at: Evaluation, most_steps: int) -> Minimum[Evaluation]:
    """Where steps from a place end, linearised there.

    Steps along a kept Jacobian end where that one sees no slope. There it is taken anew; where it shows that there is
    more to be had, they go on, each along its own.
    """
    found = minimise(objective, at, _RULE, most_steps=most_steps)
    if found.at.linearised_at is None:
        return found
    here = objective.linearised(found.at)
    if found.steps >= most_steps or objective.is_settled(here):
        return replace(found, at=here)
    objective.keeps_jacobian = False
    more = minimise(objective, here, _RULE, most_steps=most_steps - found.steps)
    reason = limit_reason(most_steps) if more.reached_limit else more.reason
    return replace(more, reason=reason, steps=found.steps + more.steps)


def _better_start(problem: Problem, theta: np.ndarray, guess: np.ndarray, frames: int) -> Evaluation:
    """The problem at θ or, where that is far from the guess and fits worse, at the guess, with its Jacobian."""
    here = problem.evaluate(theta, frames, jacobian=True)
    if np.abs(theta - guess).max() <= _FAR:
        return here
    try:
        there = problem.evaluate(guess, frames)
    except SolverError:  # later frames may be out of its reach
        return here
    return problem.evaluate(guess, frames, jacobian=True) if there.cost < here.cost else here


class _Distances:
    """A problem over its first frames as an objective of `gauss_newton`."""

    def __init__(
        self, problem: Problem, frames: int, settings: LeastSquaresSettings, note: Note, *, more_to_come: bool
    ) -> None:
        self.problem, self.frames, self.settings, self.note = problem, frames, settings, note
        self.keeps_jacobian, self._promised, self._hardly = not more_to_come, np.inf, _HARDLY
        self.more_to_come = more_to_come

    def step(self, at: Evaluation, damping: float) -> Step:
        return damped_step(
            *normal_equations(self.problem, at), damping, self.settings.max_step * self.problem.variables.longest_steps
        )

    def moved(self, at: Evaluation, step: Step) -> Evaluation:
        last = self.keeps_jacobian and self._seems_last(at, step)
        self._promised, self._hardly = step.predicted, self._hardly_at(at)
        theta, since = at.theta + step.by, at.theta if at.linearised_at is None else at.linearised_at
        limits = np.array([v.kind.linear_within for v in self.problem.variables.variables])
        if not self.keeps_jacobian or last or (np.abs(theta - since) > _KEPT_WITHIN * limits).any():
            return self.problem.evaluate(theta, self.frames, jacobian=True)
        moved = self.problem.evaluate(theta, self.frames)
        return replace(moved, jacobian=at.jacobian, linearised_at=since)

    def _seems_last(self, at: Evaluation, step: Step) -> bool:
        """Whether the step after one along a kept Jacobian would not be tried, if promises go on to fall as from the
        last step to this one: where it leads the Jacobian is wanted, and taken with the motion instead of after it."""
        enough = _KEPT_HARDLY * self._hardly_at(at)
        return at.linearised_at is not None and step.predicted**2 < enough * self._promised

    def _hardly_at(self, at: Evaluation) -> float:
        noise = max(1.0, 2.0 * at.cost / len(at.residual))  # its variance over the stated one
        return max(_HARDLY * noise, self.settings.cost_tolerance * at.cost)

    def linearised(self, at: Evaluation) -> Evaluation:
        """The same place with its own Jacobian."""
        return self.problem.evaluate(at.theta, self.frames, jacobian=True)

    def is_settled(self, at: Evaluation) -> bool:
        """Whether the next step from a place with its own Jacobian promises hardly anything."""
        return self.step(at, 0.0).predicted <= self._hardly_at(at)

    def arrived(self, at: Evaluation, trial: Evaluation) -> Evaluation:
        self.note(trial)
        return trial

    def stop_before(self, at: Evaluation, step: Step) -> str:
        """A step that more frames will take as well is left to them, and one that hardly leads on along a kept Jacobian
        to its own one."""
        s = self.settings
        if at.linearised_at is not None and step.predicted < _KEPT_HARDLY * self._hardly_at(at):
            return NOTHING_PROMISED
        if self.more_to_come and (step.longest < s.step_tolerance or step.predicted < s.cost_tolerance * at.cost):
            return "near enough to go on with more frames"
        return ""

    def stop_after(self, at: Evaluation, trial: Evaluation, step: Step) -> str:
        if step.longest < self.settings.step_tolerance:
            return f"step below {self.settings.step_tolerance:g}"
        if at.cost - trial.cost < self.settings.cost_tolerance * max(trial.cost, 1e-12):
            return f"cost fell by less than {self.settings.cost_tolerance:g} of itself"
        if at.linearised_at is not None and trial.linearised_at is None and self.is_settled(trial):
            return NOTHING_PROMISED
        return ""

    def stop_failed(self, step: Step) -> str:
        """A fall so small would have ended the search, too."""
        return NO_DECREASE if step.longest < self.settings.step_tolerance or step.predicted < self._hardly else ""

    def renewed(self, at: Evaluation) -> Evaluation | None:
        if at.linearised_at is None or self._promised < self._hardly:
            return None
        return self.problem.evaluate(at.theta, self.frames, jacobian=True)


def informs(problem: Problem, at: Evaluation) -> bool:
    """Whether the data know any variable better than its prior does."""
    information = (at.known_jacobian**2 * at.weight[:, None]).sum(axis=0)
    return bool((information * problem.variables.prior_std**2 > 1.0).any())


def normal_equations(problem: Problem, at: Evaluation) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Newton Hessian and gradient of the cost, prior included."""
    v, j = problem.variables, at.known_jacobian
    prior = 1.0 / v.prior_std**2
    hessian = at.information + np.diag(prior)
    return hessian, j.T @ at.slope + prior * (at.theta - v.prior_mean)
