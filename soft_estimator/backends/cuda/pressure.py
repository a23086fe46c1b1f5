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
from soft_estimator.backends.cuda.arrays import precision, typed
from soft_estimator.backends.cuda.kernels import allow_shared_bytes, compile_ahead, kernel, launch
from soft_estimator.backends.cuda.linear import BatchSolver, Halo, find_halo, streaming_team
from soft_estimator.backends.interface import Array
from soft_estimator.backends.layout import MATERIAL, place

# λ/μ from which on (ν = 0.484) it takes less time than block-Jacobi with or without a coarse level. On an H200, a step
# in double precision takes 2.3 ms against 3.3 at ν = 0.49 and 4.5 against 8.7 at 0.499 on a torus of 15,000 cells, 9.9
# against 27 and 18 against 77 on one of 59,000.
WORTH_FROM = 30.0
_STREAMED, _RESIDENT = "conjugate_gradient_pressure", "conjugate_gradient_resident"
_THREADS, _SCRATCH_BYTES = 512, 100 * 8  # as in conjugate_gradient_pressure.cu
_PART_DOUBLES = 32  # as in pressures.cuh
# Chebyshev's steps as in `physics.pressure`: the largest eigenvalue of S over its diagonal; how many steps, and the
# ratio to the smallest eigenvalue that they are laid out for, below and above some λ/μ.
LARGEST, FEW, MANY, MANY_FROM = 2.8, (5, 10.0), (11, 28.0), 100.0


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


