"""The numbers an optimiser moves: transformed, scaled, with priors and bounds (METHOD §8).

Each variable is a function of one or more entries of `Parameters`. An optimiser sees θ, of order one and unbounded in
practice; a person sees the natural value in its unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from soft_estimator.parameters import REGISTRY, Parameter
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.parameters import Parameters

# ν is kept off the incompressible end, where a logistic reaches it in floating-point numbers.
_MOST_OF_THE_WAY = 0.998


@dataclass(frozen=True)
class Variable:
    """One optimised number.

    Attributes:
        kind: the registered parameter. index: component of a vector (of a direction, of its two tangent steps), None
        for a scalar. prior_mean, prior_std: of θ; the prior is Gaussian there. beside: it was not asked for, but found
        beside what was: the pose of a held body.
    """

    kind: Parameter
    index: int | None
    prior_mean: float
    prior_std: float
    beside: bool = False

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def transform(self) -> str:
        return self.kind.transform

    @property
    def unit(self) -> str:
        """Of the natural value."""
        return self.kind.unit

    @property
    def label(self) -> str:
        """Name for people: gravity_m_s2[1], plane_normal[0], ..."""
        return self.name if self.index is None else f"{self.name}[{self.index}]"


class Variables:
    """A set of variables around a reference: maps θ to `Parameters` and derivatives back.

    A direction n is moved by two tangent steps from the reference's: n = (n₀ + a t₁ + b t₂)/|...|, an angle in radians
    for small steps.
    """

    def __init__(self, reference: Parameters, variables: list[Variable]) -> None:
        if not variables:
            raise ValueError("nothing to estimate: name at least one parameter, e.g. youngs_modulus_pa")
        self.reference, self.variables = reference, variables
        directions = {v.name for v in variables if v.transform == "tangent"}
        self.tangents = {name: _Tangents(getattr(reference, name)) for name in sorted(directions)}

    def __len__(self) -> int:
        return len(self.variables)

    @property
    def labels(self) -> list[str]:
        return [v.label for v in self.variables]

    @property
    def prior_mean(self) -> np.ndarray:
        return np.array([v.prior_mean for v in self.variables])

    @property
    def prior_std(self) -> np.ndarray:
        return np.array([v.prior_std for v in self.variables])

    @property
    def longest_steps(self) -> np.ndarray:
        """How far each may move in one step of a search, (P,): by a factor of e in stiffness, beyond which no direction
        means anything. Of a number with a unit its prior tells what is far: a spin may be off by 20 rad/s."""
        linear = np.array([v.transform == "linear" for v in self.variables])
        return np.where(linear, np.maximum(self.prior_std, 1.0), 1.0)

    def start(self) -> np.ndarray:
        """θ of the reference."""
        return np.array([_to_theta(v, self._natural(v)) for v in self.variables])

    def _natural(self, v: Variable) -> float:
        return 0.0 if v.transform == "tangent" else _entry(self.reference, v)

    def _steps(self, name: str, theta: np.ndarray) -> np.ndarray:
        """The two tangent steps of a direction at θ."""
        steps = np.zeros(2)
        for v, t in zip(self.variables, theta):
            if v.name == name:
                steps[v.index or 0] = t
        return steps

    def parameters(self, theta: np.ndarray) -> Parameters:
        """The parameters at θ."""
        changed: dict[str, Any] = {name: t.at(self._steps(name, theta)) for name, t in self.tangents.items()}
        for v, t in zip(self.variables, theta):
            if v.transform == "tangent":
                continue
            if v.index is None:
                changed[v.name] = to_natural(v, t)
            else:
                entry = changed.setdefault(v.name, np.array(getattr(self.reference, v.name), dtype=np.float64))
                entry[v.index] = to_natural(v, t)
        return self.reference.replace(**changed)

    def directions(self, theta: np.ndarray) -> list[ParameterGradient]:
        """∂(parameters)/∂θ_j for every variable."""
        out = []
        for v, t in zip(self.variables, theta):
            d = ParameterGradient.zero(self.reference.regions)
            if v.transform == "tangent":
                d.add(v.name, self.tangents[v.name].slope(self._steps(v.name, theta), v.index or 0))
            elif v.index is None:
                d.add(v.name, natural_slope(v, t))
            else:
                getattr(d, v.name)[v.index] = natural_slope(v, t)
            out.append(d)
        return out

    def natural_of(self, parameters: Parameters) -> np.ndarray:
        """The natural values that parameters have in these variables, (P,); a direction's by its tangent steps."""
        return np.array(
            [
                self.tangents[v.name].steps_to(getattr(parameters, v.name))[v.index or 0]
                if v.transform == "tangent"
                else _entry(parameters, v)
                for v in self.variables
            ]
        )

    def natural(self, theta: np.ndarray) -> np.ndarray:
        """The values people read, in each variable's unit."""
        return np.array([to_natural(v, t) for v, t in zip(self.variables, theta)])


