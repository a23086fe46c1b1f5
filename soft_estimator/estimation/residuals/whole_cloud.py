"""The residual of clouds taken as a whole: how unlikely each point is, wherever on the surface it came from.

For noise as wide as half a cell or wider, where distances to the nearest place are biased (`cloud_mixture`). Each frame
has a density of its own, fitted along; `fitting.whole_clouds` shares one between all frames and fits the noise, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from soft_estimator.estimation.residuals.carried_field import CarriedField
from soft_estimator.estimation.residuals.cloud_mixture import (
    DENSITY_STD,
    DEPARTURE_STD,
    Cloud,
    Mixture,
    information_of,
)
from soft_estimator.estimation.residuals.interface import FrameAdjoint, FrameChanges, FrameState, Weighed
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame, is_isotropic, problem_of_points
from soft_estimator.estimation.residuals.robust import RobustLoss
from soft_estimator.estimation.residuals.surface_samples import SurfaceSamples, spread_samples
from soft_estimator.physics.body import Body

# Farthest apart samples may be: in deviations of the noise, so that their sum is smooth (a row of Gaussians half a
# deviation apart ripples by less than 1e-30 of itself), and in cells, so that they follow the body's bends.
_SAMPLE_STDS, _SAMPLE_CELLS = 0.5, 1.5
# Least width of the functions that describe the density: the noise blurs anything finer.
_BUMP_STDS = 0.5
_MOST_SAMPLES, _MOST_BUMPS = 3000, 150  # bounds on time: a frame costs points x samples and functions³


def density_on(body: Body, field: CarriedField, std_m: float) -> tuple[SurfaceSamples, np.ndarray]:
    """Samples of a body's surface for noise of this deviation, and smooth functions on them, (J, b)."""
    spacing_m = min(_SAMPLE_STDS * std_m, _SAMPLE_CELLS * field.spacing_m)
    samples = spread_samples(body, field, spacing_m, _MOST_SAMPLES)
    return samples, samples.bumps(_MOST_BUMPS, _BUMP_STDS * std_m)


class WholeCloud:
    """Negative log-likelihoods of a frame's points, then the parts of its density in their deviations.

    Args:
        std_m: typical deviation of the points' isotropic noise [m].
    """

    whitened = False

    def __init__(self, body: Body, field: CarriedField, std_m: float) -> None:
        self.samples, self.bumps = density_on(body, field, std_m)
        # Areas of the rest shape: as the body deforms, the density takes up the difference.
        self.log_density = np.log(self.samples.area_m2(np.zeros((body.node_count, 3))))
        self.density_std = float(np.hypot(DENSITY_STD, DEPARTURE_STD))

    def takes(self, frame: object) -> bool:
        return isinstance(frame, ObservedFrame) and is_isotropic(frame)

    def check(self, frame: ObservedFrame) -> str:
        return problem_of_points(frame)

    def count(self, frame: ObservedFrame) -> int:
        return len(frame.points_m) + self.bumps.shape[1]

    def predict(self, frame: ObservedFrame, state: FrameState) -> CloudPrediction:
        cloud = Cloud(frame.points_m, frame.std_m, self.bumps, self.density_std)
        x = self.samples.positions_m(state.u)
        mix = cloud.mixture(x, 0.0, self.log_density)
        density, _ = mix.best_departure(np.zeros(self.bumps.shape[1]))
        return CloudPrediction(self.samples, cloud, mix, x, density)

    def weigh(self, frame: ObservedFrame, residual: np.ndarray, loss: RobustLoss) -> Weighed:
        """Of negative log-likelihoods the cost is the sum, and squares of scores are its curvature (Fisher's
        information); strays are in the likelihood, so no loss is needed."""
        n = len(frame.points_m)
        value, slope = residual.copy(), residual.copy()
        slope[:n] = 1.0
        value[n:] = 0.5 * residual[n:] ** 2
        return Weighed(value, slope, np.ones(len(residual)))

    def by_offset(self, frame: ObservedFrame) -> np.ndarray:
        """Nothing: against noise of half a cell an offset of the surface is lost."""
        return np.zeros(self.count(frame))


@dataclass(frozen=True)
class CloudPrediction:
    """A cloud with the samples at x (J, 3) [m] and its best density (b,).

    With the density following the motion, rows of the residuals are those of (-log p, density / std) less what a change
    of the density could do as well: their squares are the Schur complement of the joint information.
    """

    samples: SurfaceSamples
    cloud: Cloud
    mix: Mixture
    x: np.ndarray
    density: np.ndarray
    far: int = 0

    @property
    def residual(self) -> np.ndarray:
        return np.concatenate([-self.mix.log_likelihoods(self.density), self.density / self.cloud.departure_std])

    @cached_property
    def _by_density(self) -> np.ndarray:
        return self.mix.slopes(self.density)[1]

    def changes(self, changes: FrameChanges) -> np.ndarray:
        dx, b = self.samples.changes_m(changes.u), self._by_density
        scores = self.mix.scores(self.density, self.x, dx, self.cloud.points, self.cloud.std**2)[2]
        follows = self.mix.solved(information_of(b), b.T @ scores)
        return np.concatenate([b @ follows - scores, -follows / self.cloud.departure_std])

    def changes_adjoint(self, residual_bar: np.ndarray) -> FrameAdjoint:
        n, b = len(self.cloud.points), self._by_density
        follows_bar = b.T @ residual_bar[:n] - residual_bar[n:] / self.cloud.departure_std
        scores_bar = b @ self.mix.solved(information_of(b), follows_bar[:, None])[:, 0] - residual_bar[:n]
        # score_i = Σ_j p_ij (y_i - x_j)·dx_j / σ_i²
        pull = self.mix.origin(self.density) * (scores_bar / self.cloud.std**2)[:, None]
        x_bar = pull.T @ self.cloud.points - pull.sum(axis=0)[:, None] * self.x
        return FrameAdjoint(u=self.samples.ride.T @ x_bar)
