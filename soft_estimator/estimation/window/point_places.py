"""Where the points of a window's frames lie on the body: on which patch of its surface, beside which other point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.inspection import Places, SurfacePatches, few_of
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.trajectory import PredictedFrame
from soft_estimator.physics.body import Body
from soft_estimator.physics.frame_times import between

# Of a frame, evenly taken: the allowance of a patch outweighs the noise of its median from some 15 points on.
_MOST_POINTS = 400


@dataclass(frozen=True, eq=False)
class FramePlaces:
    """Of one frame's residuals.

    Attributes:
        patch: part of the surface that each lies on, (n,); -1 for what is no point of a cloud.
        chosen: those that a verdict looks at, (m,), and `places` of these.
    """

    patch: np.ndarray
    chosen: np.ndarray
    places: Places


class PointPlaces:
    """Finds them once for each frame: a fit moves points by less than a patch.

    Args:
        points: of a usual frame.
    """

    def __init__(self, body: Body, points: int, backend: Backend) -> None:
        self.patches, self.backend = SurfacePatches(body, min(points, _MOST_POINTS)), backend
        self._known: list[tuple[Any, FramePlaces]] = []  # of the frames that were asked for last

    def of(self, frames: Sequence[PredictedFrame]) -> list[FramePlaces]:
        self._known = [(e.frame, self._of_one(e)) for e in frames]
        return [places for _, places in self._known]

    def patch(self, frames: Sequence[PredictedFrame]) -> np.ndarray:
        """Patches of all residuals of these frames, (n,)."""
        return np.concatenate([places.patch for places in self.of(frames)])

    def _of_one(self, e: PredictedFrame) -> FramePlaces:
        for known, places in self._known:
            if known is e.frame:
                return places
        host, frame, count = self.backend.to_host, e.frame, len(e.residual)
        u = between(host(e.before.state.u), host(e.after.state.u), e.share).astype(np.float64)
        if count <= _MOST_POINTS or not isinstance(frame, ObservedFrame) or len(frame.points_m) != count:
            found = self.patches.of(frame, u, count)
            return FramePlaces(found[0], np.arange(count), found)
        chosen = np.linspace(0, count - 1, _MOST_POINTS).astype(np.int64)
        patch = self.patches.at(frame.points_m, u)
        return FramePlaces(patch, chosen, few_of(frame, patch, chosen))
