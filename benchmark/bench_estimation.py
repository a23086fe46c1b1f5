"""Estimation beside Weiss' thesis (docs/figures.md): its scenes, its starts, its errors, and ours.

    python benchmark/bench_estimation.py --data DATA_FOLDER            # everything; --only torus,noise,... for a part
    python benchmark/bench_estimation.py --only coverage --trials 50 --workers 16

The parts: torus (10 cameras, exact), noisy (one depth camera, two starts), damping, bunny, dragon, noise (error
against noise), starts (20 random starts), coverage (does the 95 % interval hold the truth), other (frames from
another model), cost (gradient against forward run).
"""

from __future__ import annotations

import argparse
import json
import tracemalloc
from pathlib import Path
from time import perf_counter

import numpy as np
from estimation_cases import Case, bunny, dragon, torus
from estimation_trials import run_coverage, run_noise, run_starts

from soft_estimator.backends import choose_backend
from soft_estimator.camera.depth_sensor import DepthNoise
from soft_estimator.estimation.fitting.answer import solve
from soft_estimator.estimation.fitting.least_squares import Fit
from soft_estimator.estimation.fitting.uncertainty import Posterior
from soft_estimator.estimation.problem import Problem
from soft_estimator.physics.integrator import hht_scheme

E_AND_NU = ["youngs_modulus_pa", "poissons_ratio"]


def solved(problem: Problem) -> tuple[Fit, Posterior, float]:
    """Fit from the problem's own guess, with its posterior and the seconds it took."""
    clock = perf_counter()
    found, answer = solve(problem, problem.variables.start())
    return found, answer, perf_counter() - clock


def row(case: Case, problem: Problem, label: str, thesis: str, limit: str) -> dict:
    found, answer, seconds = solved(problem)
    truth = {"youngs_modulus_pa[0]": case.truth.youngs_modulus_pa[0]} | {
        name: getattr(case.truth, name) for name in ("poissons_ratio", "mass_damping_per_s", "stiffness_damping_s")
    }
    values = {
        e.label: {"value": e.value, "std": e.std, "error_percent": 100 * (e.value / truth[e.label] - 1)}
        for e in answer.estimates
        if e.label in truth
    }
    text = ", ".join(
        f"{k} {v['value']:.5g} ({v['error_percent']:+.2f} %, std {v['std']:.2g})" for k, v in values.items()
    )
    print(f"{label:38s} {case.body.node_count:6d} nodes | {thesis:24s} | {limit:10s} | {text} | {seconds:.0f} s")
    print(f"{'':38s} stopped: {found.reason}; {found.iterations} iterations, {problem.simulations} simulations")
    return {"label": label, "nodes": case.body.node_count, "values": values, "seconds": seconds, "reason": found.reason}


def run_torus(args: argparse.Namespace) -> list[dict]:
    case = torus()
    problem = case.problem(case.frames(), E_AND_NU, youngs_modulus_pa=np.array([2200.0]), poissons_ratio=0.32)
    return [row(case, problem, "torus, 10 cameras, from 2200, 0.32", "E 5.9 %, nu 14 %", "1 %, 2 %")]


def run_noisy(args: argparse.Namespace) -> list[dict]:
    case = torus(cameras=1)
    frames = case.frames(DepthNoise())
    return [
        row(
            case,
            case.problem(frames, E_AND_NU, youngs_modulus_pa=np.array([start])),
            f"torus, one depth camera, from E {start:g}",
            "-",
            "3 %, 5 %",
        )
        for start in (500.0, 10000.0)
    ]


def run_damping(args: argparse.Namespace) -> list[dict]:
    case = torus(0.006)
    names = [*E_AND_NU, "mass_damping_per_s", "stiffness_damping_s"]
    problem = case.problem(
        case.frames(),
        names,
        youngs_modulus_pa=np.array([2500.0]),
        poissons_ratio=0.35,
        mass_damping_per_s=0.15,
        stiffness_damping_s=0.015,
    )
    return [row(case, problem, "first test case, exact points", "a1 13 %, a2 15 %", "3 %")]


