"""What a graph's first run compiles, side by side: both parts run to their end, and know when they are not needed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_ball import write_scene

from soft_estimator.backends.cpu.points import kept_on_disk
from soft_estimator.live.setup import build_window
from soft_estimator.ros import first_run
from soft_estimator.scene.files import read_scene
from soft_estimator.scene.scene import build_scene

ASKS = "from soft_estimator.backends.cpu.points import kept_on_disk; print(kept_on_disk())"


def test_the_first_part_is_beside_the_second_where_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if nothing were kept: the scene comes back built, and the second process has ended well."""
    begun = []
    monkeypatch.setattr(first_run, "kept_on_disk", lambda: False)
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: begun.append(real(*a, **k)) or begun[-1])
    scene = first_run.compiled_scene(str(write_scene(tmp_path)), "cpu")
    assert scene.body.cell_count > 50 and [process.returncode for process in begun] == [0]


@pytest.mark.parametrize("lift_m", [0.0, 0.3])
def test_what_a_touch_needs_is_compiled_before_the_first(tmp_path: Path, lift_m: float) -> None:
    """The body is pressed half a cell into its plane, wherever the scene lets it begin."""
    config, folder = read_scene(str(write_scene(tmp_path)))
    scene = build_scene(config, folder)
    p = scene.parameters
    lifted = replace(scene, parameters=p.replace(translation_m=p.translation_m + np.array([0.0, 0.0, lift_m])))
    pressed = first_run._pressed(lifted)
    window = build_window(pressed)
    fit, _ = window.episodes.begin(None, None)
    assert fit is not None
    values = fit.motion.parameters(fit.at.z)
    surface_m = scene.body.surface_positions_m() + values.translation_m
    deepest_m = (surface_m @ p.plane_normal).min() + p.plane_offset_m
    assert deepest_m == pytest.approx(-0.5 * scene.body.grid.spacing_m, rel=1e-9)


def test_an_error_ends_the_second_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    monkeypatch.setattr(first_run, "kept_on_disk", lambda: False)
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: begun.append(real(*a, **k)) or begun[-1])
    monkeypatch.setattr(first_run, "build_scene", lambda *a: build_scene(*a) and 1 / 0)
    with pytest.raises(ZeroDivisionError):
        first_run.compiled_scene(str(write_scene(tmp_path)), "cpu")
    assert begun[0].wait(60) != 0


def test_what_is_kept_is_known(tmp_path: Path) -> None:
    assert kept_on_disk()
    fresh = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", ASKS], env=fresh, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"
