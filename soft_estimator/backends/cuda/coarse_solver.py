"""Solvers of one system on the device that use the coarse level of the preconditioner where that is worth while."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cupy
import numpy as np

from soft_estimator.backends.cuda.coarse import CudaCoarse, stiffness_ratio
from soft_estimator.backends.cuda.kernels import allow_shared_bytes, compile_ahead, kernel
from soft_estimator.backends.cuda.linear import BatchSolver
from soft_estimator.backends.interface import Array

# Stiffness over inertia of a cell, from which on fewer iterations make up for their price, twice that of plain ones.
# Block-Jacobi alone takes some ten times the root of it, about 85 here. On a ball of 12,000 nodes, the second level
# makes 58 iterations out of 183 at a ratio of 380, 52 out of 105 at 76 and 46 out of 76 at 38.
WORTH_IT = 70.0
# The same where the matrix is streamed, which costs more than what the coarse level adds: on a ball of 300,000 nodes
# (float32, H200) a step takes 16.0 ms for 15.2 without it at a ratio of 29, and 24.9 for 41.2 at 290.
WORTH_IT_STREAMED = 40.0
_RESIDENT, _STREAMED = "conjugate_gradient_resident", "conjugate_gradient_streamed_coarse"
_LEVEL_BYTES = 128  # of `struct Coarse`, which the streamed kernel keeps in shared memory


@dataclass(frozen=True)
class Given:
    """What a kernel takes beside the system: the pattern, z and room to work in, the coarse level; shared memory."""

    pattern: tuple
    work: tuple[Array, Array]
    level: tuple[Array, Array]
    shared_bytes: int


class CoarseSolver(ABC):
    """A `BatchSolver` of one system that uses the coarse level where its material makes that worth while.

    Args:
        plain: the solver without it. scheme, spacing_m: see `stiffness_ratio`.
    """

    tags_an_iteration: int
    worth_it: float

    def __init__(self, plain: BatchSolver, coarse: CudaCoarse, scheme: Sequence[float], spacing_m: float) -> None:
        self.plain, self.coarse, self.used, self.tag = plain, coarse, False, 0
        self._scheme, self._spacing_m = list(scheme), spacing_m
        self.lists = coarse.lists(plain.plan.team)
        self.places = cupy.zeros_like(plain.places)
        compile_ahead(self.module, ("coarse_inverse", plain.real.name), ("coarse", plain.real.name))

    def choose(self, material: np.ndarray) -> None:
        """Decide by the material's row whether the coarse level is used from now on."""
        self.coarse.age = 0
        self.used = self.fits and stiffness_ratio(self._scheme, self._spacing_m, material) >= self.worth_it

    @property
    def fits(self) -> bool:
        """Whether there is room for it in shared memory."""
        return True

    @property
    @abstractmethod
    def module(self) -> tuple[str, ...]:
        """What its kernel is compiled from, as `compile_ahead` takes it."""

    @property
    @abstractmethod
    def kernel(self) -> cupy.RawKernel: ...

    @property
    @abstractmethod
    def given(self) -> Given: ...

    @property
    @abstractmethod
    def tagged(self) -> tuple[Array, ...]:
        """Arrays whose words carry tags."""

    def solve(
        self, blocks: Array, inverse: Array, b: Array, x: Array, tolerance: float, limit: int, report: Array
    ) -> cupy.ndarray:
        """As `BatchSolver.solve`."""
        if not self.used:
            return self.plain.solve(blocks, inverse, b, x, tolerance, limit, report)
        self.coarse.keep_fresh(blocks)
        s, given = self.plain, self.given
        system = (blocks, inverse, s.free, b, x, *given.work, np.int64(0), np.int64(0))
        ending = (np.float64(tolerance), np.int32(limit), np.uint32(self._next_tag(limit)), self.places, report)
        arguments = (*given.pattern, *system, *ending, *given.level)
        self.kernel((s.plan.team,), (s.plan.threads,), arguments, shared_mem=given.shared_bytes)
        return report

    def _next_tag(self, limit: int) -> int:
        """As in `BatchSolver`."""
        need = self.tags_an_iteration * limit + 64
        tag, self.tag = self.tag, self.tag + need
        if self.tag < 1 << 32:
            return tag
        for array in self.tagged:
            array[...] = 0
        self.tag = need
        return 0


