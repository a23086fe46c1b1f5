"""A trajectory that passes one time after another, and a look at each, while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from soft_estimator.estimation.trajectory import Moment, Trajectory
from soft_estimator.physics.following import follow_steps
from soft_estimator.physics.frame_times import steps_until
from soft_estimator.physics.model import State
from soft_estimator.physics.step import Linearisation
from soft_estimator.physics.tangent import Tangent

Look = Callable[[int, Moment, Moment], None]
# A state with the linearisation of the step that led there, or which of the times lies in that step.
Taken = tuple[State, Linearisation] | int


def look_on(path: Trajectory, times_s: Sequence[float], look: Look) -> None:
    """Take the steps that lead to times [s], which rise, and look at the moments before and after each.

    Changes on the body's own grid, and the looks, follow the motion while it goes on (`follow_steps`).
    """
    tangent = path.tangent if type(path) is Trajectory else None
    if not isinstance(tangent, Tangent):
        for k, time_s in enumerate(times_s):
            path.go_to(time_s)
            look(k, path.before, path.after)
        return

    def follow(taken: Taken) -> None:
        if isinstance(taken, int):
            look(taken, path.before, path.after)
            return
        state, linearisation = taken
        changes, _ = tangent.step(path.after.state, state, linearisation, path.after.known_changes)
        path.before, path.after = path.after, Moment(state, changes)

    follow_steps(path.simulation, _steps(path, times_s), follow)


def _steps(path: Trajectory, times_s: Sequence[float]) -> Iterator[Taken]:
    """The steps that lead to times, each time's number after the last of its own."""
    state, step_s = path.after.state, path.simulation.model.integrator.step_s
    for k, time_s in enumerate(times_s):
        for _ in range(steps_until(time_s, state.time_s, step_s)):
            state, _, linearisation = path.simulation.step_keeping(state)
            path.steps += 1
            path.count_retaken([state])
            yield state, linearisation
            del linearisation  # its memory is another's as soon as the step has been followed up
        yield k
