"""How large a cloud or a solid is, however it is turned."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def widest_m(points: np.ndarray, trim: float = 0.0) -> float:
    """Largest width [m] of points (n, 3) [m] over directions all around, the share `trim` left out at either end.

    Unlike the box along the axes, it is the same however the body is turned (within 3 %: there are 100 directions).
    """
    cut = int(trim * len(points))
    ends = (cut, len(points) - 1 - cut)
    along = (np.partition(points @ direction, ends)[list(ends)] for direction in _directions())
    return float(max(last - first for first, last in along))


def widest_solid_m(support_m: Callable[[np.ndarray], float]) -> float:
    """The same of a solid by its support: the largest x·direction [m] over it, for a unit direction (3,)."""
    return max(support_m(direction) + support_m(-direction) for direction in _directions())


def _directions() -> np.ndarray:
    """Unit vectors (100, 3) on a spiral with even spacing over the upper half sphere."""
    turn = np.pi * (3.0 - np.sqrt(5.0)) * np.arange(100)
    height = (np.arange(100) + 0.5) / 100
    level = np.sqrt(1.0 - height**2)
    return np.stack([level * np.cos(turn), level * np.sin(turn), height], axis=1)
