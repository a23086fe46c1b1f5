"""The coarse level of the preconditioner z = D⁻¹ r + P A_c⁻¹ Pᵀ r on the device: A_c⁻¹ of a matrix, solves with it.

A_c⁻¹ is made anew, in a quarter of a solve's time, for other parameters and after a few solves: in between the matrix
changes too little to matter. Solves in the same order after the same parameters give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from soft_estimator.backends.cuda.arrays import precision
from soft_estimator.backends.cuda.kernels import kernel, launch
from soft_estimator.backends.interface import Array
from soft_estimator.backends.layout import MATERIAL, place, size

LASTS = 8  # solves; the inverse of one to four steps ago costs a bouncing ball up to three iterations more in 60
_TILE = 32  # as in coarse_inverse.cu
_PART_DOUBLES = 32  # as in resident.cuh
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
