"""The loops against slow, plain ways to compute the same."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from soft_estimator.backends.cpu.align import align, distances
from soft_estimator.backends.cpu.bundles import bundle_means
from soft_estimator.backends.cpu.cloud import find_flying
from soft_estimator.backends.cpu.clusters import cluster_image, cluster_voxels, mark_pieces
from soft_estimator.backends.cpu.flying import regain_steep
from soft_estimator.backends.cpu.tsdf import incidence, integrate, smooth_depth
from soft_estimator.backends.cpu.two_way import two_way
from soft_estimator.geometry.shapes import Box, sample

AT_REST = np.zeros((0, 0, 0, 3))  # nothing had moved


def test_bundles_give_the_mean_of_every_surface_in_them() -> None:
    """Two sheets a metre apart, each thinner than the gap that parts surfaces: one mean a sheet and bundle."""
    rng = np.random.default_rng(0)
    place = np.column_stack([rng.uniform(0, 1, (3000, 2)), rng.integers(0, 2, 3000) + rng.uniform(0, 0.1, 3000)])
    std, low = rng.uniform(0.1, 0.2, 3000), np.zeros(2)
    mean, spread, count = bundle_means(place, std, low, 0.2, 5, 5, 2.0)
    keys = np.column_stack([np.floor(place[:, :2] / 0.2), np.floor(place[:, 2])])
    _, group, size = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    group = group.ravel()
    np.testing.assert_array_equal(count, size)
    for axis in range(3):
        np.testing.assert_allclose(mean[:, axis], np.bincount(group, place[:, axis]) / count, atol=1e-14)
    np.testing.assert_allclose(spread, np.bincount(group, std) / count, atol=1e-14)


def test_a_bundle_of_many_points_is_sorted_in_n_log_n() -> None:
    """The farthest first, on one ray: insertion would move n² / 2 points, 10 s for 80,000 of them.

    Eight times the points take 8 to 12 times as long if sorted in n log n, 64 times by insertion; 30 parts the two.
    Time of this thread, so that what else the machine does is not counted.
    """

    def seconds(count: int) -> float:
        place, best = np.zeros((count, 3)), np.inf
        place[:, 2] = np.linspace(3.0, 0.5, count)
        for _ in range(3):
            begun = time.thread_time()
            mean, _, size = bundle_means(place, np.full(count, 0.001), np.zeros(2), 0.002, 1, 1, 6.0)
            best = min(best, time.thread_time() - begun)
        assert size.tolist() == [count] and mean[0, 2] == pytest.approx(1.75, rel=1e-9)
        return best

    seconds(2000)  # compiles
    assert seconds(40_000) < 30 * seconds(5_000)


def test_equal_depths_keep_their_order_in_a_large_bundle() -> None:
    """Both ways to sort are stable, so sums run in the order of the points: the same to the bit as plain NumPy's."""
    rng = np.random.default_rng(4)
    place = np.column_stack([rng.uniform(0, 1, (500, 2)), rng.integers(0, 3, 500)])
    mean, _, count = bundle_means(place, np.full(500, 0.1), np.zeros(2), 2.0, 1, 1, 2.0)
    for k, (found, size) in enumerate(zip(mean, count)):
        mine = place[place[:, 2] == k]
        assert size == len(mine) and np.array_equal(found, np.cumsum(mine, axis=0)[-1] / len(mine))


def test_a_bundle_in_which_every_point_is_a_surface_stays_inside_its_arrays() -> None:
    """An oblique pair in two quarters makes two means of two points, then looks at quarters that are empty.

    With n means found, the next quarter's count is element n; `make boundscheck` sees a read behind n elements.
    """
    place = np.array([[0.1, 0.1, 1.0], [0.4, 0.1, 1.5]])
    mean, spread, count = bundle_means(place, np.array([0.1, 0.3]), np.zeros(2), 0.5, 1, 1, 1.7)
    assert count.tolist() == [1, 1] and np.array_equal(mean, place) and spread.tolist() == [0.1, 0.3]


