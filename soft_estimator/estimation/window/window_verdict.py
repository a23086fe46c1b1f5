"""The verdict on a window's fit, with every update: does the model fit the frames it holds?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from soft_estimator.config_estimation import KnownToConfig
from soft_estimator.estimation.fitting.allowance import allowance_m
from soft_estimator.estimation.fitting.verdict import Evidence, FitVerdict, judge
from soft_estimator.estimation.inspection import Places, SurfacePatches, joined_places
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.trajectory import PredictedFrame
from soft_estimator.estimation.window.window_fit import Answer, WindowFit
from soft_estimator.physics.body import Body
from soft_estimator.physics.frame_times import between

# Of a frame, evenly taken: the allowance of a patch outweighs the noise of its median from some 15 points on.
_MOST_POINTS = 400


class WindowVerdict:
    """Judges windows of one body.

    Args:
        points: of a usual frame. known: how far off the shape may be; the usual by default.
    """

    def __init__(self, body: Body, points: int, known: KnownToConfig | None) -> None:
        self.body, self.allowance_m = body, allowance_m(known or KnownToConfig(), body)
        self.patches = SurfacePatches(body, min(points, _MOST_POINTS))
        self._places: list[tuple[Any, Places]] = []  # of the window's frames

    def of(self, fit: WindowFit, answer: Answer) -> FitVerdict:
        """The verdict on a fit at its answer; one that had no time to settle is not judged."""
        kinds = fit.motion.kinds
        clouds = [e for e in fit.frames if isinstance(e.frame, ObservedFrame) and kinds.of(e.frame).whitened]
        if not clouds or not answer.settled:
            return FitVerdict()
        self._places = [(e.frame, self._place(e, fit)) for e in clouds]
        step = answer.z - fit.at.z
        patch, std, neighbour = joined_places([places for _, places in self._places])
        left = [(e.residual + e.jacobian @ step)[_chosen(e)] for e in clouds]
        return judge(
            Evidence(
                residual=np.concatenate(left),
                std_m=std,
                frame=np.repeat(np.arange(len(clouds)), [len(part) for part in left]),
                patch=patch,
                neighbour=neighbour,
                time_s=np.array([e.frame.time_s for e in clouds]),
                jacobian=np.zeros((len(patch), 1)),
                suspects={},
                allowance_m=self.allowance_m,
            )
        )

    def _place(self, e: PredictedFrame, fit: WindowFit) -> Places:
        """Where a frame's points lie on the body; found once, for the fit moves them by less than a patch."""
        for known, places in self._places:
            if known is e.frame:
                return places
        host = fit.motion.backend.to_host
        u = between(host(e.before.state.u), host(e.after.state.u), e.share).astype(np.float64)
        frame, chosen = e.frame, _chosen(e)
        if isinstance(frame, ObservedFrame) and len(frame.points_m) == len(e.residual):
            frame = replace(frame, points_m=frame.points_m[chosen], std_m=frame.std_m[chosen])
        return self.patches.of(frame, u, len(chosen))


def _chosen(e: PredictedFrame) -> np.ndarray:
    """Which of a frame's points are looked at."""
    count = len(e.residual)
    return np.arange(count) if count <= _MOST_POINTS else np.linspace(0, count - 1, _MOST_POINTS).astype(np.int64)
