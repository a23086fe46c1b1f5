"""Soft penalty contact of surface points with a plane n·x + d = 0, from its formulas (METHOD §4), in double precision.

A point rides on the corners of one cell, x = Σ_p weight_p x_p; cell c has point_start[c] to point_start[c + 1].
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, spence

from soft_estimator.backends.interface import Array
from soft_estimator.backends.reference.cells import corner_nodes, neighbour


def softplus_integral(sharpness: float, distance: Array) -> Array:
    """∫ from δ to ∞ of log(1 + exp(-a t))/a dt = -Li₂(-exp(-a δ))/a², Li₂(x) = spence(1 - x).

    Above the plane by its definition, below it by Li₂(-e^t) = -π²/6 - t²/2 - Li₂(-e^-t), which cannot overflow.
    """
    t = -sharpness * distance
    outer = -spence(1.0 + np.exp(-np.abs(t)))
    return np.where(t > 0, np.pi**2 / 6 + 0.5 * t**2 - outer, outer) / sharpness**2


def depth_and_slope(sharpness: float, distance: Array) -> tuple[Array, Array]:
    """log(1 + exp(-a δ))/a and 1/(1 + exp(a δ))."""
    return np.logaddexp(0.0, -sharpness * distance) / sharpness, expit(-sharpness * distance)


def soft_depths(distance: Array, sharpness: float, depth: Array, slope: Array) -> None:
    depth[...], slope[...] = depth_and_slope(sharpness, distance)


def soft_energies(distance: Array, sharpness: float, out: Array) -> None:
    out[...] = np.where(sharpness * distance < 60.0, softplus_integral(sharpness, distance), 0.0)


def at_points(nodal: Array, nodes: Array, weight: Array, out: Array) -> None:
    out[...] = np.einsum("tp,tpk->tk", weight, nodal[nodes].astype(np.float64))


def columns_at_points(nodal: Array, nodes: Array, weight: Array, out: Array) -> None:
    out[...] = np.einsum("tp,tpk->tk", weight, nodal[nodes].astype(np.float64))


def point_corners(node_cells: Array, point_start: Array) -> Array:
    """The nodes (P, 8) of every point's cell."""
    cell = np.repeat(np.arange(len(point_start) - 1), np.diff(point_start))
    return corner_nodes(node_cells)[cell]


def spread_along(normal: Array, value: Array, node_cells: Array, point_start: Array, weight: Array, out: Array) -> None:
    total = np.zeros((len(out), 1))
    spread_columns(value[:, None], node_cells, point_start, weight, total)
    out += (total * normal).astype(out.dtype)


def spread_columns(value: Array, node_cells: Array, point_start: Array, weight: Array, out: Array) -> None:
    total = np.zeros(out.shape)
    np.add.at(total, point_corners(node_cells, point_start), weight[:, :, None] * value[:, None, :])
    out += total.astype(out.dtype)


def add_contact_blocks(
    normal: Array, value: Array, node_cells: Array, point_start: Array, weight: Array, slot: Array, blocks: Array
) -> None:
    along = np.outer(normal, normal).ravel()
    add_point_blocks(value[:, None] * along, node_cells, point_start, weight, slot, blocks)


def add_point_blocks(
    inner: Array, node_cells: Array, point_start: Array, weight: Array, slot: Array, blocks: Array
) -> None:
    """Add weight_p weight_q inner (P, 9) of every point to the blocks of the nodes p and q of its cell."""
    corners, total = point_corners(node_cells, point_start), np.zeros(blocks.shape)
    for p in range(8):
        for q in range(8):
            share = weight[:, p] * weight[:, q]
            np.add.at(total, slot[corners[:, p], neighbour(p, q)], share[:, None] * inner)
    blocks += total.astype(blocks.dtype)
