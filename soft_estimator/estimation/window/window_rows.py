"""A window's predicted frames as the rows of a least-squares problem, in units of the noise that is seen in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from soft_estimator.estimation.fitting.uncertainty import noise_scale
from soft_estimator.estimation.problem import Evaluation
from soft_estimator.estimation.residuals.interface import Kinds, Weighed, weigh_all
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.trajectory import PredictedFrame
from soft_estimator.estimation.window.newest import Newest, NewestOfEach
from soft_estimator.estimation.window.shape_details import ShapeDetails

# The noise seen is believed down to this part of the stated one: residuals of a perfect simulation are smaller still,
# and would claim a certainty that no camera gives.
_LEAST_SCALE = 0.3


@dataclass(frozen=True, eq=False)
class _Rows:
    """Residuals in units of the noise seen (n,), as they count, and what they cost together."""

    residual: np.ndarray
    weighed: Weighed
    frame: np.ndarray
    whitened: np.ndarray
    misfit: float


@dataclass(frozen=True, eq=False)
class WindowRows:
    """Weighs frames; scale is everywhere the noise seen, in multiples of the stated one.

    Arrays of predicted frames are never changed: the same ones have the same rows.
    """

    kinds: Kinds
    loss: RobustLoss
    details: ShapeDetails
    _seen: Newest[_Rows] = field(default_factory=Newest)
    _by_fixed: NewestOfEach[np.ndarray] = field(default_factory=NewestOfEach)

    def noise(self, frames: Sequence[PredictedFrame], variables: int) -> float:
        """The noise that the residuals of a fit of so many variables show, in multiples of the stated one."""
        seen = [e.residual for e in frames if self.kinds.of(e.frame).whitened]
        return max(noise_scale(np.concatenate(seen), variables), _LEAST_SCALE) if seen else 1.0

    def units(self, frames: Sequence[PredictedFrame], scale: float) -> list[float]:
        """What each frame's residuals are divided by."""
        return [scale if self.kinds.of(e.frame).whitened else 1.0 for e in frames]

    def misfit(self, frames: Sequence[PredictedFrame], scale: float) -> float:
        """The frames' part of the cost."""
        return self._weighed(frames, scale).misfit

    def evaluation(self, frames: Sequence[PredictedFrame], z: np.ndarray, scale: float) -> Evaluation:
        """Frames predicted at z (P,) as an evaluation without a prior."""
        rows = self._weighed(frames, scale)
        return Evaluation(
            theta=z,
            cost=rows.misfit,
            misfit=rows.misfit,
            residual=rows.residual,
            slope=rows.weighed.slope,
            weight=rows.weighed.weight,
            frame=rows.frame,
            whitened=rows.whitened,
            far=0,
            jacobian=np.concatenate([e.jacobian / unit for e, unit in zip(frames, self.units(frames, scale))]),
        )

    def _weighed(self, frames: Sequence[PredictedFrame], scale: float) -> _Rows:
        return self._seen.of((*(e.residual for e in frames), scale), lambda: self._weigh(frames, scale))

    def _weigh(self, frames: Sequence[PredictedFrame], scale: float) -> _Rows:
        residuals = [e.residual / unit for e, unit in zip(frames, self.units(frames, scale))]
        weighed, frame, whitened = weigh_all(self.kinds, [e.frame for e in frames], residuals, self.loss)
        return _Rows(np.concatenate(residuals), weighed, frame, whitened, _summed(weighed.value, residuals))

    def stepped(self, at: Evaluation, frames: Sequence[PredictedFrame], step: np.ndarray) -> Evaluation:
        """An evaluation of these frames with the variables `step` (P,) further, along its Jacobian."""
        residual = at.residual + at.known_jacobian @ step
        residuals = np.split(residual, np.cumsum([len(e.residual) for e in frames])[:-1])
        weighed, _, _ = weigh_all(self.kinds, [e.frame for e in frames], residuals, self.loss)
        misfit = _summed(weighed.value, residuals)
        seen = replace(at, theta=at.theta + step, residual=residual, slope=weighed.slope, weight=weighed.weight)
        return replace(seen, cost=misfit, misfit=misfit)

    def by_fixed(self, frames: Sequence[PredictedFrame], scale: float) -> list[np.ndarray]:
        """Change of each frame's residuals with what is held fixed, (n, K)."""
        parts = list(zip([e.fixed for e in frames], self.details.columns(frames), self.units(frames, scale)))

        def made(k: int) -> np.ndarray:
            fixed, details, unit = parts[k]
            return np.hstack([fixed, details]) / unit

        return self._by_fixed.of(parts, made)


def _summed(values: np.ndarray, residuals: list[np.ndarray]) -> float:
    """Σ of the values, frame by frame."""
    return float(sum(part.sum() for part in np.split(values, np.cumsum([len(r) for r in residuals])[:-1])))
