"""Observed points against a carried field: near the body the distance to its zero level, far from it to a vertex.

A residual changes with nine nodes at most: the corners of the cell that holds the point (or the place where its ray
meets the surface), and the nearest vertex. For each there is a direction: δresidual = -Σ_k direction_k · δposition_k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from soft_estimator.backends.interface import Array
from soft_estimator.backends.reference.points import find_cells, surface_distances

_LINE_STEPS = 12  # of Newton's method along a ray


@dataclass
class Reading:
    """What the field says of points: their cells (n,), -1 for none, and the numbers of `surface_distances`."""

    cell: Array
    value: Array
    weights: Array
    slopes: Array
    by_value: Array
    by_slope: Array

    def of(self, rows: Array) -> Reading:
        return Reading(*(getattr(self, field.name)[rows] for field in fields(self)))

    def put(self, rows: Array, other: Reading) -> None:
        for field in fields(self):
            getattr(self, field.name)[rows] = getattr(other, field.name)

    def directions(self) -> Array:
        """Of the cells' corners, (n, 8, 3)."""
        return self.weights[:, :, None] * self.by_value[:, None] + self.slopes[:, :, None] * self.by_slope[:, None]


class ReferenceObserver:
    """See `soft_estimator.backends.whole_steps.ObserverFactory` for the arguments."""

    def __init__(
        self,
        field: Mapping[str, Any],
        vertices: int,
        spacing_m: float,
        halo_cells: int,
        least_slope: float,
        reach: float,
    ) -> None:
        self.rest, self.phi, self.laplacian = field["rest"], field["phi"], field["laplacian"]
        self.cell_nodes, self.in_body = field["cell_nodes"], field["in_body"]
        body_nodes = len(field["follower_start"]) - 1
        rows = (field["follow_share"], field["follow_column"], field["follow_start"])
        self.follow = sp.csr_matrix(rows, shape=(len(self.rest), body_nodes))
        self.vertices, self.spacing, self.halo_cells = vertices, spacing_m, halo_cells
        self.least_slope, self.reach = least_slope, reach

    def watch(
        self, points: Array, along: Array, bias: Array, line_bias: Array, scale: Array, counts: Array
    ) -> ReferenceView:
        return ReferenceView(self, points, along, bias, line_bias, scale, counts)

    def read(self, position: Array, points: Array, bias: Array) -> Reading:
        """Distances of points (n, 3) to where φ equals bias (n,) times Δφ, at deformed nodes (M, 3)."""
        cell, local = find_cells(points, position, self.cell_nodes, self.in_body, self.phi, self.spacing)
        nodes = self.cell_nodes[np.maximum(cell, 0)]
        nodal = self.phi[nodes] - bias[:, None] * self.laplacian[nodes]
        n = len(points)
        out = Reading(cell, np.zeros(n), np.zeros((n, 8)), np.zeros((n, 8)), np.zeros((n, 3)), np.zeros((n, 3)))
        derivatives = (out.weights, out.slopes, out.by_value, out.by_slope)
        surface_distances(cell, local, position, self.cell_nodes, nodal, self.least_slope, out.value, *derivatives)
        return out

    def read_along(self, position: Array, points: Array, along: Array, bias: Array, at: Reading) -> None:
        """Replace readings by those where the points' rays meet the surface: value(x - s along) = 0, by Newton.

        Then δs = δvalue / (∇value·along). Points farther than `reach` cells, and those whose rays graze the surface,
        keep what they have.
        """
        h = self.spacing
        for i in np.nonzero((at.cell >= 0) & (np.abs(at.value) < self.reach * h))[0]:
            row = np.array([i])
            there, away = at.of(row), 0.0
            for turn in range(_LINE_STEPS + 1):
                slope = float(there.by_value[0] @ along[i])
                if there.cell[0] < 0 or not slope > self.least_slope or not abs(away) < (self.reach + 1) * h:
                    break
                if abs(there.value[0]) < 1e-12 * h or turn == _LINE_STEPS:
                    if abs(there.value[0]) < 1e-7 * h:
                        there.value[0], there.by_value, there.by_slope[...] = away, there.by_value / slope, 0.0
                        at.put(row, there)
                    break
                away += float(np.clip(there.value[0] / slope, -h, h))
                there = self.read(position, points[row] - away * along[row], bias[row])


class ReferenceView:
    """See `soft_estimator.backends.whole_steps.View`."""

    def __init__(
        self,
        observer: ReferenceObserver,
        points: Array,
        along: Array,
        bias: Array,
        line_bias: Array,
        scale: Array,
        counts: Array,
    ) -> None:
        self.owner: Any = None
        self.points, self.scale = points, scale
        self.far: Array = np.zeros(len(points), np.int32)
        self._observer, self._along, self._bias, self._line_bias = observer, along, bias, line_bias
        ends = np.concatenate([[0], np.cumsum(counts)])
        self._frames = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self._nodes, self._directions = np.zeros((len(points), 9), np.int64), np.zeros((len(points), 9, 3))

    def measure(self, u: Array) -> Array:
        out = np.empty(len(self.points))
        for frame, rows in enumerate(self._frames):
            out[rows] = self._measure(rows, self._observer.rest + self._observer.follow @ u[frame])
        return out

    def _measure(self, rows: slice, position: Array) -> Array:
        """Residuals of one frame: over the halo's last cell the field goes over into the nearest vertex's distance."""
        o, points = self._observer, self.points[rows]
        at = o.read(position, points, self._bias[rows])
        o.read_along(position, points, self._along[rows], self._line_bias[rows], at)
        found = at.cell >= 0
        t = np.where(found, np.clip(at.value / o.spacing - (o.halo_cells - 1), 0.0, 1.0), 1.0)
        blend, blend_slope = t**2 * (3 - 2 * t), 6 * t * (1 - t) / o.spacing
        from_vertex = points[:, None] - position[len(position) - o.vertices :]
        square = (from_vertex**2).sum(axis=2)
        nearest = square.argmin(axis=1)
        distance = np.sqrt(square.min(axis=1))
        away = from_vertex[np.arange(len(points)), nearest] / np.maximum(distance, 1e-300)[:, None]
        part = np.where(found, 1 - blend + blend_slope * (distance - at.value), 0.0)
        self.far[rows] = blend >= 1.0
        self._nodes[rows, :8] = o.cell_nodes[np.maximum(at.cell, 0)]
        self._nodes[rows, 8] = len(position) - o.vertices + nearest
        self._directions[rows, :8] = part[:, None, None] * at.directions()
        self._directions[rows, 8] = blend[:, None] * away
        return (1 - blend) * at.value + blend * distance

    def change(self, frame: int, before: Array, after: Array, way: float, out: Array) -> None:
        rows, follow = self._frames[frame], self._observer.follow
        for j in range(out.shape[1]):
            moved = (follow @ ((1 - way) * before[j] + way * after[j]))[self._nodes[rows]]
            out[rows, j] = -self.scale[rows] * (self._directions[rows] * moved).sum(axis=(1, 2))

    def pull_back(self, bar: Array) -> Array:
        follow = self._observer.follow
        out = np.empty((len(self._frames), follow.shape[1], 3))
        for frame, rows in enumerate(self._frames):
            node_bar = np.zeros((follow.shape[0], 3))
            np.add.at(node_bar, self._nodes[rows], -bar[rows, None, None] * self._directions[rows])
            out[frame] = follow.T @ node_bar
        return out
