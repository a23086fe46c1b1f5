"""Peak memory of a simulation in a process of its own, and how near a step comes to the memory bus."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numba import njit, prange

from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.loads import Loads

MEMORY_STEPS = 3


def peak_bytes() -> int:
    """Largest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def resident_bytes() -> int:
    """Resident size of this process now; its peak where the system does not tell."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * resource.getpagesize() if status.exists() else peak_bytes()


def measure_memory(build: Callable[[float], tuple[Model, Parameters]], resolution: float) -> dict[str, Any]:
    """Run a few steps; what the libraries and the compiled loops take is measured on a tiny body first."""

    def run(at: float) -> int:
        model, parameters = build(at)
        simulation = Simulation(model, parameters)
        state = simulation.initial_state()
        for _ in range(MEMORY_STEPS):
            state, _ = simulation.step(state)
        return model.body.node_count

    run(4)
    base = resident_bytes()
    nodes = run(resolution)
    peak = peak_bytes()
    return {
        "nodes": nodes,
        "steps": MEMORY_STEPS,
        "base_bytes": base,
        "peak_bytes": peak,
        "bytes_per_node": (peak - base) / nodes,
    }


def memory_in_fresh_process(script: Path, resolution: float) -> dict[str, Any]:
    command = [sys.executable, str(script), "--memory-of", f"{resolution:g}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])


@njit(parallel=True)
def _triad(a: np.ndarray, b: np.ndarray, c: np.ndarray, s: float) -> None:
    for i in prange(a.size):
        a[i] = b[i] + s * c[i]


def best_of(function: Callable[[], Any], times: int) -> float:
    """Seconds of the fastest call."""
    seconds = []
    for _ in range(times):
        begin = perf_counter()
        function()
        seconds.append(perf_counter() - begin)
    return min(seconds)


def bandwidth_report(simulation: Simulation, quick: bool) -> dict[str, Any]:
    """Bytes that must move in a matrix product and a CG iteration over the time they take, beside a STREAM triad.

    Each array counts once for each time it is read or written; what a cache keeps of the vectors makes the
    true traffic smaller, so a fraction near one means the memory bus is the bound.
    """
    count = 5_000_000 if quick else 20_000_000
    a, b, c = (np.full(count, value) for value in (0.0, 1.0, 2.0))
    _triad(a, b, c, 3.0)
    triad = 3 * 8 * count / best_of(lambda: _triad(a, b, c, 3.0), 10)

    state = simulation.initial_state()
    system = simulation.linearise(state).system
    rhs = simulation.term(Loads).force.copy()
    nodes, item = len(rhs), rhs.itemsize
    x, out = rhs.copy(), np.empty_like(rhs)
    backend = simulation.backend
    backend.multiply(system.row_start, system.column, system.blocks, x, out)
    product_s = best_of(lambda: backend.multiply(system.row_start, system.column, system.blocks, x, out), 20)
    vector = 3 * nodes * item
    matrix = system.blocks.nbytes + system.column.nbytes + system.row_start.nbytes
    product = matrix + 2 * vector

    def iterate(iterations: int) -> Callable[[], Any]:
        # a tolerance out of reach: exactly this many iterations
        return lambda: backend.conjugate_gradient(
            system.row_start,
            system.column,
            system.blocks,
            system.inverse,
            rhs,
            np.zeros_like(rhs),
            system.free,
            1e-300,
            iterations,
        )

    iterate(1)()
    few, many = 5, 25
    iteration_s = (best_of(iterate(many), 5) - best_of(iterate(few), 5)) / (many - few)
    # product: matrix, p in, ap out; update: x, p, r, ap, z and the preconditioner; new direction: z, p in and out
    iteration = matrix + 2 * vector + (2 + 1 + 2 + 1 + 1) * vector + system.inverse.nbytes + 3 * vector
    return {
        "nodes": nodes,
        "triad_bytes_per_s": triad,
        "spmv_bytes": product,
        "spmv_s": product_s,
        "spmv_bytes_per_s": product / product_s,
        "spmv_fraction": product / product_s / triad,
        "cg_bytes": iteration,
        "cg_s": iteration_s,
        "cg_bytes_per_s": iteration / iteration_s,
        "cg_fraction": iteration / iteration_s / triad,
    }
