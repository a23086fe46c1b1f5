"""The coarse level of the preconditioner z = D⁻¹ r + P A_c⁻¹ Pᵀ r on the device: A_c⁻¹ of a matrix, solves with it.

A_c⁻¹ is made anew, in a quarter of a solve's time, for other parameters and after a few solves: in between the matrix
changes too little to matter. Solves in the same order after the same parameters give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from soft_estimator.backends.cuda.arrays import precision
from soft_estimator.backends.cuda.kernels import allow_shared_bytes, kernel, launch
from soft_estimator.backends.cuda.linear import BatchSolver
from soft_estimator.backends.interface import Array
from soft_estimator.backends.layout import MATERIAL, place, size

# Stiffness over inertia of a cell, from which on fewer iterations make up for their price, twice that of plain ones.
# Block-Jacobi alone takes some ten times the root of it, about 85 here. On a ball of 12,000 nodes, the second level
# makes 58 iterations out of 183 at a ratio of 380, 52 out of 105 at 76 and 46 out of 76 at 38.
WORTH_IT = 70.0
LASTS = 8  # solves; the inverse of one to four steps ago costs a bouncing ball up to three iterations more in 60
_RESIDENT = "conjugate_gradient_resident"
_TILE = 32  # as in coarse_inverse.cu
_PART_DOUBLES = 32  # as in conjugate_gradient_resident.cu
_INVERSE_BYTES = 8 * (100 + 4 * _TILE * (_TILE + 1) + _TILE)


def stiffness_ratio(scheme: Sequence[float], spacing_m: float, material: np.ndarray) -> float:
    """(c_k + c_d β) (λ + 2 μ) E over (c_m + c_d α) ρ h², of the stiffest region.

    Args:
        scheme: coefficients in the order of `struct Scheme`. material: a row of the stepper's materials.
    """
    c_m, c_d, c_k = scheme[2:5]
    names = ("lam", "mu", "density_kg_m3", "mass_damping_per_s", "stiffness_damping_s")
    lam, mu, density, mass_damping, stiffness_damping = (material[place(MATERIAL, name)][0] for name in names)
    stiffness = (c_k + c_d * stiffness_damping) * (lam + 2 * mu) * material[size(MATERIAL) :].max()
    return float(stiffness / ((c_m + c_d * mass_damping) * density * spacing_m**2))


class CudaCoarse:
    """The coarse level of one body.

    Args:
        grid: factor, place, node, number, parent and weight of `physics.coarse.CoarseGrid`, on the host.
        body: row_start, column, slot (N, 27) and free of the body's nodes, on the device. real: of the matrices.
    """

    def __init__(self, grid: Mapping[str, Any], body: Mapping[str, Any], real: npt.DTypeLike) -> None:
        self.body, self.real = {k: body[k] for k in ("row_start", "column", "slot", "free")}, precision(real)
        self.nodes, self.count = len(grid["place"]), len(grid["node"])
        self.rows = 3 * self.count
        self._width = (self.rows + _TILE - 1) // _TILE * _TILE
        self._parent, self._weight = np.asarray(grid["parent"]), np.asarray(grid["weight"], np.float32)
        start, reached = self._reach(grid)
        integers = (cupy.asarray(grid[name], np.int32) for name in ("place", "node", "number"))
        self._held = [*integers, cupy.asarray(start), cupy.asarray(reached)]  # what the kernels point at
        numbers = [self.nodes, self.count, grid["factor"], *grid["number"].shape, self._width]
        self._grid = cupy.asarray(np.array([*numbers, *(x.data.ptr for x in self._held)], np.uint64))
        self._blocks_around = cupy.empty((self.nodes, 27, 9), self.real)
        self._matrix = cupy.empty((2, self._width, self._width))
        self.inverse = cupy.empty((self.rows, self.rows), np.float32)
        processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
        self._team = min(processors, (self._width // _TILE) ** 2)
        self._places, self._tag = cupy.zeros((2, 3, self._team, 2)), 0
        self._lists: dict[int, CoarseLists] = {}
        self.age = 0  # solves since the parameters were set

    def _reach(self, grid: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """The fine nodes of each coarse node, in order: start (C + 1,), and `struct Reached` (entries, 4)."""
        row, q = np.nonzero(self._weight)
        node = self._parent[row, q]
        order = np.argsort(node, kind="stable")
        row, node, weight = row[order], node[order], self._weight[row, q][order]
        cell, within = np.divmod(grid["place"][row], grid["factor"])
        bits = np.concatenate([cell < grid["node"][node], within == 0], axis=1)
        reached = np.zeros((len(row), 4), np.int32)
        reached[:, 0], reached[:, 1], reached[:, 2] = row, bits @ (1 << np.arange(6)), weight.view(np.int32)
        return np.searchsorted(node, np.arange(self.count + 1)).astype(np.int32), reached

    def keep_fresh(self, blocks: Array) -> None:
        """Before a solve with these blocks (B, 9): `refresh` if the last one was too long ago."""
        if self.age % LASTS == 0:
            self.refresh(blocks)
        self.age += 1

    def refresh(self, blocks: Array) -> None:
        """A_c⁻¹ of the matrix with these blocks (B, 9); does not wait."""
        body = self.body
        rows = (self._grid, body["slot"], body["column"], body["free"], blocks, self._blocks_around, self._matrix[0])
        launch("coarse", "interpolate_rows", self.real, 27 * self.nodes, *rows)
        make = kernel("coarse", "coarse_matrix", self.real.name)
        make((self.count, 3), (8 * 81,), (self._grid, self._blocks_around, self._matrix[0]))
        tag, self._tag = self._tag, self._tag + self._width // _TILE
        if self._tag >= 1 << 32:
            self._places[...] = 0
            tag, self._tag = 0, self._width // _TILE
        sizes, matrices = (np.int32(self.rows), np.int32(self._width)), (self._matrix[0], self._matrix[1], self.inverse)
        invert = kernel("coarse_inverse", "coarse_inverse", self.real.name)
        arguments = (*sizes, *matrices, np.uint32(tag), self._places)
        invert((self._team,), (_TILE * _TILE,), arguments, shared_mem=_INVERSE_BYTES)

    def lists(self, team: int) -> CoarseLists:
        """How a team of so many thread blocks applies it."""
        if team not in self._lists:
            self._lists[team] = CoarseLists(self, self._parent, self._weight, team)
        return self._lists[team]


class CoarseLists:
    """`struct Coarse` of coarse.cuh for a team of thread blocks that share the rows evenly.

    Attributes:
        level: the struct, on the device. slots: parts of Pᵀ that the blocks add up. space: doubles of shared memory.
    """

    def __init__(self, coarse: CudaCoarse, parent: np.ndarray, weight: np.ndarray, team: int) -> None:
        nodes, count = coarse.nodes, coarse.count
        share = (nodes + team - 1) // team
        row, q = np.nonzero(weight)
        key = row // share * count + parent[row, q]
        # A block without any part gets an empty one, so that there is always something to read.
        lone = np.setdiff1d(np.arange(team), row // share) * count
        slot_key = np.union1d(key, lone)
        slot = np.searchsorted(slot_key, key)
        order = np.argsort(slot, kind="stable")
        touch_start = np.searchsorted(slot_key, np.arange(team + 1) * count)
        touch_node = slot_key % count
        by_node = np.argsort(touch_node, kind="stable")
        local = np.zeros((nodes, 8), np.uint16)
        local[row, q] = slot - touch_start[row // share]
        self.slots = len(slot_key)
        touched, owned = int(np.diff(touch_start).max()), 3 * ((count + team - 1) // team)
        self.space = (_PART_DOUBLES + 3 * count + 3 * touched + 3 * owned + 1) // 2 * 2
        arrays = (
            touch_start.astype(np.int32),
            touch_node.astype(np.int32),
            np.searchsorted(slot[order], np.arange(self.slots + 1)).astype(np.int32),
            np.stack([(row[order] % share).astype(np.int32), weight[row, q][order].view(np.int32)], axis=1),
            np.searchsorted(touch_node[by_node], np.arange(count + 1)).astype(np.int32),
            by_node.astype(np.int32),
            parent.astype(np.int32),
            local,
            weight,
        )
        self._held = [*(cupy.asarray(np.ascontiguousarray(x)) for x in arrays), coarse.inverse]
        self.level = cupy.asarray(np.array([count, self.space, *(x.data.ptr for x in self._held)], np.uint64))


class CoarseSolver:
    """A `BatchSolver` of one system that uses the coarse level where its material makes that worth while.

    Args:
        plain: the solver without it, of the resident kind. scheme, spacing_m: see `stiffness_ratio`.
    """

    def __init__(self, plain: BatchSolver, coarse: CudaCoarse, scheme: Sequence[float], spacing_m: float) -> None:
        halo = plain.halo
        if halo is None:
            raise ValueError(f"the coarse level needs the resident kernel, not {plain.plan.function}; use it alone")
        self.plain, self.coarse, self.halo, self.used = plain, coarse, halo, False
        self._scheme, self._spacing_m = list(scheme), spacing_m
        plan, real = plain.plan, plain.real
        self.lists = coarse.lists(plan.team)
        most = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
        a_block = 9 * real.itemsize + 2
        bytes_ = plan.shared_bytes + 8 * self.lists.space
        fewer = max(0, -((most - bytes_) // a_block))
        self.room, self.shared_bytes = plan.room - fewer, bytes_ - fewer * a_block
        self.z, self.places = cupy.zeros_like(plain.z), cupy.zeros_like(plain.places)
        beyond = halo.most_blocks > self.room
        self.work = cupy.empty((1, 9 * len(plain.column)), real) if beyond else self.z
        self.words = cupy.zeros((12 * coarse.count + 6 * self.lists.slots, 2))
        self.tag = 0

    @cached_property
    def kernel(self) -> cupy.RawKernel:
        out = kernel(_RESIDENT, f"{_RESIDENT}_coarse", self.plain.real.name, "LEVELS=2")
        allow_shared_bytes(out, self.shared_bytes)
        return out

    def choose(self, material: np.ndarray) -> None:
        """Decide by the material's row whether the coarse level is used from now on."""
        self.coarse.age = 0
        self.used = self.room > 0 and stiffness_ratio(self._scheme, self._spacing_m, material) >= WORTH_IT

    def solve(
        self, blocks: Array, inverse: Array, b: Array, x: Array, tolerance: float, limit: int, report: Array
    ) -> cupy.ndarray:
        """As `BatchSolver.solve`."""
        if not self.used:
            return self.plain.solve(blocks, inverse, b, x, tolerance, limit, report)
        self.coarse.keep_fresh(blocks)
        s = self.plain
        system = (blocks, inverse, s.free, b, x, self.z, self.work, np.int64(0), np.int64(0))
        ending = (np.float64(tolerance), np.int32(limit), np.uint32(self._next_tag(limit)), self.places, report)
        arguments = (*self._pattern, *system, *ending, self.lists.level, self.words)
        self.kernel((s.plan.team,), (s.plan.threads,), arguments, shared_mem=self.shared_bytes)
        return report

    @cached_property
    def _pattern(self) -> tuple:
        """What is the same in every solve."""
        s, halo = self.plain, self.halo
        numbers = (s.nodes, s.plan.team, self.room, halo.wide)
        return (*map(np.int32, numbers), s.row_start, s.column, halo.nodes, halo.start, halo.local)

    def _next_tag(self, limit: int) -> int:
        """As in `BatchSolver`."""
        tag, self.tag = self.tag, self.tag + 2 * limit + 64
        if self.tag < 1 << 32:
            return tag
        for array in (self.z, self.places, self.words):
            array[...] = 0
        self.tag = 2 * limit + 64
        return 0


def coarse_modules(real: np.dtype) -> list[tuple[str, ...]]:
    """What makes and uses the coarse level of one system, as `compile_ahead` takes it."""
    return [(_RESIDENT, real.name, "LEVELS=2"), ("coarse_inverse", real.name), ("coarse", real.name)]


def solver_with_coarse_level(
    plain: BatchSolver, grid: Mapping[str, Any] | None, body: Mapping[str, Any], scheme: Sequence[float], spacing: float
) -> CoarseSolver | None:
    """The solver of one system with a coarse level; None where the body has none or does not fit the device's cache."""
    if grid is None or plain.halo is None:
        return None
    return CoarseSolver(plain, CudaCoarse(grid, body, plain.real), scheme, spacing)
