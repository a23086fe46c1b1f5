"""Which points of a cloud are the body's own, once its shape and motion are known: what touches it is cut off.

A cloud that is much wider than the body holds more than it. The tracked surface is put where the cloud has it; points
that lie far off it then belong to a hand or a neighbour, however they are connected to the body.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.spatial import cKDTree

from soft_estimator.geometry.extent import widest_m

TOUCHED = "something touches the object: points that are not its own were cut off"
_GROWN = 1.3  # times the body's width at rest, which a soft ball that is flattened by a bounce does not reach
_TRIM = 0.01  # share of the points beyond either end that says nothing of the cloud's width
OFF_SIZES = 0.1  # a point this part of the body's size off its surface is not its own
_BESIDE = 0.35  # of that, for points beside such ones
_OFF_SIGMAS = 4.0  # and this many of its own deviations
_LEAST_SHARE = 0.02  # strays: fewer than this share of the points are left to the robust loss
_LEAST_POINTS = 8
_WIDTHS = (0.6, 0.4, 0.3, 0.25, 0.2, 0.15, 0.12, 0.1)  # of the body's size: what counts while the surface is shifted


def foreign_points(
    points_m: np.ndarray,
    std_m: np.ndarray,
    surface_m: np.ndarray,
    width_m: float,
    shifts_m: Iterable[np.ndarray] = (np.zeros(3),),
) -> np.ndarray:
    """Which points (n, 3) [m] lie off a body, (n,) bool; none where so few do that they are strays.

    Args:
        std_m: the points' deviations (n,) [m]. surface_m: vertices of its surface where it was last (V, 3) [m].
        width_m: of the body at rest, the largest. shifts_m: how far it may have gone since [m], (3,) each: tries to
            begin with.
    """
    none = np.zeros(len(points_m), dtype=bool)
    most_m = _GROWN * width_m
    if len(points_m) < 2 * _LEAST_POINTS or _across_m(points_m) <= most_m or widest_m(points_m, _TRIM) <= most_m:
        return none
    tree, size_m = cKDTree(surface_m), float(np.linalg.norm(np.ptp(surface_m, axis=0)))
    limit = OFF_SIZES * size_m + _OFF_SIGMAS * std_m
    off = min(
        (_placed_gaps(points_m, tree, size_m, shift) for shift in shifts_m), key=lambda gap: float(np.sum(gap > limit))
    )
    foreign = off > limit
    if foreign.sum() < max(_LEAST_POINTS, _LEAST_SHARE * len(points_m)):
        return none
    # Where it touches the body, a hand is nearer to it than that: what is beside its points and off the surface is its.
    beside = np.isfinite(cKDTree(points_m[foreign]).query(points_m, distance_upper_bound=OFF_SIZES * size_m)[0])
    return foreign | (beside & (off > _BESIDE * limit))


def _across_m(points: np.ndarray) -> float:
    """A ball's width [m] that holds points (n, 3) [m]: they are no wider in any direction, and it is told at once."""
    off = points - 0.5 * (points.min(axis=0) + points.max(axis=0))
    return 2.0 * float(np.sqrt(np.einsum("na,na->n", off, off).max()))


def _placed_gaps(points: np.ndarray, tree: cKDTree, size_m: float, shift_m: np.ndarray) -> np.ndarray:
    """Distances (n,) [m] of points from the surface, which is shifted to where most of them are nearest to it."""
    shift = np.asarray(shift_m, dtype=np.float64)
    gap, nearest = tree.query(points - shift)
    for width in _WIDTHS:
        near = gap < width * size_m
        if not near.any():
            break
        # The surface's normal is where its nearest point lies: Σ n nᵀ δ = Σ n (n·r) is point-to-plane fitting.
        off = (points - shift - tree.data[nearest])[near]
        normal = off / np.maximum(gap[near], 1e-12)[:, None]
        weight = 1.0 / (1.0 + (gap[near] / (0.25 * width * size_m)) ** 2)  # what touches the body must not pull at it
        matrix = (normal * weight[:, None]).T @ normal
        shift = shift + np.linalg.solve(
            matrix + 1e-3 * np.trace(matrix) * np.eye(3), (weight[:, None] * off).sum(axis=0)
        )
        gap, nearest = tree.query(points - shift)
    return np.asarray(gap)
