"""Does a held body move at all, as far as its frames show? If not, they do not tell its stiffness.

A shape that is off here and there is off alike in all frames; a motion is not. With an offset of every patch of the
surface free within some times what the shape is known to, the fit is set beside a body too stiff to move: the
difference of their costs is what the motion alone explains (a likelihood ratio). Noise explains a little of that, too,
by any of the stiffnesses that a search comes by; five standard deviations are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from soft_estimator.estimation.fitting.allowance import OFF_TOGETHER, shape_std_m
from soft_estimator.estimation.fitting.clock import STIFFNESS, is_by_clock
from soft_estimator.estimation.fitting.consider import Effect
from soft_estimator.estimation.fitting.explained import explained_cost, patch_columns
from soft_estimator.estimation.fitting.uncertainty import Posterior, with_effect
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.inspection import look_at
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.variables import Variables
from soft_estimator.physics.solver import SolverError

FAINT = ("motion", "a motion too faint beside errors of the shape", "let it move more, or scan it finely")
SHOWN = 0.5 * 5.0**2  # of the cost: five standard deviations
_TOO_STIFF = np.log(1000.0)  # of log E: what is left of a motion of millimetres are micrometres


def motion_gain(problem: Problem, at: Evaluation, noise_scale: float, enough: float = np.inf) -> float | None:
    """By how much the motion lowers the cost, in units of the noise; None where there is nothing to set it against: no
    stiffness among the variables, a body that nothing holds, or a shape that is exact.

    at: with its Jacobian. noise_scale: noise over the stated one. enough: a gain that need not be known better. Every
        frame adds to what a body that does not move leaves unexplained: the first ones are set against the whole cost
        of the motion, and more of them are simulated only where they do not tell.
    """
    names = np.array([variable.name for variable in problem.variables.variables])
    off_m = 0.0 if problem.known is None else shape_std_m(problem.known, problem.model.body)
    if STIFFNESS not in names or not problem.model.dirichlet.any or off_m == 0:
        return None
    still = at.theta + np.where(names == STIFFNESS, _TOO_STIFF, 0.0)
    look = look_at(problem, at.theta)
    columns = OFF_TOGETHER * off_m * patch_columns(look.small_patch, look.by_offset)
    moving, gain = explained_cost(problem, at, [columns], noise_scale**2), None
    try:
        for motionless in _costs_of_still(problem, still, columns, at.frame, noise_scale**2, np.isfinite(enough)):
            gain = motionless - moving
            if gain >= enough:
                break
    except SolverError:
        return None
    return gain


def _costs_of_still(
    problem: Problem, theta: np.ndarray, columns: np.ndarray, frame: np.ndarray, noise: float, fewer: bool
) -> Iterator[float]:
    """What is left of the cost of all frames, or before that of ever more of them, where only what came along beside
    the asked-for variables may move: no other one's tangents, which take long in so stiff a body, are simulated.

    columns: of all residuals, (n, k). frame: of each, (n,). fewer: begin with some of the frames.
    """
    v, whole = problem.variables, len(problem.frames)
    beside = np.array([j for j, variable in enumerate(v.variables) if variable.beside], dtype=int)
    alone = problem
    if len(beside):
        others = theta.copy()
        others[beside] = v.start()[beside]  # a direction is moved from the reference's
        alone = problem.with_variables(Variables(v.parameters(others), [v.variables[j] for j in beside]))
    for count in sorted({-(-whole // 8), -(-whole // 3), whole} if fewer else {whole}):
        rows = [columns[frame < count]]
        if len(beside):
            yield explained_cost(alone, alone.evaluate(theta[beside], count, jacobian=True), rows, noise)
        else:
            at = problem.evaluate(theta, count, jacobian=False)
            none = np.empty((len(at.weight), 0))
            yield explained_cost(problem, replace(at, jacobian=none), rows, noise, free=beside)


def with_faint_motion(problem: Problem, at: Evaluation, found: Posterior) -> Posterior:
    """The posterior, where its frames show no motion, with what is asked for no better known than before. What hardly
    moves keeps no time either: its clock is not called wrong."""
    gain = motion_gain(problem, at, found.noise_scale, SHOWN)
    if gain is None or gain >= SHOWN:
        return found
    v = problem.variables
    unknown = np.array([0.0 if variable.beside else variable.prior_std for variable in v.variables])
    verdict = FitVerdict(figures=found.verdict.figures) if is_by_clock(found.verdict) else found.verdict
    return with_effect(v, replace(found, verdict=verdict), Effect(*FAINT, np.diag(unknown)))


def is_faint(found: Posterior) -> bool:
    """Whether a posterior's motion was found too faint: no finer grid tells more of it."""
    return any(effect.name == FAINT[0] for effect in found.effects)
