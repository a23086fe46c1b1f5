"""How well two scans of one object agree in a pose: what the points of either cost in the field of the other."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.align import distance_and_slope
from soft_estimator.backends.cpu.compiled import njit


@njit(cache=True)
def two_way(
    cost_a: np.ndarray,
    origin_a: np.ndarray,
    cost_b: np.ndarray,
    origin_b: np.ndarray,
    spacing: np.ndarray,
    points_a: np.ndarray,
    points_b: np.ndarray,
    turn: np.ndarray,
    shift: np.ndarray,
    middle: np.ndarray,
    matrix: np.ndarray,
    slope: np.ndarray,
) -> float:
    """Σ r² of both scans' points, with JᵀJ into matrix (6, 6) and Jᵀr into slope (6,).

    Args:
        cost_a, cost_b: r on the nodes of either, from origin_a, origin_b (3,) [m], spacing[0], spacing[1] apart.
        points_a, points_b: (n, 3) [m], each in its own frame.
        turn, shift: x_a = turn · x_b + shift. middle: (3,) in a's frame, about which J turns.
    """
    matrix[:] = 0.0
    slope[:] = 0.0
    x, g, row, total = np.empty(3), np.empty(3), np.empty(6), 0.0
    for n in range(points_b.shape[0] + points_a.shape[0]):
        back = n >= points_b.shape[0]
        if back:
            p = points_a[n - points_b.shape[0]]
            for i in range(3):
                x[i] = 0.0
                for k in range(3):
                    x[i] += turn[k, i] * (p[k] - shift[k])
            r = distance_and_slope(cost_b, origin_b, spacing[1], x, g)
            for i in range(3):
                row[3 + i] = -(turn[i, 0] * g[0] + turn[i, 1] * g[1] + turn[i, 2] * g[2])
                x[i] = p[i] - middle[i]
        else:
            for i in range(3):
                x[i] = shift[i]
                for k in range(3):
                    x[i] += turn[i, k] * points_b[n, k]
            r = distance_and_slope(cost_a, origin_a, spacing[0], x, g)
            for i in range(3):
                row[3 + i] = g[i]
                x[i] -= middle[i]
        row[0] = x[1] * row[5] - x[2] * row[4]
        row[1] = x[2] * row[3] - x[0] * row[5]
        row[2] = x[0] * row[4] - x[1] * row[3]
        total += r * r
        for i in range(6):
            slope[i] += row[i] * r
            for k in range(i + 1):
                matrix[i, k] += row[i] * row[k]
    for i in range(6):
        for k in range(i):
            matrix[k, i] = matrix[i, k]
    return total
