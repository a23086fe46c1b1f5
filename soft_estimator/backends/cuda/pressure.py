"""The preconditioner for nearly incompressible bodies on the device, and solves with it (`physics.pressure`).

Rows of B, D⁻¹ and S are made anew for each matrix; conjugate gradients run as one persistent kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from soft_estimator.backends.chebyshev import chebyshev_steps
from soft_estimator.backends.cuda.arrays import typed
from soft_estimator.backends.cuda.kernels import allow_shared_bytes, compile_ahead, kernel, launch
from soft_estimator.backends.cuda.linear import find_halo, streaming_team
from soft_estimator.backends.interface import Array
from soft_estimator.backends.layout import MATERIAL, place

# λ/μ from which on (ν = 0.495) it takes less time than block-Jacobi with or without a coarse level. On an H200, a step
# of a torus of 15,000 cells in double precision takes 2.5 ms against 3.0 at ν = 0.49 and 4.3 against 8.4 at 0.499.
WORTH_FROM = 100.0
_SOLVER = "conjugate_gradient_pressure"
_THREADS, _SCRATCH_BYTES = 512, 100 * 8  # as in conjugate_gradient_pressure.cu
# Chebyshev's steps as in `physics.pressure`: how many, the largest eigenvalue of S over its diagonal, and its ratio to
# the smallest that they are laid out for.
STEPS, LARGEST, SPREAD = 11, 2.8, 28.0


def bulk_over_shear(material: np.ndarray) -> float:
    """λ/μ of a row of the stepper's materials."""
    lam, mu = (material[place(MATERIAL, name)][0] for name in ("lam", "mu"))
    return float(lam / mu)


def neighbours(cell_nodes: cupy.ndarray, node_cells: cupy.ndarray) -> cupy.ndarray:
    """The cells beside each cell, (C, 27), -1 for none; itself at 13."""
    out = cupy.full((len(cell_nodes), 27), -1, np.int32)
    for p, q in np.ndindex(8, 8):
        step = [(p >> k & 1) - (q >> k & 1) for k in (2, 1, 0)]
        at = 13 + 9 * step[0] + 3 * step[1] + step[2]
        out[:, at] = cupy.maximum(out[:, at], node_cells[cell_nodes[:, p], q])
    return out


