"""Pictures: projection, shading and files have the properties a reader would check by eye."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from soft_estimator.camera.pinhole import PinholeCamera, depth_image
from soft_estimator.pictures.colours import COLOUR_STOPS, colour_map, to_linear, to_srgb
from soft_estimator.pictures.ground import Ground
from soft_estimator.pictures.renderer import (
    SceneObject,
    _finer,
    auto_camera,
    corner_normals,
    render,
    write_gif,
    write_strip,
)


def ball(radius_m: float = 0.1, rings: int = 24, height_m: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Sphere above the origin, faces turned outwards."""
    polar, around = np.linspace(0, np.pi, rings + 1), np.linspace(0, 2 * np.pi, 2 * rings, endpoint=False)
    flat = [np.outer(np.sin(polar), np.cos(around)), np.outer(np.sin(polar), np.sin(around))]
    grid = np.stack([*flat, np.outer(np.cos(polar), np.ones(2 * rings))], axis=-1)
    i, j = np.meshgrid(np.arange(rings), np.arange(2 * rings), indexing="ij")
    a, b = i * 2 * rings + j, i * 2 * rings + (j + 1) % (2 * rings)
    pair = [np.stack([a, a + 2 * rings, b + 2 * rings], -1), np.stack([a, b + 2 * rings, b], -1)]
    return radius_m * grid.reshape(-1, 3) + (0, 0, height_m), np.concatenate(pair).reshape(-1, 3)


def view(width: int = 120, height: int = 90) -> PinholeCamera:
    return auto_camera((-0.15, -0.15, 0.0), (0.15, 0.15, 0.2), width_px=width, height_px=height)


@pytest.mark.parametrize("up", [(0, 0, 1), (0, 1, 0), (0.2, 0.9, -0.3)])
def test_auto_camera_frames_the_box_tightly(up: tuple[float, float, float]) -> None:
    """All corners project inside the image shrunk by the margin, and one of them onto its border."""
    low, high, margin = np.array([-0.3, 0.1, -0.2]), np.array([0.5, 0.4, 0.9]), 1.2
    camera = auto_camera(low, high, up, 200, 100, margin=margin)
    corners = np.array([(x, y, z) for x in (low[0], high[0]) for y in (low[1], high[1]) for z in (low[2], high[2])])
    x, y, z = camera.to_camera_frame(corners).T
    assert (z > 0).all()
    reach = np.array([np.abs(x / z) * camera.fx_px / 100, np.abs(y / z) * camera.fy_px / 50]) * margin
    assert reach.max() == pytest.approx(1.0, abs=1e-12)


def test_colour_map_runs_from_dark_to_light() -> None:
    """Ends are the ends of the table, brightness rises all the way, values outside are clipped, NaN is the low end."""
    colours = colour_map(np.linspace(2.0, 5.0, 200))
    np.testing.assert_allclose(colours[[0, -1]], COLOUR_STOPS[[0, -1]])
    assert (np.diff(colours @ (0.2126, 0.7152, 0.0722)) > 0).all()
    np.testing.assert_allclose(colour_map(np.array([-9.0, 9.0, np.nan]), 0, 1), COLOUR_STOPS[[0, -1, 0]])
    assert np.isfinite(colour_map(np.full(3, 7.0))).all()  # a constant has no range


def test_corner_normals_are_smooth_on_a_ball_and_flat_on_a_box() -> None:
    """On a sphere they point along the radius to O(h²); at a cube's corners, 55 degrees off, the face's own is kept."""
    vertices, faces = ball(1.0, 40, 0.0)
    radial = np.einsum("fci,fci->fc", corner_normals(vertices, faces), vertices[faces])
    solid = (
        np.linalg.norm(
            np.cross(vertices[faces[:, 1]] - vertices[faces[:, 0]], vertices[faces[:, 2]] - vertices[faces[:, 0]]),
            axis=1,
        )
        > 1e-9
    )
    assert radial[solid].min() > 1 - (np.pi / 40) ** 2
    corner = np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], dtype=float)
    normals = corner_normals(corner, np.array([(0, 2, 1), (0, 1, 3), (0, 3, 2)]))
    np.testing.assert_allclose(normals, np.repeat(-np.eye(3)[[2, 1, 0]][:, None], 3, axis=1), atol=1e-15)


def test_object_is_drawn_where_the_depth_camera_sees_it() -> None:
    """Pixels wholly inside the depth image's outline differ from the empty picture, pixels well outside do not."""
    camera, (vertices, faces) = view(), ball()
    picture = render([SceneObject(vertices, faces, (0.9, 0.1, 0.1))], camera)
    empty = render([], camera)
    assert picture.shape == (90, 120, 3) and picture.dtype == np.uint8
    seen = np.pad(depth_image(camera, vertices, faces) > 0, 1)
    shifts = [seen[1 + i : 91 + i, 1 + j : 121 + j] for i in (-1, 0, 1) for j in (-1, 0, 1)]
    changed = (picture != empty).any(axis=-1)
    assert np.all(shifts, axis=0).sum() > 300
    assert changed[np.all(shifts, axis=0)].all()
    assert not changed[~np.any(shifts, axis=0)].any()
    red, green, _ = picture[np.all(shifts, axis=0)].astype(float).T
    assert red.mean() > 2 * green.mean()


def test_lit_from_above() -> None:
    """The upper part of a ball is brighter than the lower one: sky and key light both come from above."""
    camera, (vertices, faces) = view(), ball()
    seen = depth_image(camera, vertices, faces) > 0
    picture = render([SceneObject(vertices, faces, (0.5, 0.5, 0.5), gloss=0.0)], camera).mean(axis=-1)
    rows = np.nonzero(seen.any(axis=1))[0]
    upper, lower = (picture[r : r + 6][seen[r : r + 6]].mean() for r in (rows[3], rows[-9]))
    assert upper > 1.3 * lower


