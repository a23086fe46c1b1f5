"""The digital twin's motion as it was estimated, as a picture that moves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.pictures.motion_pictures import Frame, draw_animation
from soft_estimator.pictures.surface_values import equivalent_strain
from soft_estimator.scene.scene import Scene

_GAP_S = 1.0  # estimates farther apart belong to different motions
_FRAME_S = 0.1


def animate_estimates(path: Path, scene: Scene, estimates: Sequence[LiveEstimate]) -> None:
    """Draw the longest run of estimates without a gap, coloured by strain."""
    runs: list[list[LiveEstimate]] = [[]]
    for estimate in estimates:
        if runs[-1] and estimate.stamp_s - runs[-1][-1].stamp_s > _GAP_S:
            runs.append([])
        runs[-1].append(estimate)
    chosen, body, frames = max(runs, key=len), scene.body, []
    for e in chosen:
        strain = np.maximum(body.surface.interpolate(equivalent_strain(body, e.u_m)), 0.0)
        frames.append(Frame(e.stamp_s - chosen[0].stamp_s, body.surface_positions_m(e.u_m), strain))
    draw_animation(path, scene, frames, _FRAME_S)
