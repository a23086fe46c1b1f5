"""`soft-estimator measure` on simulated recordings of eight objects: how near it comes to what they are.

    python benchmark/bench_measure.py [--workers 8] [--only ball duck] [--hand with|without|both] [--data DATA]

    python benchmark/bench_measure.py --only ball box --beside wall box    # thrown at something that stands there

    python benchmark/bench_measure.py --shapes 14      # volumes alone, of bodies of balls and rods seen from one side

One process a recording, one JSON line each on stdout as they come, a table at the end on stderr. What counts: the
volume within 15 % from one side, and Young's modulus within 10 % and inside its 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from measure_objects import BESIDE, CASES, Case, beside, random_body
from measure_recordings import look_at_rest, write_recording
from perception_scenes import DATA

from soft_estimator.camera.scene_cameras import scene_cameras
from soft_estimator.measuring.looking import MeasureOptions
from soft_estimator.measuring.measure import measure
from soft_estimator.measuring.measurement import Measurement
from soft_estimator.perception.cloud import cloud_from_points
from soft_estimator.perception.scan import ScannedBody
from soft_estimator.perception.scan_choice import choose_body
from soft_estimator.perception.scan_frames import gather
from soft_estimator.perception.sensor_noise import learn_noise
from soft_estimator.perception.settings import FinderSettings, ScanSettings
from soft_estimator.scene.scene import Scene


def trial(item: tuple[str, bool, Path, int | None, bool, str]) -> dict[str, Any]:
    """Record one object and measure it; what is kept is told, not raised: one failure is one line."""
    name, with_hand, data, cells, sides, backend = item
    case, clock = case_of(name), process_time()
    out: dict[str, Any] = {"object": name, "hand": with_hand, "youngs_modulus_true_pa": case.youngs_modulus_pa}
    with tempfile.TemporaryDirectory() as folder:
        bag = Path(folder) / "bag"
        try:
            truth = write_recording(case, bag, data=data, with_hand=with_hand, sides=sides, backend=backend)
            out |= {"cells_true": len(truth.body.cells.cell), "recorded_s": process_time() - clock}
            found = measure(bag, truth.mass_kg, MeasureOptions(cells=cells), backend)
        except Exception as error:  # counted, and the others go on
            return {**out, "error": f"{type(error).__name__}: {error}", "seconds": process_time() - clock}
    return {**out, **compared(case, truth, found), "seconds": process_time() - clock}


def case_of(name: str) -> Case:
    """An object by its name; random_7 is the one of seed 7, ball+wall a ball that is thrown at a wall."""
    if "+" in name:
        return beside(case_of(name.split("+")[0]), name.split("+")[1])
    return random_body(int(name.removeprefix("random_"))) if name.startswith("random_") else CASES[name]


def known(name: str, data: Path) -> bool:
    """Whether the file that an object's shape is made from is there, if it needs one."""
    shape = case_of(name).shape
    return not isinstance(shape, str) or (data / shape).is_file()


def compared(case: Case, truth: Scene, found: Measurement) -> dict[str, Any]:
    """What was found, beside the truth."""
    summary, e = found.summary(), found.stiffness
    volume = truth.body.volume_m3
    return {
        "volume_off": found.body.volume_m3 / volume - 1,
        "volume_std": (found.body.volume_std_m3 or 0.0) / volume,
        "shape": summary["shape"],
        "youngs_modulus_off": e.value / case.youngs_modulus_pa - 1,
        "youngs_modulus_std": e.std / e.value,
        "inside": e.low <= case.youngs_modulus_pa <= e.high,
        "told": e.observable,
        "poissons_ratio_true": case.poissons_ratio,
        "parameters": summary["parameters"],
        "drops": summary["drops"],
        "frames": summary["frames"],
        "notes": summary["notes"],
        "sentence": found.sentence,
    }


def line(row: dict[str, Any]) -> str:
    """One line of the table."""
    head = f"{row['object']:9s} {'hand' if row['hand'] else '':5s}"
    if "error" in row:
        return f"{head} {row['error']}"
    nu = next(p for p in row["parameters"] if p["name"] == "poissons_ratio")
    good = abs(row["volume_off"]) < 0.15 and abs(row["youngs_modulus_off"]) < 0.1 and row["inside"]
    said = ("" if good else "<- misses") if row["told"] else "<- refused"
    return (
        f"{head} V {100 * row['volume_off']:+5.1f} ± {100 * row['volume_std']:4.1f} %  "
        f"E {100 * row['youngs_modulus_off']:+6.1f} ± {100 * row['youngs_modulus_std']:4.1f} % "
        f"{'inside ' if row['inside'] else 'outside'}  ν {nu['value']:.2f} ± {nu['std']:.2f} of "
        f"{row['poissons_ratio_true']:.2f}  {row['shape']['kind']:10s} {len(row['drops'])} drops "
        f"{row['seconds']:4.0f} s  {said}"
    )


