"""Times what `soft-estimator bench` leaves out of the CUDA backend: growth to a million nodes, batches with matrices
and without, the dragon, the first run after an installation, and the gradients' agreement with the JAX peer.

python benchmark/bench_cuda.py [--data FOLDER] [--only start,cg,gradient,ratios,growth,batch,few] [--no-jax]
                               [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter

from cuda_scenes import dragon, torus

from soft_estimator.backends.choose import BackendUnavailable
from soft_estimator.backends.cuda import load_cuda_backend
from soft_estimator.backends.interface import Backend
from soft_estimator.studies.bench import copy_bandwidth

PARTS = ("start", "cg", "gradient", "ratios", "growth", "batch", "few")


def measure(backend: Backend, bandwidth: float, args: argparse.Namespace) -> dict[str, list[dict]]:
    """The rows of the parts that were asked for."""
    from cuda_parts import bench_batch, bench_cg, bench_few, bench_gradient, bench_growth, bench_ratios
    from cuda_start import bench_start

    only, scenes = args.only.split(","), {"torus": torus(0.00298)}
    if args.data:
        scenes["dragon"] = dragon(args.data / "dragon_medium.sdf")
    rows: dict[str, list[dict]] = {}
    if "start" in only:
        rows["start"] = bench_start()
    if "gradient" in only:
        rows["gradient"] = bench_gradient(backend, scenes, not args.no_jax)
    if "ratios" in only:
        rows["ratios"] = bench_ratios(backend, [torus(0.0023), torus(0.00144)])
    if "batch" in only:
        rows["batch"] = bench_batch(backend, scenes["torus"], [4, 8, 16, 32])
    if "few" in only:
        rows["few"] = bench_few(backend, scenes["torus"], [2, 3, 4, 5, 6, 8])
    for size in map(int, args.sizes.split(",")):  # the slow part last, smallest first
        if "cg" in only:
            rows.setdefault("cg", []).extend(bench_cg(backend, bandwidth, [size]))
        if "growth" in only:
            rows.setdefault("growth", []).extend(bench_growth(backend, [size]))
    return rows


def table(title: str, rows: list[dict]) -> str:
    if not rows:
        return ""
    names = list(rows[0])
    cells = [[f"{r[n]:.4g}" if isinstance(r[n], float) else str(r[n]) for n in names] for r in rows]
    lines = [f"\n## {title}", "| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(c) + " |" for c in cells)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with dragon_medium.sdf")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--no-jax", action="store_true")
    parser.add_argument("--sizes", default="1000,9261,29791,100000,300000,1000000")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    start = perf_counter()
    try:
        backend = load_cuda_backend()
    except BackendUnavailable as reason:
        print(f"nothing to measure: {reason}")
        return 0
    bandwidth, name = copy_bandwidth(backend), backend.device_name()
    result: dict = {"device": name, "copy_tb_s": bandwidth / 1e12, "load_s": perf_counter() - start}
    result |= measure(backend, bandwidth, args)
    print(f"\n{name}, copy {bandwidth / 1e12:.2f} TB/s, loaded in {result['load_s']:.1f} s")
    for part in PARTS:
        print(table(part, result.get(part, [])))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
