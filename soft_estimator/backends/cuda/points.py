"""Observed points against a carried field, on the device: located, measured, changed and pulled back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cupy
import numpy as np

from soft_estimator.backends.cuda.arrays import typed, writing
from soft_estimator.backends.cuda.kernels import compile_ahead, launch
from soft_estimator.backends.interface import Array

_TILE = 32  # cells, as in points.cu
_REAL = np.float64


def find_cells(
    points: Array, position: Array, cell_nodes: Array, in_body: Array, value: Array, spacing_m: float
) -> tuple[Array, Array]:
    """Cell (n,), -1 for none, and local coordinates (n, 3) of every point; see backends/cpu/points.py."""
    nodes, count, at = typed(cell_nodes, np.int32), len(points), typed(position, _REAL)
    boxes = _boxes(at.reshape(1, -1, 3), nodes)
    cell, local = cupy.empty(count, np.int32), cupy.empty((count, 3))
    field = (len(at), len(nodes), nodes, typed(in_body, np.uint8), typed(value, _REAL), 1.5 * spacing_m)
    launch("points", "locate", _REAL, 32 * count, count, typed(points, _REAL), *field, at, *boxes, cell, local)
    return cell, local


def surface_distances(
    found: Array,
    local: Array,
    position: Array,
    cell_nodes: Array,
    value: Array,
    least_slope: float,
    distance: Array,
    weights: Array,
    slopes: Array,
    by_value: Array,
    by_slope: Array,
) -> None:
    given = (typed(local, _REAL), typed(position, _REAL), typed(cell_nodes, np.int32), typed(value, _REAL))
    with writing(found, np.int32) as cell:
        out = (distance, weights, slopes, by_value, by_slope)
        arguments = (len(cell), cell, *given, float(least_slope), *out)
        launch("points", "surface_distances", _REAL, len(cell), *arguments)


def _boxes(position: Array, cell_nodes: Array) -> tuple[Array, Array]:
    frames, nodes = position.shape[:2]
    cells = len(cell_nodes)
    tiles = (cells + _TILE - 1) // _TILE
    boxes, tile_boxes = cupy.empty((frames, cells, 6)), cupy.empty((frames, tiles, 6))
    arguments = (nodes, cells, cell_nodes, position, boxes, tile_boxes)
    launch("points", "box_cells", _REAL, cells, *arguments, grid=(frames,))
    return boxes, tile_boxes


class CudaObserver:
    """A carried field with the surface's vertices as its last nodes.

    Args:
        field: rest (M, 3), phi, laplacian (M,), cell_nodes (C, 8), node_cells (M, 8; -1 for none), in_body (C,), and
            follow_start, follow_column, follow_share: rows of the matrix that carries the body's displacements to the
            nodes; follower_start, ...: of its transpose.
        vertices: how many nodes are vertices. spacing_m: of the grid. halo_cells, least_slope: of the residual. reach:
            cells within which lines are followed to the surface.
    """

    def __init__(
        self,
        field: Mapping[str, Any],
        vertices: int,
        spacing_m: float,
        halo_cells: int,
        least_slope: float,
        reach: float,
    ) -> None:
        kinds = {"rest": _REAL, "phi": _REAL, "laplacian": _REAL, "in_body": np.uint8}
        kinds |= {f"{name}_share": _REAL for name in ("follow", "follower")}
        self.field = {name: typed(cupy.asarray(x), kinds.get(name, np.int32)) for name, x in field.items()}
        self.nodes, self.cells = len(self.field["rest"]), len(self.field["cell_nodes"])
        self.body_nodes, self.vertices = len(self.field["follower_start"]) - 1, vertices
        self.spacing, self.halo_cells, self.least_slope = float(spacing_m), float(halo_cells), float(least_slope)
        self.reach = float(reach)
        compile_ahead(("points", np.dtype(_REAL).name))

    def rows(self, name: str) -> tuple[Array, Array, Array]:
        """The matrix "follow" or its transpose "follower" by rows."""
        return self.field[f"{name}_start"], self.field[f"{name}_column"], self.field[f"{name}_share"]

    def watch(
        self, points: Array, along: Array, bias: Array, line_bias: Array, scale: Array, counts: Array
    ) -> CudaView:
        """Frames of points (n, 3) [m], `counts` of them each.

        along: ray over its cosine to the normal, zero where unknown, (n, 3). bias, line_bias: how much of Δφ the noise
            sees, at a point and where its line meets the surface, (n,). scale: 1/std, (n,).
        """
        return CudaView(self, points, along, bias, line_bias, scale, counts)


class CudaView:
    """Residuals of some frames; all arrays stay on the device."""

    def __init__(
        self,
        observer: CudaObserver,
        points: Array,
        along: Array,
        bias: Array,
        line_bias: Array,
        scale: Array,
        counts: Array,
    ) -> None:
        self.observer, self.frames, n = observer, len(counts), len(points)
        self.owner: Any = None  # who measured last, for those who come back to what they measured
        given = (points, along, bias, line_bias, scale)
        self.points, self.along, self.bias, self.line_bias, self.scale = (typed(cupy.asarray(x), _REAL) for x in given)
        self.frame = cupy.asarray(np.repeat(np.arange(self.frames, dtype=np.int32), counts))
        self.ends = np.concatenate([[0], np.cumsum(counts)])
        self.cell, self.vertex, self.far = (cupy.empty(n, np.int32) for _ in range(3))
        self.by_value, self.by_slope, self.away = (cupy.empty((n, 3)) for _ in range(3))
        self.weights, self.slopes, self.residual = cupy.empty((n, 8)), cupy.empty((n, 8)), cupy.empty(n)

    def measure(self, u: Array) -> Array:
        """Signed distances (n,) [m] at displacements u (frames, N, 3) of the body's nodes; does not wait."""
        o, n = self.observer, len(self.points)
        u = typed(u, _REAL)
        position = cupy.empty((self.frames, o.nodes, 3))
        carried = (o.nodes, o.body_nodes, *o.rows("follow"), o.field["rest"], u, position)
        launch("points", "carry_nodes", _REAL, o.nodes, *carried, grid=(self.frames,))
        boxes = _boxes(position, o.field["cell_nodes"])
        points = (n, self.points, self.bias, self.along, self.line_bias, self.frame, o.nodes, o.cells)
        field = (o.field["cell_nodes"], o.field["in_body"], o.field["phi"], 1.5 * o.spacing, position, *boxes)
        surface = (o.vertices, o.field["laplacian"], o.spacing, o.halo_cells, o.least_slope, o.reach)
        out = (self.residual, self.cell, *self._parts(), self.vertex, self.away, self.far)
        launch("points", "measure_points", _REAL, 32 * n, *points, *field, *surface, *out)
        return self.residual

    def _parts(self) -> tuple:
        return self.weights, self.slopes, self.by_value, self.by_slope

    def change(self, frame: int, before: Array, after: Array, way: float, out: Array) -> None:
        """Changes of a frame's residuals times 1/std, into out (n of all frames, columns).

        Args:
            before, after: changes of the body's nodes around the frame, (columns, N, 3). way: share of the way between.
        """
        o, rows = self.observer, slice(int(self.ends[frame]), int(self.ends[frame + 1]))
        count, width = rows.stop - rows.start, out.shape[1]
        nodes = (count, o.body_nodes, o.nodes, o.vertices, *o.rows("follow"), o.field["cell_nodes"])
        parts = (self.cell, *self._parts(), self.vertex, self.away, self.scale)
        arguments = (*nodes, *(x[rows] for x in parts), before, after, float(way), width, out[rows])
        launch("points", "change_points", before.dtype, count, *arguments, grid=(width,))

    def pull_back(self, bar: Array) -> Array:
        """Derivatives by the body's nodes (frames, N, 3), given those by the residuals (n,)."""
        o = self.observer
        cells, vertices = self._listed(self.cell, o.cells), self._listed(self.vertex, o.vertices)
        node_bar, out = cupy.empty((self.frames, o.nodes, 3)), cupy.empty((self.frames, o.body_nodes, 3))
        nodes = (o.nodes, o.vertices, o.cells, o.field["node_cells"], *cells, *vertices)
        arguments = (*nodes, *self._parts(), self.away, typed(bar, _REAL), node_bar)
        launch("points", "pull_points", _REAL, o.nodes, *arguments, grid=(self.frames,))
        arguments = (o.body_nodes, o.nodes, *o.rows("follower"), node_bar, out)
        launch("points", "gather_followers", _REAL, o.body_nodes, *arguments, grid=(self.frames,))
        return out

    def _listed(self, place: Array, count: int) -> tuple[Array, Array]:
        """Points by their cell (or vertex) of each frame: where each one's begin, and the points in that order."""
        key = cupy.where(place < 0, self.frames * count, self.frame.astype(np.int64) * count + place)
        order = cupy.argsort(key)  # CuPy's sort is stable
        return cupy.searchsorted(key[order], cupy.arange(self.frames * count + 1)), order
