"""The time step linearised: how the state changes with the parameters, for several of them at once.

The counterpart of `adjoint`: each term's `push`. The steps' matrices are those of the simulation itself. All directions
are worked on together: their changes lie next to each other in memory, (N, 3, width).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

import numpy as np

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.lying import lying
from soft_estimator.physics.solver import SolveReport, solve_many
from soft_estimator.physics.start import start_push
from soft_estimator.physics.state import State
from soft_estimator.physics.statics import DERIVATIVE_ROUNDS, fall_rate, linearise_rest, loosely_held
from soft_estimator.physics.step import Linearisation, Simulation, at_rest
from soft_estimator.physics.terms.interface import Columns, Directions, Stage, padded

__all__ = ["ColumnChanges", "StateTangent", "Tangent", "padded"]


@dataclass
class StateTangent:
    """Changes of u, v and a along one direction of the parameters, each (N, 3), and of the terms' memories."""

    u: Array
    v: Array
    a: Array
    memory: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ColumnChanges(Sequence[StateTangent]):
    """Changes of u, v and a along `number` directions, each (N, 3, width); as a sequence, one of each direction.

    Columns of zeros fill up to a width that the backend's inner loops take in whole registers. memory: of the terms'
    memories, (..., width) each.
    """

    u: Array
    v: Array
    a: Array
    number: int
    backend: Backend
    memory: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, changes: Sequence[StateTangent], backend: Backend) -> ColumnChanges:
        """The same changes, side by side."""
        if isinstance(changes, ColumnChanges):
            return changes
        width = padded(len(changes), backend)

        def beside(each: list[Array]) -> Array:
            part = backend.xp.zeros((*each[0].shape, width), each[0].dtype)
            for j, change in enumerate(each):
                part[..., j] = change
            return part

        u, v, a = (beside([getattr(change, name) for change in changes]) for name in ("u", "v", "a"))
        memory = {name: beside([change.memory[name] for change in changes]) for name in changes[0].memory}
        return cls(u, v, a, len(changes), backend, memory)

    def __len__(self) -> int:
        return self.number

    @overload
    def __getitem__(self, j: int) -> StateTangent: ...
    @overload
    def __getitem__(self, j: slice) -> Sequence[StateTangent]: ...
    def __getitem__(self, j: int | slice) -> StateTangent | Sequence[StateTangent]:
        if isinstance(j, slice):
            return [self[k] for k in range(*j.indices(self.number))]
        if not -self.number <= j < self.number:
            raise IndexError(j)
        j %= self.number
        memory = {name: part[..., j] for name, part in self.memory.items()}
        return StateTangent(self.u[:, :, j], self.v[:, :, j], self.a[:, :, j], memory)

    def __iter__(self) -> Iterator[StateTangent]:
        return (self[j] for j in range(self.number))

    def mixed(self, weights: np.ndarray) -> ColumnChanges:
        """Σ_i weights_ij · change_i for every j; weights (number, new number), on the host."""
        full = np.zeros((self.u.shape[2], padded(weights.shape[1], self.backend)))
        full[: weights.shape[0], : weights.shape[1]] = weights
        there = self.backend.to_device(full, self.u.dtype)
        memory = {name: part @ there for name, part in self.memory.items()}
        return ColumnChanges(self.u @ there, self.v @ there, self.a @ there, weights.shape[1], self.backend, memory)


