"""Analytic bodies and their signed distance on a grid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from soft_estimator.geometry.grid import SignedDistanceGrid

Align = Literal["bounds", "centre", "origin"]

DEFAULT_NODE_BUDGET = 50_000_000
# Distances below this fraction of the spacing are rounding noise of a face that lies on a grid plane.
SNAP_FRACTION = 1e-9
_CHUNK_NODES = 1 << 18


class Shape(ABC):
    """A solid body in its own frame."""

    @abstractmethod
    def distance_m(self, points_m: np.ndarray) -> np.ndarray:
        """Signed distance [m], negative inside, of points [m] of shape (n, 3); shape (n,)."""

    @abstractmethod
    def support_m(self, direction: np.ndarray) -> float:
        """Largest x·direction [m] over the body, for a unit direction of shape (3,)."""

    def bounds_m(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest corner [m] of the tight axis-aligned box, each of shape (3,)."""
        axes = np.eye(3)
        return np.array([-self.support_m(-a) for a in axes]), np.array([self.support_m(a) for a in axes])


@dataclass(frozen=True)
class Box(Shape):
    """Cuboid with full side lengths size_m (3,) [m] around centre_m (3,) [m]."""

    size_m: Sequence[float]
    centre_m: Sequence[float] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        _freeze_vectors(self, "size_m", "centre_m")
        if min(self.size_m) <= 0:
            raise ValueError(f"Box size_m must be positive along every axis, got {self.size_m}")

    def distance_m(self, points_m: np.ndarray) -> np.ndarray:
        excess = np.abs(np.asarray(points_m) - np.array(self.centre_m)) - 0.5 * np.array(self.size_m)
        x, y, z = excess.T
        return _lengths(np.maximum(excess, 0.0)) + np.minimum(np.maximum(np.maximum(x, y), z), 0.0)

    def support_m(self, direction: np.ndarray) -> float:
        return float(np.dot(self.centre_m, direction) + 0.5 * np.dot(self.size_m, np.abs(direction)))


@dataclass(frozen=True)
class Sphere(Shape):
    """Ball of radius_m [m] around centre_m (3,) [m]."""

    radius_m: float
    centre_m: Sequence[float] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        _freeze_vectors(self, "centre_m")
        _require_positive(self, "radius_m")

    def distance_m(self, points_m: np.ndarray) -> np.ndarray:
        return _lengths(np.asarray(points_m) - np.array(self.centre_m)) - self.radius_m

    def support_m(self, direction: np.ndarray) -> float:
        return float(np.dot(self.centre_m, direction) + self.radius_m)


@dataclass(frozen=True)
class Torus(Shape):
    """Tube of minor_radius_m [m] around a circle of major_radius_m [m]; axis (3,) is normal to the circle's plane."""

    major_radius_m: float
    minor_radius_m: float
    centre_m: Sequence[float] = (0.0, 0.0, 0.0)
    axis: Sequence[float] = (0.0, 0.0, 1.0)

    def __post_init__(self) -> None:
        _freeze_vectors(self, "centre_m", "axis")
        _require_positive(self, "major_radius_m", "minor_radius_m")
        _freeze_direction(self, "axis", "give the normal of the ring's plane")
        if self.minor_radius_m >= self.major_radius_m:
            raise ValueError(
                f"Torus minor_radius_m ({self.minor_radius_m}) must be smaller than major_radius_m "
                f"({self.major_radius_m}); otherwise the ring has no hole"
            )

    def distance_m(self, points_m: np.ndarray) -> np.ndarray:
        offset = np.asarray(points_m) - np.array(self.centre_m)
        height = offset @ np.array(self.axis)
        radial = _lengths(offset - height[:, None] * np.array(self.axis))
        return np.hypot(radial - self.major_radius_m, height) - self.minor_radius_m

    def support_m(self, direction: np.ndarray) -> float:
        in_plane = np.linalg.norm(np.cross(self.axis, direction))
        return float(np.dot(self.centre_m, direction) + self.major_radius_m * in_plane + self.minor_radius_m)


