"""The tetrahedra that fill a body: they share whole faces, none is flat or turned over, and they hold its volume."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.isosurface_stuffing import tetrahedralise, tetrahedralise_volume
from soft_estimator.geometry.shapes import Box, Sphere, Torus, sample
from soft_estimator.geometry.surface import mesh_volume_m3
from soft_estimator.geometry.tetrahedra import FACES, TetrahedralMesh

# What isosurface stuffing proves for its pair of α, for any field (Labelle and Shewchuk 2007, table 1).
LEAST_DEG, MOST_DEG = 10.78, 164.74


def random_field(seed: int) -> SignedDistanceGrid:
    """No distance at all: every way in which a surface can cross a tetrahedron comes up."""
    phi = np.random.default_rng(seed).normal(size=(8, 9, 7))
    for axis in range(3):
        np.moveaxis(phi, axis, 0)[[0, -1]] = 1.0
    return SignedDistanceGrid(phi, np.array([0.3, -0.2, 0.1]), 1.0)


def face_counts(mesh: TetrahedralMesh) -> np.ndarray:
    return np.unique(np.sort(mesh.elements[:, FACES].reshape(-1, 3), axis=1), axis=0, return_counts=True)[1]


@pytest.mark.parametrize("spacing_m", [1.0, 0.7, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_any_field_gives_a_conforming_mesh_without_slivers(seed: int, spacing_m: float) -> None:
    """Volumes > 0; a face belongs to one or two tetrahedra; the surface is closed; angles keep the proven bounds."""
    mesh = tetrahedralise(random_field(seed), spacing_m)
    assert (mesh.element_volumes_m3() > 0).all()
    assert set(face_counts(mesh)) == {1, 2}
    angles = mesh.dihedral_angles_deg()
    assert angles.min() > LEAST_DEG and angles.max() < MOST_DEG
    faces = mesh.surface_faces()
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    there, back = (np.unique(e, axis=0, return_counts=True) for e in (edges, edges[:, ::-1]))
    assert np.array_equal(there[0], back[0]) and np.array_equal(there[1], back[1])
    # ∫ dV = ∫ x·n/3 dA to rounding: a missing, doubled or turned tetrahedron would show
    assert mesh.volume_m3 == pytest.approx(mesh_volume_m3(mesh.vertices_m, faces), rel=1e-12)


def test_dihedral_angles_of_known_tetrahedra() -> None:
    """A regular tetrahedron has arccos(1/3) six times, the corner of a cube three right angles and arccos(1/√3)."""
    regular = TetrahedralMesh(
        np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=float), np.array([[0, 2, 1, 3]])
    )
    corner = TetrahedralMesh(np.vstack([np.zeros(3), np.eye(3)]), np.array([[0, 1, 2, 3]]))
    assert regular.dihedral_angles_deg() == pytest.approx(np.full((1, 6), np.degrees(np.arccos(1 / 3))))
    assert np.sort(corner.dihedral_angles_deg()[0]) == pytest.approx(
        [*[np.degrees(np.arccos(1 / np.sqrt(3)))] * 3, 90, 90, 90]
    )


def test_volume_of_a_sphere_converges_with_the_square_of_the_spacing() -> None:
    """V(h) - 4/3 π R³ ∝ h²: chords of a curved surface. ±0.4 for three spacings whose cuts fall differently."""
    spacings = np.array([0.2, 0.1, 0.05])
    exact = 4 / 3 * np.pi
    error = [exact - tetrahedralise(sample(Sphere(1.0), h)).volume_m3 for h in spacings]
    order = np.polyfit(np.log(spacings), np.log(error), 1)[0]
    assert order == pytest.approx(2.0, abs=0.4) and error[-1] < 2e-3 * exact


@pytest.mark.parametrize(
    ("shape", "volume_m3", "chamfer"),
    [
        (Sphere(0.05), 4 / 3 * np.pi * 0.05**3, 0.05),
        (Torus(0.035, 0.015), 2 * np.pi**2 * 0.035 * 0.015**2, 0.05),
        (Box((0.1, 0.03, 0.02)), 0.1 * 0.03 * 0.02, 0.35),
    ],
)
def test_the_body_s_volume_is_met_and_its_surface_hardly_moved(
    shape: Sphere | Torus | Box, volume_m3: float, chamfer: float
) -> None:
    """The volume is exact to rounding, and the vertices lie within a twentieth of a cell of the true surface.

    The lattice does not know of sharp edges: it cuts off those of a box, at most from node to node of a cube's corner,
    0.3 cells deep.
    """
    h = 0.005
    mesh = tetrahedralise_volume(sample(shape, h), volume_m3)
    assert mesh.volume_m3 == pytest.approx(volume_m3, rel=1e-12)
    assert mesh.vertex_volumes_m3().sum() == pytest.approx(volume_m3, rel=1e-12)
    assert mesh.dihedral_angles_deg().min() > LEAST_DEG
    off = shape.distance_m(mesh.vertices_m[np.unique(mesh.surface_faces())]) / h
    assert off.max() < 0.05 and off.min() > -chamfer


def test_a_body_too_thin_for_the_lattice_is_refused() -> None:
    with pytest.raises(ValueError, match="finer spacing"):
        tetrahedralise_volume(sample(Box((0.1, 0.1, 0.004)), 0.001), 4e-5, spacing_m=0.02)


def test_a_lattice_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="coarser spacing"):
        tetrahedralise(sample(Sphere(1.0), 0.2), spacing_m=0.005)
