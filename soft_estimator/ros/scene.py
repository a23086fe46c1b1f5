"""The scene that a node's parameters name, with a body of its own where one is given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from soft_estimator.config import SceneConfig
from soft_estimator.config_body import MeshShape
from soft_estimator.ros.settings import SceneSettings
from soft_estimator.scene.files import read_scene
from soft_estimator.scene.scene import Scene, build_scene
from soft_estimator.schema import ConfigError

_MESHES = (".ply", ".obj", ".stl", ".off")


def scene_config(settings: SceneSettings) -> tuple[SceneConfig, Path]:
    """The configuration, and the folder that its files are looked for in."""
    if not settings.scene:
        raise ConfigError("is empty; give a scene file or the name of a built-in scene", "scene")
    if settings.data and not Path(settings.data).is_dir():
        raise ConfigError(f"= '{settings.data}' is not a folder; give the one that holds the scene's files", "data")
    config, folder = read_scene(settings.scene)
    if settings.body:
        config = with_body(config, Path(settings.body).expanduser().resolve())
    return config, folder


def scene_of(settings: SceneSettings) -> Scene:
    """The scene made ready."""
    config, folder = scene_config(settings)
    return build_scene(config, folder, Path(settings.data) if settings.data else None)


def with_body(config: SceneConfig, file: Path) -> SceneConfig:
    """The scene with the body of a mesh file; cells as large as the scene's."""
    if not file.is_file():
        raise ConfigError(f"= '{file}' does not exist; give a mesh file", "body")
    if file.suffix.lower() not in _MESHES:
        raise ConfigError(f"= '{file}' ends in {file.suffix!r}; give one of {', '.join(_MESHES)}", "body")
    if config.body.spacing_m is None and config.body.cells_along_longest is None:
        raise ConfigError("needs a scene that says how large the cells are; add body.spacing_m to it", "body")
    return replace(config, body=replace(config.body, shape=MeshShape(file=str(file))))
