"""The led obstacles of a window's model: their poses come in by stamps, as the frames do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from soft_estimator.estimation.residuals.tool_wrench import WrenchFrame
from soft_estimator.geometry.live_path import LivePath
from soft_estimator.physics.model import Model
from soft_estimator.physics.solids import SolidLaw

_TOUCHES = 4.0  # over the sharpness of a contact [1/m]: nearer than that a hundredth of its onset presses


class ToolPaths:
    """Where tools are is known, so that what they do to the body is simulated: their touch is no reason to start anew.

    Attributes:
        paths: of the model's obstacles that are led live; nobody but their owner adds poses.
    """

    def __init__(self, model: Model) -> None:
        places = [(law.obstacle, law.sharpness_per_m) for law in model.obstacles]
        self._led = {
            k: (place, place.path, _TOUCHES / sharpness)
            for k, (place, sharpness) in enumerate(places)
            if isinstance(place, SolidLaw) and isinstance(place.path, LivePath)
        }
        self.paths: list[LivePath] = [path for _, path, _ in self._led.values()]

    def count_from(self, stamp_s: float) -> None:
        """Simulated times count from a stamp [s]."""
        for path in self.paths:
            path.since_s = stamp_s

    def missing(self, stamp_s: float, from_s: float | None = None) -> str:
        """Why a frame cannot be simulated, or not from another stamp on: where a tool is then is not known; "" where
        it is."""
        return next((reason for path in self.paths if (reason := path.lacks(stamp_s, from_s))), "")

    def touch(self, surface_m: np.ndarray, stamp_s: float) -> bool:
        """Whether a tool touches a surface, vertices (V, 3) [m], at a stamp [s]."""
        return any(self._distance_m(k, surface_m, stamp_s) < reach_m for k, (_, _, reach_m) in self._led.items())

    def clear(self, readings: Sequence[WrenchFrame], around_m: np.ndarray, least_m: float) -> list[WrenchFrame]:
        """Those of what sensors read, at stamps [s], while their tools were at least so far [m] from all of some points
        (n, 3) [m]."""
        led = [reading for reading in readings if reading.tool in self._led]
        return [r for r in led if self._distance_m(r.tool, around_m, r.time_s) >= least_m]

    def _distance_m(self, tool: int, points_m: np.ndarray, stamp_s: float) -> float:
        """Of an obstacle that is led from the nearest of some points."""
        place, path, _ = self._led[tool]
        turn, shift = path.at_stamp(stamp_s)
        origin = turn @ place.centre_m + shift
        return float(np.min(place.solid.distance(np, (points_m - origin) @ (turn @ place.rotation))))
