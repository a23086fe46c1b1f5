"""A body's signed distance grid filled with tetrahedra (Labelle and Shewchuk, "Isosurface stuffing", 2007).

A body-centred cubic lattice is laid over the field. Lattice nodes close to the surface are moved onto it, tetrahedra
across it are cut where φ = 0 on their edges, and what lies inside is kept. Because no cut comes closer to a node than
the α below, no tetrahedron is a sliver, whatever the field: all dihedral angles lie between 10.7 and 164.8 degrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.surface import face_areas_m2
from soft_estimator.geometry.tetrahedra import TetrahedralMesh, signed_volumes_m3

# Nearest that a cut may come to a node, as a part of the edge. Long edges join nodes of the same cubic lattice, short
# ones a node and the centre of a cell. The values are the paper's: they make the smallest angle as large as can be.
ALPHA_LONG, ALPHA_SHORT = 0.24999, 0.41189
# Volume that a scaling may make up for, as a part of the body's; more means that a thin part was lost.
MOST_SCALING = 0.03


@dataclass(frozen=True)
class _Lattice:
    """The tetrahedra of the lattice that reach into the body, and the field at their nodes.

    Attributes:
        position_m: (L, 3). phi_m: (L,). elements: (T, 4). cubic_count: nodes below this number are corners of the cubic
            lattice, the others cell centres: an edge is long where both of its ends are of the same kind.
    """

    position_m: np.ndarray
    phi_m: np.ndarray
    elements: np.ndarray
    cubic_count: int

    def is_long(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a < self.cubic_count) == (b < self.cubic_count)


def tetrahedralise(grid: SignedDistanceGrid, spacing_m: float | None = None, level_m: float = 0.0) -> TetrahedralMesh:
    """Tetrahedra that fill φ < level.

    Args:
        grid: φ, negative inside; trilinear between its nodes.
        spacing_m: edge of the lattice's cubes [m], each of which holds twelve tetrahedra; the grid's own by default.
        level_m: value of φ at the surface [m].
    """
    lattice = _lay(grid, spacing_m or grid.spacing_m, level_m)
    edges, fraction = _crossings(lattice)
    position, sign = _warp(lattice, edges, fraction)
    mesh = _cut(lattice, position, sign)
    if len(mesh.elements) == 0:
        raise ValueError(
            f"the body holds no tetrahedron of a lattice of {spacing_m or grid.spacing_m:g} m; give a finer spacing"
        )
    return mesh


def tetrahedralise_volume(
    grid: SignedDistanceGrid, volume_m3: float, spacing_m: float | None = None
) -> TetrahedralMesh:
    """Tetrahedra of exactly a given volume.

    Flat faces lie inside of a convex surface and across a sharp edge. A secant moves the level until that is made up
    for, a shift that falls with the square of the spacing; nodes that change between being moved and being cut make the
    volume jump by parts of a thousand, which a uniform scaling takes away.
    """
    h = spacing_m or grid.spacing_m
    level, mesh = 0.0, tetrahedralise(grid, h)
    best, slope = mesh, _area_m2(mesh)
    for _ in range(5):
        missing = volume_m3 - mesh.volume_m3
        if abs(missing) <= 1e-5 * volume_m3:
            break
        step = float(np.clip(missing / slope, -0.2 * h, 0.2 * h))
        level, before = level + step, mesh
        mesh = tetrahedralise(grid, h, level)
        measured = (mesh.volume_m3 - before.volume_m3) / step
        slope = measured if 0.3 * slope < measured < 3 * slope else slope
        best = min((best, mesh), key=lambda m: abs(m.volume_m3 - volume_m3))
    if abs(best.volume_m3 / volume_m3 - 1) > MOST_SCALING:
        raise ValueError(
            f"tetrahedra of {h:g} m hold {best.volume_m3:.4g} m^3 of the body's {volume_m3:.4g}; parts of it are too "
            "thin for them: give a finer spacing"
        )
    centre = best.vertex_volumes_m3() @ best.vertices_m / best.volume_m3
    scale = (volume_m3 / best.volume_m3) ** (1 / 3)
    return TetrahedralMesh(centre + scale * (best.vertices_m - centre), best.elements)


def _area_m2(mesh: TetrahedralMesh) -> float:
    return float(face_areas_m2(mesh.vertices_m, mesh.surface_faces()).sum())


def _lay(grid: SignedDistanceGrid, spacing_m: float, level_m: float) -> _Lattice:
    """Lay the lattice over the body, with a node at the middle of its bounds and a spare cube on each side."""
    inside = np.argwhere(grid.phi_m < level_m)
    if len(inside) == 0:
        raise ValueError("the grid has no node inside the body; give it a finer spacing")
    low = grid.origin_m + grid.spacing_m * (inside.min(axis=0) - 1)
    high = grid.origin_m + grid.spacing_m * (inside.max(axis=0) + 1)
    half = np.ceil(0.5 * (high - low) / spacing_m).astype(np.int64) + 1
    count = 2 * half + 1
    if np.prod(count, dtype=np.float64) > 2e7:
        raise ValueError(f"a lattice of {spacing_m:g} m needs {np.prod(count):.2g} nodes; give a coarser spacing")
    origin = 0.5 * (low + high) - spacing_m * half
    corners = origin + spacing_m * np.stack(np.meshgrid(*map(np.arange, count), indexing="ij"), -1).reshape(-1, 3)
    centres = np.stack(np.meshgrid(*map(np.arange, count - 1), indexing="ij"), -1).reshape(-1, 3)
    position = np.concatenate([corners, origin + spacing_m * (centres + 0.5)])
    phi = _sample(grid, position) - level_m
    return _Lattice(position, phi, _elements_inside(count, phi), len(corners))


def _sample(grid: SignedDistanceGrid, points_m: np.ndarray) -> np.ndarray:
    """φ [m] at points (n, 3): trilinear, and beyond the grid the way back to it on top."""
    from scipy.interpolate import RegularGridInterpolator  # a quarter of a second that nodes do not wait for

    axes = [o + grid.spacing_m * np.arange(n) for o, n in zip(grid.origin_m, grid.shape, strict=True)]
    nearest = np.clip(points_m, grid.origin_m, grid.origin_m + grid.spacing_m * (np.array(grid.shape) - 1))
    return RegularGridInterpolator(axes, grid.phi_m)(nearest) + np.linalg.norm(points_m - nearest, axis=1)


def _elements_inside(count: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """The lattice's tetrahedra with a node inside: an edge of the cubes and two neighbours of the four centres round
    it."""
    centre_count = count - 1
    strides = np.array([count[1] * count[2], count[2], 1])
    centre_strides = np.array([centre_count[1] * centre_count[2], centre_count[2], 1])
    first_centre = int(np.prod(count))
    found = [np.empty((0, 4), dtype=np.int64)]
    for axis in range(3):
        u, v = (axis + 1) % 3, (axis + 2) % 3
        span = [np.arange(count[k] - 1) if k == axis else np.arange(1, count[k] - 1) for k in range(3)]
        low = np.stack(np.meshgrid(*span, indexing="ij"), -1).reshape(-1, 3)
        ring = []
        for du, dv in ((0, 0), (-1, 0), (-1, -1), (0, -1)):
            step = np.zeros(3, dtype=np.int64)
            step[u], step[v] = du, dv
            ring.append(first_centre + (low + step) @ centre_strides)
        a, b = low @ strides, low @ strides + strides[axis]
        for k in range(4):
            four = np.stack([a, b, ring[k], ring[(k + 1) % 4]], axis=1)
            found.append(four[(phi[four] < 0).any(axis=1)])
    return np.concatenate(found)


def _crossings(lattice: _Lattice) -> tuple[np.ndarray, np.ndarray]:
    """Edges (inside node, outside node) that the surface crosses, (E, 2), and how far from the first it does, (E,)."""
    pairs = np.concatenate([lattice.elements[:, [i, j]] for i, j in product(range(4), range(4)) if i != j])
    phi = lattice.phi_m
    pairs = np.unique(pairs[(phi[pairs[:, 0]] < 0) & (phi[pairs[:, 1]] > 0)], axis=0)
    inner, outer = phi[pairs[:, 0]], phi[pairs[:, 1]]
    return pairs, inner / (inner - outer)


def _warp(lattice: _Lattice, edges: np.ndarray, fraction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Move nodes that a cut comes too close to onto it, the closest first: positions (L, 3) and signs of φ (L,)."""
    position, sign = lattice.position_m.copy(), np.sign(lattice.phi_m).astype(np.int8)
    start, end = lattice.position_m[edges[:, 0]], lattice.position_m[edges[:, 1]]
    cut = start + fraction[:, None] * (end - start)
    length = np.linalg.norm(end - start, axis=1)
    alpha = np.where(lattice.is_long(edges[:, 0], edges[:, 1]), ALPHA_LONG, ALPHA_SHORT)
    near = np.concatenate([np.flatnonzero(fraction < alpha), np.flatnonzero(1 - fraction < alpha)])
    first = np.count_nonzero(fraction < alpha)
    which = np.where(np.arange(len(near)) < first, 0, 1)
    distance = np.where(which == 0, fraction[near], 1 - fraction[near]) * length[near]
    for k in np.lexsort((edges[near, which], distance)):
        edge = near[k]
        a, b = edges[edge]
        if sign[a] and sign[b]:  # a node on the surface ends the crossings of all its edges
            node = edges[edge, which[k]]
            position[node], sign[node] = cut[edge], 0
    return position, sign


