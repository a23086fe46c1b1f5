"""Scene files: one of the user's, or a built-in one, in a source tree and in an installed package alike."""

from __future__ import annotations

import difflib
from pathlib import Path

from soft_estimator.config import SceneConfig, load_scene

_PACKAGE = Path(__file__).resolve().parents[1]
# An installed package carries the scenes inside it (see HOMES in setup.py); a source tree, and an editable
# install that points at one, keeps them in config/scenes. The first is tried first: beside an installed package
# lies whatever else is installed.
_PLACES = (_PACKAGE / "builtin_scenes", _PACKAGE.parent / "config" / "scenes")


def _folder() -> Path:
    for place in _PLACES:
        if place.is_dir():
            return place
    raise FileNotFoundError(f"the built-in scenes are not in {_PLACES[0]}; reinstall soft_estimator")


def builtin_scene_names() -> list[str]:
    """Names of the built-in scenes, sorted."""
    return sorted(path.stem for path in _folder().glob("*.yaml"))


def builtin_scene_path(name: str) -> Path:
    """File of a built-in scene."""
    names = builtin_scene_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(names)}"
        raise ValueError(f"no built-in scene '{name}'; {hint}")
    return _folder() / f"{name}.yaml"


def read_scene(name: str) -> tuple[SceneConfig, Path]:
    """The scene of a file or a built-in name, and the folder its files are looked for in."""
    path = Path(name)
    looks_like_a_file = path.suffix.lower() in (".yaml", ".yml") or len(path.parts) > 1
    if not (looks_like_a_file or path.is_file()):
        path = builtin_scene_path(name)
    return load_scene(path), path.parent
