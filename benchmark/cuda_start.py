"""What the first use of the CUDA backend costs after an installation; run by itself, one process's first uses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
from bench_window import bouncing_ball, time_updates, window_of
from cuda_parts import gradient_run, sets_around
from cuda_scenes import model_of, torus

from soft_estimator.backends.cuda import kernels, load_cuda_backend
from soft_estimator.physics.fused import FusedBatch


def bench_start() -> list[dict]:
    """First uses of what an estimation needs, in fresh processes: with an empty cache, then with a full one."""
    rows = []
    with TemporaryDirectory() as folder:
        for cache in ("any", "empty", "full"):  # the first run is for Numba to compile its loops
            place = {} if cache == "any" else {"CUPY_CACHE_DIR": folder}
            done = subprocess.run(
                [sys.executable, __file__], env=os.environ | place, check=True, stdout=subprocess.PIPE, text=True
            )
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

    vars(kernels).update(_module=timed)
    return seconds


if __name__ == "__main__":
    print(json.dumps(first_uses()))