def _cut(lattice: _Lattice, position: np.ndarray, sign: np.ndarray) -> TetrahedralMesh:
    """Keep the inside of each tetrahedron."""
    cutter = _Cutter(lattice, position, sign)
    four = lattice.elements
    inside, outside = (sign[four] < 0).sum(axis=1), (sign[four] > 0).sum(axis=1)
    # inside nodes first, then those on the surface, then outside ones
    ordered = np.take_along_axis(four, np.argsort(sign[four], axis=1, kind="stable"), axis=1)
    whole = ordered[(inside > 0) & (outside == 0)]
    pieces = [
        whole,
        cutter.one_inside(ordered[(inside == 1) & (outside > 0)], sign),
        cutter.pyramids(ordered[(inside == 2) & (outside == 1)]),
        cutter.wedges(ordered[(inside == 2) & (outside == 2)]),
        cutter.frusta(ordered[(inside == 3) & (outside == 1)]),
    ]
    used, elements = np.unique(np.concatenate(pieces), return_inverse=True)
    elements = elements.reshape(-1, 4)
    vertices = cutter.positions(used)
    turned = signed_volumes_m3(vertices, elements) < 0
    elements[turned] = elements[turned][:, [0, 2, 1, 3]]
    return TetrahedralMesh(vertices, elements)


