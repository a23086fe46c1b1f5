"""Mesh files: what is repaired, what is refused, and the distance against analytic bodies."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import trimesh

from soft_estimator.geometry.mesh_file import load_mesh, mesh_to_sdf, write_ply
from soft_estimator.geometry.shapes import Box, Sphere, Torus, Union
from soft_estimator.geometry.surface import extract_surface, mesh_volume_m3

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("SOFT_ESTIMATOR_DATA", REPOSITORY.parent / "shared" / "data"))


def torus_mesh(major, minor, around, across):
    u, v = np.meshgrid(2 * np.pi * np.arange(around) / around, 2 * np.pi * np.arange(across) / across, indexing="ij")
    ring = major + minor * np.cos(v)
    x = np.stack([ring * np.cos(u), ring * np.sin(u), minor * np.sin(v)], axis=-1).reshape(-1, 3)
    i, j = np.meshgrid(np.arange(around), np.arange(across), indexing="ij")
    a, b = i * across + j, (i + 1) % around * across + j
    c, d = (i + 1) % around * across + (j + 1) % across, i * across + (j + 1) % across
    return x, np.concatenate([np.stack(t, axis=-1).reshape(-1, 3) for t in ((a, b, c), (a, c, d))])


def test_sphere_distance_within_the_sag():
    """An inscribed tessellation lies within its sag (largest depth of a face's centre under the sphere) of the sphere;
    the distance to two surfaces that close differs by no more. The sign must agree outside that shell."""
    ball = trimesh.creation.icosphere(subdivisions=3, radius=0.1)
    sag = 0.1 - np.linalg.norm(ball.triangles_center, axis=1).min()
    grid = mesh_to_sdf(ball.vertices, ball.faces, 0.013)
    exact = Sphere(0.1).distance_m(grid.node_positions_m()).reshape(grid.shape)
    # triangles' centres are their deepest points only to first order: 5 % over
    assert np.abs(grid.phi_m - exact).max() < 1.05 * sag
    assert sag < 0.002 * 0.5


def test_torus_distance_within_the_sag():
    """The facets of a torus sag by at most R(1-cos(π/n)) + r(1-cos(π/m)), with outer radius R + r for the ring."""
    major, minor, around, across = 0.1, 0.04, 128, 64
    grid = mesh_to_sdf(*torus_mesh(major, minor, around, across), 0.01)
    exact = Torus(major, minor).distance_m(grid.node_positions_m()).reshape(grid.shape)
    sag = (major + minor) * (1 - np.cos(np.pi / around)) + minor * (1 - np.cos(np.pi / across))
    assert np.abs(grid.phi_m - exact).max() < sag


def test_box_is_exact():
    """A box has no sag: the two distances agree to rounding, through every edge and corner region."""
    mesh = trimesh.creation.box((0.2, 0.1, 0.05))
    grid = mesh_to_sdf(mesh.vertices, mesh.faces, 0.0125)
    exact = Box((0.2, 0.1, 0.05)).distance_m(grid.node_positions_m()).reshape(grid.shape)
    np.testing.assert_allclose(grid.phi_m, exact, atol=1e-14)
    np.testing.assert_array_equal(grid.phi_m < 0, exact < -1e-12)


def test_overlapping_components_and_cavities():
    """A union and a hollow ball: walls inside the body do not count (φ is the minimum over the parts), a reversed inner
    shell is a hole, with the distance |r - 0.075| - 0.025 up to the sag of the facets (1e-3)."""
    left, right = (
        trimesh.creation.box((0.2, 0.1, 0.1), trimesh.transformations.translation_matrix((s, 0, 0)))
        for s in (-0.05, 0.05)
    )
    both = trimesh.util.concatenate([left, right])
    grid = mesh_to_sdf(both.vertices, both.faces, 0.02)
    x = grid.node_positions_m()
    parts = Union([Box((0.2, 0.1, 0.1), (shift, 0, 0)) for shift in (-0.05, 0.05)])
    np.testing.assert_allclose(grid.phi_m.ravel(), parts.distance_m(x), atol=1e-14)
    outer, inner = trimesh.creation.icosphere(3, 0.1), trimesh.creation.icosphere(3, 0.05)
    inner.invert()
    hollow = trimesh.util.concatenate([outer, inner])
    grid = mesh_to_sdf(hollow.vertices, hollow.faces, 0.012)
    radius = np.linalg.norm(grid.node_positions_m(), axis=1)
    np.testing.assert_allclose(grid.phi_m.ravel(), np.abs(radius - 0.075) - 0.025, atol=1e-3)


@pytest.mark.parametrize("ending", ["obj", "stl", "ply"])
def test_formats_scale_and_merging(tmp_path, ending):
    """A ball in millimetres comes back closed, in metres, in every format; STL stores each corner anew.

    float32 in STL and the decimals of OBJ allow 1e-6.
    """
    ball = trimesh.creation.icosphere(subdivisions=2, radius=80.0)
    ball.export(tmp_path / f"ball.{ending}")
    vertices, faces = load_mesh(tmp_path / f"ball.{ending}", 0.001)
    assert len(vertices) == len(ball.vertices) and len(faces) == len(ball.faces)
    np.testing.assert_allclose(np.linalg.norm(vertices, axis=1), 0.08, rtol=1e-6)
    assert mesh_volume_m3(vertices, faces) == pytest.approx(ball.volume * 1e-9, rel=1e-6)


def test_orientation_is_repaired(tmp_path):
    """All faces inverted, some inverted, and one of two bodies inverted: the volume comes out positive each time. A
    reversed inner shell stays a cavity, even when the file is inverted as a whole."""
    ball = trimesh.creation.icosphere(subdivisions=2, radius=0.1)
    inverted = ball.copy()
    inverted.invert()
    some = trimesh.Trimesh(
        ball.vertices, np.where(np.arange(len(ball.faces))[:, None] % 3, ball.faces, ball.faces[:, ::-1]), process=False
    )
    apart = inverted.copy().apply_scale(0.5).apply_translation((0.5, 0, 0))
    cavity = inverted.copy().apply_scale(0.5)
    hollow = trimesh.util.concatenate([ball, cavity])
    hollow_inverted = hollow.copy()
    hollow_inverted.invert()
    cases = [
        (inverted, 1.0),
        (some, 1.0),
        (trimesh.util.concatenate([ball, apart]), 1.125),
        (hollow, 0.875),
        (hollow_inverted, 0.875),
    ]
    for mesh, expected in cases:
        mesh.export(tmp_path / "a.ply")
        assert mesh_volume_m3(*load_mesh(tmp_path / "a.ply", 1.0)) == pytest.approx(expected * ball.volume, rel=1e-6)


def test_bad_files_are_refused(tmp_path):
    ball = trimesh.creation.icosphere(subdivisions=2)
    with pytest.raises(ValueError, match="does not exist"):
        load_mesh(tmp_path / "none.obj", 1.0)
    (tmp_path / "a.xyz").write_text("0 0 0\n")
    with pytest.raises(ValueError, match=r"ending '.xyz'; use one of"):
        load_mesh(tmp_path / "a.xyz", 1.0)
    (tmp_path / "a.ply").write_bytes(b"ply\nformat binary_little_endian 1.0\nelement vertex 9\nnonsense")
    with pytest.raises(ValueError, match=r"cannot be read|no faces") as error:
        load_mesh(tmp_path / "a.ply", 1.0)
    assert "\n" not in str(error.value)
    (tmp_path / "points.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\n")
    with pytest.raises(ValueError, match=r"no faces|cannot be read"):
        load_mesh(tmp_path / "points.obj", 1.0)
    open_ball = trimesh.Trimesh(ball.vertices, ball.faces[1:], process=False)
    open_ball.export(tmp_path / "open.ply")
    with pytest.raises(ValueError, match="not watertight: 3 of 480 edges are open"):
        load_mesh(tmp_path / "open.ply", 1.0)
    broken = ball.vertices.copy()
    broken[7, 1] = np.nan
    write_ply(tmp_path / "nan.ply", broken, ball.faces)
    with pytest.raises(ValueError, match="1 NaN or infinite"):
        load_mesh(tmp_path / "nan.ply", 1.0)
    ball.export(tmp_path / "ball.ply")
    with pytest.raises(ValueError, match="scale_to_m must be positive"):
        load_mesh(tmp_path / "ball.ply", 0.0)
    with pytest.raises(ValueError, match="over the budget"):
        mesh_to_sdf(ball.vertices, ball.faces, 1e-6)


def test_written_ply_reads_back(tmp_path):
    """Positions up to float32, faces and colours exactly, as another reader sees them."""
    ball = trimesh.creation.icosphere(subdivisions=1, radius=0.1)
    colours = np.random.default_rng(0).integers(0, 256, (len(ball.vertices), 3), dtype=np.uint8)
    write_ply(tmp_path / "c.ply", ball.vertices, ball.faces, colours)
    back = trimesh.load(tmp_path / "c.ply", process=False)
    np.testing.assert_allclose(back.vertices, ball.vertices, atol=1e-8)
    np.testing.assert_array_equal(back.faces, ball.faces)
    np.testing.assert_array_equal(back.visual.vertex_colors[:, :3], colours)
    write_ply(tmp_path / "d.ply", ball.vertices, ball.faces)
    np.testing.assert_array_equal(trimesh.load(tmp_path / "d.ply", process=False).faces, ball.faces)
    with pytest.raises(ValueError, match="one per vertex"):
        write_ply(tmp_path / "e.ply", ball.vertices, ball.faces, colours[:-1])


def test_torus_file():
    """The surface taken from the grid encloses the volume of its mesh and has the Euler characteristic of a torus, 0.

    1 % is the second-order error of the grid at a spacing of 1/64 of the body.
    """
    if not (DATA / "torus.obj").is_file():
        pytest.skip("no data")
    vertices, faces = load_mesh(DATA / "torus.obj", 1.0)
    grid = mesh_to_sdf(vertices, faces, float((vertices.max(axis=0) - vertices.min(axis=0)).max()) / 64)
    surface = extract_surface(grid)
    x = surface.positions_m(grid.node_positions_m())
    assert mesh_volume_m3(x, surface.faces) == pytest.approx(mesh_volume_m3(vertices, faces), rel=0.01)
    assert len(x) - len(surface.faces) // 2 == 0
