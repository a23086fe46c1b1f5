"""`view --replay` opens a folder that `measure` wrote: the recording and the scene stand in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from soft_estimator.commands.view import measured


def test_a_measured_folder_names_its_recording_and_scene(tmp_path: Path) -> None:
    bag, out = tmp_path / "bag", tmp_path / "out"
    for folder in (bag, out):
        folder.mkdir()
    assert measured(bag) == (bag, "demo_drop") and measured(None) == (None, "demo_drop")
    (out / "measurement.json").write_text(json.dumps({"recording": str(bag)}))
    assert measured(out) == (bag, str(out / "scene.yaml"))


@pytest.mark.parametrize("text", ["no json", "{}", "[1]", json.dumps({"recording": "/nowhere/bag"})])
def test_a_folder_that_does_not_lead_on_is_refused_in_a_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "measurement.json").write_text(text)
    with pytest.raises(ValueError, match=r"measurement\.json (is no result|names the recording)"):
        measured(tmp_path)
