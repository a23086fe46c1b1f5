"""Simulations on a backend that runs whole steps by itself (`backend.stepper`): same numbers, no waiting.

The plain classes ask the backend for one loop at a time and wait for every solve. Here the steps are only started; the
solves' reports are read once at the end, and a step whose solve failed is done again the plain way, which knows how
to rescue it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Array, Backend, Paths
from soft_estimator.physics.adjoint import Adjoint, StateGradient
from soft_estimator.physics.fused_guard import first_unsound, sound_together
from soft_estimator.physics.fused_obstacles import ObstaclePoses, Placements, ground_of, touchables
from soft_estimator.physics.fused_setup import StartedSimulation, add_sums, body_arrays, material_row
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolveReport
from soft_estimator.physics.state import State

_SCHEME = (
    *("step_s", "predictor", "c_m", "c_d", "c_k", "p_v", "d_u", "d_v", "ahead_v", "ahead_a", "p_a", "q_v", "q_a"),
    *("d_a", "e_u", "e_v", "e_a", "h_u", "h_v", "h_a", "k_u", "k_v", "k_a"),
)


GUARD_SUMS = 11  # of a state, see `fused_guard`

# The laws that whole steps know; anything else is left to the plain classes.
FUSED_LAWS = frozenset(("inertia", "corotated", "loads", "plane_contact", "obstacle_contact", "friction"))


def can_fuse(model: Model, backend: Backend) -> bool:
    """Whether the backend has a stepper and the model nothing that it does not know (weakly held regions, ...)."""
    known = all(law.fused in FUSED_LAWS for law in model.laws)
    plain = model.solver.rounds == 1 and not model.rests and model.modes is None
    if backend.stepper is None or not known or not plain:
        return False
    return all(touched.law.implicit for touched in touchables(model) if touched.presses)


def cuts_steps(model: Model) -> bool:
    """Whether steps in which something rubs are cut into shorter ones."""
    return any(touched.rubs and touched.law.substeps > 1 for touched in touchables(model))


@dataclass(frozen=True)
class Roll:
    """States of a batch: u, v, a, each (steps + 1, systems, N, 3).

    Attributes:
        time_s: of each state, (steps + 1,). report: iterations, relative residual and status of every solve,
            (steps, systems, 3), on the device. guard: what tells whether the steps can be trusted, (steps + 1,
            systems, 11), on the device; see `fused_guard`. both: the memory of these two.
    """

    u: Array
    v: Array
    a: Array
    time_s: np.ndarray
    report: Array
    guard: Array
    both: Array

    def judged(self, backend: Backend) -> tuple[np.ndarray, np.ndarray]:
        """Report and guard on the host; waits for the steps."""
        host = backend.to_host(self.both)
        report, guard = host[: self.report.size], host[-self.guard.size :]
        return report.reshape(self.report.shape), guard.reshape(self.guard.shape)

    def at(self, k: int) -> tuple[Array, Array, Array]:
        return self.u[k], self.v[k], self.a[k]

    def states(self, system: int = 0) -> list[State]:
        """The states of one system, as `Simulation` would give them."""
        parts = zip(self.u, self.v, self.a, self.time_s)
        return [State(u[system], v[system], a[system], float(t)) for u, v, a, t in parts]


class FusedBatch:
    """Several parameter sets of one model, stepped together; steps that something rubs in are not cut."""

    def __init__(self, model: Model, parameters: Sequence[Parameters], backend: Backend) -> None:
        if not can_fuse(model, backend):
            raise ValueError(
                f"backend '{backend.name}' cannot run whole steps of this model; use Simulation and Adjoint"
            )
        self.model, self.backend = model, backend
        first = StartedSimulation(model, parameters[0], backend)
        self.simulations = [first, *(first.with_parameters(p) for p in parameters[1:])]
        law, solver = ground_of(model), model.solver
        self._touched = touchables(model)
        self._poses, self.placements = ObstaclePoses(self._touched, model.integrator), self._places()
        contact = (0.0, 0.0) if law is None else (1.0, float(law.implicit))
        if backend.stepper is None or backend.guard is None:  # `can_fuse` has looked
            raise AssertionError(backend.name)
        self.stepper = backend.stepper(
            body_arrays(first),
            first.device.spacing_m,
            [getattr(model.integrator, name) for name in _SCHEME],
            contact,
            np.array([material_row(s.parameters) for s in self.simulations]),
            np.array([s.start for s in self.simulations]),
            model.dtype,
            solver.relative_tolerance,
            solver.max_iterations,
        )
        self.guard = backend.guard(self.stepper, model.body.cells.fill)

    def serve(self, *simulations: StartedSimulation) -> None:
        """Put the simulations' parameters where the steps read them; several take turns on one batch."""
        if len(simulations) == len(self.simulations) and all(map(is_, simulations, self.simulations)):
            return
        self.simulations = list(simulations)
        self.placements = self._places()
        self.stepper.set_parameters(
            np.array([material_row(s.parameters) for s in simulations]), np.array([s.start for s in simulations])
        )

    def _places(self) -> Placements:
        return Placements(self._touched, self.backend, [s.parameters for s in self.simulations])

    def initial(self) -> list[State]:
        return [s.initial_state() for s in self.simulations]

    def roll(self, states: Sequence[State], steps: int) -> Roll:
        """Start so many steps from one state for each system; does not wait for them.

        Steps that should fall back do not: `fused_guard.first_unsound` finds them in the roll's report and guard.
        """
        xp, scheme = self.backend.xp, self.model.integrator
        shape = (steps + 1, len(states), self.model.body.node_count, 3)
        time_s = np.cumsum([states[0].time_s, *[scheme.step_s] * steps])  # as steps one by one count it
        parts = [xp.empty(shape, self.model.dtype) for _ in range(3)]
        for j, state in enumerate(states):
            for part, start in zip(parts, (state.u, state.v, state.a)):
                part[0, j] = start
        both = xp.zeros((2 * steps + 1) * len(states) * GUARD_SUMS)  # in one piece, to be read at once
        report = both[: steps * len(states) * 3].reshape(steps, len(states), 3)
        guard = both[-(steps + 1) * len(states) * GUARD_SUMS :].reshape(steps + 1, len(states), GUARD_SUMS)
        out = Roll(parts[0], parts[1], parts[2], time_s, report, guard, both)
        paths = self.paths(_from_to(np.append(time_s[0], time_s)))
        self.guard.state(out.u[0], out.v[0], paths[0], guard[0])
        before = out.at(0)
        for k in range(steps):
            after = out.at(k + 1)
            self.stepper.forward(before, after, paths[k + 1], report[k])
            self.guard.step(before, after, paths[k + 1], guard[k + 1])
            before = after
        return out

    def paths(self, times_s: np.ndarray) -> list[Paths]:
        """Where held regions and obstacles are within steps that start and end at times (T, 2); uploaded together."""
        held = self.model.dirichlet.held
        out = np.zeros((len(times_s), max(1, len(held)), 13))
        for r, (_, path) in enumerate(held):
            for k, time in enumerate(times_s[:, 1] if path.moves else []):
                q, shift = path.at(float(time))
                out[k, r] = [1.0, *q.ravel(), *shift]
        obstacles = self.placements.put(self._poses.of_steps(times_s))
        both = self.backend.to_device(np.concatenate([out.ravel(), obstacles.ravel()]))
        regions, led = both[: out.size].reshape(out.shape), both[out.size :].reshape(obstacles.shape)
        return [Paths(*at) for at in zip(regions, led)]

    def start_sums(self) -> np.ndarray:
        """Derivatives by the initial displacement through held nodes that move, (systems, N, 3)."""
        if any(path.moves for _, path in self.model.dirichlet.held):
            return self.stepper.start_sums()
        return np.zeros((len(self.simulations), 1, 1))

    def roll_back(self, roll: Roll, state_bars: Any) -> tuple[list[ParameterGradient], Array]:
        """Gradients of Σ over the states of what is measured there, by the parameters of every system.

        Args:
            roll: the states. state_bars: function of k that returns the derivatives (u, v, a) of what is measured at
                state k, each (systems, N, 3), or None for nothing; a None entry is zero.

        Returns:
            a gradient for each system, and the reports of the solves (steps, systems, 3), on the device.
        """
        xp = self.backend.xp
        bar = tuple(xp.zeros_like(x) for x in roll.at(0))
        report, paths = xp.zeros_like(roll.report), self.paths(_from_to(roll.time_s))
        self.stepper.start_backward()
        for k in range(len(roll.report), 0, -1):
            _add(bar, state_bars(k))
            self.stepper.backward(roll.at(k - 1), roll.u[k], bar, paths[k - 1], report[k - 1])
        _add(bar, state_bars(0))
        adjoints = [Adjoint(simulation) for simulation in self.simulations]
        self.add_received([adjoint.gradient for adjoint in adjoints])
        start, host = self.start_sums(), [self.backend.to_host(x) for x in bar]
        for j, adjoint in enumerate(adjoints):
            adjoint.start_bar = adjoint.start_bar + start[j]
        return [a.finish(StateGradient(*[x[j] for x in host])) for j, a in enumerate(adjoints)], report

    def add_received(self, gradients: Sequence[ParameterGradient]) -> None:
        """Add what the stepper summed up for the parameters of each system; waits."""
        sums, lame_sums = self.stepper.collected()
        frames = self.stepper.frame_sums() if self.placements.posed else None
        for j, (gradient, simulation) in enumerate(zip(gradients, self.simulations)):
            add_sums(gradient, simulation.parameters, sums[j], lame_sums[j])
            if frames is not None:
                self.placements.moves_adjoint(j, frames[j], gradient)