class _Tangents:
    """Two steps across a direction n₀."""

    def __init__(self, direction: np.ndarray) -> None:
        self.normal = n = direction / np.linalg.norm(direction)
        side = np.eye(3)[np.argmin(np.abs(n))]
        first = np.cross(n, side)
        first /= np.linalg.norm(first)
        self.across = np.stack([first, np.cross(n, first)])

    def at(self, steps: np.ndarray) -> np.ndarray:
        raw = self.normal + steps @ self.across
        return raw / np.linalg.norm(raw)

    def slope(self, steps: np.ndarray, which: int) -> np.ndarray:
        """Derivative of the direction by one of its steps."""
        raw, along = self.normal + steps @ self.across, self.across[which]
        length = np.linalg.norm(raw)
        n = raw / length
        return (along - n * (n @ along)) / length

    def steps_to(self, direction: np.ndarray) -> np.ndarray:
        """The steps that lead to a direction."""
        return self.across @ direction / (self.normal @ direction)


def _entry(parameters: Parameters, v: Variable) -> float:
    value = getattr(parameters, v.name)
    return float(value if v.index is None else np.asarray(value)[v.index])


def _to_theta(v: Variable, value: float) -> float:
    if v.transform == "log":
        if not value > 0:
            raise ValueError(f"{v.label} = {value:g} must be positive to be estimated; give a positive first guess")
        return float(np.log(value))
    if v.transform == "logit":
        high = upper_bound(v)
        if not 0 < value < high:
            raise ValueError(f"{v.label} = {value:g} must lie strictly between 0 and {high} to be estimated")
        return float(np.log(value / (high - value)))
    return float(value)


def upper_bound(v: Variable) -> float:
    """Of a variable with a logit transform, whose range begins at zero."""
    if v.kind.high is None:
        raise ValueError(f"{v.name} has a logit transform and no upper bound; give it one in the registry")
    return v.kind.high


def to_natural(v: Variable, theta: float) -> float:
    """The value people read."""
    if v.transform == "log":
        return float(np.exp(np.clip(theta, -60, 60)))
    if v.transform == "logit":
        share = 1 / (1 + np.exp(-np.clip(theta, -30, 30)))
        return float(upper_bound(v) * min(share, _MOST_OF_THE_WAY))
    return float(theta)


def natural_slope(v: Variable, theta: float) -> float:
    """∂(natural value)/∂θ."""
    if v.transform == "log":
        return to_natural(v, theta)
    if v.transform == "logit":
        value = to_natural(v, theta)
        return value * (1 - value / upper_bound(v))
    return 1.0


def make_variables(
    reference: Parameters,
    names: Sequence[str],
    prior_std: Mapping[str, float] | None = None,
    beside: Sequence[str] = (),
) -> Variables:
    """Variables for the named entries of `Parameters`, with priors around the reference.

    Args:
        names: entries, vectors whole ("gravity_m_s2") or by component ("gravity_m_s2[1]").
        prior_std: standard deviations of θ to use instead of the default ones, by entry.
        beside: more of them, that were not asked for.
    """
    out = []
    for full in (*names, *beside):
        name, _, component = full.partition("[")
        if name not in REGISTRY:
            raise ValueError(f"cannot estimate '{full}'; choose from {', '.join(REGISTRY.names())}")
        if name not in reference:
            raise ValueError(f"cannot estimate '{full}': the model has no {REGISTRY[name].term} that it belongs to")
        kind = REGISTRY[name]
        std = (prior_std or {}).get(name, kind.prior_std)
        for index in _components(reference, kind, component):
            variable = Variable(kind, index, 0.0, std, full in beside)
            mean = 0.0 if kind.transform == "tangent" else _to_theta(variable, _entry(reference, variable))
            out.append(replace(variable, prior_mean=mean))
    return Variables(reference, out)


def _components(reference: Parameters, kind: Parameter, component: str) -> list[int | None]:
    if component:
        return [int(component.rstrip("]"))]
    count = kind.moves(reference.regions)
    return [None] if count is None else list(range(count))
