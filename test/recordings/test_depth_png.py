"""16-bit PNG depth images with a camera.json: the same clouds as the same depths in a .npy file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from soft_estimator.recordings.opening import open_recording

CAMERA = {"width": 24, "height": 18, "fx": 30.0, "fy": 30.0, "cx": 11.5, "cy": 8.5}
DEPTH_MM = np.random.default_rng(0).integers(400, 900, (18, 24)).astype(np.uint16)


def folder_of(path: Path, picture: Image.Image, **more: object) -> Path:
    picture.save(path / "0.png")
    (path / "stamps.csv").write_text("0.png,0.5\n")
    (path / "camera.json").write_text(json.dumps({**CAMERA, **more}))
    return path


def test_millimetres_are_read_as_from_an_array(tmp_path: Path) -> None:
    """z is the pixel in metres, exactly; x = (u - cx) / fx z to rounding of a product."""
    with open_recording(folder_of(tmp_path, Image.fromarray(DEPTH_MM))) as recording:
        cloud = recording[0].usable()
    np.testing.assert_allclose(cloud.points_m[..., 2], 1e-3 * DEPTH_MM, rtol=1e-12)
    u = np.arange(24)[None, :]
    np.testing.assert_allclose(cloud.points_m[..., 0], (u - 11.5) / 30.0 * 1e-3 * DEPTH_MM, rtol=1e-12)


def test_another_unit_is_named_in_the_camera_file(tmp_path: Path) -> None:
    """5000 units a metre, as some data sets have it; single precision keeps 1e-7 of a depth."""
    with open_recording(folder_of(tmp_path, Image.fromarray(DEPTH_MM * 5), depth_unit_m=0.0002)) as recording:
        np.testing.assert_allclose(recording[0].usable().points_m[..., 2], 1e-3 * DEPTH_MM, rtol=1e-6)


@pytest.mark.parametrize(
    ("picture", "more", "said"),
    [
        (Image.fromarray(np.zeros((18, 24, 3), dtype=np.uint8)), {}, "not a depth image; write 16 bits"),
        (Image.fromarray(DEPTH_MM), {"depth_unit_m": "mm"}, "give metres such as 0.001"),
    ],
)
def test_what_is_no_depth_image_is_named(tmp_path: Path, picture: Image.Image, more: dict, said: str) -> None:
    with open_recording(folder_of(tmp_path, picture, **more)) as recording:
        assert said in recording[0].problem


def test_a_damaged_file_costs_itself_only(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, Image.fromarray(DEPTH_MM))
    (folder / "1.png").write_bytes(b"\x89PNG no more")
    (folder / "stamps.csv").write_text("0.png,0.5\n1.png,0.6\n")
    with open_recording(folder) as recording:
        first, second = recording
    assert first.cloud is not None and "1.png cannot be read" in second.problem
