"""Many steps over random scenes: does anything diverge?

    python benchmark/bench_long_run.py [--steps 20000] [--seed 0] [--log out/long_run.jsonl] [--workers 1] [--json]

Every scene is drawn from its number and the seed: a shape somewhere in its grid (slivers included), stiffness 100 Pa to
10 MPa, any damping, step, integrator and hold, with or without a plane. With --log each finished scene is a line of
that file, and a later call goes on where the file ends. A scene fails when its state is not finite or its solve is
given up. Energy may not grow by itself: the gain over the start, as a part of what the scene has to give (its motion,
its fall through one size, its own weight's strain), is counted above 10 % and above 1000 %.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.shapes import Box, Capsule, Placed, Shape, Sphere, Torus, Union, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.energy import balance
from soft_estimator.physics.integrator import Integrator, hht_scheme, theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

STEPS_A_SCENE = 100
SIZE = 0.1  # m, about
SCHEMES = ("theta 0.5", "theta 0.6", "hht -0.05", "hht -0.1")


def random_shape(rng: np.random.Generator) -> tuple[str, Shape]:
    """A body of about 0.1 m, turned and shifted so that its surface cuts the cells anyhow."""
    kind = str(rng.choice(["sphere", "box", "torus", "capsule", "union"]))
    a, b = rng.uniform(0.3, 0.5) * SIZE, rng.uniform(0.12, 0.18) * SIZE
    if kind == "sphere":
        shape: Shape = Sphere(a)
    elif kind == "box":
        shape = Box(tuple(rng.uniform(0.3, 1.0, 3) * SIZE))
    elif kind == "torus":
        shape = Torus(a, b)
    elif kind == "capsule":
        shape = Capsule((-a, 0.0, 0.0), (a, 0.0, 0.0), 1.5 * b)
    else:
        shape = Union([Sphere(2 * b, (-2 * b, 0.0, 0.0)), Box((3 * b, 2 * b, 2.5 * b), (b, 0.0, 0.0))])
    return kind, Placed(shape, rotation_matrix(rng.normal(size=3)), tuple(rng.uniform(-0.01, 0.01, 3)))


def random_scheme(rng: np.random.Generator) -> tuple[str, Integrator]:
    name, step_s = str(rng.choice(SCHEMES)), float(10 ** rng.uniform(-3.0, -1.5))
    kind, value = name.split()
    return name, theta_scheme(step_s, float(value)) if kind == "theta" else hht_scheme(step_s, float(value))


def random_parameters(rng: np.random.Generator, lowest_m: float) -> Parameters:
    """Material, motion and a plane a little under the body's lowest point or a little in it."""
    damped = rng.uniform(size=2) < 0.7
    tilt = rng.normal(size=3) * 0.2
    normal = rotation_matrix(tilt) @ np.array([0.0, 1.0, 0.0])
    return Parameters(
        youngs_modulus_pa=10 ** rng.uniform(2, 7),
        poissons_ratio=rng.uniform(0.0, 0.45),
        density_kg_m3=rng.uniform(200.0, 2000.0),
        mass_damping_per_s=damped[0] * 10 ** rng.uniform(-2, 1),
        stiffness_damping_s=damped[1] * 10 ** rng.uniform(-5, -1.5),
        plane_normal=normal,
        plane_offset_m=-lowest_m + rng.uniform(-0.005, 0.02),
        velocity_m_s=rng.normal(size=3) * 0.3,
        angular_velocity_rad_s=rng.normal(size=3) * 3.0,
    )


def random_scene(seed: int, number: int) -> tuple[dict[str, Any], Simulation]:
    rng = np.random.default_rng([seed, number])
    kind, shape = random_shape(rng)
    body = build_body(sample(shape, SIZE / rng.uniform(7, 14), align="origin"))
    name, scheme = random_scheme(rng)
    low, high = body.node_position_m.min(axis=0), body.node_position_m.max(axis=0)
    hold, touch = str(rng.choice(["free", "strong", "nitsche"])), bool(rng.uniform() < 0.6)
    # the upper sixth of the body
    top = Box((1.0, (high - low)[1] / 3, 1.0), ((low + high)[0] / 2, high[1], (low + high)[2] / 2))
    law = ContactLaw(10 ** rng.uniform(4, 7), 10 ** rng.uniform(2, 4), implicit=bool(rng.uniform() < 0.7))
    parameters = random_parameters(rng, float(low[1]))
    model = build_model(
        body,
        scheme,
        fixed=[] if hold == "free" else [FixedRegion(top, hold)],
        contact=law if touch else None,
    )
    facts = {
        "number": number,
        "shape": kind,
        "nodes": body.node_count,
        "scheme": name,
        "step_s": scheme.step_s,
        "hold": hold,
        "contact": ("implicit" if law.implicit else "extrapolated") if touch else "none",
        "youngs_modulus_pa": float(parameters.youngs_modulus_pa[0]),
        "damped": bool(parameters.mass_damping_per_s > 0 or parameters.stiffness_damping_s > 0),
        "contact_stiffness_pa_per_m": law.stiffness_pa_per_m,
    }
    return facts, Simulation(model, parameters)


