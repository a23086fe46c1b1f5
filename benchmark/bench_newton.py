"""Ways to the minimum of a neo-Hookean step's potential, and what such a step costs beside a linear one.

    python benchmark/bench_newton.py [--cells 300] [--steps 8] [--backend cuda] [--only-laws]

First table: mean time of a step from the same start to the same energy, Φ within 1e-6 of the whole fall of Φ:
    newton            a new matrix every round, conjugate gradients
    newton, kept      the package's: a matrix serves as long as rounds bring the imbalance down well
    newton, factor    the same, preconditioned by a factorisation of the matrix at rest, made once (Zeng's thesis)
    l-bfgs, constant  L-BFGS around the matrix at rest, factorised once (Liu's thesis, M/Δt² + L)
    l-bfgs, jacobi    L-BFGS around its diagonal blocks
Second table: steps of both laws in the same motion, on any backend; means of those that did not fall back.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter, process_time

import numpy as np
from cell_elements import factorise
from scipy.sparse.linalg import LinearOperator, cg

from soft_estimator.backends import choose_backend
from soft_estimator.backends.interface import Backend
from soft_estimator.geometry.shapes import Box, Sphere, Torus, sample
from soft_estimator.physics import newton
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.newton import Rounds, StepPotential, Trial
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

GOAL = 1e-6  # of the fall of Φ within a step
MEMORY = 6  # pairs of L-BFGS
Solve = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Case:
    """A motion: body of about so many cells, what it does."""

    name: str
    body: Body
    parameters: Parameters
    step_s: float
    fixed: list[FixedRegion] = field(default_factory=list)
    contact: ContactLaw | None = None

    def model(self, law: str) -> Model:
        scheme = theta_scheme(self.step_s)
        return build_model(self.body, scheme, fixed=self.fixed, contact=self.contact, material=law)


def cases(cells: int) -> Iterator[Case]:
    """A beam let go, a ball that lands and a ring that spins and stretches."""
    beam = Box((0.1, 0.02, 0.02))
    held = [FixedRegion(Box((0.01, 1.0, 1.0), (-0.05, 0.0, 0.0)))]
    soft = Parameters(2e4, 0.45, 1000.0, 0.1, 1e-3)
    yield Case("beam let go", _body(beam, 4e-5, cells), soft, 0.01, held)
    landing = soft.replace(velocity_m_s=np.array([0.0, -0.8, 0.0]), plane_offset_m=0.05)
    yield Case("ball landing", _body(Sphere(0.05), 5.2e-4, cells), landing, 0.004, [], ContactLaw(1e7, 2000.0))
    nearly = soft.replace(poissons_ratio=0.49, angular_velocity_rad_s=np.array([0.0, 25.0, 4.0]))
    yield Case("ring spinning, ν .49", _body(Torus(0.06, 0.02), 4.7e-4, cells), nearly, 0.005)


def _body(shape: Box | Sphere | Torus, volume_m3: float, cells: int) -> Body:
    """On cells so large that about so many of them fill the volume."""
    return build_body(sample(shape, (volume_m3 / cells) ** (1 / 3)))


class Constant:
    """The step's matrix at rest on the free degrees of freedom: as it is, factorised, and its diagonal blocks."""

    def __init__(self, simulation: Simulation) -> None:
        state = simulation.initial_state()
        potential = StepPotential(simulation, state, simulation.device.zero)
        system = potential.system(potential.at(simulation.device.zero.copy()), definite=True)
        self.free = np.repeat(simulation.model.dirichlet.free > 0, 3)
        clock = process_time()
        solve = factorise(system.to_scipy(simulation.backend).tocsr()[self.free][:, self.free])
        self.seconds = process_time() - clock
        self._solve, self._inverse = solve, system.inverse.reshape(-1, 3, 3)

    def factor(self, x: np.ndarray) -> np.ndarray:
        out = np.zeros(x.size)
        out[self.free] = self._solve(x.ravel()[self.free])
        return out.reshape(x.shape)

    def jacobi(self, x: np.ndarray) -> np.ndarray:
        return np.einsum("nab,nb->na", self._inverse, x)


def newton_rounds(kept_while: float) -> Callable[[StepPotential, Trial, float], tuple[int, int]]:
    def run(potential: StepPotential, start: Trial, goal_j: float) -> tuple[int, int]:
        before, newton.KEPT_WHILE = newton.KEPT_WHILE, kept_while
        try:
            rounds = Rounds(potential, start)
            while rounds.trial.potential_j > goal_j and rounds.advance(0.0):
                pass
        finally:
            newton.KEPT_WHILE = before
        return rounds.rounds, rounds.iterations

    return run


class FactorRounds(Rounds):
    """Newton's rounds whose solves are preconditioned by a kept factorisation."""

    precondition: Solve

    def _solve(self, tolerance: float) -> np.ndarray | None:
        s, shape = self.simulation, self.trial.imbalance.shape
        free = np.repeat(s.model.dirichlet.free > 0, 3)
        matrix = self.system.to_scipy(s.backend).tocsr()[free][:, free]
        right = self.trial.imbalance.ravel()[free]

        def inner(x: np.ndarray) -> np.ndarray:
            full = np.zeros(free.size)
            full[free] = x
            return self.precondition(full.reshape(shape)).ravel()[free]

        count = [0]
        x, _ = cg(
            matrix, right, rtol=tolerance, maxiter=200, M=LinearOperator(matrix.shape, inner),
            callback=lambda _: count.__setitem__(0, count[0] + 1),
        )  # fmt: skip
        self.iterations += count[0]
        out = np.zeros(free.size)
        out[free] = x
        return out.reshape(shape)


