"""Many recordings of falling bodies with frames missing: is any number that the live estimator vouches for far off?

    python benchmark/bench_live_drops.py [--recordings 100] [--first 0] [--workers 1] [--json FILE]

Each recording draws a shape, E (4-60 kPa), ν, damping, height, noise, and a share of its frames, up to 60 %, that never
arrive. The truth is simulated on a finer grid and with an eighth of the estimate's step (the camera
takes a quarter of its scene's half), and the estimate is told a
density 3 % and a Poisson's ratio up to 0.1 off. Finder and sliding window run over the clouds as the nodes do, without
a time budget. A number counts as vouched for where its level is OK: the window tracks, the model fits, the parameter is
observable. Asked: none of them off by more than four of its stated deviations.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from soft_estimator.backends.choose import choose_backend
from soft_estimator.camera.rendering import watch_scene
from soft_estimator.camera.scene_cameras import scene_cameras
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.live.pipeline import LivePipeline
from soft_estimator.live.replay_config import finder_for
from soft_estimator.perception.cloud import cloud_from_points
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load

MOST_STD, MOST_DROPPED, SPACING_M, STEP_S = 4.0, 0.6, 0.0105, 1 / 120


def shape_of(kind: str, lift_m: float) -> dict[str, Any]:
    """A body some 10 cm across whose lowest point is so high above the table."""
    z = lift_m + {"ball": 0.05, "box": 0.04, "capsule": 0.035, "torus": 0.025}[kind]
    shapes: dict[str, dict[str, Any]] = {
        "ball": {"sphere": {"radius_m": 0.05, "center_m": [0, 0, z]}},
        "box": {"box": {"size_m": [0.08, 0.09, 0.08], "center_m": [0, 0, z]}},
        "capsule": {"capsule": {"radius_m": 0.035, "start_m": [-0.03, 0, z], "end_m": [0.03, 0, z]}},
        "torus": {"torus": {"major_radius_m": 0.045, "minor_radius_m": 0.025, "axis": "z", "center_m": [0, 0, z]}},
    }
    return shapes[kind]


def draw(seed: int) -> tuple[dict[str, Any], dict[str, Any], float, str]:
    """The truth, the scene that the estimator gets, the share of the frames that are missing, and words for it."""
    rng = np.random.default_rng(seed)
    kind = ("ball", "box", "capsule", "torus")[rng.integers(4)]
    youngs, nu = float(np.exp(rng.uniform(np.log(4e3), np.log(60e3)))), float(rng.uniform(0.25, 0.45))
    damping, lift_m = float(np.exp(rng.uniform(np.log(1e-3), np.log(4e-3)))), float(rng.uniform(0.05, 0.12))
    dropped, azimuth = float(rng.uniform(0, MOST_DROPPED)), float(rng.uniform(-0.6, 0.6))
    material = {"youngs_modulus_pa": youngs, "poissons_ratio": nu, "stiffness_damping_s": damping}
    camera = {
        "eye_m": [0.45 * np.cos(azimuth), 0.45 * np.sin(azimuth), 0.35], "target_m": [0, 0, 0.07], "up": [0, 0, 1],
        "width_px": 320, "height_px": 240, "horizontal_fov_rad": 1.0,
    }  # fmt: skip
    common: dict[str, Any] = {
        "name": f"{kind}_{seed}",
        "gravity_m_s2": [0, 0, -9.81],
        "initial": {"velocity_m_s": [*(0.15 * rng.normal(size=2)), 0.0]},
        "contact": {"normal": [0, 0, 1], "stiffness_pa_per_m": "2 kPa/mm", "sharpness_per_m": "1 1/mm"},
        "observe": {"cameras": [camera], "frame_rate_hz": 30, "seed": seed + 1},
    }
    truth = {
        **common,
        "body": {"shape": shape_of(kind, lift_m), "spacing_m": 0.8 * SPACING_M},
        "material": material,
        "time": {"step_s": STEP_S / 2, "duration_s": 0.8},
    }
    off = {
        "density_kg_m3": 1000.0 * float(1 + 0.03 * rng.normal()),
        "poissons_ratio": min(nu + float(rng.uniform(-0.1, 0.1)), 0.49),
    }
    told = {
        **common,
        "body": {"shape": shape_of(kind, lift_m), "spacing_m": SPACING_M},
        "material": {**material, **off},
        "time": {"step_s": STEP_S, "duration_s": 0.8},
        "estimate": {
            "parameters": ["youngs_modulus_pa", "stiffness_damping_s", "plane_offset_m"],
            "guess": {
                "youngs_modulus_pa": youngs * float(np.exp(rng.uniform(-0.7, 0.7))),
                "stiffness_damping_s": damping * float(np.exp(rng.uniform(-0.5, 0.5))),
            },
            "prior_std": {"youngs_modulus_pa": 1, "stiffness_damping_s": 1},
        },
    }
    return truth, told, dropped, f"{kind}, {youngs / 1e3:.1f} kPa, {100 * dropped:.0f} % dropped"


def scene_of(data: dict[str, Any]) -> Scene:
    return build_scene(load(SceneConfig, data, "scene"), Path())


def vouched(said: LiveEstimate, truth: dict[str, float]) -> dict[str, float]:
    """Deviations by which each number at level OK is off."""
    if said.status != "tracking" or not said.verdict.fits:
        return {}
    seen = [p for p in said.parameters if p.observable and p.label in truth]
    return {p.label: (p.value - truth[p.label]) / p.std for p in seen}


def trial(seed: int) -> dict[str, Any]:
    """One recording: of each parameter how many numbers were vouched for, the worst of them, and the last."""
    true, told, dropped, words = draw(seed)
    scene, rng = scene_of(true), np.random.default_rng(seed + 2)
    mine = scene_of(told)
    camera = scene_cameras(scene.config)[0]
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = camera.rotation, camera.position_m
    pipeline = LivePipeline(mine, finder_for(mine.config), backend=choose_backend("cpu"))
    truth = {"stiffness_damping_s": true["material"]["stiffness_damping_s"]}
    truth["youngs_modulus_pa[0]"] = true["material"]["youngs_modulus_pa"]
    off: dict[str, list[float]] = {name: [] for name in truth}
    estimates, last = 0, None
    for seen in watch_scene(scene, choose_backend("cpu"), [camera]):
        if rng.uniform() < dropped:
            continue
        said = pipeline.add_cloud(1.0 + seen.time_s, cloud_from_points(seen.points_m[0], transform=pose))
        if said is None:
            continue
        estimates, last = estimates + 1, said
        for name, z in vouched(said, truth).items():
            off[name].append(z)
    rows = {
        name: {"vouched": len(z), "worst": max(z, key=abs, default=0.0), "last": z[-1] if z else None}
        for name, z in off.items()
    }
    values = {} if last is None else {p.label: (p.value, p.std) for p in last.parameters}
    return {"seed": seed, "words": words, "estimates": estimates, "off": rows, "truth": truth, "values": values}


def show(rows: list[dict[str, Any]]) -> int:
    """The table; how many recordings vouched for a number that is too far off."""
    for row in rows:
        for name, o in row["off"].items():
            if abs(o["worst"]) > MOST_STD:
                print(f"  {row['seed']}: {row['words']}: {name} off by {o['worst']:.1f} of its deviations")
    wrong = sum(any(abs(o["worst"]) > MOST_STD for o in row["off"].values()) for row in rows)
    none = sum(row["estimates"] == 0 for row in rows)
    print(f"{len(rows)} recordings, {none} without an estimate, {wrong} vouched for a number over {MOST_STD:g} off")
    for name in rows[0]["off"]:
        each = [row["off"][name] for row in rows]
        last = np.array([o["last"] for o in each if o["last"] is not None])
        print(
            f"  {name:24s} {sum(o['vouched'] for o in each)} numbers vouched for, worst "
            f"{max((abs(o['worst']) for o in each), default=0):.1f}; last ones: {len(last)}, within 1.96: "
            f"{100 * np.mean(np.abs(last) < 1.96):.0f} %, mean {last.mean():+.2f}, spread {last.std():.2f}"
        )
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = "1"
    rows = []
    with get_context("spawn").Pool(args.workers) as pool:
        for row in pool.imap(trial, range(args.first, args.first + args.recordings)):
            rows.append(row)
            print(f"{len(rows)} of {args.recordings}: {row['words']}", file=sys.stderr)
    wrong = show(rows)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
