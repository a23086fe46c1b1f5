"""A simulated motion at the times when something looks at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from soft_estimator.physics.model import State
from soft_estimator.physics.step import Simulation

# A time this part of a step away from a state is the state's own: stamps are sums of steps, and carry their rounding.
_SAME_TIME_STEPS = 1e-6


def displacements(simulation: Simulation, times_s: Iterable[float], start: State | None = None) -> Iterator[np.ndarray]:
    """u (N, 3) [m] at rising times [s], on a straight line between the states of the simulation, as the residuals take
    it.

    Args:
        times_s: counted from the start. start: the state to go on from; the simulation's first one if left out.
    """
    step, host = simulation.model.integrator.step_s, simulation.backend.to_host
    before = after = simulation.initial_state() if start is None else start
    done = 0
    for time_s in times_s:
        while done * step < time_s - _SAME_TIME_STEPS * step:
            before, after = after, simulation.step(after)[0]
            done += 1
        share = 1.0 if done == 0 else min(max(time_s / step - (done - 1), 0.0), 1.0)
        share = 1.0 if share > 1 - _SAME_TIME_STEPS else share
        yield ((1 - share) * host(before.u) + share * host(after.u)).astype(np.float64)
