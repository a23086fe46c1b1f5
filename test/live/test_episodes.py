"""Episodes end at a gap and where time goes back."""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.window.incoming import OUT_OF_ORDER_S
from soft_estimator.live.episodes import EpisodeWatch
from soft_estimator.live.pipeline import LivePipeline
from soft_estimator.perception.cloud import cloud_from_points
from soft_estimator.perception.settings import FinderSettings
from soft_estimator.scene.scene import Scene


def test_frames_follow_until_a_gap_or_a_jump_back() -> None:
    watch = EpisodeWatch()
    assert [watch.jump(t, 1.0) for t in (5.0, 5.5, 6.5)] == ["", "", ""]  # a gap of exactly 1 s is none
    assert watch.jump(7.6, 1.0) == "no cloud for 1.1 s"
    assert watch.jump(7.6, 1.0) == ""
    assert watch.jump(3.6, 1.0) == "time went back by 4.000 s"
    assert watch.jump(3.7, 1.0) == ""


def test_a_straggler_neither_ends_an_episode_nor_sets_its_clock_back() -> None:
    watch = EpisodeWatch()
    assert [watch.jump(t, 1.0) for t in (5.0, 5.0 - 0.9 * OUT_OF_ORDER_S, 6.0)] == ["", "", ""]
    # 1.9 s after the newest: had the straggler moved the clock back, the gap would be told as 2.1 s
    assert [watch.jump(t, 1.0) for t in (6.0 - 0.9 * OUT_OF_ORDER_S, 7.9)] == ["", "no cloud for 1.9 s"]


@pytest.mark.parametrize(("gap_s", "follows"), [(0.1, True), (1.5, False), (-3.0, False)])
def test_the_pipeline_looks_for_the_object_anew_after_an_episode(scene: Scene, gap_s: float, follows: bool) -> None:
    # A track that goes on knows how the object moved, v = Δx / Δt; one that begins knows no motion.
    pipeline = LivePipeline(scene, FinderSettings(support="none"), WindowConfig(start="scene"))
    rng, pose = np.random.default_rng(0), np.eye(4)
    pose[:3, 3] = [0.0, 0.075, -0.5]
    side = rng.normal(size=(3000, 3))
    ball = 0.05 * side / np.linalg.norm(side, axis=1, keepdims=True) + [0.0, 0.0, 0.5]
    for stamp_s, moved_m in ((10.0, 0.0), (10.0 + gap_s, 0.01)):
        pipeline.add_cloud(stamp_s, cloud_from_points(ball + np.array([0.0, moved_m, 0.0]), pose))
    track = pipeline.finder.track
    assert track is not None
    speed = 0.01 / gap_s if follows else 0.0
    np.testing.assert_allclose(track.velocity_m, [0, speed, 0], atol=1e-9)
