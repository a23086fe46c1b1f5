"""Simulation and adjoint on a backend that runs whole steps by itself (`backend.stepper`): same numbers, no waiting.

The plain classes ask the backend for one loop at a time and wait for every solve. Here the steps are only started; the
solves' reports are read once at the end, and a step whose solve failed is done again the plain way, which knows how
to rescue it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.physics.adjoint import Adjoint, StateGradient
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import Model, State, initial_displacement
from soft_estimator.physics.parameters import Parameters, lame, lame_slope
from soft_estimator.physics.solver import STALL_ACCEPTED, SolveReport, SolverError
from soft_estimator.physics.step import Simulation

_SCHEME = (
    *("step_s", "predictor", "c_m", "c_d", "c_k", "p_v", "d_u", "d_v", "ahead_v", "ahead_a", "p_a", "q_v", "q_a"),
    *("d_a", "e_u", "e_v", "e_a"),
)


def can_fuse(model: Model, backend: Backend) -> bool:
    """Whether the backend has a stepper and the model nothing that it does not know (weakly held regions)."""
    return hasattr(backend, "stepper") and not model.dirichlet.weak


@dataclass(frozen=True)
class Roll:
    """States of a batch: u, v, a, each (steps + 1, systems, N, 3).

    Attributes:
        time_s: of each state, (steps + 1,). report: iterations, relative residual and status of every solve,
            (steps, systems, 3), on the device.
    """

    u: Array
    v: Array
    a: Array
    time_s: np.ndarray
    report: Array

    def at(self, k: int) -> tuple[Array, Array, Array]:
        return self.u[k], self.v[k], self.a[k]

    def states(self, system: int = 0) -> list[State]:
        """The states of one system, as `Simulation` would give them."""
        parts = zip(self.u, self.v, self.a, self.time_s)
        return [State(u[system], v[system], a[system], float(t)) for u, v, a, t in parts]


class StartedSimulation(Simulation):
    """A simulation that remembers its initial state, which the adjoint asks for again."""

    _first: State | None = None

    def initial_state(self) -> State:
        if self._first is None:
            self._first = super().initial_state()
        return self._first


class FusedBatch:
    """Several parameter sets of one model, stepped together."""

    def __init__(self, model: Model, parameters: Sequence[Parameters], backend: Backend) -> None:
        if not can_fuse(model, backend):
            raise ValueError(
                f"backend '{backend.name}' cannot run whole steps of this model; use Simulation and Adjoint"
            )
        self.model, self.backend = model, backend
        first = StartedSimulation(model, parameters[0], backend)
        self.simulations = [first, *(with_parameters(first, p) for p in parameters[1:])]
        law, solver = model.contact, model.solver
        contact = (0.0, 1.0, 0.0) if law is None else (law.stiffness_pa_per_m, law.sharpness_per_m, float(law.implicit))
        self.stepper: Any = backend.stepper(  # type: ignore[attr-defined]
            _body_arrays(first),
            first.spacing,
            [getattr(model.integrator, name) for name in _SCHEME],
            contact,
            np.array([_material(p) for p in parameters]),
            np.array([s.start for s in self.simulations]),
            model.dtype,
            solver.relative_tolerance,
            solver.max_iterations,
        )

    def initial(self) -> list[State]:
        return [s.initial_state() for s in self.simulations]

    def roll(self, states: Sequence[State], steps: int) -> Roll:
        """Start so many steps from one state for each system; does not wait for them."""
        xp, scheme = self.backend.xp, self.model.integrator
        shape = (steps + 1, len(states), self.model.body.node_count, 3)
        time_s = states[0].time_s + scheme.step_s * np.arange(steps + 1)
        parts = [xp.empty(shape, self.model.dtype) for _ in range(3)]
        for j, state in enumerate(states):
            for part, start in zip(parts, (state.u, state.v, state.a)):
                part[0, j] = start
        out = Roll(parts[0], parts[1], parts[2], time_s, xp.zeros((steps, len(states), 3)))
        paths = self.paths(time_s[1:])
        for k in range(steps):
            self.stepper.forward(out.at(k), out.at(k + 1), paths[k], out.report[k])
        return out

    def paths(self, times_s: np.ndarray) -> Array:
        """Motion of the strongly held regions at given times, (T, regions, 13); at least one row of zeros."""
        held = self.model.dirichlet.held
        out = np.zeros((len(times_s), max(1, len(held)), 13))
        for r, (_, path) in enumerate(held):
            for k, time in enumerate(times_s if path.moves else []):
                q, shift = path.at(float(time))
                out[k, r] = [1.0, *q.ravel(), *shift]
        return self.backend.to_device(out)

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
        report, paths = xp.zeros_like(roll.report), self.paths(roll.time_s[1:])
        self.stepper.start_backward()
        for k in range(len(roll.report), 0, -1):
            _add(bar, state_bars(k))
            self.stepper.backward(roll.at(k - 1), roll.u[k], bar, paths[k - 1], report[k - 1])
        _add(bar, state_bars(0))
        sums, lame_sums = self.stepper.collected()
        start, host = self.start_sums(), [self.backend.to_host(x) for x in bar]
        out = []
        for j, simulation in enumerate(self.simulations):
            adjoint = Adjoint(simulation)
            add_sums(adjoint.gradient, simulation.parameters, sums[j], lame_sums[j])
            adjoint.start_bar = adjoint.start_bar + start[j]
            out.append(adjoint.finish(StateGradient(*[x[j] for x in host])))
        return out, report


class FusedSimulation(Simulation):
    """A simulation that can start many steps at once."""

    def __init__(self, model: Model, parameters: Parameters, backend: Backend) -> None:
        super().__init__(model, parameters, backend)
        self.batch = FusedBatch(model, [parameters], backend)

    def roll(self, state: State, steps: int) -> tuple[list[State], list[SolveReport]]:
        """The states after 0, 1, ... steps, and how their solves went."""
        states: list[State] = [state]
        reports: list[SolveReport] = []
        while len(reports) < steps:
            roll = self.batch.roll([states[-1]], steps - len(reports))
            host = self.backend.to_host(roll.report)[:, 0]
            good = next((k for k, row in enumerate(host) if failed(row)), len(host))
            states += roll.states()[1 : good + 1]
            reports += [SolveReport(int(row[0]), float(row[1])) for row in host[:good]]
            if good < len(host):  # the plain step rescues the solve, or says why it cannot
                after, report = self.step(states[-1])
                states.append(after)
                reports.append(report.solve)
        return states, reports


class FusedAdjoint(Adjoint):
    """`Adjoint` whose steps are only started; `finish` waits for them."""

    def __init__(self, simulation: FusedSimulation) -> None:
        super().__init__(simulation)
        self.batch = simulation.batch
        self.batch.stepper.start_backward()
        self._reports: list[Array] = []

    def step_back(self, before: State, after: State, bar: StateGradient) -> tuple[StateGradient, SolveReport]:
        """As in `Adjoint`; how the solve went is not known yet: see `reports`."""
        out = StateGradient(bar.u.copy(), bar.v.copy(), bar.a.copy())
        self._reports.append(self.simulation.xp.zeros((1, 3)))
        paths = self.batch.paths(np.array([after.time_s]))[0]
        states = (before.u, before.v, before.a)
        self.batch.stepper.backward(states, after.u, (out.u, out.v, out.a), paths, self._reports[-1])
        return out, SolveReport(0, float("nan"))

    def reports(self) -> list[SolveReport]:
        """How the solves went, in the order of the calls; waits. `rescued` marks those that failed."""
        rows = self.simulation.backend.to_host(self.simulation.xp.concatenate(self._reports))
        return [SolveReport(int(row[0]), float(row[1]), failed(row)) for row in rows]

    def finish(self, bar: StateGradient) -> ParameterGradient:
        if self._reports:
            worst = max(self.reports(), key=lambda report: report.rescued)
            if worst.rescued:
                raise SolverError(
                    f"a solve of the adjoint stopped at a relative residual of {worst.relative_residual:.1e}; "
                    "use the plain Adjoint, which rescues such solves"
                )
            sums, lame_sums = self.batch.stepper.collected()
            add_sums(self.gradient, self.simulation.parameters, sums[0], lame_sums[0])
            self.start_bar = self.start_bar + self.batch.start_sums()[0]
        return super().finish(bar)


def failed(row: np.ndarray) -> bool:
    """Whether a solve's report (iterations, relative residual, status) is one that the plain solver would rescue."""
    return not (row[2] == 0 or (row[2] == 3 and row[1] < STALL_ACCEPTED))


