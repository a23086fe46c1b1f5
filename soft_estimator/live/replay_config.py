"""Everything a replay depends on besides the bag: same bag, same configuration, same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from soft_estimator.config import SceneConfig
from soft_estimator.config_live import WindowConfig
from soft_estimator.perception.settings import FinderSettings, NoiseSettings, PlaneSettings
from soft_estimator.recordings.adjusted import Choice, frames_of
from soft_estimator.schema import ConfigError, Section, load, quantity, section, setting, to_plain, vector

Pose = tuple[float, float, float, float, float, float, float]


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(Section):
    """A replay: the scene that explains the recording, how its object is found, and the window of the estimator."""

    scene: SceneConfig = section(doc="body, first guesses and what is to be estimated")
    finder: FinderSettings = section(FinderSettings, doc="how the object is found in a cloud")
    window: WindowConfig = section(WindowConfig, doc="the sliding window")
    topic: str | None = setting(None, doc="topic of the camera; needed where a bag has several")
    fixed_frame: str = setting("world", doc="frame of the bag's transforms that the scene is given in")
    frames: str = setting("", doc="which frames: 20 (the first 20), 10:80 or 10:80:2; all if left out")
    sensor_pose: Pose | None = vector(
        None,
        doc="camera to fixed frame, x, y, z [m] and the quaternion x, y, z, w, in place of the recording's own; where "
        "neither has one the scene's first camera tells",
    )
    hold_out: float = quantity(
        0.3, low=0, high=0.95, doc="share of the frames, at the end, that is predicted from the estimate before them"
    )

    @property
    def choice(self) -> Choice:
        """What to take of a recording."""
        return Choice(frames_of(self.frames), self.sensor_pose)

    def check(self) -> None:
        try:
            frames_of(self.frames)
        except ValueError as error:
            raise ConfigError(f"= {error}", "frames") from None
        if self.window.time_budget_s is not None:
            raise ConfigError(
                f"= {self.window.time_budget_s:g} would make the result depend on the machine; leave it out",
                "window.time_budget_s",
            )
        if self.scene.estimate is None:
            raise ConfigError(
                "has no estimate section; add one such as estimate: {parameters: [youngs_modulus_pa]}", "scene"
            )


def finder_for(scene: SceneConfig) -> FinderSettings:
    """How the object of a scene is found: its sensor's noise, and a table only where the scene has a plane."""
    noise = NoiseSettings()
    if scene.observe is not None and scene.observe.noise.kind == "depth_camera":
        n = scene.observe.noise
        noise = NoiseSettings(
            floor_m=max(n.axial_floor_m, 1e-6),
            per_m=n.axial_per_m,
            min_depth_m=n.min_range_m,
            max_depth_m=min(n.max_range_m, 1e6),
        )
    if scene.contact is None:
        return FinderSettings(noise=noise, support="none")
    gravity = np.array(scene.gravity_m_s2)
    if not gravity.any():
        return FinderSettings(noise=noise)
    x, y, z = (-gravity / np.linalg.norm(gravity)).tolist()
    return FinderSettings(noise=noise, plane=PlaneSettings(expected_normal=(x, y, z)))


def load_replay(data: Any, folder: Path, name: str = "replay") -> tuple[ReplayConfig, Path]:
    """A configuration from nested dictionaries, and the folder its scene's files are looked for in.

    Args:
        data: as `ReplayConfig`; `scene` may also be the name of a built-in scene or the path of a scene file.
        folder: where the file lies that data came from.
    """
    from soft_estimator.config import load_scene
    from soft_estimator.scene.files import builtin_scene_path

    if not isinstance(data, Mapping):
        raise ConfigError("must be a mapping with at least the key scene", name)
    content = dict(data)
    scene = content.get("scene")
    if isinstance(scene, str):
        path = folder / scene if scene.lower().endswith((".yaml", ".yml")) else builtin_scene_path(scene)
        content["scene"], folder = to_plain(load_scene(path)), path.parent
    if isinstance(content.get("scene"), Mapping) and "finder" not in content:
        content["finder"] = to_plain(finder_for(load(SceneConfig, content["scene"], "scene")))
    return load(ReplayConfig, content, name), folder


def config_text(config: ReplayConfig) -> str:
    """The configuration as a YAML file that `load_replay` reads, every default filled in."""
    return "# The replay as it was run, every default filled in; use it again with --config.\n" + yaml.safe_dump(
        to_plain(config), sort_keys=False, allow_unicode=True
    )
