"""What a state should look like to a depth camera: residuals of observed points, and their derivatives (METHOD §6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.field import HALO_CELLS, CarriedField
from soft_estimator.physics.body import Body

# Below this |∇φ| a point lies in the middle of a thin part, where the nearest side is not defined.
LEAST_SLOPE = 0.3
_LINE_STEPS = 12  # of Newton's method along a ray; three are the rule
_REACH = 2.5  # cells: how far from the surface lines are followed

# Of noise along a ray that meets a round body anywhere, the mean of ½ sin²θ over what the camera sees.
RAY_CURVATURE_SHARE = 0.25


@dataclass(frozen=True)
class ObservedFrame:
    """Surface points seen at one time.

    Attributes:
        time_s: since the start of the simulation. points_m: world frame, (n, 3).
        std_m: standard deviation of each point's distance to the true surface, (n,).
        curvature_share: how much of Δφ the noise sees: 1 for isotropic noise, ½ tan²θ for noise along a ray at an
            angle θ to the normal, (n,). The mean of a curved field over the noise is off by ½ std² · share · Δφ, which
            is taken off again.
        along: where the noise moved a point, if that is known: the ray over its cosine to the surface normal, so that
            a step of one leads one metre off the surface, (n, 3). Residuals then are measured along it, and neither
            their spread nor their mean depends on how the model's surface is turned or bent.
    """

    time_s: float
    points_m: np.ndarray
    std_m: np.ndarray
    curvature_share: np.ndarray
    along: np.ndarray | None = None

    @classmethod
    def of(
        cls, time_s: float, points_m: np.ndarray, std_m: float | np.ndarray, curvature_share: float = 1.0
    ) -> ObservedFrame:
        """A frame with noise numbers given once for all points or point by point."""
        points = np.ascontiguousarray(points_m, dtype=np.float64).reshape(-1, 3)
        full = np.broadcast_to(np.asarray(std_m, dtype=np.float64), len(points)).copy()
        share = np.broadcast_to(np.asarray(curvature_share, dtype=np.float64), len(points)).copy()
        return cls(float(time_s), points, full, share)


@dataclass(frozen=True)
class Residuals:
    """Signed distances of a frame's points to the model's surface and how they change with the nodes.

    Attributes:
        value_m: (n,). Outside is positive.
        parts: (weights (n, N) sparse, direction (n, 3)) pairs: δvalue = -Σ direction · (weights @ δu).
        far: points beyond the halo, which feel the distance to the nearest surface vertex only, (n,).
    """

    value_m: np.ndarray
    parts: tuple[tuple[sp.csr_matrix, np.ndarray], ...]
    far: np.ndarray

    def change(self, du: np.ndarray) -> np.ndarray:
        """Change of the residuals (n,) for a change du (N, 3) of the nodes."""
        return -sum(np.einsum("na,na->n", direction, weights @ du) for weights, direction in self.parts)

    def changes(self, du: np.ndarray) -> np.ndarray:
        """The same for several changes du (N, 3, B) at once, (n, B)."""
        flat, total = du.reshape(len(du), -1), 0.0
        for weights, direction in self.parts:
            total -= np.einsum("na,nab->nb", direction, (weights @ flat).reshape(len(direction), 3, -1))
        return total

    def pull_back(self, value_bar: np.ndarray) -> np.ndarray:
        """Derivative by the nodes (N, 3), given that by the residuals (n,)."""
        return -sum(weights.T @ (direction * value_bar[:, None]) for weights, direction in self.parts)


def point_residuals(
    body: Body, field: CarriedField, frame: ObservedFrame, u: np.ndarray, backend: Backend | None = None
) -> Residuals:
    """Signed distance of every point of a frame to the surface of the body displaced by u (N, 3) [m].

    Near the body that is φ at the point's place in the rest shape over |∇φ| in space: the distance itself, to first
    order; where the frame says along which ray the noise acts, the distance along that. Over the halo's last cell it
    goes over smoothly into the distance to the nearest vertex of the deformed surface. The backend (default: the
    CPU's) runs the loops over the points.
    """
    carried = CarriedSurface(field, u, backend)
    at = carried.measure(frame.points_m, point_bias(frame))
    found, h, tilt = at.cell >= 0, field.spacing_m, carried.spread(at.nodes, at.slopes)
    if frame.along is not None:
        carried.measure_along(frame.points_m, frame.along, line_bias(frame), at)
    value, near = at.value, carried.spread(at.nodes, at.weights)
    # Blend: 0 on the body, 1 from the halo's end on.
    t = np.where(found, np.clip(value / h - (HALO_CELLS - 1), 0.0, 1.0), 1.0)
    blend, blend_slope = t**2 * (3 - 2 * t), 6 * t * (1 - t) / h
    if not (blend > 0).any():
        return Residuals(value, ((near, at.by_value), (tilt, at.by_slope)), ~found)
    distance, far, away = _nearest_vertex(body, frame.points_m, u, blend > 0)
    total = (1 - blend) * value + blend * distance
    share = np.where(found, (1 - blend) + blend_slope * (distance - value), 0.0)[:, None]
    parts = ((near, share * at.by_value), (tilt, share * at.by_slope), (far, blend[:, None] * away))
    return Residuals(total, parts, blend >= 1.0)


def point_bias(frame: ObservedFrame) -> np.ndarray:
    """How much of Δφ the mean over the noise is off by at each point [m²], (n,)."""
    return 0.5 * frame.std_m**2 * frame.curvature_share


def line_bias(frame: ObservedFrame) -> np.ndarray:
    """The same where the points' lines meet the surface, (n,).

    Noise along the line itself has no mean on it; what ½ tan²θ of the share took off is put back.
    """
    if frame.along is None:
        return point_bias(frame)
    return point_bias(frame) - 0.5 * frame.std_m**2 * 0.5 * ((frame.along**2).sum(axis=1) - 1)


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


class CarriedSurface:
    """The field where a displacement u (N, 3) [m] has carried it, ready to be asked about points."""

    def __init__(self, field: CarriedField, u: np.ndarray, backend: Backend | None = None) -> None:
        self.field, self.backend = field, backend or CpuBackend()
        to_device = self.backend.to_device
        self.position = to_device(np.ascontiguousarray(field.position_m + field.follow @ u))
        self.grid = [to_device(x) for x in (field.cell_nodes, field.in_body, field.phi_m)]

    def measure(self, points: np.ndarray, bias: np.ndarray) -> Measured:
        """Distances of points (n, 3) to where φ equals bias (n,) times Δφ."""
        field, b, n = self.field, self.backend, len(points)
        cell, local = b.find_cells(b.to_device(points), self.position, *self.grid, field.spacing_m)
        nodes = field.cell_nodes[np.maximum(b.to_host(cell), 0)]
        nodal = field.phi_m[nodes] - bias[:, None] * field.laplacian_per_m[nodes]
        out = [b.xp.zeros(shape) for shape in (n, (n, 8), (n, 8), (n, 3), (n, 3))]
        b.surface_distances(cell, local, self.position, self.grid[0], b.to_device(nodal), LEAST_SLOPE, *out)
        return Measured(b.to_host(cell), nodes, *map(b.to_host, out))

    def measure_along(self, points: np.ndarray, along: np.ndarray, bias: np.ndarray, at: Measured) -> None:
        """Replace what was measured at points by what is measured where their lines along (n, 3) meet the surface.

        value(x - s along) = 0 by Newton's method; then δs = δvalue / (∇value · along), free of the point's own noise.
        Points farther than _REACH cells from the surface, and those whose lines graze it, keep what they have.
        """
        h = self.field.spacing_m
        rows = np.nonzero((at.cell >= 0) & (np.abs(at.value) < _REACH * h))[0]
        away, there = np.zeros(len(rows)), at.of(rows)
        for _ in range(_LINE_STEPS):
            slope = np.einsum("na,na->n", there.by_value, along[rows])
            on = (there.cell >= 0) & (slope > LEAST_SLOPE) & (np.abs(away) < (_REACH + 1) * h)
            rows, away, there, slope = rows[on], away[on], there.of(on), slope[on]
            if len(rows) == 0:
                return
            if np.abs(there.value).max() < 1e-10 * h:
                break
            away += np.clip(there.value / slope, -h, h)
            there = self.measure(points[rows] - away[:, None] * along[rows], bias[rows])
        slope = np.einsum("na,na->n", there.by_value, along[rows])
        on = (there.cell >= 0) & (slope > LEAST_SLOPE) & (np.abs(there.value) < 1e-7 * h)
        rows, there = rows[on], there.of(on)
        at.nodes[rows], at.weights[rows], at.value[rows] = there.nodes, there.weights, away[on]
        at.by_value[rows], at.by_slope[rows] = there.by_value / slope[on, None], 0.0

    def spread(self, nodes: np.ndarray, weights: np.ndarray) -> sp.csr_matrix:
        """Weights of the body's nodes (n, N) from those of the cells' nodes (n, 8)."""
        starts, shape = np.arange(0, weights.size + 1, 8), (len(weights), len(self.field.phi_m))
        return sp.csr_matrix((weights.ravel(), nodes.ravel(), starts), shape) @ self.field.follow


def _nearest_vertex(
    body: Body, points: np.ndarray, u: np.ndarray, select: np.ndarray
) -> tuple[np.ndarray, sp.csr_matrix, np.ndarray]:
    """Distance to the nearest vertex of the deformed surface, its node weights and the unit vector from it."""
    vertices = body.surface_positions_m(u)
    n = len(points)
    distance, away = np.zeros(n), np.zeros((n, 3))
    chosen = np.nonzero(select)[0]
    distance[chosen], index = cKDTree(vertices).query(points[chosen])
    away[chosen] = (points[chosen] - vertices[index]) / np.maximum(distance[chosen], 1e-300)[:, None]
    s = body.surface
    rows, columns = np.concatenate([chosen, chosen]), np.concatenate([s.node_a[index], s.node_b[index]])
    share = np.concatenate([1 - s.weight_b[index], s.weight_b[index]])
    return distance, sp.csr_matrix((share, (rows, columns)), (n, body.node_count)), away


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
    for _ in range(8):
        at = carried.measure(points[moving], np.zeros(len(moving)))
        direction = at.by_value if rays is None else rays[moving]
        along = np.einsum("na,na->n", at.by_value, direction)
        step = np.where(np.abs(along) > 1e-3, at.value / np.where(along == 0, 1.0, along), 0.0)
        points[moving] -= np.clip(step, -field.spacing_m, field.spacing_m)[:, None] * direction
        moving = moving[np.abs(step) > 1e-12 * field.spacing_m]
        if len(moving) == 0:
            break
    return points
