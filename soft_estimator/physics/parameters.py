"""Values of the registered parameters, in SI units."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from soft_estimator.parameters import REGISTRY, Parameter

Value = float | np.ndarray


def lame(poissons_ratio: float) -> tuple[float, float]:
    """Lamé parameters λ, μ of a material with Young's modulus 1."""
    nu = poissons_ratio
    return nu / ((1 + nu) * (1 - 2 * nu)), 0.5 / (1 + nu)


def lame_slope(poissons_ratio: float) -> tuple[float, float]:
    """Derivatives of λ, μ (for Young's modulus 1) by Poisson's ratio."""
    nu = poissons_ratio
    return (1 + 2 * nu**2) / ((1 + nu) * (1 - 2 * nu)) ** 2, -0.5 / (1 + nu) ** 2


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Parameters:
    """Values of registered parameters: `Parameters(youngs_modulus_pa=5e3, ...)`, then `p.youngs_modulus_pa`.

    Values without a name are taken in the order of the registry: E, ν, density, ...

    What is not given takes the registry's default. What has none and belongs to a term (its `term` in the registry) may
    be left out: the term then uses the value of its own law; see `with_defaults`. A scalar is a float, everything else
    an array: (3,), or (regions,) for what each material region has.
    """

    values: Mapping[str, Value]

    def __init__(self, *given_in_order: Any, values: Mapping[str, Any] | None = None, **named: Any) -> None:
        given = {**(values or {}), **dict(zip(REGISTRY.names(), given_in_order)), **named}
        for name in given:
            if name not in REGISTRY:
                near = difflib.get_close_matches(name, REGISTRY.names(), n=1)
                hint = f"; did you mean '{near[0]}'?" if near else f"; choose from {', '.join(REGISTRY.names())}"
                raise TypeError(f"there is no parameter '{name}'{hint}")
        out: dict[str, Value] = {}
        own = [REGISTRY[name] for name in given if REGISTRY.numbered(name) is not None]
        for parameter in (*REGISTRY, *own):
            value = given.get(parameter.name, parameter.default)
            if value is not None:
                out[parameter.name] = _shaped(parameter, value)
            elif not parameter.term:
                raise TypeError(f"{parameter.name} is missing; give its value [{parameter.unit or '1'}]")
        nu = out["poissons_ratio"]
        if not -1 < nu < 0.5:
            raise ValueError(
                f"poissons_ratio = {nu:g} must lie between -1 and 0.5; 0.5 is incompressible: use up to 0.499 instead"
            )
        object.__setattr__(self, "values", out)

    def __getattr__(self, name: str) -> Any:
        if name == "values":  # not there yet while a copy is being made
            raise AttributeError(name)
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(f"these parameters hold no '{name}'; give it, or the term it belongs to") from None

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parameters) or set(self.values) != set(other.values):
            return NotImplemented if not isinstance(other, Parameters) else False
        return all(np.array_equal(value, other.values[name]) for name, value in self.values.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Parameters({', '.join(f'{name}={value!r}' for name, value in self.values.items())})"

    @property
    def regions(self) -> int:
        """Number of material regions."""
        return len(self.values["youngs_modulus_pa"])  # type: ignore[arg-type]

    def replace(self, **changed: Any) -> Parameters:
        """The same with other values."""
        return Parameters(values=self.values, **changed)

    def with_defaults(self, defaults: Mapping[str, Any]) -> Parameters:
        """The same with values for parameters that are not given."""
        missing = {name: value for name, value in defaults.items() if name not in self.values}
        return self.replace(**missing) if missing else self


def _shaped(parameter: Parameter, value: Any) -> Value:
    if parameter.shape == "scalar":
        return float(value)
    array = np.asarray(value, dtype=np.float64)
    if parameter.shape == "modes":
        padded = np.zeros(parameter.size() or 0)
        padded[: array.size] = array.ravel()
        return padded
    return np.atleast_1d(array) if parameter.shape == "regions" else array.reshape(3)
