"""The live estimator over many simulated recordings: is the number right, is its interval honest, how fast is it?

    python benchmark/bench_live.py [--scene demo_drop] [--trials 10] [--workers 1] [--backend cpu] [--json]

Each trial renders the scene's first camera with noise of its own seed and runs finder and sliding window over the
clouds, as the nodes do, frame by frame and without a time budget. The interval is that of the last estimate.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from multiprocessing import get_context
from time import perf_counter
from typing import Any

import numpy as np

from soft_estimator.backends.choose import choose_backend
from soft_estimator.camera.rendering import watch_scene
from soft_estimator.camera.scene_cameras import scene_cameras
from soft_estimator.config_live import WindowConfig
from soft_estimator.live.pipeline import LivePipeline
from soft_estimator.live.replay_config import finder_for
from soft_estimator.perception.cloud import cloud_from_points
from soft_estimator.scene.files import read_scene
from soft_estimator.scene.scene import build_scene


def run_trial(scene_name: str, seed: int, backend_name: str, window: dict[str, Any]) -> dict[str, Any]:
    """One recording: the last estimate beside the truth, and the seconds that frames took."""
    config, folder = read_scene(scene_name)
    if config.observe is None:
        raise ValueError(f"scene {scene_name} has no cameras; give it an observe section")
    config = replace(config, observe=replace(config.observe, seed=seed))
    scene = build_scene(config, folder)
    backend = choose_backend(backend_name, config.solver.precision)
    camera = scene_cameras(config)[0]
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = camera.rotation, camera.position_m
    pipeline = LivePipeline(scene, finder_for(config), WindowConfig(**window), backend=backend)
    seconds, last = [], None
    for seen in watch_scene(scene, choose_backend("cpu"), [camera]):
        cloud = cloud_from_points(seen.points_m[0], transform=pose)
        clock = perf_counter()
        said = pipeline.add_cloud(1.0 + seen.time_s, cloud)
        seconds.append(perf_counter() - clock)
        last = said or last
    truth = {"youngs_modulus_pa[0]": scene.parameters.youngs_modulus_pa[0]}
    rows = []
    for p in last.parameters if last is not None else ():
        true = truth.get(p.label, getattr(scene.parameters, p.label, None))
        rows.append({"label": p.label, "value": p.value, "std": p.std, "low": p.low, "high": p.high, "truth": true})
    return {"seed": seed, "cells": scene.body.cell_count, "parameters": rows, "seconds": seconds}


def table(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a parameter."""
    out = []
    for k, first in enumerate(trials[0]["parameters"]):
        rows = [t["parameters"][k] for t in trials]
        value, std, truth = (np.array([r[n] for r in rows], dtype=float) for n in ("value", "std", "truth"))
        inside = [r["low"] <= r["truth"] <= r["high"] for r in rows]
        out.append(
            {
                "parameter": first["label"],
                "truth": float(truth[0]),
                "mean": float(value.mean()),
                "spread": float(value.std()),
                "stated_std": float(np.median(std)),
                "worst_error": float(np.abs(value - truth).max()),
                "covered": sum(inside),
                "trials": len(rows),
            }
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scene", default="demo_drop")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--window", default="{}", help="settings of the window, as JSON")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    jobs = [(args.scene, seed, args.backend, json.loads(args.window)) for seed in range(args.trials)]
    if args.workers > 1:
        os.environ["NUMBA_NUM_THREADS"] = "1"
        with get_context("spawn").Pool(args.workers) as pool:
            trials = pool.starmap(run_trial, jobs, chunksize=1)
    else:
        trials = [run_trial(*job) for job in jobs]
    rows = table(trials)
    seconds = np.concatenate([t["seconds"][3:] for t in trials])
    speed = {"frames_per_s": float(len(seconds) / seconds.sum()), "p50_s": float(np.median(seconds))}
    speed["p99_s"] = float(np.percentile(seconds, 99))
    if args.json:
        print(json.dumps({"cells": trials[0]["cells"], "parameters": rows, "speed": speed}))
        return
    print(f"{args.scene}: {trials[0]['cells']} cells, {len(trials)} trials of {len(trials[0]['seconds'])} frames")
    print(f"{'parameter':24s} {'truth':>10s} {'mean':>10s} {'spread':>9s} {'stated':>9s} {'worst':>9s}  covered")
    for r in rows:
        numbers = f"{r['truth']:10.4g} {r['mean']:10.4g} {r['spread']:9.2g} {r['stated_std']:9.2g}"
        print(f"{r['parameter']:24s} {numbers} {r['worst_error']:9.2g}  {r['covered']} of {r['trials']}")
    print(f"{speed['frames_per_s']:.1f} estimates/s, {speed['p50_s']:.3f} s a frame (99 %: {speed['p99_s']:.2f} s)")


if __name__ == "__main__":
    main()
