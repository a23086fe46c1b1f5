"""A slender beam with four unknowns, from its cameras to an answer: how long it takes, and where the time goes.

    python benchmark/bench_slender.py [--cells 40] [--iterative] [--finer]

A beam of 40 x 6 x 4 cells of 5 mm, clamped at one end and let go, 1.5 s at 240 steps a second, 45 frames of 2000 points
of one depth camera; E, ν and both dampings are asked for, from guesses 1.6 to 2 times off. Frames are the scene's own,
of this very grid and step, which proves the code and tells the time. With --finer they are of half the spacing and half
the step, pose and errors of grid and step come along, and it takes minutes. --iterative: without direct solves.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from threading import Lock
from time import perf_counter, process_time
from typing import Any

import numpy as np

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.config import SceneConfig
from soft_estimator.estimation import inspection
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.recordings.observed_frames import FrameSet
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load
from soft_estimator.studies.estimate import estimate_scene
from soft_estimator.studies.estimate_setup import observe_truth

TRUTH = {
    "youngs_modulus_pa": 50e3, "poissons_ratio": 0.4, "mass_damping_per_s": 0.5, "stiffness_damping_s": 0.004,
}  # fmt: skip
GUESS = {
    "youngs_modulus_pa": 80e3, "poissons_ratio": 0.3, "mass_damping_per_s": 1.0, "stiffness_damping_s": 0.002,
}  # fmt: skip
SPACING_M, STEPS_PER_S = 0.005, 240


class IterativeBackend(CpuBackend):
    """Without direct solves."""

    bands = None  # type: ignore[assignment]


class Stopwatch:
    """CPU seconds and number of what an estimate runs: motions, motions with their Jacobian, and the look at what is
    held fixed."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.count: Counter[str] = Counter()
        self._lock = Lock()
        self._going: Counter[str] = Counter()
        self._since: dict[str, float] = {}
        evaluate, inspect = Problem.evaluate, inspection.inspect_fit

        def evaluated(problem: Problem, *given: Any, jacobian: bool = False, **more: Any) -> Evaluation:
            return self._timed(
                "Jacobians" if jacobian else "motions", evaluate, problem, *given, jacobian=jacobian, **more
            )

        Problem.evaluate = evaluated  # type: ignore[method-assign, assignment]
        inspection.inspect_fit = lambda *given: self._timed("looks", inspect, *given)

    def _timed(self, what: str, run: Any, *given: Any, **more: Any) -> Any:
        """Two motions at the same time are timed together."""
        with self._lock:
            self._going[what] += 1
            self._since.setdefault(what, process_time())
        try:
            return run(*given, **more)
        finally:
            with self._lock:
                self.count[what] += 1
                self._going[what] -= 1
                if not self._going[what]:
                    self.seconds[what] = self.seconds.get(what, 0.0) + process_time() - self._since.pop(what)


def beam(cells: int, parts: int = 1) -> Scene:
    """So many cells long, each in so many parts along its edges, and so many parts of a step."""
    length_m = cells * SPACING_M
    data = {
        "name": "slender",
        "body": {"shape": {"box": {"size_m": [length_m, 0.03, 0.02]}}, "spacing_m": SPACING_M / parts},
        "material": {"density_kg_m3": 1000, **TRUTH},
        "fixed": [{"low_m": [-length_m, -0.1, -0.1], "high_m": [-length_m / 2 + SPACING_M, 0.1, 0.1]}],
        "time": {"step_s": 1 / (STEPS_PER_S * parts), "duration_s": 1.5},
        "observe": {
            "cameras": [{"eye_m": [0.25, 0.15, 0.35], "target_m": [0, -0.03, 0], "horizontal_fov_rad": 0.6}],
            "frame_rate_hz": 30,
        },
        "estimate": {"parameters": list(TRUTH), "guess": GUESS},
    }
    return build_scene(load(SceneConfig, data, "scene"), Path())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=40, help="along the beam")
    parser.add_argument("--iterative", action="store_true", help="no direct solves")
    parser.add_argument("--finer", action="store_true", help="frames of half the spacing and half the step")
    args = parser.parse_args()
    backend = IterativeBackend() if args.iterative else CpuBackend()
    scene, watch, clock, wall = beam(args.cells), Stopwatch(), process_time(), perf_counter()
    frames: FrameSet | None = None
    if args.finer:
        truth = beam(args.cells, 2)
        frames = observe_truth(truth, carry_field(truth.body), backend)
        print(f"frames of the finer beam: {process_time() - clock:.0f} s", flush=True)
        clock, wall = process_time(), perf_counter()
    found = estimate_scene(scene, backend, frames=frames)
    cpu_s, wall_s = process_time() - clock, perf_counter() - wall
    print(
        f"{scene.body.node_count} nodes, {backend.device_name()}: {wall_s:.0f} s, {cpu_s:.0f} s of CPU time, of these"
    )
    for name, seconds in watch.seconds.items():
        print(f"  {watch.count[name]:3d} {name:10s} {seconds:6.1f} s")
    print(f"      the rest   {cpu_s - sum(watch.seconds.values()):6.1f} s, frames for the most part")
    for made, right in zip(found.estimates, np.array(list(TRUTH.values()))):
        noise = "" if made.std_statistical is None else f", noise alone ± {made.std_statistical:.2g}"
        print(f"{made.label:22s} {made.value:10.5g} [{made.low:.4g}, {made.high:.4g}] for {right:g}{noise}")


if __name__ == "__main__":
    main()
