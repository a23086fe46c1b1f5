"""Where a frame lies between the states of a simulation: one rule for everything that looks at a motion.

Between two states the motion is taken to be a straight line. A frame within SNAP of a step of a state counts as lying
at that state: stamps are rounded, and rounding must not ask for another step. Every frame but one at the very start so
lies in a step (n, n + 1], at a share of the way in (0, 1].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from soft_estimator.physics.model import State
from soft_estimator.physics.step import Simulation

# Of a step. Stamps in nanoseconds, as ROS gives them, are rounded by 1e-7 of a step of 10 ms; over such a part of it
# no motion moves by anything that a camera could see.
SNAP = 1e-6


def steps_until(time_s: float, now_s: float, step_s: float) -> int:
    """How many steps from a state at now_s lead to the first state that is not before a frame."""
    return max(0, int(np.ceil((time_s - now_s) / step_s - SNAP)))


def share_of_way(time_s: float, before_s: float, after_s: float) -> float:
    """The share of the way from one state to the next at which a frame lies, 0 to 1; 1 where both are one state."""
    span = after_s - before_s
    if span <= 0:
        return 1.0
    share = (time_s - before_s) / span
    return 1.0 if share > 1 - SNAP else max(float(share), 0.0)


def between(before: Any, after: Any, share: float) -> Any:
    """An array at a share of the way between its values at two states."""
    return (1 - share) * before + share * after


def step_of(time_s: float, step_s: float) -> tuple[int, float]:
    """The step n, from state n to n + 1 of a simulation that starts at 0, that a frame falls into, and where in it."""
    n = max(steps_until(time_s, 0.0, step_s) - 1, 0)
    return n, share_of_way(time_s, n * step_s, (n + 1) * step_s)


def displacements_from(simulation: Simulation, state: State, times_s: Iterable[float]) -> Iterator[np.ndarray]:
    """u (N, 3) [m] at rising times [s] on the way on from a state, the state's own time included."""
    step_s, host = simulation.model.integrator.step_s, simulation.backend.to_host
    before = after = state
    for time_s in times_s:
        for _ in range(steps_until(time_s, after.time_s, step_s)):
            before, after = after, simulation.step(after)[0]
        share = share_of_way(time_s, before.time_s, after.time_s)
        yield between(host(before.u), host(after.u), share).astype(np.float64)
