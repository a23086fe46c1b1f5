"""Simulated depth cameras: geometry against closed forms, noise against the statistics it promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from soft_estimator.camera.depth_sensor import DepthNoise, incidence_cosine, observe, observe_meshes
from soft_estimator.camera.pinhole import (
    PinholeCamera,
    depth_and_mesh_images,
    depth_image,
    points_from_depth,
    ring_of_cameras,
)

SILENT = DepthNoise(
    axial_floor_m=0,
    axial_per_m=0,
    lateral_std_px=0,
    disparity_steps_per_px=0,
    flying_probability=0,
    dropout_probability=0,
    grazing_dropout_probability=0,
    min_range_m=0,
    max_range_m=np.inf,
)
TWO_TRIANGLES = np.array([(0, 1, 2), (0, 2, 3)])


def camera(width: int = 160, height: int = 120) -> PinholeCamera:
    return PinholeCamera.looking_at((0.7, -0.9, 0.8), (0.05, 0.1, 0.0), (0, 0, 1), width, height, 1.0)


def floor(half_m: float = 50.0) -> tuple[np.ndarray, np.ndarray]:
    corners = half_m * np.array([(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)], dtype=float)
    return corners, TWO_TRIANGLES


def cube(side_m: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Axis-aligned, on the floor around the z axis."""
    corners = np.array([(x, y, z) for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (0.0, 1.0)]) * side_m
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    return corners, np.array([face for a, b, c, d in quads for face in ((a, b, c), (a, c, d))])


def wall(view: PinholeCamera, depth_m: float) -> np.ndarray:
    return np.full((view.height_px, view.width_px), depth_m)


def test_looking_at_puts_the_target_in_the_middle_and_up_upwards() -> None:
    view = camera()
    target = view.to_camera_frame(np.array([(0.05, 0.1, 0.0)]))[0]
    np.testing.assert_allclose(target[:2], 0.0, atol=1e-15)
    assert target[2] == pytest.approx(np.linalg.norm((0.65, -1.0, 0.8)), rel=1e-14)
    above = view.to_camera_frame(np.array([(0.05, 0.1, 0.1)]))[0]
    assert above[0] == pytest.approx(0.0, abs=1e-15) and above[1] < 0  # y points down
    edge = np.tan(0.5) * view.fx_px  # half the field of view reaches from the centre to the image's edge
    assert view.cx_px + edge == pytest.approx(view.width_px - 0.5)
    np.testing.assert_allclose(view.to_world_frame(view.to_camera_frame(np.eye(3))), np.eye(3), atol=1e-15)


def test_ring_surrounds_its_target() -> None:
    target, radius, height = np.array([0.1, 0.2, 0.3]), 0.8, 0.4
    cameras = ring_of_cameras(5, target, radius, height, up=(0, 1, 0))
    offsets = np.array([view.position_m for view in cameras]) - target
    np.testing.assert_allclose(offsets[:, 1], height)
    np.testing.assert_allclose(np.hypot(offsets[:, 0], offsets[:, 2]), radius)
    np.testing.assert_allclose(offsets.sum(axis=0), (0, 5 * height, 0), atol=1e-14)
    for view, offset in zip(cameras, offsets, strict=True):
        np.testing.assert_allclose(view.rotation[:, 2], -offset / np.linalg.norm(offset), atol=1e-14)


def test_points_from_depth_lie_on_the_surface_seen() -> None:
    """Every point of the floor's image has z = 0, and its depth is its camera-frame z: a round trip, to rounding."""
    view = camera()
    depth = depth_image(view, *floor())
    points = points_from_depth(view, depth)
    assert len(points) == (depth > 0).sum() == depth.size  # the camera looks down at more than its half field of view
    np.testing.assert_allclose(points[:, 2], 0.0, atol=1e-13)
    back = view.to_camera_frame(points)
    np.testing.assert_allclose(back[:, 2], depth[depth > 0], rtol=1e-13)
    u, v = np.meshgrid(np.arange(view.width_px), np.arange(view.height_px))
    np.testing.assert_allclose(view.fx_px * back[:, 0] / back[:, 2] + view.cx_px, u[depth > 0], atol=1e-9)
    np.testing.assert_allclose(view.fy_px * back[:, 1] / back[:, 2] + view.cy_px, v[depth > 0], atol=1e-9)


def test_meshes_hide_each_other_and_keep_their_names() -> None:
    """Pixels of the cube lie on its faces, pixels of the floor on z = 0 outside it, and the order does not matter."""
    view = camera()
    frame = observe_meshes(view, [floor(), cube()])
    on_cube = frame.points_m[frame.mesh_index == 1]
    on_floor = frame.points_m[frame.mesh_index == 0]
    assert len(on_cube) > 500 and len(on_floor) > 500
    distance = np.abs(on_cube - (0, 0, 0.1)).max(axis=1)  # max-norm distance of a cube's face from its centre
    np.testing.assert_allclose(distance, 0.1, atol=1e-13)
    np.testing.assert_allclose(on_floor[:, 2], 0.0, atol=1e-13)
    assert (np.abs(on_floor[:, :2]).max(axis=1) > 0.1 - 1e-12).all()
    depth, owner = depth_and_mesh_images(view, [cube(), floor()])
    np.testing.assert_array_equal(depth, frame.depth_m)
    u, v = frame.pixel.T
    np.testing.assert_array_equal(owner[v, u], 1 - frame.mesh_index)
    np.testing.assert_array_equal(frame.std_m, 0.0)


