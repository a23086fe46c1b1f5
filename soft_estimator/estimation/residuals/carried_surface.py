"""The carried field asked about points: how far each is from the deformed surface, and along a line to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.backends.interface import Array, Backend
from soft_estimator.estimation.residuals.carried_field import CarriedField
from soft_estimator.geometry.grid import CORNER_OFFSETS
from soft_estimator.physics.body import Body

# Below this |∇φ| a point lies in the middle of a thin part, where the nearest side is not defined.
LEAST_SLOPE = 0.3
REACH_CELLS = 2.5  # how far from the surface lines are followed: within the halo with a cell to spare on either side
_LINE_STEPS = 12  # of Newton's method along a ray; three are the rule
_LINE_DONE, _LINE_GOOD = 1e-10, 1e-7  # cells off the surface at which the steps end, and at which a line has met it
_ONTO_STEPS, _ONTO_DONE = 8, 1e-12  # the same for points moved onto the surface: steps, and cells moved by the last
_GRAZING = 1e-3  # cosine below which a line runs along the surface and meets it nowhere near


@dataclass
class Measured:
    """Distances of points to the carried surface, as `Backend.surface_distances` gives them.

    Attributes:
        cell: which holds the point, -1 for none, (n,). nodes: of that cell, (n, 8).
        value: distance [m], (n,). weights, slopes (n, 8), by_value, by_slope (n, 3): its derivatives; by_value is also
            its gradient in space.
    """

    cell: np.ndarray
    nodes: np.ndarray
    value: np.ndarray
    weights: np.ndarray
    slopes: np.ndarray
    by_value: np.ndarray
    by_slope: np.ndarray

    def of(self, rows: np.ndarray) -> Measured:
        """Of some of the points."""
        return Measured(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def put(self, rows: np.ndarray, other: Measured) -> None:
        """Replace some of the points by others."""
        for name in self.__dataclass_fields__:
            getattr(self, name)[rows] = getattr(other, name)


@dataclass(frozen=True, eq=False)
class Spread:
    """Weights (n, 8) of the cells' nodes (n, 8) in points, which are spread over the body's nodes when they are asked
    for: of a motion that is only tried nobody asks."""

    field: CarriedField
    nodes: np.ndarray
    weights: np.ndarray

    @cached_property
    def matrix(self) -> sp.csr_matrix:
        """Of the body's nodes, (n, N)."""
        starts, shape = np.arange(0, self.weights.size + 1, 8), (len(self.weights), len(self.field.phi_m))
        return sp.csr_matrix((self.weights.ravel(), self.nodes.ravel(), starts), shape) @ self.field.follow


