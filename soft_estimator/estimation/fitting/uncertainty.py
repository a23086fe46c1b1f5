"""How sure the estimate is, and what the data could not tell (METHOD §8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from soft_estimator.estimation.fitting.consider import Effect, mostly
from soft_estimator.estimation.fitting.resampling import Resampling
from soft_estimator.estimation.fitting.verdict import FitVerdict
from soft_estimator.estimation.fitting.widening import frame_widening, with_way_left
from soft_estimator.estimation.problem import Evaluation, Problem
from soft_estimator.estimation.variables import Variables, natural_slope, to_natural

# A parameter counts as observed when the data narrowed it at least this much below its prior: as much as three more
# observations as good as the prior would.
NARROWED = 0.5
NOT_TOUCHED = "it has not touched the ground yet: a free fall shows nothing of it"
_LEAST_NOISE = 0.1  # of the stated noise: exact points must not claim a certainty that the arithmetic does not have


@dataclass(frozen=True)
class Estimate:
    """One parameter's answer.

    Attributes:
        label, unit, value: natural value. std: its standard deviation. low, high: 95 % interval, through the transform.
        observable: whether the data narrowed the prior. reason: why not, in plain words, else "".
        std_statistical: the part of std that comes from the data's noise alone; None where it is not known.
        mostly: what dominates the interval where it is not that noise, "mostly the density: weigh it"; else "".
    """

    label: str
    unit: str
    value: float
    std: float
    low: float
    high: float
    observable: bool
    reason: str
    std_statistical: float | None = None
    mostly: str = ""


def shown_labels(labels: Sequence[str]) -> list[str]:
    """Labels as they are published: the stiffness of a body of one material carries no number."""
    alone = "youngs_modulus_pa[1]" not in labels
    return ["youngs_modulus_pa" if alone and label == "youngs_modulus_pa[0]" else label for label in labels]


def shown_label(label: str, beside: Sequence[Estimate]) -> str:
    """The same of one label, among these estimates."""
    labels = [e.label for e in beside]
    return dict(zip(labels, shown_labels(labels))).get(label, label)


@dataclass(frozen=True)
class Posterior:
    """Gaussian posterior of θ around a minimum.

    Attributes:
        theta: the answer, (P,). covariance: of it, (P, P). information: what the data alone say of it, (P, P).
        noise_scale: how many times the stated noise the residuals show (robust). touched: whether the body ever met
            the plane. estimates: one a variable.
        statistical: the part of the covariance that comes from the data's noise, (P, P). effects: what adds to it.
        verdict: whether the model fits at all.
    """

    theta: np.ndarray
    covariance: np.ndarray
    information: np.ndarray
    noise_scale: float
    touched: bool
    estimates: tuple[Estimate, ...]
    statistical: np.ndarray
    effects: tuple[Effect, ...] = ()
    verdict: FitVerdict = field(default_factory=FitVerdict)


def with_effect(variables: Variables, found: Posterior, effect: Effect) -> Posterior:
    """The posterior with one more thing that adds to its variances."""
    effects = (*found.effects, effect)
    estimates = describe(
        variables, found.theta, found.information, found.statistical, found.touched, effects, found.verdict
    )
    return replace(found, covariance=found.covariance + effect.covariance, effects=effects, estimates=estimates)


def posterior(problem: Problem, at: Evaluation, resampling: Resampling | None = None) -> Posterior:
    """Posterior at a minimum whose evaluation holds the Jacobian.

    The noise is scaled to what the residuals show, never below a tenth of what was stated: exact points would
    otherwise claim a certainty that the arithmetic does not have. Where a resampling is given, the shift that the noise
    causes is taken off the estimate, and its uncertainty is added. A search that ended before its minimum, in time or
    because the cost is rough, is as far off as the slope that is left says (`unsettled`).
    """
    v, jacobian = problem.variables, at.known_jacobian
    scale = noise_scale(at.residual[at.whitened], len(v))
    weight = at.weight / np.where(at.whitened, scale, 1.0) ** 2
    information = jacobian.T @ (jacobian * weight[:, None])
    prior = 1.0 / v.prior_std**2
    covariance = np.linalg.inv(information + np.diag(prior))
    widen = frame_widening(at, covariance, scale)
    covariance = covariance * np.outer(widen, widen) * unsettled(problem, at, covariance, scale)
    theta = at.theta
    if resampling is not None:
        theta, covariance = theta - resampling.shift, covariance + resampling.covariance
    touched = touches(v, jacobian)
    estimates = describe(v, theta, information, covariance, touched)
    return Posterior(theta, covariance, information, scale, touched, estimates, covariance)


def unsettled(problem: Problem, at: Evaluation, covariance: np.ndarray, scale: float) -> float:
    """Factor of the variances of an estimate that is not at the minimum (`with_way_left`): the way is -C g, g being the
    slope of the cost.

    covariance: (JᵀWJ + prior)⁻¹. scale: noise over the stated one.
    """
    v = problem.variables
    slope = at.known_jacobian.T @ (at.slope / np.where(at.whitened, scale, 1.0) ** 2)
    slope = slope + (at.theta - v.prior_mean) / v.prior_std**2
    return with_way_left(covariance @ slope, covariance)


def describe(
    variables: Variables,
    theta: np.ndarray,
    information: np.ndarray,
    covariance: np.ndarray,
    touched: bool,
    effects: Sequence[Effect] = (),
    verdict: FitVerdict | None = None,
) -> tuple[Estimate, ...]:
    """The answers for people.

    Args:
        information: what the data alone say, (P, P). covariance: of θ, prior included, from the data's noise, (P, P).
        touched: whether the body ever met the plane. effects: of what is held fixed, which add to the covariance.
        verdict: on the fit; where it does not hold, no value counts as observed.
    """
    out = []
    total = np.diag(covariance) + sum((e.std**2 for e in effects), np.zeros(len(theta)))
    told = mostly(effects, total)
    for j, (variable, reason) in enumerate(
        zip(variables.variables, _reasons(variables, information, covariance, touched))
    ):
        std, slope = float(np.sqrt(total[j])), abs(natural_slope(variable, theta[j]))
        if not reason and std / variable.prior_std >= NARROWED:
            reason = f"what is held fixed is not known well enough: {told[j] or 'several things together'}"
        if verdict is not None and not verdict.fits:
            reason = f"the model does not fit: {verdict.reason}"
        out.append(
            Estimate(
                label=variable.label,
                unit=variable.unit,
                value=to_natural(variable, theta[j]),
                std=slope * std,
                low=to_natural(variable, theta[j] - 1.96 * std),
                high=to_natural(variable, theta[j] + 1.96 * std),
                observable=not reason,
                reason=reason,
                std_statistical=slope * float(np.sqrt(covariance[j, j])),
                mostly=told[j],
            )
        )
    return tuple(out)


def noise_scale(residual: np.ndarray, variables: int) -> float:
    """Standard deviation of the whitened residuals by their median size, which outliers do not move."""
    if len(residual) == 0:
        return 1.0
    freedom = max(len(residual) - variables, 1) / len(residual)
    return max(1.4826 * float(np.median(np.abs(residual))) / np.sqrt(freedom), _LEAST_NOISE)


def _reasons(v: Variables, information: np.ndarray, covariance: np.ndarray, touched: bool) -> list[str]:
    """Why each variable is not observable, "" where it is."""
    out, has_ground = [], any(variable.kind.term == "contact" for variable in v.variables)
    for j, variable in enumerate(v.variables):
        narrowed = float(np.sqrt(covariance[j, j])) / variable.prior_std
        if narrowed < NARROWED:
            out.append("")
            continue
        if variable.kind.term in ("contact", "friction") and not touched:
            out.append("the body never touched the plane")
        elif information[j, j] * variable.prior_std**2 < 1.0:
            out.append(NOT_TOUCHED if has_ground and not touched else variable.kind.hidden)
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
    columns = [j for j, v in enumerate(variables.variables) if v.kind.term in ("contact", "friction")]
    return bool(columns) and bool(np.abs(jacobian[:, columns]).max(initial=0.0) > 1.0)
