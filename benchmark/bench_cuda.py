"""Times what `soft-estimator bench` leaves out of the CUDA backend: growth to a million nodes, batches with matrices
and without, the dragon, the first run after an installation, and the gradients' agreement with the JAX peer.

python benchmark/bench_cuda.py [--data FOLDER] [--only start,cg,gradient,growth,batch,few] [--no-jax] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import cupy
import numpy as np
from bench_window import bouncing_ball, time_updates, window_of
from cuda_scenes import block, dragon, model_of, torus

from soft_estimator.backends.cuda import kernels, load_cuda_backend, stepper
from soft_estimator.backends.cuda.linear import BatchSolver
from soft_estimator.physics.fused import FusedBatch, failed
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.studies.bench import copy_bandwidth, iteration_bytes, median_seconds, peer_module

STEPS = 30
PARTS = ("start", "cg", "gradient", "growth", "batch", "few")
PRECISIONS = (np.float32, np.float64)


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """Median wall time of `work`, after one run to warm up; the device is idle before and after."""
    return median_seconds(work, load_cuda_backend(), repeats)


def bench_cg(backend, bandwidth: float, sizes: list[int]) -> list[dict]:
    rows = []
    for nodes in sizes:
        body, grip, parameters = block(nodes)
        for dtype in PRECISIONS:
            rows.append(one_cg(Simulation(model_of(body, grip, dtype), parameters, backend), bandwidth))
            print(rows[-1], flush=True)
            cupy.get_default_memory_pool().free_all_blocks()
    return rows


def one_cg(sim: Simulation, bandwidth: float) -> dict:
    """An iteration's time: the difference between solves of 20 and of 80 of them."""
    state = sim.initial_state()
    lin = sim.linearise(state)
    rhs = sim.right_hand_side(lin.stage, lin.at)
    solver = BatchSolver(sim.device.row_start, sim.device.column, sim.device.free, 1, sim.model.dtype)

    def run(limit: int) -> cupy.ndarray:
        return solver.solve(lin.system.blocks, lin.system.inverse, rhs, cupy.zeros_like(rhs), 1e-30, limit)

    per = (seconds(lambda: run(80), 21) - seconds(lambda: run(20), 21)) / (run(80).get()[0, 0] - 20)
    nodes = sim.model.body.node_count
    floor = iteration_bytes(sim.model) / bandwidth
    return {
        "nodes": nodes,
        "precision": np.dtype(sim.model.dtype).name,
        "kernel": solver.plan.function.split("_")[-1],
        "iteration_us": float(1e6 * per),
        "floor_us": 1e6 * floor,
        "ratio": float(per / floor),
    }


def gradient_run(batch: FusedBatch, steps: int = STEPS) -> tuple:
    roll = batch.roll(batch.initial(), steps)
    gradients, report = batch.roll_back(roll, lambda k: (roll.u[k], None, None) if k else None)
    return roll, gradients, report


def bench_gradient(backend, scenes: dict, with_jax: bool) -> list[dict]:
    rows = []
    for name, (body, grip, parameters) in scenes.items():
        for dtype in PRECISIONS:
            model = model_of(body, grip, dtype)
            rows.append({"scene": name} | one_gradient(FusedBatch(model, [parameters], backend), parameters, with_jax))
            print(rows[-1], flush=True)
    return rows


def one_gradient(batch: FusedBatch, parameters: Parameters, with_jax: bool) -> dict:
    roll, gradients, report = gradient_run(batch)
    reports = np.concatenate([roll.report.get(), report.get()])[:, 0]
    row = {
        "nodes": batch.model.body.node_count,
        "precision": np.dtype(batch.model.dtype).name,
        "iterations": int(reports[:, 0].sum()),
        "failed": sum(map(failed, reports)),
        "forward_ms": 1e3 * seconds(lambda: batch.roll(batch.initial(), STEPS)),
        "gradient_ms": 1e3 * seconds(lambda: gradient_run(batch)),
        "dE": float(gradients[0].youngs_modulus_pa[0]),
        "dnu": float(gradients[0].poissons_ratio),
    }
    if with_jax:
        row |= time_jax(batch.model, parameters, batch)
        row["speedup"] = row["jax_gradient_ms"] / row["gradient_ms"]
    return row


