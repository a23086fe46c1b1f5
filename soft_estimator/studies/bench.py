"""How fast this machine simulates, differentiates and looks: measured, beside what its memory would allow at best.

Every row times one thing of one scene on one backend: a step, a conjugate gradient iteration, a gradient (forward run
and adjoint), an evaluation of the point-cloud cost. The floor is the time its memory needs to move the least bytes that
the method must move once: each matrix once an iteration, each vector once each time it is read or written.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.variables import make_variables
from soft_estimator.physics.adjoint import Adjoint
from soft_estimator.physics.fused import FusedBatch, can_fuse
from soft_estimator.physics.model import Model, State
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation
from soft_estimator.studies.bench_scenes import SCENES, STEP_S, Scene, model_of

Progress = Callable[[str, int, int], None]
PARTS = ("iteration", "step", "gradient", "cost")
FRAME_POINTS = 1000  # what a depth camera's frame is thinned to, roughly
_JAX_PEER = Path(__file__).resolve().parents[2] / "benchmark" / "jax_peer.py"  # in a source checkout
# Copied to measure the bandwidth: several times the last cache of either.
_COPY_BYTES = {"cpu": 1 << 27, "cuda": 1 << 30}


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        what: iteration (of conjugate gradients), step, gradient or cost. scene, nodes, precision: of what.
        ms: median wall time. steps: time steps in it. iterations: of conjugate gradients in it.
        bytes: the least it must move. floor_ms: what that takes at the measured bandwidth. ratio: ms over floor_ms.
        jax_ms: the same in JAX, where it is installed and knows it.
    """

    what: str
    scene: str
    nodes: int
    precision: str
    ms: float
    steps: int
    iterations: int
    bytes: int
    floor_ms: float
    ratio: float
    jax_ms: float | None = None


def median_seconds(work: Callable[[], object], backend: Backend, repeats: int) -> float:
    """Median wall time of `work` after one run to warm up; the device is idle before and after."""
    times = []
    for k in range(repeats + 1):
        backend.wait()
        start = perf_counter()
        work()
        backend.wait()
        if k:
            times.append(perf_counter() - start)
    return float(np.median(times))


