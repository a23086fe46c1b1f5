"""A direct solve for slender bodies: with the nodes sorted along its long way, all blocks of the matrix of a beam or a
rope lie near the diagonal, and so does Cholesky's factor.

Block-Jacobi hands an error on from node to node, forty cells along a beam; a factor of so narrow a band is made in the
time of a few such iterations, and then solves for any number of right-hand sides, whatever the stiffness. It works in
double precision as it comes, and what a solve leaves is solved for again: the tolerance is kept by the true residual.
"""

from __future__ import annotations

import weakref
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from soft_estimator.backends.band_loops import BandLoops, BandOrder, Factor, Halves, row_width
from soft_estimator.backends.interface import Array

if TYPE_CHECKING:
    from soft_estimator.physics.device_body import DeviceBody

# Nodes from which on time matters, and up to which a factor takes no memory to speak of (94 MB); nodes across the band
# up to which it is made sooner than multigrid's matrices.
WORTH_NODES, MOST_NODES, MOST_ACROSS = 500, 20_000, 64
# A factor and a solve take as long as 0.03 (nodes across)² iterations of block-Jacobi, of which a step to 1e-6 needs
# about 12 √(stiffness over inertia): a beam of 42 nodes across and a ratio of 48 takes 84, directly the time of 57.
# Changes along four directions take iterations three times as long as the motion, solves with its factor a third as
# long: so directly the motion may take twice as long as by iterations.
_PER_ITERATION, _ITERATIONS, _LONGER = 0.03, 12.0, 2.0
_MOST_SPARE = 2  # factors whose memory is kept: a step's own and that of the step before
_EVERY = 8  # nodes, of which one tells that ratio


class Band:
    """The order of a body's nodes along its long way, and how wide its matrix is in that order.

    Attributes:
        across: nodes of the widest row of the factor.
    """

    def __init__(self, place: np.ndarray, row_start: np.ndarray, column: np.ndarray) -> None:
        long_way = np.argsort(-np.ptp(place, axis=0), kind="stable")
        self.order = np.lexsort(place[:, long_way[::-1]].T)
        self.pattern = (row_start, column)
        self._spare: list[Factor] = []
        self.last = self._last(np.argsort(self.order), self.order)
        self.across = int(np.max(self.last - np.arange(len(self.order)))) + 1

    def _last(self, rank: np.ndarray, order: np.ndarray) -> np.ndarray:
        """The last place that each row of a factor in an order (n,) reaches; rank: place of each node, (N,)."""
        row_start, column = self.pattern
        furthest = np.maximum.reduceat(rank[column], row_start[:-1])  # each node's row holds itself
        return np.asarray(np.maximum.accumulate(np.maximum(furthest[order], np.arange(len(order)))))

    @cached_property
    def halves(self) -> Halves:
        """The order from either end to the middle, a part that no block reaches across."""
        count = len(self.order)
        low = max((count - self.across) // 2, 1)
        high = int(self.last[low - 1]) + 1
        return self._half(self.order[:high], low), self._half(self.order[low:][::-1], count - high)

    def borrowed(self, borrower: object) -> Factor:
        """Memory for a factor, as long as the borrower lives: given anew with every step it took two fifths of a
        factor's time, most of that for the first touch of each page."""
        try:
            memory = self._spare.pop()
        except IndexError:
            width = row_width(self.across)
            near, far = (np.empty((len(half.order), 3, width)) for half in self.halves)
            memory = near, far
        weakref.finalize(borrower, _give_back, self._spare, memory).atexit = False
        return memory

    def _half(self, order: np.ndarray, own: int) -> BandOrder:
        rank = np.full(len(self.order), -1)
        rank[order] = np.arange(len(order))
        last = self._last(rank, order)
        last[own:] = len(order) - 1
        return BandOrder(np.ascontiguousarray(order), rank, last, np.array([own]))

    @cached_property
    def _some(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Every so many nodes (S,), the places of their blocks' diagonals (3, n) among all numbers of a matrix, and
        where each node's begin among those (S,)."""
        row_start = self.pattern[0]
        some = np.arange(0, len(row_start) - 1, _EVERY)
        beside = [np.arange(a, b) for a, b in zip(row_start[some].tolist(), row_start[some + 1].tolist())]
        diagonal = 9 * np.concatenate(beside) + np.array([[0], [4], [8]])
        return some, diagonal, np.cumsum([0, *map(len, beside[:-1])])

    @classmethod
    def of(cls, device: DeviceBody) -> Band:
        body = device.body
        place = np.stack(np.unravel_index(body.node_index, body.grid.shape), axis=1)
        return cls(place, body.row_start, body.column)

    def is_worth_it(self, blocks: np.ndarray, slot: np.ndarray) -> bool:
        """Whether motion and changes take less time by a factor, by the sizes and the matrix alone."""
        if not WORTH_NODES <= len(slot) <= MOST_NODES or self.across > MOST_ACROSS:
            return False
        # A_ii over Σ_j A_ij: stiffness over inertia, at a node like most, where nothing holds or touches the body.
        some, diagonal, begin = self._some
        trace = blocks.reshape(-1).take(diagonal).sum(axis=0)
        whole, own = np.maximum(np.add.reduceat(trace, begin), 1e-300), blocks[slot[some, 13]]
        ratio = float(np.median((own[:, 0] + own[:, 4] + own[:, 8]) / whole))
        return _PER_ITERATION * self.across**2 <= _LONGER * _ITERATIONS * ratio**0.5


def _give_back(spare: list[Factor], memory: Factor) -> None:
    if len(spare) < _MOST_SPARE:
        spare.append(memory)


class BandFactor:
    """The factor of one matrix, made when it is first asked for.

    Args:
        row_start, column, blocks: of A. free: 0 for held nodes, (N,).
    """

    def __init__(
        self, band: Band, loops: BandLoops, row_start: Array, column: Array, blocks: Array, free: Array
    ) -> None:
        self.band, self.loops, self.matrix = band, loops, (row_start, column, blocks, free)

    @cached_property
    def factor(self) -> Factor | None:
        """Rows of the factor; None where the matrix is not positive definite."""
        made = self.band.borrowed(self)
        return made if self.loops.factorise_band(*self.matrix, self.band.halves, *made) else None

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
        """`MatrixLoops.conjugate_gradient_many` by this factor."""
        matrix = (row_start, column, blocks, self.band.halves, lambda: self.factor)
        return self.loops.solve_band_many(*matrix, b, x, free, tolerance, limit)