class _Cutter:
    """Vertices on cut edges, and the pieces of cut tetrahedra.

    A face with two inside corners is cut to a quadrilateral, which both of its tetrahedra must halve alike. Its
    diagonal starts at the inside corner that comes first by `_key` and ends at the cut below the other one: the one
    whose cut edge is long comes last (the angles need it), and equals go by number.
    """

    def __init__(self, lattice: _Lattice, position: np.ndarray, sign: np.ndarray) -> None:
        self.lattice, self.position = lattice, position
        edges, fraction = _crossings(lattice)
        alive = (sign[edges[:, 0]] != 0) & (sign[edges[:, 1]] != 0)
        self.edges, self.fraction = edges[alive], fraction[alive]
        self.codes = self._code(self.edges[:, 0], self.edges[:, 1])

    def _code(self, inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
        return inner * np.int64(len(self.position)) + outer

    def vertex(self, inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
        """Number of the vertex that cuts each edge; the lattice's own nodes count first."""
        return len(self.position) + np.searchsorted(self.codes, self._code(inner, outer))

    def positions(self, used: np.ndarray) -> np.ndarray:
        """Positions [m] of nodes and cuts, (n, 3)."""
        start, end = (self.lattice.position_m[self.edges[:, k]] for k in (0, 1))
        cuts = start + self.fraction[:, None] * (end - start)
        return np.concatenate([self.position, cuts])[used]

    def _key(self, corner: np.ndarray, outer: np.ndarray) -> np.ndarray:
        return corner + len(self.position) * self.lattice.is_long(corner, outer)

    def one_inside(self, four: np.ndarray, sign: np.ndarray) -> np.ndarray:
        """A corner stays: every outside node gives way to the cut on its edge."""
        out = four.copy()
        for k in (1, 2, 3):
            outer = sign[four[:, k]] > 0
            out[outer, k] = self.vertex(four[outer, 0], four[outer, k])
        return out

    def pyramids(self, four: np.ndarray) -> np.ndarray:
        """Two inside, one on the surface: a quadrilateral under the latter."""
        a, b, top, outer = four.T
        later = self._key(a, outer) < self._key(b, outer)
        a, b = np.where(later, a, b), np.where(later, b, a)
        below_a, below_b = self.vertex(a, outer), self.vertex(b, outer)
        return np.concatenate([np.stack([a, b, below_b, top], 1), np.stack([a, below_b, below_a, top], 1)])

    def wedges(self, four: np.ndarray) -> np.ndarray:
        """Two inside, two outside: a prism whose three long edges are a-b and the cuts towards each outside node."""
        a, b, p, q = four.T
        column = np.stack(
            [
                np.stack([a, b], 1),
                np.stack([self.vertex(a, p), self.vertex(b, p)], 1),
                np.stack([self.vertex(a, q), self.vertex(b, q)], 1),
            ],
            axis=1,
        )
        rank = np.zeros((len(four), 3))
        for k, outer in ((1, p), (2, q)):
            rank[:, k] = np.where(self._key(a, outer) < self._key(b, outer), 1.0, -1.0)
        rank[:, 2] += 0.5  # where both faces ask for the same, the surface's own diagonal is free
        return _prism(np.take_along_axis(column, np.argsort(rank, axis=1)[:, :, None], axis=1))

    def frusta(self, four: np.ndarray) -> np.ndarray:
        """Three inside: a prism between the inside face and the cuts below it."""
        outer = four[:, 3]
        rank = np.stack([self._key(four[:, k], outer) for k in range(3)], axis=1)
        inner = np.take_along_axis(four[:, :3], np.argsort(rank, axis=1), axis=1)
        below = np.stack([self.vertex(inner[:, k], outer) for k in range(3)], axis=1)
        return _prism(np.stack([inner, below], axis=2))


def _prism(column: np.ndarray) -> np.ndarray:
    """Three tetrahedra of each prism with columns (n, 3, 2) from its first to its second end, (3n, 4).

    Each side is halved from the first end of the column that comes earlier to the second end of the other.
    """
    x, y, z = (column[:, k, 0] for k in range(3))
    below_x, below_y, below_z = (column[:, k, 1] for k in range(3))
    return np.concatenate(
        [
            np.stack([x, y, z, below_z], axis=1),
            np.stack([x, y, below_y, below_z], axis=1),
            np.stack([x, below_x, below_y, below_z], axis=1),
        ]
    )
