"""A clock that goes on by what is simulated, not by the processor's seconds: a run is the same on any machine.

What each piece of work takes is that of one of two shared 2.5 GHz x86-64 cores, for the demo's ball of 1160 nodes: 7 ms
for a step of the body, 6.4 for one of the coarser one with its 22 changes; another body's are in proportion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import soft_estimator.live.setup as setup
from soft_estimator.estimation.trajectory import Trajectory
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.estimation.window.window_fit import WindowFit
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent

# Milliseconds, for what is called on an object.
WORK: tuple[tuple[type, str, Callable[[Any], float]], ...] = (
    (Simulation, "step_keeping", lambda s: 2.0 + 4.3e-3 * s.model.body.node_count),
    (Tangent, "step", lambda t: 1.5 + 8e-3 * t.simulation.model.body.node_count),
    (Trajectory, "look_between", lambda t: 5.0),
    (WindowFit, "answer", lambda f: 2.0),
    (WindowFit, "slide", lambda f: 5.0),
    (SlidingWindow, "add_frame", lambda w: 12.0),
)
FINDING_MS = 150.0  # where the body is in a first frame


class StepClock:
    """Counts from when it is made, once in a process."""

    def __init__(self) -> None:
        self.milliseconds = 0.0
        for kind, name, takes in WORK:
            setattr(kind, name, self._counted(getattr(kind, name), takes))
        setup.register = self._counted(setup.register, lambda shape: FINDING_MS)

    def _counted(self, work: Callable[..., Any], takes: Callable[[Any], float]) -> Callable[..., Any]:
        def counted(first: Any, *rest: Any, **more: Any) -> Any:
            self.milliseconds += takes(first)
            return work(first, *rest, **more)

        return counted

    def __call__(self) -> float:
        """Seconds so far."""
        return 1e-3 * self.milliseconds
