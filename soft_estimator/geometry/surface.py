"""The embedded surface: triangles whose vertices ride on pairs of grid nodes.

Marching cubes over the active cells, with a case table worked out from the rules below instead of typed in:

- a node is in the body when φ < 0, or when φ = 0 and the cell at hand is active (has a corner with φ < 0). A body whose
  faces lie on grid planes then keeps its sharp edges; taking φ = 0 as outside would bevel them by one cell;
- on an ambiguous face (two diagonal corners inside) the contour goes round each inside corner by itself. Both cells at
  a face draw the same contour, so the surface is closed for every field;
- the contours of a cell link up to loops, each filled by triangles with vertices on the cell's edges only. No diagonal
  lies in a cell face, so every edge belongs to two triangles. (Deciding ambiguous faces by their bilinear saddle would
  give loops of eight and nine that cannot be filled so without a vertex inside the cell, which no node pair carries.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from soft_estimator.geometry.grid import CORNER_OFFSETS, SignedDistanceGrid
from soft_estimator.geometry.shapes import SNAP_FRACTION

# The two corners of each cell edge, lower one first, and their index by corner pair.
EDGE_CORNERS = np.array([(i, i | bit) for bit in (4, 2, 1) for i in range(8) if not i & bit])
_EDGE_OF = {frozenset(map(int, pair)): e for e, pair in enumerate(EDGE_CORNERS)}
_EDGE_MIDDLE = CORNER_OFFSETS[EDGE_CORNERS].mean(axis=1)
# Corners of each face in the order 00, 10, 11, 01 of its two in-plane axes, which turns about the face's positive axis:
# a lower face, then the upper one, per axis.
FACE_CORNERS = np.array(
    [
        [side * bit + first * u + second * v for first, second in ((0, 0), (1, 0), (1, 1), (0, 1))]
        for bit, u, v in ((4, 2, 1), (2, 1, 4), (1, 4, 2))
        for side in (0, 1)
    ]
)


@dataclass(frozen=True)
class EmbeddedSurface:
    """A closed triangle mesh bound to grid nodes: vertex = (1 - weight_b) x_a + weight_b x_b.

    Attributes:
        node_a: flat index of the vertex's inside node (φ < 0), shape (nv,), int64.
        node_b: flat index of its outside node (φ >= 0), shape (nv,), int64. Both nodes belong to one active cell.
        weight_b: in (0, 1], shape (nv,); 1 where the surface passes through node b itself.
        faces: vertices of each triangle, counter-clockwise seen from outside, shape (nf, 3), int32.
    """

    node_a: np.ndarray
    node_b: np.ndarray
    weight_b: np.ndarray
    faces: np.ndarray

    def positions_m(self, node_positions_m: np.ndarray) -> np.ndarray:
        """Vertex positions (nv, 3) [m] for positions of all grid nodes (n, 3) [m], flat in C order."""
        weight = self.weight_b[:, None]
        return (1.0 - weight) * node_positions_m[self.node_a] + weight * node_positions_m[self.node_b]


def extract_surface(grid: SignedDistanceGrid) -> EmbeddedSurface:
    """Triangulate the zero level set of a grid. |φ| under 1e-9 of the spacing counts as zero."""
    phi = np.where(np.abs(grid.phi_m) <= SNAP_FRACTION * grid.spacing_m, 0.0, grid.phi_m)
    if not (phi < 0).any():
        raise ValueError("the signed distance is nowhere negative: there is no body to take the surface of")
    if any((np.moveaxis(phi, axis, 0)[[0, -1]] < 0).any() for axis in range(3)):
        raise ValueError("the body reaches the border of its grid; add a margin of outside nodes around it")
    cells, active = _active_cells(phi)
    corner_node = cells[:, None] + CORNER_OFFSETS @ _strides(phi.shape)
    keys, owner = _march(phi.ravel(), corner_node)
    cap_keys, cap_owner = _caps(phi, active)
    keys, owner = np.concatenate([keys, cap_keys]), np.concatenate([owner, cap_owner])
    a, b, c = keys.T
    distinct = (a != b) & (b != c) & (c != a)
    return _bind(phi.ravel(), _strides(phi.shape), *_cancel_folds(keys[distinct], owner[distinct]))


def _strides(shape: tuple[int, ...]) -> np.ndarray:
    return np.array([shape[1] * shape[2], shape[2], 1], dtype=np.int64)


def _active_cells(phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest node of each cell with a corner inside (flat), and the mask (nx-1, ny-1, nz-1) of those cells."""
    mask = np.zeros([n - 1 for n in phi.shape], dtype=bool)
    for offset in CORNER_OFFSETS:
        mask |= phi[tuple(slice(o, o + n) for o, n in zip(offset, mask.shape))] < 0
    return np.argwhere(mask) @ _strides(phi.shape), mask


