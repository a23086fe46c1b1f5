"""Points spread over a body's surface, which ride with its nodes, and smooth functions on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from soft_estimator.estimation.residuals.carried_field import CarriedField
from soft_estimator.estimation.residuals.carried_surface import CarriedSurface, onto_surface
from soft_estimator.geometry.surface import face_areas_m2
from soft_estimator.physics.body import Body

# Points of a triangle that integrate parabolas over it exactly, a third of its area each.
_INSIDE = np.array([[4, 1, 1], [1, 4, 1], [1, 1, 4]]) / 6


@dataclass(frozen=True)
class SurfaceSamples:
    """Samples that stand for the surface around them.

    Attributes:
        body: whose surface it is. rest_m: the samples on the undeformed surface, (J, 3).
        owner: which sample stands for each third of a triangle, (3 F,).
        ride: weights of the body's nodes, sparse (J, N).
    """

    body: Body
    rest_m: np.ndarray
    owner: np.ndarray
    ride: sp.csr_matrix

    def positions_m(self, u: np.ndarray) -> np.ndarray:
        """Where the samples are (J, 3) when the nodes are displaced by u (N, 3) [m]."""
        return self.rest_m + self.ride @ u

    def changes_m(self, du: np.ndarray) -> np.ndarray:
        """How the samples move (J, 3, P) when the nodes' displacements change by du (N, 3, P) [m]."""
        return (self.ride @ du.reshape(len(du), -1)).reshape(-1, *du.shape[1:])

    def area_m2(self, u: np.ndarray) -> np.ndarray:
        """How much of the surface displaced by u (N, 3) [m] each sample stands for, (J,)."""
        thirds = np.repeat(face_areas_m2(self.body.surface_positions_m(u), self.body.surface.faces) / 3, 3)
        return np.bincount(self.owner, thirds, len(self.rest_m))

    def bumps(self, most: int, width_m: float) -> np.ndarray:
        """At most `most` smooth functions on the surface, of this width or a greater one, without a mean, (J, b)."""
        area = self.area_m2(np.zeros((self.body.node_count, 3)))
        middle = self.rest_m[thin_out(self.rest_m, area, width_m, most)[0]]
        width_m = max(width_m, float(np.sqrt(area.sum() / len(middle))))
        square = ((self.rest_m[:, None] - middle[None]) ** 2).sum(axis=2)
        out = np.exp(-0.5 * square / width_m**2)
        return out - area @ out / area.sum()


def spread_samples(body: Body, field: CarriedField, spacing_m: float, most: int) -> SurfaceSamples:
    """At most `most` samples of a body's surface, about this far apart or farther."""
    vertices, faces = body.surface_positions_m(), body.surface.faces
    points = np.einsum("kc,nca->nka", _INSIDE, vertices[faces]).reshape(-1, 3)
    chosen, owner = thin_out(points, np.repeat(face_areas_m2(vertices, faces) + 1e-300, 3), spacing_m, most)
    rest = np.zeros((body.node_count, 3))
    places = onto_surface(body, field, rest, points[chosen])
    return SurfaceSamples(body, places, owner, CarriedSurface(field, rest).riding_weights(places))


def thin_out(points: np.ndarray, weight: np.ndarray, spacing: float, most: int) -> tuple[np.ndarray, np.ndarray]:
    """One point for every cube of edge `spacing`, or of a greater one if that leaves more than `most`.

    Returns:
        (which points (k,), the nearest to the middle of those they stand for; which of them stands for each point)
    """
    while True:
        cube = np.floor((points - points.min(axis=0)) / spacing).astype(np.int64)
        _, member = np.unique(cube, axis=0, return_inverse=True)
        member = member.ravel()
        count = int(np.max(member)) + 1
        if count <= most:
            break
        spacing *= max(1.02, float(np.sqrt(count / most)))
    total = np.bincount(member, weight, count)
    safe = np.where(total > 0, total, 1.0)
    middle = np.stack([np.bincount(member, weight * x, count) / safe for x in points.T], axis=1)
    off = ((points - middle[member]) ** 2).sum(axis=1)
    order = np.lexsort((off, member))
    first = np.r_[True, np.diff(member[order]) > 0]
    return order[first], member
