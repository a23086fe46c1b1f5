"""How many updates a second the sliding window makes on a body of some size, on the backend there is.

python benchmark/bench_window.py [--cells 10000] [--frames 12] [--backend auto] [--precision float32] [--one-level]
                                 [--against-fine] [--json FILE]

A soft ball bounces on a plane, simulated with a quarter of the window's steps; 30 frames a second, two steps a frame
that the window cuts into four each, 18 variables: stiffness, Poisson's ratio, damping, the plane, pose and motion. An
update takes in a frame, moves the variables and slides the window on.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from soft_estimator.backends import choose_backend
from soft_estimator.camera.observing import surface_frame
from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.residuals.carried_field import CarriedField, carry_field
from soft_estimator.estimation.window import episode
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.geometry.shapes import Sphere, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

RADIUS_M, NOISE_M, POINTS = 0.05, 0.001, 1000
TRUE_PARTS = 16  # of a step: the window cuts it into four, and a ball of other steps would never fit
NAMES = ["youngs_modulus_pa", "poissons_ratio", "stiffness_damping_s", "plane_normal", "plane_offset_m"]


def bouncing_ball(backend: Any, cells: int, updates: int, dtype: Any) -> tuple[Model, CarriedField, list]:
    """The model of a ball of about so many cells, its field, and what a camera saw of it."""
    spacing = RADIUS_M * (4 / 3 * np.pi / cells) ** (1 / 3) * 1.04
    body = build_body(sample(Sphere(radius_m=RADIUS_M), float(spacing)))
    # Live scenes take no step again in parts, see `live_scene`.
    solver = SolverSettings(own_parts=False)
    model = build_model(body, theta_scheme(1 / 60), contact=ContactLaw(2e6, 1500.0), solver=solver, dtype=dtype)
    fine = model.in_parts(TRUE_PARTS)
    height = np.array([0, 0.08, 0])
    truth = Parameters(np.array([2e4]), 0.4, 1000.0, 0.0, 0.003, translation_m=height, velocity_m_s=[0.05, -0.5, 0])
    field, rng = carry_field(body), np.random.default_rng(3)
    simulation = Simulation(fine, truth, backend)
    state, frames = simulation.initial_state(), []
    for k in range(2 * TRUE_PARTS * updates):
        if k % (2 * TRUE_PARTS) == 0:
            u = backend.to_host(state.u).astype(np.float64)
            frames.append(surface_frame(state.time_s, body, field, u, POINTS, NOISE_M, rng))
        state, _ = simulation.step(state)
    return model, field, frames


def window_of(
    model: Model, field: CarriedField, backend: Any, frames: int, iterations: int, jacobian_grid: str = "auto"
) -> SlidingWindow:
    """A window of so many frames, with a guess that is off."""
    settings = WindowConfig(
        frames=frames,
        grow_to_frames=frames,
        points_per_frame=POINTS,
        iterations=iterations,
        start="scene",
        jacobian_grid=jacobian_grid,
    )
    guess = Parameters(np.array([3e4]), 0.42, 1000.0, 0.0, 0.004, translation_m=np.array([0, 0.08, 0]))
    return SlidingWindow(model, guess, NAMES, settings, backend=backend, field=field)


def time_updates(window: SlidingWindow, frames: list, profile_from: int | None = None) -> tuple[list[float], Any]:
    """Seconds of every update, and what the last one said."""
    profile = cProfile.Profile()
    seconds, said = [], None
    for k, frame in enumerate(frames):
        if k == profile_from:
            profile.enable()
        start = perf_counter()
        said = window.add_frame(100 + frame.time_s, frame.points_m, frame.std_m)
        seconds.append(perf_counter() - start)
    if profile_from is not None:
        profile.disable()
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
    return seconds, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, help="default: 10,000 on a GPU, 1,000 elsewhere")
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--iterations", type=int, default=3, help="most Gauss-Newton steps an update")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--precision", default="float64")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--against-fine", action="store_true", help="changes on the coarser grid, and all on the body's own"
    )
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--one-level", action="store_true", help="no coarse level in the GPU's preconditioner")
    arguments = parser.parse_args()
    settled = arguments.frames + 2  # updates until the window is full and has slid twice
    if arguments.updates <= settled:
        parser.error(f"--updates {arguments.updates} ends before the window is full; give more than {settled}")
    backend, on_gpu = choose_backend(arguments.backend), False
    if backend.name == "cuda":
        from soft_estimator.backends.cuda.coarse_solver import ResidentCoarseSolver, StreamedCoarseSolver

        on_gpu = True
        if arguments.one_level:
            ResidentCoarseSolver.worth_it = StreamedCoarseSolver.worth_it = float("inf")
    cells = arguments.cells or (10_000 if on_gpu else 1_000)
    model, field, frames = bouncing_ball(backend, cells, arguments.updates, np.dtype(arguments.precision).type)
    grids = ("auto", "auto", "fine") if arguments.against_fine else ("auto",)  # the first one compiles
    slow = {}
    if arguments.against_fine:
        episode._WORTH_A_COARSER_GRID = 0
    for grid in grids:
        window = window_of(model, field, backend, arguments.frames, arguments.iterations, grid)
        seconds, said = time_updates(window, frames, settled if arguments.profile else None)
        full = np.array(seconds[settled:])
        slow[grid] = full.mean()
        report(arguments, backend, model, full, said, grid)
    if arguments.against_fine:
        print(f"changes on the coarser grid: {slow['fine'] / slow['auto']:.2f} times as many updates a second")


def report(arguments: argparse.Namespace, backend: Any, model: Model, full: np.ndarray, said: Any, grid: str) -> None:
    """Print how long the updates took, and write it where that was asked for."""
    on_gpu = backend.name == "cuda"
    result = {
        "device": backend.device_name(),
        "cells": model.body.cell_count,
        "nodes": model.body.node_count,
        "precision": arguments.precision,
        "frames": arguments.frames,
        "jacobian_grid": grid,
        "levels": 1 if arguments.one_level or not on_gpu else 2,
        "median_update_ms": 1e3 * float(np.median(full)),
        "slowest_update_ms": 1e3 * float(full.max()),
        "updates_per_s": 1 / float(np.mean(full)),
        "youngs_modulus_pa": None if said is None else [said.parameters[0].value, said.parameters[0].std],
    }
    print(json.dumps(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