# A surface vertex has a key: 4 n + axis for a crossing of the edge from node n along an axis, 4 n + 3 for node n.


def _march(phi: np.ndarray, corner_node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Triangles (nt, 3) of vertex keys in the active cells, and an inside node of each one's cell (nt,)."""
    value = phi[corner_node]
    inside = value <= 0
    case = inside @ (1 << np.arange(8))
    vertex_key = _edge_keys(inside, value, corner_node)
    inside_node = corner_node[np.arange(len(value)), (value < 0).argmax(axis=1)]
    mixed = np.flatnonzero(~inside.all(axis=1))
    order = mixed[np.argsort(case[mixed], kind="stable")]
    starts = np.flatnonzero(np.diff(case[order], prepend=-1))
    keys, owners = [np.empty((0, 3), dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for begin, end in zip(starts, [*starts[1:], len(order)]):
        members = order[begin:end]
        triangles = _case_triangles(int(case[members[0]]))
        keys.append(vertex_key[members][:, triangles].reshape(-1, 3))
        owners.append(np.repeat(inside_node[members], len(triangles)))
    return np.concatenate(keys), np.concatenate(owners)


def _edge_keys(inside: np.ndarray, value: np.ndarray, corner_node: np.ndarray) -> np.ndarray:
    """Key of the vertex on each of a cell's 12 edges (nc, 12); it falls onto a node where that node has φ = 0."""
    low, high = EDGE_CORNERS.T
    key = 4 * corner_node[:, low] + np.repeat(np.arange(3), 4)
    for end in (low, high):
        key = np.where(inside[:, end] & (value[:, end] == 0), 4 * corner_node[:, end] + 3, key)
    return key


def _caps(phi: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Triangles over the cell faces with φ = 0 between an active and an inactive cell, as _march gives them."""
    strides = _strides(phi.shape)
    padded = np.pad(active, 1)
    keys, owners = [np.empty((0, 3), dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for axis, side in product(range(3), (0, 1)):
        outer = np.roll(padded, 1 if side == 0 else -1, axis=axis)[1:-1, 1:-1, 1:-1]
        cells = np.argwhere(active & ~outer) @ strides
        corners = cells[:, None] + CORNER_OFFSETS @ strides
        # FACE_CORNERS turn about the positive axis: seen from outside that is backwards on a lower face
        ring = corners[:, FACE_CORNERS[2 * axis + side][:: 1 if side else -1]]
        zero = phi.ravel()[ring] == 0
        inside_node = corners[np.arange(len(cells)), (phi.ravel()[corners] < 0).argmax(axis=1)]
        for left_out in range(4):
            triangle = ring[:, [k for k in range(4) if k != left_out]]
            three = zero.sum(axis=1) == 3
            chosen = (three & ~zero[:, left_out]) | (zero.all(axis=1) & (left_out in (1, 3)))
            keys.append(4 * triangle[chosen] + 3)
            owners.append(inside_node[chosen])
    return np.concatenate(keys), np.concatenate(owners)


def _cancel_folds(keys: np.ndarray, owner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drop pairs of triangles that lie on each other back to back (they appear when vertices meet in a node)."""
    turned = np.argsort(keys, axis=1)
    turn = np.where((turned[:, 1] - turned[:, 0]) % 3 == 1, 1, -1)
    _, group = np.unique(np.sort(keys, axis=1), axis=0, return_inverse=True)
    group = group.reshape(-1)
    surplus = np.bincount(group, weights=turn).astype(np.int64)[group]
    # of a group, keep as many of the majority as the minority leaves over
    order = np.lexsort((-turn * np.sign(surplus), group))
    rank = np.arange(len(keys)) - np.searchsorted(group[order], group[order])
    keep = np.sort(order[rank < np.abs(surplus[order])])
    return keys[keep], owner[keep]


def _bind(phi: np.ndarray, strides: np.ndarray, keys: np.ndarray, owner: np.ndarray) -> EmbeddedSurface:
    """Number the vertices and work out node pair and weight of each."""
    vertex, first, faces = np.unique(keys, return_index=True, return_inverse=True)
    node, kind = vertex // 4, vertex % 4
    on_node = kind == 3
    far = node + strides[np.minimum(kind, 2)] * ~on_node
    low_inside = phi[node] < 0
    node_a = np.where(on_node, owner[first // 3], np.where(low_inside, node, far))
    node_b = np.where(on_node, node, np.where(low_inside, far, node))
    weight = phi[node_a] / (phi[node_a] - phi[node_b])
    return EmbeddedSurface(node_a, node_b, weight, faces.reshape(-1, 3).astype(np.int32))


@cache
def _case_triangles(case: int) -> np.ndarray:
    """Triangles (nt, 3) of cell edges for a case, the sum of 2^corner over the corners inside."""
    follows: dict[int, int] = {}
    for face, corners in enumerate(FACE_CORNERS):
        ring = [int(c) for c in (corners if face % 2 else corners[::-1])]  # counter-clockwise seen from outside
        crossings = []
        for here, there in zip(ring, ring[1:] + ring[:1]):
            if (case >> here & 1) != (case >> there & 1):
                crossings.append((_EDGE_OF[frozenset((here, there))], bool(case >> there & 1)))
        if not crossings:
            continue
        if not crossings[0][1]:
            crossings = crossings[1:] + crossings[:1]
        enters, leaves = [e for e, enter in crossings if enter], [e for e, enter in crossings if not enter]
        follows.update(zip(enters, leaves))  # each contour goes round its own inside corners
    triangles: list[tuple[int, int, int]] = []
    while follows:
        loop = [next(iter(follows))]
        while follows[loop[-1]] != loop[0]:
            loop.append(follows[loop[-1]])
        for edge in loop:
            del follows[edge]
        triangles += _fill(loop)
    return np.array(triangles, dtype=np.int64).reshape(-1, 3)


def _fill(loop: list[int]) -> list[tuple[int, int, int]]:
    """Triangulate a loop of cell edges without diagonals inside cell faces, and with short ones."""

    def cost(i: int, j: int) -> float:
        if j - i == 1 or (i == 0 and j == len(loop) - 1):
            return 0.0
        p, q = _EDGE_MIDDLE[loop[i]], _EDGE_MIDDLE[loop[j]]
        share_face = bool(((p == q) & (p != 0.5)).any())
        return 1e3 * share_face + float(np.sum((p - q) ** 2))

    best: dict[tuple[int, int], tuple[float, list[tuple[int, int, int]]]] = {}
    n = len(loop)
    for i in range(n - 1):
        best[i, i + 1] = (0.0, [])
    for span in range(2, n):
        for i in range(n - span):
            j = i + span
            options = ((best[i, k][0] + best[k, j][0], k) for k in range(i + 1, j))
            least, k = min(options)
            best[i, j] = (least + cost(i, j), [*best[i, k][1], (loop[i], loop[k], loop[j]), *best[k, j][1]])
    return best[0, n - 1][1]


def vertex_areas_m2(positions_m: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Area each vertex stands for [m²], a third of its triangles' areas, for positions (nv, 3) [m]; shape (nv,)."""
    third = face_areas_m2(positions_m, faces) / 3
    return np.bincount(np.ravel(faces), weights=np.repeat(third, 3), minlength=len(positions_m))


def face_areas_m2(positions_m: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Areas of triangles [m²], for positions (nv, 3) [m]; shape (nf,)."""
    return 0.5 * np.linalg.norm(face_crosses_m2(positions_m[faces]), axis=1)


def mesh_volume_m3(positions_m: np.ndarray, faces: np.ndarray) -> float:
    """Volume [m³] enclosed by outward oriented faces, by the divergence theorem: ∫ dV = ∫ x·n/3 dA."""
    # measured from the middle of the mesh: far from the origin the terms would cancel badly
    centred = positions_m - positions_m.mean(axis=0)
    return float(np.einsum("ij,ij->", centred[faces[:, 0]], face_crosses_m2(centred[faces])) / 6)


def vertex_normals(positions_m: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Unit outward normal at each vertex, area weighted over its triangles; shape (nv, 3), zero where undefined."""
    cross = np.repeat(face_crosses_m2(positions_m[faces]), 3, axis=0)
    corner = np.ravel(faces)
    total = np.stack([np.bincount(corner, weights=cross[:, k], minlength=len(positions_m)) for k in range(3)], axis=1)
    length = np.linalg.norm(total, axis=1, keepdims=True)
    return np.divide(total, length, out=np.zeros_like(total), where=length > 0)


def face_crosses_m2(corners_m: np.ndarray) -> np.ndarray:
    """(x₁ - x₀) × (x₂ - x₀) [m²], twice the area vector of each triangle, for corners (nf, 3, 3) [m]; shape (nf, 3)."""
    a, b, c = corners_m[:, 0], corners_m[:, 1], corners_m[:, 2]
    return np.cross(b - a, c - a)