@dataclass(frozen=True)
class Cylinder(Shape):
    """All points within radius_m [m] of an axis (3,) through centre_m (3,) [m], height_m [m] along it from flat end to
    flat end."""

    radius_m: float
    height_m: float
    centre_m: Sequence[float] = (0.0, 0.0, 0.0)
    axis: Sequence[float] = (0.0, 0.0, 1.0)

    def __post_init__(self) -> None:
        _freeze_vectors(self, "centre_m", "axis")
        _require_positive(self, "radius_m", "height_m")
        _freeze_direction(self, "axis", "give the direction from one flat end to the other")

    def distance_m(self, points_m: np.ndarray) -> np.ndarray:
        offset = np.asarray(points_m) - np.array(self.centre_m)
        height = offset @ np.array(self.axis)
        radial = _lengths(offset - height[:, None] * np.array(self.axis))
        beside, beyond = radial - self.radius_m, np.abs(height) - 0.5 * self.height_m
        outside = np.sqrt(np.maximum(beside, 0.0) ** 2 + np.maximum(beyond, 0.0) ** 2)
        return outside + np.minimum(np.maximum(beside, beyond), 0.0)

    def support_m(self, direction: np.ndarray) -> float:
        along, across = abs(np.dot(self.axis, direction)), np.linalg.norm(np.cross(self.axis, direction))
        return float(np.dot(self.centre_m, direction) + 0.5 * self.height_m * along + self.radius_m * across)


@dataclass(frozen=True)
class Capsule(Shape):
    """All points within radius_m [m] of the segment from start_m (3,) to end_m (3,) [m]."""

    start_m: Sequence[float]
    end_m: Sequence[float]
    radius_m: float

    def __post_init__(self) -> None:
        _freeze_vectors(self, "start_m", "end_m")
        _require_positive(self, "radius_m")
        if self.start_m == self.end_m:
            raise ValueError(f"Capsule start_m and end_m are both {self.start_m}; use a Sphere instead")

    def distance_m(self, points_m: np.ndarray) -> np.ndarray:
        start, along = np.array(self.start_m), np.subtract(self.end_m, self.start_m)
        offset = np.asarray(points_m) - start
        fraction = np.clip(offset @ along / (along @ along), 0.0, 1.0)
        return _lengths(offset - fraction[:, None] * along) - self.radius_m

    def support_m(self, direction: np.ndarray) -> float:
        return float(max(np.dot(self.start_m, direction), np.dot(self.end_m, direction)) + self.radius_m)


@dataclass(frozen=True)
class Union(Shape):
    """All points of several shapes. The minimum of their distances is exact outside; inside it is a lower bound of
    the depth, with the right sign and the right zero set."""

    shapes: Sequence[Shape]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shapes", tuple(self.shapes))
        if not self.shapes:
            raise ValueError("Union shapes is empty; give at least one shape")

    def distance_m(self, points_m: np.ndarray) -> np.ndarray:
        return np.min([shape.distance_m(points_m) for shape in self.shapes], axis=0)

    def support_m(self, direction: np.ndarray) -> float:
        return max(shape.support_m(direction) for shape in self.shapes)


@dataclass(frozen=True)
class Placed(Shape):
    """Another shape, moved: a point x of it goes to rotation (3, 3) · x + translation_m (3,) [m]."""

    shape: Shape
    rotation: Sequence[Sequence[float]] | np.ndarray = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    translation_m: Sequence[float] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        _freeze_vectors(self, "translation_m")
        matrix = np.asarray(self.rotation, dtype=np.float64)
        if matrix.shape != (3, 3) or not np.allclose(matrix @ matrix.T, np.eye(3), atol=1e-9):
            raise ValueError(f"Placed rotation must be an orthonormal 3x3 matrix, got {matrix.tolist()}")
        if np.linalg.det(matrix) < 0:
            raise ValueError("Placed rotation is a reflection (determinant -1); flip one of its axes")
        object.__setattr__(self, "rotation", tuple(tuple(float(a) for a in row) for row in matrix))

    def distance_m(self, points_m: np.ndarray) -> np.ndarray:
        # rows times R apply Rᵀ, the inverse rotation
        return self.shape.distance_m((np.asarray(points_m) - np.array(self.translation_m)) @ np.array(self.rotation))

    def support_m(self, direction: np.ndarray) -> float:
        return float(np.dot(self.translation_m, direction)) + self.shape.support_m(direction @ np.array(self.rotation))


