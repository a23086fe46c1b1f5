"""Changes of a motion that are worked out on a coarser grid, by a body that makes the same motion there by itself.

The coarse body is not the fine one restricted to fewer nodes: it moves by its own equations, under the same parameters.
Only so do its changes hold together (a body of twice the density and twice the stiffness falls as before), and with
them what is said of the deviations. Where the two part in the course of time, it is moved after the fine one rigidly.
It may take longer steps than the fine body, too: in between its motion and its changes are interpolated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.physics.coarser import CoarserModel
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import ColumnChanges, Tangent

SAME_TIME = 1e-6  # of a step, which sums of steps are off by


class Carried(ABC):
    """Changes at the fine nodes, with those at the coarse ones that they come from; carried over where they are asked
    for, at frames, not at the steps between them.

    Attributes:
        coarse: changes at the coarse nodes. state: of the coarse body. grids: both.
        fine: the same changes at the fine nodes, where a motion begins with them; None: as they are carried over.
        ahead: where the coarse body's step leads that is under way; None: it is at the end of one.
    """

    coarse: Any
    state: State
    grids: Any
    fine: Any
    ahead: Any

    @cached_property
    def u(self) -> Array:
        return self._carried("u")

    @cached_property
    def v(self) -> Array:
        return self._carried("v")

    @cached_property
    def a(self) -> Array:
        return self._carried("a")

    def _carried(self, name: str) -> Array:
        return getattr(self.fine, name) if self.fine is not None else self.grids.prolonged(getattr(self.coarse, name))

    @abstractmethod
    def mixed(self, weights: np.ndarray) -> Any:
        """Σ_i weights_ij · change_i for every j; weights (number, new number), on the host."""

    @abstractmethod
    def moved(self, weights: np.ndarray) -> Any:
        """The same changes with the coarse body moved along them; weights (number, 1)."""

    @abstractmethod
    def followed(self, fine: State) -> Any:
        """The same changes with the coarse body where the fine one is."""

    def _moved_state(self, weights: np.ndarray) -> State:
        step, s = self.coarse.mixed(weights)[0], self.state
        return replace(s, u=s.u + step.u, v=s.v + step.v, a=s.a + step.a)


class CarriedChanges(Carried, ColumnChanges):
    """`Carried` of columns that lie next to each other."""

    coarse: ColumnChanges
    grids: CoarserModel
    fine: ColumnChanges | None
    ahead: CarriedChanges | None

    def __init__(
        self,
        coarse: ColumnChanges,
        state: State,
        grids: CoarserModel,
        fine: ColumnChanges | None = None,
        ahead: CarriedChanges | None = None,
    ) -> None:
        given = {"coarse": coarse, "state": state, "grids": grids, "fine": fine, "ahead": ahead}
        vars(self).update(given, number=coarse.number, backend=coarse.backend, memory={})

    @classmethod
    def from_fine(cls, fine: ColumnChanges, state: State, grids: CoarserModel) -> CarriedChanges:
        """Changes of the fine body's state, as a motion begins: undeformed, where both grids hold the same."""
        u, v, a = (grids.restricted(part) for part in (fine.u, fine.v, fine.a))
        coarse = ColumnChanges(u, v, a, fine.number, fine.backend)
        return cls(coarse, grids.restricted_state(state), grids, fine)

    def mixed(self, weights: np.ndarray) -> CarriedChanges:
        return CarriedChanges(self.coarse.mixed(weights), self.state, self.grids)

    def moved(self, weights: np.ndarray) -> CarriedChanges:
        return CarriedChanges(self.coarse, self._moved_state(weights), self.grids, self.fine)

    def followed(self, fine: State) -> CarriedChanges:
        return CarriedChanges(self.coarse, self.grids.followed(self.state, fine), self.grids, self.fine)


class CarriedTangent:
    """Steps the coarse body and its changes along with the fine body's motion."""

    def __init__(
        self,
        grids: CoarserModel,
        parameters: Parameters,
        directions: list[ParameterGradient],
        backend: Backend,
        tolerance: float,
        least_m: np.ndarray | None,
    ) -> None:
        self.grids, self.simulation = grids, Simulation(grids.model, parameters, backend)
        self.tangent = Tangent(self.simulation.with_solver(relative_tolerance=tolerance), directions, least_m)

    def step(self, changes: CarriedChanges, time_s: float) -> CarriedChanges:
        """The changes at a later time [s], no farther away than the coarse body's step is long."""
        end = changes.ahead or self._step(changes)
        way_s = end.state.time_s - changes.state.time_s
        if time_s >= end.state.time_s - SAME_TIME * way_s:
            return end
        return _between(changes, end, (time_s - changes.state.time_s) / way_s)

    def _step(self, changes: CarriedChanges) -> CarriedChanges:
        after, _, linearisation = self.simulation.step_keeping(changes.state)
        coarse, _ = self.tangent.step(changes.state, after, linearisation, changes.coarse)
        return CarriedChanges(coarse, after, self.grids)


def place_between(a: Any, b: Any, way_s: float, share: float) -> Array:
    """u at a share of the way from one to the other, along the cubic that places and velocities at both ends make."""
    moved = b.u - a.u
    bent = (1 - share) * (way_s * a.v - moved) - share * (way_s * b.v - moved)
    return a.u + share * moved + share * (1 - share) * bent


def _between(start: CarriedChanges, end: CarriedChanges, share: float) -> CarriedChanges:
    before, after = start.state, end.state
    way_s = after.time_s - before.time_s

    def linear(a: Array, b: Array) -> Array:
        return a + share * (b - a)

    a, b = start.coarse, end.coarse
    state = State(
        place_between(before, after, way_s, share),
        linear(before.v, after.v),
        linear(before.a, after.a),
        before.time_s + share * way_s,
    )
    columns = ColumnChanges(place_between(a, b, way_s, share), linear(a.v, b.v), linear(a.a, b.a), a.number, a.backend)
    return CarriedChanges(columns, state, start.grids, ahead=end)
