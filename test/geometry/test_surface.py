"""The embedded surface: closed for every field, outward, second order, bound to its nodes."""

from __future__ import annotations

import numpy as np
import pytest
from skimage.measure import marching_cubes

from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.shapes import Box, Placed, Sphere, Torus, Union, sample
from soft_estimator.geometry.surface import extract_surface, mesh_volume_m3, vertex_areas_m2, vertex_normals


def edge_uses(faces, vertex_count):
    """How often each directed edge, and each reversed one, is used: closed means the two agree."""
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]).astype(np.int64)
    forward = np.unique(edges[:, 0] * vertex_count + edges[:, 1], return_counts=True)
    return forward, np.unique(edges[:, 1] * vertex_count + edges[:, 0], return_counts=True)


def assert_closed(surface, manifold=True):
    forward, backward = edge_uses(surface.faces, len(surface.node_a))
    np.testing.assert_array_equal(forward[0], backward[0])
    np.testing.assert_array_equal(forward[1], backward[1])
    if manifold:
        assert (forward[1] == 1).all()  # exactly two faces, oppositely oriented
    assert len(np.unique(surface.faces)) == len(surface.node_a)  # no stray vertices


def rest(grid, surface):
    return surface.positions_m(grid.node_positions_m())


def noise_grid(seed, kind):
    rng = np.random.default_rng(seed)
    phi = np.ones((8, 9, 10))
    inner = (6, 7, 8)
    if kind == "noise":
        phi[1:-1, 1:-1, 1:-1] = rng.uniform(-1, 1, inner)
    elif kind == "mostly inside":
        phi[1:-1, 1:-1, 1:-1] = rng.uniform(-1, 0.3, inner)
    elif kind == "some zeros":
        phi[1:-1, 1:-1, 1:-1] = rng.uniform(-1, 1, inner) * (rng.uniform(size=inner) < 0.7)
    elif kind == "only -1 0 1":
        phi[1:-1, 1:-1, 1:-1] = rng.integers(-1, 2, inner)
    return SignedDistanceGrid(phi, np.zeros(3), 1.0)


def smooth_grid(seed):
    rng = np.random.default_rng(seed)
    axis = np.linspace(0, 1, 24)
    x = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1)
    waves = rng.normal(size=(12, 3)) * 9
    field = sum(np.cos(x @ k + p) for k, p in zip(waves, rng.uniform(0, 6, 12))) * 0.02
    border = np.minimum(x, 1 - x).min(axis=-1)
    return SignedDistanceGrid(np.maximum(field, 0.06 - border), np.zeros(3), axis[1])


@pytest.mark.parametrize("corners", range(1, 256))
def test_every_sign_pattern_is_closed(corners):
    """All patterns of one cell, with outside nodes around it: every edge has two oppositely oriented faces.

    The surface goes outside the octahedron of half-diagonal ½, volume 1/6, that each inside node has by itself.
    """
    phi = np.ones((4, 4, 4))
    for i in range(8):
        if corners >> i & 1:
            phi[1 + (i >> 2 & 1), 1 + (i >> 1 & 1), 1 + (i & 1)] = -1.0
    grid = SignedDistanceGrid(phi, np.zeros(3), 1.0)
    surface = extract_surface(grid)
    assert_closed(surface)
    volume = mesh_volume_m3(rest(grid, surface), surface.faces)
    assert volume >= bin(corners).count("1") / 6 - 1e-12


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["noise", "mostly inside", "some zeros", "only -1 0 1"])
def test_noise_is_closed(kind, seed):
    """Every ambiguous case beside every other. Where vertices meet in a node with φ = 0 an edge may carry two sheets,
    so only the balance of directions is asked for there; no face has zero area, no pair of nodes is out of place."""
    grid = noise_grid(seed, kind)
    surface = extract_surface(grid)
    assert_closed(surface, manifold="0" not in kind and "zero" not in kind)
    x = rest(grid, surface)
    assert np.isfinite(x).all()
    assert len(np.unique(np.round(x, 12), axis=0)) == len(x)
    a, b, c = (x[surface.faces[:, i]] for i in range(3))
    assert np.linalg.norm(np.cross(b - a, c - a), axis=1).min() > 0
    phi = grid.phi_m.ravel()
    assert (phi[surface.node_a] < 0).all() and (phi[surface.node_b] >= 0).all()
    assert (surface.weight_b > 0).all() and (surface.weight_b <= 1).all()
    # both nodes in one cell
    apart = np.abs(grid.node_positions_m(surface.node_a) - grid.node_positions_m(surface.node_b)).max(axis=1)
    assert apart.max() == 1.0
    assert mesh_volume_m3(x, surface.faces) > 0