class Tangent:
    """Carries the changes of the state along given directions of the parameters through the steps of a simulation.

    Args:
        least_m: moves that do not matter, for each direction (P,) [m]: what would move the body by no more than this
            within a step, were it free to, is left out. None: everything matters.
    """

    def __init__(
        self, simulation: Simulation, directions: list[ParameterGradient], least_m: np.ndarray | None = None
    ) -> None:
        self.simulation, self.directions, self.least_m = simulation, directions, least_m
        body, free = simulation.model.body, simulation.model.dirichlet.free[:, None]
        moves = [start_push(body, simulation.parameters, d, simulation.model.modes) for d in directions]
        self.start = [(u, v * free) for u, v in moves]
        self.columns = Directions(directions, simulation.backend, [u for u, _ in self.start])

    def initial(self) -> ColumnChanges:
        """Changes of the initial state."""
        s = self.simulation
        if s.model.rests:
            return self._initial_rest()
        moves = [(s.device.up(u), s.device.up(v)) for u, v in self.start]
        changes = ColumnChanges.of([StateTangent(u, v, v.copy()) for u, v in moves], s.backend)
        if not s.model.integrator.carries_acceleration:
            return changes
        return ColumnChanges(changes.u, changes.v, self._initial_acceleration(changes), changes.number, s.backend)

    def _initial_rest(self) -> ColumnChanges:
        """Changes of the state of rest, where g(u, p) = 0: the rounds that lead there, K δ = ∂g/∂u du + ∂g/∂p, made
        linear and repeated until du no longer changes. Nothing moves, whatever the parameters."""
        s = self.simulation
        changes = ColumnChanges.of(
            [StateTangent(s.device.up(u), s.device.zero, s.device.zero) for u, _ in self.start], s.backend
        )
        at, du, by_friction, shift = s.initial_state().u, changes.u, lying(s), loosely_held(s)
        lin, held_back, before = linearise_rest(s, at, shift), 0.0, np.inf
        more = s.xp.zeros_like(du)
        if by_friction is not None:
            reaction = by_friction.reaction(s.right_hand_side(lin.stage, lin.at))
            for j, direction in enumerate(self.directions):
                du[..., j] += s.device.up(by_friction.push(direction, at))
                more[..., j] = s.device.up(by_friction.push_force(direction, reaction))
        for _ in range(DERIVATIVE_ROUNDS):
            rhs = self._pushed(s, lin.stage, lin.at, s.device.zero, Columns(du, changes.v, changes.v, changes.v, None))
            step = s.xp.zeros_like(du)
            rhs = rhs if by_friction is None else by_friction.held_force(rhs + more)
            solve_many(s.backend, lin.system, rhs, step, s.model.solver)
            step = step if by_friction is None else by_friction.held_motion(step)
            size = float(np.abs(s.device.host(step)).max())
            if size > before:  # too far: the balance is stiffer than K, as that of a body bent far
                held_back = max(4 * held_back, fall_rate(s))
                lin, before = linearise_rest(s, at, shift + held_back), np.inf
                continue
            du, before = du + step, size
            if at_rest(du, du - step, s.model.solver.relative_tolerance):
                break
        return ColumnChanges(du, changes.v, changes.a, changes.number, s.backend)

    def _initial_acceleration(self, changes: ColumnChanges) -> Array:
        """a = M⁻¹ g - α₁ v of `Simulation.initial_acceleration`: the terms' changes of g, and M's own."""
        state, p = self.simulation.initial_state(), self.simulation.parameters
        s = self.simulation.at_start()
        d = s.device
        stage, at = s.force_balance(state.u, state.v)
        still = s.xp.zeros_like(changes.u)
        change = self._pushed(s, stage, at, d.zero, Columns(changes.u, changes.v, still, still, None))
        change = s.accelerated(change)
        change -= p.mass_damping_per_s * changes.v
        change -= state.v[:, :, None] * d.up(self.columns.column("mass_damping_per_s"))
        by_mass = state.a + p.mass_damping_per_s * state.v
        change -= by_mass[:, :, None] * d.up(self.columns.column("density_kg_m3") / p.density_kg_m3)
        return change * d.free[:, None, None]

    def step(
        self, before: State, after: State, lin: Linearisation, changes: Sequence[StateTangent]
    ) -> tuple[ColumnChanges, SolveReport]:
        """Changes of the state after a step, given those before it and the step's linearisation."""
        s = self.simulation
        columns = ColumnChanges.of(changes, s.backend)
        part, count = s.parts_of(after)
        for _ in range(count - 1):
            start, (before, _, first) = before, part.step_once(before)
            columns, _ = self._step(part, start, before, first, columns)
        return self._step(part, before, after, lin, columns)

    def _step(
        self, s: Simulation, before: State, after: State, lin: Linearisation, changes: ColumnChanges
    ) -> tuple[ColumnChanges, SolveReport]:
        """Solve for the change of Δu with the change of r - A Δu at fixed Δu on the right-hand side."""
        scheme, solver, increment = s.model.integrator, s.model.solver, after.u - before.u
        known = scheme.known_velocity(changes.v, changes.a)
        guess = scheme.step_s * scheme.velocity_ahead(changes.v, changes.a)
        if solver.rounds > 1:
            lin = s.linearise(before, increment)
        for _ in range(solver.rounds):
            moved = Columns(changes.u, changes.v, changes.a, guess, known, changes.memory)
            rhs = self._pushed(s, lin.stage, lin.at, increment, moved)
            solution = guess.copy()
            self._held_nodes(s, after.time_s, changes, solution)
            report = solve_many(s.backend, lin.system, rhs, solution, solver, self._least_force(s))
            if s.one_solve(lin) or at_rest(solution, guess, solver.round_tolerance):
                break
            guess = solution
        if solver.rounds > 1:
            moved = replace(moved, guess=solution)
        memory = {
            term.memory: term.push_memory(lin.stage, at, increment, moved, solution, self.columns)
            for term, at in zip(s.terms, lin.at)
            if term.memory
        }
        return replace(self._advance(s, changes, solution), memory=memory), report

    def _least_force(self, s: Simulation) -> np.ndarray | None:
        """Right-hand sides that do not matter, (width,): the inertia of all nodes moved by `least_m`."""
        if self.least_m is None:
            return None
        out = np.zeros(self.columns.width)
        out[: len(self.least_m)] = least_force_n(s, self.least_m)
        return out

    def _pushed(self, s: Simulation, stage: Stage, at: tuple, increment: Array, moved: Columns) -> Array:
        rhs = s.xp.zeros(moved.u.shape, s.model.dtype)
        for term, prepared in zip(s.terms, at):
            term.push(stage, prepared, increment, moved, self.columns, rhs)
        return rhs

    def _held_nodes(self, s: Simulation, time_s: float, changes: ColumnChanges, increment: Array) -> None:
        for nodes, path in s.model.dirichlet.held:
            increment[nodes] = 0.0
            if not path.moves:
                continue
            turned = path.at(time_s)[0]
            for j, (start, _) in enumerate(self.start):
                increment[nodes, :, j] = s.device.up(start[nodes] @ turned.T) - changes.u[nodes, :, j]

    def _advance(self, s: Simulation, changes: ColumnChanges, increment: Array) -> ColumnChanges:
        held = (nodes for nodes, _ in s.model.dirichlet.held)
        v, a = s.model.integrator.advanced(increment, changes.v, changes.a, held)
        return ColumnChanges(changes.u + increment, v, a, changes.number, s.backend)


def least_force_n(s: Simulation, least_m: np.ndarray) -> np.ndarray:
    """The inertia of all nodes moved by `least_m` (P,) within a step, (P,) [N]."""
    mass_kg = s.parameters.density_kg_m3 * s.model.body.node_volume_m3
    return s.model.integrator.c_m * float(np.linalg.norm(mass_kg)) * least_m
