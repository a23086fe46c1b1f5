"""Random scenes with obstacles, friction and tools: does anything diverge, or gain energy without being told?

    python benchmark/bench_robustness.py [--scenes 200] [--steps 100] [--seed 0] [--workers 1] [--json]

Bodies, materials and time schemes are those of `bench_long_run`; around them stand up to four solids, some rough, some
of them led into the body. A scene fails when its state is not finite or its solve is given up. Its gain is the energy
above that of the start and the work of the tools that lasts for five states, as a part of what there is: motion, a fall
through one size, the own weight's strain, that work. `simulate` flags a scene where a step fell back to backward Euler,
or that gained more than 1 % of what its motion holds.
"""

from __future__ import annotations

import argparse
import json
import os
from multiprocessing import get_context
from typing import Any

import numpy as np
from bench_long_run import SIZE, random_parameters, random_scheme, random_shape
from tqdm import tqdm

from soft_estimator.geometry.pose_path import PosePath
from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.shapes import Torus, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.energy import balance
from soft_estimator.physics.model import build_model
from soft_estimator.physics.solids import Field, HalfSpace, Round, Solid, SolidLaw
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw
from soft_estimator.studies.simulate import ENERGY_GAIN_NOTICED, lasting_gain_j

KINDS = ("half-space", "ball", "rod", "block", "field")


def random_solid(rng: np.random.Generator, kind: str) -> tuple[Solid, float]:
    """A solid of about half the body's size, and how far it reaches from its centre [m]."""
    a = rng.uniform(0.2, 0.5) * SIZE
    if kind == "half-space":
        return HalfSpace(), 0.0
    if kind == "ball":
        return Round((0.0, 0.0, 0.0), a), a
    if kind == "rod":
        return Round((0.0, 0.0, a), 0.5 * a), 1.5 * a
    if kind == "block":
        half = rng.uniform(0.3, 1.0, 3) * a
        return Round(tuple(half), 0.1 * a), float(np.linalg.norm(half)) + 0.1 * a
    return Field(sample(Torus(a, 0.4 * a), 0.1 * a, margin_cells=8)), 1.4 * a


def random_obstacle(rng: np.random.Generator, middle: np.ndarray, radius: float, duration_s: float) -> ContactLaw:
    """A solid beside or under the body, as near as 5 mm; a third of them is led into it and back."""
    solid, reach = random_solid(rng, str(rng.choice(KINDS)))
    away = rng.normal(size=3)
    away[1] = -abs(away[1]) - 0.3  # not above it: a body falls
    away /= np.linalg.norm(away)
    centre = middle + (radius + reach + rng.uniform(0.005, 0.03)) * away
    turn = rotation_matrix(rng.normal(size=3))
    if isinstance(solid, HalfSpace):
        x = np.cross(away, np.eye(3)[int(np.argmin(np.abs(away)))])
        x /= np.linalg.norm(x)
        turn = np.stack([x, np.cross(-away, x), -away], axis=1)
    path = None
    if rng.uniform() < 1 / 3:
        there = centre - rng.uniform(0.2, 0.6) * radius * away
        times = duration_s * np.array([0.0, 0.5, 1.0])
        turns = np.array([np.eye(3), rotation_matrix(0.3 * rng.normal(size=3)), np.eye(3)])
        path, centre = PosePath(times, turns, np.array([centre, there, centre])), np.zeros(3)
    return ContactLaw(
        10 ** rng.uniform(5, 7), 10 ** rng.uniform(2.5, 3.7), obstacle=SolidLaw(solid, turn, centre, path), own=True,
        friction=float(rng.uniform(0, 1)) if rng.uniform() < 0.5 else None,
    )  # fmt: skip


