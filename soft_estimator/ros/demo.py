"""The demo: the real graph with a simulated camera, watched, recorded and reported; it ends by itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Any

import numpy as np

from soft_estimator.backends.choose import choose_backend
from soft_estimator.camera.scene_cameras import times_from_start
from soft_estimator.live.bands import BandView, band_view, true_values
from soft_estimator.live.metrics import SurfaceErrors, latency_summary
from soft_estimator.physics.step import Simulation
from soft_estimator.report import write_report
from soft_estimator.report.twin_animation import animate_estimates
from soft_estimator.ros.first_run import compiled_scene
from soft_estimator.scene.files import read_scene
from soft_estimator.scene.motion import displacements
from soft_estimator.scene.scene import Scene

_START_LIMIT_S = 120.0  # from the start of the processes to the first frame
_END_LIMIT_S = 15.0  # more than `run` grants its nodes
_RECORDED_REPETITIONS = 2  # one to start on, one to follow

Show = Callable[[list[str]], None]  # what is known now, as lines
Say = Callable[[str], None]


@dataclass(frozen=True)
class DemoResult:
    """Where things are, and what they say."""

    files: dict[str, Path]
    metrics: dict[str, Any]


class DemoFailed(RuntimeError):
    """The graph did not come up or died; the message says where to look."""


def run_demo(scene_name: str, out: Path, seconds: float, backend: str, say: Say, show: Show) -> DemoResult:
    """Run the demo graph for so many seconds from its first frame on, and write everything to `out`.

    say: told what happens, a line each. show: given the newest estimate as lines, about twice a second.
    """
    config, _ = read_scene(scene_name)
    out.mkdir(parents=True, exist_ok=True)
    say("compiling and warming up (the first time this takes a minute or two)")
    scene = compiled_scene(scene_name, backend)
    _own_domain()
    import rclpy

    from soft_estimator.ros.demo_watcher import DemoWatcher
    from soft_estimator.ros.transport import transport_environment

    os.environ.update(transport_environment())
    bag = out / "bag"
    if bag.exists():
        shutil.rmtree(bag)
    rclpy.init()
    watcher = DemoWatcher(scene, bag, _RECORDED_REPETITIONS * len(times_from_start(config)))
    log = (out / "graph.log").open("w", encoding="utf-8")
    graph = _start_graph(scene_name, backend, log)
    try:
        _watch(watcher, graph, seconds, say, show)
    finally:
        say("ending the graph")
        _end(graph)
        watcher.close()
        watcher.destroy_node()
        rclpy.try_shutdown()
        log.close()
    say("writing the report")
    return _write(watcher, scene, out, bag)


def _own_domain() -> None:
    """A domain of the demo's own, on this machine only, unless the user has chosen one."""
    os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")


def _start_graph(scene: str, backend: str, log: IO[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "soft_estimator", "run", "demo", "--scene", scene, "--backend", backend]
    # A session of its own: Ctrl-C reaches it through us, once.
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def _watch(watcher: Any, graph: subprocess.Popen[bytes], seconds: float, say: Say, show: Show) -> None:
    import rclpy

    started, shown, announced = monotonic(), 0.0, False
    view = band_view(watcher.scene)
    say("starting camera, cloud, estimator and twin")
    while True:
        rclpy.spin_once(watcher, timeout_sec=0.05)
        now = monotonic()
        if graph.poll() is not None:
            raise DemoFailed(f"the graph ended with exit code {graph.returncode}; graph.log tells why")
        if watcher.first_frame_s is None:
            if now - started > _START_LIMIT_S:
                raise DemoFailed(f"no frame came within {_START_LIMIT_S:.0f} s; graph.log tells why")
            continue
        if not announced:
            say(f"the camera sends; watching for {seconds:.0f} s")
            announced = True
        if now - shown > 0.5:
            shown = now
            show(_status_lines(watcher, view, now - watcher.first_frame_s, seconds))
        if now - watcher.first_frame_s > seconds:
            return


def _status_lines(watcher: Any, view: BandView, elapsed_s: float, seconds: float) -> list[str]:
    c, newest = watcher.counts, watcher.newest
    head = (
        f"{elapsed_s:4.0f} of {seconds:.0f} s   {c['frames'] / max(elapsed_s, 1e-9):4.1f} frames/s   "
        f"{c['estimates'] / max(elapsed_s, 1e-9):3.1f} estimates/s"
    )
    if newest is None:
        return [head, "  the ball is in view; waiting for the first frames of a fall"]
    note = newest.notes[-1] if newest.notes else f"{newest.status}, {newest.frames_in_window} frames in the window"
    off = f"points lie {1e3 * newest.rms_residual_m:.2f} mm off the twin"
    return [head, *view.lines(newest.parameters), f"  {note}; {off}"]


def _end(graph: subprocess.Popen[bytes]) -> None:
    for number, wait_s in ((signal.SIGINT, _END_LIMIT_S), (signal.SIGKILL, 5.0)):
        if graph.poll() is not None:
            return
        graph.send_signal(number)
        try:
            graph.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue


def _write(watcher: Any, scene: Scene, out: Path, bag: Path) -> DemoResult:
    if watcher.newest is None:
        raise DemoFailed("there was no estimate; graph.log tells why")
    truth = true_values(scene)
    size_m = float(np.linalg.norm(np.ptp(scene.body.surface_positions_m(), axis=0)))
    watcher.tracks.set_truth(truth, size_m)
    first_s = watcher.history.estimates[0][0]
    metrics = {
        "scene": scene.config.name,
        "counts": watcher.counts,
        "parameters": {label: track.summary(first_s) for label, track in watcher.tracks.tracks.items()},
        "surface": _surface_errors(watcher, scene),
        "latency_camera_to_estimate": latency_summary(watcher.latency_s),
    }
    files = {name: out / name for name in ("report.html", "metrics.json", "animation.gif")}
    files["metrics.json"].write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    animate_estimates(files["animation.gif"], scene, watcher.recent)
    content = watcher.history.content(
        title="soft_estimator demo",
        subtitle="A simulated depth camera watches a soft ball bounce; four ROS 2 nodes estimate it live.",
        truth=truth,
        facts=[("frames sent", str(watcher.counts["frames"])), ("estimates", str(watcher.counts["estimates"]))],
    )
    write_report(files["report.html"], content)
    return DemoResult({**files, "bag": bag, "graph.log": out / "graph.log"}, metrics)


def _surface_errors(watcher: Any, scene: Scene) -> dict[str, Any] | None:
    """The estimated surfaces against the true ones, which are simulated here once more."""
    seen = sorted(watcher.seen_states, key=lambda item: item[0])
    errors = SurfaceErrors(scene.body.grid.spacing_m)
    simulation = Simulation(scene.model, scene.parameters, choose_backend("cpu"))
    times = sorted({time_s for time_s, _ in seen})
    truth = dict(zip(times, displacements(simulation, times)))
    for k, (time_s, u) in enumerate(seen):
        errors.add_truth(float(k), scene.body.surface_positions_m(truth[time_s])[scene.body.surface.faces])
        errors.add_estimate(float(k), scene.body.surface_positions_m(u))
    return errors.summary()
