"""A small ball that falls onto a table, and its recordings, as fixtures: made once for all tests of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_ball import ball, scene_of

from soft_estimator.backends.choose import choose_backend
from soft_estimator.recordings.record import record_scene
from soft_estimator.scene.scene import Scene


@pytest.fixture(scope="session")
def scene() -> Scene:
    return scene_of()


@pytest.fixture(scope="session")
def bag(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MCAP recording of 9 frames."""
    path = tmp_path_factory.mktemp("bags") / "ball"
    record_scene(scene, choose_backend("cpu"), path)
    return path


@pytest.fixture(scope="session")
def short_scene() -> Scene:
    """Over after 4 frames."""
    return scene_of(observe={**ball()["observe"], "duration_s": 0.045})


@pytest.fixture(scope="session", params=["mcap", "sqlite3"])
def short_bag(request: pytest.FixtureRequest, short_scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short recording in either storage format."""
    path = tmp_path_factory.mktemp("short") / f"short_{request.param}"
    record_scene(short_scene, choose_backend("cpu"), path, request.param)
    return path
