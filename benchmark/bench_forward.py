"""What a time step costs: growth with the body, stages, memory, a plain SciPy implementation, the memory bus.

    python benchmark/bench_forward.py [--quick] [--json]

Four tables: the cuboid of Weiss' thesis (section 4.6) beside the times of its Table B.5; the ratio to
plain SciPy on a torus of about 9 000 nodes; peak memory at 100 000 nodes; and what the step waits for. The thesis gives
neither material, nor step, nor held region, so the two machines' times and iterations stand side by side as orders of
magnitude, not as a race.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

# OpenBLAS starts threads for dot products of more than 10 000 numbers; on a busy machine their waiting made
# scipy.sparse.linalg.cg ten times slower and the ratio to it far too kind to us. One thread is the faster baseline.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parent))

from memory_bound import bandwidth_report, memory_in_fresh_process
from plain_scipy import PlainSimulation

from soft_estimator.geometry.shapes import Box, Torus, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation

STAGES = ("rotations", "assembly", "forces", "solve")
STEPS = 30
# Table B.5 of Weiss' thesis (GTX 1060): resolution → nodes, cells, CG iterations, ms of assembly + collision + CG.
TABLE_B5 = {
    5: (675, 448, 42, 9.66),
    6: (1309, 960, 50, 12.83),
    7: (1729, 1296, 58, 16.17),
    8: (3105, 2464, 64, 19.58),
    9: (3825, 3072, 74, 24.23),
    10: (4131, 3328, 84, 29.88),
    11: (6479, 5400, 90, 40.36),
    12: (7623, 6400, 101, 49.22),
    13: (10465, 8976, 111, 75.64),
    14: (12025, 10368, 123, 93.33),
    15: (13325, 11520, 126, 106.64),
    16: (17415, 15288, 132, 148.41),
    17: (19575, 17248, 150, 177.92),
    18: (25823, 23040, 148, 222.50),
    19: (28611, 25600, 162, 270.57),
    20: (29733, 26624, 167, 292.01),
}


def cuboid(resolution: float) -> tuple[Model, Parameters]:
    """The cuboid clamped at one end face; material, step and clamp are ours (the scene `cuboid` has the same)."""
    body = build_body(sample(Box((1.29, 0.4, 0.8), (0.0, 1.0, 0.0)), 0.5 / resolution, align="origin"))
    clamp = Box((0.056, 0.6, 1.0), (-0.672, 1.0, 0.0))
    model = build_model(body, theta_scheme(0.01), fixed=[FixedRegion(clamp, "nitsche")])
    return model, Parameters(1e6, 0.3, 1000.0)


def torus(spacing_m: float) -> tuple[Model, Parameters]:
    """A torus held at its top, swinging."""
    body = build_body(sample(Torus(0.05, 0.02), spacing_m))
    held = FixedRegion(Box((0.06, 0.02, 0.06), (0.0, 0.07, 0.0)), "nitsche")
    return build_model(body, theta_scheme(0.01), fixed=[held]), Parameters(2000.0, 0.3, 1000.0, 0.1, 0.01)


def timed_run(model: Model, parameters: Parameters, steps: int) -> dict[str, Any]:
    """Mean seconds of a step and of its stages, CG iterations, after one step to warm up."""
    simulation = Simulation(model, parameters)
    state = simulation.initial_state()
    simulation.step(state)
    iterations, seconds, rescued = [], dict.fromkeys(STAGES, 0.0), 0
    begin = perf_counter()
    for _ in range(steps):
        state, report = simulation.step(state)
        iterations.append(report.solve.iterations)
        rescued += report.solve.rescued
        for stage, value in report.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + value
    total = perf_counter() - begin
    return {
        "nodes": model.body.node_count,
        "cells": model.body.cell_count,
        "blocks_per_row": len(model.body.column) / model.body.node_count,
        "iterations": float(np.mean(iterations)),
        "step_s": total / steps,
        "stages_s": {stage: value / steps for stage, value in seconds.items()},
        "rescued": rescued,
        "finite": bool(np.isfinite(state.u).all()),
    }


def growth_exponent(rows: list[dict[str, Any]], value: str) -> float:
    """Slope of log value over log nodes, from the bodies of 3000 nodes on (small ones stay in cache)."""
    large = [row for row in rows if row["nodes"] >= 3000]
    chosen = large if len(large) >= 3 else rows
    log_nodes, log_value = (np.log([row[key] for row in chosen]) for key in ("nodes", value))
    return float(np.polyfit(log_nodes, log_value, 1)[0])


def cuboid_table(quick: bool) -> dict[str, Any]:
    rows = []
    for resolution in tqdm((5, 8, 10, 12) if quick else TABLE_B5, desc="cuboid", leave=False):
        model, parameters = cuboid(resolution)
        rows.append({"resolution": resolution, **timed_run(model, parameters, STEPS)})
    return {
        "rows": rows,
        "step_exponent": growth_exponent(rows, "step_s"),
        "iteration_exponent": growth_exponent(rows, "iterations"),
    }


def against_scipy(quick: bool) -> dict[str, Any]:
    """The same steps by both, in turns, so that both meet the same load; their displacements must agree."""
    model, parameters = torus(0.0075 if quick else 0.0041)
    steps = 5 if quick else 10
    simulation = Simulation(model, parameters)
    simulation.step(simulation.initial_state())
    out: dict[str, Any] = {"nodes": model.body.node_count, "plain": {}}
    for preconditioner in ("jacobi", "block-jacobi"):
        plain = PlainSimulation(model, parameters, preconditioner)
        state = simulation.initial_state()
        u, v, mean, gap = state.u, state.v, state.v, 0.0
        ours, theirs, iterations = [], [], []
        for _ in tqdm(range(steps), desc=f"plain SciPy, {preconditioner}", leave=False):
            time_s, clock = state.time_s, (perf_counter(), process_time())
            state, report = simulation.step(state)
            between = (perf_counter(), process_time())
            step = plain.step(u, v, mean, time_s)
            end = (perf_counter(), process_time())
            u, v, mean = step.u, step.v, step.mean
            ours.append(np.subtract(between, clock))
            theirs.append(np.subtract(end, between))
            iterations.append((report.solve.iterations, step.iterations))
            gap = max(gap, float(np.abs(u - state.u).max() / np.abs(state.u).max()))
        (our_wall, our_cpu), (wall, cpu) = np.median(ours, axis=0), np.median(theirs, axis=0)
        our_iterations, their_iterations = np.mean(iterations, axis=0)
        out["plain"][preconditioner] = {
            "ours": {"step_s": our_wall, "cpu_s": our_cpu, "iterations": our_iterations},
            "theirs": {"step_s": wall, "cpu_s": cpu, "iterations": their_iterations, "stages_s": step.seconds},
            "largest_difference": gap,
            "ratio": wall / our_wall,
            "ratio_of_fastest_steps": float(np.min(theirs, axis=0)[0] / np.min(ours, axis=0)[0]),
        }
    return out


def resolution_for(nodes: int) -> float:
    """Resolution of the cuboid that comes nearest to a number of nodes."""
    volume = 1.29 * 0.4 * 0.8
    return 0.5 * (0.87 * nodes / volume) ** (1 / 3)


def bound_tables(quick: bool) -> dict[str, Any]:
    nodes = 20_000 if quick else 100_000
    memory = memory_in_fresh_process(Path(__file__), resolution_for(nodes))
    model, parameters = cuboid(resolution_for(nodes))
    return {"memory": memory, "bandwidth": bandwidth_report(Simulation(model, parameters), quick)}


def print_cuboid(table: dict[str, Any]) -> None:
    print("\nCuboid of Weiss' thesis, 30 steps (B.5: GTX 1060, assembly + collision + CG; its material is not given)")
    print("  r   nodes  cells | CG it  ms/step  rotations assembly forces  solve | B.5: nodes CG it ms/step")
    for row in table["rows"]:
        nodes, _, iterations, milliseconds = TABLE_B5[row["resolution"]]
        stages = [1e3 * row["stages_s"][stage] for stage in STAGES]
        print(
            f" {row['resolution']:2d}  {row['nodes']:6d} {row['cells']:6d} | {row['iterations']:5.0f} "
            f"{1e3 * row['step_s']:8.2f}  {stages[0]:8.2f} {stages[1]:8.2f} {stages[2]:6.2f} {stages[3]:6.2f} | "
            f"{nodes:10d} {iterations:5d} {milliseconds:7.1f}"
        )
    print(f"time of a step grows with nodes^{table['step_exponent']:.2f}, ", end="")
    print(f"CG iterations with nodes^{table['iteration_exponent']:.2f}")


def print_scipy(table: dict[str, Any]) -> None:
    print(f"\nOne step of a torus of {table['nodes']} nodes, beside plain SciPy (CSR, cg, same tolerance and guess)")
    print("median of                CG it  ms/step  CPU ms | ratio, of fastest steps | largest difference of u")
    for name, row in table["plain"].items():
        for who, values in (("soft_estimator", row["ours"]), (f"SciPy, {name}", row["theirs"])):
            print(
                f"  {who:22s} {values['iterations']:5.0f} {1e3 * values['step_s']:8.1f} {1e3 * values['cpu_s']:7.1f}",
                end="\n" if who == "soft_estimator" else "",
            )
        print(f" | {row['ratio']:5.1f} {row['ratio_of_fastest_steps']:18.1f} | {row['largest_difference']:.1e}")


def print_bounds(tables: dict[str, Any]) -> None:
    memory, bus = tables["memory"], tables["bandwidth"]
    print(f"\nMemory of a fresh process at {memory['nodes']} nodes: building the body and {memory['steps']} steps")
    print(
        f"  peak {memory['peak_bytes'] / 1e9:.2f} GB, of it {memory['base_bytes'] / 1e9:.2f} GB for Python and its "
        f"libraries: {memory['bytes_per_node']:.0f} bytes a node"
    )
    print(f"\nWhat bounds a step ({bus['nodes']} nodes)")
    print(f"  memory bus (triad a = b + s c)      {bus['triad_bytes_per_s'] / 1e9:6.1f} GB/s")
    print(
        f"  matrix times vector                 {bus['spmv_bytes_per_s'] / 1e9:6.1f} GB/s  "
        f"({bus['spmv_bytes'] / 1e6:.0f} MB in {1e3 * bus['spmv_s']:.2f} ms, {100 * bus['spmv_fraction']:.0f} % of it)"
    )
    print(
        f"  one CG iteration                    {bus['cg_bytes_per_s'] / 1e9:6.1f} GB/s  "
        f"({bus['cg_bytes'] / 1e6:.0f} MB in {1e3 * bus['cg_s']:.2f} ms, {100 * bus['cg_fraction']:.0f} % of it)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small bodies only, under a minute")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--memory-of", type=float, metavar="RESOLUTION", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of is not None:
        from memory_bound import measure_memory

        print(json.dumps(measure_memory(cuboid, arguments.memory_of)))
        return
    result = {
        "cuboid": cuboid_table(arguments.quick),
        "scipy": against_scipy(arguments.quick),
        **bound_tables(arguments.quick),
    }
    if arguments.json:
        print(json.dumps(result, indent=1, default=float))
        return
    print_cuboid(result["cuboid"])
    print_scipy(result["scipy"])
    print_bounds(result)


if __name__ == "__main__":
    main()
