"""What a state should look like to a depth camera: residuals of observed points, and their derivatives (METHOD §6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from soft_estimator.backends.cpu.points import cell_boxes, hash_boxes, locate, surface_distances
from soft_estimator.estimation.field import HALO_CELLS, CarriedField
from soft_estimator.physics.body import Body

# Below this |∇φ| a point lies in the middle of a thin part, where the nearest side is not defined.
_LEAST_SLOPE = 0.3


@dataclass(frozen=True)
class ObservedFrame:
    """Surface points seen at one time.

    Attributes:
        time_s: since the start of the simulation. points_m: world frame, (n, 3).
        std_m: standard deviation of each point's distance to the true surface, (n,).
        curvature_share: how much of Δφ the noise sees: 1 for isotropic noise, ½ sin²θ for noise along a ray at an
        angle θ to the
            normal, (n,). The mean of a curved field over the noise is off by ½ std² · share · Δφ, which is taken off
            again.
    """

    time_s: float
    points_m: np.ndarray
    std_m: np.ndarray
    curvature_share: np.ndarray

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

    def pull_back(self, value_bar: np.ndarray) -> np.ndarray:
        """Derivative by the nodes (N, 3), given that by the residuals (n,)."""
        return -sum(weights.T @ (direction * value_bar[:, None]) for weights, direction in self.parts)


def point_residuals(body: Body, field: CarriedField, frame: ObservedFrame, u: np.ndarray) -> Residuals:
    """Signed distance of every point of a frame to the surface of the body displaced by u (N, 3) [m].

    Near the body that is φ at the point's place in the rest shape over |∇φ| in space: the distance itself, to first
    order. Over the halo's last cell it goes over smoothly into the distance to the nearest vertex of the deformed
    surface.
    """
    position = np.ascontiguousarray(field.position_m + field.follow @ u)
    cell, local = _find(field, position, frame.points_m)
    n, h = len(frame.points_m), field.spacing_m
    nodes = field.cell_nodes[np.where(cell >= 0, cell, 0)]
    bias = 0.5 * frame.std_m**2 * frame.curvature_share
    nodal = field.phi_m[nodes] - bias[:, None] * field.laplacian_per_m[nodes]
    value, weights, slopes = np.zeros(n), np.zeros((n, 8)), np.zeros((n, 8))
    by_value, by_slope = np.zeros((n, 3)), np.zeros((n, 3))
    surface_distances(
        cell, local, position, field.cell_nodes, nodal, _LEAST_SLOPE, value, weights, slopes, by_value, by_slope
    )
    found = cell >= 0
    rows, shape = np.repeat(np.arange(n), 8), (n, len(field.phi_m))
    near, tilt = (sp.csr_matrix((w.ravel(), (rows, nodes.ravel())), shape) @ field.follow for w in (weights, slopes))
    # Blend: 0 on the body, 1 from the halo's end on.
    t = np.where(found, np.clip(value / h - (HALO_CELLS - 1), 0.0, 1.0), 1.0)
    blend, blend_slope = t**2 * (3 - 2 * t), 6 * t * (1 - t) / h
    if not (blend > 0).any():
        return Residuals(value, ((near, by_value), (tilt, by_slope)), ~found)
    distance, far, away = _nearest_vertex(body, frame.points_m, u, blend > 0)
    total = (1 - blend) * value + blend * distance
    share = np.where(found, (1 - blend) + blend_slope * (distance - value), 0.0)[:, None]
    parts = ((near, share * by_value), (tilt, share * by_slope), (far, blend[:, None] * away))
    return Residuals(total, parts, blend >= 1.0)


def _find(field: CarriedField, position: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    boxes = cell_boxes(position, field.cell_nodes)
    low, high = boxes[:, :3].min(axis=0), boxes[:, 3:].max(axis=0)
    # Bins about as large as a deformed cell, but never more than a few million of them, however far the body is
    # stretched.
    size = max(float(np.median(boxes[:, 3:] - boxes[:, :3])) * 1.5, float((high - low).max()) / 150, 1e-12)
    counts = np.maximum(np.ceil((high - low) / size).astype(np.int64), 1)
    start, cells = hash_boxes(boxes, low, size, counts)
    return locate(
        points, position, field.cell_nodes, field.in_body, field.phi_m, boxes, start, cells, low, size, counts
    )


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
    for _ in range(8):
        frame = ObservedFrame.of(0.0, points, 0.0)
        residual = point_residuals(body, field, frame, u)
        gradient = residual.parts[0][1]
        direction = gradient if rays is None else rays
        along = np.einsum("na,na->n", gradient, direction)
        step = np.where(np.abs(along) > 1e-3, residual.value_m / np.where(along == 0, 1.0, along), 0.0)
        points -= np.clip(step, -field.spacing_m, field.spacing_m)[:, None] * direction
    return points
