"""Rest shapes from scans: volume, surface and stated coverage against the truth."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from perception_scenes import camera_at, has_bunny, judge_scan, make_body, pose_of, scan_views, shoot, table

from soft_estimator.geometry.surface import extract_surface, mesh_volume_m3
from soft_estimator.perception.cloud import cloud_from_depth, cloud_from_points
from soft_estimator.perception.fusion import depth_image_of
from soft_estimator.perception.open3d_import import import_open3d
from soft_estimator.perception.rest_shape import count_active_cells
from soft_estimator.perception.scan import fuse_scan
from soft_estimator.perception.settings import FinderSettings, NoiseSettings, ScanSettings


@cache
def seen(name: str, *how: float) -> tuple[Any, list[Any]]:
    """A body and the views of it, made once: drawing them takes longer than most of what is tested on them."""
    body = make_body(name)
    return body, scan_views(body, *how)


NEEDS_BUNNY = pytest.mark.skipif(not has_bunny(), reason="needs the data folder")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torus", pytest.param("bunny", marks=NEEDS_BUNNY)])
def test_eight_noisy_views_give_the_shape(name: str) -> None:
    # required: volume within 3 %, surface within one voxel. All of the surface that was seen is, be it the scan or the
    # truth that tells what was seen. Under the body, where no camera sees, space up to the first ray that does is body:
    # two voxels at most here.
    body, views = seen(name, 8)
    scan = fuse_scan([view.cloud for view in views], ScanSettings(prior="none"))
    judged = judge_scan(body, scan, views)
    assert abs(judged["volume"]) < 0.03
    assert judged["seen_max_mm"] < judged["voxel_mm"] and judged["true_seen_max_mm"] < judged["voxel_mm"]
    assert judged["p95_mm"] < judged["voxel_mm"] and judged["back_p95_mm"] < judged["voxel_mm"]
    assert judged["unseen_max_mm"] < 2 * judged["voxel_mm"]
    assert abs(judged["coverage"] - judged["true_coverage"]) < 0.08
    assert count_active_cells(scan.grid) == pytest.approx(4000, rel=0.1)
    surface = extract_surface(scan.grid)  # the grid is closed and holds the same body
    coarse = mesh_volume_m3(surface.positions_m(scan.grid.node_positions_m()), surface.faces)
    assert coarse == pytest.approx(scan.volume_m3, rel=0.03)  # cells of 6 mm cut edges and bumps


@pytest.mark.parametrize(
    ("name", "prior"), [("box", "extrusion"), ("box", "half_turn"), ("ball", "revolution"), ("torus", "revolution")]
)
def test_one_view_and_a_prior_give_the_volume(name: str, prior: str) -> None:
    # required: stated coverage, volume within 15 %
    body, views = seen(name, 1, 5, 0.4)
    settings = ScanSettings(prior=prior) if prior == "extrusion" else ScanSettings(prior="symmetry", symmetry=prior)
    judged = judge_scan(body, fuse_scan([views[0].cloud], settings), views)
    assert abs(judged["volume"]) < 0.15
    assert abs(judged["coverage"] - judged["true_coverage"]) < 0.1
    assert 0.2 < judged["coverage"] < 0.6


def test_poisson_closes_the_back() -> None:
    pytest.importorskip("open3d", exc_type=ImportError)
    body, views = seen("ball", 1, 5, 0.4)
    judged = judge_scan(body, fuse_scan([views[0].cloud], ScanSettings(prior="poisson")), views)
    assert abs(judged["volume"]) < 0.15


def test_a_mirror_finds_its_plane() -> None:
    # the brick seen along its long side: mirrored at a plane through its middle, across the view
    body = make_body("brick")
    views = scan_views(body, 1, 5, 0.5)
    scan = fuse_scan([views[0].cloud], ScanSettings(prior="symmetry", symmetry="mirror"))
    assert any(note.startswith("mirror at") for note in scan.notes)
    assert judge_scan(body, scan, views)["volume"] > -0.1


def test_bare_points_fuse_like_the_depth_image_they_came_from() -> None:
    # organised points without intrinsics: the pinhole is fitted to them, so the result is the same up to rounding
    body, (shot,) = seen("ball", 1, 5, 0.4)
    local = (shot.cloud.points_m - shot.camera.position_m) @ shot.camera.rotation
    settings = ScanSettings(prior="symmetry", symmetry="revolution", target_cells=1000)
    a = fuse_scan([shot.cloud], settings)
    b = fuse_scan([cloud_from_points(local, pose_of(shot.camera))], settings)
    assert b.volume_m3 == pytest.approx(a.volume_m3, rel=1e-3)
    loose = cloud_from_points(local.reshape(-1, 3), pose_of(shot.camera))  # no image order at all: drawn anew
    c = fuse_scan([loose], settings)
    assert c.volume_m3 == pytest.approx(body.volume_m3, rel=0.15)


@pytest.mark.slow
def test_eight_views_in_no_order_give_the_shape() -> None:
    # the same is required of them as of images: volume within 3 %, the seen surface within one voxel
    (body, views), clouds = seen("torus", 8), []
    for i, shot in enumerate(views):
        local = (shot.cloud.flat_m - shot.camera.position_m) @ shot.camera.rotation
        clouds.append(cloud_from_points(np.random.default_rng(i).permutation(local), pose_of(shot.camera)))
    judged = judge_scan(body, fuse_scan(clouds, ScanSettings(prior="none")), views)
    assert abs(judged["volume"]) < 0.03
    assert judged["seen_max_mm"] < judged["voxel_mm"] and judged["true_seen_max_mm"] < judged["voxel_mm"]


def test_points_in_no_order_are_drawn_on_their_surface_not_before_it() -> None:
    # A wall at 1 m, where the noise is 3 mm, and another 0.1 m behind it that shines through. A pixel's points are one
    # wall's: no depth lies between. The near wall's mean has a standard error of σ / √pixels at most; the nearest of a
    # pixel's points would lie a quarter of σ before it, 20 standard errors.
    rng, noise = np.random.default_rng(4), NoiseSettings()
    wall = np.where(rng.random(30000) < 0.3, 1.1, 1.0)
    depth = wall + (noise.floor_m + noise.per_m * wall**2) * rng.standard_normal(len(wall))
    points = np.column_stack([rng.uniform(-0.3, 0.3, (len(wall), 2)), np.ones(len(wall))]) * depth[:, None]
    image, lens, index = depth_image_of(cloud_from_points(points), np.ones(len(wall), dtype=bool), noise)
    drawn = image[image > 0]
    assert len(drawn) > 0.55 * image.size and lens.width_px == pytest.approx(np.sqrt(len(wall)), abs=2)
    assert (np.minimum(np.abs(drawn - 1.0), np.abs(drawn - 1.1)) < 0.016).all()  # five σ
    near = image[(image > 0) & (image < 1.05)]
    assert abs(near.mean() - 1.0) < 4 * 0.003 / np.sqrt(len(near))
    assert (np.abs(depth[index[image > 0]] - drawn) < 0.016).all()  # the point that stands for a pixel is of its wall
    far = depth_image_of(cloud_from_points(points), wall > 1.05, noise)[0]  # what is not used hides nothing
    assert (far[far > 0] > 1.05).all() and (far > 0).sum() > 0.2 * far.size


def test_two_scans_agree_to_the_bit() -> None:
    _, (shot,) = seen("box", 1, 5, 0.4)
    a, b = (fuse_scan([shot.cloud], ScanSettings(prior="extrusion", target_cells=500)) for _ in range(2))
    assert np.array_equal(a.grid.phi_m, b.grid.phi_m) and a.coverage == b.coverage


def test_what_cannot_be_fused_is_named() -> None:
    shot = shoot(camera_at(0.4), [table()], 0)
    with pytest.raises(ValueError, match="no frame of the scan shows the object"):
        fuse_scan([shot.cloud])
    with pytest.raises(ValueError, match="there are no frames"):
        fuse_scan([])
    box = shoot(camera_at(0.4), [make_body("box").mesh, table()], 0)
    with pytest.raises(ValueError, match="node_budget"):
        fuse_scan([box.cloud], ScanSettings(voxel_m=0.0002))
    wrong = pose_of(box.camera)
    turn = np.array([[1, 0, 0], [0, np.cos(0.3), -np.sin(0.3)], [0, np.sin(0.3), np.cos(0.3)]])
    wrong[:3, :3] = turn @ wrong[:3, :3]
    assert box.cloud.lens is not None
    tilted = cloud_from_depth(box.depth_m, box.cloud.lens, wrong)
    with pytest.raises(ValueError, match="support planes differ"):
        fuse_scan([box.cloud, tilted], finder=FinderSettings())


def test_without_open3d_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open3d", None)  # importing it now fails, as where it is not installed
    _, (shot,) = seen("ball", 1, 5, 0.4)
    with pytest.raises(ValueError, match=r"pip install 'soft_estimator\[perception\]'"):
        fuse_scan([shot.cloud], ScanSettings(prior="poisson"))


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("libgfortran.so.5: cannot open shared object file: No such file or directory", "apt install libgfortran5"),
        ("libusb-1.0.so.0: cannot open shared object file", "apt install libusb-1.0-0"),
        ("No module named 'open3d'", "pip install 'soft_estimator[perception]'"),
    ],
)
def test_an_open3d_that_lacks_a_system_library_names_its_package(
    reason: str, remedy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A module of that name whose import fails with the loader's words: one line, the words, the remedy."""
    (tmp_path / "open3d.py").write_text(f"raise ImportError({reason!r})\n")
    monkeypatch.delitem(sys.modules, "open3d", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError) as caught:
        import_open3d()
    assert str(caught.value) == f"this needs Open3D ({reason}); run: {remedy}"
