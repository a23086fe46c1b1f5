"""The change of the cells' forces along several directions at once.

What the directions share (the cell's strain, its rotation's derivative, its stiffness) is worked out once; the inner
loops run over the directions, which lie next to each other in memory, by groups of `lanes`.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import CHUNK_OF_CELLS, by_size, njit, prange
from soft_estimator.backends.cpu.elasticity import _cell_product, _corner_vectors, _turn_back
from soft_estimator.backends.cpu.lanes import LANES, lanes_of, nothing_of, put
from soft_estimator.backends.cpu.rotation import _cofactor, deformation_gradient
from soft_estimator.backends.cpu.stiffness import stiffness_of

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
    nodes: np.ndarray, du: np.ndarray, first: int, quarter_inverse_h: float, r: np.ndarray, inverse: np.ndarray,
    dr: np.ndarray,
) -> None:  # fmt: skip
    """δR (9, LANES) of one cell for changes du (N, 3, B), from the first column on: δR = R [ω]ₓ, ω = inverse ·
    axl(Rᵀ δF)."""
    width = du.shape[2]
    w0, w1, w2 = nothing_of(dr), nothing_of(dr), nothing_of(dr)
    for a in range(3):
        corner = lanes_of(du, (3 * nodes[0] + a) * width + first)
        x, y, z = nothing_of(dr), nothing_of(dr), nothing_of(dr)
        for i in range(1, 8):
            d = quarter_inverse_h * (lanes_of(du, (3 * nodes[i] + a) * width + first) - corner)
            x += (1.0 if i & 4 else -1.0) * d
            y += (1.0 if i & 2 else -1.0) * d
            z += (1.0 if i & 1 else -1.0) * d
        r0, r1, r2 = r[3 * a], r[3 * a + 1], r[3 * a + 2]
        w0 += r2 * y - r1 * z
        w1 += r0 * z - r2 * x
        w2 += r1 * x - r0 * y
    s0 = inverse[0] * w0 + inverse[1] * w1 + inverse[2] * w2
    s1 = inverse[3] * w0 + inverse[4] * w1 + inverse[5] * w2
    s2 = inverse[6] * w0 + inverse[7] * w1 + inverse[8] * w2
    for i in range(3):
        a, b, c = r[3 * i], r[3 * i + 1], r[3 * i + 2]
        put(b * s2 - c * s1, dr, 3 * i * LANES)
        put(c * s0 - a * s2, dr, (3 * i + 1) * LANES)
        put(a * s1 - b * s0, dr, (3 * i + 2) * LANES)


@njit(cache=True, fastmath=_FAST)
def _strains(
    nodes: np.ndarray, moved: np.ndarray, first: int, r: np.ndarray, y: np.ndarray, dr: np.ndarray, dw: np.ndarray
) -> None:
    """dw (8, 3, LANES) = δRᵀ y_p + Rᵀ moved_p, the latter relative to corner 0, from the first column on."""
    width = moved.shape[2]
    zero = 3 * nodes[0] * width + first
    c0, c1, c2 = lanes_of(moved, zero), lanes_of(moved, zero + width), lanes_of(moved, zero + 2 * width)
    for p in range(8):
        at = 3 * nodes[p] * width + first
        m0, m1 = lanes_of(moved, at) - c0, lanes_of(moved, at + width) - c1
        m2 = lanes_of(moved, at + 2 * width) - c2
        y0, y1, y2 = y[p, 0], y[p, 1], y[p, 2]
        for a in range(3):
            d0, d1, d2 = lanes_of(dr, a * LANES), lanes_of(dr, (a + 3) * LANES), lanes_of(dr, (a + 6) * LANES)
            both = r[a] * m0 + r[3 + a] * m1 + r[6 + a] * m2
            put(both + y0 * d0 + y1 * d1 + y2 * d2, dw, (3 * p + a) * LANES)


@njit(cache=True, fastmath=_FAST)
def _changes(
    e: float, r: np.ndarray, dr: np.ndarray, stiffness: np.ndarray, row: int, dw: np.ndarray, stress: np.ndarray,
    by_lame: np.ndarray, by_shear: np.ndarray, dlam: np.ndarray, dmu: np.ndarray, first: int, out: np.ndarray,
) -> None:  # fmt: skip
    """out (24, B) = E (R (K̂ dw + δλ by_lame + δμ by_shear) + δR stress) of one cell, from the first column on."""
    width = out.shape[1]
    dl, dm = lanes_of(dlam, first), lanes_of(dmu, first)
    for p in range(8):
        f0 = by_lame[p, 0] * dl + by_shear[p, 0] * dm
        f1 = by_lame[p, 1] * dl + by_shear[p, 1] * dm
        f2 = by_lame[p, 2] * dl + by_shear[p, 2] * dm
        for q in range(8):
            at = 3 * q * LANES
            w0, w1, w2 = lanes_of(dw, at), lanes_of(dw, at + LANES), lanes_of(dw, at + 2 * LANES)
            f0 += stiffness[row, q, 0, p] * w0
            f1 += stiffness[row, q, 1, p] * w0
            f2 += stiffness[row, q, 2, p] * w0
            f0 += stiffness[row, q, 3, p] * w1
            f1 += stiffness[row, q, 4, p] * w1
            f2 += stiffness[row, q, 5, p] * w1
            f0 += stiffness[row, q, 6, p] * w2
            f1 += stiffness[row, q, 7, p] * w2
            f2 += stiffness[row, q, 8, p] * w2
        s0, s1, s2 = e * stress[p, 0], e * stress[p, 1], e * stress[p, 2]
        for a in range(3):
            at = 3 * a * LANES
            turned = (e * r[3 * a]) * f0 + (e * r[3 * a + 1]) * f1 + (e * r[3 * a + 2]) * f2
            turned += s0 * lanes_of(dr, at) + s1 * lanes_of(dr, at + LANES) + s2 * lanes_of(dr, at + 2 * LANES)
            put(turned, out, (3 * p + a) * width + first)


@by_size(rows=6, fastmath=_FAST)
def _whole_groups(
    at: np.ndarray,
    dat: np.ndarray,
    u: np.ndarray,
    z: np.ndarray,
    moved: np.ndarray,
    r: np.ndarray,
    cell_nodes: np.ndarray,
    gradient_index: np.ndarray,
    table: np.ndarray,
    stiffness: np.ndarray,
    young: np.ndarray,
    region: np.ndarray,
    lam: float,
    mu: float,
    dlam: np.ndarray,
    dmu: np.ndarray,
    spacing: float,
    out: np.ndarray,
) -> None:
    """`cell_forces_tangents` for a multiple of `LANES` directions."""
    cells, width = cell_nodes.shape[0], dat.shape[2]
    for chunk in prange((cells + CHUNK_OF_CELLS - 1) // CHUNK_OF_CELLS):
        y, w, stress = np.empty((8, 3)), np.empty((8, 3)), np.empty((8, 3))
        by_lame, by_shear = np.empty((8, 3)), np.empty((8, 3))
        f, inverse, rc = np.empty(9), np.empty(9), np.empty(9)
        dr, dw = np.empty((9, LANES)), np.empty((8, 3, LANES))
        for c in range(chunk * CHUNK_OF_CELLS, min(cells, (chunk + 1) * CHUNK_OF_CELLS)):
            for i in range(9):
                rc[i] = r[c, i]
            nodes, row = cell_nodes[c], gradient_index[c]
            deformation_gradient(at, nodes, 0.25 / spacing, f)
            _spin_solver(f, rc, inverse)
            _corner_vectors(nodes, u, z, 1.0, spacing, y)
            _turn_back(rc, y, 1.0, spacing, w)
            _cell_product(table[row], w, by_lame, by_shear)
            for p in range(8):
                for a in range(3):
                    stress[p, a] = lam * by_lame[p, a] + mu * by_shear[p, a]
            dl, dm = dlam[region[c]], dmu[region[c]]
            for j in range(0, width, LANES):
                _turns(nodes, dat, j, 0.25 / spacing, rc, inverse, dr)
                _strains(nodes, moved, j, rc, y, dr, dw)
                _changes(young[c], rc, dr, stiffness, row, dw, stress, by_lame, by_shear, dl, dm, j, out[c])


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
    stiffness = stiffness_of(table, lam, mu)
    cells = (cell_nodes, gradient_index, table, stiffness, young, region, lam, mu)
    width = dat.shape[2]
    over = -width % LANES
    if over == 0:
        _whole_groups(at, dat, u, z, moved, r, *cells, dlam, dmu, spacing, out)
        return
    dat, moved, dlam, dmu, filled = (
        np.concatenate([one, np.zeros((*one.shape[:-1], over))], axis=-1) for one in (dat, moved, dlam, dmu, out)
    )
    _whole_groups(at, dat, u, z, moved, r, *cells, dlam, dmu, spacing, filled)
    out[...] = filled[:, :, :width]


@njit(parallel=True, cache=True, fastmath=_FAST)
def gather_many(cell_values: np.ndarray, node_cells: np.ndarray, scale: float, out: np.ndarray) -> None:
    """`elasticity.gather` for several columns: cell_values (C, 24, B), out (N, 3, B)."""
    width = out.shape[2]
    whole = width - width % LANES
    for i in prange(node_cells.shape[0]):
        for p in range(8):
            c = node_cells[i, p]
            if c < 0:
                continue
            for a in range(3):
                to, at = width * (3 * i + a), width * (24 * c + 3 * p + a)
                for j in range(0, whole, LANES):
                    put(lanes_of(out, to + j) + scale * lanes_of(cell_values, at + j), out, to + j)
                for j in range(whole, width):
                    out[i, a, j] += scale * cell_values[c, 3 * p + a, j]
