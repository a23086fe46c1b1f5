"""Tetrahedral meshes: what other simulators take, and how good one is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# The four faces of a tetrahedron of positive volume, each counter-clockwise seen from outside.
FACES = np.array([(1, 2, 3), (0, 3, 2), (0, 1, 3), (0, 2, 1)])
# The six edges: the face opposite to vertex i and that opposite to vertex j meet at the edge of the other two.
EDGES = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])


@dataclass(frozen=True)
class TetrahedralMesh:
    """A body cut into tetrahedra that share whole faces.

    Attributes:
        vertices_m: positions [m], (V, 3). elements: corners of each tetrahedron, of positive volume
            (x₁ - x₀)·((x₂ - x₀) × (x₃ - x₀)) / 6, (T, 4), int64.
    """

    vertices_m: np.ndarray
    elements: np.ndarray

    def element_volumes_m3(self) -> np.ndarray:
        """Signed volume of each tetrahedron [m³], (T,)."""
        return signed_volumes_m3(self.vertices_m, self.elements)

    @property
    def volume_m3(self) -> float:
        return float(self.element_volumes_m3().sum())

    def vertex_volumes_m3(self) -> np.ndarray:
        """Volume each vertex stands for [m³], a quarter of its tetrahedra; times the density its lumped mass, (V,)."""
        quarter = np.repeat(self.element_volumes_m3() / 4, 4)
        return np.bincount(self.elements.ravel(), quarter, len(self.vertices_m))

    def surface_faces(self) -> np.ndarray:
        """Triangles that only one tetrahedron has, counter-clockwise seen from outside, (F, 3)."""
        faces = self.elements[:, FACES].reshape(-1, 3)
        _, first, count = np.unique(np.sort(faces, axis=1), axis=0, return_index=True, return_counts=True)
        return faces[np.sort(first[count == 1])]

    def dihedral_angles_deg(self) -> np.ndarray:
        """The six angles between the faces of each tetrahedron [degrees], (T, 6)."""
        corner = self.vertices_m[self.elements]
        normals = np.stack(
            [np.cross(corner[:, b] - corner[:, a], corner[:, c] - corner[:, a]) for a, b, c in FACES], axis=1
        )
        normals /= np.linalg.norm(normals, axis=2, keepdims=True)
        cosine = -np.einsum("tek,tek->te", normals[:, EDGES[:, 0]], normals[:, EDGES[:, 1]])
        return np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))


def signed_volumes_m3(vertices_m: np.ndarray, elements: np.ndarray) -> np.ndarray:
    """(x₁ - x₀)·((x₂ - x₀) × (x₃ - x₀)) / 6 of each tetrahedron [m³], (T,)."""
    a, b, c, d = (vertices_m[elements[:, k]] for k in range(4))
    return np.einsum("ij,ij->i", b - a, np.cross(c - a, d - a)) / 6
