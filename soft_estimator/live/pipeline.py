"""Cloud by cloud from a depth camera to estimates: the object's points are found, then the window takes them in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.config_live import WindowConfig
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.estimation.window.refusals import Refusals
from soft_estimator.estimation.window.sliding_window import SlidingWindow
from soft_estimator.geometry.extent import widest_m
from soft_estimator.live.episodes import EpisodeWatch
from soft_estimator.live.setup import build_window, live_scene, look_from, start_from_plane
from soft_estimator.live.tools import tools_of
from soft_estimator.live.wrenches import Wrenches
from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.objects import NothingFound, ObjectFinder, ObjectPoints
from soft_estimator.perception.settings import FinderSettings, RegisterSettings
from soft_estimator.perception.standing import StandingFaces
from soft_estimator.recordings.interface import Recording
from soft_estimator.scene.scene import Scene


class LivePipeline:
    """`ObjectFinder` and `SlidingWindow` in one: what the nodes do in two processes, for recordings in one.

    Attributes:
        found: what the finder made of the last cloud. window: the estimator. remarks: what the finder noted of frames,
            a thing that touches the object for one, counted. tools: the scene's obstacles; poses from tf are added to
            them before the cloud that they lead to. wrenches: their sensors, likewise. standing: they, and what else
            stands about: none of its points is the object's, and a remark says where the object comes near to it.
    """

    def __init__(
        self,
        scene: Scene,
        finder: FinderSettings | None = None,
        window: WindowConfig | None = None,
        *,
        backend: Backend | None = None,
        register_settings: RegisterSettings | None = None,
    ) -> None:
        self.scene = scene = live_scene(scene)
        self.finder, self.tools = ObjectFinder(finder), tools_of(scene)
        self.standing = StandingFaces(self.finder.settings, widest_m(scene.body.surface_positions_m()), self.tools)
        self.wrenches = Wrenches(scene)
        self._config, self._backend, self._register = window, backend, register_settings
        self._window: SlidingWindow | None = None
        self._episodes = EpisodeWatch()
        self.found: ObjectPoints | NothingFound | None = None
        self.remarks = Refusals()

    @property
    def window(self) -> SlidingWindow:
        """The estimator; made with the first cloud, which tells where the camera is."""
        if self._window is None:
            self._window = self._built()
        return self._window

    def _built(self, sensor_m: np.ndarray | None = None) -> SlidingWindow:
        return build_window(
            self.scene,
            self._config,
            backend=self._backend,
            sensor_m=sensor_m,
            register_settings=self._register,
            tools=self.tools,
        )

    @property
    def made_once(self) -> dict[str, object]:
        """What scene and settings make, by name; no frame changes it."""
        scene, window = self.scene, self.window
        parts = {"scene": scene, "body": scene.body, "model": scene.model, "parameters": scene.parameters}
        parts = {**parts, "backend": window.backend, "xp": window.backend.xp}
        return {**parts, **self.tools.made_once, "wrenches": self.wrenches, **window.made_once}

    def add_cloud(self, stamp_s: float, cloud: Cloud, mask: np.ndarray | None = None) -> LiveEstimate | None:
        """Take in a cloud that was taken at stamp_s [s]."""
        self.tools.begin(stamp_s)
        self.wrenches.begin(stamp_s)
        if self._window is None:
            self._window = self._built(cloud.sensor_m)
        look_from(self._window, self.scene, cloud.sensor_m, self._register)
        if self._episodes.jump(stamp_s, self.finder.settings.track.forget_after_s):
            self.finder.forget()
        self.found = found = self.finder.process(cloud, mask, stamp_s, self.standing)
        if self.standing.look(cloud, found, stamp_s):
            self.finder.forget()
        if found.plane is not None and self._window.status == "starting":
            start_from_plane(self._window, found.plane.normal, found.plane.offset_m)
        if isinstance(found, NothingFound):
            return self._window.add_nothing(stamp_s, found.reason)
        for note in filter(None, (*found.notes, self.standing.beside(found.points_m))):
            self.remarks.add(stamp_s, note)
        estimate = self._window.add_frame(stamp_s, found.points_m, found.std_m, self.wrenches.at(stamp_s))
        if estimate is None or not self.tools.tools:
            return estimate
        return replace(estimate, tools=self.tools.meshes(estimate.stamp_s))

    def read(self, recording: Recording) -> None:
        """Take in what a recording holds of the tools: their poses, and what their sensors read."""
        self.tools.read(recording)
        self.wrenches.read(recording)
