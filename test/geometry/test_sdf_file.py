"""`.sdf` files: layout, scale, padding, and files that are not what they say."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from soft_estimator.geometry.grid import CORNER_OFFSETS, SignedDistanceGrid
from soft_estimator.geometry.sdf_file import read_sdf, write_sdf, zero_box_sides
from soft_estimator.geometry.shapes import Box, Sphere, sample
from soft_estimator.geometry.surface import extract_surface

REPOSITORY = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("SOFT_ESTIMATOR_DATA", REPOSITORY.parent / "shared" / "data"))


def raw_file(path, voxels_per_unit, offset, phi):
    """Write the layout by hand, node by node: x fastest."""
    nx, ny, nz = phi.shape
    values = [phi[i, j, k] for k in range(nz) for j in range(ny) for i in range(nx)]
    head = np.array([voxels_per_unit, *offset, nx, ny, nz], dtype="<i4").tobytes()
    path.write_bytes(head + np.array(values, dtype="<f4").tobytes())


def some_field():
    phi = np.random.default_rng(0).uniform(0.5, 2, (5, 6, 7)).astype(np.float32)
    phi[1:4, 2:4, 3:5] *= -1
    return phi


def test_layout_and_units(tmp_path):
    """Node (i, j, k) lies at (offset + ijk) / voxels per unit and φ is in voxels."""
    phi = some_field()
    raw_file(tmp_path / "a.sdf", 4, (-3, 2, 10), phi)
    grid = read_sdf(tmp_path / "a.sdf")
    assert grid.shape == (5, 6, 7) and grid.spacing_m == 0.25
    np.testing.assert_array_equal(grid.phi_m, phi * 0.25)
    np.testing.assert_array_equal(grid.origin_m, [-0.75, 0.5, 2.5])
    assert read_sdf(tmp_path / "a.sdf", spacing_m=0.01).spacing_m == 0.01


def test_size_is_the_longest_side_of_the_body(tmp_path):
    """A ball of radius 9.3 voxels read with size 0.5 m has radius 0.25 m. Exact up to float32 φ (1e-6 relative): its
    poles lie on grid lines, along which φ is linear."""
    write_sdf(tmp_path / "ball.sdf", sample(Sphere(9.3), 1.0, align="origin"))
    grid = read_sdf(tmp_path / "ball.sdf", size_m=0.5)
    expected = Sphere(0.25).distance_m(grid.node_positions_m()).reshape(grid.shape)
    np.testing.assert_allclose(grid.phi_m, expected, atol=2e-6)
    box = sample(Box((3.0, 7.5, 5.0)), 1.0, align="origin").phi_m
    np.testing.assert_allclose(zero_box_sides(box), [3.0, 7.5, 5.0], atol=1e-12)


def test_round_trip(tmp_path):
    """Reading back gives the same grid up to float32."""
    grid = sample(Sphere(0.1, (0.03, 0.01, 0.0)), 0.02, align="origin")
    write_sdf(tmp_path / "b.sdf", grid, voxels_per_unit=50)
    back = read_sdf(tmp_path / "b.sdf")
    assert back.shape == grid.shape and back.spacing_m == grid.spacing_m
    np.testing.assert_allclose(back.origin_m, grid.origin_m, atol=1e-15)
    np.testing.assert_allclose(back.phi_m, grid.phi_m, atol=1e-7 * np.abs(grid.phi_m).max())
    with pytest.raises(ValueError, match="not a multiple of the spacing"):
        write_sdf(tmp_path / "c.sdf", SignedDistanceGrid(grid.phi_m, grid.origin_m + 0.005, 0.02))


def test_body_at_the_border_is_closed_off(tmp_path):
    """A ball cut off by two sides of its file gets a layer of outside nodes there, the old nodes keep value and place,
    and the surface is closed (extract_surface refuses a body on the border)."""
    phi = sample(Sphere(4.0), 1.0, align="origin").phi_m[4:, :, :-4]
    raw_file(tmp_path / "cut.sdf", 1, (0, 0, 0), phi)
    grid = read_sdf(tmp_path / "cut.sdf")
    assert grid.shape == (phi.shape[0] + 1, phi.shape[1], phi.shape[2] + 1)
    np.testing.assert_array_equal(grid.origin_m, [-1, 0, 0])
    np.testing.assert_allclose(grid.phi_m[1:, :, :-1], phi, atol=1e-6)
    assert (grid.phi_m[0] > 0).all() and (grid.phi_m[:, :, -1] > 0).all()
    assert len(extract_surface(grid).faces) > 0


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "d.sdf"
    phi = some_field()
    with pytest.raises(ValueError, match="does not exist"):
        read_sdf(path)
    path.write_bytes(b"\0" * 27)
    with pytest.raises(ValueError, match="27 bytes, fewer than the 28"):
        read_sdf(path)
    raw_file(path, 4, (0, 0, 0), phi)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"truncated: size \[5, 6, 7\] needs 868 bytes, the file has 867"):
        read_sdf(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(ValueError, match="followed by other bytes"):
        read_sdf(path)
    path.write_bytes(np.array([1, 0, 0, 0, 2**30, 2**30, 2**30], dtype="<i4").tobytes())
    with pytest.raises(ValueError, match="over the budget"):
        read_sdf(path)
    path.write_bytes(np.array([1, 0, 0, 0, -5, -5, 3], dtype="<i4").tobytes())
    with pytest.raises(ValueError, match="needs at least 1 and 2 nodes a side"):
        read_sdf(path)
    raw_file(path, 4, (0, 0, 0), np.abs(phi))
    with pytest.raises(ValueError, match="no negative distance"):
        read_sdf(path)
    raw_file(path, 4, (0, 0, 0), np.where(phi > 1.9, np.nan, phi))
    with pytest.raises(ValueError, match="NaN"):
        read_sdf(path)
    for bad in ({"size_m": 0.0}, {"spacing_m": -1.0}, {"size_m": 1.0, "spacing_m": 1.0}):
        with pytest.raises(ValueError, match=r"size_m|spacing_m"):
            read_sdf(path, **bad)


def active_nodes(phi):
    """Nodes of the cells that have an inside corner, counted by dilating the inside nodes, cell by cell."""
    inside = phi < 0
    shape = [n - 1 for n in phi.shape]
    views = [tuple(slice(o, o + n) for o, n in zip(offset, shape)) for offset in CORNER_OFFSETS]
    active_cell = np.any([inside[v] for v in views], axis=0)
    mask = np.zeros(phi.shape, dtype=bool)
    for v in views:
        mask[v] |= active_cell
    return int(mask.sum())


@pytest.mark.parametrize(
    ("name", "published"),
    [("bunny_small", 3495), ("bunny_medium", 20800), ("dragon_small", 2700), ("dragon_medium", 13575)],
)
def test_published_bodies(name, published):
    """The active nodes come within 3 % of the published counts, some of which were taken after slivers were dropped.

    φ is a distance in the grid's own unit: neighbours differ by at most the spacing (float32: 1e-5), and somewhere by
    nearly all of it (1 %).
    """
    path = DATA / f"{name}.sdf"
    if not path.is_file():
        pytest.skip("no data")
    grid = read_sdf(path, size_m=0.1)
    assert active_nodes(grid.phi_m) == pytest.approx(published, rel=0.03)
    steepest = max(np.abs(np.diff(grid.phi_m, axis=axis)).max() for axis in range(3)) / grid.spacing_m
    assert 0.99 < steepest < 1 + 1e-5
    surface = extract_surface(grid)
    x = surface.positions_m(grid.node_positions_m())
    assert (x.max(axis=0) - x.min(axis=0)).max() == pytest.approx(0.1, rel=1e-9)
