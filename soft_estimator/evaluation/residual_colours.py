"""Colours for how far observed points lie off a surface; the same in reports and in the viewer."""

from __future__ import annotations

import numpy as np

from soft_estimator.evaluation.colours import CORAL, TEAL

NEUTRAL, UNSEEN = np.array((0.95, 0.95, 0.95)), np.array((0.60, 0.62, 0.66))


def residual_colours(residual_m: np.ndarray, full_m: float) -> np.ndarray:
    """Teal for points inside the surface, coral for points outside, grey where there are none; (V, 3) in 0..1."""
    share = np.clip(np.nan_to_num(residual_m) / full_m, -1.0, 1.0)[:, None]
    side = np.where(share > 0, np.array(CORAL), np.array(TEAL))
    colour = (1 - np.abs(share)) * NEUTRAL + np.abs(share) * side
    return np.where(np.isfinite(residual_m)[:, None], colour, UNSEEN)
