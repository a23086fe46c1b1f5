"""Signed distances of observed points to the model's surface, and their derivatives (METHOD §6)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.residuals.carried_field import HALO_CELLS, CarriedField
from soft_estimator.estimation.residuals.carried_surface import CarriedSurface, Spread
from soft_estimator.estimation.residuals.interface import (
    ByLoss,
    FrameAdjoint,
    FrameChanges,
    FrameState,
)
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame, line_bias, point_bias, problem_of_points
from soft_estimator.physics.body import Body


class SurfaceDistance(ByLoss):
    """The residual of clouds: the distance of each point to the body's surface, in its standard deviations.

    Args:
        backend: runs the loops over the points; the CPU's by default.
    """

    whitened = True

    def __init__(self, body: Body, field: CarriedField, backend: Backend | None = None) -> None:
        self.body, self.field, self.backend = body, field, backend

    def takes(self, frame: object) -> bool:
        return isinstance(frame, ObservedFrame)

    def check(self, frame: ObservedFrame) -> str:
        return problem_of_points(frame)

    def count(self, frame: ObservedFrame) -> int:
        return len(frame.points_m)

    def predict(self, frame: ObservedFrame, state: FrameState) -> SurfacePrediction:
        return SurfacePrediction(point_residuals(self.body, self.field, frame, state.u, self.backend), frame.std_m)

    def by_offset(self, frame: ObservedFrame) -> np.ndarray:
        return -1.0 / frame.std_m


@dataclass(frozen=True)
class SurfacePrediction:
    """Distances of a frame's points over their standard deviations [m], (n,)."""

    distances: Residuals
    std_m: np.ndarray

    @property
    def residual(self) -> np.ndarray:
        return self.distances.value_m / self.std_m

    @property
    def far(self) -> int:
        return int(self.distances.far.sum())

    def changes(self, changes: FrameChanges) -> np.ndarray:
        return self.distances.changes(changes.u) / self.std_m[:, None]

    def changes_adjoint(self, residual_bar: np.ndarray) -> FrameAdjoint:
        return FrameAdjoint(u=self.distances.pull_back(residual_bar / self.std_m))


@dataclass(frozen=True)
class Residuals:
    """Signed distances of a frame's points to the model's surface and how they change with the nodes.

    Attributes:
        value_m: (n,). Outside is positive.
        rides: (weights of nodes, direction (n, 3)) pairs, see `parts`.
        far: points beyond the halo, which feel the distance to the nearest surface vertex only, (n,).
    """

    value_m: np.ndarray
    rides: tuple[tuple[Spread | sp.csr_matrix, np.ndarray], ...]
    far: np.ndarray

    @cached_property
    def parts(self) -> list[tuple[sp.csr_matrix, np.ndarray]]:
        """(weights (n, N) sparse, direction (n, 3)) pairs: δvalue = -Σ direction · (weights @ δu)."""
        first, *others = self.rides
        felt = [first, *(ride for ride in others if ride[1].any())]
        return [(ride.matrix if isinstance(ride, Spread) else ride, direction) for ride, direction in felt]

    def change(self, du: np.ndarray) -> np.ndarray:
        """Change of the residuals (n,) for a change du (N, 3) of the nodes."""
        return self.changes(du[:, :, None])[:, 0]

    def changes(self, du: np.ndarray) -> np.ndarray:
        """The same for several changes du (N, 3, B) at once, (n, B)."""
        flat, total = du.reshape(len(du), -1), np.zeros((len(self.value_m), du.shape[2]))
        for weights, direction in self.parts:
            total -= np.einsum("na,nab->nb", direction, (weights @ flat).reshape(len(direction), 3, -1))
        return total

    def pull_back(self, value_bar: np.ndarray) -> np.ndarray:
        """Derivative by the nodes (N, 3), given that by the residuals (n,)."""
        total = np.zeros((self.parts[0][0].shape[1], 3))
        for weights, direction in self.parts:
            total -= weights.T @ (direction * value_bar[:, None])
        return total


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
    found, h, tilt = at.cell >= 0, field.spacing_m, Spread(field, at.nodes.copy(), at.slopes)
    if frame.along is not None:
        carried.measure_along(frame.points_m, frame.along, line_bias(frame), at)
    value, near = at.value, Spread(field, at.nodes, at.weights)
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