@pytest.mark.parametrize("seed", range(5))
def test_smooth_fields_are_closed_and_agree_with_another_marching_cubes(seed):
    """The vertices on grid edges are the crossings of φ, which scikit-image (Lewiner's tables) finds too, up to its
    float32 and the vertices it adds inside cells; volumes differ by the filling of cells that are not flat (1 %)."""
    grid = smooth_grid(seed)
    surface = extract_surface(grid)
    assert_closed(surface)
    x = rest(grid, surface)
    other, faces, _, _ = marching_cubes(grid.phi_m, 0.0, spacing=(grid.spacing_m,) * 3)
    in_steps = other / grid.spacing_m
    on_edge = (np.abs(in_steps - np.round(in_steps)) > 1e-4).sum(axis=1) == 1
    assert np.abs(on_edge.sum() - len(x)) <= 0.01 * len(x)
    np.testing.assert_allclose(
        mesh_volume_m3(x, surface.faces), abs(mesh_volume_m3(other.astype(float), faces)), rtol=0.01
    )


def test_crossings_are_linear_interpolations():
    """φ, linear along a vertex's edge, vanishes at the vertex: (1-w) φ_a + w φ_b = 0 to rounding."""
    grid = smooth_grid(0)
    surface = extract_surface(grid)
    phi = grid.phi_m.ravel()
    value = (1 - surface.weight_b) * phi[surface.node_a] + surface.weight_b * phi[surface.node_b]
    assert np.abs(value).max() < 1e-15


def test_sphere_area_and_volume_are_second_order():
    """Errors against 4πr² and 4πr³/3 fall with h² (fitted order 2 ± 0.2, over four spacings and, so that no lucky
    position counts, centres off the grid); normals are radial within a few h."""
    spacings = 1 / np.array([6.3, 9.1, 13.7, 20.3])
    errors = []
    for h in spacings:
        ball = Sphere(1.0, (0.31 * h, 0.17 * h, -0.23 * h))
        grid = sample(ball, h, align="origin")
        surface = extract_surface(grid)
        assert_closed(surface)
        x = rest(grid, surface)
        assert len(x) - len(surface.faces) // 2 == 2  # Euler characteristic of a sphere
        area, volume = vertex_areas_m2(x, surface.faces).sum(), mesh_volume_m3(x, surface.faces)
        errors.append((1 - area / (4 * np.pi), 1 - volume / (4 * np.pi / 3)))
        outward = (vertex_normals(x, surface.faces) * (x - np.array(ball.centre_m))).sum(axis=1)
        assert outward.min() > 1 - 3 * h
    for column in np.array(errors).T:
        order = np.polyfit(np.log(spacings), np.log(column), 1)[0]
        assert order == pytest.approx(2.0, abs=0.2)


def test_torus_has_one_hole():
    """V - E + F = 2 - 2g is 0 for genus 1, with E = 3F/2 on a closed surface; the volume is 2π²Rr² up to h²."""
    grid = sample(Torus(0.1, 0.04, axis=(1, 2, 3)), 0.006)
    surface = extract_surface(grid)
    assert_closed(surface)
    x = rest(grid, surface)
    assert len(x) - len(surface.faces) // 2 == 0
    assert mesh_volume_m3(x, surface.faces) == pytest.approx(2 * np.pi**2 * 0.1 * 0.04**2, rel=0.02)