def sample(
    shape: Shape,
    spacing_m: float,
    margin_cells: int = 2,
    align: Align = "bounds",
    node_budget: int = DEFAULT_NODE_BUDGET,
) -> SignedDistanceGrid:
    """Sample a shape's signed distance on a grid that surrounds it with at least margin_cells layers of outside nodes.

    Args:
        shape: the body.
        spacing_m: edge length of a cell [m].
        margin_cells: layers of outside nodes around the body's bounds.
        align: where the grid planes lie, see plan_grid.
        node_budget: most nodes the grid may have; checked before anything is allocated.
    """
    low, high = shape.bounds_m()
    return sample_distance(shape.distance_m, low, high, spacing_m, margin_cells, align, node_budget)


def sample_distance(
    distance_m: Callable[[np.ndarray], np.ndarray],
    low_m: np.ndarray,
    high_m: np.ndarray,
    spacing_m: float,
    margin_cells: int = 2,
    align: Align = "bounds",
    node_budget: int = DEFAULT_NODE_BUDGET,
) -> SignedDistanceGrid:
    """Sample a distance function (n, 3) [m] -> (n,) [m] around the box from low_m to high_m [m], in chunks of nodes."""
    origin, counts = plan_grid(low_m, high_m, spacing_m, margin_cells, align, node_budget)
    total = counts[0] * counts[1] * counts[2]
    phi = np.empty(total)
    for first in range(0, total, _CHUNK_NODES):
        flat = np.arange(first, min(first + _CHUNK_NODES, total))
        nodes = origin + spacing_m * np.stack(np.unravel_index(flat, counts), axis=-1)
        phi[flat] = distance_m(nodes)
    phi[np.abs(phi) <= SNAP_FRACTION * spacing_m] = 0.0
    if not (phi < 0).any():
        raise ValueError(
            f"spacing_m {spacing_m:g} is too coarse: no grid node lies inside the body of size "
            f"{_by(np.subtract(high_m, low_m))} m; use a spacing below half of its thinnest part"
        )
    return SignedDistanceGrid(phi.reshape(counts), origin, spacing_m)


def refine(distance_m: Callable[[np.ndarray], np.ndarray], grid: SignedDistanceGrid, parts: int) -> SignedDistanceGrid:
    """φ on the grid with every cell edge split into `parts`; far from the surface, where it is not needed, trilinear.

    Only nodes within a cell's diagonal of the surface are asked of distance_m (n, 3) [m] -> (n,) [m]: a closed mesh of
    many triangles is slow to ask.
    """
    phi = interpolated(grid.phi_m, parts)
    spacing = grid.spacing_m / parts
    near = np.nonzero(np.abs(phi.ravel()) <= np.sqrt(3.0) * grid.spacing_m)[0]
    for first in range(0, near.size, _CHUNK_NODES):
        flat = near[first : first + _CHUNK_NODES]
        nodes = grid.origin_m + spacing * np.stack(np.unravel_index(flat, phi.shape), axis=-1)
        phi.ravel()[flat] = distance_m(nodes)
    phi[np.abs(phi) <= SNAP_FRACTION * spacing] = 0.0
    return SignedDistanceGrid(phi, grid.origin_m, spacing)


def interpolated(phi: np.ndarray, parts: int) -> np.ndarray:
    """Nodal values of a grid at the nodes of the grid refined by `parts`, linear along each axis."""
    for axis in range(3):
        line = np.moveaxis(phi, axis, 0)
        at = np.arange(parts * (len(line) - 1) + 1)
        low = np.minimum(at // parts, len(line) - 2)
        weight = (at / parts - low).reshape(-1, 1, 1)
        phi = np.moveaxis((1.0 - weight) * line[low] + weight * line[low + 1], 0, axis)
    return np.ascontiguousarray(phi)


def plan_grid(
    low_m: np.ndarray,
    high_m: np.ndarray,
    spacing_m: float,
    margin_cells: int = 2,
    align: Align = "bounds",
    node_budget: int = DEFAULT_NODE_BUDGET,
) -> tuple[np.ndarray, tuple[int, int, int]]:
    """Place a grid around the box from low_m to high_m (3,) [m]: its origin (3,) [m] and nodes along x, y, z.

    align:
        "bounds": symmetric about the box's centre with the fewest cells that cover it, so a side that is a multiple
            of the spacing has both its faces on grid planes (a beam then has full cells only);
        "centre": a node sits on the box's centre;
        "origin": nodes sit on integer multiples of the spacing, so grids of different bodies share their planes.
    """
    low, high = np.asarray(low_m, dtype=np.float64), np.asarray(high_m, dtype=np.float64)
    if not (np.isfinite(spacing_m) and spacing_m > 0):
        raise ValueError(f"spacing_m must be positive, got {spacing_m}")
    if margin_cells < 1:
        raise ValueError(f"margin_cells must be at least 1, got {margin_cells}; the body needs outside nodes around it")
    if align not in ("bounds", "centre", "origin"):
        raise ValueError(f"align must be 'bounds', 'centre' or 'origin', got {align!r}")
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (high >= low).all()):
        raise ValueError(f"the body's bounds {low} to {high} m are not a finite box")
    first, last = _node_range(low, high, spacing_m, margin_cells, align)
    counts = last - first + 1.0
    # counts stay floats until they are known to be small: a tiny spacing would overflow an integer
    if not np.prod(counts) <= node_budget:
        raise ValueError(_over_budget(low, high, spacing_m, margin_cells, align, node_budget))
    anchor = np.zeros(3) if align == "origin" else 0.5 * (low + high)
    return anchor + spacing_m * first, (int(counts[0]), int(counts[1]), int(counts[2]))


