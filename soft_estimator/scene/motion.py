"""A simulated motion at the times when something looks at it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from soft_estimator.physics.step import Simulation


def displacements(simulation: Simulation, times_s: Sequence[float]) -> Iterator[np.ndarray]:
    """u (N, 3) [m] at rising times, on a straight line between the states of the simulation, as the residuals take
    it."""
    step, host = simulation.model.integrator.step_s, simulation.backend.to_host
    before = after = simulation.initial_state()
    done = 0
    for time_s in times_s:
        while done * step < time_s - 1e-6 * step:
            before, after = after, simulation.step(after)[0]
            done += 1
        share = 1.0 if done == 0 else min(max(time_s / step - (done - 1), 0.0), 1.0)
        share = 1.0 if share > 1 - 1e-6 else share
        yield ((1 - share) * host(before.u) + share * host(after.u)).astype(np.float64)