def random_scene(seed: int, number: int, steps: int) -> tuple[dict[str, Any], Simulation]:
    rng = np.random.default_rng([seed, number, 1])
    kind, shape = random_shape(rng)
    body = build_body(sample(shape, SIZE / rng.uniform(6, 10), align="origin"))
    name, scheme = random_scheme(rng)
    low, high = body.node_position_m.min(axis=0), body.node_position_m.max(axis=0)
    radius = float(np.linalg.norm(body.surface_positions_m() - body.centroid_m, axis=1).max())
    plane = None
    if rng.uniform() < 0.6:
        rough = float(rng.uniform(0, 1)) if rng.uniform() < 0.6 else None
        plane = ContactLaw(10 ** rng.uniform(5, 7), 10 ** rng.uniform(2.5, 3.7), friction=rough)
    parameters = random_parameters(rng, float(low[1]))
    obstacles = [
        random_obstacle(rng, body.centroid_m, radius, steps * scheme.step_s) for _ in range(int(rng.integers(0, 5)))
    ]
    law = "neo_hookean" if rng.uniform() < 0.2 else "corotated"
    model = build_model(body, scheme, contact=plane, obstacles=obstacles, material=law)
    facts = {
        "number": number, "shape": kind, "scheme": name, "step_s": scheme.step_s, "material": law,
        "plane": plane is not None, "obstacles": len(obstacles),
        "tools": sum(isinstance(o.obstacle, SolidLaw) and o.obstacle.path is not None for o in obstacles),
        "rough": sum(o.friction is not None for o in [plane, *obstacles] if o is not None),
        "youngs_modulus_pa": float(parameters.youngs_modulus_pa[0]), "size_m": float((high - low).max()),
    }  # fmt: skip
    return facts, Simulation(model, parameters)


def run_scene(seed: int, number: int, steps: int) -> dict[str, Any]:
    """Run one scene; what happened."""
    facts, simulation = random_scene(seed, number, steps)
    state = simulation.initial_state()
    start = balance(simulation, state)
    p = simulation.parameters
    weight = float(simulation.mass.sum()) * float(np.linalg.norm(p.gravity_m_s2))
    given = start.kinetic_j + start.contact_j + weight * SIZE + weight**2 / (SIZE * float(p.youngs_modulus_pa[0]))
    record = {**facts, "steps": 0, "failure": "", "rescued": 0, "retaken": 0, "iterations": 0, "gain": 0.0}
    work = done = held = 0.0
    totals = [start.total_j]
    for _ in range(steps):
        before = state
        try:
            state, report = simulation.step(state)
        except SolverError as error:
            record["failure"] = str(error)
            break
        record["steps"] += 1
        record["rescued"] += int(report.solve.rescued)
        record["retaken"] += int(report.retaken_parts > 0)
        record["iterations"] += report.solve.iterations
        if not (np.isfinite(state.u).all() and np.isfinite(state.v).all()):
            record["failure"] = "the state is not finite"
            break
        step_work = sum(term.work_j(before, state) for term in simulation.terms)
        work, done = work + step_work, done + abs(step_work)
        now = balance(simulation, state)
        totals.append(now.total_j - work)
        held = max(held, now.kinetic_j + now.elastic_j)
    most = lasting_gain_j(np.array(totals))
    record["gain"] = most / (given + done)
    record["flagged"] = bool(record["retaken"]) or most > ENERGY_GAIN_NOTICED * held
    return record


def counts(records: list[dict[str, Any]]) -> dict[str, Any]:
    quiet = [r for r in records if not r["flagged"]]
    return {
        "scenes": len(records),
        "steps": sum(r["steps"] for r in records),
        "failed": sum(bool(r["failure"]) for r in records),
        "rescued_solves": sum(r["rescued"] for r in records),
        "flagged": len(records) - len(quiet),
        "retaken_steps": sum(r["retaken"] for r in records),
        "not_flagged_gain_over_1_percent": sum(r["gain"] > 0.01 for r in quiet),
        "not_flagged_largest_gain": max((r["gain"] for r in quiet), default=0.0),
        "largest_gain": max((r["gain"] for r in records), default=0.0),
        "iterations_per_step": sum(r["iterations"] for r in records) / max(1, sum(r["steps"] for r in records)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--steps", type=int, default=100, help="of each scene (default 100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="scenes run side by side (default 1)")
    parser.add_argument("--json", action="store_true", help="print counts and scenes as JSON")
    arguments = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = "1"
    with get_context("spawn").Pool(arguments.workers) as pool:
        runs = [pool.apply_async(run_scene, (arguments.seed, n, arguments.steps)) for n in range(arguments.scenes)]
        records = [run.get() for run in tqdm(runs, desc="scenes")]
    if arguments.json:
        print(json.dumps({"counts": counts(records), "scenes": records}, indent=1))
        return
    for name, value in counts(records).items():
        print(f"{name:34s} {value:.4g}" if isinstance(value, float) else f"{name:34s} {value}")
    for r in records:
        if r["failure"] or (not r["flagged"] and r["gain"] > 0.01):
            print(f"  { ({k: v for k, v in r.items() if k not in ('rescued', 'iterations')}) }")


if __name__ == "__main__":
    main()
