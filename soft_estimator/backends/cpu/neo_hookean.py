"""Neo-Hookean cells at their quadrature points; what each loop does: `backends.neo_hookean_loops`.

Written in H = F - I, so that nothing cancels near rest: cof F = (1 + tr H) I - Hᵀ + cof H, J - 1 = tr H + tr cof H +
det H. The isotropic μ part of a cell is linear, and one Laplacian matrix does for it. Every sum runs in a fixed order:
results do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import FEW_CELLS, by_size, njit, prange
from soft_estimator.backends.cpu.definite import definite_share
from soft_estimator.backends.neo_hookean_loops import NeoHookeanCells

_FAST = {"contract"}  # fused multiply-add; no reordering, NaN and infinity keep their meaning
_CHUNK = 32  # cells that share one set of scratch arrays


@njit(cache=True, fastmath=_FAST)
def _corners(u: np.ndarray, nodes: np.ndarray, w: np.ndarray) -> None:
    """Displacements of a cell's corners relative to corner 0, (8, 3)."""
    n0 = nodes[0]
    for p in range(8):
        for a in range(3):
            w[p, a] = u[nodes[p], a] - u[n0, a]


@njit(cache=True, fastmath=_FAST)
def _gradients(w: np.ndarray, slopes: np.ndarray, h: np.ndarray) -> None:
    """H = Σ w_p ∇N_pᵀ at all points, (9, 8); slopes (8, 3, 8)."""
    for i in range(9):
        for k in range(8):
            h[i, k] = 0.0
    for p in range(1, 8):
        for a in range(3):
            v = w[p, a]
            for b in range(3):
                for k in range(8):
                    h[3 * a + b, k] += v * slopes[p, b, k]


@njit(cache=True, fastmath=_FAST)
def _strain(w: np.ndarray, slopes: np.ndarray, h: np.ndarray, cof: np.ndarray, volumetric: np.ndarray) -> float:
    """H and cof H at all points, (9, 8), and J - 1, (8,); returns the mean of J - 1."""
    _gradients(w, slopes, h)
    for k in range(8):
        cof[0, k], cof[1, k] = h[4, k] * h[8, k] - h[5, k] * h[7, k], h[5, k] * h[6, k] - h[3, k] * h[8, k]
        cof[2, k], cof[3, k] = h[3, k] * h[7, k] - h[4, k] * h[6, k], h[2, k] * h[7, k] - h[1, k] * h[8, k]
        cof[4, k], cof[5, k] = h[0, k] * h[8, k] - h[2, k] * h[6, k], h[1, k] * h[6, k] - h[0, k] * h[7, k]
        cof[6, k], cof[7, k] = h[1, k] * h[5, k] - h[2, k] * h[4, k], h[2, k] * h[3, k] - h[0, k] * h[5, k]
        cof[8, k] = h[0, k] * h[4, k] - h[1, k] * h[3, k]
        determinant = h[0, k] * cof[0, k] + h[1, k] * cof[1, k] + h[2, k] * cof[2, k]
        volumetric[k] = (h[0, k] + h[4, k] + h[8, k]) + (cof[0, k] + cof[4, k] + cof[8, k]) + determinant
    mean = 0.0
    for k in range(8):
        mean += volumetric[k]
    return mean / 8.0


@njit(cache=True, fastmath=_FAST)
def _smooth_part(w: np.ndarray, laplacian: np.ndarray, force: np.ndarray) -> float:
    """force (8, 3) = Laplacian matrix times w; returns w·force."""
    for p in range(8):
        for a in range(3):
            force[p, a] = 0.0
    k = 0
    for p in range(8):
        for q in range(p, 8):
            g = laplacian[k]
            k += 1
            for a in range(3):
                force[p, a] += g * w[q, a]
                if p != q:
                    force[q, a] += g * w[p, a]
    total = 0.0
    for p in range(8):
        for a in range(3):
            total += w[p, a] * force[p, a]
    return total


@njit(cache=True, fastmath=_FAST)
def _stresses(
    h: np.ndarray, cof: np.ndarray, volumetric: np.ndarray, mean: float, kappa: float, mu: float, stress: np.ndarray
) -> float:
    """P - μ H = μ (Hᵀ - tr H I - cof H) + (μ/3 (J - 1) + κ (J̄ - 1)) cof F at all points, (9, 8).

    Returns the sum of the energy densities without μ/2 H:H and without the mean's.
    """
    density = 0.0
    for k in range(8):
        trace = h[0, k] + h[4, k] + h[8, k]
        density += mu * (volumetric[k] * volumetric[k] / 6.0 - (volumetric[k] - trace))
    for a in range(3):
        for b in range(3):
            for k in range(8):
                pressure = mu / 3.0 * volumetric[k] + kappa * mean
                stress[3 * a + b, k] = (pressure - mu) * (cof[3 * a + b, k] - h[3 * b + a, k])
        for k in range(8):
            trace, pressure = h[0, k] + h[4, k] + h[8, k], mu / 3.0 * volumetric[k] + kappa * mean
            stress[4 * a, k] += pressure * (1.0 + trace) - mu * trace
    return density


