"""The rasteriser against closed forms: rays meet planes and spheres where algebra says."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from soft_estimator.backends.cpu.raster import rasterise, rasterise_depth
from soft_estimator.backends.cpu.shading import depth_maps, gather_light

OPTICS = (90.0, 95.0, 39.7, 29.2, 80, 60)  # fx, fy, cx, cy [px], width, height


def rays(fx: float, fy: float, cx: float, cy: float, width: int, height: int) -> np.ndarray:
    u, v = np.meshgrid(np.arange(width), np.arange(height))
    return np.stack([(u - cx) / fx, (v - cy) / fy, np.ones(u.shape)], axis=-1)


def globe(centre: tuple[float, float, float], radius: float, rings: int) -> tuple[np.ndarray, np.ndarray]:
    """Latitude-longitude sphere with 2*rings meridians; edges subtend at most pi/rings at the centre."""
    polar = np.linspace(0, np.pi, rings + 1)
    around = np.linspace(0, 2 * np.pi, 2 * rings, endpoint=False)
    grid = np.stack(
        [
            np.outer(np.sin(polar), np.cos(around)),
            np.outer(np.sin(polar), np.sin(around)),
            np.outer(np.cos(polar), np.ones(2 * rings)),
        ],
        axis=-1,
    )
    i, j = np.meshgrid(np.arange(rings), np.arange(2 * rings), indexing="ij")
    here, beside = i * 2 * rings + j, i * 2 * rings + (j + 1) % (2 * rings)
    faces = np.concatenate(
        [np.stack([here, here + 2 * rings, beside + 2 * rings], -1), np.stack([here, beside + 2 * rings, beside], -1)]
    )
    return np.array(centre) + radius * grid.reshape(-1, 3), faces.reshape(-1, 3)


def random_soup(count: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Small triangles at random in front of the camera and around it, some crossing the near plane."""
    rng = np.random.default_rng(seed)
    around = rng.uniform((-2, -2, -0.5), (2, 2, 4), (count - count // 4, 1, 3))
    at_camera = rng.uniform((-0.3, -0.3, -0.2), (0.3, 0.3, 0.4), (count // 4, 1, 3))
    corners = np.concatenate([around, at_camera]) + 0.3 * rng.standard_normal((count, 3, 3))
    return corners.reshape(-1, 3), np.arange(3 * count).reshape(-1, 3)


def brute_force(vertices: np.ndarray, faces: np.ndarray, near: float) -> np.ndarray:
    """Depth by solving t d = a + s (b - a) + r (c - a) for every ray and every triangle."""
    direction = rays(*OPTICS).reshape(-1, 3)
    depth = np.full(len(direction), np.inf)
    for a, b, c in vertices[faces]:
        system = np.empty((len(direction), 3, 3))
        system[:, :, 0], system[:, :, 1], system[:, :, 2] = direction, a - b, a - c
        t, s, r = np.linalg.solve(system, np.broadcast_to(a[:, None], (len(direction), 3, 1)))[..., 0].T
        hit = (s >= 0) & (r >= 0) & (s + r <= 1) & (t >= near)
        depth = np.where(hit & (t < depth), t, depth)
    return depth.reshape(OPTICS[5], OPTICS[4])


@pytest.mark.parametrize("tilt", [(0.0, 0.0), (0.4, -0.2), (-1.1, 0.7)])
def test_tilted_plane_depth_is_exact_at_every_pixel(tilt: tuple[float, float]) -> None:
    """The plane z = 2 + p x + q y meets the ray d at z = 2 / (1 - p dx - q dy), to rounding (1e-12)."""
    p, q = tilt
    # p |dx| + q |dy| < 0.8 over the image, so the plane lies within z < 10 and |x|, |y| < 6 wherever it is seen
    x, y = np.meshgrid([-9.0, -2.0, 3.0, 9.0], [-9.0, -1.0, 2.0, 9.0])
    vertices = np.stack([x.ravel(), y.ravel(), (2 + p * x + q * y).ravel()], axis=-1)
    quads = [(4 * i + j, 4 * i + j + 1, 4 * i + j + 4, 4 * i + j + 5) for i in range(3) for j in range(3)]
    faces = np.array([face for a, b, c, d in quads for face in ((a, b, c), (b, d, c))])
    depth, face, weight = rasterise(vertices, faces, *OPTICS)
    direction = rays(*OPTICS)
    exact = 2.0 / (1.0 - p * direction[..., 0] - q * direction[..., 1])
    np.testing.assert_allclose(depth, exact, rtol=1e-12)
    hit = np.einsum("vuc,vuci->vui", weight, vertices[faces[face]])
    np.testing.assert_allclose(hit, direction * exact[..., None], atol=1e-12 * 20)  # coordinates reach 20 m
    assert weight.min() >= 0
    np.testing.assert_allclose(weight.sum(axis=-1), 1.0, atol=1e-14)


def test_sphere_depth_within_the_sag_of_its_facets() -> None:
    """Facets lie between the sphere and one shrunk by the sag R (1 - cos(edge angle)), so the depths do too."""
    radius, centre = 0.5, np.array([0.1, -0.05, 2.0])
    vertices, faces = globe(tuple(centre), radius, 60)
    depth, face, _ = rasterise(vertices, faces, *OPTICS)
    direction = rays(*OPTICS)

    def sphere_depth(r: float) -> np.ndarray:
        along, square = direction @ centre, (direction**2).sum(axis=-1)
        root = along**2 - square * (centre @ centre - r**2)
        return np.where(root >= 0, (along - np.sqrt(np.maximum(root, 0))) / square, np.inf)

    outer, inner = sphere_depth(radius), sphere_depth(radius * np.cos(np.pi / 60))
    assert np.isfinite(depth).sum() > 1000
    assert (depth >= outer - 1e-12).all()
    assert (depth <= inner + 1e-12).all()
    assert ((face >= 0) == np.isfinite(depth)).all()


def test_no_ray_slips_between_neighbours() -> None:
    """Every ray inside the outline of a rough sheet hits it, though most run through a vertex or an edge."""
    optics = (100.0, 100.0, 40.0, 30.0, 81, 61)
    n = 21
    x, y = np.meshgrid(np.linspace(-0.2, 0.2, n), np.linspace(-0.2, 0.2, n))  # vertices on pixel centres at z = 1
    vertices = np.stack([x.ravel(), y.ravel(), np.ones(n * n)], axis=-1) * np.random.default_rng(0).uniform(
        1, 3, (n * n, 1)
    )
    i, j = np.meshgrid(np.arange(n - 1), np.arange(n - 1), indexing="ij")
    a = (i * n + j).ravel()
    faces = np.concatenate([np.stack([a, a + 1, a + n], -1), np.stack([a + 1, a + n + 1, a + n], -1)])
    depth, _ = rasterise_depth(vertices, faces, *optics)
    assert np.isfinite(depth[30 - 19 : 30 + 20, 40 - 19 : 40 + 20]).all()
    assert np.isinf(depth[30 - 22]).all()


def test_random_triangles_agree_with_ray_by_ray_solution() -> None:
    """Occlusion, both windings, near plane, triangles behind: all as a 3x3 solve per ray and triangle says.

    A ray that meets an outline within rounding may fall either way: none does in these soups.
    """
    near, through_near_plane, empty = 0.05, 0, 0
    for seed in range(6):
        vertices, faces = random_soup(16, seed)
        depth, face, weight = rasterise(vertices, faces, *OPTICS, near=near)
        # 1e-9: the 3x3 systems of slender or grazing triangles are conditioned up to about 1e5
        np.testing.assert_allclose(depth, brute_force(vertices, faces, near), rtol=1e-9)
        seen = face >= 0
        hit = np.einsum("nc,nci->ni", weight[seen], vertices[faces[face[seen]]])
        np.testing.assert_allclose(hit, rays(*OPTICS)[seen] * depth[seen][:, None], atol=1e-10)
        crossing = (vertices[faces][..., 2].min(axis=1) < near) & (vertices[faces][..., 2].max(axis=1) > near)
        through_near_plane += crossing[face[seen]].sum()
        empty += (~seen).sum()
    assert through_near_plane > 100 and empty > 100  # both really occur


def test_floor_that_runs_under_and_behind_the_camera() -> None:
    """One triangle of the plane y = 1, from far behind to far ahead: depth 1 / dy below the horizon, nothing above."""
    vertices = np.array([(-1e3, 1.0, -500.0), (1e3, 1.0, -500.0), (0.0, 1.0, 5e4)])
    depth, _ = rasterise_depth(vertices, np.array([(0, 1, 2)]), *OPTICS)
    dy = rays(*OPTICS)[..., 1]
    np.testing.assert_allclose(depth[dy > 0], 1.0 / dy[dy > 0], rtol=1e-12)
    assert np.isinf(depth[dy <= 0]).all()


def test_near_surface_is_cut_away_and_farther_one_seen() -> None:
    """A wall at 0.5 m is invisible with near = 0.6 m; the wall behind it at 1 m is seen instead."""
    wall = np.array([(-9, -9, 1), (9, -9, 1), (0, 18, 1)], dtype=float)
    vertices = np.concatenate([wall * (1, 1, 0.5), wall])
    faces = np.array([(0, 1, 2), (3, 4, 5)])
    assert (rasterise_depth(vertices, faces, *OPTICS)[0] == 0.5).all()
    assert (rasterise_depth(vertices, faces, *OPTICS, near=0.6)[0] == 1.0).all()


def test_equal_depth_goes_to_the_lowest_face() -> None:
    wall = np.array([(-9, -9, 1), (9, -9, 1), (0, 18, 1)], dtype=float)
    _, face = rasterise_depth(wall, np.array([(0, 2, 1), (0, 1, 2), (1, 2, 0)]), *OPTICS)
    assert (face == 0).all()


def test_nothing_to_draw() -> None:
    """No triangles, none in view, and triangles without area all give an empty image."""
    behind = np.array([(-1, -1, -2), (1, -1, -2), (0, 1, -2)], dtype=float)
    line = np.array([(-1, 0, 2), (0, 0, 2), (1, 0, 2)], dtype=float)
    for vertices, faces in ((np.empty((0, 3)), np.empty((0, 3), int)), (behind, [(0, 1, 2)]), (line, [(0, 1, 2)])):
        depth, face, weight = rasterise(vertices, np.array(faces), *OPTICS)
        assert np.isinf(depth).all() and (face == -1).all() and not weight.any()


def test_same_bits_for_any_thread_count() -> None:
    vertices, faces = random_soup(2000, seed=5)
    threads = numba.get_num_threads()
    try:
        results = []
        for count in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
            numba.set_num_threads(count)
            results.append([array.tobytes() for array in rasterise(vertices, faces, *OPTICS)])
    finally:
        numba.set_num_threads(threads)
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("vertices", "faces", "word"),
    [
        (np.zeros((3, 2)), [(0, 1, 2)], "vertices"),
        (np.zeros((3, 3)), [(0, 1, 3)], "0..2"),
        (np.full((3, 3), np.nan), [(0, 1, 2)], "NaN"),
        (np.zeros((4, 3)), [(0, 1, 2, 3)], "triangles"),
    ],
)
def test_bad_meshes_are_named(vertices: np.ndarray, faces: list, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        rasterise(vertices, np.array(faces), *OPTICS)


def test_light_follows_the_cosine_and_stops_at_a_blocker() -> None:
    """One lamp at (0, 0, 10) looking down: light = weight * cos, 0 where its map records something nearer."""
    rotation = np.diag([1.0, -1.0, -1.0])[None]
    maps = np.full((1, 33, 33), np.inf)
    maps[0, :, :12] = 9.0  # a blocker at z = 1 over the low-u side, which is x < -1.2 at focal 40 px and depth 10
    points = np.array([(-3.0, 0, 0), (-3.0, 0, 1.0), (3.0, 0, 0), (3.0, 0, 0), (3.0, 0, 0)])
    tilt = np.radians(60)
    normals = np.array([(0, 0, 1), (0, 0, 1), (0, 0, 1), (np.sin(tilt), 0, np.cos(tilt)), (0, 0, -1)], dtype=float)
    position = np.array([(0.0, 0.0, 10.0)])
    light = gather_light(points, normals, position, rotation, np.array([2.0]), 40.0, maps, 0.01)
    np.testing.assert_allclose(light, (0, 2, 2, 1, 0), atol=1e-12)


def test_each_lamp_sees_the_depth_that_a_camera_there_would() -> None:
    """Of a globe and large triangles that cut it, from three lamps; to the rounding of another order of sums."""
    ball, of_ball = globe((0.1, 0.0, 0.2), 0.5, 20)
    rng = np.random.default_rng(8)
    vertices, faces = np.concatenate([ball, rng.normal(0, 0.4, (12, 3))]), np.arange(12).reshape(-1, 3) + len(ball)
    faces = np.concatenate([of_ball, faces])
    frames = np.linalg.qr(rng.standard_normal((3, 3, 3)))[0]
    positions, focal, size = -6.0 * frames[:, :, 2], 200.0, 64
    maps = depth_maps(vertices, faces, positions, frames, focal, size)
    for seen, position, frame in zip(maps, positions, frames):
        optics = (focal, focal, 0.5 * (size - 1), 0.5 * (size - 1), size, size)
        depth, _ = rasterise_depth((vertices - position) @ frame, faces, *optics)
        assert np.isfinite(depth).mean() > 0.1
        np.testing.assert_allclose(seen, depth, rtol=1e-12)


def test_points_ask_the_lamps_of_their_turn() -> None:
    """With two turns the light of a point is that of every other lamp, whether or not others ask beside it."""
    rotation = np.repeat(np.diag([1.0, -1.0, -1.0])[None], 5, axis=0)
    weights, normals = np.array([1.0, 20.0, 300.0, 4000.0, 50000.0]), np.tile([0.0, 0.0, 1.0], (3000, 1))
    points = np.random.default_rng(2).normal(0, 0.1, (3000, 3))
    lamps = (np.tile([0.0, 0.0, 10.0], (5, 1)), rotation, weights, 40.0, np.full((5, 8, 8), np.inf), 0.01)
    turn = np.repeat([0, 1], [1700, 1300])  # the change of turns lies within a chunk
    light = gather_light(points, normals, *lamps, turn, 2)
    np.testing.assert_allclose(light, np.where(turn == 0, 50301.0, 4020.0))
    np.testing.assert_allclose(gather_light(points, normals, *lamps), 54321.0)
