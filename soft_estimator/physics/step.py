"""One time step, forward (METHOD §3-§5): a loop over the model's terms, with no law of its own.

By default a step is one linear solve, its terms made linear where the last motion leads. With `SolverSettings.rounds`
above one they are made linear again at the solution, Newton's way, until it no longer changes. A model with a law that
asks for it (`Term.minimised`) takes its steps by `newton`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.backends.interface import Array, Backend
from soft_estimator.physics.band import BandFactor
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.energy import drift_directions
from soft_estimator.physics.guard import guarded_step
from soft_estimator.physics.integrator import ACCELERATION, FORCE_BALANCE, fallback_scheme
from soft_estimator.physics.joint_block import TiedBlock
from soft_estimator.physics.model import Model
from soft_estimator.physics.multigrid import Multigrid, worth_it
from soft_estimator.physics.newton import minimise_step
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.pressure import PressurePreconditioner
from soft_estimator.physics.solver import LinearSystem, SolveReport, SolverSettings, solve, solve_many
from soft_estimator.physics.start import initial_displacement, initial_velocity
from soft_estimator.physics.state import State
from soft_estimator.physics.terms.inertia import Inertia
from soft_estimator.physics.terms.interface import Assembly, Stage, Term


@dataclass(frozen=True)
class Linearisation:
    """A step's system: where its terms were made linear, its matrix, and the seconds each part took.

    Attributes:
        at: what each term prepared, in the order of the simulation's terms.
    """

    stage: Stage
    at: tuple[Any, ...]
    system: LinearSystem
    seconds: dict[str, float]


@dataclass(frozen=True)
class StepReport:
    """How a step's solve went, the seconds of its parts, and whether the backward-Euler fallback had to take it.

    retaken_parts: in how many parts a step that could not be trusted was taken again, 0 where it could.
    work_j: what the regions that move strongly held nodes put into the body [J]. rounds: Newton rounds it took.
    converged: whether they came to rest.
    """

    solve: SolveReport
    seconds: dict[str, float]
    fell_back: bool = False
    work_j: float = 0.0
    rounds: int = 1
    converged: bool = True
    retaken_parts: int = 0


Any_simulation = TypeVar("Any_simulation", bound="Simulation")


class Simulation:
    """A model with parameters on a backend: `initial_state()`, then `step(state)` again and again.

    Attributes:
        parameters: complete, with the laws' own values where none were given. device: the body's arrays.
        terms: the model's laws, bound. start: initial displacement (N, 3) [m], on the host.
        all_implicit: nothing is extrapolated in time.
    """

    def __init__(self, model: Model, parameters: Parameters, backend: Backend | None = None) -> None:
        self.backend = backend or CpuBackend()
        self.model = model = model if self.backend.single_precision else model.in_double()
        self.xp = self.backend.xp
        self.device = DeviceBody(model.body, model.dirichlet.free, self.backend, model.dtype)
        self._bind(parameters)
        self.all_implicit = self.minimises

    def _bind(self, parameters: Parameters) -> None:
        regions = int(self.model.body.cell_region.max()) + 1
        if parameters.regions != regions:
            raise ValueError(
                f"youngs_modulus_pa holds {parameters.regions} value(s) for {regions} material region(s); "
                "give one for each"
            )
        self.parameters = self.model.complete(parameters)
        self.start = initial_displacement(self.model.body, self.parameters, self.model.modes)
        self._terms: tuple[Term[Any], ...] | None = None
        self._known: Any = None  # the last state and what it holds, see `guard`
        self._drifts: np.ndarray | None = None
        self._weights: tuple[np.ndarray, float, np.ndarray] | None = None
        self._rest: State | None = None

    @property
    def terms(self) -> tuple[Term[Any], ...]:
        """The laws bound when they are first asked for: a backend that runs whole steps seldom asks."""
        if self._terms is None:
            laws = self.model.laws
            self._terms = tuple(law.bind(self.device, self.parameters, self.start) for law in laws)
        return self._terms

    @property
    def drifts(self) -> np.ndarray:
        """Directions (k, 3) in which nothing resists the body's mean motion; worked out once."""
        if self._drifts is None:
            self._drifts = drift_directions(self)
        return self._drifts

    @property
    def weights(self) -> tuple[np.ndarray, float, np.ndarray]:
        """Masses of the nodes [kg], (N,), their sum, and their first moment at rest [kg m], (3,), on the host."""
        if self._weights is None:
            body = self.model.body
            mass = self.parameters.density_kg_m3 * body.node_volume_m3
            self._weights = mass, float(mass.sum()), mass @ body.node_position_m
        return self._weights

    @property
    def minimises(self) -> bool:
        """Whether steps are minima of a potential, found by Newton's method."""
        return any(term.minimised for term in self.terms)

    def one_solve(self, lin: Linearisation) -> bool:
        """Whether a derivative of the step is one solve with its matrix, not rounds of them."""
        whole = all(term.whole_slope(lin.stage, at) for term, at in zip(self.terms, lin.at))
        return self.model.solver.rounds == 1 or (self.minimises and whole)

    def with_parameters(self: Any_simulation, parameters: Parameters) -> Any_simulation:
        """The same model with other parameters, on the same arrays of the body."""
        other = copy(self)
        other._bind(parameters)
        return other

    def term(self, kind: type[Term[Any]]) -> Any:
        """The simulation's first term of a kind."""
        return next(term for term in self.terms if isinstance(term, kind))

    @property
    def mass(self) -> Array:
        """Masses of the nodes [kg], (N,): sums of the mass matrix' rows."""
        return self.term(Inertia).mass

    def initial_state(self) -> State:
        """Where a motion starts: the body in its initial pose and motion, undeformed; or at rest under its loads."""
        if not self.model.rests:
            return self.posed_state()
        if self._rest is None:
            from soft_estimator.physics.statics import state_of_rest  # which asks for steps' systems itself

            self._rest = state_of_rest(self)
        return self._rest

    def posed_state(self) -> State:
        """The body in its initial pose and motion, undeformed but for its modes."""
        moved = initial_velocity(self.model.body, self.parameters, self.start, self.model.modes)
        v = moved * self.model.dirichlet.free[:, None]
        u, v = self.device.up(self.start), self.device.up(v)
        a = self.initial_acceleration(u, v) if self.model.integrator.carries_acceleration else v.copy()
        return State(u, v, a, 0.0)

    def at_start(self: Any_simulation) -> Any_simulation:
        """This simulation without the terms that an undeformed body in any pose does not feel."""
        other = copy(self)
        other._terms = tuple(term for term in self.terms if not term.rests_undeformed)
        return other

    def force_balance(self, u: Array, v: Array | None = None) -> tuple[Stage, tuple[Any, ...]]:
        """All terms made linear at a displacement and a velocity, to ask for the force there instead of a step."""
        zero = self.device.zero
        state = State(u, zero if v is None else v, zero, 0.0)
        stage = Stage(self.device, FORCE_BALANCE, state, zero, all_implicit=True)
        return stage, self.prepare(stage)

    def initial_acceleration(self, u: Array, v: Array) -> Array:
        """a = M⁻¹ f - α₁ v on the free nodes; a rigid pose and motion strain nothing, so elasticity has no part."""
        start = self.at_start()
        force = start.right_hand_side(*start.force_balance(u, v))
        return self.accelerated(force) - self.parameters.mass_damping_per_s * v * self.device.free[:, None]

    def accelerated(self, force: Array) -> Array:
        """M⁻¹ f on the free nodes, zero on held ones; f (N, 3) or (N, 3, K) [N]."""
        d, assembly = self.device, Assembly(self.device)
        still = State(d.zero, d.zero, d.zero, 0.0)
        self.term(Inertia).add_blocks(Stage(d, ACCELERATION, still, d.zero), None, assembly)
        each = (-1, *[1] * (force.ndim - 1))
        out = force / self.mass.reshape(each) * d.free.reshape(each)
        # A well-conditioned matrix: a few dozen iterations to rounding, none for what accelerates all nodes alike.
        settings = SolverSettings(1e-12 if np.dtype(d.dtype) == np.float64 else 1e-6)
        (solve if force.ndim == 2 else solve_many)(self.backend, self.system_of(assembly), force, out, settings)
        return out

    def prepare(self, stage: Stage) -> tuple[Any, ...]:
        return tuple(term.prepare(stage) for term in self.terms)

    def right_hand_side(self, stage: Stage, at: tuple[Any, ...]) -> Array:
        """r of the step."""
        rhs = self.xp.zeros_like(self.device.zero)
        for term, prepared in zip(self.terms, at):
            term.add_force(stage, prepared, rhs)
        return rhs

    def guess(self, state: State) -> Array:
        """The step's increment Δu if the last motion goes on."""
        scheme = self.model.integrator
        return scheme.step_s * scheme.velocity_ahead(state.v, state.a)

    def _start_of_solve(self, state: State, guess: Array) -> Array:
        """Where conjugate gradients begin: at the guess, with what a free body gains in speed as a whole. It falls with
        0 to 3 iterations for 14 to 49, where it does not spin; as each node gains, a stiff body that rings would take
        more than from the guess."""
        by_v, by_a = self.model.integrator.gaining
        if self.model.dirichlet.held or self.model.dirichlet.weak or by_v == by_a == 0.0:
            return guess.copy()
        gain = (by_v * state.v + by_a * state.a).mean(axis=0)
        return guess + self.model.integrator.step_s * gain

    def linearise(self, state: State, guess: Array | None = None) -> Linearisation:
        """The step's matrix, its terms made linear at a guess of Δu."""
        d, clock = self.device, perf_counter()
        seconds: dict[str, float] = {}
        guess = self.guess(state) if guess is None else guess
        iterated, minimised = self.model.solver.rounds > 1, self.minimises
        stage = Stage(
            d, self.model.integrator, state, guess, self.all_implicit, iterated=iterated, minimised=minimised
        )  # fmt: skip
        _ = stage.rotations
        clock = _lap(seconds, "rotations", clock)
        at, assembly = self.prepare(stage), Assembly(d)
        for term, prepared in zip(self.terms, at):
            term.add_blocks(stage, prepared, assembly)
        system = self.system_of(assembly)
        _lap(seconds, "assembly", clock)
        return Linearisation(stage, at, system, seconds)

    def system_of(self, assembly: Assembly) -> LinearSystem:
        """The assembled matrix with its preconditioner."""
        d, blocks = self.device, assembly.finished()
        inverse = d.xp.empty((d.nodes, 9), d.dtype)
        d.backend.invert_diagonal(blocks, d.slot, d.free, inverse)
        bands = d.backend.bands
        if bands is not None and d.band.is_worth_it(blocks, d.slot):
            band = BandFactor(d.band, bands, d.row_start, d.column, blocks, d.free)
            return LinearSystem(d.row_start, d.column, blocks, inverse, d.free, band=band)
        rows, loops = assembly.dilatation, d.backend.pressures
        pressure = None if rows is None or loops is None else PressurePreconditioner(d, loops, blocks, rows)
        grids = d.backend.multigrid
        many = grids is not None and pressure is None and worth_it(blocks, d.slot)
        multigrid = Multigrid(d.hierarchy, grids, blocks) if grids is not None and many else None
        tied = None
        if assembly.rubbing is not None and pressure is None and multigrid is None:
            tied = TiedBlock.of(d, blocks, inverse, assembly.rubbing)
        return LinearSystem(d.row_start, d.column, blocks, inverse, d.free, pressure, multigrid, tied=tied)

    def step(self, state: State) -> tuple[State, StepReport]:
        """Advance by one time step."""
        after, report, _ = self.step_keeping(state)
        return after, report

    def step_keeping(self, state: State) -> tuple[State, StepReport, Linearisation]:
        """Advance by one time step, watched by `guard`, and hand out its linearisation as well."""
        return guarded_step(self, state)

    def step_once(self, state: State) -> tuple[State, StepReport, Linearisation]:
        """Advance by one time step, whatever comes of it."""
        if self.minimises:
            return self._step_by_newton(state)
        solver, guess, converged = self.model.solver, self.guess(state), self.model.solver.rounds == 1
        time_s = state.time_s + self.model.integrator.step_s
        rounds = 0
        while True:
            rounds += 1
            lin = self.linearise(state, guess)
            clock = perf_counter()
            rhs = self.right_hand_side(lin.stage, lin.at)
            increment = self._start_of_solve(state, guess) if rounds == 1 else guess.copy()
            self.prescribe_increment(state, time_s, increment)
            clock = _lap(lin.seconds, "forces", clock)
            report = solve(self.backend, lin.system, rhs, increment, solver)
            _lap(lin.seconds, "solve", clock)
            converged = converged or at_rest(increment, guess, solver.round_tolerance)
            if converged or rounds >= solver.rounds:
                break
            guess = increment
        after = replace(self.advance(state, increment, time_s), memory=self.advance_memory(lin, increment))
        work_j = self._work_of_held(state, after, lin, rhs)
        return after, StepReport(report, lin.seconds, work_j=work_j, rounds=rounds, converged=converged), lin

    def _step_by_newton(self, state: State) -> tuple[State, StepReport, Linearisation]:
        found = minimise_step(self, state)
        d, trial, system = self.device, found.trial, found.system
        after = self.advance(state, trial.increment, state.time_s + self.model.integrator.step_s)
        lin = Linearisation(trial.stage, trial.at, system, found.seconds)
        after = replace(after, memory=self.advance_memory(lin, trial.increment))
        rhs = self.xp.empty_like(trial.increment)
        self.backend.multiply(d.row_start, d.column, system.blocks, trial.increment, rhs)
        solved = SolveReport(found.iterations, found.relative_imbalance, found.rescued)
        work_j = self._work_of_held(state, after, lin, rhs + trial.imbalance)
        return after, StepReport(solved, found.seconds, False, work_j, found.rounds, found.converged), lin

    def substeps(self, state: State) -> int:
        """How many shorter steps a step from a state is cut into."""
        return max(term.substeps(state, self.model.integrator) for term in self.terms)

    def parts_of(self: Any_simulation, after: State) -> tuple[Any_simulation, int]:
        """What took the step to a state, and how often."""
        if after.fallback_parts:
            return self.fallback(after.fallback_parts), after.fallback_parts
        return (self, 1) if after.substeps == 1 else (self.in_substeps(after.substeps), after.substeps)

    def in_substeps(self: Any_simulation, count: int) -> Any_simulation:
        """This simulation with steps of a part of its own; all arrays are shared."""
        other = copy(self)
        other.model = self.model.in_parts(count)
        return other

    def advance_memory(self, lin: Linearisation, increment: Array) -> dict[str, Array]:
        """What the terms carry along themselves, after an increment Δu."""
        pairs = zip(self.terms, lin.at)
        return {term.memory: term.advance_memory(lin.stage, at, increment) for term, at in pairs if term.memory}

    def fallback(self: Any_simulation, parts: int = 1) -> Any_simulation:
        """This simulation with backward Euler over a part of its step, nothing extrapolated; all arrays are shared."""
        other = copy(self)
        other.model, other.all_implicit = self.model.with_step(fallback_scheme(self.model.integrator, parts)), True
        return other

    def with_solver(self: Any_simulation, **changed: Any) -> Any_simulation:
        """The same with other settings of the linear solver."""
        other = copy(self)
        other.model = replace(self.model, solver=replace(self.model.solver, **changed))
        return other

    def _work_of_held(self, before: State, after: State, lin: Linearisation, rhs: Array) -> float:
        """Work [J] on the strongly held nodes that move: what drags the rest along, and the change of their motion."""
        moving = [nodes for nodes, path in self.model.dirichlet.held if path.moves]
        if not moving:
            return 0.0
        d, scheme, increment = self.device, self.model.integrator, after.u - before.u
        force = self.xp.empty_like(rhs)
        self.backend.multiply(d.row_start, d.column, lin.system.blocks, increment, force)
        acceleration = scheme.c_m * increment - scheme.p_v * before.v
        if scheme.carries_acceleration:
            acceleration = acceleration - scheme.p_a * before.a
        # Held nodes do not move as the scheme would move them, so of inertia's work only what the scheme knows, that of
        # free nodes on free nodes, is in `force`; where a held node has part, its place is taken by the change of its
        # share of the kinetic energy: that of all nodes less that of the free ones alone.
        held = self.xp.zeros_like(d.free)
        for nodes in moving:
            held[nodes] = 1.0
        others, weigh = 1.0 - held[:, None], self.term(Inertia).times_mass
        work = (force - rhs - weigh(acceleration)) * increment - acceleration * weigh(others * increment)
        for v, sign in ((after.v, 0.5), (before.v, -0.5)):
            work += sign * v * (weigh(v) + weigh(others * v))
        return float((held[:, None] * work).sum())

    def prescribe_increment(self, state: State, time_s: float, increment: Array) -> None:
        """Set Δu of the held nodes to what their path asks for."""
        for nodes, path in self.model.dirichlet.held:
            if not path.moves:
                increment[nodes] = 0.0
        if any(path.moves for _, path in self.model.dirichlet.held):
            u = self.device.host(state.u)
            target = u.copy()
            self.model.dirichlet.prescribe(self.model.body, self.start, time_s, target)
            for nodes, path in self.model.dirichlet.held:
                if path.moves:
                    increment[nodes] = self.device.up((target - u)[nodes])

    def advance(self, state: State, increment: Array, time_s: float) -> State:
        """The state after an increment Δu."""
        held = (nodes for nodes, _ in self.model.dirichlet.held)
        v, a = self.model.integrator.advanced(increment, state.v, state.a, held)
        return State(state.u + increment, v, a, time_s)


def at_rest(now: Array, before: Array, tolerance: float) -> bool:
    """Whether a Newton round, or one of its derivatives', changed nothing beyond a part of the largest number."""
    change, size = np.abs(now - before).max(), np.abs(now).max()
    return float(change) <= tolerance * max(float(size), 1e-300)


def _lap(seconds: dict[str, float], part: str, since: float) -> float:
    now = perf_counter()
    seconds[part] = seconds.get(part, 0.0) + now - since
    return now
