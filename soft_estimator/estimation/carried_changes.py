"""Changes of a motion that are worked out on a coarser grid, by a body that makes the same motion there by itself.

The coarse body is not the fine one restricted to fewer nodes: it moves by its own equations, under the same parameters.
Only so do its changes hold together (a body of twice the density and twice the stiffness falls as before), and with
them what is said of the deviations. Where the two part in the course of time, it is moved after the fine one rigidly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.physics.coarser import CoarserModel
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import ColumnChanges, Tangent


@dataclass(frozen=True, eq=False, kw_only=True)
class CarriedChanges(ColumnChanges):
    """Changes at the fine nodes, with those at the coarse ones that they come from.

    Attributes:
        coarse: changes at the coarse nodes. state: of the coarse body. grids: both.
    """

    coarse: ColumnChanges
    state: State
    grids: CoarserModel

    @classmethod
    def from_coarse(cls, coarse: ColumnChanges, state: State, grids: CoarserModel) -> CarriedChanges:
        u, v, a = (grids.prolonged(part) for part in (coarse.u, coarse.v, coarse.a))
        return cls(u, v, a, coarse.number, coarse.backend, coarse=coarse, state=state, grids=grids)

    @classmethod
    def from_fine(cls, fine: ColumnChanges, state: State, grids: CoarserModel) -> CarriedChanges:
        """Changes of the fine body's state, as a motion begins: undeformed, where both grids hold the same."""
        u, v, a = (grids.restricted(part) for part in (fine.u, fine.v, fine.a))
        coarse, there = ColumnChanges(u, v, a, fine.number, fine.backend), grids.restricted_state(state)
        return cls(fine.u, fine.v, fine.a, fine.number, fine.backend, coarse=coarse, state=there, grids=grids)

    def mixed(self, weights: np.ndarray) -> CarriedChanges:
        return CarriedChanges.from_coarse(self.coarse.mixed(weights), self.state, self.grids)

    def moved(self, weights: np.ndarray) -> CarriedChanges:
        """The same changes with the coarse body moved along them; weights (number, 1)."""
        step, s = self.coarse.mixed(weights)[0], self.state
        return replace(self, state=replace(s, u=s.u + step.u, v=s.v + step.v, a=s.a + step.a))

    def followed(self, fine: State) -> CarriedChanges:
        """The same changes with the coarse body where the fine one is."""
        return replace(self, state=self.grids.followed(self.state, fine))


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
        return CarriedChanges.from_coarse(coarse, after, self.grids)
