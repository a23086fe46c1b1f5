"""A window's frames along their linearisation, with what was known before them: what both say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.estimation.fitting.widening import Before, widening
from soft_estimator.estimation.problem import Evaluation
from soft_estimator.estimation.trajectory import PredictedFrame
from soft_estimator.estimation.window.arrival import Knowledge, inverse_of
from soft_estimator.estimation.window.window_rows import WindowRows

_WIDEST = 30.0  # beyond that frames contradict each other so much that nothing of them is information


@dataclass(frozen=True, eq=False)
class LinearFit:
    """Frames and knowledge at one place.

    Attributes:
        scale: the noise seen, in multiples of the stated one. knowledge: before the frames. at: the frames' rows in
            units of that noise, with the variables where they are.
    """

    rows: WindowRows
    frames: Sequence[PredictedFrame]
    scale: float
    knowledge: Knowledge
    at: Evaluation

    def stepped(self, step: np.ndarray) -> LinearFit:
        """The same with the variables `step` (P,) further."""
        return replace(self, at=self.rows.stepped(self.at, self.frames, step))

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """What the frames say of the variables (P, P), and by how much each was taken to spread wider."""
        information = self.at.information
        before = Before(self.knowledge.information, self.knowledge.gradient(self.at.theta))
        whole, patch = inverse_of(before.information + information), self.rows.details.places.patch(self.frames)
        widen = np.minimum(widening(self.at, whole, 1.0, patch, before), _WIDEST)
        return information / np.outer(widen, widen), widen

    def by_fixed(self) -> np.ndarray:
        """Change of the minimum with what is held fixed, (P, K): that of the knowledge before, and that of the rows."""
        return self._pulled(self.knowledge.by_fixed, np.concatenate(self.rows.by_fixed(self.frames, self.scale)))

    def moved_minimum(self, residuals: list[np.ndarray], before: np.ndarray) -> np.ndarray:
        """How far the minimum would move, (P,), were the frames' residuals these, and the knowledge before them off by
        `before` (P,)."""
        units = self.rows.units(self.frames, self.scale)
        off = [(other - e.residual) / unit for other, e, unit in zip(residuals, self.frames, units)]
        return self._pulled(before, np.concatenate(off))

    def moved_cost(self, residuals: list[np.ndarray], before: np.ndarray, by: np.ndarray) -> float:
        """What the frames' residuals cost where the variables moved by `by` (P,), with what is known before, which is
        off by `before` (P,)."""
        rows, units = self.at, self.rows.units(self.frames, self.scale)
        residual = np.concatenate([one / unit for one, unit in zip(residuals, units)])
        off, pull = by - before, rows.known_jacobian.T @ (rows.weight * rows.residual)
        of_before = 0.5 * off @ self.knowledge.information @ off - pull @ off
        return float(0.5 * rows.weight @ residual**2 + of_before)

    def _pulled(self, before: np.ndarray, off: np.ndarray) -> np.ndarray:
        """How far the minimum moves, (P, ...), where the knowledge before the frames moves by `before` (P, ...) and the
        rows' residuals change by `off` (n, ...)."""
        known = self.knowledge.information
        return inverse_of(known + self.at.information) @ (known @ before - self.at.weighted.T @ off)
