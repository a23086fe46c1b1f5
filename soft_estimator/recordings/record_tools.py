"""What a robot would publish of a scene's led obstacles: their frames in tf, and their force-torque sensors."""

from __future__ import annotations

import numpy as np

from soft_estimator.camera.rendering import SeenFrame
from soft_estimator.config_estimation import WrenchConfig
from soft_estimator.estimation.residuals.tool_wrench import ToolWrench
from soft_estimator.geometry.live_path import LedPath
from soft_estimator.recordings.bag_writing import BagWriter
from soft_estimator.scene.scene import Scene
from soft_estimator.scene.wrenches import wrench_std, wrench_topics

FIXED_FRAME = "world"
# A stamp of zero means "no stamp" to ROS, so the scene's time 0 is stamped one second.
FIRST_STAMP_NS = 10**9
_EVERY_S = 0.01  # between two poses of a tool, as an arm's controller gives them


def tool_names(count: int) -> list[str]:
    """Frames of led obstacles: tool, tool_2, tool_3, ..."""
    return ["tool", *(f"tool_{k}" for k in range(2, count + 1))][:count]


class RecordedTools:
    """Writes what leads up to each frame, in order of time."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self._done_s = scene, -_EVERY_S
        led = [(k, o.place.path) for k, o in enumerate(scene.obstacles) if o.place.path is not None]
        self.paths: dict[str, LedPath] = dict(zip(tool_names(len(led)), (path for _, path in led)))
        self.frames = {k: name for name, (k, _) in zip(self.paths, led)}
        observe = scene.config.observe
        self.sensors: tuple[WrenchConfig, ...] = () if observe is None else observe.wrenches
        self.felt = ToolWrench(scene.model) if self.sensors else None
        self.rng = np.random.default_rng(1 if observe is None else observe.seed + 1)

    def write(self, bag: BagWriter, frame: SeenFrame) -> None:
        """Poses since the last frame, and what the sensors read at this one."""
        count = int(np.ceil((frame.time_s - self._done_s) / _EVERY_S - 1e-9)) if self.paths else 0
        for time_s in np.linspace(self._done_s, frame.time_s, count + 1)[1:]:
            poses = [(name, *path.at(float(time_s))) for name, path in self.paths.items()]
            bag.transforms(FIRST_STAMP_NS + round(1e9 * time_s), FIXED_FRAME, poses)
        self._done_s = frame.time_s
        for topic, sensor in zip(wrench_topics(self.scene.config), self.sensors):
            assert self.felt is not None
            exact = self.felt.wrench(sensor.obstacle, frame.u_m, frame.time_s, self.scene.parameters)[0]
            noise = wrench_std(sensor) * self.rng.normal(size=6)
            stamp_ns = FIRST_STAMP_NS + round(1e9 * frame.time_s)
            bag.wrench(f"/{topic.lstrip('/')}", stamp_ns, self.frames.get(sensor.obstacle, FIXED_FRAME), exact + noise)
