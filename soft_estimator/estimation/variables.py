"""The numbers an optimiser moves: transformed, scaled, with priors and bounds (METHOD §8).

Each variable is a function of one or more entries of `Parameters`. An optimiser sees θ, of order one and unbounded in
practice; a person sees the natural value in its unit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.parameters import Parameters

NU_MAX = 0.5  # ν = NU_MAX · logistic(θ): never reached

# name → (transform, unit, prior standard deviation in θ). Log variables: a prior factor of e^std either way.
KINDS: dict[str, tuple[str, str, float]] = {
    "youngs_modulus_pa": ("log", "Pa", 3.0),
    "poissons_ratio": ("logit", "", 1.0),
    "density_kg_m3": ("log", "kg/m^3", 1.0),
    "mass_damping_per_s": ("log", "1/s", 2.0),
    "stiffness_damping_s": ("log", "s", 2.0),
    "gravity_m_s2": ("linear", "m/s^2", 5.0),
    "plane_normal": ("tangent", "rad", 0.5),
    "plane_offset_m": ("linear", "m", 0.05),
    "translation_m": ("linear", "m", 0.02),
    "rotation_rad": ("linear", "rad", 0.2),
    "velocity_m_s": ("linear", "m/s", 1.0),
    "angular_velocity_rad_s": ("linear", "rad/s", 5.0),
}


@dataclass(frozen=True)
class Variable:
    """One optimised number.

    Attributes:
        name: entry of `Parameters`. index: component of a vector entry (for plane_normal: of the two tangent steps),
        None for
            a scalar. transform: log, logit, linear or tangent. unit: of the natural value.
        prior_mean, prior_std: of θ; the prior is Gaussian there.
    """

    name: str
    index: int | None
    transform: str
    unit: str
    prior_mean: float
    prior_std: float

    @property
    def label(self) -> str:
        """Name for people: gravity_m_s2[1], plane_normal[0], ..."""
        return self.name if self.index is None else f"{self.name}[{self.index}]"


class Variables:
    """A set of variables around a reference: maps θ to `Parameters` and derivatives back.

    The plane's normal is moved by two tangent steps from the reference's: n = (n₀ + a t₁ + b t₂)/|...|, an angle in
    radians for small steps.
    """

    def __init__(self, reference: Parameters, variables: list[Variable]) -> None:
        if not variables:
            raise ValueError("nothing to estimate: name at least one parameter, e.g. youngs_modulus_pa")
        self.reference, self.variables = reference, variables
        n = reference.plane_normal / np.linalg.norm(reference.plane_normal)
        side = np.eye(3)[np.argmin(np.abs(n))]
        first = np.cross(n, side)
        first /= np.linalg.norm(first)
        self.tangents = np.stack([first, np.cross(n, first)])
        self.normal = n

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

    def start(self) -> np.ndarray:
        """θ of the reference."""
        return np.array([_to_theta(v, self._natural(v)) for v in self.variables])

    def _natural(self, v: Variable) -> float:
        if v.transform == "tangent":
            return 0.0
        value = getattr(self.reference, v.name)
        return float(value if v.index is None else np.asarray(value)[v.index])

    def parameters(self, theta: np.ndarray) -> Parameters:
        """The parameters at θ."""
        changed: dict[str, np.ndarray | float] = {}
        steps = np.zeros(2)
        for v, t in zip(self.variables, theta):
            if v.transform == "tangent":
                steps[v.index or 0] = t
            elif v.index is None:
                changed[v.name] = to_natural(v, t)
            else:
                entry = changed.setdefault(v.name, np.array(getattr(self.reference, v.name), dtype=np.float64))
                entry[v.index] = to_natural(v, t)  # type: ignore[index]
        normal = self.normal + steps @ self.tangents
        return replace(self.reference, plane_normal=normal / np.linalg.norm(normal), **changed)

    def directions(self, theta: np.ndarray) -> list[ParameterGradient]:
        """∂(parameters)/∂θ_j for every variable."""
        regions = len(self.reference.youngs_modulus_pa)
        out = []
        steps = np.zeros(2)
        for v, t in zip(self.variables, theta):
            if v.transform == "tangent":
                steps[v.index or 0] = t
        raw = self.normal + steps @ self.tangents
        length = np.linalg.norm(raw)
        n = raw / length
        for v, t in zip(self.variables, theta):
            if v.transform == "tangent":
                d = ParameterGradient.zero(regions)
                along = self.tangents[v.index or 0]
                d.plane_normal = (along - n * (n @ along)) / length
            else:
                d = ParameterGradient.unit(regions, v.name, v.index)
                slope = natural_slope(v, t)
                if v.index is None:
                    setattr(d, v.name, slope)
                else:
                    getattr(d, v.name)[v.index] = slope
            out.append(d)
        return out

    def natural(self, theta: np.ndarray) -> np.ndarray:
        """The values people read, in each variable's unit."""
        return np.array([to_natural(v, t) for v, t in zip(self.variables, theta)])


def _to_theta(v: Variable, value: float) -> float:
    if v.transform == "log":
        if not value > 0:
            raise ValueError(f"{v.label} = {value:g} must be positive to be estimated; give a positive first guess")
        return float(np.log(value))
    if v.transform == "logit":
        if not 0 < value < NU_MAX:
            raise ValueError(f"{v.label} = {value:g} must lie strictly between 0 and {NU_MAX} to be estimated")
        return float(np.log(value / (NU_MAX - value)))
    return float(value)


def to_natural(v: Variable, theta: float) -> float:
    """The value people read."""
    if v.transform == "log":
        return float(np.exp(np.clip(theta, -60, 60)))
    if v.transform == "logit":
        # Kept off the incompressible end, where the elements lock.
        return float(min(NU_MAX / (1 + np.exp(-np.clip(theta, -30, 30))), 0.4975))
    return float(theta)


def natural_slope(v: Variable, theta: float) -> float:
    """∂(natural value)/∂θ."""
    if v.transform == "log":
        return to_natural(v, theta)
    if v.transform == "logit":
        value = to_natural(v, theta)
        return value * (1 - value / NU_MAX)
    return 1.0


def make_variables(reference: Parameters, names: list[str], prior_std: dict[str, float] | None = None) -> Variables:
    """Variables for the named entries of `Parameters`, with priors around the reference.

    Args:
        names: entries, vectors whole ("gravity_m_s2") or by component ("gravity_m_s2[1]").
        prior_std: standard deviations of θ to use instead of the default ones, by entry.
    """
    out = []
    for full in names:
        name, _, component = full.partition("[")
        if name not in KINDS:
            raise ValueError(f"cannot estimate '{full}'; choose from {', '.join(KINDS)}")
        transform, unit, std = KINDS[name]
        std = (prior_std or {}).get(name, std)
        for index in _components(reference, name, component, transform):
            variable = Variable(name, index, transform, unit, 0.0, std)
            out.append(replace(variable, prior_mean=_reference_theta(reference, variable)))
    return Variables(reference, out)


def _components(reference: Parameters, name: str, component: str, transform: str) -> list[int | None]:
    if component:
        return [int(component.rstrip("]"))]
    if transform == "tangent":
        return [0, 1]
    value = np.asarray(getattr(reference, name))
    return [None] if value.ndim == 0 else list(range(len(value)))


def _reference_theta(reference: Parameters, v: Variable) -> float:
    if v.transform == "tangent":
        return 0.0
    value = getattr(reference, v.name)
    return _to_theta(v, float(value if v.index is None else np.asarray(value)[v.index]))
