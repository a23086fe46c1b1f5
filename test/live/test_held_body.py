"""The pose of a held body is refined live, too, with what clamp and camera are known to as its prior."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from held_beam import ESTIMATE, EXACT, SHIFT_M, TRUTH_PA, beam, seen

from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.live.setup import build_window

CONFIG = WindowConfig(start="scene", least_frames=3, iterations=6)


def watched(window: SlidingWindow, times: float = 1.0) -> LiveEstimate:
    """What a window says last of the beam that is held so many times 3 mm and a degree from where it is told."""
    window.sensor_m = np.array([0.1, 0.2, 0.35])
    for frame in seen(times).frames:
        window.add_frame(5.0 + frame.time_s, frame.points_m, frame.std_m)
    assert window.last is not None
    return window.last


@cache
def found() -> tuple[SlidingWindow, LiveEstimate]:
    window = build_window(beam(20 / 3), CONFIG)
    return window, watched(window)


def test_a_clamp_that_is_off_leaves_the_stiffness_alone() -> None:
    """As `estimate` of the same frames: 4 deviations of what it is known to, so that its prior is taken for too narrow;
    E's interval holds the truth, and the shift across the beam is found to half a millimetre, of which the noise of
    some 1600 points of 0.7 mm makes 0.05."""
    window, last = found()
    (e,) = last.parameters
    assert e.label == "youngs_modulus_pa[0]" and last.verdict.fits and e.observable
    assert e.low < TRUTH_PA < e.high and e.value == pytest.approx(TRUTH_PA, rel=0.2)
    assert abs(last.values.translation_m[2] - SHIFT_M[2]) < 0.0005
    pose = [f"{name}[{k}]" for name in ("translation_m", "rotation_rad") for k in range(3)]
    assert window.lasting.variables.labels[1:] == pose


def test_what_is_passed_on_is_of_what_was_asked_for() -> None:
    """Its variance is that of E alone, whatever the pose is; draws of it have the pose that was found."""
    _, last = found()
    known = last.posterior
    assert known is not None and known.variables.labels == ["youngs_modulus_pa[0]"]
    assert float(np.sqrt(known.covariance[0, 0])) * last.parameters[0].value == pytest.approx(last.parameters[0].std)
    np.testing.assert_allclose(known.draw(1)[0].translation_m, last.values.translation_m, rtol=1e-12)


def test_a_pose_that_is_taken_for_exact_is_called_wrong() -> None:
    window = build_window(beam(20 / 3, estimate={**ESTIMATE, "known_to": EXACT}), CONFIG)
    assert len(window.lasting.variables) == 1
    assert not watched(window).verdict.fits


def test_a_body_that_is_held_elsewhere_is_called_so() -> None:
    """30 mm are 42 of the 0.7 mm that camera and clamp are known to."""
    last = watched(build_window(beam(20 / 3), CONFIG), 10.0)
    assert not last.verdict.fits and not last.parameters[0].observable
