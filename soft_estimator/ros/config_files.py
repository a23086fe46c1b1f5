"""Files of the package's config folder, in an installed package or beside it in a source tree."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# As with the scenes (soft_estimator/scene/files.py).
_CONFIG_PLACES = (_PACKAGE / "builtin_config", _PACKAGE.parent / "config")


def config_file(name: str) -> Path:
    """A file of the package's config folder."""
    for place in _CONFIG_PLACES:
        if (place / name).is_file():
            return place / name
    raise FileNotFoundError(f"{name} is not in {_CONFIG_PLACES[0]}; reinstall soft_estimator")