def run_scene(seed: int, number: int, steps: int) -> dict[str, Any]:
    """Run one scene; what happened, as a line of the log."""
    facts, simulation = random_scene(seed, number)
    state = simulation.initial_state()
    start = balance(simulation, state)
    mass, p = float(simulation.mass.sum()), simulation.parameters
    weight = mass * float(np.linalg.norm(p.gravity_m_s2))
    sag = weight**2 / (SIZE * float(p.youngs_modulus_pa[0]))
    available = start.kinetic_j + start.contact_j + weight * SIZE + sag
    record = {**facts, "steps": 0, "failure": "", "rescued": 0, "retaken": 0, "iterations": 0, "gain": 0.0}
    for _ in range(steps):
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
        record["gain"] = max(record["gain"], (balance(simulation, state).total_j - start.total_j) / available)
    return record


def read_log(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def run_all(seed: int, total: int, log: Path | None) -> list[dict[str, Any]]:
    """Scenes until their steps add up to the total, starting after those of the log."""
    records = read_log(log)
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
    done = sum(record["steps"] for record in records)
    with tqdm(total=total, initial=min(done, total), desc="steps") as bar:
        for number in range(len(records), 10**9):
            if done >= total:
                break
            record = run_scene(seed, number, min(STEPS_A_SCENE, total - done))
            records.append(record)
            # a scene that fails at its first step still counts, or the loop would not end
            done += max(record["steps"], 1)
            bar.update(record["steps"])
            if log is not None:
                with log.open("a") as file:
                    file.write(json.dumps(record) + "\n")
    return records


def run_side_by_side(seed: int, total: int, workers: int) -> list[dict[str, Any]]:
    """The same scenes over worker processes, a thread each; without a log."""
    os.environ["NUMBA_NUM_THREADS"] = "1"
    numbers = range(-(-total // STEPS_A_SCENE))
    with get_context("spawn").Pool(workers) as pool:
        runs = [pool.apply_async(run_scene, (seed, n, STEPS_A_SCENE)) for n in numbers]
        return [run.get() for run in tqdm(runs, desc="scenes")]


def counts(records: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "scenes": len(records),
        "steps": sum(r["steps"] for r in records),
        "failed": sum(bool(r["failure"]) for r in records),
        "rescued_solves": sum(r["rescued"] for r in records),
        "retaken_steps": sum(r.get("retaken", 0) for r in records),
        "gain_over_10_percent": sum(r["gain"] > 0.1 for r in records),
        "gain_over_1000_percent": sum(r["gain"] > 10.0 for r in records),
        "largest_gain": max((r["gain"] for r in records), default=0.0),
        "iterations_per_step": sum(r["iterations"] for r in records) / max(1, sum(r["steps"] for r in records)),
    }


def groups(records: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    yield "all", records
    for key in ("scheme", "contact", "hold", "shape", "damped"):
        for value in sorted({r[key] for r in records}, key=str):
            yield f"{key} {value}", [r for r in records if r[key] == value]
    for decade in range(2, 7):
        inside = [r for r in records if 10**decade <= r["youngs_modulus_pa"] < 10 ** (decade + 1)]
        yield f"E 1e{decade}-1e{decade + 1} Pa", inside


def print_table(records: list[dict[str, Any]]) -> None:
    print(
        "                         scenes   steps  failed rescued fellback gain>10% gain>1000%  largest gain  CG it/step"
    )
    for name, members in groups(records):
        c = counts(members)
        print(
            f"{name:24s} {c['scenes']:6d} {c['steps']:7d} {c['failed']:7d} {c['rescued_solves']:7d} "
            f"{c['fallback_steps']:7d} {c['gain_over_10_percent']:9d} {c['gain_over_1000_percent']:10d} "
            f"{c['largest_gain']:13.2g} {c['iterations_per_step']:11.1f}"
        )
    for record in records:
        if record["failure"] or record["gain"] > 10.0:
            told = {
                k: record[k] for k in ("number", "shape", "scheme", "step_s", "hold", "contact", "youngs_modulus_pa")
            }
            print(f"  {told} E {record['youngs_modulus_pa']:.3g} gain {record['gain']:.2g} {record['failure']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000, help="time steps in all (default 20000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="file to append each scene to and to go on from")
    parser.add_argument("--workers", type=int, default=1, help="scenes run side by side (default 1)")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    arguments = parser.parse_args()
    if arguments.workers > 1:
        records = run_side_by_side(arguments.seed, arguments.steps, arguments.workers)
    else:
        records = run_all(arguments.seed, arguments.steps, arguments.log)
    if arguments.json:
        print(json.dumps({name: counts(members) for name, members in groups(records)}, indent=1))
    else:
        print_table(records)


if __name__ == "__main__":
    main()
