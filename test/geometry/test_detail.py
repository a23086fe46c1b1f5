"""Integrals over a shape known on a finer grid than that of the cells."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.geometry.cut_cells import cut
from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.shapes import Box, Placed, Sphere, refine, sample

TURN = rotation_matrix(np.array([0.4, 0.3, -0.5]))


def trilinear(grid: SignedDistanceGrid):
    """The field of a grid as a function of points (n, 3) [m]."""
    from scipy.interpolate import RegularGridInterpolator

    axes = [grid.origin_m[a] + grid.spacing_m * np.arange(grid.shape[a]) for a in range(3)]
    return RegularGridInterpolator(axes, grid.phi_m, bounds_error=False, fill_value=None)


@pytest.mark.parametrize("parts", [2, 3])
def test_detail_without_news_is_the_subdivision(parts):
    """The trilinear field itself as detail: the same sub-cells as `subdivision`, so equal integrals. The interpolator
    rounds φ by 1e-16 h, which moves integrals by as much."""
    grid = sample(Sphere(0.05, (0.001, 0.002, -0.003)), 0.013, align="origin")
    plain = cut(grid, subdivision=parts)
    detailed = cut(grid, detail=refine(trilinear(grid), grid, parts))
    np.testing.assert_array_equal(plain.cell, detailed.cell)
    np.testing.assert_allclose(plain.gradient_table_m, detailed.gradient_table_m, atol=1e-12 * 0.013)
    np.testing.assert_allclose(plain.boundary_normals_m2, detailed.boundary_normals_m2, atol=1e-12 * 0.013**2)


def test_detail_keeps_the_edges_of_a_turned_box():
    """Bevels have a cross-section of order (h/parts)²: the volume lost falls with second order in the detail (a factor
    3 or more for each halving is asked; the edges lie at random in the sub-cells) and is under 0.5 % at four parts."""
    box = Placed(Box((0.2, 0.02, 0.03)), TURN)
    grid = sample(box, 0.005, align="origin")
    lost = [
        1 - cut(grid, 0.0, 2, 0.1, detail).volume_weights_m3.sum() / (0.2 * 0.02 * 0.03)
        for detail in (None, *(refine(box.distance_m, grid, n) for n in (2, 4)))
    ]
    assert lost[0] > 0.03  # what it is for
    assert lost[0] / lost[1] > 3 and lost[1] / lost[2] > 3 and 0 < lost[2] < 0.005


def test_divergence_theorem_with_detail():
    """Σ_cells ∫∇N_i = Σ_cells ∫_Γ N_i n at every node, to rounding: neighbours see the same φ on their shared face."""
    box = Placed(Box((0.06, 0.05, 0.04)), TURN, (0.001, 0.0, 0.002))
    grid = sample(box, 0.013, align="origin")
    cells = cut(grid, min_fill=0.0, detail=refine(box.distance_m, grid, 3))
    total = np.zeros((grid.phi_m.size, 3))
    np.add.at(total, cells.corner_nodes, cells.dilatation_table_m2[cells.gradient_index] - cells.boundary_normals_m2)
    np.testing.assert_allclose(total, 0.0, atol=1e-13 * 0.013**2 * 1e2)


def test_refine_asks_only_near_the_surface():
    """Values within a cell's diagonal of the surface are the function's own; farther ones are trilinear and keep their
    sign."""
    ball = Sphere(0.05)
    grid = sample(ball, 0.01)
    asked = []

    def distance(points):
        asked.append(len(points))
        return ball.distance_m(points)

    fine = refine(distance, grid, 2)
    exact = ball.distance_m(fine.node_positions_m()).reshape(fine.shape)
    near = np.abs(exact) < 0.01
    np.testing.assert_allclose(fine.phi_m[near], exact[near], atol=1e-15)
    assert (np.sign(fine.phi_m) == np.sign(np.where(np.abs(exact) < 1e-12, 0.0, exact))).all()
    assert sum(asked) < 0.8 * fine.phi_m.size


@pytest.mark.parametrize("wrong", ["spacing", "shape", "origin"])
def test_detail_that_does_not_fit_is_refused(wrong):
    grid = sample(Sphere(0.05), 0.013)
    fine = refine(Sphere(0.05).distance_m, grid, 2)
    phi, origin, spacing = fine.phi_m, fine.origin_m, fine.spacing_m
    if wrong == "spacing":
        spacing *= 1.1
    elif wrong == "shape":
        phi = phi[:-1]
    else:
        origin = origin + 0.001
    with pytest.raises(ValueError, match="does not refine the grid"):
        cut(grid, detail=SignedDistanceGrid(phi, origin, spacing))