def shape_trial(seed: int) -> dict[str, Any]:
    """A body of balls and rods, closed from one side: its volume beside the true one."""
    clock, (scene, frames) = process_time(), look_at_rest(random_body(seed))
    clouds = [cloud_from_points(points) for points in frames]
    noise, _ = learn_noise(clouds)
    settings = ScanSettings(target_cells=400)
    data = gather(clouds, replace(settings, target_cells=3000), FinderSettings(noise=noise))
    body, true = choose_body(data, settings), scene.body.volume_m3
    return {
        "seed": seed,
        "kind": body.prior,
        "off": body.volume_m3 / true - 1,
        "std": (body.volume_std_m3 or 0.0) / body.volume_m3,
        "landing_off_m": landing_off_m(body, scene),
        "seconds": process_time() - clock,
    }


def landing_off_m(body: ScannedBody, truth: Scene, tilt_rad: float = 0.2) -> float:
    """How far off the height is [m] at which a body meets a table that it is tilted against, rms of eight sides."""
    camera, sides = scene_cameras(truth.config)[0], np.arange(8) * np.pi / 4
    down = np.stack([np.sin(tilt_rad) * np.cos(sides), np.sin(tilt_rad) * np.sin(sides), 0 * sides - np.cos(tilt_rad)])
    # The recording's frame is the camera's.
    found = (body.vertices_m @ body.rotation.T + body.translation_m) @ camera.rotation.T + camera.position_m
    off = (found @ down).max(axis=0) - (truth.body.surface_positions_m() @ down).max(axis=0)
    return float(np.sqrt(np.mean(off**2)))


def shapes(first: int, count: int, workers: int) -> None:
    """Print a line for each of so many bodies, and how far off their volumes are."""
    rows = []
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for row in pool.imap(shape_trial, range(first, first + count)):
            rows.append(row)
            print(json.dumps(row), flush=True)
    off, landing = (np.array([row[name] for row in rows]) for name in ("off", "landing_off_m"))
    inside = int(sum(abs(row["off"]) < 1.96 * row["std"] for row in rows))
    print(
        f"volume: mean {100 * off.mean():+.1f} %, rms {100 * np.sqrt((off**2).mean()):.1f} %, worst "
        f"{100 * np.abs(off).max():.1f} %, {int((np.abs(off) < 0.15).sum())} of {count} within 15 %, {inside} inside "
        f"their intervals; tilted by 0.2 rad they land {1e3 * np.sqrt(np.mean(landing**2)):.1f} mm off rms",
        file=sys.stderr,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=sorted(CASES), default=list(CASES))
    parser.add_argument("--hand", choices=("with", "without", "both"), default="with")
    parser.add_argument("--also", nargs="*", choices=sorted(CASES), default=[], help="these without a hand, too")
    parser.add_argument("--cells", type=int, help="of the estimate's grid; as measure chooses if left out")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with bunny_medium.sdf")
    parser.add_argument("--random", nargs="*", type=int, default=[], help="seeds of bodies that nobody tuned for, too")
    parser.add_argument("--shapes", type=int, metavar="N", help="only the volumes of N bodies from one side")
    parser.add_argument("--backend", default="cpu", help="of the estimate, and of the true drops")
    parser.add_argument("--beside", nargs="+", choices=sorted(BESIDE), help="each thrown at these, instead of dropped")
    parser.add_argument("--sides", action="store_true", help="turned about on the table before the drops")
    parser.add_argument("--first", type=int, default=200, help="seed of the first of them; 100 to 113 were tuned on")
    args = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    if args.shapes:
        shapes(args.first, args.shapes, args.workers)
        return
    hands = {"with": [True], "without": [False], "both": [True, False]}[args.hand]
    names = [n for n in [*args.only, *(f"random_{seed}" for seed in args.random)] if known(n, args.data)]
    names = [f"{name}+{thing}" for name in names for thing in args.beside] if args.beside else names
    rest = (args.data, args.cells, args.sides, args.backend)
    items = [(name, with_hand, *rest) for with_hand in hands for name in names]
    items += [(name, False, *rest) for name in args.also]
    rows = []
    with multiprocessing.get_context("spawn").Pool(args.workers, maxtasksperchild=1) as pool:
        for row in pool.imap_unordered(trial, items):
            rows.append(row)
            print(json.dumps(row), flush=True)
            print(line(row), file=sys.stderr, flush=True)
    left = [n for n in args.only if not known(n, args.data)]
    print(f"\n{len(rows)} recordings" + (f"; no data for {', '.join(left)} (--data)" if left else ""), file=sys.stderr)
    for row in sorted(rows, key=lambda r: (r["hand"], r["object"])):
        print(line(row), file=sys.stderr)


if __name__ == "__main__":
    main()