class ResidentCoarseSolver(CoarseSolver):
    """With matrix and coarse level in shared memory; plain is of the resident kind."""

    tags_an_iteration = 2
    worth_it = WORTH_IT

    def __init__(self, plain: BatchSolver, coarse: CudaCoarse, scheme: Sequence[float], spacing_m: float) -> None:
        halo = plain.halo
        if halo is None:
            raise ValueError(f"this coarse level needs the resident kernel, not {plain.plan.function}")
        self.halo = halo
        super().__init__(plain, coarse, scheme, spacing_m)
        plan, real = plain.plan, plain.real
        most = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
        a_block = 9 * real.itemsize + 2
        bytes_ = plan.shared_bytes + 8 * self.lists.space
        fewer = max(0, -((most - bytes_) // a_block))
        self.room, self.shared_bytes = plan.room - fewer, bytes_ - fewer * a_block
        self.z = cupy.zeros_like(plain.z)
        beyond = halo.most_blocks > self.room
        self.work = cupy.empty((1, 9 * len(plain.column)), real) if beyond else self.z
        self.words = cupy.zeros((12 * coarse.count + 6 * self.lists.slots, 2))

    @property
    def fits(self) -> bool:
        return self.room > 0

    @property
    def module(self) -> tuple[str, ...]:
        return _RESIDENT, self.plain.real.name, "LEVELS=2"

    @cached_property
    def kernel(self) -> cupy.RawKernel:
        out = kernel(_RESIDENT, f"{_RESIDENT}_coarse", self.plain.real.name, "LEVELS=2")
        allow_shared_bytes(out, self.shared_bytes)
        return out

    @cached_property
    def given(self) -> Given:
        s, halo = self.plain, self.halo
        numbers = map(np.int32, (s.nodes, s.plan.team, self.room, halo.wide))
        pattern = (*numbers, s.row_start, s.column, halo.nodes, halo.start, halo.local)
        return Given(pattern, (self.z, self.work), (self.lists.level, self.words), self.shared_bytes)

    @property
    def tagged(self) -> tuple[Array, ...]:
        return self.z, self.places, self.words


class StreamedCoarseSolver(CoarseSolver):
    """With a matrix that is read from global memory in every iteration; plain is of the streamed kind."""

    tags_an_iteration = 4
    worth_it = WORTH_IT_STREAMED

    @property
    def module(self) -> tuple[str, ...]:
        return _STREAMED, self.plain.real.name

    @cached_property
    def kernel(self) -> cupy.RawKernel:
        return kernel(_STREAMED, _STREAMED, self.plain.real.name)

    @cached_property
    def given(self) -> Given:
        s, lists = self.plain, self.lists
        level = (lists.level, cupy.empty(3 * self.coarse.rows + 3 * lists.slots))
        return Given(s.pattern, (s.z, s.work), level, s.plan.shared_bytes + _LEVEL_BYTES)

    @property
    def tagged(self) -> tuple[Array, ...]:
        return (self.places,)


def solver_with_coarse_level(
    plain: BatchSolver, grid: Mapping[str, Any] | None, body: Mapping[str, Any], scheme: Sequence[float], spacing: float
) -> CoarseSolver | None:
    """The solver of one system with a coarse level; None where the body has none."""
    if grid is None:
        return None
    kind = StreamedCoarseSolver if plain.halo is None else ResidentCoarseSolver
    return kind(plain, CudaCoarse(grid, body, plain.real), scheme, spacing)