def time_jax(model, parameters: Parameters, batch: FusedBatch) -> dict:
    import jax

    module = peer_module()
    peer, material = module.Peer(model), module.material_of(parameters, np.dtype(model.dtype))
    first = batch.initial()[0]
    state = tuple(jax.numpy.asarray(batch.backend.to_host(x)) for x in (first.u, first.v, first.a))

    def timed(work: Callable, repeats: int = 5) -> float:
        jax.block_until_ready(work())
        times = []
        for _ in range(repeats):
            start = perf_counter()
            jax.block_until_ready(work())
            times.append(perf_counter() - start)
        return 1e3 * float(np.median(times))

    _, iterations = peer.roll(material, state, STEPS)
    _, gradient = peer.gradient(material, state, STEPS)
    return {
        "jax_forward_ms": timed(lambda: peer.roll(material, state, STEPS)),
        "jax_gradient_ms": timed(lambda: peer.gradient(material, state, STEPS)),
        "jax_forward_iterations": int(np.sum(iterations)),
        "jax_dE": float(gradient.young),
        "jax_dnu": float(gradient.poisson),
    }


def bench_growth(backend, sizes: list[int]) -> list[dict]:
    rows = []
    for nodes in sizes:
        body, grip, parameters = block(nodes)
        pool = cupy.cuda.MemoryPool()  # of its own: what else is kept on the device does not count
        with cupy.cuda.using_allocator(pool.malloc):
            row = one_growth(FusedBatch(model_of(body, grip, np.float32), [parameters], backend))
        rows.append({**row, "memory_mib": pool.total_bytes() / 2**20})
        print(rows[-1], flush=True)
    return rows


def one_growth(batch: FusedBatch, steps: int = 5) -> dict:
    states = batch.initial()
    roll = batch.roll(states, steps)
    step = seconds(lambda: batch.roll(states, steps), 3) / steps
    back = seconds(lambda: batch.roll_back(roll, lambda k: (roll.u[k], None, None)), 3) / steps
    return {
        "nodes": batch.model.body.node_count,
        "step_ms": 1e3 * step,
        "adjoint_step_ms": 1e3 * back,
        "iterations": float(roll.report.get()[:, 0, 0].mean()),
    }


def sets_around(p: Parameters, count: int) -> list[Parameters]:
    """From half to twice the stiffness."""
    factors = np.geomspace(0.5, 2.0, count) if count > 1 else [1.0]
    return [replace(p, youngs_modulus_pa=p.youngs_modulus_pa * f) for f in factors]


def bench_batch(backend, scene: tuple, counts: list[int]) -> list[dict]:
    """So many starts at once; the ratio is to a single one."""
    body, grip, p = scene
    rows: list[dict] = []
    for dtype in PRECISIONS:
        single = None
        for count in (1, *counts):
            row = one_batch(FusedBatch(model_of(body, grip, dtype), sets_around(p, count), backend))
            single = single or row["gradient_ms"]
            rows.append(row | {"ratio": row["gradient_ms"] / single})
            print(rows[-1], flush=True)
    return rows


def bench_few(backend, scene: tuple, counts: list[int]) -> list[dict]:
    """Gradients of a few systems with matrices and without."""
    body, grip, p = scene
    rows, fewest = [], stepper.FEWEST_WITHOUT_MATRIX
    for dtype in PRECISIONS:
        for count in counts:
            row: dict = {"systems": count, "precision": np.dtype(dtype).name}
            for name, stepper.FEWEST_WITHOUT_MATRIX in (("matrices", 1000), ("cells", 2)):
                batch = FusedBatch(model_of(body, grip, dtype), sets_around(p, count), backend)
                row |= {f"{name}_{k}": v for k, v in one_batch(batch).items() if k.endswith("_ms")}
            rows.append(row)
            print(rows[-1], flush=True)
    stepper.FEWEST_WITHOUT_MATRIX = fewest
    return rows


def one_batch(batch: FusedBatch) -> dict:
    states = batch.initial()
    return {
        "systems": len(states),
        "precision": np.dtype(batch.model.dtype).name,
        "solver": type(batch.stepper.solver).__name__,
        "forward_ms": 1e3 * seconds(lambda: batch.roll(states, STEPS), 3),
        "gradient_ms": 1e3 * seconds(lambda: gradient_run(batch), 3),
    }


