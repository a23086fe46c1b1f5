"""Stiffness and mass of cut cells under several element laws, in plain NumPy and SciPy, for `bench_elements.py`.

With G_pq = ∫∇N_p ∇N_qᵀ, b_p = ∫∇N_p and V over the filled part of a cell:

    full              K_pq = λ G_pq + μ (tr(G_pq) I + G_pqᵀ)
    mean dilatation   K_pq = μ (tr(G_pq) I + G_pqᵀ) - (2μ/3) G_pq + (λ + 2μ/3) b_p b_qᵀ / V
    incompatible      `full` with three more functions a component, ½(x_d - m_d)² with m the part's centroid, whose
                      gradients have no mean over the part (the patch test stays exact); condensed in each cell

    M_pq = c ∫ρ N_p N_q + (1 - c) δ_pq ∫ρ N_p with c the consistent share.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_solve_banded, cholesky_banded, eigh
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import LinearOperator, eigsh

from soft_estimator.geometry.cut_cells import GRADIENT_POLYNOMIALS, PAIRS, boundary_products
from soft_estimator.geometry.grid import CORNER_OFFSETS
from soft_estimator.geometry.shapes import Shape
from soft_estimator.physics.body import Body

LAWS = ("full", "mean dilatation", "incompatible")
_POWERS = np.array(list(np.ndindex(3, 3, 3)))


def lame(young_pa: float, poissons_ratio: float) -> tuple[float, float]:
    """λ and μ [Pa]."""
    shear = 0.5 * young_pa / (1.0 + poissons_ratio)
    return 2.0 * shear * poissons_ratio / (1.0 - 2.0 * poissons_ratio), shear


def gradient_blocks(body: Body) -> np.ndarray:
    """G of each table row with all pairs of corners, (T, 8, 8, 3, 3) [m]."""
    table = body.cells.gradient_table_m.reshape(-1, 36, 3, 3)
    blocks = np.zeros((len(table), 8, 8, 3, 3))
    blocks[:, PAIRS[:, 0], PAIRS[:, 1]] = table
    blocks[:, PAIRS[:, 1], PAIRS[:, 0]] = np.swapaxes(table, 2, 3)
    return blocks


def _with_incompatible_functions(body: Body) -> np.ndarray:
    """G of the corners' functions and of ½(x_d - m_d)², (T, 11, 11, 3, 3) [m]."""
    h, moments = body.grid.spacing_m, body.cells.moment_table
    blocks = np.zeros((len(moments), 11, 11, 3, 3))
    blocks[:, :8, :8] = gradient_blocks(body)
    first = moments[:, [9, 3, 1]]
    centroid = first / moments[:, :1]
    for d in range(3):
        shift = _POWERS + np.eye(3, dtype=int)[d]
        inside = (shift < 3).all(axis=1)
        raised = np.zeros_like(moments)
        raised[:, inside] = moments[:, shift[inside] @ np.array([9, 3, 1])]
        cross = np.einsum("pam,tm->tpa", GRADIENT_POLYNOMIALS, raised - centroid[:, d : d + 1] * moments)
        blocks[:, :8, 8 + d, :, d] = cross * h
        blocks[:, 8 + d, :8, d, :] = cross * h
        for e in range(3):
            second = moments[:, (np.eye(3, dtype=int)[d] + np.eye(3, dtype=int)[e]) @ np.array([9, 3, 1])]
            blocks[:, 8 + d, 8 + e, d, e] = (second - first[:, d] * centroid[:, e]) * h
    return blocks


def _shear_part(blocks: np.ndarray) -> np.ndarray:
    return np.swapaxes(blocks, 3, 4) + np.trace(blocks, axis1=3, axis2=4)[..., None, None] * np.eye(3)


def _as_matrices(blocks: np.ndarray) -> np.ndarray:
    rows, count = len(blocks), blocks.shape[1]
    return blocks.transpose(0, 1, 3, 2, 4).reshape(rows, 3 * count, 3 * count)


def row_stiffness(body: Body, law: str, lam: float, mu: float) -> np.ndarray:
    """Element matrix of each table row, (T, 24, 24) [N/m]."""
    if law == "incompatible":
        blocks = _with_incompatible_functions(body)
        k = _as_matrices(lam * blocks + mu * _shear_part(blocks))
        inner, cross = k[:, 24:, 24:], k[:, 24:, :24]
        return k[:, :24, :24] - np.swapaxes(cross, 1, 2) @ np.linalg.solve(inner, cross)
    blocks = gradient_blocks(body)
    if law == "full":
        return _as_matrices(lam * blocks + mu * _shear_part(blocks))
    if law != "mean dilatation":
        raise ValueError(f"element law {law!r} is not known; use one of {', '.join(LAWS)}")
    b = body.cells.dilatation_table_m2.reshape(-1, 24)
    mean = b[:, :, None] * b[:, None, :] / body.cells.volume_table_m3[:, None, None]
    return _as_matrices(mu * _shear_part(blocks) - (2 * mu / 3) * blocks) + (lam + 2 * mu / 3) * mean


def assemble_cells(body: Body, cell_matrices: np.ndarray, cells: np.ndarray | None = None) -> sp.csc_matrix:
    """Sum of cell matrices (S, 24, 24) into (3N, 3N); of all cells by default, else of the cells (S,) named."""
    nodes = body.cell_nodes if cells is None else body.cell_nodes[cells]
    dof = (3 * nodes[:, :, None].astype(np.int64) + np.arange(3)).reshape(-1, 24)
    rows, columns = np.broadcast_arrays(dof[:, :, None], dof[:, None, :])
    size = 3 * body.node_count
    return sp.csc_matrix((cell_matrices.ravel(), (rows.ravel(), columns.ravel())), shape=(size, size))


