"""Whether a body got through an obstacle: one that its steps jump over, or that is thinner than its contact gives.

Contact pushes a point out of an obstacle by the nearest way. One that comes further than the middle leaves on the other
side, and one that is before an obstacle in one state and behind it in the next was never in it: both leave no trace in
energies or steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from soft_estimator.physics.solids import Field, Round, Solid
from soft_estimator.scene.obstacles import SceneObstacle

# Of the way to an obstacle's middle. A ball that met a plate of 6 mm at 2 m/s came to 0.2-0.4 and 0.6 of it with
# contact of 1e8 and 3e7 Pa/m, and bounced off; with 1e7 it came to all of it, and got through.
DEEP = 0.6
_MOST_PARTS = 64  # that a step's way is looked at in


def middle_m(solid: Solid) -> float:
    """How deep the middle of a solid lies [m]; inf where it has none, or nobody knows."""
    if isinstance(solid, Round):
        return solid.radius_m + min(solid.half_m)
    return float(-solid.grid.phi_m.min()) if isinstance(solid, Field) else np.inf


def depths_m(
    obstacles: Sequence[SceneObstacle], before_m: np.ndarray, after_m: np.ndarray, times_s: tuple[float, float]
) -> np.ndarray:
    """How deep a step takes points into each obstacle at most [m], (K,); before_m, after_m: where they are at its two
    times, (P, 3)."""
    return np.array([_depth_m(obstacle, before_m, after_m, times_s) for obstacle in obstacles])


def _depth_m(obstacle: SceneObstacle, before_m: np.ndarray, after_m: np.ndarray, times_s: tuple[float, float]) -> float:
    solid = obstacle.place.solid
    if not np.isfinite(middle := middle_m(solid)):
        return 0.0
    frames = [obstacle.place.pose(time_s) for time_s in times_s]
    start, end = ((x - origin) @ turn for x, (turn, origin) in zip((before_m, after_m), frames))
    way = np.linalg.norm(end - start, axis=1)
    reaching = solid.distance(np, end) < way  # nothing else comes into it
    if not reaching.any():
        return 0.0
    start, end = start[reaching], end[reaching]
    parts = int(np.clip(np.ceil(2.0 * way[reaching].max() / middle), 1, _MOST_PARTS))
    shares = (np.arange(parts) + 1.0) / parts
    return max(-float(solid.distance(np, start + share * (end - start)).min()) for share in shares)


def passing_warnings(obstacles: Sequence[SceneObstacle], deepest_m: np.ndarray) -> list[str]:
    """A line for each obstacle that the body may have got through; deepest_m: how deep it came, (K,)."""
    lines = []
    for k, (obstacle, depth_m) in enumerate(zip(obstacles, deepest_m)):
        middle = middle_m(obstacle.place.solid)
        if depth_m > DEEP * middle:
            lines.append(
                f"the body came {1e3 * depth_m:.2g} mm deep into obstacles[{k}], whose middle is {1e3 * middle:.2g} mm "
                "deep, and may have got through; use a smaller time.step_s, a larger stiffness_pa_per_m, or a thicker "
                "obstacle"
            )
    return lines
