"""Corotated linear elasticity of the cells with mean dilatation.

With G = ∫∇N_p ∇N_qᵀ, b_p = ∫∇N_p and V over the filled part of a cell, the 3x3 block of its corners p, q is

    μ (Gᵀ + tr(G) I - ⅔ G) + (λ + ⅔ μ) b_p b_qᵀ / V,

and turning the cell by R turns G into R G Rᵀ and b into R b: shear acts point by point, pressure on the cell's mean
dilatation alone, so cells do not lock as ν → ½. The geometry is stored once (`table` of rows laid out as
`layout.CELL`, one for all full cells and one for each cut cell), and λ, μ, E stay plain arguments; forces, energies
and matrices take the cells' `stiffness`, made of it once. Every sum runs in a fixed order: results do not depend on the
number of threads.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import CHUNK_OF_CELLS, by_size, njit, prange
from soft_estimator.backends.cpu.lanes import LANES, lanes_of, nothing_of, put
from soft_estimator.backends.cpu.stiffness import stiffness_of
from soft_estimator.backends.layout import CELL, place

_FAST = {"contract"}  # fused multiply-add; no reordering, NaN and infinity keep their meaning
MEAN = place(CELL, "dilatation").start  # where b_p/√V begins in a row of the table


@njit(cache=True, fastmath=_FAST)
def _cell_product(table_row: np.ndarray, w: np.ndarray, by_lame: np.ndarray, by_shear: np.ndarray) -> None:
    """by_lame = b bᵀ/V w and by_shear = (Gᵀ + tr G - ⅔ G + ⅔ b bᵀ/V) w of one cell; w and both results (8, 3).

    Scalars only: 0.66 µs a cell where loops over rows took 0.84.
    """
    third, left = w.dtype.type(2.0 / 3.0), w.dtype.type(1.0 / 3.0)
    for p in range(8):
        by_shear[p, 0] = by_shear[p, 1] = by_shear[p, 2] = 0
    k = 0
    for p in range(8):
        x0, x1, x2 = w[p, 0], w[p, 1], w[p, 2]
        s0, s1, s2 = by_shear[p, 0], by_shear[p, 1], by_shear[p, 2]
        for q in range(p, 8):
            e0, e1, e2, e3, e4 = table_row[k], table_row[k + 1], table_row[k + 2], table_row[k + 3], table_row[k + 4]
            e5, e6, e7, e8 = table_row[k + 5], table_row[k + 6], table_row[k + 7], table_row[k + 8]
            k += 9
            trace = e0 + e4 + e8
            a00, a11, a22 = trace + left * e0, trace + left * e4, trace + left * e8
            a01, a10 = e3 - third * e1, e1 - third * e3
            a02, a20 = e6 - third * e2, e2 - third * e6
            a12, a21 = e7 - third * e5, e5 - third * e7
            y0, y1, y2 = w[q, 0], w[q, 1], w[q, 2]
            s0 += a00 * y0 + a01 * y1 + a02 * y2
            s1 += a10 * y0 + a11 * y1 + a12 * y2
            s2 += a20 * y0 + a21 * y1 + a22 * y2
            if p != q:
                by_shear[q, 0] += a00 * x0 + a10 * x1 + a20 * x2
                by_shear[q, 1] += a01 * x0 + a11 * x1 + a21 * x2
                by_shear[q, 2] += a02 * x0 + a12 * x1 + a22 * x2
        by_shear[p, 0], by_shear[p, 1], by_shear[p, 2] = s0, s1, s2
    mean = w.dtype.type(0)
    for p in range(8):
        for a in range(3):
            mean += table_row[MEAN + 3 * p + a] * w[p, a]
    for p in range(8):
        for a in range(3):
            bulk = table_row[MEAN + 3 * p + a] * mean
            by_lame[p, a] = bulk
            by_shear[p, a] += third * bulk


@njit(cache=True, fastmath=_FAST)
def _corner_vectors(
    nodes: np.ndarray, u: np.ndarray, z: np.ndarray, share: float, spacing: float, y: np.ndarray
) -> None:
    """y_p = share (x_p + u_p) + z_p relative to corner 0, which the element ignores and float32 needs."""
    n0 = nodes[0]
    for p in range(8):
        n = nodes[p]
        for a in range(3):
            y[p, a] = share * (u[n, a] - u[n0, a]) + (z[n, a] - z[n0, a])
        if p & 4:
            y[p, 0] += share * spacing
        if p & 2:
            y[p, 1] += share * spacing
        if p & 1:
            y[p, 2] += share * spacing


@njit(cache=True, fastmath=_FAST)
def _turn_back(r: np.ndarray, y: np.ndarray, share: float, spacing: float, w: np.ndarray) -> None:
    """w_p = Rᵀ y_p - share x_p."""
    for p in range(8):
        for a in range(3):
            w[p, a] = r[a] * y[p, 0] + r[3 + a] * y[p, 1] + r[6 + a] * y[p, 2]
        if p & 4:
            w[p, 0] -= share * spacing
        if p & 2:
            w[p, 1] -= share * spacing
        if p & 1:
            w[p, 2] -= share * spacing


@njit(cache=True, fastmath=_FAST)
def _stiff_times(stiffness: np.ndarray, row: int, w: np.ndarray, out: np.ndarray) -> None:
    """out (3, 8) = K̂ w of one cell, direction by direction; w (8, 3)."""
    k0, k1, k2 = nothing_of(out), nothing_of(out), nothing_of(out)
    for p in range(8):
        for b in range(3):
            at, each = 9 * LANES * (8 * row + p) + 3 * LANES * b, w[p, b]
            k0 += each * lanes_of(stiffness, at)
            k1 += each * lanes_of(stiffness, at + LANES)
            k2 += each * lanes_of(stiffness, at + 2 * LANES)
    put(k0, out, 0)
    put(k1, out, LANES)
    put(k2, out, 2 * LANES)


@njit(parallel=True, cache=True, fastmath=_FAST)
def _forces(
    u: np.ndarray,
    z: np.ndarray,
    share: float,
    r: np.ndarray,
    cell_nodes: np.ndarray,
    gradient_index: np.ndarray,
    stiffness: np.ndarray,
    young: np.ndarray,
    spacing: float,
    out: np.ndarray,
) -> None:
    cells = cell_nodes.shape[0]
    for chunk in prange((cells + CHUNK_OF_CELLS - 1) // CHUNK_OF_CELLS):
        y, w, k = np.empty((8, 3)), np.empty((8, 3)), np.empty((3, 8))
        for c in range(chunk * CHUNK_OF_CELLS, min(cells, (chunk + 1) * CHUNK_OF_CELLS)):
            _corner_vectors(cell_nodes[c], u, z, share, spacing, y)
            _turn_back(r[c], y, share, spacing, w)
            _stiff_times(stiffness, gradient_index[c], w, k)
            for p in range(8):
                k0, k1, k2 = young[c] * k[0, p], young[c] * k[1, p], young[c] * k[2, p]
                for a in range(3):
                    out[c, 3 * p + a] = r[c, 3 * a] * k0 + r[c, 3 * a + 1] * k1 + r[c, 3 * a + 2] * k2


def cell_forces(
    u: np.ndarray,
    z: np.ndarray,
    share: float,
    r: np.ndarray,
    cell_nodes: np.ndarray,
    gradient_index: np.ndarray,
    table: np.ndarray,
    young: np.ndarray,
    lam: float,
    mu: float,
    spacing: float,
    out: np.ndarray,
) -> None:
    """Corner forces R K̂ (Rᵀ(share (x+u) + z) - share x) of every cell.

    share = 1, z = 0 gives the elastic force, share = 0 the product K z.

    Args:
        u, z: nodal vectors [m], (N, 3). r: cell rotations (C, 9). young: E of each cell [Pa], (C,).
        lam, mu: Lamé parameters of a material with E = 1 Pa. out: (C, 24), corner p at 3p.
    """
    _forces(u, z, share, r, cell_nodes, gradient_index, stiffness_of(table, lam, mu), young, spacing, out)


@njit(parallel=True, cache=True, fastmath=_FAST)
def _energies(
    u: np.ndarray,
    zero: np.ndarray,
    r: np.ndarray,
    cell_nodes: np.ndarray,
    gradient_index: np.ndarray,
    stiffness: np.ndarray,
    young: np.ndarray,
    spacing: float,
    out: np.ndarray,
) -> None:
    cells = cell_nodes.shape[0]
    for chunk in prange((cells + CHUNK_OF_CELLS - 1) // CHUNK_OF_CELLS):
        y, w, k = np.empty((8, 3)), np.empty((8, 3)), np.empty((3, 8))
        for c in range(chunk * CHUNK_OF_CELLS, min(cells, (chunk + 1) * CHUNK_OF_CELLS)):
            _corner_vectors(cell_nodes[c], u, zero, 1.0, spacing, y)
            _turn_back(r[c], y, 1.0, spacing, w)
            _stiff_times(stiffness, gradient_index[c], w, k)
            total = 0.0
            for p in range(8):
                for a in range(3):
                    total += w[p, a] * k[a, p]
            out[c] = 0.5 * young[c] * total


def cell_energies(
    u: np.ndarray,
    zero: np.ndarray,
    r: np.ndarray,
    cell_nodes: np.ndarray,
    gradient_index: np.ndarray,
    table: np.ndarray,
    young: np.ndarray,
    lam: float,
    mu: float,
    spacing: float,
    out: np.ndarray,
) -> None:
    """Elastic energy ½ wᵀ K̂ w of every cell [J], w = Rᵀ(x+u) - x; zero is a nodal vector of zeros; out (C,)."""
    _energies(u, zero, r, cell_nodes, gradient_index, stiffness_of(table, lam, mu), young, spacing, out)


@by_size(rows=1, fastmath=_FAST)
def gather(cell_values: np.ndarray, node_cells: np.ndarray, scale: float, out: np.ndarray) -> None:
    """out_i += scale · Σ over the cells around node i of their value at that corner; node_cells (N, 8), -1 for none."""
    for i in prange(node_cells.shape[0]):
        for p in range(8):
            c = node_cells[i, p]
            if c >= 0:
                for a in range(3):
                    out[i, a] += scale * cell_values[c, 3 * p + a]


@njit(parallel=True, cache=True, fastmath=_FAST)
def cell_forces_adjoint(
    lmbda: np.ndarray,
    u: np.ndarray,
    z: np.ndarray,
    share: float,
    r: np.ndarray,
    cell_nodes: np.ndarray,
    gradient_index: np.ndarray,
    table: np.ndarray,
    young: np.ndarray,
    lam: float,
    mu: float,
    spacing: float,
    y_bar: np.ndarray,
    r_bar: np.ndarray,
    lame_bar: np.ndarray,
) -> None:
    """Derivatives of L = Σ λᵀ (cell force) of `cell_forces`.

    Out: y_bar (C, 24), the derivative by share (x+u) + z; r_bar (C, 9); lame_bar (C, 2), the derivatives by lam and mu.
    """
    for c in prange(cell_nodes.shape[0]):
        y, w, back = np.empty((8, 3)), np.empty((8, 3)), np.empty((8, 3))
        _corner_vectors(cell_nodes[c], u, z, share, spacing, y)
        _turn_back(r[c], y, share, spacing, w)
        for p in range(8):
            n = cell_nodes[c, p]
            for a in range(3):
                back[p, a] = r[c, a] * lmbda[n, 0] + r[c, 3 + a] * lmbda[n, 1] + r[c, 6 + a] * lmbda[n, 2]
        w_lame, w_shear, b_lame, b_shear = np.empty((8, 3)), np.empty((8, 3)), np.empty((8, 3)), np.empty((8, 3))
        _cell_product(table[gradient_index[c]], w, w_lame, w_shear)
        _cell_product(table[gradient_index[c]], back, b_lame, b_shear)
        lame_bar[c, 0] = lame_bar[c, 1] = 0.0
        for a in range(9):
            r_bar[c, a] = 0.0
        m = np.empty(3)
        for p in range(8):
            n = cell_nodes[c, p]
            for a in range(3):
                lame_bar[c, 0] += young[c] * back[p, a] * w_lame[p, a]
                lame_bar[c, 1] += young[c] * back[p, a] * w_shear[p, a]
                m[a] = young[c] * (lam * b_lame[p, a] + mu * b_shear[p, a])
            for a in range(3):
                y_bar[c, 3 * p + a] = r[c, 3 * a] * m[0] + r[c, 3 * a + 1] * m[1] + r[c, 3 * a + 2] * m[2]
                for b in range(3):
                    k = young[c] * (lam * w_lame[p, b] + mu * w_shear[p, b])
                    r_bar[c, 3 * a + b] += lmbda[n, a] * k + y[p, a] * m[b]