def test_empty_view() -> None:
    """Nothing in front of the camera: no depth, no points, no mesh, with and without noise."""
    view = camera()
    for meshes in ([], [(cube()[0] + (0, -9, 9), cube()[1])]):
        frame = observe_meshes(view, meshes, DepthNoise(), np.random.default_rng(0))
        assert frame.points_m.shape == (0, 3) and not frame.depth_m.any()
        assert (depth_and_mesh_images(view, meshes)[1] == -1).all()


@pytest.mark.parametrize("depth_m", [0.5, 1.0, 2.5])
def test_axial_noise_grows_with_depth_squared(depth_m: float) -> None:
    """Sample std of n = 76 800 draws has relative error 1/sqrt(2n) = 0.26 %, the mean std/sqrt(n): five sigmas each."""
    view = camera(320, 240)
    noise = replace(SILENT, axial_floor_m=0.0004, axial_per_m=0.003)
    noisy = noise.apply(wall(view, depth_m), view, np.random.default_rng(11))
    expected = 0.0004 + 0.003 * depth_m**2
    assert noise.std_m(depth_m) == pytest.approx(expected)
    assert noisy.std() == pytest.approx(expected, rel=5 / np.sqrt(2 * noisy.size))
    assert noisy.mean() == pytest.approx(depth_m, abs=5 * expected / np.sqrt(noisy.size))


def test_normalised_residuals_of_the_full_frame_have_unit_variance() -> None:
    """std_m with quantisation (step²/12 added) describes the frame: (z - exact)/std has variance 1 within five sigmas.

    Rounding to a step adds step²/12 exactly when the noise is spread over several steps; here std = 2 to 3 steps.
    """
    view = camera(320, 240)
    noise = replace(SILENT, axial_per_m=0.01, disparity_steps_per_px=20.0)
    meshes = [floor()]
    frame = observe_meshes(view, meshes, noise, np.random.default_rng(2))
    exact = depth_and_mesh_images(view, meshes)[0]
    scaled = (frame.depth_m[frame.depth_m > 0] - exact[frame.depth_m > 0]) / frame.std_m
    steps = noise.std_m(exact) / noise.depth_step_m(exact, view)
    assert steps.min() > 1.0
    assert scaled.var() == pytest.approx(
        1.0, abs=5 * np.sqrt(2 / scaled.size) + 0.005
    )  # std is read at the noisy depth


def test_quantised_depths_are_whole_disparity_steps() -> None:
    """f B / z is a whole number of steps, off by at most half a step, and neighbours differ by about z²/(f B steps)."""
    view = camera()
    noise = replace(SILENT, disparity_steps_per_px=8.0)
    exact = depth_image(view, *floor())
    coarse = noise.apply(exact, view, np.random.default_rng(0))
    levels = view.fx_px * 0.05 * 8.0 / coarse
    np.testing.assert_allclose(levels, np.rint(levels), atol=1e-9)
    assert np.abs(levels - view.fx_px * 0.05 * 8.0 / exact).max() <= 0.5 + 1e-9
    values = np.unique(coarse)
    steps = np.diff(values)
    middle = np.sqrt(values[1:] * values[:-1])  # 1/k - 1/(k+1) = 1/(k (k+1)): exact with the geometric mean
    consecutive = np.isclose(np.abs(np.diff(view.fx_px * 0.05 * 8.0 / values)), 1.0, atol=1e-6)
    np.testing.assert_allclose(steps[consecutive], noise.depth_step_m(middle, view)[consecutive], rtol=1e-9)
    assert consecutive.sum() > 20


def test_incidence_of_a_plane_is_exact() -> None:
    """cos = |n . d| / |d| at every pixel of a plane, because 1/z is linear; 1e-10 for differences of 1/z."""
    view = camera()
    rays = view.rays()
    normal = view.rotation.T @ (0, 0, 1)
    exact = np.abs(rays @ normal) / np.linalg.norm(rays, axis=-1)
    np.testing.assert_allclose(incidence_cosine(view, depth_image(view, *floor())), exact, atol=1e-10)


def test_dropout_rate_head_on_and_grazing() -> None:
    """Lost pixels are binomial with the stated probability: within five sigmas, head-on and on a slanted floor."""
    view = camera(320, 240)
    noise = replace(SILENT, dropout_probability=0.04, grazing_dropout_probability=0.9)
    for exact in (wall(view, 1.0), depth_image(view, *floor())):
        chance = noise.dropout_chance(exact, view)
        lost = noise.apply(exact, view, np.random.default_rng(4)) == 0
        assert lost.sum() == pytest.approx(chance.sum(), abs=5 * np.sqrt((chance * (1 - chance)).sum()))
    grazing = PinholeCamera.looking_at((0, -1, 0.05), (0, 0, 0.0), width_px=160, height_px=41, horizontal_fov_rad=0.2)
    assert noise.dropout_chance(depth_image(grazing, *floor()), grazing).min() > 0.5
    assert noise.dropout_chance(wall(view, 1.0), view)[120, 160] == pytest.approx(0.04, abs=1e-6)


