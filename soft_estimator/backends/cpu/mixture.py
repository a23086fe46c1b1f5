"""Sums over all places of a surface that may have sent a point."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

_NOTHING = 1e-13  # share of a point below which a place adds nothing that its sums could hold


@njit(parallel=True, cache=True)
def gaussians(points, places, variance, out):
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
def log_sums(near, share, floor, out):
    """log(floor_i + Σ_j share_j near_ij), out (n,)."""
    for i in prange(near.shape[0]):
        total = floor[i]
        for j in range(near.shape[1]):
            total += share[j] * near[i, j]
        out[i] = np.log(total)


@njit(parallel=True, cache=True)
def mean_rows(near, share, floor, table, out):
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
