"""Readings of a scene's force-torque sensors as they come in, and those that belong to a frame of the camera."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import numpy as np

from soft_estimator.estimation.residuals.tool_wrench import WrenchFrame
from soft_estimator.recordings.interface import Recording, WrenchReading
from soft_estimator.scene.scene import Scene
from soft_estimator.scene.wrenches import wrench_std, wrench_topics

_BACK_S = 0.2  # a stamp that goes back by more is a recording that began anew


class Wrenches:
    """All sensors of a scene. A reading is force and moment on the tool in the frame of its path, about its origin.

    Attributes:
        topics: where they are published, in the scene's order. refused: why readings could not be used, the newest.
    """

    def __init__(self, scene: Scene) -> None:
        observe = scene.config.observe
        self.sensors = () if observe is None else observe.wrenches
        self.step_s, self.topics, self.refused = scene.config.time.step_s, wrench_topics(scene.config), ""
        self._frames = [(scene.config.obstacles[s.obstacle].tool_frame or "").lstrip("/") for s in self.sensors]
        self._stamps: list[list[float]] = [[] for _ in self.sensors]
        self._values: list[list[np.ndarray]] = [[] for _ in self.sensors]
        self._from_start = scene.readings
        self._begun = False
        for k, log in scene.wrench_logs.items():
            self.add(k, (WrenchReading(float(row[0]), row[1:]) for row in log))

    def begin(self, stamp_s: float) -> None:
        """The stamp of the scene's time 0 [s]; the first one told counts."""
        if not self._begun:
            self._begun = True
            for frame in self._from_start:
                sensor = next(k for k, s in enumerate(self.sensors) if s.obstacle == frame.tool and s.file is not None)
                self.add(sensor, [WrenchReading(stamp_s + frame.time_s, frame.wrench)])

    def add(self, sensor: int, readings: Iterable[WrenchReading]) -> None:
        """Take in what a sensor read; readings in another frame than the tool's are refused, and that is said."""
        stamps, values, frame = self._stamps[sensor], self._values[sensor], self._frames[sensor]
        for reading in readings:
            if reading.frame_id and frame and reading.frame_id != frame:
                self.refused = (
                    f"{self.topics[sensor]} is in frame '{reading.frame_id}', the tool in '{frame}'; publish force and "
                    "moment in the tool's frame"
                )
                continue
            if not (np.isfinite(reading.stamp_s) and np.isfinite(reading.wrench).all()):
                continue
            if stamps and reading.stamp_s < stamps[-1] - _BACK_S:
                stamps.clear()
                values.clear()
            if not stamps or reading.stamp_s > stamps[-1]:
                stamps.append(float(reading.stamp_s))
                values.append(np.asarray(reading.wrench, dtype=np.float64))

    def read(self, recording: Recording) -> None:
        """Take in what a recording holds."""
        if self._from_start and np.isfinite(start_s := recording.start_s):
            self.begin(start_s)
        for k, sensor in enumerate(self.sensors):
            if sensor.file is None:
                self.add(k, readings := recording.wrenches_of(self.topics[k]))
                if not readings:
                    self.refused = (
                        f"the recording has no force on {self.topics[k]}, which tells nothing of the answer; name "
                        f"another observe.wrenches[{k}].topic, or give file"
                    )

    def at(self, stamp_s: float) -> list[WrenchFrame]:
        """For each sensor the mean of what it read within the last time step up to a stamp [s]; its time_s is a stamp
        too. None of those that read nothing then."""
        out = []
        for sensor, stamps, values in zip(self.sensors, self._stamps, self._values):
            low, high = bisect_right(stamps, stamp_s - self.step_s), bisect_right(stamps, stamp_s)
            if high > low:
                mean = np.mean(values[low:high], axis=0)
                out.append(WrenchFrame(float(np.mean(stamps[low:high])), mean, wrench_std(sensor), sensor.obstacle))
        return out

    def forget_before(self, stamp_s: float) -> None:
        """Let go of readings that are older than a stamp [s]."""
        for part, values in zip(self._stamps, self._values):
            first = bisect_right(part, stamp_s)
            del part[:first], values[:first]
