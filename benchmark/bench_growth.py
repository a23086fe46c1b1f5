"""How the iterations and the time of a step on the CPU grow with a body's nodes, by block-Jacobi and by multigrid.

    python benchmark/bench_growth.py [--across 7,13,19,31] [--young 5e4] [--columns 8] [--steps 6]

A 10 cm cube held at one side and let go, 120 steps a second, solved to 1e-6: so many nodes along each edge. Iterations
and milliseconds (CPU time) are medians over the steps but the first two; the last figures are of a solve for several
right-hand sides at once with a step's matrix, to 1e-3, as changes of a motion are worked out. A star: what is chosen.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from time import process_time

import numpy as np

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics import step as stepping
from soft_estimator.physics.body import build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.multigrid import stiffness_over_inertia, worth_it
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings, solve_many
from soft_estimator.physics.step import Simulation


def cube(across: int) -> Model:
    body = build_body(sample(Box((0.1,) * 3), 0.1 / (across - 1)))
    held = [FixedRegion(Box((0.005, 0.2, 0.2), (-0.05, 0.0, 0.0)))]
    return build_model(body, theta_scheme(1 / 120), fixed=held, solver=SolverSettings(1e-6, 5000))


def measure(model: Model, young_pa: float, steps: int, columns: int, multigrid: bool) -> tuple[float, ...]:
    """Iterations and milliseconds of a step; the same of a solve for several right-hand sides."""
    stepping.worth_it = lambda blocks, slot: multigrid
    s = Simulation(model, Parameters(young_pa, 0.3, 1000.0, 0.2, 1e-3))
    state, rows = s.initial_state(), []
    for _ in range(steps):
        clock = process_time()
        state, report = s.step(state)
        rows.append((report.solve.iterations, 1e3 * (process_time() - clock)))
    system = s.linearise(state).system
    b = np.random.default_rng(0).normal(size=(model.body.node_count, 3, columns))
    b = s.device.weighed(b) * s.device.free[:, None, None]
    seconds = []
    for _ in range(2):  # the first one compiles
        fresh = s.linearise(state).system
        clock = process_time()
        many = solve_many(s.backend, fresh, b, np.zeros_like(b), replace(model.solver, relative_tolerance=1e-3))
        seconds.append(process_time() - clock)
    stepping.worth_it = worth_it
    ratio = stiffness_over_inertia(system.blocks, s.device.slot)
    return (*np.median(rows[2:], axis=0).tolist(), many.iterations, 1e3 * seconds[-1], ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--across", default="7,13,19,31", help="nodes along an edge")
    parser.add_argument("--young", type=float, default=5e4, help="Young's modulus [Pa]")
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    print(f"{CpuBackend.device_name()}; E = {args.young:g} Pa")
    print(f"{'nodes':>7s} {'':12s} {'iterations':>10s} {'step':>9s}   {args.columns} columns, 1e-3   chosen")
    for across in map(int, args.across.split(",")):
        model = cube(across)
        for multigrid in (False, True):
            found = measure(model, args.young, args.steps, args.columns, multigrid)
            s = Simulation(model, Parameters(args.young, 0.3, 1000.0, 0.2, 1e-3))
            chosen = s.linearise(s.initial_state()).system.multigrid is not None
            print(
                f"{model.body.node_count:7d} {'multigrid' if multigrid else 'block-Jacobi':12s} {found[0]:10.0f} "
                f"{found[1]:6.1f} ms   {found[2]:4.0f} {found[3]:7.1f} ms   "
                f"{'*' if chosen == multigrid else ' '} ratio {found[4]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
