"""Sums over all places of a surface that may have sent a point."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit, prange

_NOTHING = 1e-13  # share of a point below which a place adds nothing that its sums could hold


@njit(parallel=True, cache=True)
def gaussians(points: np.ndarray, places: np.ndarray, variance: np.ndarray, out: np.ndarray) -> None:
    """exp(-½ |point - place|² / variance) of all points (n, 3) and places (J, 3), out (n, J); variance (n,)."""
    for i in prange(points.shape[0]):
        scale = -0.5 / variance[i]
        for j in range(places.shape[0]):
            dx = points[i, 0] - places[j, 0]
            dy = points[i, 1] - places[j, 1]
            dz = points[i, 2] - places[j, 2]
            power = scale * (dx * dx + dy * dy + dz * dz)
            out[i, j] = np.exp(power) if power > -600.0 else 0.0


@njit(parallel=True, cache=True)
def log_sums(near: np.ndarray, share: np.ndarray, floor: np.ndarray, out: np.ndarray) -> None:
    """log(floor_i + Σ_j share_j near_ij), out (n,)."""
    for i in prange(near.shape[0]):
        total = floor[i]
        for j in range(near.shape[1]):
            total += share[j] * near[i, j]
        out[i] = np.log(total)


@njit(parallel=True, cache=True)
def mean_rows(near: np.ndarray, share: np.ndarray, floor: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
    """Σ_j p_ij table_jc with p_ij = share_j near_ij / (floor_i + Σ_j share_j near_ij), table (J, C), out (n, C)."""
    for i in prange(near.shape[0]):
        total = floor[i]
        for j in range(near.shape[1]):
            total += share[j] * near[i, j]
        out[i] = 0.0
        for j in range(near.shape[1]):
            p = share[j] * near[i, j] / total
            if p > _NOTHING:
                for c in range(table.shape[1]):
                    out[i, c] += p * table[j, c]


@njit(parallel=True, cache=True)
def gram(rows: np.ndarray, out: np.ndarray) -> None:
    """Σ_i rows_ai rows_ci of all rows (k, n), out (k, k)."""
    for a in prange(rows.shape[0]):
        for first in range(0, a + 1, 4):  # four sums at a time: each waits for its own last one
            last = rows.shape[0] - 1
            r1, r2, r3 = rows[min(first + 1, last)], rows[min(first + 2, last)], rows[min(first + 3, last)]
            s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
            for i in range(rows.shape[1]):
                by = rows[a, i]
                s0 += by * rows[first, i]
                s1 += by * r1[i]
                s2 += by * r2[i]
                s3 += by * r3[i]
            for c, total in enumerate((s0, s1, s2, s3)):
                if first + c <= a:
                    out[a, first + c] = total
                    out[first + c, a] = total


@njit(cache=True)
def solve_positive(matrix: np.ndarray, rhs: np.ndarray) -> None:
    """Solve matrix (b, b), symmetric and positive definite, for rhs (b, m) in place; the matrix becomes its Cholesky
    factor.

    LAPACK's threads wait for each other by spinning: beside other processes, systems as small as these take it a
    hundred times as long.
    """
    b, m = rhs.shape
    for j in range(b):
        for k in range(j):
            pivot = matrix[j, k]
            for i in range(j, b):
                matrix[i, j] -= pivot * matrix[i, k]
        scale = 1.0 / np.sqrt(matrix[j, j])
        for i in range(j, b):
            matrix[i, j] *= scale
    for j in range(b):
        for k in range(j):
            for c in range(m):
                rhs[j, c] -= matrix[j, k] * rhs[k, c]
        for c in range(m):
            rhs[j, c] /= matrix[j, j]
    for j in range(b - 1, -1, -1):
        for k in range(j + 1, b):
            for c in range(m):
                rhs[j, c] -= matrix[k, j] * rhs[k, c]
        for c in range(m):
            rhs[j, c] /= matrix[j, j]
