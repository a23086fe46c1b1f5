"""What `bench_cuda.py` measures on one device: iterations, gradients, growth to a million nodes, batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import cupy
import numpy as np
from cuda_scenes import Scene, block, model_of

from soft_estimator.backends.cuda import load_cuda_backend, stepper
from soft_estimator.backends.cuda.linear import BatchSolver
from soft_estimator.backends.interface import Backend
from soft_estimator.physics.fused import FusedBatch
from soft_estimator.physics.fused_guard import failed
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.studies.bench import iteration_bytes, median_seconds, peer_module

STEPS = 30
PRECISIONS = (np.float32, np.float64)


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """Median wall time of `work`, after one run to warm up; the device is idle before and after."""
    return median_seconds(work, load_cuda_backend(), repeats)


def bench_cg(backend: Backend, bandwidth: float, sizes: list[int]) -> list[dict]:
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


def bench_ratios(backend: Backend, scenes: list[Scene], ratios: tuple[float, ...] = (0.45, 0.49, 0.499)) -> list[dict]:
    """A step's time and iterations towards ν = ½, and the time over that at the first ratio."""
    rows = []
    for body, grip, parameters in scenes:
        model, first = model_of(body, grip, np.float64), 0.0
        for ratio in ratios:
            batch = FusedBatch(model, [parameters.replace(poissons_ratio=ratio)], backend)
            per = seconds(partial(batch.roll, batch.initial(), STEPS), 5) / STEPS
            first = first or per
            iterations = float(batch.roll(batch.initial(), STEPS).report[..., 0].mean())
            row = {"cells": body.cell_count, "nu": ratio, "step_ms": 1e3 * per, "times": per / first}
            rows.append(row | {"iterations": iterations})
            print(rows[-1], flush=True)
    return rows


def gradient_run(batch: FusedBatch, steps: int = STEPS) -> tuple:
    roll = batch.roll(batch.initial(), steps)
    gradients, report = batch.roll_back(roll, lambda k: (roll.u[k], None, None) if k else None)
    return roll, gradients, report


def bench_gradient(backend: Backend, scenes: dict[str, Scene], with_jax: bool) -> list[dict]:
    rows = []
    for name, (body, grip, parameters) in scenes.items():
        for dtype in PRECISIONS:
            model = model_of(body, grip, dtype)
            rows.append({"scene": name} | one_gradient(FusedBatch(model, [parameters], backend), parameters, with_jax))
            print(rows[-1], flush=True)
    return rows


def one_gradient(batch: FusedBatch, parameters: Parameters, with_jax: bool) -> dict:
    roll, gradients, report = gradient_run(batch)
    reports = np.concatenate([batch.backend.to_host(x) for x in (roll.report, report)])[:, 0]
    row: dict[str, Any] = {
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


def time_jax(model: Model, parameters: Parameters, batch: FusedBatch) -> dict:
    module = peer_module()
    if module is None:
        raise ValueError("JAX is not installed; pip install jax, or give --no-jax")
    import jax

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


def bench_growth(backend: Backend, sizes: list[int]) -> list[dict]:
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
        "iterations": float(batch.backend.to_host(roll.report)[:, 0, 0].mean()),
    }


def sets_around(p: Parameters, count: int) -> list[Parameters]:
    """From half to twice the stiffness."""
    factors = np.geomspace(0.5, 2.0, count) if count > 1 else [1.0]
    return [p.replace(youngs_modulus_pa=p.youngs_modulus_pa * f) for f in factors]


def bench_batch(backend: Backend, scene: Scene, counts: list[int]) -> list[dict]:
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


def bench_few(backend: Backend, scene: Scene, counts: list[int]) -> list[dict]:
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
        "solver": type(stepper.own_stepper(batch.stepper).solver).__name__,
        "forward_ms": 1e3 * seconds(lambda: batch.roll(states, STEPS), 3),
        "gradient_ms": 1e3 * seconds(lambda: gradient_run(batch), 3),
    }
