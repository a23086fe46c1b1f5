"""A coarser grid over a body's nodes, for the second level of the preconditioner z = D⁻¹ r + P A_c⁻¹ Pᵀ r.

Block-Jacobi D alone takes many iterations where the body is stiff: smooth errors pass from node to node. P interpolates
trilinearly from a grid several cells wide, and A_c = Pᵀ A P is so small that its inverse is kept as a dense matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Of the coarse grid of a body: 384 unknowns, whose inverse is quickly made and fits in every cache. A body of so many
# nodes that a GPU streams its matrix needs more: on a ball of 102,000 nodes 85 iterations with 123 of them, 59 with
# 619, where block-Jacobi alone takes 161 (to 1e-6, at 20 kPa and 240 steps a second).
MOST_NODES, MOST_NODES_OF_LARGE_BODIES, LARGE_BODY = 128, 640, 60_000
_FINEST = 3  # cells; below, block-Jacobi does as well
_LEAST_REACH = 0.1  # of the weight that a coarse node inside a body has; those below make A_c worse, not the iteration


@dataclass(frozen=True)
class CoarseGrid:
    """Trilinear interpolation from a grid of `factor` cells.

    Attributes:
        place: of the fine nodes, in fine cells from the coarse grid's origin, (N, 3).
        node: place of the coarse nodes, in coarse cells, (C, 3). number: of the coarse node at a place, -1 without one.
        parent: coarse nodes of each fine node, (N, 8). weight: theirs, 0 for held nodes and where there is none.
    """

    factor: int
    place: np.ndarray
    node: np.ndarray
    number: np.ndarray
    parent: np.ndarray
    weight: np.ndarray

    @property
    def count(self) -> int:
        return len(self.node)


def coarse_grid(place: np.ndarray, free: np.ndarray, most: int | None = None) -> CoarseGrid | None:
    """The finest grid of at most so many nodes; None for a body so small that there is none worth it.

    Args:
        place: of the nodes on their grid, (N, 3). free: 0 for held nodes, (N,). most: by default by the body's size.
    """
    if most is None:
        most = MOST_NODES_OF_LARGE_BODIES if len(place) > LARGE_BODY else MOST_NODES
    extent = int((place.max(axis=0) - place.min(axis=0)).max())
    finest = int((np.count_nonzero(free) / (2 * most)) ** (1 / 3))  # a finer one has surely too many nodes
    for factor in range(max(_FINEST, finest), extent // 2 + 1):
        grid = coarse_grid_of(place, free, factor)
        if grid.count <= most:
            return grid if grid.count >= 8 else None
    return None


def coarse_grid_of(place: np.ndarray, free: np.ndarray, factor: int) -> CoarseGrid:
    """The grid of so many cells, with the body in its middle."""
    low, high = place.min(axis=0), place.max(axis=0)
    at = place - low + (low - high) % factor // 2
    cell = at // factor
    shape = tuple(cell.max(axis=0) + 2)
    corner = np.stack(list(np.ndindex(2, 2, 2)))
    share = (at - factor * cell) / factor
    weight = np.where(corner == 1, share[:, None], 1.0 - share[:, None]).prod(axis=2) * (free > 0)[:, None]
    flat = np.ravel_multi_index(tuple(np.moveaxis(cell[:, None] + corner, 2, 0)), shape)
    reach = np.bincount(flat.ravel(), weight.ravel(), minlength=int(np.prod(shape)))
    kept = reach >= _LEAST_REACH * factor**3
    number = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    parent = number[flat]
    return CoarseGrid(
        factor,
        at.astype(np.int32),
        np.stack(np.unravel_index(np.nonzero(kept)[0], shape), axis=1).astype(np.int32),
        number.reshape(shape),
        np.maximum(parent, 0).astype(np.int32),
        np.where(parent >= 0, weight, 0.0),
    )