class FusedSimulation(StartedSimulation):
    """A simulation that can start many steps at once."""

    def __init__(self, model: Model, parameters: Parameters, backend: Backend) -> None:
        super().__init__(model, parameters, backend)
        self.batch = FusedBatch(model, [parameters], backend)
        self._cuts = cuts_steps(model)
        self._tangent_steps: dict[int, Any] = {}  # by the number of directions
        self._first_parts: dict[int, FusedSimulation] = {}  # by how many make a step

    def _bind(self, parameters: Parameters) -> None:
        super()._bind(parameters)
        self._parts: dict[int, FusedSimulation] = {}

    def part(self, count: int) -> FusedSimulation:
        """This simulation with whole steps of such a part of its own, on device arrays of their own."""
        if count not in self._first_parts:
            self._first_parts[count] = FusedSimulation(self.model.in_parts(count), self.parameters, self.backend)
        if count not in self._parts:
            self._parts[count] = self._first_parts[count].renewed(self.parameters)
        return self._parts[count]

    def through_parts(self, before: State, after: State) -> list[State]:
        """The states from one to the next where the step between them was cut."""
        part = self.part(after.substeps)
        part.batch.serve(part)
        return [*part.batch.roll([before], after.substeps).states()[:-1], after]

    def renewed(self, parameters: Parameters) -> FusedSimulation:
        """This simulation with other parameters, on the same device arrays."""
        return self.with_parameters(parameters)

    def tangent_steps(self, columns: int) -> Any:
        """The backend's tangent stepper for so many directions."""
        if columns not in self._tangent_steps:
            kind = self.backend.tangent_stepper
            if kind is None:
                raise ValueError(f"backend '{self.backend.name}' has no tangent of whole steps; use Tangent")
            self._tangent_steps[columns] = kind(self.batch.stepper, columns)
        return self._tangent_steps[columns]

    def roll(
        self,
        state: State,
        steps: int,
        on_rescue: Callable[[list[State]], None] | None = None,
        beside: Callable[[list[State]], None] | None = None,
    ) -> tuple[list[State], list[SolveReport]]:
        """The states after 0, 1, ... steps, and how their solves went.

        on_rescue: told of every state that the plain step had to find; may raise to give up. beside: called while the
            steps that were started are under way, with the states that come of them (the first one alone where none
            could be started); those that turn out to be sound are returned.
        """
        states: list[State] = [state]
        reports: list[SolveReport] = []
        at_once = steps
        if beside is not None and (self._cuts or not steps):
            beside([state])
            beside = None
        while len(reports) < steps:
            count = self.substeps(states[-1]) if self._cuts else 1
            if count > 1:
                made, solved, sound = self._step_in_parts(states[-1], count)
            else:
                made, solved, sound = self._steps(states[-1], min(at_once, steps - len(reports)), beside)
                beside = None
            states += made
            reports += solved
            at_once = 1 if count > 1 else 2 * at_once
            if not sound:  # the plain step rescues the solve or falls back, or says why it cannot
                after, report = self.step(states[-1])
                states.append(after)
                reports.append(report.solve)
                if on_rescue is not None:
                    on_rescue([after])
                at_once = 1  # where one step failed the next may: do not start many for nothing
        return states, reports

    def _steps(
        self, state: State, steps: int, beside: Callable[[list[State]], None] | None = None
    ) -> tuple[list[State], list[SolveReport], bool]:
        """The states after whole steps, as far as these can be trusted and none of them should have been cut; how their
        solves went; whether all that was made can be trusted."""
        self.batch.serve(self)
        roll = self.batch.roll([state], steps)
        made = roll.states()
        if beside is not None:
            beside(made)
        host, guard = (x[:, 0] for x in roll.judged(self.backend))
        good = first_unsound(self, host, guard)
        states = made[1 : good + 1]
        if self._cuts:
            cut = next((k for k, begun in enumerate(states, 1) if self.substeps(begun) > 1), steps)
            if cut < good or (cut == good < steps):
                states, good = states[:cut], steps
        return states, [SolveReport(int(row[0]), float(row[1])) for row in host[: len(states)]], good == steps

    def _step_in_parts(self, state: State, count: int) -> tuple[list[State], list[SolveReport], bool]:
        """The state after a step that is cut, how its solves went, and whether it can be trusted; none where not."""
        part = self.part(count)
        part.batch.serve(part)
        roll = part.batch.roll([state], count)
        host, guard = (x[:, 0] for x in roll.judged(self.backend))
        if not sound_together(part, host, guard):
            return [], [], False
        after = replace(roll.states()[-1], substeps=count)
        return [after], [SolveReport(int(host[:, 0].sum()), float(host[-1, 1]))], True


def _from_to(times_s: np.ndarray) -> np.ndarray:
    """Start and end of the steps between times, (T - 1, 2)."""
    return np.stack([times_s[:-1], times_s[1:]], axis=1)


def _add(bar: tuple, more: tuple | None) -> None:
    for total, part in zip(bar, more or ()):
        if part is not None:
            total += part