@njit(cache=True, fastmath=_FAST)
def _add_forces(weight: float, stress: np.ndarray, slopes: np.ndarray, total: np.ndarray, force: np.ndarray) -> None:
    """force (8, 3) += Σ_k weight · stress_k ∇N_p."""
    for p in range(8):
        for a in range(3):
            for k in range(8):
                total[k] = (
                    stress[3 * a, k] * slopes[p, 0, k]
                    + stress[3 * a + 1, k] * slopes[p, 1, k]
                    + stress[3 * a + 2, k] * slopes[p, 2, k]
                )
            pairs = ((total[0] + total[4]) + (total[1] + total[5])) + ((total[2] + total[6]) + (total[3] + total[7]))
            force[p, a] += weight * pairs


@by_size(rows=2, below=FEW_CELLS, fastmath=_FAST)
def neo_hookean_forces(u: np.ndarray, cells: NeoHookeanCells, energy: np.ndarray, corner: np.ndarray) -> None:
    cell_nodes, rows, slopes, _, laplacian, volume, young, lam, mu = cells
    count, kappa = len(cell_nodes), lam + 2.0 * mu / 3.0
    for chunk in prange((count + _CHUNK - 1) // _CHUNK):
        w, force, stress, total = np.empty((8, 3)), np.empty((8, 3)), np.empty((9, 8)), np.empty(8)
        h, cof, volumetric = np.empty((9, 8)), np.empty((9, 8)), np.empty(8)
        for c in range(chunk * _CHUNK, min(count, (chunk + 1) * _CHUNK)):
            row, stiff = rows[c], young[c]
            _corners(u, cell_nodes[c], w)
            mean = _strain(w, slopes[row], h, cof, volumetric)
            smooth = _smooth_part(w, laplacian[row], force)
            density = _stresses(h, cof, volumetric, mean, kappa, mu, stress)
            weight = volume[row] / 8.0
            for p in range(8):
                for a in range(3):
                    force[p, a] *= mu
            _add_forces(weight, stress, slopes[row], total, force)
            energy[c] = stiff * (0.5 * mu * smooth + weight * density + 0.5 * kappa * volume[row] * mean * mean)
            for p in range(8):
                for a in range(3):
                    corner[c, 3 * p + a] = stiff * force[p, a]


@njit(cache=True, fastmath=_FAST)
def _volume_slopes(
    h: np.ndarray, cof: np.ndarray, slopes: np.ndarray, full: np.ndarray, total: np.ndarray, g: np.ndarray
) -> None:
    """∂J/∂u at the points in rows 0-7 of g (9, 24), their mean in row 8; full (9, 8), total (8,): scratch."""
    for a in range(3):
        for b in range(3):
            for k in range(8):
                full[3 * a + b, k] = cof[3 * a + b, k] - h[3 * b + a, k]
        for k in range(8):
            full[4 * a, k] += 1.0 + h[0, k] + h[4, k] + h[8, k]
    for p in range(8):
        for a in range(3):
            for k in range(8):
                total[k] = (
                    full[3 * a, k] * slopes[p, 0, k]
                    + full[3 * a + 1, k] * slopes[p, 1, k]
                    + full[3 * a + 2, k] * slopes[p, 2, k]
                )
            for k in range(8):
                g[k, 3 * p + a] = total[k]
            pairs = ((total[0] + total[4]) + (total[1] + total[5])) + ((total[2] + total[6]) + (total[3] + total[7]))
            g[8, 3 * p + a] = 0.125 * pairs


@njit(cache=True, fastmath=_FAST)
def _outer_products(g: np.ndarray, factor: np.ndarray, matrix: np.ndarray) -> None:
    """Block-upper part of matrix (24, 24) = Σ_k factor_k g_k g_kᵀ."""
    for i in range(24):
        first = 3 * (i // 3)
        for j in range(first, 24):
            matrix[i, j] = 0.0
        for k in range(9):
            s = factor[k] * g[k, i]
            for j in range(first, 24):
                matrix[i, j] += s * g[k, j]


@njit(cache=True, fastmath=_FAST)
def _curvature(turning: np.ndarray, crossed: np.ndarray, out: np.ndarray) -> None:
    """out (3, 28) = turning (3, 24) times crossed (24, 28)."""
    for a in range(3):
        for j in range(28):
            out[a, j] = 0.0
        for i in range(24):
            s = turning[a, i]
            for j in range(28):
                out[a, j] += s * crossed[i, j]


@njit(cache=True, fastmath=_FAST)
def _write_blocks(
    stiff: float, mu: float, matrix: np.ndarray, laplacian: np.ndarray, curve: np.ndarray, out: np.ndarray
) -> None:
    """out (36, 9): outer products, the Laplacian on the diagonal and -[v]ₓ for v of each pair."""
    k = mixed = 0
    for p in range(8):
        for q in range(p, 8):
            smooth = mu * laplacian[k]
            for a in range(3):
                for b in range(3):
                    out[k, 3 * a + b] = stiff * (matrix[3 * p + a, 3 * q + b] + (smooth if a == b else 0.0))
            if p != q:
                v0, v1, v2 = stiff * curve[0, mixed], stiff * curve[1, mixed], stiff * curve[2, mixed]
                mixed += 1
                out[k, 1] += v2
                out[k, 3] -= v2
                out[k, 2] -= v1
                out[k, 6] += v1
                out[k, 5] += v0
                out[k, 7] -= v0
            k += 1


@by_size(rows=3, below=FEW_CELLS, fastmath=_FAST)
def neo_hookean_blocks(u: np.ndarray, cells: NeoHookeanCells, definite: bool, out: np.ndarray) -> None:
    cell_nodes, rows, slopes, crossed, laplacian, volume, young, lam, mu = cells
    count, kappa = len(cell_nodes), lam + 2.0 * mu / 3.0
    for chunk in prange((count + _CHUNK - 1) // _CHUNK):
        w, h, cof, volumetric = np.empty((8, 3)), np.empty((9, 8)), np.empty((9, 8)), np.empty(8)
        full, total = np.empty((9, 8)), np.empty(8)
        g, factor, matrix = np.empty((9, 24)), np.empty(9), np.zeros((24, 24))
        turning, curve = np.empty((3, 24)), np.empty((3, 28))
        for c in range(chunk * _CHUNK, min(count, (chunk + 1) * _CHUNK)):
            row = rows[c]
            _corners(u, cell_nodes[c], w)
            mean = _strain(w, slopes[row], h, cof, volumetric)
            _volume_slopes(h, cof, slopes[row], full, total, g)
            weight = volume[row] / 8.0
            for k in range(8):
                factor[k] = weight * mu / 3.0
                bend = -mu + mu / 3.0 * volumetric[k] + kappa * mean
                if definite:
                    bend *= definite_share(h[:, k], mu, bend)
                for a in range(3):
                    for b in range(3):
                        turning[a, 8 * b + k] = weight * bend * h[3 * a + b, k]
                    turning[a, 8 * a + k] += weight * bend
            factor[8] = kappa * volume[row]
            _outer_products(g, factor, matrix)
            _curvature(turning, crossed[row], curve)
            _write_blocks(young[c], mu, matrix, laplacian[row], curve, out[c])


@by_size(rows=1, below=FEW_CELLS, fastmath=_FAST)
def gather_blocks(
    cell_blocks: np.ndarray, node_cells: np.ndarray, scale: float, slot: np.ndarray, blocks: np.ndarray
) -> None:
    """Each row of the matrix is summed by its own node, over its cells in the order of its corners."""
    for i in prange(node_cells.shape[0]):
        for p in range(8):
            c = node_cells[i, p]
            if c < 0:
                continue
            for q in range(8):
                low, high = min(p, q), max(p, q)
                given = cell_blocks[c, low * 8 - low * (low - 1) // 2 + high - low]
                offset = 13 + 9 * ((q >> 2) - (p >> 2)) + 3 * ((q >> 1 & 1) - (p >> 1 & 1)) + (q & 1) - (p & 1)
                block = blocks[slot[i, offset]]
                if p <= q:
                    for a in range(9):
                        block[a] += scale * given[a]
                else:
                    for a in range(3):
                        for b in range(3):
                            block[3 * a + b] += scale * given[3 * b + a]


@by_size(rows=1, below=FEW_CELLS, fastmath=_FAST)
def block_products(cell_blocks: np.ndarray, cell_nodes: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    width = x.shape[2]
    for c in prange(cell_nodes.shape[0]):
        nodes = cell_nodes[c]
        for i in range(24):
            for j in range(width):
                out[c, i, j] = 0
        k = 0
        for p in range(8):
            for q in range(p, 8):
                block = cell_blocks[c, k]
                k += 1
                n, m = nodes[p], nodes[q]
                for a in range(3):
                    for b in range(3):
                        s = block[3 * a + b]
                        for j in range(width):
                            out[c, 3 * p + a, j] += s * x[m, b, j]
                        if p != q:
                            for j in range(width):
                                out[c, 3 * q + b, j] += s * x[n, a, j]
