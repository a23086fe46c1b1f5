"""A motion's steps, and what is made of each of them, at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from soft_estimator.physics.step import Simulation

Step = TypeVar("Step")


def follow_steps(simulation: Simulation, steps: Iterable[Step], follow: Callable[[Step], None]) -> None:
    """Follow up steps of a simulation, in order, each while the next one is taken where the backend has threads for
    both: the changes through a step ask for its states and its linearisation alone.

    Where steps minimise, a law keeps what it has worked out of one state at a time, and the next one waits.
    """
    if simulation.minimises:
        for step in steps:
            follow(step)
    else:
        simulation.backend.followed(steps, follow, simulation.device.nodes)
