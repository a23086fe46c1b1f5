"""How sure the estimate is, and what the data could not tell (METHOD §8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soft_estimator.estimation.fitting.resampling import Resampling
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.variables import Variables, natural_slope, to_natural

# A parameter counts as observed when the data narrowed it at least this much below its prior: as much as three more
# observations as good as the prior would.
NARROWED = 0.5
_LEAST_NOISE = 0.1  # of the stated noise: exact points must not claim a certainty that the arithmetic does not have
_LEAST_FRAMES = 4  # whose scores' spread means anything


@dataclass(frozen=True)
class Estimate:
    """One parameter's answer.

    Attributes:
        label, unit, value: natural value. std: its standard deviation. low, high: 95 % interval, through the transform.
        observable: whether the data narrowed the prior. reason: why not, in plain words, else "".
    """

    label: str
    unit: str
    value: float
    std: float
    low: float
    high: float
    observable: bool
    reason: str


@dataclass(frozen=True)
class Posterior:
    """Gaussian posterior of θ around a minimum.

    Attributes:
        theta: the answer, (P,). covariance: of it, (P, P).
        noise_scale: how many times the stated noise the residuals show (robust). estimates: one a variable.
    """

    theta: np.ndarray
    covariance: np.ndarray
    noise_scale: float
    estimates: tuple[Estimate, ...]


def posterior(problem: Problem, at: Evaluation, resampling: Resampling | None = None) -> Posterior:
    """Posterior at a minimum whose evaluation holds the Jacobian.

    The noise is scaled to what the residuals show, never below a tenth of what was stated: exact points would
    otherwise claim a certainty that the arithmetic does not have. Where a resampling is given, the shift that the noise
    causes is taken off the estimate, and its uncertainty is added.
    """
    v, jacobian = problem.variables, at.known_jacobian
    scale = noise_scale(at.residual[at.whitened], len(v))
    weight = at.weight / np.where(at.whitened, scale, 1.0) ** 2
    information = jacobian.T @ (jacobian * weight[:, None])
    prior = 1.0 / v.prior_std**2
    covariance = np.linalg.inv(information + np.diag(prior))
    widen = widening(at, covariance, scale)
    covariance = covariance * np.outer(widen, widen)
    theta = at.theta
    if resampling is not None:
        theta, covariance = theta - resampling.shift, covariance + resampling.covariance
    estimates = describe(v, theta, information, covariance, touches(v, jacobian))
    return Posterior(theta, covariance, scale, estimates)


def describe(
    variables: Variables, theta: np.ndarray, information: np.ndarray, covariance: np.ndarray, touched: bool
) -> tuple[Estimate, ...]:
    """The answers for people.

    Args:
        information: what the data alone say, (P, P). covariance: of θ, prior included, (P, P).
        touched: whether the body ever met the plane.
    """
    out = []
    for j, (variable, reason) in enumerate(
        zip(variables.variables, _reasons(variables, information, covariance, touched))
    ):
        std = float(np.sqrt(covariance[j, j]))
        out.append(
            Estimate(
                label=variable.label,
                unit=variable.unit,
                value=to_natural(variable, theta[j]),
                std=abs(natural_slope(variable, theta[j])) * std,
                low=to_natural(variable, theta[j] - 1.96 * std),
                high=to_natural(variable, theta[j] + 1.96 * std),
                observable=not reason,
                reason=reason,
            )
        )
    return tuple(out)


def widening(at: Evaluation, covariance: np.ndarray, scale: float) -> np.ndarray:
    """`frame_widening` of distances whose noise is `scale` times the stated one."""
    frames = int(at.frame.max()) + 1
    pull = at.known_jacobian * (at.slope / np.where(at.whitened, scale, 1.0) ** 2)[:, None]
    scores = np.stack([np.bincount(at.frame, pull[:, j], frames) for j in range(pull.shape[1])], axis=1)
    return frame_widening(scores, covariance)


def frame_widening(scores: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """How much wider than point-by-point noise each variable spreads when whole frames are taken as the units, at
    least 1.

    Errors that points of a frame share (a matcher's bias, the model's own error) do not average out over its points.
    The frames' scores Σ J r (K, P), which sum to zero at the minimum, show by their spread how much of that there
    is.
    """
    frames = len(scores)
    if frames < _LEAST_FRAMES:
        return np.ones(len(covariance))
    scores = scores - scores.mean(axis=0)
    spread = covariance @ (scores.T @ scores * frames / (frames - 1)) @ covariance
    return np.sqrt(np.maximum(np.diag(spread) / np.diag(covariance), 1.0))


def noise_scale(residual: np.ndarray, variables: int) -> float:
    """Standard deviation of the whitened residuals by their median size, which outliers do not move."""
    if len(residual) == 0:
        return 1.0
    freedom = max(len(residual) - variables, 1) / len(residual)
    return max(1.4826 * float(np.median(np.abs(residual))) / np.sqrt(freedom), _LEAST_NOISE)


def _reasons(v: Variables, information: np.ndarray, covariance: np.ndarray, touched: bool) -> list[str]:
    """Why each variable is not observable, "" where it is."""
    out = []
    for j, variable in enumerate(v.variables):
        narrowed = float(np.sqrt(covariance[j, j])) / variable.prior_std
        if narrowed < NARROWED:
            out.append("")
            continue
        if variable.kind.term == "contact" and not touched:
            out.append("the body never touched the plane")
        elif information[j, j] * variable.prior_std**2 < 1.0:
            out.append(variable.kind.hidden)
        else:
            out.append(f"the data cannot tell it from {_partner(v.labels, covariance, j)}")
    return out


def _partner(labels: list[str], covariance: np.ndarray, j: int) -> str:
    """The variable most correlated with variable j."""
    std = np.sqrt(np.diag(covariance))
    correlation = np.abs(covariance[j] / (std * std[j]))
    correlation[j] = 0.0
    return labels[int(np.argmax(correlation))]


def touches(variables: Variables, jacobian: np.ndarray) -> bool:
    """Whether the residuals depend on the plane: by more than one standard deviation for a metre or radian of it."""
    columns = [j for j, v in enumerate(variables.variables) if v.kind.term == "contact"]
    return bool(columns) and bool(np.abs(jacobian[:, columns]).max(initial=0.0) > 1.0)
