"""Tracked points: known places of the material against where they were measured (markers, features, a mocap system)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from soft_estimator.estimation.residuals.carried_field import CarriedField
from soft_estimator.estimation.residuals.carried_surface import CarriedSurface
from soft_estimator.estimation.residuals.interface import (
    ByLoss,
    FrameAdjoint,
    FrameChanges,
    FrameState,
)


@dataclass(frozen=True)
class TrackedFrame:
    """Measured positions of the tracked points at one time.

    Attributes:
        time_s: since the start of the simulation. points_m: world frame, (k, 3), in the order of the tracked points;
            NaN for one that was not seen. std_m: standard deviation of each coordinate, (k,).
    """

    time_s: float
    points_m: np.ndarray
    std_m: np.ndarray

    @classmethod
    def of(cls, time_s: float, points_m: np.ndarray, std_m: float | np.ndarray) -> TrackedFrame:
        """A frame with the deviation given once for all points or point by point."""
        points = np.ascontiguousarray(points_m, dtype=np.float64).reshape(-1, 3)
        std = np.broadcast_to(np.asarray(std_m, dtype=np.float64), len(points)).copy()
        return cls(float(time_s), points, std)

    @property
    def seen(self) -> np.ndarray:
        """Which points were seen, (k,)."""
        return np.isfinite(self.points_m).all(axis=1)


@dataclass(frozen=True)
class TrackedPrediction:
    """Residuals (model - measured) / std of the seen points, coordinate by coordinate, (3 k,).

    weights: of the body's nodes in each seen point, sparse (k, N). scale_per_m: 1/std of each, (k,).
    """

    residual: np.ndarray
    weights: sp.csr_matrix
    scale_per_m: np.ndarray
    far: int = 0

    def changes(self, changes: FrameChanges) -> np.ndarray:
        du = changes.u
        moved = (self.weights @ du.reshape(len(du), -1)).reshape(-1, *du.shape[1:])
        return (self.scale_per_m[:, None, None] * moved).reshape(-1, du.shape[2])

    def changes_adjoint(self, residual_bar: np.ndarray) -> FrameAdjoint:
        moved_bar = self.scale_per_m[:, None] * residual_bar.reshape(-1, 3)
        return FrameAdjoint(u=self.weights.T @ moved_bar)


class TrackedPoints(ByLoss):
    """Points of the body that ride with its material.

    Args:
        field: of the body. rest_m: where the points are in the rest shape (k, 3) [m], inside it or on it, at most the
            field's halo outside.
    """

    whitened = True

    def __init__(self, field: CarriedField, rest_m: np.ndarray) -> None:
        self.rest_m = np.ascontiguousarray(rest_m, dtype=np.float64).reshape(-1, 3)
        still = np.zeros((field.follow.shape[1], 3))
        self.ride = CarriedSurface(field, still).riding_weights(self.rest_m)

    def positions_m(self, u: np.ndarray) -> np.ndarray:
        """Where the points are (k, 3) when the nodes are displaced by u (N, 3) [m]."""
        return self.rest_m + self.ride @ u

    def takes(self, frame: object) -> bool:
        return isinstance(frame, TrackedFrame)

    def check(self, frame: TrackedFrame) -> str:
        if frame.points_m.shape != self.rest_m.shape:
            return f"holds {len(frame.points_m)} tracked points where {len(self.rest_m)} are known; give NaN for unseen"
        seen = frame.seen
        if not seen.any():
            return "shows no tracked point; leave it out"
        if not (np.isfinite(frame.std_m[seen]).all() and (frame.std_m[seen] > 0).all()):
            return "holds a standard deviation that is not positive; clean it"
        return ""

    def count(self, frame: TrackedFrame) -> int:
        return 3 * int(frame.seen.sum())

    def predict(self, frame: TrackedFrame, state: FrameState) -> TrackedPrediction:
        seen = frame.seen
        weights, scale = self.ride[seen], 1.0 / frame.std_m[seen]
        off = self.rest_m[seen] + weights @ state.u - frame.points_m[seen]
        return TrackedPrediction((scale[:, None] * off).ravel(), weights, scale)

    def by_offset(self, frame: TrackedFrame) -> np.ndarray:
        return np.zeros(self.count(frame))
