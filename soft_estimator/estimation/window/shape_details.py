"""Patches of a body's surface that lie somewhat off, each by itself and the same in all frames of all episodes.

A body that spins in the air is stretched by it, less than its shape is known to: without them the window took the
details of a falling ball's shape for its stiffness, 6.6 ± 2.6 kPa for 20.5 before it had touched anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.fitting.allowance import shape_std_m
from soft_estimator.estimation.residuals.interface import Kinds
from soft_estimator.estimation.trajectory import PredictedFrame
from soft_estimator.estimation.window.newest import NewestOfEach
from soft_estimator.estimation.window.point_places import PointPlaces
from soft_estimator.physics.body import Body


class ShapeDetails:
    """Their columns, as `fitting.consider.details_effect` has them for a whole recording.

    Args:
        known: how far off the shape may be; None: it is exact, and there are no columns.
    """

    def __init__(self, body: Body, places: PointPlaces, kinds: Kinds, known: KnownToConfig | None) -> None:
        self.places, self.kinds = places, kinds
        self.std_m = 0.0 if known is None else shape_std_m(known, body)
        self._columns: NewestOfEach[np.ndarray] = NewestOfEach()
        self.count = places.patches.count if self.std_m > 0 else 0

    def columns(self, frames: Sequence[PredictedFrame]) -> list[np.ndarray]:
        """Change of each frame's residuals with a standard deviation of each patch, (n, count)."""
        if self.count == 0:
            return [np.zeros((len(e.residual), 0)) for e in frames]
        patches, every = [found.patch for found in self.places.of(frames)], np.arange(self.count)

        def column(k: int) -> np.ndarray:
            by_offset = self.kinds.of(frames[k].frame).by_offset(frames[k].frame)
            return np.where(patches[k][:, None] == every, self.std_m * by_offset[:, None], 0.0)

        return self._columns.of([(patch,) for patch in patches], column)
