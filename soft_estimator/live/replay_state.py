"""A replay between two frames as bytes, and back: the window, the finder and what was collected, to the last bit.

What a scene's configuration makes (body, model, backend) is not among them but named, and taken from the scene that
goes on. Bytes that somebody else wrote cannot do harm: only numbers, arrays and the package's own data are read.
"""

from __future__ import annotations

import importlib
import io
import pickle
import zlib
from collections.abc import Mapping
from typing import Any

# What may stand in a state beside classes of the rooms below: arrays, their types, and plain containers.
_KNOWN = {
    "builtins": {"complex", "frozenset", "range", "set", "slice"},
    "collections": {"OrderedDict", "deque"},
    "time": {"perf_counter"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.numeric": {"_frombuffer"},
    "cupy._core.core": {"array"},
    "soft_estimator.estimation.trajectory": {"trajectory_from"},
    "soft_estimator.estimation.window.window_fit": {"always"},
    "soft_estimator.recordings.ground_truth": {"TruthRow"},
}
_ROOMS = ("config", "estimation", "geometry", "live", "parameters", "perception", "physics", "report", "schema")
_FAST = 1  # zlib's level: states are written every few seconds


class _Writer(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, shared: Mapping[str, object]) -> None:
        super().__init__(stream, protocol=5)
        self._names = {id(part): name for name, part in shared.items()}

    def persistent_id(self, obj: object) -> str | None:
        return self._names.get(id(obj))


class _Reader(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, shared: Mapping[str, object]) -> None:
        super().__init__(stream)
        self._shared = shared

    def persistent_load(self, name: str) -> object:
        return self._shared[name]

    def find_class(self, module: str, name: str) -> Any:
        if name in _KNOWN.get(module, ()):
            return getattr(importlib.import_module(module), name)
        first, _, rest = module.partition(".")
        if first == "soft_estimator" and rest.split(".")[0].split("_")[0] in _ROOMS:
            found = getattr(importlib.import_module(module), name, None)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no part of a replay")


def state_bytes(state: Mapping[str, Any], shared: Mapping[str, object]) -> bytes:
    """A replay's changing parts by name; shared: what is only named, by name."""
    stream = io.BytesIO()
    _Writer(stream, shared).dump(dict(state))
    return zlib.compress(stream.getvalue(), _FAST)


def read_state(content: bytes, shared: Mapping[str, object]) -> dict[str, Any]:
    """The parts again; a ValueError says why they cannot be read."""
    try:
        found = _Reader(io.BytesIO(zlib.decompress(content)), shared).load()
    except Exception as error:  # bytes that are no state fail in any way they like
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
    if not isinstance(found, dict):
        raise ValueError("it holds no state")
    return found
