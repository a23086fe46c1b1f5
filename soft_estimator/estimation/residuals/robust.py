"""Robust losses of whitened residuals: how much an outlier may pull."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soft_estimator.config_estimation import LossConfig

_DEFAULT = LossConfig()  # the configuration is the home of defaults


@dataclass(frozen=True)
class RobustLoss:
    """ρ(r) with ρ ≈ ½r² for small r.

    Attributes:
        kind: "squares"; "huber", linear beyond the threshold; "tukey", flat beyond it.
        threshold: in standard deviations.
    """

    kind: str = _DEFAULT.kind
    threshold: float = _DEFAULT.threshold

    def __post_init__(self) -> None:
        if self.kind not in ("squares", "huber", "tukey"):
            raise ValueError(f"loss '{self.kind}' is not known; choose squares, huber or tukey")

    def value(self, r: np.ndarray) -> np.ndarray:
        c, size = self.threshold, np.abs(r)
        if self.kind == "squares":
            return 0.5 * r**2
        if self.kind == "huber":
            return np.where(size <= c, 0.5 * r**2, c * (size - 0.5 * c))
        return c**2 / 6 * (1 - np.clip(1 - (r / c) ** 2, 0, None) ** 3)

    def weight(self, r: np.ndarray) -> np.ndarray:
        """ρ'(r)/r, the weight of a residual in reweighted least squares."""
        c, size = self.threshold, np.abs(r)
        if self.kind == "squares":
            return np.ones_like(r)
        if self.kind == "huber":
            return np.where(size <= c, 1.0, c / np.maximum(size, 1e-300))
        return np.clip(1 - (r / c) ** 2, 0, None) ** 2
