"""The live estimator's time table without a graph: drops, a late cloud node and a late window, in virtual time.

    python benchmark/bench_live_schedule.py [--seconds 40] [--seeds 4] [--first 0] [--slower 1.4] [--cloud-ms 75]
                                            [--scene demo_drop] [--count] [--json FILE]

What the graph of nodes does (`bench_live_graph`) depends on what else the machine does in that minute: of the same code
it gave 7 to 50 estimates in 40 s. Here one process takes in what a camera sends at 30 frames a second in drops, begun
anywhere, after a cloud node with a queue of its own; the clock goes on by the processor's seconds that each update
takes, times --slower, as if other nodes had their share. So versions can be compared by a few seeds. Printed for each:
estimates, those vouched for and when the first came, their age [s] at 50 and 99 %, the longest update, and the worst
vouched-for E in its deviations. With --count the clock goes on by the steps that are simulated, as they take on one
slow core (`step_clock`): the same run on any machine. The drops are our own simulator's, on 0.7 of the estimate's
spacing and in an eighth of its steps: how right E is others tell, too (`bench_live_drops`). A node waits for a first
motion ten seconds at most; this waits until it is worked out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from step_clock import StepClock

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.camera.rendering import watch_scene
from soft_estimator.camera.scene_cameras import scene_cameras
from soft_estimator.config import SceneConfig
from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.live.newest_first import NewestFirst, need_of
from soft_estimator.live.pipeline import LivePipeline
from soft_estimator.live.replay_config import finder_for
from soft_estimator.live.setup import build_window, live_scene, start_from_plane
from soft_estimator.perception.cloud import cloud_from_points
from soft_estimator.perception.objects import ObjectPoints
from soft_estimator.ros.settings import CloudSettings, EstimatorSettings
from soft_estimator.scene.files import read_scene
from soft_estimator.scene.scene import Scene, build_scene

PAUSE_S = 2.5  # between two drops, as in the demo
SPREAD = 0.2  # of what an update takes, as a logarithm: others need the processors now more, now less
CLOUD_SPREAD = 0.4
FINER, SHORTER = 0.7, 8  # the truth's spacing over the estimate's; its steps in one of the estimate's


@dataclass
class Frame:
    """An object's points as the cloud node sends them, and when they arrive [s]."""

    stamp_s: float
    found: ObjectPoints
    comes_s: float = 0.0


def finer(config: SceneConfig) -> SceneConfig:
    """The truth: the same on smaller cells and in shorter steps."""
    body, step_s = config.body, config.time.step_s
    if body.spacing_m is not None:
        body = replace(body, spacing_m=FINER * body.spacing_m)
    return replace(config, body=body, time=replace(config.time, step_s=step_s / SHORTER))


def one_drop(scene: Scene) -> tuple[list[Frame], np.ndarray]:
    """The points of one drop of the scene, from its first frame, and where the camera is [m]."""
    camera = scene_cameras(scene.config)[0]
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = camera.rotation, camera.position_m
    pipeline = LivePipeline(scene, finder_for(scene.config), backend=CpuBackend())
    frames = []
    for seen in watch_scene(scene, CpuBackend(), [camera]):
        found = pipeline.finder.process(cloud_from_points(seen.points_m[0], transform=pose), None, seen.time_s)
        if isinstance(found, ObjectPoints):
            frames.append(Frame(seen.time_s, found))
    return frames, camera.position_m


def sent(drop: list[Frame], seconds: float, cloud_s: float, rng: np.random.Generator) -> list[Frame]:
    """What a cloud node sends of drops one after the other, each begun anywhere in the first: it takes all that waits
    in its queue at once, and leaves out what is older."""
    length_s = drop[-1].stamp_s - drop[0].stamp_s + 1 / 30 + PAUSE_S
    begins_s, frames = -rng.uniform(0, length_s), []
    while begins_s < seconds:
        for frame in drop:
            at_s = begins_s + frame.stamp_s - drop[0].stamp_s
            if 0 <= at_s < seconds:
                points, std = frame.found.points_m, frame.found.std_m
                kept = rng.random(len(points)) < 0.9
                frames.append(Frame(at_s, replace(frame.found, points_m=points[kept], std_m=std[kept])))
        begins_s += length_s
    waiting: deque[Frame] = deque(maxlen=CloudSettings().queue_clouds)
    taken: deque[Frame] = deque()
    out, now_s, k = [], 0.0, 0
    while k < len(frames) or waiting or taken:
        while k < len(frames) and frames[k].stamp_s <= now_s:
            waiting.append(frames[k])
            k += 1
        if not taken and not waiting:
            now_s = frames[k].stamp_s
            continue
        if not taken:
            taken.extend(waiting)
            waiting.clear()
        now_s += cloud_s * rng.lognormal(0.0, CLOUD_SPREAD)
        out.append(replace(taken.popleft(), comes_s=now_s))
    return out


@dataclass
class Told:
    """What an estimate said, and when."""

    at_s: float
    age_s: float
    youngs_modulus_pa: float
    std_pa: float
    vouched_for: bool


