"""Run a recording through the live pipeline, frame by frame, as fast as the machine allows and the same each time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from soft_estimator.backends.choose import choose_backend
from soft_estimator.backends.interface import Backend
from soft_estimator.camera.scene_cameras import cameras_of
from soft_estimator.config import SceneConfig
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.long_work import UNFINISHED, TimeUp
from soft_estimator.estimation.variables import Variables
from soft_estimator.estimation.window.live_estimate import Counters, LiveEstimate
from soft_estimator.estimation.window.refusals import Refusals
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.live.bands import in_few_words
from soft_estimator.live.estimate_table import ESTIMATES, estimate_row, estimate_table
from soft_estimator.live.metrics import ParameterTracks, SurfaceErrors, latency_summary
from soft_estimator.live.pipeline import LivePipeline
from soft_estimator.live.prediction import score_prediction
from soft_estimator.live.replay_config import ReplayConfig
from soft_estimator.live.replay_keeping import ReplayKeeper, identity_of
from soft_estimator.live.setup import live_scene
from soft_estimator.recordings.ground_truth import TruthRow, parameters_from_rows
from soft_estimator.recordings.interface import Frame, Recording
from soft_estimator.recordings.opening import open_recording
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.scene.variables import shown_labels, variables_of

Progress = Callable[[int, int, str], None]  # frames done, frames in all, a note for people

MOST_NOTES = 12  # remarks on a screen; the rest is counted


@dataclass
class ReplayResult:
    """What a replay gave.

    Attributes:
        bag, config, scene: what was replayed, and how.
        labels: names of the estimated parameters. rows: one an estimate, see `estimate_row`.
        truth: true values by the estimates' labels, where known. counters: frames used and set aside.
        refusals: why frames were not used, those that could not be read among them.
        metrics: as written to metrics.json; what stands under `timing` depends on the machine.
        notes: what a reader should know.
    """

    bag: Path
    config: ReplayConfig
    scene: Scene
    labels: list[str]
    rows: list[list[str]]
    truth: dict[str, float]
    counters: Counters
    refusals: Refusals
    metrics: dict[str, Any]
    notes: list[str] = field(default_factory=list)


class Listener(Protocol):
    """Somebody who follows a replay, and may add files to its results. Its attributes are kept with the replay."""

    def begin(self, scene: Scene) -> None:
        """Told before the first frame."""

    def add(self, estimate: LiveEstimate) -> None:
        """Told every estimate."""

    def files(self, result: ReplayResult) -> dict[str, bytes]:
        """Asked at the end: name and content of further files."""


@dataclass
class _Truth:
    """The bag's ground truth in the terms of the window, whose plane is counted from where the camera saw it."""

    scene: Scene
    rows: tuple[TruthRow, ...]
    values: dict[str, float] = field(default_factory=dict)
    _variables: Variables | None = None

    def in_terms_of(self, window: SlidingWindow) -> dict[str, float]:
        """True values by label."""
        if self._variables is not window.lasting.variables:
            self._variables = window.lasting.variables
            self.values = true_values(self.scene, self._variables, self.rows)
        return self.values