def run_bunny(args: argparse.Namespace) -> list[dict]:
    case = bunny(args.data)
    normal = np.array([0.151, 0.957, 0.245])
    problem = case.problem(
        case.frames(),
        ["plane_normal", "plane_offset_m"],
        plane_normal=normal / np.linalg.norm(normal),
        plane_offset_m=0.03,
    )
    found, _, seconds = solved(problem)
    plane = problem.variables.parameters(found.theta)
    angle = float(np.degrees(np.arccos(min(plane.plane_normal @ case.truth.plane_normal, 1.0))))
    print(f"bunny, plane: off by {angle:.2g} deg and {plane.plane_offset_m:.2g}")
    print("    (thesis: 3.9 deg and 0.042; at most 0.5 deg and 0.005 asked)")
    return [{"label": "bunny", "angle_deg": angle, "offset": plane.plane_offset_m, "seconds": seconds}]


def run_dragon(args: argparse.Namespace) -> list[dict]:
    case, backend, out = dragon(args.data), choose_backend(args.backend), []
    for seed in range(args.seeds):
        frames = case.frames(isotropic_voxels=1.0, seed=seed)
        problem = case.problem(frames, ["youngs_modulus_pa"], backend, youngs_modulus_pa=np.array([10000.0]))
        out.append(row(case, problem, f"dragon, 12 cameras, 1-voxel noise {seed}", "E 13 %", "2 %"))
    return out


def run_other(args: argparse.Namespace) -> list[dict]:
    case = torus(0.008)
    finer, other = torus(0.004), torus(0.008, hht_scheme(0.005, -0.05))
    out = []
    for source, label in ((finer, "frames from a grid twice as fine"), (other, "frames from HHT at half the step")):
        frames = case.frames(truth_from=source)
        problem = case.problem(frames, ["youngs_modulus_pa"], youngs_modulus_pa=np.array([1000.0]))
        out.append(row(case, problem, label, "-", "5 %"))
    return out


def run_cost(args: argparse.Namespace) -> list[dict]:
    case = torus()
    problem = case.problem(case.frames(), E_AND_NU)
    theta = problem.variables.start() + 0.05
    seconds = {}
    for name, options in (("forward", {}), ("gradient", {"gradient": True}), ("jacobian", {"jacobian": True})):
        problem.evaluate(theta, **options)
        clock = perf_counter()
        problem.evaluate(theta, **options)
        seconds[name] = perf_counter() - clock
    ratio = seconds["gradient"] / seconds["forward"]
    print(f"gradient: {ratio:.2f} forward runs (at most 3 asked)")
    print(f"Jacobian of two parameters: {seconds['jacobian'] / seconds['forward']:.2f} forward runs")
    out = [{"label": "cost", **seconds}]
    if args.data is None:
        return out
    long = dragon(args.data, steps=300)
    problem = long.problem(long.frames(budget=500), ["youngs_modulus_pa"])
    tracemalloc.start()
    problem.evaluate(problem.variables.start(), gradient=True)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    print(f"300-step dragon gradient, {long.body.node_count} nodes: {peak:.0f} MB at its peak (at most 600 asked)")
    return [*out, {"label": "memory", "peak_mb": peak}]


PARTS = {
    "torus": run_torus,
    "noisy": run_noisy,
    "damping": run_damping,
    "bunny": run_bunny,
    "dragon": run_dragon,
    "noise": run_noise,
    "starts": run_starts,
    "coverage": run_coverage,
    "other": run_other,
    "cost": run_cost,
}
NEED_DATA = ("bunny", "dragon")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with bunny_small.sdf and dragon_medium.sdf")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run, by comma")
    parser.add_argument("--trials", type=int, default=50, help="of the coverage part")
    parser.add_argument("--workers", type=int, default=1, help="processes for coverage, noise and starts")
    parser.add_argument("--backend", default="cpu", help="for dragon and noise: cpu, cuda or auto (default: cpu)")
    parser.add_argument("--spacing-mm", type=float, default=4.0, help="voxels of the noise part (default: 4)")
    parser.add_argument("--seeds", type=int, default=1, help="how often the dragon's noise is drawn (default: 1)")
    parser.add_argument("--json", type=Path, help="write the numbers there, too")
    args = parser.parse_args()
    results = []
    for part in args.only.split(","):
        if part not in PARTS:
            parser.error(f"no part '{part}'; there are {', '.join(PARTS)}")
        if part in NEED_DATA and args.data is None:
            print(f"{part}: skipped: no data (--data)")
            continue
        results += PARTS[part](args)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
