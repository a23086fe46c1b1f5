"""Launches conjugate gradients for several right-hand sides of one matrix, which is then read once for all of them."""

from __future__ import annotations

import cupy
import numpy as np
import numpy.typing as npt

from soft_estimator.backends.cuda.arrays import precision
from soft_estimator.backends.cuda.coarse import CudaCoarse
from soft_estimator.backends.cuda.kernels import allow_shared_bytes, compile_ahead, kernel
from soft_estimator.backends.interface import Array

_COLUMNS = "conjugate_gradient_columns"
MOST_COLUMNS = 32  # of a launch, as in columns.cuh
_GROUP = 4  # columns of a thread
_SCRATCH_BYTES, _COLUMNS_BYTES, _PARTS = 100 * 8, 4096, 12
_MOST_THREADS = 512
_FEWEST_ROWS = 16


def column_modules(real: npt.DTypeLike) -> list[tuple[str, ...]]:
    """The kernels without a coarse level and with one, as `compile_ahead` takes them."""
    return [(_COLUMNS, precision(real).name, f"LEVELS={levels}") for levels in (2, 1)]


class ColumnSolver:
    """Systems A x_j = b_j on the free nodes, for one pattern; does not wait for the device.

    Args:
        row_start, column: the pattern. free: (N,), 0 for held nodes. columns: right-hand sides. real: precision.
    """

    def __init__(self, row_start: Array, column: Array, free: Array, columns: int, real: npt.DTypeLike) -> None:
        self.row_start, self.column, self.free = row_start, column, free
        self.nodes, self.real = len(free), precision(real)
        attributes = cupy.cuda.Device().attributes
        self.team = min(attributes["MultiProcessorCount"], (self.nodes + _FEWEST_ROWS - 1) // _FEWEST_ROWS)
        share = (self.nodes + self.team - 1) // self.team
        # Columns are dealt out evenly, so that no launch has few of them.
        launches = (columns + MOST_COLUMNS - 1) // MOST_COLUMNS
        each = (columns + launches - 1) // launches
        self.groups = (each + _GROUP - 1) // _GROUP
        self.ranges = [(k, min(k + each, columns)) for k in range(0, columns, each)]
        # A thread keeps its group: a multiple of 32 and of the groups.
        unit = 32 * self.groups // np.gcd(32, self.groups)
        wanted = (share * self.groups + unit - 1) // unit * unit
        self.threads = int(min(wanted, _MOST_THREADS // unit * unit))
        fixed = _SCRATCH_BYTES + _COLUMNS_BYTES + 8 * _PARTS * self.threads
        a_block = 9 * self.real.itemsize + 4
        room = min(27 * share, (attributes["MaxSharedMemoryPerBlockOptin"] - fixed - 16) // a_block)
        self.room = room // 4 * 4  # keeps the columns behind the blocks aligned
        self.shared_bytes = int(fixed + self.room * a_block)
        self._kernels: dict[bool, cupy.RawKernel] = {}  # without the second level and with it
        compile_ahead(*column_modules(self.real))
        wide = _GROUP * self.groups
        self.work = cupy.empty((7, self.nodes, 3, wide), self.real)
        self.places = cupy.zeros((2, 3, self.team, 2))
        self.sums = cupy.zeros((3 * wide * (self.team + 1), 2))
        self.tag = 0
        self._coarse_work: cupy.ndarray | None = None

    def _kernel(self, coarse: bool) -> cupy.RawKernel:
        if coarse not in self._kernels:
            name, levels = (f"{_COLUMNS}_coarse", "LEVELS=2") if coarse else (_COLUMNS, "LEVELS=1")
            self._kernels[coarse] = kernel(_COLUMNS, name, self.real.name, levels)
            allow_shared_bytes(self._kernels[coarse], self.shared_bytes)
        return self._kernels[coarse]

    def solve(
        self,
        blocks: Array,
        inverse: Array,
        b: Array,
        x: Array,
        tolerance: float,
        limit: int,
        report: Array,
        coarse: CudaCoarse | None = None,
    ) -> None:
        """Solve from the guesses in x, which is overwritten.

        Args:
            blocks: (B, 9). inverse: of the diagonal blocks, (N, 9). b, x: (columns, N, 3).
            report: out, (columns, 3): iterations, relative residual, status.
            coarse: the second level of the preconditioner, made for this matrix; always the same one.
        """
        second = () if coarse is None else self._second_level(coarse)
        for first, last in self.ranges:
            arguments = (
                np.int32(self.nodes),
                np.int32(last - first),
                np.int32(self.groups),
                np.int32(self.room),
                self.row_start,
                self.column,
                blocks,
                inverse,
                self.free,
                b[first:last],
                x[first:last],
                self.work,
                np.float64(tolerance),
                np.int32(limit),
                np.uint32(self._next_tag(limit)),
                self.places,
                self.sums,
                report[first:last],
                *second,
            )
            self._kernel(bool(second))((self.team,), (self.threads,), arguments, shared_mem=self.shared_bytes)

    def _second_level(self, coarse: CudaCoarse) -> tuple:
        lists = coarse.lists(self.team)
        if self._coarse_work is None:
            numbers = (3 * coarse.rows + 3 * lists.slots) * _GROUP * self.groups
            self._coarse_work = cupy.empty(numbers, self.real)
        return lists.level, self._coarse_work

    def _next_tag(self, limit: int) -> int:
        """The first of the tags of a solve: three an iteration, and columns may start again a few times."""
        need = 3 * (5 * limit + 64)
        tag, self.tag = self.tag, self.tag + need
        if self.tag < 1 << 32:
            return tag
        self.places[...], self.sums[...] = 0, 0  # all numbers used up: forget the old tags and start again
        self.tag = need
        return 0
