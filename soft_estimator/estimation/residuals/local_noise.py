"""The noise that points show by themselves: how much neighbours on the surface differ."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

_NEIGHBOURS = 12  # two rings of them: enough for a plane, few enough to follow the surface's curve
OUTLIER = 3.0  # residuals count up to this many usual ones, so that a few strays do not make a frame uneven
LEAST_POINTS = 20  # fewer have no neighbourhoods


def neighbours_of(points_m: np.ndarray) -> np.ndarray:
    """The nearest other point of each along the surface, (n,), of points (n, 3) [m]."""
    points = _flattened(points_m)
    return np.asarray(cKDTree(points).query(points, 2)[1][:, 1])


def neighbours_variance(residual: np.ndarray, neighbour: np.ndarray) -> float:
    """Variance of residuals (n,) by the differences of neighbours: what all points of a patch are off by together does
    not count."""
    return 0.5 * float(np.mean((residual - residual[neighbour]) ** 2))


def without_outliers(residual: np.ndarray) -> np.ndarray:
    """Residuals (n,) cut to a few usual ones."""
    usual = max(1.4826 * float(np.median(np.abs(residual))), 1e-12)
    return np.clip(residual, -OUTLIER * usual, OUTLIER * usual)


def _flattened(points_m: np.ndarray) -> np.ndarray:
    """Points moved into the planes of their neighbourhoods: the nearest of noisy points would be those whose noise is
    alike."""
    near = points_m[cKDTree(points_m).query(points_m, min(_NEIGHBOURS, len(points_m)))[1]]
    middle = near.mean(axis=1)
    spread = near - middle[:, None]
    normal = np.linalg.eigh(np.einsum("nka,nkb->nab", spread, spread))[1][:, :, 0]
    return points_m - np.einsum("na,na->n", points_m - middle, normal)[:, None] * normal
