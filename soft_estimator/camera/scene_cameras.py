"""The cameras that a scene's `observe` section describes: where they stand, how noisy they are, when they look."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from soft_estimator.camera.depth_sensor import DepthNoise
from soft_estimator.camera.pinhole import PinholeCamera, ring_of_cameras
from soft_estimator.config import SceneConfig
from soft_estimator.config_estimation import NoiseConfig, ObserveConfig
from soft_estimator.schema import ConfigError

_DEFAULT_RATE_HZ = 30.0  # of common depth cameras, where a scene says neither rate nor steps


def cameras_of(observe: ObserveConfig) -> list[PinholeCamera]:
    """The cameras of a scene."""
    cameras = [
        PinholeCamera.looking_at(c.eye_m, c.target_m, c.up, c.width_px, c.height_px, c.horizontal_fov_rad)
        for c in observe.cameras
    ]
    r = observe.ring
    if r is not None:
        image = (r.width_px, r.height_px, r.horizontal_fov_rad, r.first_angle_rad)
        cameras += ring_of_cameras(r.count, r.target_m, r.radius_m, r.height_m, r.up, *image)
    return cameras


def scene_cameras(config: SceneConfig) -> list[PinholeCamera]:
    """The cameras of a scene; it must have one."""
    cameras = [] if config.observe is None else cameras_of(config.observe)
    if not cameras:
        raise ConfigError("has no camera; add observe.cameras or observe.ring", "scene")
    return cameras


def depth_noise(noise: NoiseConfig) -> DepthNoise | None:
    """The noise of depth images, None where they are exact."""
    if noise.kind != "depth_camera":
        return None
    return DepthNoise(**{name: getattr(noise, name) for name in DepthNoise.__dataclass_fields__})


def watched_s(config: SceneConfig) -> float:
    """How long the cameras watch [s]."""
    whole = config.time.steps * config.time.step_s
    given = None if config.observe is None else config.observe.duration_s
    return whole if given is None else min(given, whole)


def frame_times_s(config: SceneConfig, steps: int | None = None) -> list[float]:
    """When the cameras look [s]; over the first `steps` time steps only, if given."""
    observe = config.observe or ObserveConfig()
    step = config.time.step_s
    end = watched_s(config) if steps is None else min(watched_s(config), steps * step)
    every = observe.every_steps * step if observe.every_steps else 1.0 / (observe.frame_rate_hz or _DEFAULT_RATE_HZ)
    count = int(np.floor(end / every * (1 + 1e-9)))
    if count == 0:
        raise ConfigError(
            f"gives a frame every {every:g} s, but only {end:g} s are watched; look more often or longer",
            "observe.every_steps" if observe.every_steps else "observe.frame_rate_hz",
        )
    return [k * every for k in range(1, count + 1)]


def times_from_start(config: SceneConfig) -> list[float]:
    """When the cameras look [s]: at time 0, and as often as the scene says from then on."""
    return [0.0, *frame_times_s(config)]


def scene_lasting(config: SceneConfig, seconds: float | None) -> SceneConfig:
    """The scene watched for that many seconds, as it says itself without."""
    if seconds is None:
        return config
    duration = max(seconds, config.time.step_s)
    observe = None if config.observe is None else replace(config.observe, duration_s=seconds)
    return replace(config, time=replace(config.time, duration_s=duration), observe=observe)
