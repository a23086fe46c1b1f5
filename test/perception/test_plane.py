"""The support plane: close to the truth, and as far from it as its covariance says."""

from __future__ import annotations

import numpy as np
import pytest
from perception_scenes import UP, camera_at, make_body, shoot, table

from soft_estimator.camera.depth_sensor import DepthNoise
from soft_estimator.perception.cloud import cloud_from_points
from soft_estimator.perception.plane import NoPlane, PlaneFit, fit_support_plane
from soft_estimator.perception.settings import NoiseSettings, PlaneSettings


@pytest.mark.parametrize("name", ["torus", "box"])
def test_plane_under_an_object_within_a_fifth_of_a_degree_and_a_millimetre(name: str) -> None:
    for seed in range(2):
        shot = shoot(camera_at(0.9 * seed, 0.5 + 0.2 * seed, 0.7), [make_body(name).mesh, table()], seed)
        fit = fit_support_plane(shot.cloud)
        assert isinstance(fit, PlaneFit)
        assert np.degrees(np.arccos(min(1.0, fit.normal @ UP))) < 0.2
        assert abs(fit.height_m(np.zeros(3))) < 1e-3
        assert fit.height_m(shot.camera.position_m) > 0


def test_plane_error_is_what_the_covariance_says() -> None:
    # With pure a + b z² noise along the ray, eᵀ C⁻¹ e of (a1, a2, d) is χ² with 3 degrees of freedom. The mean over 60
    # trials then has standard deviation √(6/60) = 0.32; the loss of efficiency of Tukey's weights (about 10 % at 4 σ)
    # is inside the bounds of ±4 of these.
    rng, errors = np.random.default_rng(0), []
    for _ in range(60):
        ray = np.column_stack([rng.uniform(-0.5, 0.5, (1500, 2)), np.ones(1500)])
        normal, offset = np.array([0.1, -0.55, -0.8]), 0.9
        normal, offset = normal / np.linalg.norm(normal), offset
        depth = -offset / (ray @ normal)
        depth += (0.0005 + 0.0025 * depth**2) * rng.standard_normal(1500)
        fit = fit_support_plane(cloud_from_points(ray * depth[:, None]))
        assert isinstance(fit, PlaneFit)
        error = np.append(fit.tangents @ (normal - fit.normal), offset - fit.offset_m)
        errors.append(error @ np.linalg.solve(fit.covariance, error))
    assert 3 - 4 * 0.32 < np.mean(errors) < 3 + 4 * 0.32


def test_shared_errors_widen_the_covariance() -> None:
    shot = shoot(camera_at(0.0, 0.7, 0.7), [table()], 3)
    one = fit_support_plane(shot.cloud)
    nine = fit_support_plane(shot.cloud, noise=NoiseSettings(shared_px=9.0))
    assert isinstance(one, PlaneFit) and isinstance(nine, PlaneFit)
    np.testing.assert_allclose(nine.covariance, 9 * one.covariance, rtol=1e-9)
    assert nine.height_std_m(np.zeros(3)) == pytest.approx(3 * one.height_std_m(np.zeros(3)))


def test_the_table_is_chosen_before_a_larger_wall_unless_a_wall_is_expected() -> None:
    # y is down in the picture of a camera that looks along z: the ground faces upwards, the wall does not
    rng = np.random.default_rng(1)
    wall = np.column_stack([rng.uniform(-1, 1, (4000, 2)), np.full(4000, 2.0)])
    ground = np.column_stack([rng.uniform(-1, 1, 1500), np.full(1500, 0.5), rng.uniform(1, 2, 1500)])
    cloud = cloud_from_points(np.concatenate([wall, ground]) + 1e-4 * rng.standard_normal((5500, 3)))
    free, told = (
        fit_support_plane(cloud, PlaneSettings(expected_normal=hint, max_tilt_rad=0.3)) for hint in (None, (0, 0, -1))
    )
    assert isinstance(free, PlaneFit) and isinstance(told, PlaneFit)
    assert free.normal @ (0, -1, 0) > 0.999 and told.normal @ (0, 0, -1) > 0.999
    # as of a camera upside down: the wall wins, and nothing better is there
    turned = cloud_from_points((np.concatenate([wall, ground]) + 1e-4 * rng.standard_normal((5500, 3))) * (-1, -1, 1))
    found = fit_support_plane(turned)
    assert isinstance(found, PlaneFit) and found.normal @ (0, 0, -1) > 0.999


def test_no_plane_is_said() -> None:
    rng = np.random.default_rng(2)
    ball = rng.normal(size=(3000, 3))
    ball = 0.3 * ball / np.linalg.norm(ball, axis=1)[:, None] + (0, 0, 1.0)
    settings = PlaneSettings(min_share=0.3)
    fit = fit_support_plane(cloud_from_points(ball), settings)
    assert isinstance(fit, NoPlane) and "min_share" in fit.reason
    line = np.column_stack([np.linspace(-1, 1, 200), np.zeros(200), np.ones(200)])
    assert isinstance(fit_support_plane(cloud_from_points(line)), NoPlane)
    assert isinstance(fit_support_plane(cloud_from_points(ball[:5])), NoPlane)


def test_a_guess_is_followed_when_the_plane_moves_a_little() -> None:
    noise = DepthNoise(flying_probability=0.0)
    first = fit_support_plane(shoot(camera_at(0.0, 0.7, 0.7), [table()], 4, noise).cloud)
    assert isinstance(first, PlaneFit)
    second = fit_support_plane(shoot(camera_at(0.0, 0.7, 0.7), [table(height_m=0.006)], 5, noise).cloud, guess=first)
    assert isinstance(second, PlaneFit)
    assert abs(second.height_m(np.array([0, 0, 0.006]))) < 5e-4
