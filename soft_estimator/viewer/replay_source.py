"""What the viewer is fed with where no ROS runs: a recorded bag, or the simulated camera of a scene."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.camera.rendering import watch_scene
from soft_estimator.camera.scene_cameras import scene_cameras
from soft_estimator.estimation.fitting.uncertainty import shown_label
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.live.pipeline import LivePipeline
from soft_estimator.live.replay import camera_pose, true_values
from soft_estimator.live.replay_config import ReplayConfig
from soft_estimator.perception.cloud import cloud_from_points
from soft_estimator.pictures.colours import colour_map, residual_colours
from soft_estimator.pictures.surface_values import equivalent_strain, mean_near
from soft_estimator.recordings.interface import Frame
from soft_estimator.recordings.opening import open_recording
from soft_estimator.scene.scene import Scene
from soft_estimator.scene.variables import variables_of
from soft_estimator.viewer.updates import MeshNow, ParameterNow, Shows, ViewUpdate

# The strain that is drawn yellow: beyond it the linear material is no longer believed.
STRAIN_TOP = 0.2


class ReplaySource:
    """Runs the live pipeline over a recording, or over what the scene's first camera would see, again after a reset.

    Frames come no faster than they were taken times `rate`; a slower machine takes its time.
    """

    def __init__(
        self, scene: Scene, config: ReplayConfig, backend: Backend, bag: Path | None = None, rate: float = 1.0
    ) -> None:
        self.scene, self.config, self.backend, self.bag, self.rate = scene, config, backend, bag, rate
        self.up = scene.config.picture.up
        self._again, self._going = threading.Event(), threading.Event()
        self._going.set()

    def reset(self) -> str:
        """Begin anew, from the first frame and the first guesses."""
        self._again.set()
        self._going.set()
        return "begins anew"

    def pause(self, paused: bool) -> str:
        """Stop taking frames, or go on."""
        (self._going.clear if paused else self._going.set)()
        return "paused: no frame is taken" if paused else ""

    def run(self, viewer: Shows, stop: threading.Event) -> None:
        """Go through the frames; then wait for a reset or the end."""
        while not stop.is_set():
            self._again.clear()
            viewer.clear()
            self._once(viewer, stop)
            while not stop.is_set() and not self._again.wait(0.2):
                pass

    def _once(self, viewer: Shows, stop: threading.Event) -> None:
        pipeline = LivePipeline(self.scene, self.config.finder, self.config.window, backend=self.backend)
        if self.bag is not None:
            with open_recording(self.bag, self.config.topic, self.config.fixed_frame) as recording:
                pipeline.read(recording)
        start_s: float | None = None
        begun, last_s = time.monotonic(), 0.0
        for frame, truth in self._frames():
            while not self._going.wait(0.1):
                if stop.is_set():
                    return
                begun += 0.1
            if stop.is_set() or self._again.is_set():
                return
            start_s = frame.time_s if start_s is None else start_s
            last_s = frame.time_s - start_s
            stop.wait(max(0.0, begun + last_s / self.rate - time.monotonic()))
            if frame.cloud is None:
                viewer.show(ViewUpdate(last_s, line=frame.problem))
                continue
            estimate = pipeline.add_cloud(frame.time_s, frame.cloud, frame.mask)
            if estimate is not None:
                viewer.show(estimate_update(self.scene, estimate, start_s, truth))
            else:
                viewer.show(ViewUpdate(last_s, "starting", line="the window fills"))
        viewer.show(ViewUpdate(last_s, "ended", line="the last frame is shown; Reset begins anew"))

    def _frames(self) -> Iterator[tuple[Frame, Mapping[str, float]]]:
        return self._simulated() if self.bag is None else self._recorded(self.bag)

    def _recorded(self, path: Path) -> Iterator[tuple[Frame, Mapping[str, float]]]:
        with open_recording(path, self.config.topic, self.config.fixed_frame, self.config.choice) as camera:
            camera.place_camera(camera_pose(self.config.scene))
            variables = variables_of(self.scene, self.config.scene.estimate)  # type: ignore[arg-type]
            truth = true_values(self.scene, variables, camera.truth)
            for frame in camera:
                yield frame, truth

    def _simulated(self) -> Iterator[tuple[Frame, Mapping[str, float]]]:
        camera = scene_cameras(self.scene.config)[0]
        variables = variables_of(self.scene, self.config.scene.estimate)  # type: ignore[arg-type]
        truth = dict(zip(variables.labels, variables.natural_of(self.scene.parameters)))
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = camera.rotation, camera.position_m
        for seen in watch_scene(self.scene, self.backend, [camera]):
            yield Frame(seen.time_s, "simulated", cloud_from_points(seen.points_m[0], pose)), truth


def estimate_update(
    scene: Scene, estimate: LiveEstimate, start_s: float, truth: Mapping[str, float] | None = None
) -> ViewUpdate:
    """What the viewer shows of an estimate: twin coloured by residual and by strain, points, plane, parameters."""
    e, body = estimate, scene.body
    vertices = body.surface_positions_m(e.u_m)
    full_m = max(2.0 * float(e.rms_residual_m), 1e-5) if np.isfinite(e.rms_residual_m) else 1e-3
    residual = np.full(len(vertices), np.nan)
    if len(e.points_m):
        residual = mean_near(vertices, e.points_m, e.residual_m, 1.5 * body.grid.spacing_m)
    strain = np.maximum(body.surface.interpolate(equivalent_strain(body, e.u_m)), 0.0)
    colours = {"residual": residual_colours(residual, full_m), "strain": colour_map(strain, 0.0, STRAIN_TOP)}
    plane = None
    if scene.config.contact is not None:
        plane = (np.asarray(e.values.plane_normal), float(e.values.plane_offset_m))
    line = f"{e.frames_in_window} frames in the window, {1e3 * e.rms_residual_m:.2f} mm off, {1e3 * e.seconds:.0f} ms"
    return ViewUpdate(
        time_s=e.stamp_s - start_s,
        status=e.status,
        points_m=e.points_m,
        mesh=MeshNow(vertices, body.surface.faces, colours),
        plane=plane,
        parameters=parameters_now(e, truth or {}),
        line="; ".join((line, *e.notes)),
        tools=e.tools,
    )


def parameters_now(estimate: LiveEstimate, truth: Mapping[str, float]) -> tuple[ParameterNow, ...]:
    """The parameters of an estimate."""
    return tuple(
        ParameterNow(
            name=shown_label(p.label, estimate.parameters),
            unit=p.unit, value=p.value, low=p.low, high=p.high, observable=p.observable, reason=p.reason,
            truth=truth.get(p.label),
        )
        for p in estimate.parameters
    )  # fmt: skip
