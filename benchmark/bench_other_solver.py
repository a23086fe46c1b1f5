"""Clouds of a beam made by another solver, given to our estimator: what our grid does to E and ν.

python benchmark/bench_other_solver.py [--cases released,shaken,spun] [--nu 0.3,0.45] [--draws 20] [--cells 4]
                                       [--workers 1] [--json FILE]

The other solver is scikit-fem (`pip install -e '.[bench]'`) with quadratic hexahedra of 27 nodes, exact in time by its
modes (`reference_beam.py`). The beam, 0.2 x 0.02 x 0.03 m, 2 MPa, is clamped at one end and undamped:

    released   gravity begins to bend it at t = 0, across both sides
    shaken     its base swings across the thin side and turns about the beam's axis
    spun       it starts with an angular velocity about its axis and across, its base at rest

Its motions are small, so that linear elasticity is the same physics as our corotated one: the tip moves by under 5 mm,
2.5 % of the length, and what linear theory leaves out, its way towards the base, 0.6 δ²/L, is under 0.08 mm there. Each
draw picks 3000 points of the whole surface in each of ten frames and adds noise of 1 mm along the surface normal. E and
ν are estimated, all else is known. The search starts at the truth, which saves half of its time, with a weak prior
around values 10 % and 0.05 off. What our grid does to the answer is taken off by one simulation on the grid refined
once, and what may be left of it is in the stated deviation, as in `soft-estimator estimate`. Steps are short enough
that our time scheme slows no mode that matters by over 0.3 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
from estimation_trials import spread

from soft_estimator.estimation.fitting.grid_error import without_grid_error
from soft_estimator.estimation.fitting.least_squares import fit
from soft_estimator.estimation.fitting.uncertainty import posterior
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.variables import make_variables
from soft_estimator.geometry.rigid import RigidPath
from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings

try:
    from reference_beam import DENSITY, LENGTH, THICKNESS, WIDTH, Beam, clamped_beam, released, set_off, shaken
except ModuleNotFoundError as missing:
    print(f"left out: no module {missing.name}; pip install -e '.[bench]'", file=sys.stderr)
    sys.exit(0)

YOUNG, NOISE_M, POINTS, STEPS, FRAMES = 2e6, 1e-3, 3000, 100, 10
NAMES = ["youngs_modulus_pa", "poissons_ratio"]
GRAVITY = np.array([0.0, -0.8, 1.2])
SPIN = np.array([9.0, 0.0, 1.0])
SWING, TWIST, RATES = np.array([0.0, 4e-3, 0.0]), 0.08, (2 * np.pi * 2.5, 2 * np.pi * 15.0)


@dataclass(frozen=True)
class Case:
    """step_s: of our simulation. motion: u(t) of the reference, (T, n). gravity, spin: as our parameters have them."""

    step_s: float
    motion: Callable[[Beam, np.ndarray], np.ndarray]
    gravity_m_s2: np.ndarray
    spin_rad_s: np.ndarray
    base_moves: bool = False


STILL = np.zeros(3)
CASES = {
    "released": Case(2e-3, lambda beam, t: released(beam, GRAVITY, t), GRAVITY, STILL),
    "shaken": Case(1.33e-3, lambda beam, t: shaken(beam, SWING, TWIST, RATES, t), STILL, STILL, True),
    "spun": Case(0.7e-3, lambda beam, t: set_off(beam, SPIN, t), STILL, SPIN),
}


def base_path(case: Case) -> RigidPath:
    """The base's motion at the steps of our simulation."""
    if not case.base_moves:
        return RigidPath()
    times = case.step_s * np.arange(STEPS + 2)
    swing, twist = (0.5 * (1 - np.cos(rate * times))[:, None] for rate in RATES)
    return RigidPath(times, swing * SWING, twist * np.array([TWIST, 0.0, 0.0]))


def frames_of(case: Case, beam: Beam, seed: int) -> list[ObservedFrame]:
    """Noisy clouds of the reference's surface."""
    rng, path = np.random.default_rng(seed), base_path(case)
    times = case.step_s * np.linspace(STEPS / FRAMES, STEPS, FRAMES).round()
    moved = beam.points_m + beam.at_points(case.motion(beam, times))
    out = []
    for time, points in zip(times, moved, strict=True):
        chosen = rng.choice(len(points), POINTS, replace=False, p=beam.area_m2 / beam.area_m2.sum())
        turn, shift = path.at(time)
        at, normal = points[chosen] @ turn.T + shift, beam.normals[chosen] @ turn.T
        noisy = at + NOISE_M * rng.normal(size=(POINTS, 1)) * normal
        full = np.full(POINTS, NOISE_M)
        out.append(ObservedFrame(float(time), noisy, full, np.zeros(POINTS), normal))
    return out


