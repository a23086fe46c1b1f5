"""What the viewer has shown, to look back at: points and twin of the same moment, and how old they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from soft_estimator.viewer.updates import MeshNow, ViewUpdate

MOST_MOMENTS = 400  # a twin of a thousand vertices takes 50 kB of each
_MOST_CLOUDS = 150  # clouds that wait for their twin: five seconds at 30 Hz
_SAME_S = 0.02  # stamps nearer than this are of one moment: less than a frame at 30 Hz


@dataclass(frozen=True, eq=False)
class Moment:
    """The twin at a time [s], what the camera saw then (n, 3) [m], None where that is not known, the plane, and the
    tools."""

    time_s: float
    mesh: MeshNow
    points_m: np.ndarray | None
    plane: tuple[np.ndarray, float] | None
    tools: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)


class History:
    """Takes updates in; a twin that comes later than its points finds those of its own moment.

    Attributes:
        newest_s: time of the newest update [s]; 0 before any.
    """

    def __init__(self, most: int = MOST_MOMENTS) -> None:
        self._most = most
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._clouds: deque[tuple[float, np.ndarray]] = deque(maxlen=_MOST_CLOUDS)
        self._plane: tuple[np.ndarray, float] | None = None
        self._tools: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._moments: list[Moment] = []
        self._newest: Moment | None = None
        self._every, self._count = 1, 0
        self.newest_s = 0.0

    def add(self, update: ViewUpdate) -> Moment | None:
        """Take in an update; the moment of its twin, where it has one."""
        self.newest_s = max(self.newest_s, update.time_s)
        if update.points_m is not None:
            self._clouds.append((update.time_s, update.points_m))
        if update.plane is not None:
            self._plane = update.plane
        if update.tools:
            self._tools = {**self._tools, **update.tools}
        if update.mesh is None:
            return None
        moment = Moment(update.time_s, update.mesh, self._points_at(update.time_s), self._plane, self._tools)
        if self._count % self._every == 0:
            self._moments.append(moment)
            if len(self._moments) >= self._most:  # from now on at half the rate
                self._moments, self._every = self._moments[::2], 2 * self._every
        self._newest, self._count = moment, self._count + 1
        return moment

    def at(self, time_s: float) -> Moment | None:
        """The moment nearest to a time; None where there is none."""
        kept = self._moments if self._newest is None else [*self._moments, self._newest]
        return min(kept, key=lambda moment: abs(moment.time_s - time_s), default=None)

    def age_in_words(self, moment: Moment) -> str:
        """Of when twin and points are, and how old that is."""
        shown = "twin and points" if moment.points_m is not None else "twin"
        return f"{shown} of {moment.time_s:.2f} s, {max(self.newest_s - moment.time_s, 0.0):.2f} s old"

    def _points_at(self, time_s: float) -> np.ndarray | None:
        near = min(self._clouds, key=lambda cloud: abs(cloud[0] - time_s), default=None)
        return near[1] if near is not None and abs(near[0] - time_s) < _SAME_S else None
