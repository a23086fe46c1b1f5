"""Quadrature inside cut cells, for material laws whose energy is no polynomial.

Eight points of equal weight V/8 in each cell. A full cell has Gauss' 2 x 2 x 2 points. In a cut cell the points are
moved until they have the moments of the filled part: always those up to degree 2 (so constant stress is integrated
exactly: the patch test), and all 23 that products of gradients of shape functions are made of where they can be met, so
that the stiffness of a linear law comes out as by exact integration. Document 001 meets the first ten with four points;
four more buy the rest. One plane through a cell: always met, points inside the cell. Cells with several pieces of body
in them: stiffness within 6 %, points up to an eighth of a cell outside.

24 numbers a cut cell; full cells share one row.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.geometry.grid import CORNER_OFFSETS

POINTS = 8
# Exponents of the products ∂_a N_p ∂_b N_q.
EXPONENTS = np.array([e for e in np.ndindex(3, 3, 3) if sum(e) <= 4])
_PLACE = np.array([9, 3, 1])
_UNIT = np.eye(3, dtype=np.int64)
_ITERATIONS = 60


def cell_quadrature(moment_table: np.ndarray) -> np.ndarray:
    """Points of each row of `CutCells.moment_table` (T, 27), in cell units from the lowest corner, (T, 8, 3)."""
    volume = moment_table[:, 0]
    centre = moment_table[:, _PLACE] / volume[:, None]
    spread = np.empty((len(volume), 3, 3))
    for a, b in np.ndindex(3, 3):
        spread[:, a, b] = moment_table[:, (_UNIT[a] + _UNIT[b]) @ _PLACE] / volume - centre[:, a] * centre[:, b]
    scale = np.sqrt(np.einsum("taa->ta", spread))
    target = _centred(moment_table / volume[:, None], centre) / np.prod(scale[:, None, :] ** EXPONENTS, axis=2)
    scaled = spread / (scale[:, :, None] * scale[:, None, :])
    root = _root(scaled)
    low, high = (0.0 - centre) / scale, (1.0 - centre) / scale
    points = np.einsum("qj,tij->tqi", 2.0 * CORNER_OFFSETS - 1.0, root)
    points = _with_spread(_match(points, target, low, high), root)
    return centre[:, None] + scale[:, None] * points


def _centred(moments: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Moments of x - centre at EXPONENTS, (T, 23), by the binomial theorem along each axis."""
    cube = moments.reshape(-1, 3, 3, 3)
    shift = np.zeros((len(cube), 3, 3, 3))  # axis, exponent, of which power
    for a in range(3):
        c = centre[:, a]
        shift[:, a, 0, 0] = shift[:, a, 1, 1] = shift[:, a, 2, 2] = 1.0
        shift[:, a, 1, 0], shift[:, a, 2, 0], shift[:, a, 2, 1] = -c, c * c, -2.0 * c
    moved = np.einsum("tijk,tai,tbj,tck->tabc", cube, shift[:, 0], shift[:, 1], shift[:, 2])
    return moved.reshape(-1, 27)[:, EXPONENTS @ _PLACE]


def _root(matrices: np.ndarray) -> np.ndarray:
    """Symmetric square roots of symmetric positive definite matrices (T, 3, 3)."""
    values, vectors = np.linalg.eigh(matrices)
    return np.einsum("tik,tk,tjk->tij", vectors, np.sqrt(values), vectors)


def _monomials(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Monomials at points (T, Q, 3), (T, 23, Q), and their derivatives, (T, 23, Q, 3)."""
    power = np.stack([np.ones_like(x), x, x * x], axis=-1)
    slope = np.stack([np.zeros_like(x), np.ones_like(x), 2.0 * x], axis=-1)
    factor = [power[:, :, a, EXPONENTS[:, a]] for a in range(3)]
    change = [slope[:, :, a, EXPONENTS[:, a]] for a in range(3)]
    derivative = np.stack(
        [change[0] * factor[1] * factor[2], factor[0] * change[1] * factor[2], factor[0] * factor[1] * change[2]],
        axis=-1,
    )
    return np.swapaxes(factor[0] * factor[1] * factor[2], 1, 2), np.swapaxes(derivative, 1, 2)


def _match(points: np.ndarray, target: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Points moved so that their mean monomials come to the targets (T, 23): damped least-norm steps, all rows at once.

    There are 24 coordinates for 22 conditions, so a row either ends at rounding or where the cell's faces stop it.
    """
    count = len(EXPONENTS)
    damping: np.ndarray = np.full(len(points), 1e-3)
    value, slope = _monomials(points)
    residual = value.mean(axis=2) - target
    for _ in range(_ITERATIONS):
        jacobian = slope.reshape(len(points), count, -1) / POINTS
        gram = jacobian @ np.swapaxes(jacobian, 1, 2)
        mean = np.einsum("tmm->t", gram) / count
        gram += (damping * mean)[:, None, None] * np.eye(count)
        step = -np.swapaxes(jacobian, 1, 2) @ np.linalg.solve(gram, residual[..., None])
        tried = np.clip(points + step.reshape(points.shape), low[:, None], high[:, None])
        value, new_slope = _monomials(tried)
        new = value.mean(axis=2) - target
        better = (new**2).sum(axis=1) < (residual**2).sum(axis=1)
        points, slope, residual = (
            np.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b)
            for a, b in ((tried, points), (new_slope, slope), (new, residual))
        )
        damping = np.clip(np.where(better, 0.2 * damping, 5.0 * damping), 1e-14, 1e3)
    return points


def _with_spread(points: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Points with mean 0 and covariance root² to rounding: an affine map, the identity where `_match` ended well."""
    away = points - points.mean(axis=1, keepdims=True)
    now = _root(np.swapaxes(away, 1, 2) @ away / POINTS)
    return away @ np.linalg.solve(now, root)
