"""The tables of a cut cell: b_p = ∫∇N_p, its volume V and the mass products ∫N_p N_q, by identities that tie them."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest

from soft_estimator.geometry.cut_cells import PAIRS, SHAPE_POLYNOMIALS, SHAPE_PRODUCTS, CutCells, cut
from soft_estimator.geometry.grid import CORNER_OFFSETS, SignedDistanceGrid
from soft_estimator.geometry.shapes import Sphere, Torus, sample

SPACING = 0.013


def noise() -> SignedDistanceGrid:
    """Random signs at the nodes of a grid: every ambiguous pattern of a cell."""
    phi = np.ones((8, 7, 9))
    phi[1:-1, 1:-1, 1:-1] = np.random.default_rng(4).uniform(-1, 1, (6, 5, 7))
    return SignedDistanceGrid(SPACING * phi, np.zeros(3), SPACING)


GRIDS = {
    "sphere": lambda: sample(Sphere(0.05, (0.001, 0.002, -0.003)), SPACING, align="origin"),
    "torus": lambda: sample(Torus(0.08, 0.03, axis=(0.3, 1.0, 0.2)), SPACING, align="origin"),
    "noise": noise,
}


@pytest.fixture(scope="module", params=GRIDS)
def cells(request) -> CutCells:
    return cut(GRIDS[request.param]())


def symmetric(table: np.ndarray) -> np.ndarray:
    """Rows of pairs p <= q (T, 36) as full matrices (T, 8, 8)."""
    full = np.zeros((len(table), 8, 8))
    full[:, PAIRS[:, 0], PAIRS[:, 1]] = full[:, PAIRS[:, 1], PAIRS[:, 0]] = table
    return full


def test_gradients_of_a_cell_sum_to_zero(cells):
    """Σ_p N_p = 1, so Σ_p ∫∇N_p = 0: to rounding of h²."""
    np.testing.assert_allclose(cells.dilatation_table_m2.sum(axis=1), 0.0, atol=1e-14 * SPACING**2)


def test_dilatation_of_affine_displacements(cells):
    """∫div u = Σ_p b_p·(A x_p) = tr(A) V for any A, as Σ_p x_p ⊗ ∇N_p = I: to rounding."""
    x = CORNER_OFFSETS * SPACING
    sums = np.einsum("pi,tpj->tij", x, cells.dilatation_table_m2)
    expected = cells.volume_table_m3[:, None, None] * np.eye(3)
    np.testing.assert_allclose(sums, expected, atol=1e-14 * SPACING**3)


def test_dilatation_follows_from_the_gradient_products(cells):
    """METHOD §10: b_p,i = Σ_q x_q,j ∫∂ᵢN_p ∂ⱼN_q for every j, since Σ_q x_q,j ∂ⱼN_q = 1. The stabilisation in the table
    is blind to affine functions and drops out; to rounding."""
    x = CORNER_OFFSETS * SPACING
    table = cells.gradient_table_m.reshape(-1, 36, 3, 3)
    products = np.zeros((len(table), 8, 8, 3, 3))
    products[:, PAIRS[:, 0], PAIRS[:, 1]] = table
    products[:, PAIRS[:, 1], PAIRS[:, 0]] = np.swapaxes(table, 2, 3)
    for j in range(3):
        b = np.einsum("q,tpqi->tpi", x[:, j], products[..., j])
        np.testing.assert_allclose(b, cells.dilatation_table_m2, atol=1e-13 * SPACING**2)


def test_mass_products_sum_to_weights_and_volume(cells):
    """Σ_q ∫N_p N_q = ∫N_p = w_v and Σ_pq = V, by Σ_q N_q = 1: to rounding."""
    mass = symmetric(cells.mass_table_m3)[cells.gradient_index]
    np.testing.assert_allclose(mass.sum(axis=2), cells.volume_weights_m3, atol=1e-14 * SPACING**3)
    volume = cells.volume_table_m3[cells.gradient_index]
    np.testing.assert_allclose(mass.sum(axis=(1, 2)), volume, rtol=1e-12)
    np.testing.assert_allclose(volume, cells.fill * SPACING**3, rtol=1e-12)


def test_mass_products_are_positive(cells):
    """uᵀMu = ∫(Σ N_p u_p)² > 0: no negative eigenvalue beyond rounding of the cell's largest (∫ of squares)."""
    values = np.linalg.eigvalsh(symmetric(cells.mass_table_m3))
    assert (values[:, 0] > -1e-13 * values[:, -1]).all()
    assert values[0, 0] > 0  # a full cell


def test_mass_products_of_a_full_cell():
    """∫N_p N_q = h³ Π_a (1/3 where p and q agree along axis a, else 1/6)."""
    same = CORNER_OFFSETS[PAIRS[:, 0]] == CORNER_OFFSETS[PAIRS[:, 1]]
    expected = np.where(same, 1 / 3, 1 / 6).prod(axis=1)
    full = cut(sample(Sphere(0.05), SPACING))
    np.testing.assert_allclose(full.mass_table_m3[0], expected * SPACING**3, rtol=1e-13)


def test_mass_products_of_a_corner_tetrahedron():
    """φ = x/a + y/b + z/c - 1 leaves a tetrahedron with legs a, b, c; ∫xⁱyʲzᵏ = aⁱ⁺¹bʲ⁺¹cᵏ⁺¹ i!j!k!/(i+j+k+3)! over it;
    the products, of degree up to 6, are sums of these. φ is linear, the clipping exact, the sums cancel to 1e-12."""
    legs = np.array([0.9, 0.7, 0.8])
    phi = (CORNER_OFFSETS / legs).sum(axis=1) - 1.0
    grid = SignedDistanceGrid(np.pad(phi.reshape(2, 2, 2), 1, constant_values=1.0), -np.ones(3), 1.0)
    cells = cut(grid, min_fill=0.0)
    at = int(np.nonzero((np.abs(grid.node_positions_m(cells.cell)) < 1e-12).all(axis=1))[0][0])
    moments = [
        np.prod(legs ** (np.array(e) + 1)) * np.prod([factorial(k) for k in e]) / factorial(sum(e) + 3)
        for e in np.ndindex(3, 3, 3)
    ]
    row = cells.gradient_index[at]
    np.testing.assert_allclose(cells.moment_table[row], moments, rtol=1e-12)
    np.testing.assert_allclose(cells.mass_table_m3[row], SHAPE_PRODUCTS @ moments, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(cells.volume_weights_m3[at], SHAPE_POLYNOMIALS @ moments, rtol=1e-11, atol=1e-15)