@pytest.mark.parametrize("where", [np.nan, np.inf, -np.inf, 1e300])
def test_a_point_that_is_no_place_is_infinitely_far(where: float) -> None:
    """φ = ∞ and no slope, and the other points are as they were: NaN as an index would read anywhere."""
    body = sample(Box((0.1, 0.1, 0.1)), 0.02)
    points = np.array([[0.08, 0.0, 0.0], [0.0, where, 0.0], [0.0, 0.0, 0.08]])
    out, slopes = np.empty(3), np.empty((3, 3))
    spacing_m = body.spacing_m if where != 1e300 else 1e-10  # 1e300 / 1e-10 is no number either
    distances(points, body.phi_m, body.origin_m, spacing_m, out, slopes)
    assert out[1] == np.inf and np.array_equal(slopes[1], np.zeros(3))
    assert np.isfinite(out[[0, 2]]).all() and np.isfinite(slopes[[0, 2]]).all()


@pytest.mark.parametrize("far_m", [1.0, 1e12])
def test_weights_beyond_numbers_leave_a_rotation(far_m: float) -> None:
    """1/std² of 1e-200 is infinite, and times squares of 1e12 m beyond all numbers: RᵀR = I and a finite cost remain.

    1e-9: a few turns by Rodrigues' formula, each exact to rounding.
    """
    body = sample(Box((0.1, 0.1, 0.1)), 0.02)
    points = far_m * np.random.default_rng(0).uniform(-0.1, 0.1, (50, 3))
    rotations, translations = np.eye(3)[None].copy(), np.full((1, 3), 0.01)
    cost, normal = np.empty(1), np.empty((1, 6, 6))
    grid = (body.phi_m, body.origin_m, body.spacing_m)
    align(points, np.full(50, 1e-200), np.zeros(3), *grid, np.full(4, 0.02), np.array([1e2, 1e4]), rotations,
          translations, cost, normal)  # fmt: skip
    assert rotations[0].T @ rotations[0] == pytest.approx(np.eye(3), abs=1e-9) and np.isfinite(translations).all()
    assert 0 < cost[0] <= 0.02 * (1 + 1e-12)  # a mean of 50 numbers up to 0.02, rounded


def test_pieces_are_marked_as_their_sizes_say() -> None:
    label = np.array([-1, 0, 1, 1, -1, 0])
    why = np.array([0, 0, 0, 5, 3, 0], dtype=np.uint8)
    mark_pieces(label, np.array([True, False]), 9, 10, why)
    assert why.tolist() == [9, 9, 10, 10, 3, 9]


def test_voxel_pieces_are_the_components_of_touching_voxels() -> None:
    rng = np.random.default_rng(3)
    points = np.concatenate([rng.normal(c, 0.3, (80, 3)) for c in rng.uniform(-4, 4, (12, 3))])
    label = np.empty(len(points), dtype=np.int64)
    pieces = cluster_voxels(points, np.ones(len(points), dtype=bool), points.min(axis=0), 0.25, 1, 0.0, 1 << 12, label)
    keys = np.floor((points - points.min(axis=0)) / 0.25)
    pairs = cKDTree(keys).query_pairs(1.0, p=np.inf, output_type="ndarray")
    graph = coo_matrix((np.ones(len(pairs)), pairs.T), shape=(len(points), len(points)))
    expected, truth = connected_components(graph, directed=False)
    assert pieces == expected
    assert len(np.unique(np.stack([label, truth]), axis=1).T) == expected  # the same partition


def test_image_pieces_are_parted_by_depth_steps_and_bridge_lost_pixels() -> None:
    depth = np.full((20, 30), 1.0)
    depth[:, 15:] = 1.2
    points = np.stack([*np.meshgrid(np.arange(30) * 0.002, np.arange(20) * 0.002), depth], axis=-1).reshape(-1, 3)
    used = np.ones(600, dtype=bool).reshape(20, 30)
    used[:, 7] = False  # one lost column does not part the left half
    label = np.empty(600, dtype=np.int64)
    view = (np.zeros(3), np.array([0.0, 0.0, 1.0]), 0.002, 3.7, 3.0)
    assert cluster_image(points, 30, 20, used.ravel(), np.full(600, 0.001), *view, np.zeros(600), label) == 2
    image = label.reshape(20, 30)
    assert (image[:, :7] == 0).all() and (image[:, 8:15] == 0).all() and (image[:, 15:] == 1).all()
    assert (image[:, 7] == -1).all()