def test_box_on_grid_planes_is_exact():
    """A box with its faces on grid planes keeps area, volume, edges and corners to rounding: the nodes with φ = 0 are
    the surface. Two of them with one cell between stay two bodies."""
    size = np.array([0.2, 0.03, 0.02])
    grid = sample(Box(size, (0.4, 0.1, 0.2)), 0.005)
    surface = extract_surface(grid)
    assert_closed(surface)
    x = rest(grid, surface)
    assert len(x) == (grid.phi_m == 0).sum() and (surface.weight_b == 1).all()
    assert mesh_volume_m3(x, surface.faces) == pytest.approx(np.prod(size), rel=1e-12)
    faces_area = 2 * (size[0] * size[1] + size[1] * size[2] + size[2] * size[0])
    assert vertex_areas_m2(x, surface.faces).sum() == pytest.approx(faces_area, rel=1e-12)
    pair = sample(Union((Box((2.0, 2.0, 2.0)), Box((2.0, 2.0, 2.0), (2.5, 0, 0)))), 0.5)
    surface = extract_surface(pair)
    assert_closed(surface)
    assert mesh_volume_m3(rest(pair, surface), surface.faces) == pytest.approx(16.0, rel=1e-12)


def test_snapped_nodes_change_little():
    """Setting |φ| < 0.05 h to 0 moves the surface by at most 0.05 h/|∇φ|: the volume by at most area · 0.05 h; still
    closed, no two vertices in one place."""
    grid = sample(Sphere(1.0, (0.013, 0.02, 0.007)), 0.1, align="origin")
    phi = np.where(np.abs(grid.phi_m) < 0.005, 0.0, grid.phi_m)
    assert (phi == 0).sum() > 20
    snapped = SignedDistanceGrid(phi, grid.origin_m, grid.spacing_m)
    before, after = extract_surface(grid), extract_surface(snapped)
    assert_closed(after)
    x = rest(snapped, after)
    assert len(np.unique(np.round(x, 10), axis=0)) == len(x)
    assert abs(mesh_volume_m3(x, after.faces) - mesh_volume_m3(rest(grid, before), before.faces)) < 4 * np.pi * 0.005


def test_tiny_values_do_no_harm():
    """φ down to denormal numbers, of both signs, on a plane of nodes: no NaN, no zero-area face, the box's volume."""
    rng = np.random.default_rng(0)
    grid = sample(Box((1.0, 1.0, 1.0)), 0.25)
    tiny = rng.choice([-1e-310, 1e-310, -1e-14, 1e-14, 0.0], grid.shape)
    grid = SignedDistanceGrid(np.where(grid.phi_m == 0, tiny, grid.phi_m), grid.origin_m, grid.spacing_m)
    surface = extract_surface(grid)
    assert_closed(surface)
    assert mesh_volume_m3(rest(grid, surface), surface.faces) == pytest.approx(1.0, rel=1e-12)


def test_affine_motion_of_nodes_is_affine_for_vertices():
    """x_a, x_b ↦ A x + t gives vertices A x + t, since weights sum to one; areas and volume scale by det A."""
    grid = sample(Placed(Box((0.1, 0.06, 0.08)), translation_m=(0.1, 0, 0)), 0.011)
    surface = extract_surface(grid)
    matrix = np.eye(3) + 0.3 * np.random.default_rng(0).normal(size=(3, 3))
    shift = np.array([0.1, -2.0, 0.4])
    x = rest(grid, surface)
    moved = surface.positions_m(grid.node_positions_m() @ matrix.T + shift)
    np.testing.assert_allclose(moved, x @ matrix.T + shift, atol=1e-14)
    volume = mesh_volume_m3(x, surface.faces)
    assert mesh_volume_m3(moved, surface.faces) == pytest.approx(np.linalg.det(matrix) * volume, rel=1e-10)


def test_areas_of_a_known_mesh():
    """Two unit right triangles on a square: each vertex has a third of ½ per triangle, the sum is the square's area."""
    x = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.0], [5, 5, 5]])
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    np.testing.assert_allclose(vertex_areas_m2(x, faces), [1 / 3, 1 / 6, 1 / 3, 1 / 6, 0])
    np.testing.assert_allclose(vertex_normals(x, faces), [[0, 0, 1]] * 4 + [[0, 0, 0]])


def test_bodies_without_a_surface_are_refused():
    with pytest.raises(ValueError, match="nowhere negative"):
        extract_surface(SignedDistanceGrid(np.ones((3, 3, 3)), np.zeros(3), 1.0))
    phi = np.ones((4, 4, 4))
    phi[1:3, 1:3, 0] = -1
    with pytest.raises(ValueError, match="border"):
        extract_surface(SignedDistanceGrid(phi, np.zeros(3), 1.0))