@dataclass
class Table:
    """A window that takes in frames as `estimator_node` does, by a clock of its own."""

    scene: Scene
    sensor_m: np.ndarray
    frames: list[Frame]
    slower: float
    rng: np.random.Generator
    took: Callable[[], float] = time.thread_time  # seconds of work so far
    now_s: float = 0.0
    longest_s: float = 0.0
    told: list[Told] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._waiting: list[Frame] = []
        self._next, self._begun, self._factor = 0, self.took(), self.slower
        self.window = build_window(self.scene, WindowConfig(), sensor_m=self.sensor_m, clock=self._clock)
        settings = EstimatorSettings()
        self._order = NewestFirst(settings.longest_gap_s, settings.most_behind_s, self.window.config.jump_s)
        self.window.hurry = self._hurry

    def _arrive(self, until_s: float) -> None:
        while self._next < len(self.frames) and self.frames[self._next].comes_s <= until_s:
            self._waiting.append(self.frames[self._next])
            self._next += 1

    def _clock(self) -> float:
        return self.now_s + (self.took() - self._begun) * self._factor

    def _hurry(self) -> bool:
        self._arrive(self._clock())
        return bool(self._waiting)

    def _timed(self, work: Callable[[], LiveEstimate | None]) -> None:
        self._begun, self._factor = self.took(), self.slower * self.rng.lognormal(0.0, SPREAD)
        said = work()
        took_s = self._clock() - self.now_s
        self.now_s, self._begun = self.now_s + took_s, self.took()
        self.longest_s = max(self.longest_s, took_s)
        if said is not None and said.status == "tracking":
            e = said.parameters[0]
            self.told.append(Told(self.now_s, self.now_s - said.stamp_s, e.value, e.std, e.observable and said.settled))

    def _take_in(self) -> None:
        window = self.window
        choice = self._order.choose([frame.stamp_s for frame in self._waiting], need_of(window))
        left_out, frame = self._waiting[: choice.place], self._waiting[choice.place]
        del self._waiting[: choice.place + 1]
        if left_out:
            (window.skip_ahead if choice.anew else window.leave_out)(len(left_out), left_out[-1].stamp_s)
        plane = frame.found.plane
        if plane is not None and window.status == "starting":
            start_from_plane(window, plane.normal, plane.offset_m)
        self._timed(lambda: window.add_frame(frame.stamp_s, frame.found.points_m, frame.found.std_m))

    def run(self, seconds: float) -> None:
        """Until so many seconds are over, or nothing is left."""
        more = False
        while self.now_s < seconds:
            self._arrive(self.now_s)
            if self._waiting:
                self._take_in()
                more = True
            elif more:
                self._timed(self.window.catch_up)
                more = self.window.puts_off
            elif self._next < len(self.frames):
                self.now_s = self.frames[self._next].comes_s
            else:
                return

    def figures(self, true_pa: float) -> dict[str, Any]:
        """What there is to compare."""
        vouched, ages = [told for told in self.told if told.vouched_for], [told.age_s for told in self.told]
        off = [abs(told.youngs_modulus_pa - true_pa) / told.std_pa for told in vouched]
        return {
            "estimates": len(self.told),
            "vouched_for": len(vouched),
            "first_s": vouched[0].at_s if vouched else None,
            "age_50_s": float(np.median(ages)) if ages else None,
            "age_99_s": float(np.percentile(ages, 99)) if ages else None,
            "longest_s": self.longest_s,
            "worst_std": max(off, default=None),
        }


def shown(figures: dict[str, Any]) -> str:
    """A line."""
    told = ("first", "age 50 %", "99 %", "longest", "worst")
    values = [figures[key] for key in ("first_s", "age_50_s", "age_99_s", "longest_s", "worst_std")]
    rest = ", ".join(f"{name} {'-' if value is None else f'{value:.1f}'}" for name, value in zip(told, values))
    return f"{figures['estimates']:3d} estimates, {figures['vouched_for']:3d} vouched for; {rest}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scene", default="demo_drop", help="what falls; default: demo_drop")
    parser.add_argument("--seconds", type=float, default=40.0, help="of the camera, default: 40")
    parser.add_argument("--seeds", type=int, default=4, help="how many runs, default: 4")
    parser.add_argument("--first", type=int, default=0, help="the first seed, default: 0")
    parser.add_argument("--slower", type=float, default=1.4, help="times what an update takes here, default: 1.4")
    parser.add_argument("--cloud-ms", type=float, default=75.0, help="the cloud node's for a frame [ms], default: 75")
    parser.add_argument("--count", action="store_true", help="by a clock that counts steps: the same on any machine")
    parser.add_argument("--json", type=Path, help="write the figures, and every estimate, to this file")
    given = parser.parse_args(arguments)
    config, folder = read_scene(given.scene)
    scene = live_scene(build_scene(config, folder))
    drop, sensor_m = one_drop(build_scene(finer(config), folder))
    took: Callable[[], float] = StepClock() if given.count else time.thread_time
    true_pa = float(np.max(scene.parameters.youngs_modulus_pa))
    rows = []
    for seed in range(given.first, given.first + given.seeds):
        rng = np.random.default_rng(seed)
        frames = sent(drop, given.seconds, 1e-3 * given.cloud_ms, rng)
        table = Table(scene, sensor_m, frames, given.slower, rng, took)
        table.run(given.seconds)
        figures = table.figures(true_pa)
        rows.append({"seed": seed, **figures, "told": [asdict(told) for told in table.told]})
        print(f"seed {seed:3d}: {shown(figures)}", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
