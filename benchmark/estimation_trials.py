"""The parts of the estimation benchmark that repeat one estimate many times, spread over worker processes.

A worker runs on one thread and builds its own case; results come back in the order of the trials, whatever the number
of workers. Needs nothing but NumPy, SciPy and Numba.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from estimation_cases import Case, torus, torus_in_view

from soft_estimator.backends import choose_backend
from soft_estimator.camera.depth_sensor import DepthNoise
from soft_estimator.estimation.fitting.answer import solve
from soft_estimator.estimation.fitting.descent import random_starts
from soft_estimator.estimation.fitting.least_squares import fit
from soft_estimator.estimation.fitting.uncertainty import posterior

E_AND_NU = ["youngs_modulus_pa", "poissons_ratio"]
TRUTH = np.array([2000.0, 0.3])
VOXELS = (0.1, 0.3, 1.0, 2.0, 5.0)
_cases: dict[tuple, Case] = {}  # one of each kind for a process
_in_view: dict[float, Case] = {}


def case_of(spacing_m: float, cameras: int) -> Case:
    """The torus, built once in each process."""
    key = (spacing_m, cameras)
    if key not in _cases:
        _cases[key] = torus(spacing_m, cameras=cameras)
    return _cases[key]


def spread(trial: Callable[[Any], Any], items: Sequence[Any], workers: int, name: str) -> list[Any]:
    """trial(item) of every item, in order; the first one here, so that workers find compiled loops."""
    clock, out = perf_counter(), [trial(items[0])]
    print(f"{name}: trial 1 of {len(items)}, {perf_counter() - clock:.0f} s", file=sys.stderr)
    if workers <= 1:
        here = map(trial, items[1:])
        return out + [_told(k, len(items), name, clock, r) for k, r in enumerate(here, start=2)]
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        there = pool.imap(trial, items[1:])
        return out + [_told(k, len(items), name, clock, r) for k, r in enumerate(there, start=2)]


def _told(k: int, total: int, name: str, clock: float, result: Any) -> Any:
    print(f"{name}: trial {k} of {total}, {perf_counter() - clock:.0f} s", file=sys.stderr)
    return result


def coverage_trial(seed: int) -> tuple[list[float], list[float], float]:
    """Values and standard deviations of E and nu from one depth camera's noisy frames, and the seconds it took."""
    clock, case = perf_counter(), case_of(0.008, 1)
    problem = case.problem(case.frames(DepthNoise(), seed=seed), E_AND_NU)
    found = fit(problem, problem.variables.start(), windows=[len(problem.frames)])
    answer = posterior(problem, found.evaluation).estimates
    return [e.value for e in answer], [e.std for e in answer], perf_counter() - clock


def run_coverage(args: argparse.Namespace) -> list[dict]:
    trials = spread(coverage_trial, range(args.trials), args.workers, "coverage")
    value, std = np.array([t[0] for t in trials]), np.array([t[1] for t in trials])
    z = (value - TRUTH) / std
    inside = 100 * (np.abs(z) < 1.96).mean(axis=0)
    percent = 100 * (value / TRUTH - 1)
    for j, name in enumerate(E_AND_NU):
        print(f"{name}: the 95 % interval holds the truth in {inside[j]:.0f} % of {args.trials} trials (88-100 asked)")
        print(
            f"    mean error {percent[:, j].mean():+.3f} %, spread {percent[:, j].std():.3f} %, "
            f"stated {100 * std[:, j].mean() / TRUTH[j]:.3f} %; z {z[:, j].mean():+.2f} with spread {z[:, j].std():.2f}"
        )
    print(f"    {np.median([t[2] for t in trials]):.0f} s a trial (median)")
    return [{"label": "coverage", "trials": args.trials, "inside_percent": inside.tolist(), "z": z.tolist()}]


def noise_trial(item: tuple[float, int, float, str]) -> tuple[float, float]:
    """Relative error and standard deviation of E under isotropic noise, from a guess twice too stiff."""
    voxels, seed, spacing_m, backend = item
    if spacing_m not in _in_view:
        _in_view[spacing_m] = torus_in_view(spacing_m)
    case = _in_view[spacing_m]
    frames = case.frames(isotropic_voxels=voxels, seed=seed)
    guess = np.array([2 * TRUTH[0]])
    problem = case.problem(frames, E_AND_NU[:1], choose_backend(backend), youngs_modulus_pa=guess)
    e = solve(problem, problem.variables.start())[1].estimates[0]
    error, std = e.value / TRUTH[0] - 1, e.std / TRUTH[0]
    print(f"noise of {voxels:g} voxels, seed {seed}: {100 * error:+.2f} %, stated {100 * std:.2f} %", file=sys.stderr)
    return error, std


def run_noise(args: argparse.Namespace) -> list[dict]:
    """Error of E against the noise, which Weiss' thesis only says its gradient survives."""
    seeds, spacing_m = max(args.trials // 10, 1), 1e-3 * args.spacing_mm
    # No two trials share their noise: scaled copies of one draw would err all alike.
    items = [(v, 1000 * k + seed, spacing_m, args.backend) for k, v in enumerate(VOXELS) for seed in range(seeds)]
    found = np.array(spread(noise_trial, items, args.workers, "noise")).reshape(len(VOXELS), seeds, 2)
    print(f"isotropic noise on the torus, {args.spacing_mm:g} mm a voxel, {seeds} trials each: error of E")
    print("voxels  error % (rms)  mean %  stated %  error over stated  error / noise [% per voxel]")
    out = []
    for voxels, rows in zip(VOXELS, found):
        error, stated, mean = 100 * np.sqrt((rows[:, 0] ** 2).mean()), 100 * rows[:, 1].mean(), 100 * rows[:, 0].mean()
        z = np.sqrt(((rows[:, 0] / rows[:, 1]) ** 2).mean())
        print(f"{voxels:6g}  {error:13.2f}  {mean:+6.2f}  {stated:8.2f}  {z:17.2f}  {error / voxels:7.2f}")
        out.append({"label": "noise", "voxels": voxels, "errors": rows[:, 0].tolist(), "stated": rows[:, 1].tolist()})
    return out


def start_trial(k: int) -> tuple[float, float]:
    """Where the k-th random start ends, and its cost."""
    case = case_of(0.008, 10)
    problem = case.problem(case.frames(DepthNoise()), E_AND_NU[:1])
    found = fit(problem, random_starts(problem, 20, 0)[k])
    return float(found.theta[0]), found.evaluation.cost


def run_starts(args: argparse.Namespace) -> list[dict]:
    ends = np.array(spread(start_trial, range(20), args.workers, "starts"))
    best = ends[np.argmin(ends[:, 1]), 0]
    same = int((np.abs(ends[:, 0] - best) < 1e-2).sum())
    print(f"{same} of 20 random starts within a factor of ten in E reach the best minimum (at least 19 asked)")
    return [{"label": "starts", "same": same}]
