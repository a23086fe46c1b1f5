"""The result of an estimate, a replay or a measurement, read back from its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from soft_estimator.config import SceneConfig, load_scene
from soft_estimator.estimation.fitting.parameter_posterior import ParameterPosterior
from soft_estimator.physics.parameters import Parameters
from soft_estimator.scene.rest_shape import REST_SHAPE, RestShape, read_rest_shape
from soft_estimator.schema import load, read_yaml

ESTIMATE, METRICS, MEASUREMENT = "estimate.json", "metrics.json", "measurement.json"
_FILES = (ESTIMATE, METRICS, MEASUREMENT)


@dataclass(frozen=True)
class Result:
    """What was estimated, of which body.

    Attributes:
        source: the file the numbers come from. config: the scene. shape: its body at rest.
        posterior: of the parameters. followed: whether the pose is one of a moving body at some moment of a recording,
            which says nothing about where the object belongs.
    """

    source: Path
    config: SceneConfig
    shape: RestShape
    posterior: ParameterPosterior
    followed: bool

    def estimate(self) -> Parameters:
        """The estimated parameters."""
        return self._placed(self.posterior.parameters())

    def draw(self, count: int, seed: int = 0) -> list[Parameters]:
        """Parameters drawn from the posterior."""
        return [self._placed(p) for p in self.posterior.draw(count, seed)]

    def _placed(self, parameters: Parameters) -> Parameters:
        """The body where the scene puts it, if all that is known else is where a recording happened to see it."""
        if not self.followed:
            return parameters
        start = self.config.initial
        pose = (np.array(start.translation_m), np.array(start.rotation_rad))
        return parameters.replace(translation_m=pose[0], rotation_rad=pose[1])


def read_result(path: Path | str) -> Result:
    """Read the folder that `estimate`, `replay` or `measure` wrote, or the file with the numbers in it."""
    source = _numbers_file(Path(path))
    content = _read_json(source)
    if source.name == METRICS and "bags" in content:
        names = ", ".join(row.get("bag", "?") for row in content["bags"])
        raise ValueError(f"{source} is a table of several bags; name the folder of one of them: {names}")
    posterior = ParameterPosterior.from_plain(content.get("posterior"), str(source))
    shape = read_rest_shape(source.parent / REST_SHAPE)
    return Result(source, _scene(source), shape, posterior, followed=source.name != ESTIMATE)


def _numbers_file(path: Path) -> Path:
    if path.is_dir():
        found = [path / name for name in _FILES if (path / name).is_file()]
        if not found:
            raise ValueError(
                f"{path} holds none of {', '.join(_FILES)}; give a folder that estimate, replay or measure wrote"
            )
        return found[0]
    if not path.is_file():
        raise ValueError(f"{path} does not exist; give the folder that measure, estimate or replay wrote")
    if path.name not in _FILES:
        raise ValueError(f"{path.name} is no result; give {', '.join(_FILES)} or the folder that holds it")
    return path


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # ValueError: no JSON, or no UTF-8
        raise ValueError(f"{path} is not a JSON file ({' '.join(str(error).split())}); write it anew") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no result but a {type(content).__name__}; write it anew")
    return content


def _scene(source: Path) -> SceneConfig:
    if source.name != METRICS:
        return load_scene(source.parent / "scene.yaml")
    path = source.parent / "replay.yaml"
    content = read_yaml(path)
    if not isinstance(content, Mapping) or "scene" not in content:
        raise ValueError(f"{path} has no scene; replay the bag anew")
    return load(SceneConfig, content["scene"], name="scene")
