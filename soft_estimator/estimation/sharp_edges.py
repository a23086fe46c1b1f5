"""Points at edges that the grid does not resolve, left out of the fit of a held body.

A trilinear field bevels an edge by up to a quarter of a cell, a tenth of a millimetre to some millimetres; what holds a
stiff body lets it move by less. It is then bent to explain its edges, and comes out many times too soft. Between its
edges a surface is as the field has it, and moves as the body does.

What lies at an edge is told where a point's ray meets the surface, not where its noise has put it: cells within the
body feel its edges further than those around it, and of points beside an edge those thrown outwards would be kept and
those thrown inwards left out. Of a beam four cells thick that moved the mean by 0.32 deviations of a point, ν from 0.40
to 0.44 and the damping by 17 %.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.estimation.fitting.allowance import shape_std_m
from soft_estimator.estimation.motion import motion
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.carried_surface import CarriedSurface, onto_surface
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame

# Radians by which the surface turns within a cell, both ways together, h |Δφ|: a right edge has 1.6 to 2, a ring whose
# tube is six cells across 0.5.
SHARP_RAD = 1.0
# Part of the points that must be left: a body that is sharp all over has nothing better to go by.
LEAST_LEFT = 0.25


def without_sharp_edges(problem: Problem, theta: np.ndarray) -> Problem:
    """The problem without the points that lie at sharp edges where θ (P,) puts the body; as it is where there are none,
    where too few others would be left, where the shape is exact, and for a body that nothing holds, whose edges fly
    with it."""
    exact = problem.known is None or shape_std_m(problem.known, problem.model.body) == 0
    if exact or not problem.model.dirichlet.any:
        return problem
    frames, left, of = [], 0, 0
    for frame, u, _ in motion(problem, theta, tangent=False):
        if isinstance(frame, ObservedFrame):
            smooth = turn_rad(problem, frame, u) < SHARP_RAD
            left, of = left + int(smooth.sum()), of + len(smooth)
            if not smooth.any():
                continue
            frame = frame if smooth.all() else frame.only(smooth)
        frames.append(frame)
    return problem if left == of or left < LEAST_LEFT * of else problem.with_frames(frames)


def turn_rad(problem: Problem, frame: ObservedFrame, u: np.ndarray) -> np.ndarray:
    """By how much the surface turns within a cell at each point of a frame, (n,) [rad], the body displaced by u (N, 3)
    [m]: the most of any node of the point's cell; 0 of points that lie in none."""
    body, field = problem.model.body, problem.field
    points_m = onto_surface(body, field, u, frame.points_m, frame.along)
    cell = problem.backend.to_host(CarriedSurface(field, u, problem.backend).find(points_m)[0])
    spacing_m = (body.grid if body.skin is None else body.skin).spacing_m
    bent = np.abs(field.laplacian_per_m)[field.cell_nodes[np.maximum(cell, 0)]].max(axis=1)
    return np.where(cell >= 0, spacing_m * bent, 0.0)
