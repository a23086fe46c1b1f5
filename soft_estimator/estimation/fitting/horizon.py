"""How far ahead a motion can be predicted at all: a soft body that is thrown about runs away from any small error.

Where a step over which motions are linear (2 % of a stiffness, half a millimetre of a plane) moves the points of a
frame by a third of the size of the body, nothing can be said of the parameters from there on: the cost has a minimum
every few millionths, and each looks like a certainty.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame

# Part of the body's size that points move by, root mean square. Of a dumbbell of 2 kPa that bounces about, no point
# moves by half of it.
_FARTHEST = 0.3
LEAST_FRAMES = 3  # with fewer before it there is nothing left to go by


def horizon_s(problem: Problem, at: Evaluation) -> float | None:
    """Time [s] of the first cloud that the motion at θ does not foretell any more; None where it foretells all of them.
    `at` holds the Jacobian."""
    beyond = np.flatnonzero(moved_share(problem, at) > _FARTHEST)
    if len(beyond) == 0 or beyond[0] < LEAST_FRAMES:
        return None
    return float(problem.frames[beyond[0]].time_s)


def moved_share(problem: Problem, at: Evaluation) -> np.ndarray:
    """How far points go over a step within which motions are linear, root mean square over those of each frame that was
    evaluated, as a part of the body's size, (F,); 0 of what is no cloud. `at` holds the Jacobian."""
    steps = np.array([v.kind.linear_within for v in problem.variables.variables])
    size_m = float(np.linalg.norm(np.ptp(problem.model.body.surface_positions_m(), axis=0)))
    moved = np.linalg.norm(at.known_jacobian * steps, axis=1)
    out = np.zeros(int(at.frame.max()) + 1)
    for k, frame in enumerate(problem.frames[: len(out)]):
        rows = moved[at.frame == k]
        if isinstance(frame, ObservedFrame) and len(rows) == len(frame.std_m):
            out[k] = float(np.sqrt(np.mean((rows * frame.std_m) ** 2))) / size_m
    return out
