"""The verdict on a window's fit, with every update: does the model fit the frames it holds?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.fitting.allowance import allowance_m
from soft_estimator.estimation.fitting.felt_force import with_forces_left
from soft_estimator.estimation.fitting.verdict import Evidence, FitVerdict, judge
from soft_estimator.estimation.inspection import joined_places
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.tool_wrench import WrenchFrame
from soft_estimator.estimation.window.point_places import PointPlaces
from soft_estimator.estimation.window.window_fit import Answer, WindowFit
from soft_estimator.physics.body import Body

_LEAST_READINGS = 3  # of a force, from which on they are judged
_IDLE_KEPT = 100  # readings of each tool's sensor while that was clear of the body, the newest


class WindowVerdict:
    """Judges windows of one body.

    Args:
        places: finds where points lie on it. known: how far off the shape may be; the usual by default.
    """

    def __init__(self, body: Body, places: PointPlaces, known: KnownToConfig | None) -> None:
        self.places, self.allowance_m = places, allowance_m(known or KnownToConfig(), body)
        self._idle: dict[int, list[np.ndarray]] = {}

    def note_idle(self, readings: Sequence[WrenchFrame]) -> None:
        """Sensors read this while their tools were clear of the body."""
        for reading in readings:
            self._idle.setdefault(reading.tool, []).append(reading.wrench[:3])
            del self._idle[reading.tool][:-_IDLE_KEPT]

    def with_felt_force(self, verdict: FitVerdict, fit: WindowFit, answer: Answer) -> FitVerdict:
        """The verdict on a fit that has settled, whose tools may be pressed by other forces than their sensors read:
        what is left of the readings once all that is held fixed is as far off as it may be, and what they read
        while their tools touched nothing. A tool that is known to a millimetre may be off by newtons: of five readings
        of up to 13 N the other sign is found by the first, 4 N too much by the second alone."""
        felt = [e for e in fit.frames if isinstance(e.frame, WrenchFrame)]
        if not verdict.fits or len(felt) < _LEAST_READINGS:
            return verdict
        step = answer.z - fit.at.z
        off = np.concatenate([(e.residual + e.jacobian @ step)[:3] for e in felt])
        free = np.concatenate([e.fixed[:3] for e in felt])
        left = off - free @ np.linalg.solve(free.T @ free + np.eye(free.shape[1]), free.T @ off)
        frames, shape = [e.frame for e in felt], (len(felt), 3)
        idle_n = {tool: np.array(read) for tool, read in self._idle.items()}
        return with_forces_left(verdict, frames, off.reshape(shape), left.reshape(shape), fit.motion.model, idle_n)

    def of(
        self, fit: WindowFit, answer: Answer, changes: Sequence[Sequence[np.ndarray]] = (), ended: bool = False
    ) -> FitVerdict:
        """The verdict on a fit at its answer; one that had no time to settle yet is not judged.

        changes: to be added to the residuals of every frame, [(n,)] each. ended: no search follows, so that one that
            has not settled is judged where it stands.
        """
        kinds = fit.motion.kinds
        seen = [e for e in fit.frames if isinstance(e.frame, ObservedFrame) and kinds.of(e.frame).whitened]
        if not seen or not (answer.settled or ended):
            return FitVerdict()
        clouds = [
            (k, e, p)
            for k, (e, p) in enumerate(zip(fit.frames, self.places.of(fit.frames)))
            if any(e is one for one in seen)
        ]
        step = answer.z - fit.at.z if answer.settled else np.zeros_like(answer.z)
        patch, std, neighbour = joined_places([p.places for _, _, p in clouds])
        left = [(e.residual + e.jacobian @ step + sum(change[k] for change in changes))[p.chosen] for k, e, p in clouds]
        return judge(
            Evidence(
                residual=np.concatenate(left),
                std_m=std,
                frame=np.repeat(np.arange(len(clouds)), [len(part) for part in left]),
                patch=patch,
                neighbour=neighbour,
                time_s=np.array([e.frame.time_s for _, e, _ in clouds]),
                jacobian=np.zeros((len(patch), 1)),
                suspects={},
                allowance_m=self.allowance_m,
            )
        )
