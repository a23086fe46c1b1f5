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
from soft_estimator.live.pipeline import LivePipeline
from soft_estimator.live.replay import true_values
from soft_estimator.live.replay_config import ReplayConfig
from soft_estimator.perception.cloud import cloud_from_points
from soft_estimator.recordings.bag_files import Bag
from soft_estimator.recordings.bag_frames import CameraFrame, open_camera
from soft_estimator.scene.scene import Scene
from soft_estimator.scene.variables import natural_of, variables_of
from soft_estimator.viewer.estimates import estimate_update
from soft_estimator.viewer.updates import Shows, ViewUpdate


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
        start_s: float | None = None
        begun, last_s = time.monotonic(), 0.0
        for frame, truth in self._frames():
            while not self._going.wait(0.1):
                if stop.is_set():
                    return
                begun += 0.1
            if stop.is_set() or self._again.is_set():
                return
            start_s = frame.stamp_s if start_s is None else start_s
            last_s = frame.stamp_s - start_s
            stop.wait(max(0.0, begun + last_s / self.rate - time.monotonic()))
            if frame.cloud is None:
                viewer.show(ViewUpdate(last_s, line=frame.problem))
                continue
            estimate = pipeline.add_cloud(frame.stamp_s, frame.cloud)
            if estimate is not None:
                viewer.show(estimate_update(self.scene, estimate, start_s, truth))
            else:
                viewer.show(ViewUpdate(last_s, "starting", line="the window fills"))
        viewer.show(ViewUpdate(last_s, "ended", line="the last frame is shown; Reset begins anew"))

    def _frames(self) -> Iterator[tuple[CameraFrame, Mapping[str, float]]]:
        return self._simulated() if self.bag is None else self._recorded(self.bag)

    def _recorded(self, path: Path) -> Iterator[tuple[CameraFrame, Mapping[str, float]]]:
        with Bag(path) as bag:
            camera = open_camera(bag, self.config.topic, self.config.fixed_frame)
            variables = variables_of(self.scene, self.config.scene.estimate)  # type: ignore[arg-type]
            truth = true_values(self.scene, variables, camera.truth)
            for item in camera:
                if isinstance(item, CameraFrame):
                    yield item, truth

    def _simulated(self) -> Iterator[tuple[CameraFrame, Mapping[str, float]]]:
        camera = scene_cameras(self.scene.config)[0]
        variables = variables_of(self.scene, self.config.scene.estimate)  # type: ignore[arg-type]
        truth = dict(zip(variables.labels, natural_of(variables, self.scene.parameters)))
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = camera.rotation, camera.position_m
        for seen in watch_scene(self.scene, self.backend, [camera]):
            yield CameraFrame(seen.time_s, cloud_from_points(seen.points_m[0], pose)), truth
