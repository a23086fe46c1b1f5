"""Where observed points lie in a deformed grid and how far from a carried field's zero level, from the formulas.

On a cell with ξ in 0-1³ the trilinear map is y(ξ) = Σ_q N_q(ξ) y_q.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.backends.reference.cells import CORNERS

_NEWTON_STEPS = 20
_EDGE = 1e-9  # a point on a face belongs to both cells


def shape_functions(xi: Array) -> tuple[Array, Array, Array]:
    """N_q (n, 8), ∂N_q/∂ξ (n, 8, 3) and ∂²N_q/∂ξ² (n, 8, 3, 3) at ξ (n, 3): products over the axes of ξ or 1 - ξ."""
    value = np.where(CORNERS == 1, xi[:, None, :], 1.0 - xi[:, None, :])
    slope = np.where(CORNERS == 1, 1.0, -1.0)
    by_one, by_two = np.empty((len(xi), 8, 3)), np.zeros((len(xi), 8, 3, 3))
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        by_one[:, :, a] = slope[:, a] * value[:, :, b] * value[:, :, c]
        by_two[:, :, a, b] = by_two[:, :, b, a] = slope[:, a] * slope[:, b] * value[:, :, c]
    return value.prod(axis=2), by_one, by_two


def _invert(corners: Array, points: Array, size: float) -> tuple[Array, Array]:
    """ξ (n, 3) with y(ξ) = point in cells with corners (n, 8, 3), by Newton's method; whether it lies inside (n,)."""
    xi, going = np.full(points.shape, 0.5), np.ones(len(points), bool)
    for _ in range(_NEWTON_STEPS):
        shares, slopes, _ = shape_functions(xi)
        left = points - np.einsum("nq,nqa->na", shares, corners)
        jacobian = np.einsum("nqa,nqb->nab", corners, slopes)
        going &= (np.linalg.det(jacobian) != 0) & (np.abs(xi - 0.5).max(axis=1) < 50)
        move = going & (np.abs(left).max(axis=1) >= 1e-13 * size)
        if not move.any():
            break
        xi[move] += np.linalg.solve(jacobian[move], left[move][:, :, None])[:, :, 0]
    left = points - np.einsum("nq,nqa->na", shape_functions(xi)[0], corners)
    inside = ((xi >= -_EDGE) & (xi <= 1 + _EDGE)).all(axis=1)
    return xi, going & inside & (np.abs(left).max(axis=1) <= 1e-9 * size)


def find_cells(
    points: Array, position: Array, cell_nodes: Array, in_body: Array, value: Array, spacing_m: float
) -> tuple[Array, Array]:
    """Every cell is asked; of those that hold a point the first by (halo, |value|, number) is taken."""
    found, local = np.full(len(points), -1, np.int64), np.zeros((len(points), 3))
    corners = position[cell_nodes]
    low, high = corners.min(axis=1), corners.max(axis=1)
    for i, point in enumerate(points):
        cells = np.nonzero(((low <= point) & (point <= high)).all(axis=1))[0]
        xi, inside = _invert(corners[cells], np.broadcast_to(point, (len(cells), 3)), 1.5 * spacing_m)
        level = np.abs((shape_functions(xi)[0] * value[cell_nodes[cells]]).sum(axis=1))
        order = np.lexsort((cells, level, ~np.asarray(in_body[cells], bool)))
        for k in order[inside[order]][:1]:
            found[i], local[i] = cells[k], xi[k]
    return found, local


def surface_distances(
    found: Array,
    local: Array,
    position: Array,
    cell_nodes: Array,
    value: Array,
    least_slope: float,
    distance: Array,
    weights: Array,
    slopes: Array,
    by_value: Array,
    by_slope: Array,
) -> None:
    """ψ = Σ N_q ψ_q, g = J⁻ᵀ ∂ψ/∂ξ, J = ∂y/∂ξ; the distance is ψ/|g|.

    At a fixed point, δξ = -J⁻¹ Σ N_q δu_q and δJ = Σ δu_q (∂N_q/∂ξ)ᵀ + (∂²y/∂ξ²) δξ. So δψ = -g·Σ N_q δu_q and
    δg = -J⁻ᵀ S J⁻¹ Σ N_q δu_q - Σ (∇N_q) (g·δu_q), with S = Σ (ψ_q - g·y_q) ∂²N_q/∂ξ² and ∇N_q = J⁻ᵀ ∂N_q/∂ξ.
    """
    here = np.nonzero(found >= 0)[0]
    corners = position[cell_nodes[found[here]]]
    shares, by_one, by_two = shape_functions(local[here])
    jacobian = np.einsum("nqa,nqb->nab", corners, by_one)
    flat = np.linalg.det(jacobian) == 0
    found[here[flat]] = -1
    here, corners, shares, by_one, by_two, jacobian = (
        x[~flat] for x in (here, corners, shares, by_one, by_two, jacobian)
    )
    inverse = np.linalg.inv(jacobian)
    psi = (shares * value[here]).sum(axis=1)
    g = np.einsum("nba,nb->na", inverse, np.einsum("nqa,nq->na", by_one, value[here]))
    k = np.einsum("nab,nb->na", inverse, g)
    s = np.einsum("nq,nqab->nab", value[here] - np.einsum("nqa,na->nq", corners, g), by_two)
    turned = np.einsum("nba,nbc,nc->na", inverse, s, k)
    size = np.linalg.norm(g, axis=1)
    held, size = size < least_slope, np.maximum(size, least_slope)
    cube = np.where(held, 0.0, psi / size**3)[:, None]
    distance[here], weights[here] = psi / size, shares
    slopes[here] = np.einsum("na,nqa->nq", k, by_one)
    by_value[here], by_slope[here] = g / size[:, None] - cube * turned, -cube * g
