"""Starts in the middle of a motion: seen, waited out, and in the end taken with less trust."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.trajectory import PredictedFrame
from soft_estimator.estimation.window.bent_start import UNEVEN, BentStarts, unevenness

NOISE_M, RADIUS_M, POINTS = 0.0006, 0.05, 400


def first_frame(strain: float, seed: int = 0, noise_m: float = NOISE_M) -> PredictedFrame:
    """A ball's visible half, longer by `strain` along x and thinner across, measured against the round one."""
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((POINTS, 3))
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    normal[:, 0] = np.abs(normal[:, 0])
    swing = RADIUS_M * strain * (normal[:, 0] ** 2 - 0.5 * normal[:, 1] ** 2 - 0.5 * normal[:, 2] ** 2)
    off = swing + noise_m * rng.standard_normal(POINTS)
    frame = ObservedFrame.of(0.0, (RADIUS_M + off)[:, None] * normal, np.full(POINTS, NOISE_M))
    return PredictedFrame(frame, off / NOISE_M, np.zeros((POINTS, 1)), None, None, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", [0.0, 1.0, 2.0])
def test_noise_alone_is_even(noise: float) -> None:
    """Independent errors, whatever their size: the variance neighbours share is zero within 2/sqrt(n) and a bit."""
    found = [unevenness(first_frame(0.0, seed, noise * NOISE_M)) for seed in range(30)]
    assert max(found) < UNEVEN
    assert abs(np.mean(found)) < 0.05


def test_a_swing_of_one_noise_width_is_seen() -> None:
    """1 mm at the poles, half a millimetre on average over the surface, below the noise of any single point."""
    assert min(unevenness(first_frame(0.02, seed)) for seed in range(30)) > UNEVEN


def test_waits_then_starts_with_less_trust() -> None:
    starts = BentStarts()
    for stamp in (10.0, 10.5, 11.4):
        assert "waiting for it to be still" in starts.look(stamp, first_frame(0.03), 1.5)
    assert starts.look(11.6, first_frame(0.03), 1.5) == ""
    assert 0.1 < starts.model_std <= 0.5
    assert "intervals are wider" in starts.notes[0]
    assert starts.look(20.0, first_frame(0.0), 1.5) == ""
    assert starts.model_std == 0.0 and starts.notes == ()


def test_a_refusal_long_ago_does_not_count() -> None:
    starts = BentStarts()
    assert starts.look(10.0, first_frame(0.03), 1.5)
    assert starts.look(60.0, first_frame(0.03), 1.5)
