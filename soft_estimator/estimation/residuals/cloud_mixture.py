"""How likely a cloud is as a whole, for noise as wide as a cell or wider.

A distance to the surface asks where each point came from and takes the nearest place for it. Noise that is wide beside
the body's curvature makes that answer wrong in the same way for all points, and the estimate with it. Here every place
of the surface may have sent every point: p(y) = Σ_j w_j N(y; x_j, σ²). How densely the camera saw each part of the
surface, w, is not known; smooth functions on the surface describe it and are fitted along: one density of the body's
own surface for all frames, and how each frame departs from it. What is then left for the body's motion is what no
density could explain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soft_estimator.backends.cpu.mixture import gaussians, gram, log_sums, mean_rows, solve_positive

# Share of points that come from anywhere near the body, so that one stray point cannot carry away the fit: of a depth
# camera's points 0.6 % were strays after filtering (README, perception).
STRAY_SHARE = 0.01
# Of each function's part in the logarithm of the common density: between a twentieth of the mean and twenty times it,
# which is what a camera that sees one side makes of a body.
DENSITY_STD = 3.0
# The same of a frame's departure from the common density: what turns out of view between frames changes by half.
DEPARTURE_STD = 0.5
_DEPARTURE_STEPS = 8  # at one place of the body; the next place goes on from there
_SETTLED = (
    1e-2  # gain of the log-likelihood that a step of the departure must promise, far below one standard deviation
)
_LONGEST = (
    2.0  # step of a function's part: a factor of seven in density, beyond which the logarithm is far from quadratic
)


@dataclass(frozen=True)
class CloudTerms:
    """A frame's part of the log-likelihood, at its best departure.

    Attributes:
        value: log-likelihood, prior of the departure included; 0 for points that all lie at the only sample.
        departure: from the common density, (b,).
        information, gradient: by (the motion's P variables, the logarithm of the noise, the b coefficients of the
            common density), less what the departure could account for; (P + 1 + b)², (P + 1 + b,).
    """

    value: float
    departure: np.ndarray
    information: np.ndarray
    gradient: np.ndarray


class Cloud:
    """One frame's points.

    Args:
        points_m: (n, 3). std_m: of their isotropic noise, (n,). bumps: smooth functions on the samples, (J, b).
        departure_std: of each function's part in the frame's departure from the common density.
    """

    def __init__(
        self, points_m: np.ndarray, std_m: np.ndarray, bumps: np.ndarray, departure_std: float = DEPARTURE_STD
    ) -> None:
        self.points, self.std, self.bumps, self.departure_std = points_m, std_m, bumps, departure_std
        edges = np.ptp(points_m, axis=0) + std_m.max()
        # Density of strays over that of a point right at a sample.
        self.stray = STRAY_SHARE * (2 * np.pi * std_m**2) ** 1.5 / float(np.prod(edges))

    def terms(
        self,
        x: np.ndarray,
        dx: np.ndarray,
        log_scale: float,
        log_density: np.ndarray,
        departure: np.ndarray,
    ) -> CloudTerms:
        """The cloud's likelihood with the surface's samples at x (J, 3) [m] that change by dx (J, 3, P) [m].

        Args:
            log_scale: logarithm of how many times the stated noise there is.
            log_density: all frames' own, for each sample, (J,). departure: where to start from, (b,).
        """
        mix = self.mixture(x, log_scale, log_density)
        departure, value = mix.best_departure(departure)
        value -= 3 * log_scale * len(self.std)
        variance = (self.std * np.exp(log_scale)) ** 2
        inlier, by_density, by_motion, rest = mix.scores(departure, x, dx, self.points, variance)
        y = self.points
        square = inlier * (y**2).sum(axis=1) - 2 * np.einsum("na,na->n", y, rest[:, :3]) + rest[:, 3]
        scores = np.column_stack([by_motion, square / variance - 3 * inlier, by_density])
        return CloudTerms(value, departure, *mix.without_departure(scores, departure))

    def mixture(self, x: np.ndarray, log_scale: float, log_density: np.ndarray) -> Mixture:
        """The density of the points with the samples at x (J, 3) [m]; see `terms`."""
        near = np.empty((len(self.points), len(x)))
        gaussians(self.points, x, (self.std * np.exp(log_scale)) ** 2, near)
        return Mixture(near, self.stray * np.exp(3 * log_scale), log_density, self.bumps, self.departure_std)


class Mixture:
    """Points that samples of the surface may have sent.

    Args:
        near: density of each point by each sample, over that right at it, (n, J). floor: that of strays, (n,).
    """

    def __init__(
        self, near: np.ndarray, floor: np.ndarray, log_density: np.ndarray, bumps: np.ndarray, departure_std: float
    ) -> None:
        self.near, self.floor, self.log_density, self.bumps = near, floor / (1 - STRAY_SHARE), log_density, bumps
        self.prior = departure_std**-2

    def share(self, departure: np.ndarray) -> np.ndarray:
        """Of the points that each sample sends, (J,)."""
        log_share = self.log_density + self.bumps @ departure
        out = np.exp(log_share - log_share.max())
        return out / out.sum()

    def slopes(
        self, departure: np.ndarray, table: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Probability that each point came from the body (n,), the slopes of its log-likelihood by the departure
        (n, b), and sums of the table's (J, C) rows over where it may have come from, (n, C)."""
        share, b = self.share(departure), self.bumps.shape[1]
        columns = [np.ones((len(share), 1)), self.bumps, *([] if table is None else [table])]
        out = np.empty((len(self.near), sum(c.shape[1] for c in columns)))
        mean_rows(self.near, share, self.floor, np.ascontiguousarray(np.concatenate(columns, axis=1)), out)
        return out[:, 0], out[:, 1 : 1 + b] - out[:, :1] * (share @ self.bumps), out[:, 1 + b :]

    def scores(
        self, departure: np.ndarray, x: np.ndarray, dx: np.ndarray, points: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Slopes of each point's log-likelihood: (probability of the body (n,), by the departure (n, b), by the motion
        dx (J, 3, P) of the samples (n, P), sums of x and |x|² over where a point may have come from (n, 4)).

        They are sums over where a point may have come from, of (y - x)·dx / σ².
        """
        moves = np.moveaxis(dx, 2, 0)
        table = [x, (x**2).sum(axis=1)[:, None], *moves, *(np.einsum("ja,ja->j", x, d)[:, None] for d in moves)]
        inlier, by_density, rest = self.slopes(departure, np.concatenate(table, axis=1))
        count = len(moves)
        moved, along = rest[:, 4 : 4 + 3 * count].reshape(-1, count, 3), rest[:, 4 + 3 * count :]
        by_motion = (np.einsum("na,npa->np", points, moved) - along) / variance[:, None]
        return inlier, by_density, by_motion, rest[:, :4]

    def origin(self, departure: np.ndarray) -> np.ndarray:
        """Probability that each point came from each sample, (n, J)."""
        weighted = self.near * self.share(departure)
        return weighted / (weighted.sum(axis=1) + self.floor)[:, None]

    def log_likelihoods(self, departure: np.ndarray) -> np.ndarray:
        """Of each point, up to the Gaussian's own factor, (n,)."""
        out = np.empty(len(self.near))
        log_sums(self.near, self.share(departure), self.floor, out)
        return out

    def value(self, departure: np.ndarray) -> float:
        """Log-likelihood, up to the Gaussian's own factor, with the departure's prior."""
        return float(self.log_likelihoods(departure).sum() - 0.5 * self.prior * departure @ departure)

    def best_departure(self, departure: np.ndarray) -> tuple[np.ndarray, float]:
        """Scoring steps from a departure (b,): where they end and the value there."""
        value = self.value(departure)
        for _ in range(_DEPARTURE_STEPS):
            _, slopes, _ = self.slopes(departure)
            gradient = slopes.sum(axis=0) - self.prior * departure
            step = self.solved(information_of(slopes), gradient[:, None])[:, 0]
            step *= min(1.0, _LONGEST / max(float(np.abs(step).max(initial=0.0)), 1e-300))
            if not gradient @ step >= _SETTLED:
                break
            for length in 0.5 ** np.arange(10):
                trial = self.value(departure + length * step)
                if trial > value:
                    departure, value = departure + length * step, trial
                    break
            else:
                break
        return departure, value

    def solved(self, information: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        """With the departure's prior, information (b, b), for rhs (b, m)."""
        out = np.array(rhs, order="C")  # a copy: it is solved in place
        solve_positive(information + self.prior * np.eye(len(information)), out)
        return out

    def without_departure(self, scores: np.ndarray, departure: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Information and gradient by scores (n, k), what the departure, whose slopes are the last columns, could do
        as well taken out (Schur complement)."""
        information = information_of(scores)
        first = scores.shape[1] - len(departure)
        both = information[first:]
        left = scores[:, first:].sum(axis=0) - self.prior * departure
        taken = self.solved(both[:, first:], np.column_stack([both, left]))
        return information - both.T @ taken[:, :-1], scores.sum(axis=0) - both.T @ taken[:, -1]


def information_of(scores: np.ndarray) -> np.ndarray:
    """Σ_i scores_ia scores_ic of scores (n, k), (k, k)."""
    rows = np.ascontiguousarray(scores.T)
    out = np.empty((len(rows), len(rows)))
    gram(rows, out)
    return out