@dataclass
class _Run:
    """What is collected while a bag is read."""

    tracks: ParameterTracks
    surfaces: SurfaceErrors
    truth: _Truth
    listener: Listener | None = None
    elapsed_s: float = 0.0  # wall-clock time, what passed before it was ended and gone on with included
    since_s: float = field(default_factory=perf_counter)  # the clock when that was counted last
    rows: list[list[str]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    stamps: list[float] = field(default_factory=list)
    problems: dict[str, int] = field(default_factory=dict)
    unreadable: Refusals = field(default_factory=Refusals)
    remarks: dict[str, int] = field(default_factory=dict)
    last: LiveEstimate | None = None
    fitted: LiveEstimate | None = None  # the last estimate before the held-out frames
    held_out: list[tuple[float, np.ndarray]] = field(default_factory=list)

    def count_time(self) -> float:
        """Wall-clock time that the replay took so far [s]."""
        now = perf_counter()
        self.elapsed_s, self.since_s = self.elapsed_s + now - self.since_s, now
        return self.elapsed_s


def replay_bag(
    path: Path | str,
    config: ReplayConfig,
    folder: Path,
    *,
    data: Path | None = None,
    backend: Backend | str = "auto",
    progress: Progress | None = None,
    listener: Listener | None = None,
    keeper: ReplayKeeper | None = None,
) -> ReplayResult:
    """Replay one bag.

    Args:
        folder, data: where the scene's files are looked for.
        backend: where to compute, or its name. listener: told every estimate.
        keeper: keeps the replay as it goes, and has what an earlier one left; what it ends gives what is known by then.
    """
    clock = perf_counter()
    if isinstance(backend, str):
        backend = choose_backend(backend, config.scene.solver.precision)
    with open_recording(path, config.topic, config.fixed_frame, config.choice) as camera:
        scene = live_scene(build_scene(config.scene, folder, data))
        camera.place_camera(camera_pose(config.scene))
        truth = _Truth(scene, camera.truth)
        variables = variables_of(scene, config.scene.estimate)  # type: ignore[arg-type]
        if listener is not None:
            listener.begin(scene)
        shown = dict(zip(variables.labels, shown_labels(variables)))
        run = _Run(ParameterTracks(shown), SurfaceErrors(scene.body.grid.spacing_m), truth, listener)
        pipeline = LivePipeline(scene, config.finder, config.window, backend=backend)
        pipeline.read(camera)
        keeper = keeper or ReplayKeeper()
        kept = keeper.take_up(identity_of(path, config, backend.name), lambda: _shared(pipeline, listener))
        if kept is not None:
            pipeline, run = kept["pipeline"], kept["run"]
            if listener is not None:
                vars(listener).update(kept["heard"])
        run.since_s, truth = clock, run.truth
        stopped = _read_through(camera, pipeline, run, config.hold_out, progress, keeper)
    _check_any(path, run)
    size_m = float(np.linalg.norm(np.ptp(scene.body.surface_positions_m(), axis=0)))
    run.tracks.set_truth(truth.values, size_m)
    held_out = _held_out(pipeline, run, backend)
    seen = [f"{item.count} frames: {item.example}" for item in pipeline.remarks.most_first()]
    refused = [pipeline.wrenches.refused] if pipeline.wrenches.refused else []
    notes = [*scene.warnings, *camera.notes, *refused, *seen, *_shortened(run.remarks)]
    counters = pipeline.window.counters if run.seconds else Counters()
    refusals = run.unreadable.joined(pipeline.window.refusals) if run.seconds else run.unreadable
    metrics: dict[str, Any] = {
        "bag": str(path),
        "scene": config.scene.name,
        "backend": backend.name,
        "identity": keeper.identity,
        "finished": not stopped,
        "stopped": stopped,
        "notes": notes,
    }
    metrics |= _metrics(camera, run, counters, refusals, held_out)
    metrics["timing"]["total_s"] = run.count_time()
    labels = [track.label for track in run.tracks.tracks.values()]
    return ReplayResult(Path(path), config, scene, labels, run.rows, truth.values, counters, refusals, metrics, notes)


def _held_out(pipeline: LivePipeline, run: _Run, backend: Backend) -> dict[str, Any] | None:
    """How well the last estimate before the held-out frames predicts them; None where there is none."""
    if run.fitted is None:
        return None
    window, start_s = pipeline.window, run.stamps[0]
    window.tools.count_from(start_s)
    scene = replace(pipeline.scene, model=window.model)
    return score_prediction(scene, run.fitted, run.held_out, start_s, backend)


def camera_pose(config: SceneConfig) -> np.ndarray | None:
    """Where the scene's first camera stands, camera to world (4, 4); None where it has none."""
    cameras = [] if config.observe is None else cameras_of(config.observe)
    if not cameras:
        return None
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = cameras[0].rotation, cameras[0].position_m
    return pose


def _shortened(notes: dict[str, int]) -> list[str]:
    """What the estimator remarked, shortened."""
    lines = [f"{text} ({count} times)" if count > 1 else text for text, count in notes.items()]
    return lines if len(lines) <= MOST_NOTES else [*lines[:MOST_NOTES], f"and {len(lines) - MOST_NOTES} more remarks"]


def _read_through(
    camera: Recording,
    pipeline: LivePipeline,
    run: _Run,
    hold_out: float,
    progress: Progress | None,
    keeper: ReplayKeeper,
) -> str:
    """Take in the frames that are not done yet; why it was ended before the last one, "" where it was not."""
    learnt, done, listener = len(camera) - round(hold_out * len(camera)), len(run.stamps), run.listener
    state = {"pipeline": pipeline, "run": run, "heard": {} if listener is None else vars(listener)}
    for number, frame in enumerate(camera):
        if number < done:
            continue
        _add_frame(frame, pipeline, run, learnt)
        for surface in frame.surfaces:
            run.surfaces.add_truth(surface.stamp_s, surface.triangles_m)
        if progress is not None:
            progress(len(run.stamps), len(camera), _values(run))
        if len(run.stamps) == len(camera):
            break
        run.count_time()
        try:
            keeper.note(state, lambda: _shared(pipeline, listener), lambda: _so_far(run, len(camera)))
        except TimeUp as ended:
            return str(ended)
    return ""


def _shared(pipeline: LivePipeline, listener: Listener | None) -> dict[str, object]:
    """What a state of the replay only names: whoever goes on has it."""
    return {**pipeline.made_once, **({} if listener is None else {"listener": listener})}


def _values(run: _Run) -> str:
    """The newest estimate in a few words: what it vouches for, or why that is nothing."""
    return "no estimate yet" if run.last is None else in_few_words(run.last.parameters)


def _so_far(run: _Run, frames: int) -> dict[str, bytes]:
    """What is known, for people: how far the replay is, and its table."""
    values = {} if run.last is None else {e.label: {"value": e.value, "std": e.std} for e in run.last.parameters}
    told = {"frames_done": len(run.stamps), "frames": frames, "estimates": len(run.rows), "values": values}
    table = estimate_table([track.label for track in run.tracks.tracks.values()], run.rows)
    return {UNFINISHED: (json.dumps(told, indent=1) + "\n").encode(), ESTIMATES: table}


def _add_frame(frame: Frame, pipeline: LivePipeline, run: _Run, learnt: int) -> None:
    run.stamps.append(frame.time_s)
    if frame.cloud is None:
        run.problems[frame.problem] = run.problems.get(frame.problem, 0) + 1
        run.unreadable.add(frame.time_s, frame.problem)
        return
    clock = perf_counter()
    estimate = pipeline.add_cloud(frame.time_s, frame.cloud, frame.mask)
    run.seconds.append(perf_counter() - clock)
    if estimate is None:
        return
    run.last = estimate
    run.tracks.add(estimate, run.truth.in_terms_of(pipeline.window))
    if run.listener is not None:
        run.listener.add(estimate)
    run.rows.append(estimate_row(estimate))
    for note in estimate.notes:
        run.remarks[note] = run.remarks.get(note, 0) + 1
    if estimate.status != "tracking":
        return
    run.surfaces.add_estimate(estimate.stamp_s, pipeline.scene.body.surface_positions_m(estimate.u_m))
    if len(run.stamps) <= learnt:
        run.fitted = estimate
    else:
        run.held_out.append((estimate.stamp_s, estimate.points_m))


def _check_any(path: Path | str, run: _Run) -> None:
    """An error where not a single message could be used."""
    if run.problems and sum(run.problems.values()) == len(run.stamps):
        reason, count = max(run.problems.items(), key=lambda item: item[1])
        raise ValueError(f"{path}: none of {len(run.stamps)} messages can be used; {count} because {reason}")


def true_values(scene: Scene, variables: Variables, rows: tuple[TruthRow, ...]) -> dict[str, float]:
    """True natural values by the variables' labels, of the parameters that the ground truth names."""
    if not rows:
        return {}
    truth, known = parameters_from_rows(rows, scene.parameters)
    values = variables.natural_of(truth)
    return {v.label: float(x) for v, x in zip(variables.variables, values) if v.name in known}


def _metrics(
    camera: Recording, run: _Run, counters: Counters, refusals: Refusals, held_out: dict[str, Any] | None
) -> dict[str, Any]:
    start_s = run.stamps[0] if run.stamps else 0.0
    frames: dict[str, Any] = {
        "in_bag": len(camera),
        "unreadable": sum(run.problems.values()),
        "unreadable_reasons": run.problems,
        **counters.as_dict(),
        "not_used_because": refusals.as_plain(),
    }
    frames["dropped"] = frames["in_bag"] - counters.frames_used
    return {
        "topic": camera.source,
        "duration_s": (max(run.stamps) - start_s) if run.stamps else 0.0,
        "estimates": len(run.rows),
        "status": "none" if run.last is None else run.last.status,
        **(FitVerdict() if run.last is None else run.last.verdict).as_plain(),
        "settled": run.last is not None and run.last.settled,
        "frames": frames,
        "parameters": [track.summary(start_s) for track in run.tracks.tracks.values()],
        "posterior": None if run.last is None or run.last.posterior is None else run.last.posterior.as_plain(),
        "rms_residual_m": None if run.last is None else run.last.rms_residual_m,
        "surface": run.surfaces.summary(),
        "held_out": held_out,
        "timing": {"frame": latency_summary(run.seconds)},
    }