def test_flying_pixels_only_at_edges_and_only_between_the_surfaces() -> None:
    """Depth steps from 1 m to 2 m: only the two columns at the step change, at the stated rate, to between."""
    view = camera()
    exact = wall(view, 1.0)
    exact[:, 70:] = 2.0
    flown = replace(SILENT, flying_probability=0.5).apply(exact, view, np.random.default_rng(8))
    changed = flown != exact
    assert not changed[:, :69].any() and not changed[:, 71:].any()
    assert changed.sum() == pytest.approx(120, abs=5 * np.sqrt(240 * 0.25))
    assert (flown[changed] > 1.0).all() and (flown[changed] < 2.0).all()


def test_flying_pixels_before_an_empty_background() -> None:
    """Without a background there is nothing to mix with; with one, outline pixels fly towards it, empty ones stay."""
    view = camera()
    exact = depth_image(view, *cube())
    noise = replace(SILENT, flying_probability=1.0)
    untouched = noise.apply(exact, view, np.random.default_rng(1))
    np.testing.assert_array_equal(untouched, exact)  # a cube seen from outside has no depth step within its outline
    flown = replace(noise, background_m=3.0).apply(exact, view, np.random.default_rng(1))
    empty = np.pad(exact == 0, 1)
    near_empty = empty[1:-1, :-2] | empty[1:-1, 2:] | empty[:-2, 1:-1] | empty[2:, 1:-1]
    np.testing.assert_array_equal(flown != exact, (exact > 0) & near_empty)
    assert (flown[flown != exact] < 3.0).all() and (flown >= exact).all()


def test_lateral_jitter_on_a_plane_follows_its_slope() -> None:
    """On a plane 1/z is linear: jitter of s px gives 1/z a std of s |grad(1/z)|, and leaves the wall alone."""
    view = camera(320, 240)
    noise = replace(SILENT, lateral_std_px=0.2)
    np.testing.assert_allclose(noise.apply(wall(view, 1.3), view, np.random.default_rng(3)), 1.3, rtol=1e-14)
    exact = depth_image(view, *floor())
    jittered = noise.apply(exact, view, np.random.default_rng(3))
    slope = np.hypot(*(np.diff(1 / exact, axis=axis)[5, 5] for axis in (0, 1)))  # the same everywhere
    error = (1 / jittered - 1 / exact)[4:-4, 4:-4]  # shifts are clipped at the border
    assert error.std() == pytest.approx(0.2 * slope, rel=5 / np.sqrt(2 * error.size))


def test_range_limits() -> None:
    view = camera()
    exact = depth_image(view, *floor())
    low, high = np.quantile(exact, (0.3, 0.7))
    seen = replace(SILENT, min_range_m=low, max_range_m=high).apply(exact, view, np.random.default_rng(0))
    np.testing.assert_array_equal(seen, np.where((exact >= low) & (exact <= high), exact, 0.0))


def test_silence_is_exact_and_seeds_repeat() -> None:
    """No noise changes no bit; the same seed gives the same bits, another seed does not."""
    view = camera()
    exact = depth_image(view, *cube())
    np.testing.assert_array_equal(SILENT.apply(exact, view, np.random.default_rng(0)), exact)
    frames = [observe(view, *cube(), DepthNoise(), np.random.default_rng(seed)) for seed in (5, 5, 6)]
    assert frames[0].points_m.tobytes() == frames[1].points_m.tobytes()
    assert frames[0].points_m.tobytes() != frames[2].points_m.tobytes()
    assert len(frames[0].points_m) == len(frames[0].std_m) == len(frames[0].pixel) == (frames[0].depth_m > 0).sum()


def test_default_noise_resembles_the_sensor() -> None:
    """A stereo sensor with f = 640 px, B = 50 mm and 0.08 px of disparity noise: 0.08 z²/(f B) = 2.5 mm at 1 m."""
    assert DepthNoise().axial_per_m == pytest.approx(0.08 / (640 * 0.05))


def test_bad_input_is_named() -> None:
    view = camera()
    with pytest.raises(ValueError, match="rng"):
        observe(view, *cube(), DepthNoise())
    with pytest.raises(ValueError, match=r"dropout_probability is 1\.5"):
        DepthNoise(dropout_probability=1.5)
    with pytest.raises(ValueError, match="axial_per_m is -1"):
        DepthNoise(axial_per_m=-1)
    with pytest.raises(ValueError, match="parallel"):
        PinholeCamera.looking_at((0, 0, 1), (0, 0, 0), (0, 0, 1))
    with pytest.raises(ValueError, match="rotation"):
        replace(view, rotation=np.diag([1.0, 1.0, -1.0]))
    with pytest.raises(ValueError, match="sizes differ"):
        points_from_depth(view, np.zeros((3, 4)))
