"""A window's frames as its coarser grid shows them by the steps of some model, ready to go on to newer frames."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.residuals.interface import Kinds
from soft_estimator.estimation.window.window_fit import WindowFit
from soft_estimator.estimation.window.window_motion import WindowMotion
from soft_estimator.physics.model import Model


class CoarserLook:
    """The frames' residuals by the steps of a model, taken on the coarser grid alone.

    What shorter steps change of them hardly depends on where the variables are: newer frames are gone on to from where
    the look ended, at its variables, as far as a window's changes are used away from theirs.

    Attributes:
        z: its variables, (P + 1,). residuals: of its frames, [(n,)].
    """

    def __init__(self, fit: WindowFit, z: np.ndarray, model: Model, backend: Backend, kinds: Kinds) -> None:
        grids = fit.motion.coarser
        assert grids is not None, "only windows that have one are looked at on it"
        steps = grids.with_step(model.integrator)
        self._of = fit.motion
        self._motion = WindowMotion(model, fit.motion.variables, backend, kinds, coarser=steps, alone=True)
        self._motion.start = fit.motion.start
        self.z, self._frames = z, [e.frame for e in fit.frames]
        self._trajectory, seen = self._motion.follow(z, self._frames, fit.at)
        self.residuals = [e.residual for e in seen]

    def newer(self, fit: WindowFit) -> int | None:
        """How many frames of a window it has not seen yet; None where it is of another motion, or of variables too far
        from the window's."""
        frames = [e.frame for e in fit.frames]
        begins = fit.motion is self._of and fit.motion.start is self._motion.start
        same = len(self._frames) <= len(frames) and all(a is b for a, b in zip(self._frames, frames))
        return len(frames) - len(self._frames) if begins and same and fit.changes_hold(fit.at.z - self.z) else None

    def go_on(self, fit: WindowFit) -> None:
        """Through the window's newer frames; raises SolverError where they cannot be followed: it is over then."""
        for e in fit.frames[len(self._frames) :]:
            seen = self._motion.through(self._trajectory, e.frame, self.z)
            self._frames.append(e.frame)
            self.residuals.append(seen.residual)