def factor_rounds(solve: Solve) -> Callable[[StepPotential, Trial, float], tuple[int, int]]:
    def run(potential: StepPotential, start: Trial, goal_j: float) -> tuple[int, int]:
        rounds = FactorRounds(potential, start)
        rounds.precondition = solve
        while rounds.trial.potential_j > goal_j and rounds.advance(0.0):
            pass
        return rounds.rounds, rounds.iterations

    return run


def lbfgs(solve: Solve, most: int = 400) -> Callable[[StepPotential, Trial, float], tuple[int, int]]:
    """Two-loop recursion from `solve`, backtracking on Φ."""

    def run(potential: StepPotential, start: Trial, goal_j: float) -> tuple[int, int]:
        free = potential.simulation.device.free[:, None]
        trial = start
        moved: list[np.ndarray] = []
        turned: list[np.ndarray] = []
        for rounds in range(1, most + 1):
            if trial.potential_j <= goal_j:
                return rounds - 1, 0
            q, shares = trial.imbalance * free, []
            for s, y in zip(reversed(moved), reversed(turned)):
                shares.append(float((s * q).sum() / (s * y).sum()))
                q = q - shares[-1] * y
            direction = solve(q)
            for s, y, share in zip(moved, turned, reversed(shares)):
                direction = direction + s * (share - float((y * direction).sum() / (s * y).sum()))
            slope, length = float((trial.imbalance * direction).sum()), 1.0
            while True:
                new = potential.at(trial.increment + length * direction)
                if new.potential_j <= trial.potential_j - 1e-4 * length * slope:
                    break
                length *= 0.5
                if length < 1e-8:
                    return rounds, 0
            s, y = length * direction, (trial.imbalance - new.imbalance) * free
            if float((s * y).sum()) > 0.0:
                moved, turned = [*moved, s][-MEMORY:], [*turned, y][-MEMORY:]
            trial = new
        return most, 0

    return run


def steps_of(case: Case, steps: int) -> tuple[Simulation, list[State]]:
    simulation = Simulation(case.model("neo_hookean"), case.parameters)
    states = [simulation.initial_state()]
    for _ in range(steps):
        states.append(simulation.step(states[-1])[0])
    return simulation, states[1:]


def compare(case: Case, steps: int) -> None:
    simulation, states = steps_of(case, steps)
    constant = Constant(simulation)
    ways = {
        "newton": newton_rounds(0.0),
        "newton, kept": newton_rounds(newton.KEPT_WHILE),
        "newton, factor": factor_rounds(constant.factor),
        "l-bfgs, constant": lbfgs(constant.factor),
        "l-bfgs, jacobi": lbfgs(constant.jacobi),
    }
    print(
        f"\n{case.name}: {case.body.cell_count} cells, {len(states)} steps; factorised once in {constant.seconds:.2f} s"
    )
    print(f"  {'':18} {'ms a step':>9} {'rounds':>7} {'CG':>6}  reached")
    for name, way in ways.items():
        seconds, rounds, iterations, reached = 0.0, 0, 0, 0
        for state in states:
            guess = simulation.guess(state).copy()
            simulation.prescribe_increment(state, state.time_s + case.step_s, guess)
            potential = StepPotential(simulation, state, guess)
            start = potential.at(guess)
            exact = Rounds(potential, start).run().trial
            goal = exact.potential_j + GOAL * (start.potential_j - exact.potential_j)
            clock = process_time()
            made = way(potential, start, goal)
            seconds += process_time() - clock
            rounds, iterations, reached = rounds + made[0], iterations + made[1], reached + (made[0] < 400)
        n = len(states)
        print(
            f"  {name:18} {1e3 * seconds / n:9.1f} {rounds / n:7.1f} {iterations / n:6.1f}  {reached} of {n}",
            flush=True,
        )


def beside_linear(case: Case, steps: int, backend: Backend) -> None:
    line = f"  {case.name:22} {case.body.cell_count:6}"
    times = []
    for law in ("corotated", "neo_hookean"):
        simulation = Simulation(case.model(law), case.parameters, backend)
        state, reports = simulation.initial_state(), []
        simulation.step(state)  # what is made when first asked for
        seconds = []
        for _ in range(steps):
            backend.wait()
            clock = perf_counter()
            state, report = simulation.step(state)
            backend.wait()
            seconds.append(perf_counter() - clock)
            reports.append(report)
        # A step that is taken again is taken twice and more, in ever smaller parts; how often is said beside.
        times.append(np.mean([s for s, r in zip(seconds, reports) if not r.retaken_parts]))
        plain = [r for r in reports if not r.retaken_parts]
        rounds, its = (np.mean(x) for x in zip(*((r.rounds, r.solve.iterations) for r in plain)))
        line += f" {1e3 * times[-1]:9.1f} {rounds:7.1f} {its:6.1f} {sum(r.retaken_parts > 0 for r in reports):5}"
    print(f"{line} {times[1] / times[0]:7.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=300, help="about so many in each body")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--backend", default="cpu", help="of the second table")
    parser.add_argument("--only-laws", action="store_true", help="the second table alone")
    args = parser.parse_args()
    if not args.only_laws:
        for case in cases(args.cells):
            compare(case, args.steps)
    backend = choose_backend(args.backend)
    columns = f"{'ms a step':>9} {'rounds':>7} {'CG':>6} {'fell':>5}"
    print(f"\n  {'':22} {'cells':>6} {columns} {columns} {'times':>7}   (linear, then neo-Hookean)")
    for cells in (args.cells, 4 * args.cells):
        for case in cases(cells):
            beside_linear(case, 3 * args.steps, backend)


if __name__ == "__main__":
    main()
