"""Thinning: means over bundles of rays are as good as they claim, and as dense as asked for."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.perception.cloud import cloud_from_points
from soft_estimator.perception.settings import FinderSettings
from soft_estimator.perception.thinning import thinned_along_view

FOCAL_PX, NOISE_M, BUDGET = 460.0, 0.0012, 1500


def rays(half_px: int = 50) -> np.ndarray:
    """Rays of a patch of pixels, (n, 3) with depth one."""
    v, u = np.mgrid[-half_px:half_px, -half_px:half_px]
    return np.stack([u, v, np.full_like(u, FOCAL_PX)], axis=-1).reshape(-1, 3) / FOCAL_PX


def noisy_plane(tilt_rad: float, depth_m: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points of a plane through the axis at depth_m, its normal, and where the noise was added, along the rays."""
    r = rays()
    normal = np.array([np.sin(tilt_rad), 0.0, -np.cos(tilt_rad)])
    depth = depth_m * normal[2] / (r @ normal)
    depth += NOISE_M * np.random.default_rng(5).standard_normal(len(depth))
    return r * depth[:, None], normal, np.array([0.0, 0.0, depth_m])


@pytest.mark.parametrize("tilt_deg", [0.0, 45.0, 70.0])
def test_the_means_scatter_as_they_say(tilt_deg: float) -> None:
    """Distance along the view over the stated deviation is a standard normal number: spread 1 within its own error.

    The noise is half as wide as the bundles: means over cubes of that size scatter twice as much as they say.
    """
    points, normal, on = noisy_plane(np.radians(tilt_deg))
    std = np.full(len(points), NOISE_M)
    mean, spread, _ = thinned_along_view(cloud_from_points(points), points, std, FinderSettings(point_budget=BUDGET))
    assert BUDGET / 3 < len(mean) <= BUDGET
    assert np.median(spread) < 0.75 * NOISE_M
    off = (mean - on) @ normal / (mean @ normal / mean[:, 2])
    scatter = np.sqrt(np.mean((off / spread) ** 2))
    assert 0.9 < scatter < 1.1
    assert abs(np.mean(off / spread)) < 4 / np.sqrt(len(off))


def test_two_surfaces_behind_each_other_are_not_mixed() -> None:
    """No mean lies between a plane and another one 2 cm behind it, seen through the same pixels."""
    r = rays()
    depth = np.where(np.arange(len(r)) % 2, 0.50, 0.52)
    points = r * depth[:, None]
    mean, _, _ = thinned_along_view(
        cloud_from_points(points), points, np.full(len(points), 0.0005), FinderSettings(point_budget=BUDGET)
    )
    assert np.minimum(abs(mean[:, 2] - 0.50), abs(mean[:, 2] - 0.52)).max() < 1e-6


def test_few_points_stay_as_they_are() -> None:
    points, _, _ = noisy_plane(0.0)
    std = np.full(len(points), NOISE_M)
    same, spread, width_m = thinned_along_view(
        cloud_from_points(points), points, std, FinderSettings(point_budget=20000)
    )
    assert np.array_equal(same, points) and np.array_equal(spread, std) and width_m == 0.0


@pytest.mark.parametrize("budget", [20, 100])
def test_surfaces_in_depth_that_no_width_can_merge_end_within_the_budget(budget: int) -> None:
    """One ray through 1000 surfaces 4 mm apart, noise 0.5 mm: they are 8 deviations apart, so no bundle merges them.

    What comes out are single points of the cloud (nothing to average), spread over all of it: the gap between two of
    them is 1000 / budget surfaces, rounded, so at most one surface more.
    """
    depth = 0.5 + 0.004 * np.arange(1000)
    points = np.stack([np.zeros(1000), np.zeros(1000), depth], axis=1)
    std = np.full(1000, 0.0005)
    mean, spread, _ = thinned_along_view(cloud_from_points(points), points, std, FinderSettings(point_budget=budget))
    assert len(mean) == budget and np.all(spread == 0.0005)
    assert abs(mean[:, None, 2] - depth).min(axis=1).max() < 1e-12
    assert np.diff(mean[:, 2]).max() <= 0.004 * (1000 / budget + 1) + 1e-9


def test_fewer_points_than_a_pose_needs_are_refused_as_a_budget() -> None:
    with pytest.raises(ValueError, match="point_budget = 1 must be >= 20"):
        FinderSettings(point_budget=1)
