"""Clouds in: depth images and points become points in the fixed frame, whatever is not a measurement becomes NaN."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.perception.cloud import Intrinsics, cloud_from_depth, cloud_from_points

LENS = Intrinsics(64, 48, 60.0, 58.0, 31.0, 23.5)
BENT = Intrinsics(64, 48, 60.0, 58.0, 31.0, 23.5, (-0.21, 0.06, 0.002, -0.003, -0.01))


def some_pose() -> np.ndarray:
    c, s = np.cos(0.7), np.sin(0.7)
    pose = np.eye(4)
    pose[:3, :3] = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ np.array([[1, 0, 0], [0, 0, 1], [0, -1, 0]])
    pose[:3, 3] = (0.3, -0.2, 1.1)
    return pose


def test_a_pixel_goes_where_its_ray_points() -> None:
    # x = R (z (u - cx) / fx, z (v - cy) / fy, z) + t; only rounding of float64 is allowed
    depth = np.zeros((48, 64))
    depth[10, 50] = 0.8
    pose = some_pose()
    cloud = cloud_from_depth(depth, LENS, pose)
    expected = pose[:3, :3] @ (0.8 * np.array([(50 - 31.0) / 60.0, (10 - 23.5) / 58.0, 1.0])) + pose[:3, 3]
    np.testing.assert_allclose(cloud.points_m[10, 50], expected, atol=1e-14)
    assert np.isfinite(cloud.points_m).all(axis=-1).sum() == 1


def test_millimetres_and_metres_agree() -> None:
    millimetres = np.random.default_rng(0).integers(0, 3000, (48, 64)).astype(np.uint16)
    metres = (millimetres / 1000).astype(np.float32)
    a, b = cloud_from_depth(millimetres, LENS), cloud_from_depth(metres, LENS)
    np.testing.assert_allclose(a.points_m, b.points_m, rtol=1e-6, equal_nan=True)  # float32 has 7 digits
    np.testing.assert_array_equal(np.isnan(a.points_m[..., 0]), millimetres == 0)


def test_undistorted_rays_distort_back_to_their_pixels() -> None:
    rays = BENT.rays()
    x, y = BENT.distort(rays[:, 0], rays[:, 1])
    v, u = np.indices((48, 64))
    # the solver stops at 1e-12, well below a pixel of 1/60
    np.testing.assert_allclose(x * 60.0 + 31.0, u.ravel(), atol=1e-9)
    np.testing.assert_allclose(y * 58.0 + 23.5, v.ravel(), atol=1e-9)


def test_a_lens_that_folds_over_is_refused() -> None:
    folding = Intrinsics(64, 48, 20.0, 20.0, 31.0, 23.5, (-0.9, 0.0, 0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="cannot be inverted"):
        cloud_from_depth(np.ones((48, 64)), folding)


@pytest.mark.parametrize("nothing", [0.0, np.nan, np.inf, -np.inf, -1.0])
def test_no_measurement_becomes_nan(nothing: float) -> None:
    depth = np.full((48, 64), 1.0)
    depth[3, 4] = nothing
    cloud = cloud_from_depth(depth, LENS)
    assert np.isnan(cloud.points_m[3, 4]).all() and np.isfinite(np.delete(cloud.flat_m, 3 * 64 + 4, axis=0)).all()


def test_points_keep_their_layout_and_move_rigidly() -> None:
    pose, rng = some_pose(), np.random.default_rng(1)
    organised = rng.normal(size=(5, 7, 3))
    organised[2, 3] = 0.0
    organised[4, 1, 2] = np.nan
    cloud = cloud_from_points(organised, pose)
    assert cloud.organised and cloud.points_m.shape == (5, 7, 3)
    expected = organised @ pose[:3, :3].T + pose[:3, 3]
    expected[2, 3] = expected[4, 1] = np.nan
    np.testing.assert_allclose(cloud.points_m, expected, atol=1e-14)
    np.testing.assert_array_equal(cloud.sensor_m, pose[:3, 3])
    np.testing.assert_allclose(cloud.axis, pose[:3, 2])


def test_pixel_pitch_is_read_off_the_points() -> None:
    # rays of neighbouring pixels differ by 1/fx; the depth does not matter
    depth = np.random.default_rng(2).uniform(0.5, 1.0, (48, 64))
    with_lens = cloud_from_depth(depth, LENS)
    bare = cloud_from_points(with_lens.points_m)
    assert bare.pixel_pitch == pytest.approx(1 / 60.0, rel=1e-6)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.zeros(3), "shape"),
        (np.zeros((4, 2)), "shape"),
        (np.zeros((4, 3), dtype=complex), "real numbers"),
        (np.array([["a", "b", "c"]]), "real numbers"),
    ],
)
def test_bad_points_are_named(points: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cloud_from_points(points)


def test_bad_depth_and_transforms_are_named() -> None:
    with pytest.raises(ValueError, match="sizes differ"):
        cloud_from_depth(np.ones((3, 3)), LENS)
    with pytest.raises(ValueError, match="uint16 millimetres"):
        cloud_from_depth(np.ones((48, 64), dtype=np.int32), LENS)
    with pytest.raises(ValueError, match="not rigid"):
        cloud_from_points(np.ones((4, 3)), np.diag([2.0, 1.0, 1.0, 1.0]))
    with pytest.raises(ValueError, match="not supported"):
        Intrinsics.from_camera_info(4, 4, np.eye(3), "equidistant", (0.1, 0, 0, 0))
