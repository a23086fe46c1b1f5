"""`carried_changes` on a backend that runs whole steps by itself: the coarse body's steps are started beside the fine
one's, and what is not asked for is not worked out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.estimation.carried_changes import SAME_TIME, Carried, place_between
from soft_estimator.physics.frame_times import between, steps_until
from soft_estimator.physics.fused import FusedSimulation
from soft_estimator.physics.fused_coarser import DeviceGrids
from soft_estimator.physics.fused_tangent import Changes, FusedTangent
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.state import State


class FusedCarriedChanges(Carried, Changes):
    """`Carried` of whole steps.

    Args:
        coarse, state: as they are, or what makes them where they are asked for.
        begun: where the coarse body's step that is under way began; with `ahead`.
    """

    grids: DeviceGrids
    fine: Changes | None
    ahead: FusedCarriedChanges | None
    begun: FusedCarriedChanges | None

    def __init__(
        self,
        coarse: Changes | Callable[[], Changes],
        state: State | Callable[[], State],
        grids: DeviceGrids,
        fine: Changes | None = None,
        ahead: FusedCarriedChanges | None = None,
        begun: FusedCarriedChanges | None = None,
    ) -> None:
        given = {"grids": grids, "fine": fine, "ahead": ahead, "begun": begun, "backend": grids.backend}
        vars(self).update(given, _coarse=coarse, _state=state)

    @classmethod
    def from_fine(cls, fine: Changes, state: State, grids: DeviceGrids) -> FusedCarriedChanges:
        """Changes of the fine body's state, as a motion begins: undeformed, where both grids hold the same."""
        u, v, a = (grids.restricted(part) for part in (fine.u, fine.v, fine.a))
        return cls(Changes(u, v, a, fine.backend), grids.restricted_state(state), grids, fine)

    @classmethod
    def at_share(
        cls, start: FusedCarriedChanges, end: FusedCarriedChanges, share: float, time_s: float
    ) -> FusedCarriedChanges:
        """On the way of the coarse body's step from one to the other; as `CarriedTangent` goes there."""
        way_s = end.state.time_s - start.state.time_s

        def mixed(a: Any, b: Any) -> tuple[Array, Array, Array]:
            return place_between(a, b, way_s, share), between(a.v, b.v, share), between(a.a, b.a, share)

        def coarse() -> Changes:
            return Changes(*mixed(start.coarse, end.coarse), start.backend)

        def state() -> State:
            return State(*mixed(start.state, end.state), time_s)

        return cls(coarse, state, start.grids, ahead=end, begun=start)

    @cached_property
    def coarse(self) -> Changes:  # type: ignore[override]
        made = vars(self)["_coarse"]
        return made() if callable(made) else made

    @cached_property
    def state(self) -> State:  # type: ignore[override]
        made = vars(self)["_state"]
        return made() if callable(made) else made

    def __len__(self) -> int:
        return len(self.coarse)

    def mixed(self, weights: np.ndarray) -> FusedCarriedChanges:
        return FusedCarriedChanges(lambda: self.coarse.mixed(weights), lambda: self.state, self.grids)

    def moved(self, weights: np.ndarray) -> FusedCarriedChanges:
        return FusedCarriedChanges(lambda: self.coarse, lambda: self._moved_state(weights), self.grids, self.fine)

    def followed(self, fine: State) -> FusedCarriedChanges:
        def state() -> State:
            return self.grids.followed(self.state, fine)

        return FusedCarriedChanges(lambda: self.coarse, state, self.grids, self.fine)


class FusedCarriedTangent:
    """Steps the coarse body and its changes along with the fine body's motion.

    Args:
        simulation: of the coarse body.
    """

    def __init__(
        self,
        grids: DeviceGrids,
        simulation: FusedSimulation,
        directions: list[ParameterGradient],
        tolerance: float,
        least_m: np.ndarray | None,
    ) -> None:
        self.grids, self.simulation = grids, simulation
        self.tangent = FusedTangent(simulation, directions, tolerance, least_m)

    @staticmethod
    def begins(changes: FusedCarriedChanges) -> State:
        """The state that the coarse body's next step goes on from; waits where nobody has asked for it yet."""
        return (changes.ahead or changes).state

    def through(self, times_s: Sequence[float], changes: FusedCarriedChanges) -> list[FusedCarriedChanges]:
        """The changes at rising times [s] after those at hand; waits."""
        ends = [changes]
        if changes.begun is not None and changes.ahead is not None:
            ends = [changes.begun, changes.ahead]
        step_s = self.simulation.model.integrator.step_s
        count = steps_until(times_s[-1], ends[-1].state.time_s, step_s)
        if count:
            states, columns = self._stepped(ends[-1], count)
            made = list(zip(columns, states))[1:]
            ends += [FusedCarriedChanges(coarse, state, self.grids) for coarse, state in made]
        out: list[FusedCarriedChanges] = []
        k = 1
        for time_s in times_s:
            while time_s > ends[k].state.time_s + SAME_TIME * step_s:
                k += 1
            start, end = ends[k - 1], ends[k]
            way_s = end.state.time_s - start.state.time_s
            if time_s >= end.state.time_s - SAME_TIME * way_s:
                out.append(end)
            else:
                share = (time_s - start.state.time_s) / way_s
                out.append(FusedCarriedChanges.at_share(start, end, share, time_s))
        return out

    def _stepped(self, start: FusedCarriedChanges, count: int) -> tuple[list[State], list[Changes]]:
        """The coarse body's states after 0, 1, ... steps, and their changes, which are started before anybody knows
        whether the steps are sound."""
        expected: list[State] = []
        started: list[Changes] = []

        def change(states: list[State]) -> None:
            expected.extend(states)
            started.extend(self.tangent.started(states, start.coarse))

        states, _ = self.simulation.roll(start.state, count, beside=change)
        if len(states) == len(expected) and states[-1] is expected[-1]:
            return states, self.tangent.finished(states, started)
        self.tangent.settled()  # nobody asks for those any more
        return states, self.tangent.through(states, start.coarse)
