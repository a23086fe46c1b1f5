"""Multigrid as a preconditioner: grids of 1, 2, 4, … cells over a body's nodes, and the step's matrix on each of them.

Block-Jacobi hands an error on from node to node: iterations grow with the number of nodes across the body. Here each
grid takes what is smooth on the one before, z = V(r):

    M x = r;   r_c = Pᵀ (r - A x);   x += P V_c(r_c);   x += M⁻ᵀ (r - A x),      A_c = Pᵀ A P,

with trilinear P, M the lower triangle of A in an order of eight colours (nodes of a colour are no neighbours, so any
number of threads gives the same bits), and a factorised matrix on the last grid. V is symmetric and positive definite.
Whatever the step's matrix holds, cut cells, contact, weakly held surfaces, is in A_c. As a preconditioner it lives in
single precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.backends.multigrid_loops import Grids, Levels, MultigridLoops
from soft_estimator.physics.body import NEIGHBOUR_OFFSETS

if TYPE_CHECKING:
    from soft_estimator.physics.device_body import DeviceBody

LAST_NODES = 40  # of a grid whose matrix is factorised
# Nodes, and stiffness over inertia of the matrix (`stiffness_over_inertia`), from which on it takes less time.
WORTH_NODES, WORTH_RATIO = 1500, 30.0
_CORNERS = np.array(list(np.ndindex(2, 2, 2)))


@dataclass(frozen=True, eq=False)
class Grid:
    """One grid of a hierarchy, its nodes sorted by colour: each loop then reads its memory in order.

    Attributes:
        place: of its nodes, in its cells, (n, 3). neighbour: nodes around each, itself at 13, -1 for none, (n, 27).
        slot: places of their blocks in the grid's matrix, -1 for none, (n, 27). free: 0 where nothing can move, (n,).
    """

    place: np.ndarray
    neighbour: np.ndarray
    slot: np.ndarray
    free: np.ndarray


@dataclass(frozen=True, eq=False)
class Transfer:
    """P between a grid and the next coarser one.

    Attributes:
        child: fine nodes around a coarse one, -1 for none, (m, 27); its weights are ½ for each step off an axis.
        parent: coarse nodes of a fine one, (n, 8). weight: theirs, 0 where there is none or a node is held, (n, 8).
    """

    child: np.ndarray
    parent: np.ndarray
    weight: np.ndarray


class Hierarchy:
    """The grids over the nodes of a body, finest first, and where each one's blocks lie for the loops.

    Attributes:
        grids, transfers: as above, transfers[k] from grids[k] to grids[k + 1]. flat: for the loops.
        pick: blocks of each grid's matrix in the order that the loops go through them, no diagonal ones.
    """

    def __init__(self, place: np.ndarray, slot: np.ndarray, column: np.ndarray, free: np.ndarray) -> None:
        place = place - place.min(axis=0)
        order = np.argsort(_colours(place), kind="stable")
        rank = np.argsort(order)
        neighbour = np.where(slot >= 0, rank[column[np.maximum(slot, 0)]], -1).astype(np.int32)
        self.grids = [Grid(place[order], neighbour[order], slot[order], (free[order] > 0).astype(np.float64))]
        self.transfers: list[Transfer] = []
        while len(self.grids[-1].place) > LAST_NODES:
            coarse, transfer = _coarser(self.grids[-1])
            if len(coarse.place) > 0.7 * len(self.grids[-1].place):
                break  # a sheet or a thread of nodes: nothing is won by going on
            self.grids.append(coarse)
            self.transfers.append(transfer)
        self.flat, self.pick = _flattened(self.grids, self.transfers, order)

    @classmethod
    def of(cls, device: DeviceBody) -> Hierarchy:
        body = device.body
        place = np.stack(np.unravel_index(body.node_index, body.grid.shape), axis=1)
        return cls(place, body.slot, body.column, device.host(device.free))


class Multigrid:
    """The preconditioner of one matrix; what it needs of the matrix is made when it is first applied.

    Args:
        blocks: of A, (B, 9).
    """

    def __init__(self, hierarchy: Hierarchy, loops: MultigridLoops, blocks: Array) -> None:
        self.hierarchy, self.loops, self.blocks = hierarchy, loops, blocks

    @cached_property
    def levels(self) -> Levels:
        """Matrices of all grids, as the loops take them."""
        h, loops, matrix, matrices = self.hierarchy, self.loops, self.blocks, [self.blocks]
        for grid, coarse, transfer in zip(h.grids, h.grids[1:], h.transfers):
            out = np.empty((27 * len(coarse.place), 9))
            pattern = (grid.slot, grid.neighbour, grid.place, grid.free)
            loops.coarse_blocks(matrix, *pattern, transfer.child, coarse.free, out)
            matrices.append(matrix := out)
        size = sum(map(len, h.pick))
        packed, inverse = np.empty((size, 9), np.float32), np.empty((h.flat.start[-1], 9), np.float32)
        first = 0
        for k, (grid, blocks, pick) in enumerate(zip(h.grids, matrices, h.pick)):
            loops.pack_blocks(blocks, pick, packed[first : first + len(pick)])
            first += len(pick)
            loops.invert_blocks(blocks, grid.slot, grid.free, inverse[h.flat.start[k] : h.flat.start[k + 1]])
        last = h.grids[-1]
        factor = np.zeros((3 * len(last.place),) * 2)
        loops.factorise(matrix, last.slot, last.neighbour, last.free, factor)
        return Levels(packed, inverse, factor)

    def apply(self, r: Array, out: Array) -> None:
        """out = V(r) for nodal vectors (N, 3)."""
        self.loops.precondition(self.hierarchy.flat, self.levels, r, out)

    def solve_many(
        self,
        row_start: Array,
        column: Array,
        blocks: Array,
        b: Array,
        x: Array,
        free: Array,
        tolerance: float,
        limit: int,
    ) -> tuple[int, float, int]:
        """`MatrixLoops.conjugate_gradient_many` with this preconditioner; blocks in the precision of b and x."""
        system = (row_start, column, blocks, self.hierarchy.flat, lambda: self.levels)
        return self.loops.conjugate_gradient_multigrid(*system, b, x, free, tolerance, limit)


def stiffness_over_inertia(blocks: np.ndarray, slot: np.ndarray) -> float:
    """Σ tr A_ii over Σ_ij tr A_ij: the whole body's moves are resisted by its inertia, and by what holds it."""
    whole = float(blocks[:, ::4].sum())
    return float(blocks[slot[:, 13]][:, ::4].sum()) / max(whole, 1e-300)


