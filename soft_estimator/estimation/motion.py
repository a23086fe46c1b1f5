"""Where a problem's parameters put the body at the time of every frame."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.trajectory import initial_corner, trajectory_from


def motion(
    problem: Problem, theta: np.ndarray, *, tangent: bool = True
) -> Iterator[tuple[ObservedFrame, np.ndarray, np.ndarray]]:
    """Every frame with the displacement (N, 3) [m] at its time and its change with each variable, (N, 3, P)."""
    host, parameters = problem.backend.to_host, problem.variables.parameters(theta)
    directions = problem.variables.directions(theta)
    start = initial_corner(problem.model, parameters, directions, problem.backend, problem.field)
    path = trajectory_from(
        problem.model, parameters, directions if tangent else None, start, problem.backend, problem.field
    )
    problem.simulations += 1
    for frame in problem.frames:
        seen = path.through(frame)
        a, b, share = seen.before, seen.corner, seen.share
        u = ((1 - share) * host(a.state.u) + share * host(b.state.u)).astype(np.float64)
        du = np.zeros((*u.shape, 0))
        if tangent:
            du = np.stack([(1 - share) * host(p.u) + share * host(q.u) for p, q in zip(a.changes, b.changes)], axis=2)
        yield frame, u, du.astype(np.float64)
