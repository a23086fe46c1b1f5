"""Launches the block-sparse matrix loops and the persistent conjugate gradient kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import cupy
import numpy as np
import numpy.typing as npt

from soft_estimator.backends.cuda.arrays import precision, real_of, typed, writing
from soft_estimator.backends.cuda.kernels import allow_shared_bytes, compile_ahead, kernel, launch
from soft_estimator.backends.interface import Array
from soft_estimator.backends.loops import BREAKDOWN, CONVERGED, LIMIT

_SCRATCH_BYTES = 100 * 8
_VECTOR_NUMBERS = 28  # of a row in shared memory: x, r, p, A p, z, A z, inverse diagonal block, free
_HALO_NUMBERS = 4  # of a node in shared memory that the rows read
_RESIDENT_THREADS = 768  # as in conjugate_gradient_resident.cu
_BLOCKS_A_ROW = 25  # about; 27 inside a body
_STREAM_THREADS, _STREAM_BLOCKS_AN_SM = 512, 2
_RESIDENT_SHARE = 0.25  # of the matrix that must fit in shared memory for the resident kernel
_LARGEST_ROOM = 1 << 30
_FEWEST_ROWS = 16  # below that, more thread blocks only make the waiting longer


_MOST_PAIRS = 16  # as in linear.cu
_PAIRS = np.dtype([("words", np.uint64, (_MOST_PAIRS, 4))])  # `struct Pairs`, which goes to the kernel by value


def sums(pairs: Sequence[tuple[Array, Array | None]]) -> list[float]:
    found: list[float] = []
    for first in range(0, len(pairs), _MOST_PAIRS):
        found.extend(_few_sums(pairs[first : first + _MOST_PAIRS]))
    return found


def _few_sums(pairs: Sequence[tuple[Array, Array | None]]) -> list[float]:
    given, words, kept = np.zeros(1, _PAIRS), [], []
    for a, b in pairs:
        arrays = [cupy.ascontiguousarray(x) for x in (a, b) if x is not None]
        kept.append(arrays)  # until the kernel has been launched
        wide = sum((x.dtype == np.float64) << k for k, x in enumerate(arrays))
        words.append((arrays[0].data.ptr, arrays[1].data.ptr if b is not None else 0, arrays[0].size, wide))
    given["words"][0, : len(pairs)] = words
    out = cupy.empty(len(pairs))
    kernel("linear", "sums", "float64")((len(pairs),), (1024,), (given, out))
    return out.get().tolist()


def multiply(row_start: Array, column: Array, blocks: Array, x: Array, out: Array) -> None:
    real = real_of(blocks)
    with writing(out, real) as y:
        launch("linear", "multiply", real, 8 * len(y), len(y), row_start, column, blocks, typed(x, real), y)


def multiply_scalars(row_start: Array, column: Array, values: Array, x: Array, out: Array) -> None:
    real, (rows, width) = real_of(values), out.shape
    with writing(out, real) as y:
        arguments = (rows, width, row_start, column, values, typed(x, real), y)
        launch("linear", "multiply_scalars", real, rows * width, *arguments)


def invert_diagonal(blocks: Array, slot: Array, free: Array, out: Array) -> None:
    real = real_of(blocks)
    with writing(out, real) as y:
        launch("linear", "invert_diagonal", real, len(y), len(y), blocks, slot, typed(free, real), y)


def add_blocks(slots: Array, values: Array, blocks: Array) -> None:
    real = real_of(blocks)
    slots = typed(slots, np.int64)
    order = typed(cupy.argsort(slots), np.int64)  # CuPy's sort is stable: equal slots keep their order
    launch("linear", "add_blocks", real, len(slots), len(slots), slots, order, typed(values, real), blocks)


_SOLVERS: dict[tuple, BatchSolver] = {}  # the last few; each holds its pattern, so an address means the same pattern
_SOLVERS_KEPT = 8


def _solver(row_start: cupy.ndarray, column: cupy.ndarray, systems: int, real: np.dtype) -> BatchSolver:
    key = (row_start.data.ptr, column.data.ptr, len(row_start), systems, real.name)
    if key not in _SOLVERS:
        while len(_SOLVERS) >= _SOLVERS_KEPT:
            del _SOLVERS[next(iter(_SOLVERS))]
        _SOLVERS[key] = BatchSolver(row_start, column, cupy.ones(len(row_start) - 1, real), systems, real)
    _SOLVERS[key].shared_matrix = False
    return _SOLVERS[key]


def conjugate_gradient(
    row_start: Array,
    column: Array,
    blocks: Array,
    inverse: Array,
    b: Array,
    x: Array,
    free: Array,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    """One system; waits for the result."""
    real = real_of(x)
    solver = _solver(row_start, column, 1, real)
    solver.free = typed(free, real)
    with writing(x, real) as y:
        report = solver.solve(typed(blocks, real), typed(inverse, real), typed(b, real), y, tolerance, limit)
    iterations, residual, status = report.get()[0]
    return int(iterations), float(residual), int(status)


def conjugate_gradient_many(
    row_start: Array,
    column: Array,
    blocks: Array,
    inverse: Array,
    b: Array,
    x: Array,
    free: Array,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    """Several right-hand sides (N, 3, B) of one matrix; iterations of the slowest, worst residual and status."""
    real = real_of(x)
    solver = _solver(row_start, column, b.shape[2], real)
    solver.free, solver.shared_matrix = typed(free, real), True
    rhs = cupy.ascontiguousarray(cupy.moveaxis(typed(b, real), 2, 0))
    y = cupy.ascontiguousarray(cupy.moveaxis(x, 2, 0))
    report = solver.solve(typed(blocks, real), typed(inverse, real), rhs, y, tolerance, limit).get()
    x[...] = cupy.moveaxis(y, 0, 2)
    worst = report[:, 1].max() if np.isfinite(report[:, 1]).all() else np.inf
    status = BREAKDOWN if (report[:, 2] == BREAKDOWN).any() else LIMIT if report[:, 2].any() else CONVERGED
    return int(report[:, 0].max()), float(worst), int(status)


@dataclass(frozen=True)
class Plan:
    """How a batch is spread over the device: thread blocks a system, threads, matrix blocks in shared memory."""

    function: str
    team: int
    threads: int
    room: int
    shared_bytes: int
    systems_at_once: int


@dataclass(frozen=True)
class Halo:
    """The nodes that each thread block of a team reads: nodes[start[b]:start[b + 1]], `wide` at most.

    local: where a matrix block's column stands in the list of the thread block that has its row. most_blocks: matrix
    blocks that a thread block has at most.
    """

    nodes: Array
    start: Array
    local: Array
    wide: int
    most_blocks: int


def find_halo(row_start: Array, column: Array, nodes: int, team: int) -> Halo:
    """List the nodes that each of `team` equal ranges of rows reads."""
    share = (nodes + team - 1) // team
    first = cupy.minimum(cupy.arange(team + 1) * share, nodes)
    place = row_start[first]
    rank = cupy.searchsorted(place, cupy.arange(len(column)), side="right") - 1
    key, local = cupy.unique(rank * nodes + column, return_inverse=True)
    start = cupy.searchsorted(key, cupy.arange(team + 1) * nodes)
    local = local.ravel() - start[rank]
    wide = int((start[1:] - start[:-1]).max())
    most = int((place[1:] - place[:-1]).max())
    return Halo(typed(key % nodes, np.int32), typed(start, np.int32), typed(local, np.uint16), wide, most)


def plan(row_start: Array, column: Array, nodes: int, systems: int, size: int) -> tuple[Plan, Halo | None]:
    """Keep the matrix in shared memory where a good part of it fits, else stream it from global memory."""
    attributes = cupy.cuda.Device().attributes
    processors, shared = attributes["MultiProcessorCount"], attributes["MaxSharedMemoryPerBlockOptin"]
    team = max(1, min(processors // systems, (nodes + _FEWEST_ROWS - 1) // _FEWEST_ROWS))
    share = (nodes + team - 1) // team
    vectors = _SCRATCH_BYTES + share * _VECTOR_NUMBERS * size + 4 * (share + 1) + 16
    # Without the halo, which is found only where there is a chance.
    if (shared - vectors) // (9 * size + 2) >= _RESIDENT_SHARE * _BLOCKS_A_ROW * share:
        halo = find_halo(row_start, column, nodes, team)
        fixed = vectors + halo.wide * _HALO_NUMBERS * size
        room = min(27 * share, (shared - fixed) // (9 * size + 2), _LARGEST_ROOM)
        if room >= _RESIDENT_SHARE * _BLOCKS_A_ROW * share and halo.wide < 1 << 16:
            threads = min(_RESIDENT_THREADS, max(96, (8 * share + 31) // 32 * 32))
            used = fixed + room * (9 * size + 2)
            return Plan("conjugate_gradient_resident", team, threads, room, used, processors // team), halo
    team, teams = streaming_team(nodes, systems), processors * _STREAM_BLOCKS_AN_SM
    return Plan("conjugate_gradient_streamed", team, _STREAM_THREADS, 0, _SCRATCH_BYTES, teams // team), None


def streaming_team(nodes: int, systems: int) -> int:
    """Thread blocks for each of so many systems that stream their matrices."""
    teams = cupy.cuda.Device().attributes["MultiProcessorCount"] * _STREAM_BLOCKS_AN_SM
    return max(1, min(teams // systems, (nodes + _FEWEST_ROWS - 1) // _FEWEST_ROWS))


class BatchSolver:
    """Conjugate gradients for a number of systems with the same pattern, launched together."""

    def __init__(
        self,
        row_start: Array,
        column: Array,
        free: Array,
        systems: int,
        real: npt.DTypeLike,
        *,
        shared_matrix: bool = False,
    ) -> None:
        self.row_start, self.column, self.free = row_start, column, free
        self.nodes, self.real, self.shared_matrix = len(free), precision(real), shared_matrix
        self.plan, self.halo = plan(row_start, column, self.nodes, systems, self.real.itemsize)
        levels = ("LEVELS=1",) if self.plan.function == "conjugate_gradient_resident" else ()
        self._module = (self.plan.function, self.real.name, *levels)
        compile_ahead(self._module)
        # z (N, 4), or two sets of its words of 16 bytes with a tag in each; the largest tag used so far.
        streamed = self.plan.room == 0
        self.z = cupy.zeros((systems, self.nodes, 4 if streamed else 8), real)
        self.work = self.z  # nothing, unless blocks must be laid out anew
        if streamed:
            self.work = cupy.empty((systems, 12 * self.nodes + 9 * len(column)), real)
        elif self.halo is not None and self.halo.most_blocks > self.plan.room:
            self.work = cupy.empty((systems, 9 * len(column)), real)
        self.places = cupy.zeros((systems, 2, 3, self.plan.team, 2))
        self.tag = 0

    @cached_property
    def kernel(self) -> cupy.RawKernel:
        name, *options = self._module
        out = kernel(name, name, *options)
        allow_shared_bytes(out, self.plan.shared_bytes)
        return out

    def solve(
        self,
        blocks: Array,
        inverse: Array,
        b: Array,
        x: Array,
        tolerance: float,
        limit: int,
        report: Array | None = None,
    ) -> cupy.ndarray:
        """Solve from the guesses in x, which is overwritten; does not wait.

        Args:
            blocks: (systems, B, 9) or (B, 9) where shared. inverse: (systems, N, 9) or (N, 9). b, x: (systems, N, 3).
            report: out, (systems, 3): iterations, relative residual, status.
        """
        systems = b.size // (3 * self.nodes)
        if report is None:
            report = cupy.empty((systems, 3))
        tag = self._next_tag(limit)
        strides = (0, 0) if self.shared_matrix else (9 * len(self.column), 9 * self.nodes)
        ending = (np.int64(strides[0]), np.int64(strides[1]), np.float64(tolerance), np.int32(limit), np.uint32(tag))
        all_of_them = (blocks, inverse, self.free, b, x, self.z, self.work)
        each = (strides[0], strides[1], 0, 3 * self.nodes, 3 * self.nodes, self.z[0].size, self.work[0].size)
        for first in range(0, systems, self.plan.systems_at_once):
            last = min(systems, first + self.plan.systems_at_once)
            given, where = all_of_them, (self.places, report)
            if first:  # the arrays as they are begin with the first system
                given = tuple(array.reshape(-1)[first * size :] for array, size in zip(given, each))
                where = (self.places[first:], report.reshape(systems, 3)[first:])
            arguments = (*self.pattern, *given, *ending, *where)
            blocks_of_threads = ((last - first) * self.plan.team,)
            self.kernel(blocks_of_threads, (self.plan.threads,), arguments, shared_mem=self.plan.shared_bytes)
        return report

    @cached_property
    def pattern(self) -> tuple:
        """What is the same in every solve."""
        nothing = np.uint64(0)
        halo = (self.halo.nodes, self.halo.start, self.halo.local) if self.halo else (nothing, nothing, nothing)
        numbers = (self.nodes, self.plan.team, self.plan.room, self.halo.wide if self.halo else 0)
        return (*map(np.int32, numbers), self.row_start, self.column, *halo)

    def _next_tag(self, limit: int) -> int:
        """The first of the tags of a solve; an iteration uses two, and the start and restarts a few more."""
        tag, self.tag = self.tag, self.tag + 2 * limit + 64
        if self.tag < 1 << 32:
            return tag
        self.z[...] = 0  # all numbers used up: forget the old tags and start again
        self.places[...] = 0
        self.tag = 2 * limit + 64
        return 0
