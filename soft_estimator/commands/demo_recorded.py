"""The demo where there is no ROS: the same job without the graph, from a simulated camera's bag to a report."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from soft_estimator.commands.replay_report import ReportListener

if TYPE_CHECKING:
    from soft_estimator.estimation.window.live_estimate import LiveEstimate
    from soft_estimator.live.bands import BandView
    from soft_estimator.live.replay import ReplayResult
    from soft_estimator.scene.scene import Scene

WHY = (
    "rclpy is not installed (its wheels are for x86-64 Linux; elsewhere ROS 2 comes from its own packages): the same "
    "job runs without the graph, from a simulated camera's bag"
)
_SHOWN_EVERY_S = 0.5


@dataclass
class _Follower:
    """Shows the newest estimate as lines while a bag is replayed, and keeps all of them."""

    show: Callable[[list[str]], None]
    page: ReportListener = field(default_factory=ReportListener)
    estimates: list[LiveEstimate] = field(default_factory=list)
    view: BandView | None = None
    shown_s: float = 0.0

    def begin(self, scene: Scene) -> None:
        from soft_estimator.live.bands import band_view

        self.view = band_view(scene)
        self.page.begin(scene)

    def add(self, estimate: LiveEstimate) -> None:
        self.page.add(estimate)
        self.estimates.append(estimate)
        if self.view is not None and monotonic() - self.shown_s > _SHOWN_EVERY_S:
            self.shown_s = monotonic()
            head = f"{estimate.status}, {estimate.frames_in_window} frames in the window"
            self.show([head, *self.view.lines(estimate.parameters)])

    def files(self, result: ReplayResult) -> dict[str, bytes]:
        return self.page.files(result)


def run_recorded_demo(
    scene_name: str,
    out: Path,
    seconds: float,
    backend: str,
    say: Callable[[str], None],
    show: Callable[[list[str]], None],
) -> tuple[dict[str, Path], dict[str, Any]]:
    """Record a scene for so many seconds, its own duration at most, replay the bag and write everything to `out`.

    Returns: the files by name, and the metrics.
    """
    from soft_estimator.backends import choose_backend
    from soft_estimator.camera.scene_cameras import scene_cameras, scene_lasting
    from soft_estimator.live.replay import replay_bag
    from soft_estimator.live.replay_config import load_replay
    from soft_estimator.live.replay_files import result_files
    from soft_estimator.recordings.record import record_scene
    from soft_estimator.report.twin_animation import animate_estimates
    from soft_estimator.scene.files import read_scene
    from soft_estimator.scene.scene import build_scene

    config, folder = read_scene(scene_name)
    if seconds < config.time.duration_s:
        config = scene_lasting(config, seconds)
    scene_cameras(config)  # what is missing is said before the work starts
    replay, _ = load_replay({"scene": scene_name}, Path())
    chosen = choose_backend(backend, config.solver.precision)
    out.mkdir(parents=True, exist_ok=True)
    bag = out / "bag"
    if bag.exists():
        shutil.rmtree(bag)
    say("recording the simulated camera (the first time its loops are compiled, for a minute or two)")
    record_scene(build_scene(config, folder), chosen, bag)
    say("estimating from the bag, frame by frame as a live camera")
    follower = _Follower(show)
    result = replay_bag(bag, replay, folder, backend=chosen, listener=follower)
    if not follower.estimates:
        why = "; ".join(f"{item.count} frames: {item.example}" for item in result.refusals.most_first()[:2])
        why = f" ({why})" if why else ""
        raise ValueError(f"the bag of {seconds:g} s gave no estimate{why}; watch longer with --seconds")
    say("writing the report")
    content = {**result_files(result), **follower.files(result)}
    for name, text in content.items():
        (out / name).write_bytes(text)
    animate_estimates(out / "animation.gif", result.scene, follower.estimates)
    return {**{name: out / name for name in (*content, "animation.gif")}, "bag": bag}, result.metrics
