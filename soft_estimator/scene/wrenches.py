"""What force-torque sensors behind a scene's obstacles read: from files, or as they would."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.config import SceneConfig
from soft_estimator.config_estimation import WrenchConfig
from soft_estimator.estimation.residuals.tool_wrench import ToolWrench, WrenchFrame
from soft_estimator.geometry.pose_path import read_numbers
from soft_estimator.physics.step import Simulation
from soft_estimator.scene.body_grid import Files
from soft_estimator.scene.motion import displacements
from soft_estimator.schema import ConfigError

if TYPE_CHECKING:
    from soft_estimator.scene.scene import Scene

COLUMNS = ("time_s", "fx_n", "fy_n", "fz_n", "tx_nm", "ty_nm", "tz_nm")


def read_wrenches(config: SceneConfig, folder: Path, data: Path | None = None) -> tuple[WrenchFrame, ...]:
    """The readings of the files that a scene names, from its start on, the mean of those within each step."""
    frames: list[WrenchFrame] = []
    for k, sensor in enumerate(config.observe.wrenches if config.observe is not None else ()):
        if sensor.file is None or sensor.clock == "stamps":
            continue
        numbers = read_numbers(Files(folder, data).find(sensor.file, f"observe.wrenches[{k}].file"), COLUMNS)
        numbers = numbers[numbers[:, 0] >= 0]
        step = np.floor(numbers[:, 0] / config.time.step_s)
        for part in np.split(numbers, np.flatnonzero(np.diff(step)) + 1) if len(numbers) else ():
            time_s, *wrench = part.mean(axis=0)
            frames.append(WrenchFrame(float(time_s), np.array(wrench), wrench_std(sensor), sensor.obstacle))
    return tuple(sorted(frames, key=lambda frame: frame.time_s))


def readings_of_motion(scene: Scene) -> list[WrenchFrame]:
    """The readings of a scene's files up to the end of its motion; a file that has none is refused."""
    config, until_s = scene.config, scene.config.time.duration_s
    within = [frame for frame in scene.readings if frame.time_s <= until_s]
    for k, sensor in enumerate(config.observe.wrenches if config.observe is not None else ()):
        if sensor.file is not None and all(frame.tool != sensor.obstacle for frame in within):
            raise ConfigError(
                f"= '{sensor.file}' has no reading from 0 to {until_s:g} s, while the scene moves; count its times "
                "from the scene's start",
                f"observe.wrenches[{k}].file",
            )
    return within


def read_wrench_logs(config: SceneConfig, folder: Path, data: Path | None = None) -> dict[int, np.ndarray]:
    """Files whose times are stamps of a recording: (n, 7) of each, by the number of its sensor."""
    sensors = config.observe.wrenches if config.observe is not None else ()
    return {
        k: read_numbers(Files(folder, data).find(sensor.file, f"observe.wrenches[{k}].file"), COLUMNS)
        for k, sensor in enumerate(sensors)
        if sensor.file is not None and sensor.clock == "stamps"
    }


def wrench_topics(config: SceneConfig) -> list[str]:
    """Topics of a scene's sensors, in their order: wrench, wrench_2, ... unless they are named."""
    sensors = config.observe.wrenches if config.observe is not None else ()
    return [sensor.topic or ("wrench" if k == 1 else f"wrench_{k}") for k, sensor in enumerate(sensors, 1)]


def rough_tools(config: SceneConfig) -> list[str]:
    """A line for every sensor whose obstacle is rough: the force is predicted without friction."""
    sensors = config.observe.wrenches if config.observe is not None else ()
    return [
        f"the force on obstacles[{s.obstacle}] is predicted without its friction; what slides there biases the answer"
        for s in sensors
        if config.obstacles[s.obstacle].friction is not None
    ]


def check_readings(config: SceneConfig, simulated: bool) -> None:
    """Refuse a sensor that `estimate` would pass over; simulated: whether the frames are, and with them the sensors
    without a file."""
    for k, sensor in enumerate(config.observe.wrenches if config.observe is not None else ()):
        key = f"observe.wrenches[{k}]"
        if sensor.clock == "stamps":
            raise ConfigError(
                "= stamps is for replay and the nodes, which know a recording's stamps; count the times of file from "
                "the scene's start, and leave clock out",
                f"{key}.clock",
            )
        if sensor.file is None and not simulated:
            raise ConfigError(
                "is missing: of recorded frames no force is simulated; give its readings, or take the sensor out",
                f"{key}.file",
            )


def kinds_of_scene(scene: Scene) -> list[ToolWrench]:
    """What frames of a scene are measured against beside its surface."""
    return [ToolWrench(scene.model)] if scene.obstacles else []


def feel_truth(scene: Scene, backend: Backend, times_s: Sequence[float]) -> list[WrenchFrame]:
    """What the sensors without a file would read at given times while the scene moves with its own parameters."""
    observe = scene.config.observe
    sensors = [] if observe is None else [sensor for sensor in observe.wrenches if sensor.file is None]
    if observe is None or not sensors:
        return []
    kind, rng = ToolWrench(scene.model), np.random.default_rng(observe.seed + 1)
    out = []
    for time_s, u in zip(times_s, displacements(Simulation(scene.model, scene.parameters, backend), times_s)):
        for sensor in sensors:
            std, exact = wrench_std(sensor), kind.wrench(sensor.obstacle, u, float(time_s), scene.parameters)[0]
            out.append(WrenchFrame(float(time_s), exact + std * rng.normal(size=6), std, sensor.obstacle))
    return out


def wrench_std(sensor: WrenchConfig) -> np.ndarray:
    """Deviations of a sensor's forces [N] and moments [N m], (6,)."""
    return np.repeat([sensor.force_std_n, sensor.moment_std_nm], 3)
