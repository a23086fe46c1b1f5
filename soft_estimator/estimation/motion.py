"""Where a problem's parameters put the body at the time of every frame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.interface import FrameChanges, FrameState
from soft_estimator.estimation.trajectory import initial_moment, trajectory_from
from soft_estimator.physics.frame_times import share_of_way


def motion(
    problem: Problem, theta: np.ndarray, *, tangent: bool = True
) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """Every frame with the displacement (N, 3) [m] at its time and its change with each variable, (N, 3, P)."""
    known = None if tangent else problem.displacements_at(theta)
    if known is not None:
        yield from ((frame, u, np.zeros((*u.shape, 0))) for frame, u in zip(problem.frames, known))
        return
    host, parameters = problem.backend.to_host, problem.variables.parameters(theta)
    directions = problem.variables.directions(theta)
    start = initial_moment(problem.model, parameters, directions, problem.backend)
    wanted = directions if tangent else None
    path = trajectory_from(problem.model, parameters, wanted, start, problem.backend, problem.kinds)
    problem.simulations += 1
    for frame in problem.frames:
        path.go_to(frame.time_s)
        a, b = path.before, path.after
        share = share_of_way(frame.time_s, a.state.time_s, b.state.time_s)
        u = FrameState(a.state, b.state, share, parameters, host).u
        if a.changes is None or b.changes is None:
            yield frame, u, np.zeros((*u.shape, 0))
        else:
            yield frame, u, FrameChanges(a.changes, b.changes, share, directions, host).u