def problem_of(
    case: Case, frames: list[ObservedFrame], poissons_ratio: float, cells: int
) -> tuple[Problem, np.ndarray]:
    """Our beam of `cells` cells through the thickness with E and ν to be found, and θ of the truth."""
    body = build_body(sample(Box((LENGTH, THICKNESS, WIDTH)), THICKNESS / cells))
    root = Box((1e-6, 1.0, 1.0), (-LENGTH / 2, 0.0, 0.0))
    model = build_model(
        body,
        theta_scheme(case.step_s),
        fixed=[FixedRegion(root, "strong", base_path(case))],
        solver=SolverSettings(1e-6, 5000),
    )
    guess = Parameters(
        np.array([1.1 * YOUNG]),
        poissons_ratio - 0.05,
        DENSITY,
        gravity_m_s2=case.gravity_m_s2,
        angular_velocity_rad_s=case.spin_rad_s,
    )
    truth = replace(guess, youngs_modulus_pa=np.array([YOUNG]), poissons_ratio=poissons_ratio)
    problem = Problem(model, make_variables(guess, NAMES), frames)
    return problem, make_variables(truth, NAMES).start()


def trial(item: tuple[str, float, int, int]) -> tuple[list[float], list[float], float, float, list[float]]:
    """Values and stated deviations of E and ν, the mean squared whitened residual, the seconds of one draw, and the
    values before the grid's own error was taken off."""
    name, poissons_ratio, cells, seed = item
    clock, case = perf_counter(), CASES[name]
    frames = frames_of(case, clamped_beam(YOUNG, poissons_ratio), seed)
    problem, start = problem_of(case, frames, poissons_ratio, cells)
    found = fit(problem, start, windows=[FRAMES])
    around = posterior(problem, found.evaluation)
    finer, _ = problem_of(case, frames, poissons_ratio, 2 * cells)
    answer = without_grid_error(problem, found.evaluation, around, finer).estimates
    misfit = float((found.evaluation.residual**2).mean())
    uncorrected = [e.value for e in around.estimates]
    return [e.value for e in answer], [e.std for e in answer], misfit, perf_counter() - clock, uncorrected


def run(name: str, poissons_ratio: float, cells: int, draws: int, workers: int) -> dict:
    """All draws of one case, as a row of the table."""
    items = [(name, poissons_ratio, cells, seed) for seed in range(draws)]
    trials = spread(trial, items, workers, f"{name}, nu {poissons_ratio:g}")
    value, std = (np.array([t[k] for t in trials]) for k in (0, 1))
    truth = np.array([YOUNG, poissons_ratio])
    z = (value - truth) / std
    return {
        "case": name,
        "nu": poissons_ratio,
        "cells": cells,
        "draws": draws,
        "error_percent": (100 * (value / truth - 1)).mean(axis=0).tolist(),
        "error_with_grid_percent": (100 * (np.array([t[4] for t in trials]) / truth - 1)).mean(axis=0).tolist(),
        "spread_percent": (100 * value / truth).std(axis=0).tolist(),
        "stated_percent": (100 * std / truth).mean(axis=0).tolist(),
        "z": z.mean(axis=0).tolist(),
        "inside_percent": (100 * (np.abs(z) < 1.96)).mean(axis=0).tolist(),
        "misfit": float(np.mean([t[2] for t in trials])),
        "seconds": float(np.median([t[3] for t in trials])),
    }


def show(row: dict) -> None:
    keys = ("error_percent", "error_with_grid_percent", "stated_percent", "z", "inside_percent")
    told = "; ".join(
        f"{n} {e:+6.2f} % (with the grid's error {g:+6.2f} %; stated {s:.2f} %, z {z:+5.1f}, held {i:3.0f} %)"
        for n, e, g, s, z, i in zip("Eν", *(row[k] for k in keys), strict=True)
    )
    print(
        f"{row['case']:9s} ν {row['nu']:<5g}{row['draws']:3d} draws: {told}; misfit {row['misfit']:.3f}, "
        f"{row['seconds']:.0f} s a draw",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES), help="of released, shaken, spun")
    parser.add_argument("--nu", default="0.3,0.45")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--cells", type=int, default=4, help="of our grid through the thickness")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    names = args.cases.split(",")
    unknown = sorted(set(names) - set(CASES))
    if unknown:
        print(f"no case {', '.join(unknown)}; choose from {', '.join(CASES)}", file=sys.stderr)
        return 2
    print("asked: E within 1 %, ν within 5 %, the 95 % interval holds the truth in 90 % of the draws")
    rows = []
    for name in names:
        for poissons_ratio in map(float, args.nu.split(",")):
            rows.append(run(name, poissons_ratio, args.cells, args.draws, args.workers))
            show(rows[-1])
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