def test_pixels_of_a_steep_plane_are_taken_back_and_strays_are_not() -> None:
    # 1/z linear in the column, rising by four times the noise per pixel, so most pixels lack friends where six in ten
    # are lost. On the plane the neighbours foretell each exactly; a stray 50 noises off it does not fit.
    rng = np.random.default_rng(11)
    v, u = np.mgrid[0:24, 0:20]
    depth = 1 / (1.0 - 0.012 * u)
    stray = np.zeros(depth.shape, dtype=bool)
    stray[[5, 12, 18], [6, 10, 14]] = True
    depth[stray] += 0.15
    points = np.stack([0.002 * u * depth, 0.002 * v * depth, depth], axis=-1).reshape(-1, 3)
    lost = (rng.random(depth.shape) < 0.6) & ~stray
    why = lost.astype(np.uint8).ravel()
    std, sight = np.full(points.shape[0], 0.003), (np.zeros(3), np.array([0.0, 0.0, 1.0]), 0.002)
    flying, steep = np.empty(len(points), dtype=bool), np.empty(len(points))
    find_flying(points, 20, 24, why, std, *sight, 1.0, 1.0, 3, flying)
    lonely = flying.copy()
    assert lonely.sum() > 50  # the strict filter throws away much of the plane
    regain_steep(points, 20, 24, why, flying, std, *sight, 0.0, np.tan(1.5), 3.0, 5, steep)
    assert flying[stray.ravel()].all() and (steep[flying] == 0).all()
    inner = ((u > 2) & (u < 17) & (v > 2) & (v < 21)).ravel() & lonely & ~stray.ravel()
    assert flying[inner].mean() < 0.05  # the rest has too few neighbours
    back = lonely & ~flying
    rise = 0.012 * (depth * depth).ravel()  # |d(1/z)/du| z² [m per px]
    np.testing.assert_allclose(steep[back], rise[back], rtol=0.1)  # the best pair's plane, through points within noise


def test_smoothing_leaves_a_slanted_plane_alone_and_does_not_cross_edges() -> None:
    # 1/z = 1 + 0.3 x + 0.2 y is a plane; pairs of opposite pixels keep it to rounding
    y, x = np.mgrid[0:40, 0:50] / 50.0
    plane = 1 / (1 + 0.3 * x + 0.2 * y)
    plane[:, 25:] += 0.3
    out = np.empty_like(plane)
    smooth_depth(plane, np.array([1e-3, 0.0]), 0.02, 3.7, 3.0, 2, out)
    np.testing.assert_allclose(out[:, :25], plane[:, :25], rtol=1e-12)
    assert np.abs(out[:, 25:] - plane[:, 25:]).max() < 1e-3  # + 0.3 bends 1/z a little within the window


def test_incidence_of_a_plane() -> None:
    # plane n·p = c before a pinhole: cos = |n·d| / |d| with unit n; exact because 1/z is linear
    normal = np.array([0.4, -0.3, -0.8])
    normal /= np.linalg.norm(normal)
    lens = np.array([60.0, 58.0, 31.0, 23.5])
    v, u = np.mgrid[0:48, 0:64]
    rays = np.stack([(u - 31.0) / 60.0, (v - 23.5) / 58.0, np.ones(u.shape)], axis=-1)
    depth = -0.7 / (rays @ normal)
    out = np.empty_like(depth)
    incidence(depth, lens, 1, out)
    expected = np.abs(rays @ normal) / np.linalg.norm(rays, axis=-1)
    np.testing.assert_allclose(out, expected, rtol=1e-9)