class CarriedSurface:
    """The field where a displacement u (N, 3) [m] has carried it, ready to be asked about points."""

    def __init__(self, field: CarriedField, u: np.ndarray, backend: Backend | None = None) -> None:
        self.field = field
        self.backend: Backend = backend or CpuBackend()
        to_device = self.backend.to_device
        self.position = to_device(np.ascontiguousarray(field.position_m + field.follow @ u))
        self.cell_nodes, self.in_body, self.phi = map(to_device, (field.cell_nodes, field.in_body, field.phi_m))

    def find(self, points: np.ndarray) -> tuple[Array, Array]:
        """The cell of each point (n,), -1 for none, and its place in it (n, 3), on the device."""
        grid = (self.position, self.cell_nodes, self.in_body, self.phi)
        return self.backend.find_cells(self.backend.to_device(points), *grid, self.field.spacing_m)

    def measure(self, points: np.ndarray, bias: np.ndarray) -> Measured:
        """Distances of points (n, 3) to where φ equals bias (n,) times Δφ."""
        field, b, n = self.field, self.backend, len(points)
        cell, local = self.find(points)
        nodes = field.cell_nodes[np.maximum(b.to_host(cell), 0)]
        nodal = field.phi_m[nodes] - bias[:, None] * field.laplacian_per_m[nodes]
        out = [b.xp.zeros(shape) for shape in (n, (n, 8), (n, 8), (n, 3), (n, 3))]
        b.surface_distances(cell, local, self.position, self.cell_nodes, b.to_device(nodal), LEAST_SLOPE, *out)
        return Measured(b.to_host(cell), nodes, *map(b.to_host, out))

    def measure_along(self, points: np.ndarray, along: np.ndarray, bias: np.ndarray, at: Measured) -> None:
        """Replace what was measured at points by what is measured where their lines along (n, 3) meet the surface.

        value(x - s along) = 0 by Newton's method; then δs = δvalue / (∇value · along), free of the point's own noise.
        Points farther than REACH_CELLS cells from the surface, and those whose lines graze it, keep what they have.
        """
        h = self.field.spacing_m
        rows = np.nonzero((at.cell >= 0) & (np.abs(at.value) < REACH_CELLS * h))[0]
        away, there = np.zeros(len(rows)), at.of(rows)
        for _ in range(_LINE_STEPS):
            slope = np.einsum("na,na->n", there.by_value, along[rows])
            on = (there.cell >= 0) & (slope > LEAST_SLOPE) & (np.abs(away) < (REACH_CELLS + 1) * h)
            if not on.all():
                rows, away, there, slope = rows[on], away[on], there.of(on), slope[on]
            # A few lines that take long do not have all the others measured again.
            left = np.nonzero(np.abs(there.value) >= _LINE_DONE * h)[0]
            if len(left) == 0:
                break
            away[left] += np.clip(there.value[left] / slope[left], -h, h)
            of = rows[left]
            there.put(left, self.measure(points[of] - away[left, None] * along[of], bias[of]))
        slope = np.einsum("na,na->n", there.by_value, along[rows])
        on = (there.cell >= 0) & (slope > LEAST_SLOPE) & (np.abs(there.value) < _LINE_GOOD * h)
        rows, there = rows[on], there.of(on)
        at.nodes[rows], at.weights[rows], at.value[rows] = there.nodes, there.weights, away[on]
        at.by_value[rows], at.by_slope[rows] = there.by_value / slope[on, None], 0.0

    def riding_weights(self, points: np.ndarray) -> sp.csr_matrix:
        """Weights of the body's nodes (n, N) in points (n, 3) [m] that ride with the material where they are now."""
        field, b = self.field, self.backend
        found, local = map(b.to_host, self.find(points))
        if (found < 0).any():
            k = int(np.argmax(found < 0))
            raise ValueError(
                f"point {k} at {np.round(points[k], 4).tolist()} m is not at the body; give points inside it or on it"
            )
        weights = np.where(CORNER_OFFSETS[None] == 1, local[:, None], 1 - local[:, None]).prod(axis=2)
        return Spread(field, field.cell_nodes[found], weights).matrix


def onto_surface(
    body: Body, field: CarriedField, u: np.ndarray, points_m: np.ndarray, rays: np.ndarray | None = None
) -> np.ndarray:
    """Move points near the deformed surface onto φ = 0, along rays (n, 3) or, by default, along the field's gradient.

    The triangles of the embedded surface cut its curved cells short; observations made with the model itself must lie
    on the surface that the residual measures.
    """
    points = np.array(points_m, dtype=np.float64)
    carried = CarriedSurface(field, u)
    moving = np.arange(len(points))
    for _ in range(_ONTO_STEPS):
        at = carried.measure(points[moving], np.zeros(len(moving)))
        direction = at.by_value if rays is None else rays[moving]
        along = np.einsum("na,na->n", at.by_value, direction)
        step = np.where(np.abs(along) > _GRAZING, at.value / np.where(along == 0, 1.0, along), 0.0)
        points[moving] -= np.clip(step, -field.spacing_m, field.spacing_m)[:, None] * direction
        moving = moving[np.abs(step) > _ONTO_DONE * field.spacing_m]
        if len(moving) == 0:
            break
    return points
