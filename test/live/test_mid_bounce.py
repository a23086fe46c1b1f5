"""A ball first seen in the air after a bounce: bent by millimetres and swinging, nobody knows how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from soft_estimator.backends.choose import choose_backend
from soft_estimator.config import SceneConfig
from soft_estimator.live.replay import ReplayResult, replay_bag
from soft_estimator.live.replay_config import load_replay
from soft_estimator.recordings.record import record_scene
from soft_estimator.scene.scene import build_scene
from soft_estimator.schema import load

YOUNG_PA, GUESS_PA = 12e3, 7.2e3
LEFT = 9  # the frame, at 60 Hz, in which the ball's lowest point is 30 mm above the ground; it lands 0.19 s later


def ball(young_pa: float, cell_m: float, **more: Any) -> dict[str, Any]:
    """A ball that is thrown onto a table and leaves it after 0.14 s."""
    return {
        "name": "bounce",
        "body": {"shape": {"sphere": {"radius_m": 0.05, "center_m": [0, 0.11, 0]}}, "spacing_m": cell_m},
        "material": {"youngs_modulus_pa": young_pa, "poissons_ratio": 0.4, "stiffness_damping_s": "0.8 ms"},
        "initial": {"velocity_m_s": [0.1, -0.9, 0]},
        "contact": {"stiffness_pa_per_m": "20 kPa/mm", "sharpness_per_m": "2 1/mm"},
        "time": {"step_s": "4 ms", "duration_s": 0.32},
        "observe": {
            "cameras": [
                {"eye_m": [0.45, 0.25, 0.1], "target_m": [0, 0.06, 0], "width_px": 160, "height_px": 120}
                | {"horizontal_fov_rad": 0.7}
            ],
            "frame_rate_hz": 60,
        },
        **more,
    }


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a camera sees of a ball of finer cells, in a quarter of the steps, with a depth camera's noise."""
    out = tmp_path_factory.mktemp("bounce") / "bag"
    scene = build_scene(load(SceneConfig, ball(YOUNG_PA, 0.010), "scene"), Path())
    record_scene(scene, choose_backend("cpu"), out, topics=("depth",))
    return out


def replayed(bag: Path, frames: int, **more: Any) -> ReplayResult:
    asked = {"parameters": ["youngs_modulus_pa", "plane_offset_m"], "guess": {"youngs_modulus_pa": GUESS_PA}}
    told = ball(GUESS_PA, 0.0145, estimate=asked, **more)
    data = {"scene": told, "frames": f"{LEFT}:{LEFT + frames}", "hold_out": 0}
    return replay_bag(bag, load_replay(data, Path())[0], Path(), backend="cpu")


def test_without_modes_it_is_waited_for(bag: Path) -> None:
    """Points up to 2 mm off the rest shape, together: not one of the first three frames is used."""
    found = replayed(bag, 3)
    assert found.counters.frames_used == 0 and found.rows == []
    assert "waiting for it to be still" in found.metrics["frames"]["not_used_because"][0]["reason"]


@pytest.mark.slow
def test_with_modes_it_tells_its_stiffness_in_the_air(bag: Path) -> None:
    """From the first frame on, without a touch, its swing alone tells E: on cells of 14.5 mm for 10 and in four times
    the steps within 2 %, a third of its deviation."""
    found = replayed(bag, 9, start={"modes": {"count": 8}})
    assert found.counters.frames_used == 9 and found.metrics["frames"]["dropped"] == 0
    e, plane = found.metrics["parameters"]
    assert e["observable"] and abs(e["value"] - YOUNG_PA) < min(1.96 * e["std"], 0.02 * YOUNG_PA)
    assert e["std"] < 0.1 * YOUNG_PA and not plane["observable"]
