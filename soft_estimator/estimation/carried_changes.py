"""Changes of a motion that are worked out on a coarser grid, by a body that makes the same motion there by itself.

The coarse body is not the fine one restricted to fewer nodes: it moves by its own equations, under the same parameters.
Only so do its changes hold together (a body of twice the density and twice the stiffness falls as before), and with
them what is said of the deviations. Where the two part in the course of time, it is moved after the fine one rigidly.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.physics.coarser import CoarserModel
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import ColumnChanges, Tangent


class CarriedChanges(ColumnChanges):
    """Changes at the fine nodes, with those at the coarse ones that they come from; carried over where they are asked
    for, at frames, not at the steps between them.

    Attributes:
        coarse: changes at the coarse nodes. state: of the coarse body. grids: both.
        fine: the same changes at the fine nodes, where a motion begins with them; None: as they are carried over.
    """

    coarse: ColumnChanges
    state: State
    grids: CoarserModel
    fine: ColumnChanges | None

    def __init__(
        self, coarse: ColumnChanges, state: State, grids: CoarserModel, fine: ColumnChanges | None = None
    ) -> None:
        given = {"coarse": coarse, "state": state, "grids": grids, "fine": fine}
        vars(self).update(given, number=coarse.number, backend=coarse.backend, memory={})

    @classmethod
    def from_fine(cls, fine: ColumnChanges, state: State, grids: CoarserModel) -> CarriedChanges:
        """Changes of the fine body's state, as a motion begins: undeformed, where both grids hold the same."""
        u, v, a = (grids.restricted(part) for part in (fine.u, fine.v, fine.a))
        coarse = ColumnChanges(u, v, a, fine.number, fine.backend)
        return cls(coarse, grids.restricted_state(state), grids, fine)

    @cached_property
    def u(self) -> Array:  # type: ignore[override]
        return self._carried("u")

    @cached_property
    def v(self) -> Array:  # type: ignore[override]
        return self._carried("v")

    @cached_property
    def a(self) -> Array:  # type: ignore[override]
        return self._carried("a")

    def _carried(self, name: str) -> Array:
        return getattr(self.fine, name) if self.fine is not None else self.grids.prolonged(getattr(self.coarse, name))

    def mixed(self, weights: np.ndarray) -> CarriedChanges:
        return CarriedChanges(self.coarse.mixed(weights), self.state, self.grids)

    def moved(self, weights: np.ndarray) -> CarriedChanges:
        """The same changes with the coarse body moved along them; weights (number, 1)."""
        step, s = self.coarse.mixed(weights)[0], self.state
        moved = replace(s, u=s.u + step.u, v=s.v + step.v, a=s.a + step.a)
        return CarriedChanges(self.coarse, moved, self.grids, self.fine)

    def followed(self, fine: State) -> CarriedChanges:
        """The same changes with the coarse body where the fine one is."""
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

    def step(self, changes: CarriedChanges) -> CarriedChanges:
        """The changes after a step."""
        after, _, linearisation = self.simulation.step_keeping(changes.state)
        coarse, _ = self.tangent.step(changes.state, after, linearisation, changes.coarse)
        return CarriedChanges(coarse, after, self.grids)
