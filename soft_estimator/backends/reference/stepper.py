"""Whole steps of a batch of systems, one system after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from soft_estimator.backends.interface import Array, Paths, State, Stepper
from soft_estimator.backends.reference.step import Linearised, Material, Scheme, System
from soft_estimator.backends.reference.step_adjoint import Received, increment_adjoint, step_adjoint


class ReferenceStepper:
    """See `soft_estimator.backends.whole_steps`; in double precision, whatever the states are kept in."""

    def __init__(
        self,
        body: Mapping[str, Any],
        spacing_m: float,
        scheme: Sequence[float],
        contact: Sequence[float],
        materials: Array,
        start: Array,
        real: npt.DTypeLike,
        tolerance: float,
        limit: int,
    ) -> None:
        self._body = {name: x for name, x in body.items() if name != "coarse"}
        self._spacing, self._scheme, self._contact = spacing_m, Scheme(*scheme), contact
        self._tolerance, self.limit = tolerance, limit
        self.set_parameters(materials, start)
        self.last: list[tuple[Linearised, Array]] = []  # linearisation and right-hand side of the last step, by system
        self._received: list[Received] = []

    def set_parameters(self, materials: Array, start: Array) -> None:
        self._start = np.array(start, np.float64)
        given = (self._body, self._spacing, self._scheme, self._contact)
        self.systems = [System(*given, Material.of(row)) for row in np.array(materials, np.float64)]

    def forward(self, before: State, after: State, paths: Paths, report: Array) -> None:
        self.last = []
        for j, s in enumerate(self.systems):
            state = of_system(before, j)
            lin = s.linearise(state, paths.obstacles[j])
            rhs, increment = s.right_hand_side(state, lin), s.guess(state, self._start[j], paths.held)
            report[j] = s.solve(lin, rhs, increment, self._tolerance, self.limit)
            put_system(after, j, s.advance(state, increment))
            self.last.append((lin, rhs))

    def start_backward(self) -> None:
        nodes, cells, obstacles = (len(self._body[name]) for name in ("free", "cell_region", "obstacles"))
        self._received = [Received(nodes, cells, obstacles) for _ in self.systems]

    def backward(self, before: State, u_after: Array, bar: State, paths: Paths, report: Array) -> None:
        # A batch of one may come without its dimension.
        before, bar, u_after = as_batch(before), as_batch(bar), u_after.reshape(-1, *u_after.shape[-2:])
        for j, s in enumerate(self.systems):
            state, state_bar = of_system(before, j), of_system(bar, j)
            lin, lmbda = s.linearise(state, paths.obstacles[j]), np.zeros_like(state[0])
            report[j] = s.solve(lin, s.free * increment_adjoint(s, state_bar), lmbda, self._tolerance, self.limit)
            after = u_after[j].astype(np.float64)
            given = (state, after, state_bar, lmbda, paths.held)
            put_system(bar, j, step_adjoint(s, lin, *given, self._received[j]))

    def collected(self) -> tuple[Array, Array]:
        region, regions = self._body["cell_region"], len(self.systems[0].material.youngs_modulus_pa)
        lame = np.zeros((len(self.systems), regions, 2))
        for total, received in zip(lame, self._received):
            np.add.at(total, region, received.lame)
        return np.array([received.row() for received in self._received]), lame

    def frame_sums(self) -> Array:
        return np.array([received.frames for received in self._received])

    def start_sums(self) -> Array:
        return np.array([received.start for received in self._received])


def as_batch(state: State) -> State:
    u, v, a = (x.reshape(-1, *x.shape[-2:]) for x in state)
    return u, v, a


def of_system(state: State, j: int) -> State:
    """A system's state, in double precision."""
    u, v, a = (x[j].astype(np.float64) for x in state)
    return u, v, a


def put_system(out: State, j: int, state: State) -> None:
    for target, values in zip(out, state):
        target[j] = values


def own_stepper(stepper: Stepper) -> ReferenceStepper:
    """The stepper, whose systems guards and tangents read."""
    if not isinstance(stepper, ReferenceStepper):
        raise TypeError(f"a {type(stepper).__name__} has no systems to read; hand over one made by the same backend")
    return stepper