def copy_bandwidth(backend: Backend) -> float:
    """Bytes read and written per second by a large copy where the backend computes."""
    a = backend.to_device(np.random.default_rng(0).random(_COPY_BYTES[backend.name] // 8))
    b = backend.xp.empty_like(a)
    return 2 * a.nbytes / median_seconds(lambda: backend.xp.copyto(b, a), backend, 5)


def iteration_bytes(model: Model) -> int:
    """The least an iteration must move: matrix and columns once, x r p Ap read and written, z written, M⁻¹ read."""
    size = np.dtype(model.dtype).itemsize
    return len(model.body.column) * (9 * size + 4) + model.body.node_count * size * (3 * 8 + 3 + 9)


def step_bytes(model: Model, iterations: float) -> int:
    """A step: its iterations, the matrix written once, the cells' rotations and forces, the state read and written."""
    size = np.dtype(model.dtype).itemsize
    cells = model.body.cell_count * size * (2 * 9 + 2 * 24)
    state = model.body.node_count * size * (9 + 9 + 9)
    return int(iterations * iteration_bytes(model)) + 9 * size * len(model.body.column) + cells + state


class Bench:
    """Measures one scene on a backend."""

    def __init__(
        self, name: str, scene: Scene, dtype: type, backend: Backend, bandwidth: float, steps: int, repeats: int
    ) -> None:
        body, grip, self.parameters = scene
        self.name, self.backend, self.bandwidth = name, backend, bandwidth
        self.steps, self.repeats = steps, repeats
        self.model = model_of(body, grip, dtype)
        self.fused = can_fuse(self.model, backend)
        self.simulation = Simulation(self.model, self.parameters, backend)

    def row(
        self, what: str, seconds: float, least_bytes: int, steps: int, iterations: float, jax_ms: float | None = None
    ) -> Row:
        floor = least_bytes / self.bandwidth
        return Row(
            *(what, self.name, self.model.body.node_count, np.dtype(self.model.dtype).name, 1e3 * seconds, steps),
            *(round(iterations), least_bytes, 1e3 * floor, seconds / floor, jax_ms),
        )

    def iteration(self) -> Row:
        """The difference between solves of 80 and of 20 iterations, over 60."""
        s = self.simulation
        state = s.initial_state()
        lin = s.linearise(state)
        rhs = s.right_hand_side(lin.stage, lin.at)
        system = (lin.system.row_start, lin.system.column, lin.system.blocks, lin.system.inverse)

        def run(limit: int) -> None:  # a tolerance out of reach: as many iterations as allowed
            self.backend.conjugate_gradient(*system, rhs, self.backend.xp.zeros_like(rhs), s.device.free, 1e-300, limit)

        long, short = (median_seconds(partial(run, n), self.backend, 3 * self.repeats) for n in (80, 20))
        return self.row("iteration", max(long - short, 1e-9) / 60, iteration_bytes(self.model), 0, 1)

    def roll(self) -> tuple[list[State], int]:
        """Some steps from the start, and the iterations they took."""
        if self.fused:
            batch = self._batch()
            roll = batch.roll(batch.initial(), self.steps)
            return roll.states(), int(roll.report[:, 0, 0].sum())
        states, iterations = [self.simulation.initial_state()], 0
        for _ in range(self.steps):
            after, report = self.simulation.step(states[-1])
            states.append(after)
            iterations += report.solve.iterations
        return states, iterations

    def _batch(self) -> FusedBatch:
        if not hasattr(self, "_kept"):
            self._kept = FusedBatch(self.model, [self.parameters], self.backend)
        return self._kept

    def step(self) -> Row:
        _, iterations = self.roll()
        seconds = median_seconds(self.roll, self.backend, self.repeats) / self.steps
        per = iterations / self.steps
        return self.row("step", seconds, step_bytes(self.model, per), 1, per)

    def gradient(self, with_peer: bool) -> Row:
        """½ Σ |u|² over the steps, by all parameters."""
        iterations = self._gradient()
        seconds = median_seconds(self._gradient, self.backend, self.repeats)
        jax_ms = time_peer(self.model, self.parameters, self.simulation, self.steps) if with_peer else None
        least = step_bytes(self.model, iterations / (2 * self.steps))
        return self.row("gradient", seconds, 2 * self.steps * least, self.steps, iterations, jax_ms)

    def _gradient(self) -> int:
        if self.fused:
            batch = self._batch()
            roll = batch.roll(batch.initial(), self.steps)
            _, solves = batch.roll_back(roll, lambda k: (roll.u[k], None, None) if k else None)
            return int(roll.report[:, 0, 0].sum() + solves[:, 0, 0].sum())
        states, iterations = self.roll()
        adjoint = Adjoint(self.simulation)
        bar = adjoint.zero_state()
        for before, after in zip(states[-2::-1], states[:0:-1]):
            bar.u += after.u
            bar, solved = adjoint.step_back(before, after, bar)
            iterations += solved.iterations
        adjoint.finish(bar)
        return iterations

    def cost(self) -> Row:
        """The point-cloud cost over a frame every other step, as one evaluation of an estimation."""
        states, iterations = self.roll()
        frames = [self._frame(k, states[k]) for k in range(2, self.steps + 1, 2)]
        variables = make_variables(self.parameters, ["youngs_modulus_pa", "poissons_ratio"])
        problem = Problem(self.model, variables, frames, backend=self.backend)
        theta = variables.start()
        seconds = median_seconds(lambda: problem.evaluate(theta), self.backend, self.repeats)
        least = self.steps * step_bytes(self.model, iterations / self.steps) + 24 * FRAME_POINTS * len(frames)
        return self.row("cost", seconds, least, self.steps, iterations)

    def _frame(self, k: int, state: State) -> ObservedFrame:
        body, rng = self.model.body, np.random.default_rng(k)
        surface = body.surface_positions_m(np.asarray(self.backend.to_host(state.u), np.float64))
        points = surface[rng.integers(len(surface), size=FRAME_POINTS)]
        return ObservedFrame.of(k * STEP_S, points + rng.normal(scale=1e-3, size=points.shape), 1e-3)


def run_bench(
    backend: Backend,
    *,
    sizes: Iterable[int],
    scenes: Iterable[str] = tuple(SCENES),
    precisions: Iterable[str] = ("float32", "float64"),
    parts: Iterable[str] = PARTS,
    steps: int = 30,
    repeats: int = 3,
    with_peer: bool = True,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """All rows, as numbers for JSON.

    Args:
        sizes: about how many nodes. with_peer: also time the JAX implementation where there is one.
    """
    known = [p for p in precisions if backend.single_precision or p == "float64"]
    if not known:
        raise ValueError(f"{backend.name} computes in float64 alone; leave float32 to a GPU")
    bandwidth = copy_bandwidth(backend)
    todo = [(n, s, p) for n in sizes for s in scenes for p in known]
    parts, rows = list(parts), []
    for k, (nodes, name, precision) in enumerate(todo):
        bench = Bench(name, SCENES[name](nodes), np.dtype(precision).type, backend, bandwidth, steps, repeats)
        for j, part in enumerate(parts):
            if progress:
                progress("measuring", k * len(parts) + j, len(todo) * len(parts))
            rows.append(bench.gradient(with_peer) if part == "gradient" else getattr(bench, part)())
    if progress:
        progress("measuring", len(todo) * len(parts), len(todo) * len(parts))
    return {
        "backend": backend.name,
        "device": backend.device_name(),
        "copy_bytes_per_s": bandwidth,
        "step_s": STEP_S,
        "rows": [asdict(row) for row in rows],
    }


def peer_module() -> ModuleType | None:
    """The same step and gradient in JAX (benchmark/jax_peer.py), None where it or JAX is missing."""
    if not _JAX_PEER.exists() or importlib.util.find_spec("jax") is None:
        return None
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")
    spec = importlib.util.spec_from_file_location("jax_peer", _JAX_PEER)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def time_peer(
    model: Model, parameters: Parameters, simulation: Simulation, steps: int, repeats: int = 3
) -> float | None:
    """Milliseconds of one gradient of ½ Σ |u|² in JAX, compiled before; None where there is no peer."""
    module = peer_module()
    if module is None:
        return None
    import jax

    peer, material = module.Peer(model), module.material_of(parameters, np.dtype(model.dtype))
    first = simulation.initial_state()
    state = tuple(jax.numpy.asarray(simulation.backend.to_host(x)) for x in (first.u, first.v, first.a))
    times = []
    for k in range(repeats + 1):
        start = perf_counter()
        jax.block_until_ready(peer.gradient(material, state, steps))
        if k:
            times.append(perf_counter() - start)
    return 1e3 * float(np.median(times))
