"""The commands scan and inspect, through an argument parser as the command line mounts them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
from perception_scenes import camera_at, make_body, scan_views, shoot, table
from PIL import Image

from soft_estimator.commands.scan import add_inspect_parser, add_scan_parser
from soft_estimator.geometry.body_file import read_body
from soft_estimator.geometry.surface import extract_surface, mesh_volume_m3
from soft_estimator.perception.objects import Why
from soft_estimator.perception.pictures import COLOURS
from soft_estimator.recordings.frame_folder import write_frames


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    add_scan_parser(commands)
    add_inspect_parser(commands)
    args = parser.parse_args(words)
    return int(args.run(args))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frames")
    views = scan_views(make_body("box"), 4)
    write_frames(folder, [view.cloud for view in views], [0.1 * i for i in range(4)])
    return folder


def test_scan_writes_a_body_and_a_preview(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "body.npz"
    assert run("scan", str(recorded), "--out", str(out), "--cells", "1000") == 0
    said = capsys.readouterr().out
    assert "4 frames" in said and "of the surface was seen" in said
    grid = read_body(out)
    surface = extract_surface(grid)
    volume = mesh_volume_m3(surface.positions_m(grid.node_positions_m()), surface.faces)
    assert volume == pytest.approx(1e-3, rel=0.05)  # a litre, its edges cut by cells of 11 mm
    assert (tmp_path / "body.ply").read_bytes().startswith(b"ply")
    # Before anything is read: a scan takes a minute.
    assert run("scan", "nowhere", "--out", str(tmp_path / "body.txt")) == 2
    assert "must end in .npz" in capsys.readouterr().err
    assert run("scan", "nowhere", "--out", str(tmp_path / "nobody" / "body.npz")) == 2
    assert "folder of body file" in capsys.readouterr().err
    with pytest.raises(ValueError, match="cannot be read"):
        read_body(tmp_path / "nothing.npz")


def test_inspect_draws_what_was_kept(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "picture.png"
    assert run("inspect", str(recorded), "--out", str(picture)) == 0
    said = capsys.readouterr().out
    assert "kept" in said and "plane" in said and "flying" in said
    pixels = np.asarray(Image.open(picture)).reshape(-1, 3).astype(float)
    kept = np.array(COLOURS[Why.KEPT], dtype=float)
    # shading scales a colour, so its direction tells it: the box must show in coral
    direction = pixels / np.maximum(np.linalg.norm(pixels, axis=1), 1e-9)[:, None]
    assert (direction @ kept / np.linalg.norm(kept) > 0.9995).sum() > 3000


def test_inspect_says_what_it_took_the_points_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Millimetres, which docs/your_object.md says are noted."""
    cloud = shoot(camera_at(0.4), [table()], 0).cloud
    np.save(tmp_path / "mm.npy", 1e3 * (cloud.flat_m - cloud.sensor_m) @ cloud.rotation)
    run("inspect", str(tmp_path / "mm.npy"), "--out", str(tmp_path / "picture.png"))
    assert "taken for millimetres" in capsys.readouterr().out
    run("inspect", str(tmp_path / "mm.npy"), "--out", str(tmp_path / "picture.png"), "--json")
    assert "taken for millimetres" in " ".join(json.loads(capsys.readouterr().out)["notes"])


def test_inspect_says_why_there_is_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shot = shoot(camera_at(0.4), [table()], 0)
    np.save(tmp_path / "cloud.npy", shot.cloud.flat_m)
    picture = tmp_path / "picture.png"
    assert run("inspect", str(tmp_path / "cloud.npy"), "--out", str(picture)) == 1
    assert "no" in capsys.readouterr().out and picture.is_file()
    assert run("inspect", str(tmp_path / "missing.npy")) == 2
    assert "does not exist" in capsys.readouterr().err
    assert run("inspect", str(tmp_path / "cloud.npy"), "--crop", "1", "0", "0", "0", "1", "1") == 2
    assert "swap them" in capsys.readouterr().err


def test_settings_come_from_a_file_and_flags(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "finder.yaml"
    settings.write_text("noise: {max_depth_m: '30 cm'}\n", encoding="utf-8")
    assert run("inspect", str(recorded), "--settings", str(settings), "--out", str(tmp_path / "a.png")) == 1
    assert "out of range" in capsys.readouterr().out
    settings.write_text("noise: {max_deth_m: 1}\n", encoding="utf-8")
    assert run("inspect", str(recorded), "--settings", str(settings), "--out", str(tmp_path / "a.png")) == 2
    assert "max_depth_m" in capsys.readouterr().err