def _node_range(
    low: np.ndarray, high: np.ndarray, spacing_m: float, margin_cells: int, align: Align
) -> tuple[np.ndarray, np.ndarray]:
    """First and last node along each axis, in spacings from the anchor (body centre, or the frame's origin)."""
    # a side of 9.9999999999 or 10.0000000001 cells is meant to be 10 cells
    slack = SNAP_FRACTION
    if align == "bounds":
        half = 0.5 * np.maximum(np.ceil((high - low) / spacing_m - slack), 1.0)
        return -half - margin_cells, half + margin_cells
    if align == "centre":
        half = np.ceil(0.5 * (high - low) / spacing_m - slack)
        return -half - margin_cells, half + margin_cells
    return (
        np.floor(low / spacing_m + slack) - margin_cells,
        np.ceil(high / spacing_m - slack) + margin_cells,
    )


def _over_budget(
    low: np.ndarray, high: np.ndarray, spacing_m: float, margin_cells: int, align: Align, node_budget: int
) -> str:
    def nodes(spacing: float) -> float:
        first, last = _node_range(low, high, spacing, margin_cells, align)
        return float(np.prod(last - first + 1.0))

    needed = nodes(spacing_m)
    start = (
        f"spacing_m {spacing_m:g} needs {needed:.3g} nodes ({8e-9 * needed:.3g} GB for the distance field alone), "
        f"over the budget of {node_budget} nodes"
    )
    # a hundredth more each time, from the cube root law, rounded as it is printed
    fitting = spacing_m * max(1.0, (needed / node_budget) ** (1 / 3)) if node_budget > 0 else np.inf
    while np.isfinite(fitting) and nodes(float(f"{fitting:.3g}")) > node_budget:
        fitting *= 1.01
        if fitting > 2.0 * float((high - low).max()):
            fitting = np.inf
    if np.isfinite(fitting):
        return f"{start}; use a spacing of {fitting:.3g} m or more"
    return f"{start}; raise the budget, which is too small for any spacing"


def _lengths(vectors: np.ndarray) -> np.ndarray:
    """Lengths (n,) of vectors (n, 3): by columns, since NumPy takes six times as long along rows of three."""
    x, y, z = vectors.T
    return np.sqrt(x * x + y * y + z * z)


def _freeze_vectors(shape: Shape, *names: str) -> None:
    for name in names:
        vector = np.asarray(getattr(shape, name), dtype=np.float64)
        if vector.shape != (3,) or not np.isfinite(vector).all():
            raise ValueError(f"{type(shape).__name__} {name} must be three finite numbers, got {getattr(shape, name)}")
        object.__setattr__(shape, name, tuple(float(a) for a in vector))


def _freeze_direction(shape: Shape, name: str, remedy: str) -> None:
    vector = getattr(shape, name)
    length = float(np.linalg.norm(vector))
    if length == 0:
        raise ValueError(f"{type(shape).__name__} {name} must not be zero, got {vector}; {remedy}")
    object.__setattr__(shape, name, tuple(float(a) / length for a in vector))


def _require_positive(shape: Shape, *names: str) -> None:
    for name in names:
        value = getattr(shape, name)
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{type(shape).__name__} {name} must be positive, got {value}")


def _by(size: np.ndarray) -> str:
    return " x ".join(f"{a:g}" for a in size)