def add_sums(gradient: ParameterGradient, p: Parameters, sums: np.ndarray, lame_sums: np.ndarray) -> None:
    """Hand the stepper's sums (13,) and (regions, 2) on to the parameters they belong to."""
    gradient.stiffness_damping_s += float(sums[0])
    gradient.mass_damping_per_s += float(sums[1])
    gradient.gravity_m_s2 += sums[2:5]
    gradient.density_kg_m3 += float(sums[5] + sums[2:5] @ p.gravity_m_s2) / p.density_kg_m3
    gradient.plane_normal += sums[6:9]
    gradient.plane_offset_m += float(sums[9])
    gradient.poissons_ratio -= float(lame_sums.sum(axis=0) @ lame_slope(p.poissons_ratio))
    gradient.youngs_modulus_pa -= lame_sums @ np.array(lame(p.poissons_ratio)) / p.youngs_modulus_pa


def with_parameters(simulation: StartedSimulation, parameters: Parameters) -> StartedSimulation:
    """A simulation of the same model with other parameters, sharing the body's arrays."""
    s, b, body = copy.copy(simulation), simulation.backend, simulation.model.body
    dtype = s.model.dtype
    s.parameters, s._first = parameters, None
    s.lam, s.mu = lame(parameters.poissons_ratio)
    s.young = b.to_device(parameters.youngs_modulus_pa[body.cell_region], dtype)
    s.mass = b.to_device(parameters.density_kg_m3 * body.node_volume_m3, dtype)
    external = parameters.density_kg_m3 * body.node_volume_m3[:, None] * parameters.gravity_m_s2
    s.external = b.to_device(external + s.model.load_n if len(s.model.load_n) else external, dtype)
    s.normal = b.to_device(parameters.plane_normal)
    s.start = initial_displacement(body, parameters)
    return s


