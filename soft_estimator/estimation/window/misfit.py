"""Noticing that a body no longer moves as its model does: something touched it."""

from __future__ import annotations

from collections import deque

import numpy as np

from soft_estimator.estimation.window.lasting import Learnt

# The median residual in multiples of the usual one. That of 400 points with the stated noise stays below 1.2; a body
# that a hand moves by a few millimetres shows ten and more.
_MISFIT_SCALE = 4.0
_MISFIT_FRAMES = 3  # in a row: one wild frame may be the camera's
_MOST_USUAL = 3.0  # noise beyond three times the stated one is itself a misfit


class MisfitWatch:
    """Counts frames that do not fit, and keeps what was known before them."""

    def __init__(self) -> None:
        self._misfits = 0
        self._behind: deque[Learnt] = deque(maxlen=_MISFIT_FRAMES + 1)

    def look(self, residual: np.ndarray, scale: float, learnt: Learnt, counts: bool) -> tuple[str, Learnt | None]:
        """What to say of the newest frame's residuals (n,), and what to go back to where too many did not fit.

        Args:
            scale: noise that all residuals show, in multiples of the stated one. learnt: by now. counts: whether the
                window has seen enough to say.
        """
        size = 1.4826 * float(np.median(np.abs(residual)))
        fits = size <= _MISFIT_SCALE * max(1.0, min(scale, _MOST_USUAL)) or not counts
        self._misfits = 0 if fits else self._misfits + 1
        self._behind.append(learnt)
        if fits:
            return "", None
        if self._misfits < _MISFIT_FRAMES:
            return f"the newest points lie {size:.1f} standard deviations off the model", None
        return "the body does not move as its model does (was it touched?): started anew", self._behind[0]