def stiffness(body: Body, law: str, lam: float, mu: float) -> sp.csc_matrix:
    """K [N/m], (3N, 3N)."""
    return assemble_cells(body, row_stiffness(body, law, lam, mu)[body.cells.gradient_index])


def mass(body: Body, density_kg_m3: float, consistent: float) -> sp.csc_matrix:
    """M [kg], (3N, 3N); what dropped cells hand on stays lumped."""
    table = np.zeros((len(body.cells.mass_table_m3), 8, 8))
    table[:, PAIRS[:, 0], PAIRS[:, 1]] = table[:, PAIRS[:, 1], PAIRS[:, 0]] = body.cells.mass_table_m3
    table[:, range(8), range(8)] -= table.sum(axis=2)  # no row sum: what is left of the lumped mass
    full = np.einsum("tpq,ab->tpaqb", table, np.eye(3)).reshape(-1, 24, 24)
    spread = assemble_cells(body, consistent * full[body.cells.gradient_index])
    return density_kg_m3 * (spread + sp.diags(np.repeat(body.node_volume_m3, 3), format="csc"))


def hold(body: Body, region: Shape, law: str, lam: float, mu: float, factor: float = 4.0) -> sp.csc_matrix:
    """Nitsche's terms for u = 0 on the surface within a region, a matrix (3N, 3N) [N/m] to be added to K.

    -∫(σn)·w - ∫(σ(w)n)·u + η∫u·w with the law's own σ. In a cell the penalty must exceed |σn|²/energy: γ is the largest
    ∫(∂ₙf)²/∫|∇f|² over its functions. The mean dilatation's pressure is one number a cell and feels ∫u·n alone, so its
    penalty is `factor` (λ + 2μ/3) (∫u·n)² / V instead of a part of η, and does not lock the held face as ν → ½.
    """
    cells = body.cells
    select, flux, products, slopes = boundary_products(cells, body.grid, lambda x: region.distance_m(x) <= 1e-9)
    row = cells.gradient_index[select]
    laplacian = np.trace(gradient_blocks(body)[row], axis1=3, axis2=4)
    gamma = np.array([_largest_ratio(a, b) for a, b in zip(slopes, laplacian, strict=True)])
    traction, stiff, push = mu * _shear_part(flux), (lam + 2 * mu) * gamma, 0.0
    if law == "mean dilatation":
        bulk = ((lam + 2 * mu / 3) / cells.volume_table_m3[row])[:, None, None]
        out = np.einsum("q,spqa->spa", CORNER_OFFSETS[:, 0] * body.grid.spacing_m, flux[..., 0]).reshape(-1, 24)
        b = cells.dilatation_table_m2[row].reshape(-1, 24)
        traction = _as_matrices(traction - (2 * mu / 3) * flux) + bulk * out[:, :, None] * b[:, None, :]
        stiff, push = 2 * mu * gamma, factor * bulk * out[:, :, None] * out[:, None, :]
    else:
        traction = _as_matrices(traction + lam * flux)
    spring = np.einsum("s,spq,ab->spaqb", factor * stiff, products, np.eye(3)).reshape(-1, 24, 24)
    return assemble_cells(body, spring + push - traction - np.swapaxes(traction, 1, 2), select)


def _largest_ratio(a: np.ndarray, b: np.ndarray) -> float:
    """Largest xᵀax / xᵀbx, both symmetric and b positive up to constants."""
    values, vectors = eigh(b)
    keep = values > 1e-10 * values[-1]
    basis = vectors[:, keep] / np.sqrt(values[keep])
    return float(np.linalg.eigvalsh(basis.T @ a @ basis)[-1])


def factorise(k: sp.csc_matrix) -> Callable[[np.ndarray], np.ndarray]:
    """Solves with a symmetric positive definite matrix: banded Cholesky after reverse Cuthill-McKee.

    Bodies of a few thousand nodes have bands of a few hundred, which LAPACK takes faster than SuperLU its fill.
    """
    order = reverse_cuthill_mckee(k.tocsr(), symmetric_mode=True)
    lower = sp.tril(k.tocsr()[order][:, order]).tocoo()
    band = np.zeros((int((lower.row - lower.col).max()) + 1, k.shape[0]))
    band[lower.row - lower.col, lower.col] = lower.data
    factor = (cholesky_banded(band, overwrite_ab=True, lower=True, check_finite=False), True)

    def solve(right: np.ndarray) -> np.ndarray:
        out = np.empty_like(right, dtype=np.float64)
        out[order] = cho_solve_banded(factor, right[order], check_finite=False)
        return out

    return solve


def modes(
    k: sp.csc_matrix,
    m: sp.csc_matrix,
    count: int,
    shift: float = 0.0,
    solve: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The lowest natural frequencies [Hz], (count,), and shapes, (n, count); a free body needs a `shift` [1/s²] < 0.

    solve: with K - shift M, where that is factorised already.
    """
    inverse = LinearOperator(k.shape, solve or factorise(k - shift * m), dtype=np.float64)
    values, shapes = eigsh(k, count, m, sigma=shift, which="LM", OPinv=inverse, v0=np.ones(k.shape[0]))
    return np.sqrt(np.maximum(values, 0.0)) / (2 * np.pi), shapes
