"""From the body part of a scene to its signed distance grid: shapes, files, and a grid that fits in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import cast

import numpy as np

from soft_estimator.config_body import (
    BodyConfig,
    BoxShape,
    CylinderShape,
    MeshShape,
    ScanShape,
    SdfShape,
    Shape,
    Simple,
    SphereShape,
    TorusShape,
    UnionShape,
)
from soft_estimator.geometry import shapes
from soft_estimator.geometry.body_file import read_body, read_detail
from soft_estimator.geometry.extent import widest_solid_m
from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.mesh_file import load_mesh, mesh_distance, mesh_to_sdf
from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.sdf_file import read_sdf
from soft_estimator.geometry.surface import extract_surface
from soft_estimator.scene.memory import check_memory
from soft_estimator.schema import ConfigError

_AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


@dataclass(frozen=True)
class BodyField:
    """The signed distance grid of a body and, where its shape is known better than on the grid, φ on a finer one."""

    grid: SignedDistanceGrid
    detail: SignedDistanceGrid | None = None


def build_grid(
    body: BodyConfig, folder: Path, data: Path | None, memory_bytes: float | None = None
) -> SignedDistanceGrid:
    """The signed distance grid of a body; arguments as of `build_field`."""
    return build_field(replace(body, detail=1), folder, data, memory_bytes).grid


def build_field(body: BodyConfig, folder: Path, data: Path | None, memory_bytes: float | None = None) -> BodyField:
    """The signed distance grid of a body, and its detail.

    Args:
        body: what it looks like.
        folder: where the scene file lies; its files are looked for here first.
        data: the data folder, where they are looked for next.
        memory_bytes: what the simulation may take; what the machine has left by default.
    """
    files = Files(folder, data)
    own_grid = body.spacing_m is None and body.cells_along_longest is None
    if own_grid and isinstance(body.shape, SdfShape | ScanShape):
        key = f"body.shape.{body.shape.tag}"
        grid, detail = files.read_grid(body.shape, key), None
        if isinstance(body.shape, ScanShape):
            grid = replace(grid, origin_m=grid.origin_m + body.shape.shift_m)
            if body.detail > 1:
                detail = read_detail(files.find(body.shape.file, f"{key}.file"), grid)
        check_memory(lambda _: grid, np.array(grid.shape) - 1.0, grid.spacing_m, memory_bytes, key)
        return BodyField(grid, detail)
    source = _source(body.shape, files, "body.shape")
    span = source.high_m - source.low_m
    spacing = body.spacing_m or float(span.max()) / cast(int, body.cells_along_longest)
    if isinstance(body.shape, UnionShape):
        source = _source(body.shape, replace(files, resolution_m=spacing / body.detail), "body.shape")
    align = cast(shapes.Align, body.align)
    check_memory(lambda h: source.sample(h, align), span / spacing, spacing, memory_bytes, "body.spacing_m")
    grid = source.sample(spacing, align)
    detail = shapes.refine(source.distance_m(), grid, body.detail) if body.detail > 1 else None
    return BodyField(grid, detail)


def body_width_m(body: BodyConfig, folder: Path, data: Path | None) -> float:
    """The largest width [m] of a body, from its shape alone: nothing is sampled; arguments as of `build_field`."""
    return widest_solid_m(build_shape(body.shape, Files(folder, data), "body.shape").support_m)


# A mesh without a unit of its own that is larger is a part of 20 mm or more, drawn in millimetres.
_LARGEST_MESH_M = 20.0


@dataclass(frozen=True)
class Files:
    """The folders in which a scene's files are looked for, in this order.

    `resolution_m` [m] is how finely a mesh that is part of a union is sampled.
    """

    folder: Path
    data: Path | None
    resolution_m: float = 0.0

    def find(self, name: str, key: str) -> Path:
        """The file of that name."""
        for place in (self.folder, self.data):
            if place is not None and (place / name).is_file():
                return place / name
        if self.data is None:
            raise ConfigError(f"= '{name}' is not in {self.folder}; give the folder that holds it with --data", key)
        raise ConfigError(f"= '{name}' is neither in {self.folder} nor in {self.data}; check the name or --data", key)

    def read_grid(self, shape: SdfShape | ScanShape, key: str) -> SignedDistanceGrid:
        """The grid a file holds, as it is stored."""
        path = self.find(shape.file, f"{key}.file")
        if isinstance(shape, ScanShape):
            return read_body(path)
        return read_sdf(path, shape.size_m, shape.spacing_m)

    def read_mesh(self, shape: MeshShape, key: str) -> tuple[np.ndarray, np.ndarray]:
        vertices, faces = load_mesh(self.find(shape.file, f"{key}.file"), shape.scale_to_m)
        size_m = np.ptp(vertices, axis=0)
        if shape.scale_to_m == 1.0 and size_m.max() > _LARGEST_MESH_M:
            sides = " x ".join(f"{side:.3g}" for side in size_m)
            raise ConfigError(
                f"= '{shape.file}' is {sides} m large if its unit is the metre; where that is the millimetre, write "
                "scale_to_m: 0.001",
                f"{key}.file",
            )
        return vertices @ rotation_matrix(np.array(shape.rotation_rad)).T, faces


@dataclass(frozen=True)
class _Source:
    """A body that can be sampled: its bounds (3,) [m] each, the grid for a spacing [m] and an alignment, and what gives
    its signed distance (n, 3) [m] -> (n,) [m]."""

    low_m: np.ndarray
    high_m: np.ndarray
    sample: Callable[[float, shapes.Align], SignedDistanceGrid]
    distance_m: Callable[[], Callable[[np.ndarray], np.ndarray]]


def _source(config: Shape, files: Files, key: str) -> _Source:
    if isinstance(config, MeshShape):  # alone it is sampled exactly, not through a grid of its own
        vertices, faces = files.read_mesh(config, f"{key}.mesh")
        used = vertices[np.unique(faces)]
        return _Source(
            used.min(axis=0),
            used.max(axis=0),
            lambda h, align: mesh_to_sdf(vertices, faces, h, align=align),
            lambda: mesh_distance(vertices, faces),
        )
    shape = build_shape(config, files, key)
    return _Source(*shape.bounds_m(), lambda h, align: shapes.sample(shape, h, align=align), lambda: shape.distance_m)


def build_shape(config: Shape, files: Files, key: str) -> shapes.Shape:
    """The solid that a shape of the configuration describes."""
    turn = rotation_matrix(np.array(config.rotation_rad))
    if isinstance(config, UnionShape):
        parts = [build_shape(part, files, f"{key}.union.of[{i}]") for i, part in enumerate(config.of)]
        return _turned(shapes.Union(parts), turn, np.zeros(3))
    if isinstance(config, MeshShape):
        vertices, faces = files.read_mesh(config, f"{key}.mesh")
        return GridShape(partial(_mesh_grid, vertices, faces, files.resolution_m), vertices[np.unique(faces)])
    if isinstance(config, SdfShape | ScanShape):
        grid = files.read_grid(config, f"{key}.{config.tag}")
        points = extract_surface(grid).positions_m(grid.node_positions_m())
        shift = np.array(config.shift_m) if isinstance(config, ScanShape) else np.zeros(3)
        return _turned(GridShape(lambda: grid, points), turn, shift)
    shape, centre = _simple(config)
    return _turned(shape, turn, np.array(centre))


def _simple(config: Simple) -> tuple[shapes.Shape, tuple[float, ...]]:
    """A shape about the origin, and the centre it is to be moved to."""
    if isinstance(config, BoxShape):
        return shapes.Box(config.size_m), config.center_m
    if isinstance(config, SphereShape):
        return shapes.Sphere(config.radius_m), config.center_m
    if isinstance(config, TorusShape):
        ring = shapes.Torus(config.major_radius_m, config.minor_radius_m, axis=_AXES[config.axis])
        return ring, config.center_m
    if isinstance(config, CylinderShape):
        return shapes.Cylinder(config.radius_m, config.height_m, axis=_AXES[config.axis]), config.center_m
    start, end = np.array(config.start_m), np.array(config.end_m)
    half = 0.5 * (end - start)
    return shapes.Capsule(tuple(-half), tuple(half), config.radius_m), tuple(0.5 * (start + end))


def _turned(shape: shapes.Shape, turn: np.ndarray, shift: np.ndarray) -> shapes.Shape:
    if np.array_equal(turn, np.eye(3)) and not shift.any():
        return shape
    return shapes.Placed(shape, tuple(map(tuple, turn)), tuple(shift))


def _mesh_grid(vertices_m: np.ndarray, faces: np.ndarray, resolution_m: float) -> SignedDistanceGrid:
    # Bounded, since it comes before anyone knows whether the union's own grid fits in memory.
    return mesh_to_sdf(vertices_m, faces, max(resolution_m, float(np.ptp(vertices_m, axis=0).max()) / 256))


@dataclass(frozen=True)
class GridShape(shapes.Shape):
    """A sampled body as a solid: trilinear between the nodes, and beyond the grid the way back to it on top.

    Attributes:
        make_grid: gives the grid when it is first needed. points_m: the body's surface points (n, 3) [m].
    """

    make_grid: Callable[[], SignedDistanceGrid]
    points_m: np.ndarray

    @cached_property
    def _field(self) -> tuple[SignedDistanceGrid, Callable[[np.ndarray], np.ndarray]]:
        from scipy.interpolate import RegularGridInterpolator

        grid = self.make_grid()
        axes = [o + grid.spacing_m * np.arange(n) for o, n in zip(grid.origin_m, grid.shape, strict=True)]
        return grid, RegularGridInterpolator(axes, grid.phi_m)

    def distance_m(self, points_m: np.ndarray) -> np.ndarray:
        grid, interpolate = self._field
        last = grid.origin_m + grid.spacing_m * (np.array(grid.shape) - 1)
        nearest = np.clip(points_m, grid.origin_m, last)
        return interpolate(nearest) + np.linalg.norm(points_m - nearest, axis=1)

    def support_m(self, direction: np.ndarray) -> float:
        return float((self.points_m @ direction).max())