def worth_it(blocks: np.ndarray, slot: np.ndarray) -> bool:
    """Whether it takes less time than block-Jacobi alone."""
    return len(slot) >= WORTH_NODES and stiffness_over_inertia(blocks, slot) >= WORTH_RATIO


def _coarser(fine: Grid) -> tuple[Grid, Transfer]:
    """The grid of every other plane of nodes. Of a coarse cell with any fine cell in it all nodes are there, so that P
    has full rank."""
    base, odd = fine.place // 2, fine.place % 2
    at = base[:, None] + _CORNERS
    weight = np.where(_CORNERS == 1, 0.5 * odd[:, None], 1 - 0.5 * odd[:, None]).prod(axis=2)
    shape = tuple(base.max(axis=0) + 2)
    flat = np.ravel_multi_index(tuple(np.moveaxis(at, 2, 0)), shape)
    reach = np.bincount(flat.ravel(), weight.ravel(), int(np.prod(shape)))
    movable = np.bincount(flat.ravel(), (weight * fine.free[:, None]).ravel(), int(np.prod(shape)))
    there = np.flatnonzero(reach > 0)
    there = there[np.argsort(_colours(np.stack(np.unravel_index(there, shape), axis=1)), kind="stable")]
    place = np.stack(np.unravel_index(there, shape), axis=1)
    number = np.full(len(reach), -1, np.int32)
    number[there] = np.arange(len(there))
    coarse_free = (movable[there] > 0).astype(np.float64)
    neighbour = _around(place, number.reshape(shape))
    slot = np.where(neighbour >= 0, 27 * np.arange(len(place))[:, None] + np.arange(27), -1)
    parent = np.maximum(number[flat], 0)
    weight = weight * fine.free[:, None]
    index = np.full(tuple(fine.place.max(axis=0) + 1), -1, np.int32)
    index[tuple(fine.place.T)] = np.arange(len(fine.place))
    return Grid(place, neighbour, slot, coarse_free), Transfer(_around(2 * place, index), parent, weight)


def _colours(place: np.ndarray) -> np.ndarray:
    """0 to 7, (n,): neighbours have different ones."""
    return place % 2 @ np.array([4, 2, 1])


def _around(place: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Numbers of the 27 places around each, -1 outside, (n, 27)."""
    padded = np.full(np.array(number.shape) + 4, -1, np.int32)
    padded[tuple(slice(1, n + 1) for n in number.shape)] = number
    at = np.minimum(place[:, None] + NEIGHBOUR_OFFSETS + 1, np.array(padded.shape) - 1)
    return padded[tuple(np.moveaxis(at, 2, 0))]


def _flattened(grids: list[Grid], transfers: list[Transfer], order: np.ndarray) -> tuple[Grids, list[np.ndarray]]:
    """All grids' arrays one after the other, with numbers of nodes and blocks counted through."""
    counts = [len(grid.place) for grid in grids]
    start = np.concatenate([[0], np.cumsum(counts)])
    row_start: list[np.ndarray] = [np.zeros(1, np.int64)]
    middle, column, pick, colour_start, first = [], [], [], [], 0
    for grid, base in zip(grids, start):
        colour = _colours(grid.place)
        theirs = np.where(grid.neighbour >= 0, colour[grid.neighbour], 8)
        theirs[:, 13] = 8
        # Neighbours of a node, those of earlier colours first.
        sorted_ = np.argsort(theirs, axis=1, kind="stable")
        there = np.take_along_axis(theirs, sorted_, axis=1) < 8
        rows = first + np.cumsum(there.sum(axis=1))
        row_start.append(rows)
        middle.append(np.concatenate([[first], rows[:-1]]) + (theirs < colour[:, None]).sum(axis=1))
        column.append(base + np.take_along_axis(grid.neighbour, sorted_, axis=1)[there])
        pick.append(np.take_along_axis(grid.slot, sorted_, axis=1)[there])
        colour_start.append(base + np.searchsorted(colour, np.arange(9)))
        first = int(rows[-1])
    nowhere = np.full((start[1], 27), -1, np.int32)  # the finest grid has no finer one
    child = [nowhere, *(np.where(t.child >= 0, t.child + base, -1) for t, base in zip(transfers, start))]
    parent = [t.parent + base for t, base in zip(transfers, start[1:])]
    flat = Grids(
        start=start,
        colour_start=np.stack(colour_start),
        order=order,
        free=np.concatenate([grid.free for grid in grids]).astype(np.float32),
        row_start=np.concatenate(row_start),
        middle=np.concatenate(middle),
        column=np.concatenate(column).astype(np.int32),
        child=np.concatenate(child).astype(np.int32),
        parent=np.concatenate([*parent, np.zeros((counts[-1], 8))]).astype(np.int32),
        weight=np.concatenate([*(t.weight for t in transfers), np.zeros((counts[-1], 8))]).astype(np.float32),
    )
    return flat, pick