def test_fusing_an_exact_wall_gives_its_signed_distance() -> None:
    # a wall at z = 1 seen head-on: φ = 1 - z within the truncation, free before it, unknown behind
    depth, shape = np.ones((60, 80)), (9, 9, 41)
    lens = np.array([100.0, 100.0, 39.5, 29.5, 0, 0, 0, 0, 0])
    total, weight, free = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    cosine = np.ones_like(depth)
    args = (depth, np.ones(depth.shape, dtype=bool), cosine, np.array([1e-3, 0.0]), lens)
    integrate(*args, 0.01 * np.eye(3), np.array([-0.04, -0.04, 0.8]), AT_REST, 0.05, total, weight, free)
    z = 0.8 + 0.01 * np.arange(41)
    near = np.abs(1 - z) < 0.0499
    fused, wall = (total / np.maximum(weight, 1e-300))[:, :, near], (1 - z)[near]
    np.testing.assert_allclose(fused, np.broadcast_to(wall, fused.shape), atol=1e-12)
    assert (
        (free[:, :, z < 0.9499] == 1).all()
        and (weight[:, :, z > 1.0501] == 0).all()
        and (free[:, :, z > 0.96] == 0).all()
    )


def test_a_bent_body_is_fused_where_it_is_at_rest() -> None:
    # seen at z = 1, where places had come that lie 2 nodes of 1 cm nearer at rest, and 1 node aside
    depth, shape = np.ones((60, 80)), (9, 9, 41)
    lens = np.array([100.0, 100.0, 39.5, 29.5, 0, 0, 0, 0, 0])
    total, weight, free = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    args = (depth, np.ones(depth.shape, dtype=bool), np.ones_like(depth), np.array([1e-3, 0.0]), lens)
    moved = np.broadcast_to([1.0, 0.0, 2.0], (*shape, 3)).copy()
    integrate(*args, 0.01 * np.eye(3), np.array([-0.04, -0.04, 0.8]), moved, 0.05, total, weight, free)
    z = 0.8 + 0.01 * np.arange(41)
    near = np.abs(0.98 - z) < 0.0499
    fused, wall = (total / np.maximum(weight, 1e-300))[:, :, near], (0.98 - z)[near]
    np.testing.assert_allclose(fused, np.broadcast_to(wall, fused.shape), atol=1e-12)


def test_signed_distance_slopes_match_differences() -> None:
    grid = sample(Box((0.1, 0.08, 0.06)), 0.01)
    points = np.random.default_rng(5).uniform(-0.09, 0.09, (200, 3))  # some lie outside the grid
    value, slope, step = np.empty(200), np.empty((200, 3)), 1e-7
    distances(points, grid.phi_m, grid.origin_m, grid.spacing_m, value, slope)
    low, high, unused = np.empty(200), np.empty(200), np.empty((200, 3))
    inside = (np.abs(points) < np.abs(grid.origin_m) - 1e-3).all(axis=1)
    for axis in range(3):
        shift = step * np.eye(3)[axis]
        distances(points - shift, grid.phi_m, grid.origin_m, grid.spacing_m, low, unused)
        distances(points + shift, grid.phi_m, grid.origin_m, grid.spacing_m, high, unused)
        # φ is trilinear: central differences are exact inside a cell, up to rounding of 1e-17 / 1e-7
        difference = (high - low) / (2 * step)
        assert np.median(np.abs(difference - slope[:, axis])[inside]) < 1e-8
        assert (np.abs(difference - slope[:, axis])[inside] < 1e-6).mean() > 0.97  # a few straddle a cell face