class PressureSolver:
    """Conjugate gradients of one system with the pressures' preconditioner.

    Args:
        body: cell_nodes, node_cells, row_start, column, slot and free of the body, on the device.
        steps: Chebyshev's, to be taken twice, (·, 2). real: precision.
    """

    def __init__(self, body: Mapping[str, Any], steps: np.ndarray, real: npt.DTypeLike) -> None:
        self.body, self.real = body, np.dtype(real)
        self.nodes, self.cells = len(body["free"]), len(body["cell_nodes"])
        self.team = streaming_team(self.nodes, 1)
        share = (self.cells + self.team - 1) // self.team
        beside = neighbours(body["cell_nodes"], body["node_cells"])
        there = beside >= 0
        row_start = cupy.concatenate([cupy.zeros(1, np.int64), cupy.cumsum(there.sum(axis=1))])
        self.halo = find_halo(row_start, beside[there], self.cells, self.team)
        self._local = cupy.zeros((self.cells, 27), np.uint16)
        self._local[there] = self.halo.local
        self.shared_bytes = _SCRATCH_BYTES + self.real.itemsize * (4 * share + self.halo.wide) + 6 * 27 * share + 16
        self.rows, self.inverse = cupy.empty((self.cells, 24), real), cupy.empty((self.nodes, 9), real)
        self.matrix = cupy.empty((self.cells, 27), np.float32)
        twice = np.concatenate([steps, steps])
        self._steps, self._words = cupy.asarray(twice, np.float64), cupy.zeros((3, self.cells, 2))
        cells: list[Any] = [body["cell_nodes"], body["node_cells"], self.halo.nodes, self.halo.start, self._local]
        pointers = [x.data.ptr for x in (*cells, self.rows, self.matrix, self._steps, self._words)]
        self._given = cupy.asarray(np.array([self.cells, self.halo.wide, len(twice), *pointers], np.uint64))
        self._z, self._places = cupy.zeros((self.nodes, 4), real), cupy.zeros((2, 3, self.team, 2))
        self._work = cupy.empty(12 * self.nodes + 9 * len(body["column"]), real)
        self._tag = self._cell_tag = 0

    @property
    def fits(self) -> bool:
        """Whether a thread block's cells find room in shared memory, beside those of another."""
        most = cupy.cuda.Device().attributes["MaxSharedMemoryPerMultiprocessor"] // 2 - 1024
        return self.shared_bytes <= most and self.halo.wide < 1 << 16

    @cached_property
    def kernel(self) -> cupy.RawKernel:
        out = kernel(_SOLVER, _SOLVER, self.real.name)
        allow_shared_bytes(out, self.shared_bytes)
        return out

    def prepare(self, blocks: Array) -> None:
        """D⁻¹ and S of a matrix with these blocks (B, 9), whose rows of B are in `rows`; does not wait."""
        body, cells = self.body, (self.body["cell_nodes"], self.body["node_cells"])
        nodes = (body["slot"], body["free"], body["node_cells"], self.rows, self.inverse)
        launch("pressure", "pressure_inverse", self.real, self.nodes, self.nodes, blocks, *nodes)
        parts = (self.inverse, self.rows, *cells, self.matrix)
        launch("pressure", "pressure_matrix", self.real, 27 * self.cells, self.cells, *parts)

    def solve(self, blocks: Array, b: Array, x: Array, tolerance: float, limit: int, report: Array) -> cupy.ndarray:
        """As `BatchSolver.solve`, with what `prepare` made of these blocks."""
        body, nothing = self.body, np.uint64(0)
        tag, cell_tag = self._next_tags(limit)
        integers = (np.int32(n) for n in (self.nodes, self.team, 0, 0))
        pattern = (body["row_start"], body["column"], nothing, nothing, nothing)
        system = (blocks, self.inverse, body["free"], b, x, self._z, self._work, np.int64(0), np.int64(0))
        ending = (np.float64(tolerance), np.int32(limit), np.uint32(tag), self._places, report)
        arguments = (*integers, *pattern, *system, *ending, self._given, np.uint32(cell_tag))
        self.kernel((self.team,), (_THREADS,), arguments, shared_mem=self.shared_bytes)
        return report

    def _next_tags(self, limit: int) -> tuple[int, int]:
        """The tags before the first of a solve: an iteration takes three, a few more and one for each step of S."""
        tags = (self._tag, self._cell_tag)
        self._tag, self._cell_tag = self._tag + 3 * limit + 64, self._cell_tag + (limit + 8) * (len(self._steps) + 1)
        if max(self._tag, self._cell_tag) < 1 << 32:
            return tags
        self._places[...], self._words[...] = 0, 0  # all numbers used up: forget the old tags and start again
        self._tag = self._cell_tag = 0
        return self._next_tags(limit)


class FusedPressures:
    """The stepper's solver with pressures: chosen by the material, its rows of B made from the cells' rotations.

    Args:
        body: the stepper's arrays. real: precision.
    """

    def __init__(self, body: Mapping[str, Any], real: npt.DTypeLike) -> None:
        self.used, self._body, self._real = False, body, real

    @cached_property
    def solver(self) -> PressureSolver:
        """Made when first needed: it holds a copy of the matrix."""
        return PressureSolver(self._body, chebyshev_steps(STEPS, LARGEST, SPREAD), self._real)

    def choose(self, material: np.ndarray) -> None:
        """Decide by the material's row whether the pressures are used from now on."""
        self.used = bulk_over_shear(material) >= WORTH_FROM and self.solver.fits
        if self.used:
            compile_ahead((_SOLVER, self.solver.real.name), ("pressure", self.solver.real.name))

    def solve(
        self, common: tuple, rotation: Array, blocks: Array, b: Array, x: Array, tolerance: float, limit: int,
        report: Array,
    ) -> cupy.ndarray:  # fmt: skip
        """As `BatchSolver.solve`; common: what all kernels of a step take first."""
        s = self.solver
        launch("pressure", "pressure_rows", s.real, 8 * s.cells, *common, rotation, s.rows)
        s.prepare(typed(blocks, s.real))
        return s.solve(blocks, b, x, tolerance, limit, report)
