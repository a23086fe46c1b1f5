"""A simulated motion at the times when something looks at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from soft_estimator.physics.frame_times import displacements_from
from soft_estimator.physics.model import State
from soft_estimator.physics.step import Simulation


def displacements(simulation: Simulation, times_s: Iterable[float], start: State | None = None) -> Iterator[np.ndarray]:
    """u (N, 3) [m] at rising times [s], on a straight line between the states of the simulation, as the residuals take
    it.

    Args:
        times_s: counted from the start. start: the state to go on from; the simulation's first one if left out.
    """
    first = simulation.initial_state() if start is None else start
    return displacements_from(simulation, first, (first.time_s + time_s for time_s in times_s))
