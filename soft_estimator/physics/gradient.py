"""Derivatives by the parameters: one number for each number of the registered parameters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from soft_estimator.parameters import REGISTRY
from soft_estimator.physics.parameters import Parameters, Value


class ParameterGradient:
    """A number for every number of the registered parameters: the gradient of a scalar by them, or a direction.

    Entries are attributes of the parameters' names, in the unit of the scalar over the parameter's. Those of an
    obstacle's own parameters are there from the first time that they are asked for.
    """

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.__dict__.update(values)

    @classmethod
    def zero(cls, regions: int) -> ParameterGradient:
        """All zeros for a body with this many material regions."""
        sizes = _sizes(regions, REGISTRY.names())
        return cls({name: 0.0 if size is None else np.zeros(size) for name, size in sizes})

    @classmethod
    def unit(cls, regions: int, name: str, index: int | None = None) -> ParameterGradient:
        """The direction of one parameter, for a vector that of one component."""
        out = cls.zero(regions)
        if index is None:
            setattr(out, name, 1.0)
        else:
            getattr(out, name)[index] = 1.0
        return out

    def __getattr__(self, name: str) -> Any:
        if REGISTRY.numbered(name) is None:
            raise AttributeError(f"there is no parameter '{name}' in this gradient")
        size = REGISTRY[name].size()
        return self.__dict__.setdefault(name, 0.0 if size is None else np.zeros(size))

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    @property
    def values(self) -> dict[str, Value]:
        """Entries by name."""
        return self.__dict__

    def add(self, name: str, value: Any) -> None:
        """Add to an entry; a vector by components."""
        setattr(self, name, getattr(self, name) + value)

    def dot(self, other: ParameterGradient) -> float:
        """Sum over all entries of the products."""
        return float(sum(np.sum(np.asarray(value) * getattr(other, name)) for name, value in self.values.items()))


@lru_cache(maxsize=16)
def _sizes(regions: int, names: tuple[str, ...]) -> tuple[tuple[str, int | None], ...]:
    """How many numbers each registered parameter is; window after window asks for dozens of gradients."""
    return tuple((name, REGISTRY[name].size(regions)) for name in names)


def shifted(parameters: Parameters, direction: ParameterGradient, amount: float) -> Parameters:
    """parameters + amount · direction, for the parameters that are given."""
    return Parameters(values={n: v + amount * getattr(direction, n) for n, v in parameters.values.items()})
