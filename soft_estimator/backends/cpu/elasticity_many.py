"""The change of the cells' forces along several directions at once.

What the directions share (the cell's strain, its rotation's derivative) is worked out once; the inner loops run over
the directions, which lie next to each other in memory.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import CHUNK_OF_CELLS, by_size, njit, prange
from soft_estimator.backends.cpu.elasticity import MEAN, _cell_product, _corner_vectors, _turn_back
from soft_estimator.backends.cpu.rotation import _cofactor, deformation_gradient

_FAST = {"contract"}


@njit(cache=True)
def _spin_solver(f: np.ndarray, r: np.ndarray, inverse: np.ndarray) -> None:
    """The inverse of tr(S) I - S, S = sym(RᵀF); zero where the closest rotation is not unique."""
    m, c = np.empty(9), np.empty(9)
    trace = 0.0
    for i in range(3):
        trace += r[i] * f[i] + r[3 + i] * f[3 + i] + r[6 + i] * f[6 + i]
    for i in range(3):
        for j in range(3):
            forth = r[i] * f[j] + r[3 + i] * f[3 + j] + r[6 + i] * f[6 + j]
            back = r[j] * f[i] + r[3 + j] * f[3 + i] + r[6 + j] * f[6 + i]
            m[3 * i + j] = (trace if i == j else 0.0) - 0.5 * (forth + back)
    determinant = _cofactor(m, c)
    sound = abs(determinant) > 1e-12 * max(abs(trace), 1e-300) ** 3
    for i in range(3):
        for j in range(3):
            inverse[3 * i + j] = c[3 * j + i] / determinant if sound else 0.0


@njit(cache=True, fastmath=_FAST)
def _turns(
    nodes: np.ndarray,
    du: np.ndarray,
    quarter_inverse_h: float,
    r: np.ndarray,
    inverse: np.ndarray,
    df: np.ndarray,
    spin: np.ndarray,
    dr: np.ndarray,
) -> None:
    """δR (9, B) of one cell for changes du (N, 3, B): δR = R [ω]ₓ, ω = inverse · axl(Rᵀ δF)."""
    width = du.shape[2]
    n0 = nodes[0]
    df[:] = 0.0
    for i in range(1, 8):
        n = nodes[i]
        sx, sy, sz = (1.0 if i & 4 else -1.0), (1.0 if i & 2 else -1.0), (1.0 if i & 1 else -1.0)
        for a in range(3):
            for j in range(width):
                d = (du[n, a, j] - du[n0, a, j]) * quarter_inverse_h
                df[3 * a, j] += sx * d
                df[3 * a + 1, j] += sy * d
                df[3 * a + 2, j] += sz * d
    for j in range(width):
        w0 = (r[2] * df[1, j] + r[5] * df[4, j] + r[8] * df[7, j]) - (
            r[1] * df[2, j] + r[4] * df[5, j] + r[7] * df[8, j]
        )
        w1 = (r[0] * df[2, j] + r[3] * df[5, j] + r[6] * df[8, j]) - (
            r[2] * df[0, j] + r[5] * df[3, j] + r[8] * df[6, j]
        )
        w2 = (r[1] * df[0, j] + r[4] * df[3, j] + r[7] * df[6, j]) - (
            r[0] * df[1, j] + r[3] * df[4, j] + r[6] * df[7, j]
        )
        spin[0, j] = inverse[0] * w0 + inverse[1] * w1 + inverse[2] * w2
        spin[1, j] = inverse[3] * w0 + inverse[4] * w1 + inverse[5] * w2
        spin[2, j] = inverse[6] * w0 + inverse[7] * w1 + inverse[8] * w2
    for i in range(3):
        a, b, c = r[3 * i], r[3 * i + 1], r[3 * i + 2]
        for j in range(width):
            dr[3 * i, j] = b * spin[2, j] - c * spin[1, j]
            dr[3 * i + 1, j] = c * spin[0, j] - a * spin[2, j]
            dr[3 * i + 2, j] = a * spin[1, j] - b * spin[0, j]


@njit(cache=True, fastmath=_FAST)
def _strains(
    nodes: np.ndarray, moved: np.ndarray, r: np.ndarray, y: np.ndarray, dr: np.ndarray, dw: np.ndarray
) -> None:
    """dw (8, 3, B) = δRᵀ y_p + Rᵀ moved_p, the latter relative to corner 0."""
    width = moved.shape[2]
    n0 = nodes[0]
    for p in range(8):
        n = nodes[p]
        for a in range(3):
            r0, r1, r2 = r[a], r[3 + a], r[6 + a]
            y0, y1, y2 = y[p, 0], y[p, 1], y[p, 2]
            for j in range(width):
                dw[p, a, j] = (
                    dr[a, j] * y0
                    + dr[3 + a, j] * y1
                    + dr[6 + a, j] * y2
                    + r0 * (moved[n, 0, j] - moved[n0, 0, j])
                    + r1 * (moved[n, 1, j] - moved[n0, 1, j])
                    + r2 * (moved[n, 2, j] - moved[n0, 2, j])
                )


@njit(cache=True, fastmath=_FAST)
def _products(table_row: np.ndarray, lam: float, mu: float, dw: np.ndarray, force: np.ndarray) -> None:
    """force (8, 3, B) = (μ(Gᵀ + tr G - ⅔ G) + (λ + ⅔ μ) b bᵀ/V) dw of one cell."""
    width = dw.shape[2]
    bulk, local = lam + mu * (2.0 / 3.0), -mu * (2.0 / 3.0)
    mean = np.zeros(width)
    for p in range(8):
        for a in range(3):
            b = bulk * table_row[MEAN + 3 * p + a]
            for j in range(width):
                mean[j] += b * dw[p, a, j]
    for p in range(8):
        for a in range(3):
            b = table_row[MEAN + 3 * p + a]
            for j in range(width):
                force[p, a, j] = b * mean[j]
    k = 0
    for p in range(8):
        for q in range(p, 8):
            g = table_row[k : k + 9]
            k += 9
            trace = mu * (g[0] + g[4] + g[8])
            for a in range(3):
                b0 = local * g[3 * a] + mu * g[a]
                b1 = local * g[3 * a + 1] + mu * g[3 + a]
                b2 = local * g[3 * a + 2] + mu * g[6 + a]
                for j in range(width):
                    force[p, a, j] += b0 * dw[q, 0, j] + b1 * dw[q, 1, j] + b2 * dw[q, 2, j] + trace * dw[q, a, j]
            if p != q:
                for a in range(3):
                    b0 = local * g[a] + mu * g[3 * a]
                    b1 = local * g[3 + a] + mu * g[3 * a + 1]
                    b2 = local * g[6 + a] + mu * g[3 * a + 2]
                    for j in range(width):
                        force[q, a, j] += b0 * dw[p, 0, j] + b1 * dw[p, 1, j] + b2 * dw[p, 2, j] + trace * dw[p, a, j]


@by_size(rows=6, fastmath=_FAST)
def cell_forces_tangents(
    at: np.ndarray,
    dat: np.ndarray,
    u: np.ndarray,
    z: np.ndarray,
    moved: np.ndarray,
    r: np.ndarray,
    cell_nodes: np.ndarray,
    gradient_index: np.ndarray,
    table: np.ndarray,
    young: np.ndarray,
    region: np.ndarray,
    lam: float,
    mu: float,
    dlam: np.ndarray,
    dmu: np.ndarray,
    spacing: float,
    out: np.ndarray,
) -> None:
    """Change of `cell_forces` (share 1) where rotations are taken at `at`, along B directions.

    Args:
        at: displacement the rotations r (C, 9) are taken at, (N, 3), and its changes dat (N, 3, B).
        u, z: as in `cell_forces`, (N, 3). moved: change of u + z, (N, 3, B).
        region: material region of each cell (C,). dlam, dmu: change of λ, μ in each region, (R, B).
        out: (C, 24, B).
    """
    cells, width = cell_nodes.shape[0], dat.shape[2]
    for chunk in prange((cells + CHUNK_OF_CELLS - 1) // CHUNK_OF_CELLS):
        y, w = np.empty((8, 3)), np.empty((8, 3))
        w_lame, w_shear = np.empty((8, 3)), np.empty((8, 3))
        f, inverse, rc = np.empty(9), np.empty(9), np.empty(9)
        df, spin, dr = np.empty((9, width)), np.empty((3, width)), np.empty((9, width))
        dw, force = np.empty((8, 3, width)), np.empty((8, 3, width))
        for c in range(chunk * CHUNK_OF_CELLS, min(cells, (chunk + 1) * CHUNK_OF_CELLS)):
            for i in range(9):
                rc[i] = r[c, i]
            nodes, row = cell_nodes[c], table[gradient_index[c]]
            deformation_gradient(at, nodes, 0.25 / spacing, f)
            _spin_solver(f, rc, inverse)
            _turns(nodes, dat, 0.25 / spacing, rc, inverse, df, spin, dr)
            _corner_vectors(nodes, u, z, 1.0, spacing, y)
            _turn_back(rc, y, 1.0, spacing, w)
            _cell_product(row, w, w_lame, w_shear)
            _strains(nodes, moved, rc, y, dr, dw)
            _products(row, lam, mu, dw, force)
            e, dl, dm = young[c], dlam[region[c]], dmu[region[c]]
            for p in range(8):
                for a in range(3):
                    x0, x1 = w_lame[p, a], w_shear[p, a]
                    for j in range(width):
                        force[p, a, j] += dl[j] * x0 + dm[j] * x1
                k0 = lam * w_lame[p, 0] + mu * w_shear[p, 0]
                k1 = lam * w_lame[p, 1] + mu * w_shear[p, 1]
                k2 = lam * w_lame[p, 2] + mu * w_shear[p, 2]
                for a in range(3):
                    r0, r1, r2 = rc[3 * a], rc[3 * a + 1], rc[3 * a + 2]
                    for j in range(width):
                        out[c, 3 * p + a, j] = e * (
                            r0 * force[p, 0, j]
                            + r1 * force[p, 1, j]
                            + r2 * force[p, 2, j]
                            + dr[3 * a, j] * k0
                            + dr[3 * a + 1, j] * k1
                            + dr[3 * a + 2, j] * k2
                        )


@njit(parallel=True, cache=True, fastmath=_FAST)
def gather_many(cell_values: np.ndarray, node_cells: np.ndarray, scale: float, out: np.ndarray) -> None:
    """`elasticity.gather` for several columns: cell_values (C, 24, B), out (N, 3, B)."""
    width = out.shape[2]
    for i in prange(node_cells.shape[0]):
        for p in range(8):
            c = node_cells[i, p]
            if c >= 0:
                for a in range(3):
                    for j in range(width):
                        out[i, a, j] += scale * cell_values[c, 3 * p + a, j]
