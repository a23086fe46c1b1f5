"""A scanned body in a scene: from noisy frames to a body file to a simulation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from perception_scenes import make_body, scan_views

from soft_estimator.cli import main
from soft_estimator.commands.scan import write_body
from soft_estimator.config import load_scene
from soft_estimator.geometry.body_file import write_body as write_grid
from soft_estimator.geometry.shapes import Sphere, sample
from soft_estimator.perception.scan import fuse_scan
from soft_estimator.perception.settings import ScanSettings
from soft_estimator.physics.body import Body
from soft_estimator.scene.scene import build_scene

SCENE = """
name: scanned
body: {{shape: {{scan: {{file: {file}{more}}}}}{grid}}}
material: {{youngs_modulus_pa: 20000.0, density_kg_m3: 500}}
time: {{step_s: 0.004, duration_s: 0.012}}
"""


def write_scene(folder: Path, file: str = "body.npz", more: str = "", grid: str = "") -> Path:
    path = folder / "scene.yaml"
    path.write_text(SCENE.format(file=file, more=more, grid=grid), encoding="utf-8")
    return path


@pytest.mark.slow
def test_eight_noisy_views_of_a_torus_become_a_simulated_body(tmp_path: Path) -> None:
    body = make_body("torus")
    scan = fuse_scan([view.cloud for view in scan_views(body, 8)], ScanSettings(prior="none", target_cells=1500))
    write_body(tmp_path / "body.npz", scan)
    scene = write_scene(tmp_path)
    assert main(["simulate", str(scene), "--out", str(tmp_path / "out"), "--no-pictures"]) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    # the scan's volume is within 3 % of the truth; cells of 9 mm in a ring of 50 mm leave as much again
    volume = build_scene(load_scene(scene), tmp_path).body.volume_m3
    assert volume == pytest.approx(body.volume_m3, rel=0.06)
    assert build_scene(load_scene(scene), tmp_path).mass_kg == pytest.approx(500 * volume)
    assert "mass_kg" in json.dumps(summary)


def test_a_scan_is_turned_moved_and_put_on_another_grid(tmp_path: Path) -> None:
    # a ball about (0, 0, 0.05) turned by -90 degrees about x: z goes to y; then 0.1 along y
    write_grid(tmp_path / "body.npz", sample(Sphere(0.05, (0.0, 0.0, 0.05)), 0.01))
    more, grid = ", rotation_rad: [-1.5707963, 0, 0], shift_m: [0, 0.1, 0]", ", spacing_m: 0.0125"
    made = build_scene(load_scene(write_scene(tmp_path, more=more, grid=grid)), tmp_path)
    assert made.body.volume_m3 == pytest.approx(4 / 3 * np.pi * 0.05**3, rel=0.03)  # sampled twice, 8 cells across
    np.testing.assert_allclose(middle_m(made.body), (0.0, 0.15, 0.0), atol=5e-4)
    made = build_scene(
        load_scene(write_scene(tmp_path, more=", shift_m: [0.2, 0, 0]")), tmp_path
    )  # the file's own grid
    np.testing.assert_allclose(middle_m(made.body), (0.2, 0.0, 0.05), atol=5e-4)
    assert made.body.grid.spacing_m == 0.01


def middle_m(body: Body) -> np.ndarray:
    return body.node_volume_m3 @ body.node_position_m / body.node_volume_m3.sum()


def test_mistakes_are_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.npz").write_text("no archive", encoding="utf-8")
    np.savez(tmp_path / "other.npz", points=np.zeros((4, 3)))
    with (tmp_path / "array.npz").open("wb") as stream:
        np.save(stream, np.zeros(3))
    write_grid(tmp_path / "empty.npz", sample(Sphere(0.05), 0.02))
    with np.load(tmp_path / "empty.npz") as data:
        np.savez(tmp_path / "empty.npz", **{**data, "phi_m": np.abs(data["phi_m"])})
    for file, said in (
        ("nowhere.npz", "'nowhere.npz' is not in"),
        ("text.npz", "is no body file"),
        ("other.npz", "is no body file"),
        ("array.npz", "is no body file"),
        ("empty.npz", "no negative distance"),
    ):
        assert main(["simulate", str(write_scene(tmp_path, file)), "--out", str(tmp_path / "out")]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert said in line and file in line
