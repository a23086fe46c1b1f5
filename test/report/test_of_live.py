"""The report of a live run: what it keeps of the estimates, and what it says about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from soft_estimator.config import SceneConfig
from soft_estimator.estimation.fitting.uncertainty import Estimate
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.window.live_estimate import Counters, LiveEstimate
from soft_estimator.estimation.window.refusals import Refusals
from soft_estimator.report import report_html
from soft_estimator.report.of_live import MOST_MOMENTS, LiveHistory
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import load


@pytest.fixture(scope="module")
def scene() -> Scene:
    data = {
        "name": "box",
        "body": {"shape": {"box": {"size_m": [0.06, 0.02, 0.02]}}, "spacing_m": 0.01},
        "material": {"youngs_modulus_pa": 1e4},
        "contact": {},
        "estimate": {"parameters": ["youngs_modulus_pa"]},
    }
    return build_scene(load(SceneConfig, data, name="scene"), Path())


def estimate_at(scene: Scene, k: int, status: str = "tracking") -> LiveEstimate:
    """The k-th of estimates that approach 10 kPa; the body moves by k mm."""
    n, value = scene.body.node_count, 1e4 * (1 + 1 / (k + 1))
    stiffness = Estimate("youngs_modulus_pa[0]", "Pa", value, 100.0, value - 200, value + 200, True, "")
    vertices = scene.body.surface_positions_m()
    moved = np.full((n, 3), 1e-3 * k)
    return LiveEstimate(
        stamp_s=100.0 + 0.1 * k, status=status, parameters=(stiffness,), values=scene.parameters, u_m=moved,
        v_m_s=np.zeros((n, 3)), a=np.zeros((n, 3)), noise_scale=1.0, cost=10.0 / (k + 1), rms_residual_m=5e-4,
        residual_m=np.full(20, 1e-3), points_m=vertices[:20] + 1e-3 * k, frames_in_window=5, seconds=0.01 * (k + 1),
        notes=("object lost for 0.6 s",) if status == "lost" else (),
    )  # fmt: skip


def test_a_long_run_keeps_its_numbers_and_a_dozen_moments(scene: Scene) -> None:
    history = LiveHistory(scene)
    for k in range(200):
        history.add(estimate_at(scene, k))
    content = history.content(truth={"youngs_modulus_pa[0]": 1e4}, counters=Counters(frames_in=210, frames_used=200))
    (series,) = content.series
    assert len(series.x) == 200 and series.x[0] == 0 and series.x[-1] == pytest.approx(19.9)
    assert series.value[-1] == pytest.approx(1e4 * (1 + 1 / 200)) and series.truth == 1e4
    assert 2 <= len(content.moments) <= MOST_MOMENTS
    times = [m.time_s for m in content.moments]
    assert times[0] == 0 and times[-1] > 15 and times == sorted(times)
    # The body was moved by k mm at 0.1 k seconds, and so were its points.
    rest = scene.body.surface_positions_m()
    for moment in content.moments:
        assert moment.vertices_m - rest == pytest.approx(1e-3 * 10 * moment.time_s, abs=1e-9)
        assert moment.residual_m is not None and np.nanmax(moment.residual_m) == pytest.approx(1e-3)
        assert moment.strain is not None and moment.strain == pytest.approx(0, abs=1e-9)  # a shift strains nothing
    assert content.parameters[0].name == "youngs_modulus_pa" and content.parameters[0].truth == 1e4
    assert ("frames in", "210") in content.facts and dict(content.timing)["an update, median"] == pytest.approx(1.005)
    # 200 Pa to each side of 10 kPa (1 + 1 / (k + 1)) hold 10 kPa from k = 49 on: in 151 of 200 estimates.
    assert content.warnings == ["Young's modulus: only 76 % of the 95 % intervals held the true value."]
    assert content.residual is not None and content.residual.value[0] == 5e-4
    assert "Young&#x27;s modulus" in report_html(replace(content, moments=content.moments[:1]))


def test_a_lost_object_is_said_and_the_last_answer_kept(scene: Scene) -> None:
    history = LiveHistory(scene)
    for k, status in enumerate(("tracking", "tracking", "lost", "lost")):
        history.add(estimate_at(scene, k, status))
    content = history.content()
    assert content.parameters[0].value == pytest.approx(1.5e4)
    said = " ".join(content.warnings)
    assert "lost at the end" in said and "Object lost for 0.6 s (2 times)." in said


def test_the_verdict_comes_first_nothing_is_said_twice_and_the_size_is_there(scene: Scene) -> None:
    """A note of two estimates that the recording's notes hold, too, is one line; a model that does not fit comes first.
    The box is 60 x 20 x 20 mm of 24 cm³."""
    history = LiveHistory(scene)
    wrong = FitVerdict(False, "patches of the surface lie 3 mm off", "shape")
    for k in range(2):
        history.add(replace(estimate_at(scene, k), notes=("its points swing",), verdict=wrong))
    content = history.content(warnings=["Its points swing.", "Closed by a guess."])
    assert content.warnings[0].startswith("The model does not fit: patches of the surface lie 3 mm off.")
    assert content.warnings[1:] == ["Its points swing (2 times).", "Closed by a guess."]
    assert ("size at rest", "60 × 20 × 20 mm, 24 cm³") in content.facts


def test_a_run_without_an_estimate_still_has_a_report(scene: Scene) -> None:
    refusals = Refusals()
    refusals.add(1.0, "hidden by a hand", 7)
    content = LiveHistory(scene).content(refusals=refusals)
    assert not content.parameters and "no frame could be used" in content.warnings[0]
    assert (
        content.warnings[1] == "7 frames: hidden by a hand."
        and ("not used: hidden by a hand", "7 frames") in content.facts
    )
    assert "<h1>box</h1>" in report_html(content)
