"""A step as the minimum of its potential, for laws that a single linear solve does not carry far enough.

The step's balance g(Δu) = 0 is the slope of

    Φ(Δu) = ½ ΔuᵀA Δu - rᵀΔu + Σ potentials,

A and r from the terms that are linear in Δu, potentials from the curved ones. Newton's method with a line search on Φ:
each round solves A δ = g by conjugate gradients, no further than it is worth, and goes along δ as far as Φ falls.
A round that brought g down well keeps its matrix for the next one. Where the matrix turns out indefinite, or no step
along δ helps, the cells' blocks are made definite; derivatives never see those.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.backends.loops import BREAKDOWN, CONVERGED
from soft_estimator.physics.solver import LinearSystem, SolverSettings, by_blocks, solve
from soft_estimator.physics.state import State
from soft_estimator.physics.terms.interface import Assembly, Stage

if TYPE_CHECKING:
    from soft_estimator.physics.step import Simulation

MOST_ROUNDS = 60  # of a step, by default
FORCING = 0.03  # part of a round's imbalance that its solve may leave: more is lost again to what is not linear
KEPT_WHILE = 0.1  # a round that leaves less than this part of the imbalance hands its matrix on
SUFFICIENT = 1e-4  # part of the fall that the slope at the start of a line search promises
SHORTEST = 1e-6  # step along a direction; below, the direction is given up
# Rounding keeps the imbalance from falling below this part of the step's forces; what rests there has converged.
ROUNDING = {np.dtype(np.float64): 1e-11, np.dtype(np.float32): 1e-4}
_NOISE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}  # of Φ, relative to its parts


@dataclass(frozen=True, eq=False)
class Trial:
    """An increment Δu (N, 3), the terms there, the imbalance g [N], (N, 3), and Φ [J].

    size: of g on the free nodes [N]. forces: sum of the sizes of its parts, which may cancel [N]. scale_j: sum of the
    sizes of Φ's parts, which its rounding goes with.
    """

    increment: Array
    stage: Stage
    at: tuple[Any, ...]
    imbalance: Array
    size: float
    forces: float
    potential_j: float
    scale_j: float


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where a step's rounds ended.

    Attributes:
        trial: the increment. system: the last matrix. iterations: of conjugate gradients, in all. rounds: linear
        solves. assemblies: matrices. relative_imbalance: of the step's forces. rescued: a direct solve had to step in.
        converged: whether the balance holds to the solver's tolerance. seconds: of the parts.
    """

    trial: Trial
    system: LinearSystem
    iterations: int
    rounds: int
    assemblies: int
    relative_imbalance: float
    rescued: bool
    converged: bool
    seconds: dict[str, float]


class StepPotential:
    """Φ of one step and its slope."""

    def __init__(self, simulation: Simulation, state: State, guess: Array) -> None:
        self.simulation, self.state, s = simulation, state, simulation
        stage = self.stage(guess)
        self.linear, self.force = Assembly(s.device), s.xp.zeros_like(s.device.zero)
        for term, prepared in zip(s.terms, s.prepare(stage)):
            if not term.curved:
                term.add_blocks(stage, prepared, self.linear)
                term.add_force(stage, prepared, self.force)

    def stage(self, increment: Array, definite: bool = False) -> Stage:
        s = self.simulation
        return Stage(
            s.device, s.model.integrator, self.state, increment, all_implicit=True, definite=definite, iterated=True,
            minimised=True,
        )  # fmt: skip

    def at(self, increment: Array) -> Trial:
        s, d = self.simulation, self.simulation.device
        stage = self.stage(increment)
        prepared = s.prepare(stage)
        pulled = self.linear.times(increment)
        imbalance, shares, potentials = self.force - pulled, [self.force, pulled], []
        for term, at in zip(s.terms, prepared):
            if term.curved:
                shares.append(s.xp.zeros_like(imbalance))
                term.add_residual(stage, at, shares[-1])
                imbalance = imbalance + shares[-1]
                potentials.append((term.potential_j(stage, at), None))
        on_free = imbalance * d.free[:, None]
        squares = [(x, x) for x in (on_free, *shares)]
        # All numbers in one go: where they come from another device, each journey is as long as a kernel.
        work, lost, *found = s.backend.sums([(increment, pulled), (self.force, increment), *squares, *potentials])
        size, *sizes = np.sqrt(found[: len(squares)]).tolist()
        parts = [0.5 * work, -lost, *found[len(squares) :]]
        return Trial(increment, stage, prepared, imbalance, size, sum(sizes), sum(parts), sum(map(abs, parts)))

    def system(self, trial: Trial, definite: bool) -> LinearSystem:
        """The second derivative of Φ."""
        s, assembly = self.simulation, self.linear.copy()
        stage = self.stage(trial.increment, definite)
        for term, prepared in zip(s.terms, trial.at):
            if term.curved:
                term.add_blocks(stage, prepared, assembly)
        return s.system_of(assembly)


def minimise_step(simulation: Simulation, state: State) -> Minimum:
    """Newton's rounds from where the last motion leads, or from half-way there or none of it where that lies lower."""
    guess = _prescribed(simulation, state, simulation.guess(state).copy())
    potential = StepPotential(simulation, state, guess)
    trial = potential.at(guess)
    on_free = guess * simulation.device.free[:, None]
    for share in (0.5, 0.0):  # what lands or comes to a stop does not go on as it moved
        if simulation.backend.sums([(trial.imbalance, on_free)])[0] >= 0.0:
            break
        shorter = potential.at(_prescribed(simulation, state, share * guess))
        if not shorter.potential_j < trial.potential_j and np.isfinite(trial.potential_j):
            break
        trial = shorter
    return Rounds(potential, trial).run()