def bench_start() -> list[dict]:
    """First uses of what an estimation needs, in fresh processes: with an empty cache, then with a full one."""
    rows = []
    with TemporaryDirectory() as folder:
        for cache in ("any", "empty", "full"):  # the first run is for Numba to compile its loops
            place = {} if cache == "any" else {"CUPY_CACHE_DIR": folder}
            command = [sys.executable, __file__, "--first-uses"]
            done = subprocess.run(command, env=os.environ | place, check=True, stdout=subprocess.PIPE, text=True)
            rows.append({"cache": cache} | json.loads(done.stdout.splitlines()[-1]))
            print(rows[-1], flush=True)
    return rows[1:]


def first_uses(dtype: type = np.float64) -> dict:
    """How much longer things take the first time than the second: a simulation, gradients, the updates of a window.

    That is what compiling and loading kernels cost, ours and those that CuPy makes by itself. threads_s: what compiling
    ours took, added up over the threads that did it.
    """
    modules = time_modules()
    start = perf_counter()
    backend = load_cuda_backend()
    row = {"backend_s": perf_counter() - start}
    body, grip, p = torus(0.006)

    def gradients(count: int) -> None:
        gradient_run(FusedBatch(model_of(body, grip, dtype), sets_around(p, count), backend), 3)

    def window() -> None:
        model, field, frames = bouncing_ball(backend, 1000, 6, dtype)
        time_updates(window_of(model, field, backend, 4, 3), frames)

    for name, work in (("window_s", window), ("gradient_s", lambda: gradients(1)), ("batch_s", lambda: gradients(8))):
        times = [perf_counter()]
        for _ in range(2):
            work()
            backend.wait()
            times.append(perf_counter())
        row[name] = 2 * times[1] - times[0] - times[2]
    return row | {"total_s": sum(row.values()), "threads_s": sum(modules.values()), "modules": len(modules)}


def time_modules() -> dict[tuple, float]:
    """Seconds that each module takes to compile or load from now on."""
    seconds: dict[tuple, float] = {}
    make = kernels._module

    def timed(*arguments: str) -> object:
        module = make(*arguments)
        if arguments not in seconds:
            start = perf_counter()
            module.compile()
            seconds[arguments] = perf_counter() - start
        return module

    kernels._module = timed
    return seconds


def table(title: str, rows: list[dict]) -> str:
    if not rows:
        return ""
    names = list(rows[0])
    cells = [[f"{r[n]:.4g}" if isinstance(r[n], float) else str(r[n]) for n in names] for r in rows]
    lines = [f"\n## {title}", "| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join([*lines, *("| " + " | ".join(c) + " |" for c in cells)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with dragon_medium.sdf")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--no-jax", action="store_true")
    parser.add_argument("--sizes", default="1000,9261,29791,100000,300000,1000000")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--first-uses", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.first_uses:
        print(json.dumps(first_uses()))
        return
    only, sizes = arguments.only.split(","), [int(x) for x in arguments.sizes.split(",")]
    start = perf_counter()
    backend = load_cuda_backend()
    bandwidth = copy_bandwidth(backend)
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    result: dict = {"device": name, "copy_tb_s": bandwidth / 1e12, "load_s": perf_counter() - start}
    scenes = {"torus": torus(0.00298)}
    if arguments.data:
        scenes["dragon"] = dragon(arguments.data / "dragon_medium.sdf")
    if "start" in only:
        result["start"] = bench_start()
    if "gradient" in only:
        result["gradient"] = bench_gradient(backend, scenes, not arguments.no_jax)
    if "batch" in only:
        result["batch"] = bench_batch(backend, scenes["torus"], [4, 8, 16, 32])
    if "few" in only:
        result["few"] = bench_few(backend, scenes["torus"], [2, 3, 4, 5, 6, 8])
    for size in sizes:  # the slow part last, smallest first
        if "cg" in only:
            result.setdefault("cg", []).extend(bench_cg(backend, bandwidth, [size]))
        if "growth" in only:
            result.setdefault("growth", []).extend(bench_growth(backend, [size]))
    print(f"\n{name}, copy {bandwidth / 1e12:.2f} TB/s, loaded in {result['load_s']:.1f} s")
    for part in PARTS:
        print(table(part, result.get(part, [])))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