def _add(bar: tuple, more: tuple | None) -> None:
    for total, part in zip(bar, more or ()):
        if part is not None:
            total += part


def _material(p: Parameters) -> np.ndarray:
    """A row of the stepper's materials."""
    damping = (p.mass_damping_per_s, p.stiffness_damping_s)
    plane = (*p.plane_normal, p.plane_offset_m)
    return np.array([*lame(p.poissons_ratio), p.density_kg_m3, *damping, *p.gravity_m_s2, *plane, *p.youngs_modulus_pa])


def _body_arrays(s: Simulation) -> dict[str, Array]:
    """The stepper's arrays, most of which the simulation has on the device already."""
    body, to_device = s.model.body, s.backend.to_device
    held = np.full(body.node_count, -1, np.int32)
    for r, (nodes, _) in enumerate(s.model.dirichlet.held):
        held[nodes] = r
    load = s.model.load_n if len(s.model.load_n) else np.zeros((body.node_count, 3))
    own = ("cell_nodes", "node_cells", "gradient_index", "table", "position", "free", "slot", "row_start", "column")
    return {
        **{name: getattr(s, name) for name in own},
        **s.surface,
        "cell_region": to_device(body.cell_region),
        "volume": to_device(body.node_volume_m3),
        "load": to_device(load),
        "held": to_device(held),
    }
