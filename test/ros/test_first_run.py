"""What a graph's first run compiles, side by side: both parts run to their end, and know when they are not needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_ball import write_scene

from soft_estimator.backends.cpu.points import kept_on_disk
from soft_estimator.ros import first_run
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
