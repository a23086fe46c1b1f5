"""Where a search for an unknown start begins, and when it has come too far (METHOD §14).

Of a body seen from one side, a bend along modes explains by what a rigid motion that is only guessed is off, and the
stiffness follows: it is fitted to bends that were never there. So the rigid motion is searched first, by itself, over
the first frames; the modes are let go from there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from soft_estimator.estimation.fitting.least_squares import EARLY_WINDOWS, fit
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.variables import Variables
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters

RIGID = ("translation_m", "rotation_rad", "velocity_m_s", "angular_velocity_rad_s")
# Two frames tell a pose and a speed, the third whether both are right; over more of them a body swings and is bent.
RIGID_FRAMES = 3
_MOST_STEPS = 25  # on each of them: they are few and short
START = "start"
# Of the body's size: modes are those of small bends.
_FARTHEST_BENT = 0.1


def is_thrown(problem: Problem) -> bool:
    """Whether the start has modes, and their body a rigid motion that is searched, too."""
    names = {variable.name for variable in problem.variables.variables}
    return problem.model.modes is not None and not names.isdisjoint(RIGID)


def rigid_start(problem: Problem, theta: np.ndarray) -> np.ndarray:
    """θ (P,) with the rigid motion that explains the first frames best; that of a body that `is_thrown`."""
    v = problem.variables
    moves = [j for j, variable in enumerate(v.variables) if variable.name in RIGID]
    alone = problem.with_variables(Variables(v.parameters(theta), [v.variables[j] for j in moves]))
    frames = range(1, min(RIGID_FRAMES, len(problem.frames)) + 1)
    settings = replace(EARLY_WINDOWS, max_iterations=_MOST_STEPS)
    out = theta.copy()
    out[moves] = fit(alone, theta[moves], windows=list(frames), settings=settings).theta
    return out


def with_small_bend(verdict: FitVerdict, model: Model, found: Parameters) -> FitVerdict:
    """The verdict on a fit, by the parameters that it found, whose start may be bent further than modes can tell."""
    modes, body = model.modes, model.body
    if modes is None or not verdict.fits:
        return verdict
    mass, bend = body.mass_matrix_m3, modes.bent(found)
    bent_m = float(np.sqrt(np.sum(bend * (mass @ bend)) / mass.sum()))
    part = bent_m / float(np.linalg.norm(np.ptp(body.surface_positions_m(), axis=0)))
    if part <= _FARTHEST_BENT:
        return verdict
    reason = (
        f"it would have begun bent by {1e3 * bent_m:.2g} mm, {100 * part:.0f} % of its size: modes are those of small "
        "bends; begin later, or with a better guess of pose and motion"
    )
    return FitVerdict(False, reason, START, verdict.figures)
