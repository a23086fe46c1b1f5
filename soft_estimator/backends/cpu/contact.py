"""Soft penalty contact of surface points with a plane n·x + d = 0 (METHOD §4)."""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(cache=True)
def softplus_and_slope(a, x):
    """-softmin_a(x, 0) = log(1 + exp(-a x))/a and σ = 1/(1 + exp(a x)), both safe for any a x."""
    t = a * x
    e = np.exp(-abs(t))
    if t >= 0.0:
        return np.log1p(e) / a, e / (1.0 + e)
    return (np.log1p(e) - t) / a, 1.0 / (1.0 + e)


@njit(parallel=True, cache=True)
def contact_points(position, u, node_a, node_b, weight_b, normal, offset, sharpness, distance, depth, slope):
    """Distance δ to the plane [m], smooth depth -softmin_a(δ, 0) [m] and slope σ of every surface point, each (V,).

    position, u: rest position and displacement of the nodes [m], (N, 3).
    """
    for v in prange(node_a.shape[0]):
        a, b, w = node_a[v], node_b[v], weight_b[v]
        delta = offset
        for k in range(3):
            delta += normal[k] * ((1.0 - w) * (position[a, k] + u[a, k]) + w * (position[b, k] + u[b, k]))
        distance[v] = delta
        depth[v], slope[v] = softplus_and_slope(sharpness, delta)


@njit(parallel=True, cache=True)
def spread_along(normal, value, node_a, point_start, point_index, weight_b, out):
    """out_i += n Σ over the surface points of node i of (their share of node i) · value; value (V,), out (N, 3)."""
    for i in prange(out.shape[0]):
        total = 0.0
        for k in range(point_start[i], point_start[i + 1]):
            v = point_index[k]
            share = 1.0 - weight_b[v] if node_a[v] == i else weight_b[v]
            total += share * value[v]
        if total != 0.0:
            for a in range(3):
                out[i, a] += total * normal[a]


@njit(parallel=True, cache=True)
def add_contact_blocks(normal, value, node_a, node_b, weight_b, point_start, point_index, slot_of_pair, slot, blocks):
    """Add value · (share_i share_j) n nᵀ to the blocks (i, j) of every surface point's node pair; value (V,)."""
    for i in prange(slot.shape[0]):
        for k in range(point_start[i], point_start[i + 1]):
            v = point_index[k]
            if value[v] == 0.0:
                continue
            is_a = node_a[v] == i
            own, other = (1.0 - weight_b[v], weight_b[v]) if is_a else (weight_b[v], 1.0 - weight_b[v])
            here, there = slot[i, 13], slot_of_pair[v, 0 if is_a else 1]
            for a in range(3):
                for b in range(3):
                    nn = value[v] * own * normal[a] * normal[b]
                    blocks[here, 3 * a + b] += nn * own
                    if node_a[v] != node_b[v]:
                        blocks[there, 3 * a + b] += nn * other