class PressurePlan:
    """How a team of thread blocks shares nodes and cells, and which kernel it runs.

    Attributes:
        halo: the cells that each block reads. local: where in its list the neighbours of a cell stand, (C, 27).
        node_halo: the nodes that each block reads, None where the matrix is streamed. room: matrix blocks in shared
        memory. space: doubles there for the pressures.
    """

    team: int
    halo: Halo
    local: cupy.ndarray
    space: int
    node_halo: Halo | None

    def __init__(self, body: Mapping[str, Any], real: np.dtype, plain: BatchSolver | None) -> None:
        self.beside = neighbours(body["cell_nodes"], body["node_cells"])
        self.function, self.threads, self.room, self.node_halo = _STREAMED, _THREADS, 0, None
        attributes = cupy.cuda.Device().attributes
        most = attributes["MaxSharedMemoryPerMultiprocessor"] // 2 - 1024  # beside another thread block
        self._share(streaming_team(len(body["free"]), 1), real)
        self.shared_bytes = _SCRATCH_BYTES + 8 * self.space
        if plain is not None and plain.halo is not None:
            streamed = (self.team, self.halo, self.local, self.space)
            self._share(plain.plan.team, real)
            a_block, bytes_ = 9 * real.itemsize + 2, plain.plan.shared_bytes + 8 * self.space
            fewer = max(0, -((attributes["MaxSharedMemoryPerBlockOptin"] - bytes_) // a_block))
            if plain.plan.room > fewer:
                most = attributes["MaxSharedMemoryPerBlockOptin"]
                self.function, self.threads = f"{_RESIDENT}_pressure", plain.plan.threads
                self.room, self.node_halo = plain.plan.room - fewer, plain.halo
                self.shared_bytes = bytes_ - fewer * a_block
            else:
                self.team, self.halo, self.local, self.space = streamed
        self.fits = self.shared_bytes <= most and self.halo.wide < 1 << 16

    def _share(self, team: int, real: np.dtype) -> None:
        """Share the cells between so many thread blocks."""
        there, cells = self.beside >= 0, len(self.beside)
        share = (cells + team - 1) // team
        row_start = cupy.concatenate([cupy.zeros(1, np.int64), cupy.cumsum(there.sum(axis=1))])
        self.team, self.halo = team, find_halo(row_start, self.beside[there], cells, team)
        self.local = cupy.zeros((cells, 27), np.uint16)
        self.local[there] = self.halo.local
        used = real.itemsize * (4 * share + self.halo.wide) + 6 * 27 * share
        self.space = (_PART_DOUBLES + (used + 7) // 8 + 1) // 2 * 2


class PressureSolver:
    """Conjugate gradients of one system with the pressures' preconditioner.

    Args:
        body: cell_nodes, node_cells, row_start, column, slot and free of the body, on the device.
        steps: Chebyshev's, to be taken twice, (·, 2). real: precision.
        plain: the system's solver without; where it keeps the matrix in shared memory, so does this one.
    """

    def __init__(
        self, body: Mapping[str, Any], steps: np.ndarray, real: npt.DTypeLike, plain: BatchSolver | None = None
    ) -> None:
        self.body, self.real = body, precision(real)
        self.nodes, self.cells = len(body["free"]), len(body["cell_nodes"])
        self.plan = PressurePlan(body, self.real, plain)
        self.rows, self.inverse = cupy.empty((self.cells, 24), real), cupy.empty((self.nodes, 9), real)
        self.matrix = cupy.empty((self.cells, 27), np.float32)
        twice = np.concatenate([steps, steps])
        self._steps, self._words = cupy.asarray(twice, np.float64), cupy.zeros((3, self.cells, 2))
        p, halo = self.plan, self.plan.halo
        cells: list[Any] = [body["cell_nodes"], body["node_cells"], halo.nodes, halo.start, p.local]
        pointers = [x.data.ptr for x in (*cells, self.rows, self.matrix, self._steps, self._words)]
        self._given = cupy.asarray(np.array([self.cells, halo.wide, len(twice), p.space, *pointers], np.uint64))
        self._z, self._places = cupy.zeros((self.nodes, 8), real), cupy.zeros((2, 3, p.team, 2))
        self._work = cupy.empty(12 * self.nodes + 9 * len(body["column"]), real)
        self._tag = self._cell_tag = 0

    @property
    def fits(self) -> bool:
        """Whether a thread block's cells find room in shared memory."""
        return self.plan.fits

    @cached_property
    def kernel(self) -> cupy.RawKernel:
        name, *options = self.module
        out = kernel(name, self.plan.function, *options)
        allow_shared_bytes(out, self.plan.shared_bytes)
        return out

    @property
    def module(self) -> tuple[str, ...]:
        """What to compile."""
        return (_STREAMED, self.real.name) if self.plan.node_halo is None else (_RESIDENT, self.real.name, "LEVELS=3")

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
        p, halo = self.plan, self.plan.node_halo
        integers = (np.int32(n) for n in (self.nodes, p.team, p.room, 0 if halo is None else halo.wide))
        near = (nothing, nothing, nothing) if halo is None else (halo.nodes, halo.start, halo.local)
        pattern = (body["row_start"], body["column"], *near)
        system = (blocks, self.inverse, body["free"], b, x, self._z, self._work, np.int64(0), np.int64(0))
        ending = (np.float64(tolerance), np.int32(limit), np.uint32(tag), self._places, report)
        arguments = (*integers, *pattern, *system, *ending, self._given, np.uint32(cell_tag))
        self.kernel((p.team,), (p.threads,), arguments, shared_mem=p.shared_bytes)
        return report

    def _next_tags(self, limit: int) -> tuple[int, int]:
        """The tags before the first of a solve: an iteration takes three, a few more and one for each step of S."""
        tags = (self._tag, self._cell_tag)
        self._tag, self._cell_tag = self._tag + 3 * limit + 64, self._cell_tag + (limit + 8) * (len(self._steps) + 1)
        if max(self._tag, self._cell_tag) < 1 << 32:
            return tags
        for array in (self._z, self._places, self._words):  # all numbers used up: forget the old tags and start again
            array[...] = 0
        self._tag = self._cell_tag = 0
        return self._next_tags(limit)


class FusedPressures:
    """The stepper's solver with pressures: chosen by the material, its rows of B made from the cells' rotations.

    Args:
        plain: the solver without them. body: the stepper's arrays.
    """

    def __init__(self, plain: BatchSolver, body: Mapping[str, Any]) -> None:
        self.used, self._body, self._plain, self._steps = False, body, plain, FEW

    @cached_property
    def solver(self) -> PressureSolver:
        """Made when first needed: it holds a copy of the matrix."""
        count, spread = self._steps
        return PressureSolver(self._body, chebyshev_steps(count, LARGEST, spread), self._plain.real, self._plain)

    def choose(self, material: np.ndarray) -> None:
        """Decide by the material's row whether the pressures are used from now on, and with how many steps."""
        ratio = bulk_over_shear(material)
        steps = FEW if ratio < MANY_FROM else MANY
        if ratio >= WORTH_FROM and steps != self._steps:
            self._steps = steps
            vars(self).pop("solver", None)
        self.used = ratio >= WORTH_FROM and self.solver.fits
        if self.used:
            compile_ahead(self.solver.module, ("pressure", self.solver.real.name))

    def solve(
        self, common: tuple, rotation: Array, blocks: Array, b: Array, x: Array, tolerance: float, limit: int,
        report: Array,
    ) -> cupy.ndarray:  # fmt: skip
        """As `BatchSolver.solve`; common: what all kernels of a step take first."""
        s = self.solver
        launch("pressure", "pressure_rows", s.real, 8 * s.cells, *common, rotation, s.rows)
        s.prepare(typed(blocks, s.real))
        return s.solve(blocks, b, x, tolerance, limit, report)