def test_shadow_darkens_the_ground_and_is_deepest_at_contact() -> None:
    """A ball on the ground keeps both lamp and sky from its foot; held high it takes only the lamp's share away."""
    camera = view()
    plain = Ground(colours=((0.9, 0.9, 0.9), (0.9, 0.9, 0.9)))
    empty = render([], camera, plain).astype(float).mean(axis=-1)
    drops = []
    for height in (0.1, 0.6):
        vertices, faces = ball(height_m=height)
        ground_only = depth_image(camera, *ball(0.105, height_m=height)) == 0
        picture = render([SceneObject(vertices, faces)], camera, plain).astype(float).mean(axis=-1)
        drops.append(np.where(ground_only, empty - picture, 0.0))
    assert drops[0].max() > 1.3 * drops[1].max() > 20
    assert drops[0].min() > -2  # nothing gets brighter
    assert np.abs(drops[0][-3:, :3]).max() < 6  # the near left corner, on the lamp's side


def test_ground_hides_what_is_below_it_and_not_what_is_above() -> None:
    """A ball under the plane is unseen from above; the same plane looked at from below hides nothing."""
    camera, (vertices, faces) = view(), ball(0.05, height_m=-0.2)
    lit = Ground(normal=(0, 0, 2.0), offset_m=0.0)
    buried = render([SceneObject(vertices, faces, (1, 0, 0))], camera, lit).astype(int)
    assert (buried[..., 0] - buried[..., 1]).max() < 40
    below = PinholeCamera.looking_at((0.5, -0.5, -0.5), (0, 0, -0.2), width_px=60, height_px=45)
    seen = render([SceneObject(vertices, faces, (1, 0, 0))], below, lit).astype(int)
    assert (seen[..., 0] - seen[..., 1]).max() > 80


@pytest.mark.parametrize("ground", [None, Ground(tile_m=0.03)], ids=["no ground", "ground"])
def test_a_pixel_is_the_mean_of_its_samples(ground: Ground | None) -> None:
    """Within objects, along their edges and beside them: as a picture with four times the pixels, each of one sample,
    says it in linear light. 1.5 of 255 levels are both pictures' rounding; the shade on the ground is asked for at
    fewer places, and differs where it is narrow: in some 3 % of this small picture."""
    camera, (vertices, faces) = view(), ball()
    fine = _finer(camera, 2)
    item = SceneObject(vertices, faces, (0.9, 0.1, 0.1), gloss=0.0)  # a highlight would be cut off in each sample
    picture, samples = render([item], camera, ground), render([item], fine, ground, supersampling=1)
    mean = to_linear(samples / 255.0).reshape(90, 2, 120, 2, 3).mean(axis=(1, 3))
    off = np.abs(255.0 * to_srgb(mean) - picture)
    edge = np.ptp((depth_image(fine, vertices, faces) > 0).reshape(90, 2, 120, 2).astype(int), axis=(1, 3)) > 0
    assert edge.sum() > 80
    assert np.percentile(off, 95 if ground else 100) < 1.5
    assert np.percentile(off[edge], 80 if ground else 100) < 1.5


def test_same_scene_gives_the_same_picture() -> None:
    vertices, faces = ball()
    item = SceneObject(vertices, faces, colour_map(vertices[:, 2]))
    assert render([item], view(), Ground()).tobytes() == render([item], view(), Ground()).tobytes()


def test_strip_holds_every_picture_in_order(tmp_path: Path) -> None:
    shades = [np.full((40, 60, 3), shade, dtype=np.uint8) for shade in (10, 90, 170)]
    write_strip(tmp_path / "row.png", shades, ["t = 0 s", "t = 1 s"])
    row = np.asarray(Image.open(tmp_path / "row.png"))
    assert row.shape == (40, 3 * 60 + 2 * 2, 3)
    assert [int(row[2, i * 62 + 30, 0]) for i in range(3)] == [10, 90, 170]
    assert (row[:, :60] != 10).any() and not (row[:, 124:] != 170).any()  # captions: on the first, none on the third
    write_strip(tmp_path / "block.png", shades, columns=2)
    assert np.asarray(Image.open(tmp_path / "block.png")).shape == (2 * 40 + 2, 2 * 60 + 2, 3)


def test_gif_plays_every_frame_at_its_time(tmp_path: Path) -> None:
    """Frame count, duration and colours (a few levels of a 192-colour palette) survive."""
    shades = [np.full((30, 40, 3), (shade, 100, 200 - shade), dtype=np.uint8) for shade in (0, 60, 120, 180)]
    write_gif(tmp_path / "a.gif", shades, 0.05)
    with Image.open(tmp_path / "a.gif") as film:
        assert film.n_frames == 4 and film.info["loop"] == 0
        for i, shade in enumerate(shades):
            film.seek(i)
            assert film.info["duration"] == 50
            assert np.abs(np.asarray(film.convert("RGB")).astype(int) - shade).max() <= 6


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one image"):
        write_strip(tmp_path / "a.png", [])
    with pytest.raises(ValueError, match="at least one image"):
        write_gif(tmp_path / "a.gif", [], 0.1)
    with pytest.raises(ValueError, match="differ in size"):
        write_strip(tmp_path / "a.png", [np.zeros((4, 4, 3), np.uint8), np.zeros((4, 5, 3), np.uint8)])
    with pytest.raises(ValueError, match="box"):
        auto_camera((0, 0, 0), (1, -1, 1))