def _prescribed(simulation: Simulation, state: State, increment: Array) -> Array:
    """An increment (N, 3) whose held nodes move as they must; in place."""
    simulation.prescribe_increment(state, state.time_s + simulation.model.integrator.step_s, increment)
    return increment


class Rounds:
    """The rounds of one step."""

    def __init__(self, potential: StepPotential, trial: Trial) -> None:
        self.potential, self.trial, s = potential, trial, potential.simulation
        self.simulation, self.settings, self.backend = s, s.model.solver, s.backend
        self.seconds = dict.fromkeys(("rotations", "assembly", "forces", "solve"), 0.0)
        self.iterations = self.rounds = self.assemblies = 0
        self.rescued = self.definite = self.stuck = False
        self._assemble(definite=False)
        self.reference = max(trial.forces, 1e-300)
        self.rounding = self._rounding()

    def _rounding(self) -> float:
        """Imbalance [N] that the rounding of displacements makes: a body at rest far from the origin has no other."""
        d, u = self.simulation.device, self.potential.state.u
        stiff = self.system.blocks[d.slot[:, 13]][:, ::4]
        made = stiff * (abs(u) + d.spacing_m)
        return float(np.finfo(u.dtype).eps) * float(np.sqrt(self.backend.sums([(made, made)])[0]))

    def _assemble(self, definite: bool) -> None:
        clock = perf_counter()
        self.system, self.definite, self.fresh = self.potential.system(self.trial, definite), definite, True
        self.assemblies += 1
        self.seconds["assembly"] += perf_counter() - clock

    def run(self) -> Minimum:
        limit = max(self.settings.relative_tolerance * self.reference, self.rounding)
        while self.trial.size > limit and self.rounds < self.settings.rounds:
            if not self.advance(limit):
                break
        # Where Φ falls along no direction any more, rounding is all that is left.
        done = self.trial.size <= limit or (self.stuck and self._at_rounding(self.trial.size))
        relative = self.trial.size / self.reference
        return Minimum(
            self.trial, self.system, self.iterations, self.rounds, self.assemblies, relative, self.rescued, done,
            self.seconds,
        )  # fmt: skip

    def advance(self, limit: float) -> bool:
        """One round towards an imbalance below the limit [N], and the next one's matrix; False where none is left."""
        before = self.trial.size
        if self._round(limit):
            if self.trial.size > KEPT_WHILE * before and self.trial.size > limit:
                self._assemble(definite=False)
            return True
        # A matrix too old or too indefinite to point downhill is made anew, then definite.
        self.stuck = (self.fresh and self.definite) or self._at_rounding(before)
        if not self.stuck:
            self._assemble(definite=self.fresh)
        return not self.stuck

    def _at_rounding(self, size: float) -> bool:
        """Whether rounding may be all there is to an imbalance [N]."""
        return size <= max(ROUNDING[np.dtype(self.simulation.model.dtype)] * self.reference, 10 * self.rounding)

    def _round(self, limit: float) -> bool:
        """One solve and one line search; whether it went anywhere."""
        self.rounds += 1
        clock, left = perf_counter(), 0.5 * limit / self.trial.size
        direction = self._solve(min(FORCING, left) if left > 0.1 * FORCING else FORCING)
        now = perf_counter()
        self.seconds["solve"] += now - clock
        found = None if direction is None else self._search(direction)
        self.seconds["forces"] += perf_counter() - now
        if found is None:
            return False
        self.trial, self.fresh = found, False
        return True

    def _solve(self, tolerance: float) -> Array | None:
        """A δ = g, as far as the matrix proves definite; None where that is nowhere, and it can still be made so."""
        s, x = self.system, self.simulation.xp.zeros_like(self.trial.increment)
        most = self.settings.max_iterations
        iterations, _, status = by_blocks(self.backend, s, self.trial.imbalance, x, (tolerance, most))
        self.iterations += int(iterations)
        if status == CONVERGED:
            return x
        if status == BREAKDOWN and not self.definite:
            return x if iterations > 0 else None  # what was reached along directions of positive curvature falls, too
        x[...] = 0
        report = solve(self.backend, s, self.trial.imbalance, x, SolverSettings(tolerance, most))
        self.rescued |= report.rescued
        return x

    def _search(self, direction: Array) -> Trial | None:
        """The furthest of ever shorter steps that Φ falls along enough; None where there is none."""
        start, slope = self.trial, self._along(self.trial, direction)
        noise = _NOISE[np.dtype(self.simulation.model.dtype)] * start.scale_j
        if not slope > 0.0:
            return None
        length = 1.0
        while length >= SHORTEST:
            with np.errstate(over="ignore", invalid="ignore"):
                way = direction if length == 1.0 else length * direction
                tried = self.potential.at(start.increment + way)
                fall = start.potential_j - tried.potential_j
            # Where rounding hides the fall of Φ its slope must have come closer to zero.
            enough = np.isfinite(fall) and fall >= SUFFICIENT * length * slope - noise
            if enough and (fall > noise or abs(self._along(tried, direction)) < slope):
                return tried
            length *= _shorter(fall, length * slope)
        return None

    def _along(self, trial: Trial, direction: Array) -> float:
        """How fast Φ falls along a direction there."""
        return self.backend.sums([(trial.imbalance, direction)])[0]


def _shorter(fall: float, promised: float) -> float:
    """The minimum of the parabola through Φ and its slope at the start and Φ at the end, within 0.1-0.5 of the way."""
    if not np.isfinite(fall):
        return 0.1
    return float(np.clip(0.5 * promised / max(promised - fall, 1e-300), 0.1, 0.5))
