"""Fewer points that say as much: means over bundles of a camera's neighbouring rays."""

from __future__ import annotations

import numpy as np

from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.settings import FinderSettings

_GAP_SIGMAS = 6.0  # points of a bundle that lie farther apart than this, in standard deviations, are two surfaces


def thinned_along_view(
    cloud: Cloud, points: np.ndarray, std: np.ndarray, settings: FinderSettings
) -> tuple[np.ndarray, np.ndarray, float]:
    """At most point_budget points (n, 3) [m], the standard deviations of such means [m], and the bundles' width [m].

    Bundles, not cubes: cubes no larger than the noise would sort the points by their noise, and the means of what is
    sorted are no better than single points.
    """
    if len(points) <= settings.point_budget:
        return points.copy(), std.copy(), 0.0
    axis = np.asarray(cloud.axis, dtype=np.float64)
    across = np.cross(axis, np.eye(3)[np.argmin(np.abs(axis))])
    across /= np.linalg.norm(across)
    basis = np.stack([across, np.cross(axis, across), axis])
    # Where each ray passes at the mean depth, and the depth itself.
    place = (points - cloud.sensor_m) @ basis.T
    depth_m = float(place[:, 2].mean())
    place[:, :2] *= depth_m / np.maximum(place[:, 2:], 1e-6)
    width_m = settings.least_voxel_m
    while True:
        mean, spread, count = _bundle_means(place, std, width_m)
        if len(mean) <= settings.point_budget:
            break
        # a surface fills bundles as 1/h²; a little more, so that the next try fits
        width_m *= max(1.02, 1.01 * float(np.sqrt(len(mean) / settings.point_budget)))
    mean[:, :2] *= mean[:, 2:] / depth_m
    shared = settings.noise.shared_px
    return cloud.sensor_m + mean @ basis, spread * np.sqrt(shared / np.maximum(count, shared)), width_m


def _bundle_means(place: np.ndarray, std: np.ndarray, width_m: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean place (n, 3), mean std (n,) and number of points (n,) of every bundle's surfaces.

    A surface seen so obliquely that it runs deep through its bundle gets bundles of half the width.
    """
    at = (place[:, :2] - place[:, :2].min(axis=0)) / width_m
    cell = np.floor(at).astype(np.int64)
    bundle = cell[:, 0] * (cell[:, 1].max() + 1) + cell[:, 1]
    order, starts = _surfaces(bundle, place[:, 2], std)
    ends = np.append(starts[1:], len(order)) - 1
    deep = place[order[ends], 2] - place[order[starts], 2] > _GAP_SIGMAS * std[order[starts]]
    oblique = np.empty(len(order), dtype=bool)
    oblique[order] = np.repeat(deep, ends + 1 - starts)
    quarter = (2 * (at - cell)).astype(np.int64)
    bundle = 4 * bundle + np.where(oblique, 2 * quarter[:, 0] + quarter[:, 1], 0)
    order, starts = _surfaces(bundle, place[:, 2], std)
    count = np.diff(np.append(starts, len(order)))
    return np.add.reduceat(place[order], starts) / count[:, None], np.add.reduceat(std[order], starts) / count, count


def _surfaces(bundle: np.ndarray, depth_m: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points sorted by bundle and depth, as indices, and where in that order each surface in a bundle begins."""
    order = np.lexsort((depth_m, bundle))
    new = (np.diff(bundle[order]) != 0) | (np.diff(depth_m[order]) > _GAP_SIGMAS * std[order[1:]])
    return order, np.flatnonzero(np.append(True, new))