def test_aligning_recovers_a_small_motion_to_rounding() -> None:
    # exact surface points of a brick moved by a known pose: residuals vanish there, so Gauss-Newton must end there
    grid = sample(Box((0.12, 0.08, 0.06)), 0.01)
    rng = np.random.default_rng(6)
    face = rng.integers(0, 3, 400)
    points = rng.uniform(-0.8, 0.8, (400, 3)) * np.array([0.06, 0.04, 0.03])
    points[np.arange(400), face] = np.where(rng.random(400) < 0.5, 1, -1) * np.array([0.06, 0.04, 0.03])[face]
    angle = 0.06
    turn = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    world = points @ turn.T + (0.004, -0.003, 0.002)
    rotations, translations = np.eye(3)[None].copy(), np.zeros((1, 3))
    cost, normal = np.empty(1), np.empty((1, 6, 6))
    model = (grid.phi_m, grid.origin_m, grid.spacing_m)
    steps = (np.full(12, 0.02), np.zeros(2))
    align(world, np.full(400, 1e-3), world.mean(axis=0), *model, *steps, rotations, translations, cost, normal)
    np.testing.assert_allclose(rotations[0], turn, atol=1e-9)
    np.testing.assert_allclose(translations[0], (0.004, -0.003, 0.002), atol=1e-9)
    assert cost[0] == pytest.approx(0.0, abs=1e-9)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    numba = pytest.importorskip("numba")
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("one thread only")
    depth = 1 + 0.05 * np.random.default_rng(7).standard_normal((60, 80))
    lens = np.array([100.0, 100.0, 39.5, 29.5, 0, 0, 0, 0, 0])
    results, before = [], numba.get_num_threads()
    for threads in (1, 2):
        numba.set_num_threads(threads)
        smooth, cosine = np.empty_like(depth), np.empty_like(depth)
        smooth_depth(depth, np.array([0.03, 0.0]), 0.01, 3.7, 3.0, 2, smooth)
        incidence(smooth, lens[:4], 1, cosine)
        field = [np.zeros((20, 20, 20)) for _ in range(3)]
        args = (smooth, np.ones(depth.shape, dtype=bool), cosine, np.array([0.03, 0.0]), lens)
        integrate(*args, 0.02 * np.eye(3), np.array([-0.2, -0.2, 0.8]), AT_REST, 0.1, *field)
        results.append([smooth, cosine, *field])
    numba.set_num_threads(before)
    for one, two in zip(*results):
        assert np.array_equal(one, two)


def test_what_two_scans_cost_each_other_has_its_slope_and_matrix() -> None:
    """Σ r² of either's points in the field of the other, against r and its slopes by `distances`, point by point, and
    the chain rule: a turn about the middle, then a shift. The same sums in another order: to 1e-12 of the largest."""
    rng, grid = np.random.default_rng(4), sample(Box((0.1, 0.08, 0.06)), 0.01)
    fields = (grid.phi_m, grid.phi_m**2)
    origins, spacing = (grid.origin_m, grid.origin_m + 0.001), np.array([grid.spacing_m, grid.spacing_m])
    points = tuple(0.02 * rng.standard_normal((count, 3)) for count in (30, 40))
    turn, shift = Rotation.from_rotvec([0.1, -0.2, 0.3]).as_matrix(), np.array([0.002, -0.001, 0.003])
    middle, matrix, slope = np.array([0.001, 0.002, 0.0]), np.empty((6, 6)), np.empty(6)
    found = two_way(fields[0], origins[0], fields[1], origins[1], spacing, *points, turn, shift, middle, matrix, slope)
    moved = points[1] @ turn.T + shift
    rest, rows = [], []
    for at, field, origin, place, sign in (
        (moved, fields[0], origins[0], moved, 1.0),
        ((points[0] - shift) @ turn, fields[1], origins[1], points[0], -1.0),
    ):
        r, g = np.empty(len(at)), np.empty((len(at), 3))
        distances(np.ascontiguousarray(at), field, origin, grid.spacing_m, r, g)
        g = sign * (g if sign > 0 else g @ turn.T)
        rest.append(r)
        rows.append(np.concatenate([np.cross(place - middle, g), g], axis=1))
    r, j = np.concatenate(rest), np.concatenate(rows)
    assert found == pytest.approx(r @ r, rel=1e-12)
    np.testing.assert_allclose(slope, j.T @ r, atol=1e-12 * np.abs(slope).max())
    np.testing.assert_allclose(matrix, j.T @ j, atol=1e-12 * np.abs(matrix).max())
