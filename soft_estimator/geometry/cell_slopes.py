"""Slopes of the shape functions at the quadrature points of cut cells, for laws whose energy is no polynomial."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soft_estimator.geometry.cut_cells import GRADIENT_PRODUCTS, PAIRS, CutCells
from soft_estimator.geometry.grid import CORNER_OFFSETS
from soft_estimator.geometry.quadrature import cell_quadrature

# The stabilisation of the gradient table is a multiple of the unit matrix, G = t I/3 for each pair of corners; in the
# linear element with mean dilatation, μ (Gᵀ + tr G) - 2μ/3 G, it comes out as this many μ t.
_STABILISATION = 1.0 / 3.0 + 1.0 - 2.0 / 9.0


@dataclass(frozen=True)
class CellSlopes:
    """Of every row of a body's tables, eight points of weight V/8 each.

    Attributes:
        slopes_per_m: ∂N_p/∂x_b at the points, points last, (T, 8, 3, 8). crossed_per_m2: component b of ∇N_p x ∇N_q at
        point k in row 8b + k, for the corner pairs p < q, (T, 24, 28). laplacian_m: ∫∇N_p·∇N_q and the stabilisation of
        cut cells for the pairs p <= q, (T, 36). volume_m3: (T,).
    """

    slopes_per_m: np.ndarray
    crossed_per_m2: np.ndarray
    laplacian_m: np.ndarray
    volume_m3: np.ndarray


def cell_slopes(cells: CutCells, spacing_m: float) -> CellSlopes:
    """Made once for a body: the points of its cut cells are found by iteration."""
    points = cell_quadrature(cells.moment_table)
    slopes = _slopes(points) / spacing_m
    p, q = PAIRS[PAIRS[:, 0] != PAIRS[:, 1]].T
    crossed = np.cross(slopes[:, :, p], slopes[:, :, q])
    exact = (cells.moment_table @ GRADIENT_PRODUCTS.reshape(-1, 27).T).reshape(-1, 36, 9) * spacing_m
    added = (cells.gradient_table_m - exact)[:, :, [0, 4, 8]].sum(axis=2)
    products = np.einsum("tkja,tkja->tj", slopes[:, :, PAIRS[:, 0]], slopes[:, :, PAIRS[:, 1]])
    laplacian = products * (cells.volume_table_m3 / 8.0)[:, None] + _STABILISATION * added
    rows = np.ascontiguousarray(crossed.transpose(0, 3, 1, 2)).reshape(len(slopes), 24, 28)
    return CellSlopes(np.ascontiguousarray(slopes.transpose(0, 2, 3, 1)), rows, laplacian, cells.volume_table_m3)


def _slopes(points: np.ndarray) -> np.ndarray:
    """∇N_p in cell units at points (T, 8, 3), (T, 8, 8, 3)."""
    at = points[:, :, None, :]
    factor = np.where(CORNER_OFFSETS == 1, at, 1.0 - at)
    sign = 2.0 * CORNER_OFFSETS - 1.0
    x, y, z = np.moveaxis(factor, -1, 0)
    return np.stack([sign[:, 0] * y * z, sign[:, 1] * x * z, sign[:, 2] * x * y], axis=-1)
