"""Fewer points that say as much: means over bundles of a camera's neighbouring rays."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.bundles import bundle_means
from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.settings import FinderSettings

_GAP_SIGMAS = 6.0  # points of a bundle that lie farther apart than this, in standard deviations, are two surfaces
_MOST_ACROSS = 2000  # bundles side by side
_MOST_TRIES = 20  # widths; two or three fit a surface


def thinned_along_view(
    cloud: Cloud, points: np.ndarray, std: np.ndarray, settings: FinderSettings
) -> tuple[np.ndarray, np.ndarray, float]:
    """At most point_budget points (n, 3) [m], the standard deviations of such means [m], and the bundles' width [m].

    Bundles, not cubes: cubes no larger than the noise would sort the points by their noise, and the means of what is
    sorted are no better than single points. Surfaces one behind the other are never averaged: where there are more of
    them than the budget allows, however wide the bundles, means are left out evenly.
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
    # Never more bundles than there is memory for, however far apart the points are.
    width_m = max(settings.least_voxel_m, float(np.ptp(place[:, :2], axis=0).max()) / _MOST_ACROSS)
    for attempt in range(_MOST_TRIES):
        mean, spread, count = _bundle_means(place, std, width_m)
        over = len(mean) / settings.point_budget
        if over <= 1.0 or attempt == _MOST_TRIES - 1:
            break
        # a surface fills bundles as 1/h²; a little more, so that the next try fits
        width_m *= max(1.02, 1.01 * float(np.sqrt(over)))
    if over > 1.0:
        chosen = np.arange(settings.point_budget) * len(mean) // settings.point_budget
        mean, spread, count = mean[chosen], spread[chosen], count[chosen]
    mean[:, :2] *= mean[:, 2:] / depth_m
    shared = settings.noise.shared_px
    return cloud.sensor_m + mean @ basis, spread * np.sqrt(shared / np.maximum(count, shared)), width_m


def _bundle_means(place: np.ndarray, std: np.ndarray, width_m: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean place (n, 3), mean std (n,) and number of points (n,) of every bundle's surfaces."""
    low = place[:, :2].min(axis=0)
    columns, rows = (np.floor((place[:, :2].max(axis=0) - low) / width_m).astype(np.int64) + 1).tolist()
    return bundle_means(place, std, low, width_m, columns, rows, _GAP_SIGMAS)
