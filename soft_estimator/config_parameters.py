"""Sections of numbers by parameter: guesses, how far off they may be, and how well known is what is held fixed.

Their fields are those of the registry; what every obstacle has one of stands under `obstacles`, by its number.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from soft_estimator.config_body import Vector
from soft_estimator.parameters import NUMBER, REGISTRY, Parameter
from soft_estimator.schema import ConfigError, Section, quantity, sections, vector
from soft_estimator.schema.section import nearest

S = TypeVar("S", bound=Section)
NO_DIRECTION = "= [0, 0, 0] has no direction; give one such as [0, 1, 0]"
Field = tuple[Any, Any]  # type and declaration
_WHICH = "which of `obstacles`, counted from 0"
_ONE_BY_ONE = "of obstacles one by one"


def _key(parameter: Parameter) -> str:
    """Of a parameter in its section; of one that every obstacle has, in that of the obstacle."""
    return parameter.name.rpartition(f"{NUMBER}_")[2]


def _registered(
    field_of: Callable[[Parameter], Field], kinds: Iterable[Parameter] = REGISTRY
) -> Callable[[type[S]], type[S]]:
    """Give a section a field for each of the parameters, before its own."""

    def add_fields(cls: type[S]) -> type[S]:
        fields = {_key(parameter): field_of(parameter) for parameter in kinds}
        own = inspect.get_annotations(cls)
        cls.__annotations__ = {name: kind for name, (kind, _) in fields.items()} | own
        for name, (_, declaration) in fields.items():
            setattr(cls, name, declaration)
        return dataclass(frozen=True, kw_only=True)(cls)

    return add_fields


def _guess(parameter: Parameter) -> Field:
    if parameter.shape in ("vector", "direction"):
        unit = "" if parameter.shape == "direction" else parameter.unit
        return Vector | None, vector(None, unit=unit, doc=parameter.doc)
    low, high, doc = parameter.low, parameter.high, parameter.doc
    return float | None, quantity(None, unit=parameter.unit, doc=doc, low=low, high=high, low_open=True, high_open=True)


def _prior(parameter: Parameter) -> Field:
    of = {
        "log": f"of log {parameter.symbol}",
        "logit": f"of log({parameter.symbol}/({parameter.high}-{parameter.symbol}))",
        "tangent": f"per tilt [{parameter.unit}]",
        "linear": f"{'per component ' if parameter.shape == 'vector' else ''}[{parameter.unit}]",
    }[parameter.transform]
    return float | None, quantity(None, low=0, low_open=True, doc=f"{of}; {parameter.prior_std:g} if left out")


def _known(parameter: Parameter) -> Field:
    relative = parameter.transform == "log"
    per = {"vector": ", per component", "direction": f", per tilt [{parameter.unit}]"}.get(parameter.shape, "")
    doc = f"of {parameter.symbol}{', relative' if relative else ''}{per}, where it is not estimated"
    unit = "" if relative or parameter.shape == "direction" else parameter.unit
    return float, quantity(parameter.known_std, unit=unit, low=0, doc=doc)


class _ByName(Section):
    """Numbers of registered parameters, and of each obstacle's own under `obstacles`."""

    each: ClassVar[type[Section]]
    obstacles: tuple[Any, ...]

    def of(self, name: str) -> Any:
        """That of a parameter by its name; None where it has no key."""
        numbered = REGISTRY.numbered(name)
        if numbered is None:
            return getattr(self, name, None)
        kind, number = numbered
        given = [one for one in self.obstacles if one.obstacle == number]
        return getattr(given[0] if given else self.each, _key(kind))

    def check(self) -> None:
        numbers = [one.obstacle for one in self.obstacles]
        for k, number in enumerate(numbers):
            if number in numbers[:k]:
                raise ConfigError(f"= {number} is given twice; put both into one", f"obstacles[{k}].obstacle")


@_registered(_guess, REGISTRY.of_each())
class ObstacleGuessConfig(Section):
    """First guesses of where an obstacle is, from where the scene has it."""

    obstacle: int = quantity(low=0, doc=_WHICH)


@_registered(_prior, REGISTRY.of_each())
class ObstaclePriorConfig(Section):
    """How far off these guesses may be."""

    obstacle: int = quantity(low=0, doc=_WHICH)


@_registered(_known, REGISTRY.of_each())
class ObstacleKnownToConfig(Section):
    """How far off an obstacle may be where that is not estimated, beside the shift and the turn of all."""

    obstacle: int = quantity(low=0, doc=_WHICH)


@_registered(_guess)
class GuessConfig(_ByName):
    """First guesses. Where one is left out, the scene's own value is where the search starts."""

    each: ClassVar[type[Section]] = ObstacleGuessConfig
    obstacles: tuple[ObstacleGuessConfig, ...] = sections(doc=_ONE_BY_ONE)

    def check(self) -> None:
        super().check()
        for parameter in REGISTRY:
            value = getattr(self, parameter.name)
            if parameter.shape == "direction" and value is not None and max(map(abs, value)) < 1e-100:
                raise ConfigError(NO_DIRECTION, parameter.name)


@_registered(_prior)
class PriorConfig(_ByName):
    """How far off a guess may be, as a standard deviation. Of E, density and dampings that of their natural logarithm
    (0.7 is a factor of two); of Poisson's ratio that of log(ν/(0.5-ν)); of the rest in their own unit."""

    each: ClassVar[type[Section]] = ObstaclePriorConfig
    obstacles: tuple[ObstaclePriorConfig, ...] = sections(doc=_ONE_BY_ONE)


@_registered(_known)
class KnownToConfig(_ByName):
    """How far off the numbers may be that are held fixed, as standard deviations; 0 for what is exact. What that does
    to the estimates is part of their intervals. An estimated parameter has its prior instead."""

    each: ClassVar[type[Section]] = ObstacleKnownToConfig
    obstacles: tuple[ObstacleKnownToConfig, ...] = sections(doc=_ONE_BY_ONE)
    shape_offset_m: float = quantity(
        0.0003, unit="m", low=0, doc="how far the body's surface may lie outside or inside its model as a whole"
    )
    shape_scale: float = quantity(0.01, low=0, high=0.5, doc="relative error of the body's size, at its density")
    camera_position_m: float = quantity(0.0005, unit="m", low=0, doc="error of where the points lie, per axis")
    camera_rotation_rad: float = quantity(
        0.003, unit="rad", low=0, doc="error of how they are turned about the body, per axis"
    )
    time_offset_s: float = quantity(0.001, unit="s", low=0, doc="how much all stamps may be early or late")
    time_rate: float = quantity(0.001, low=0, high=0.5, doc="relative error of the clock's rate")
    stamp_jitter_s: float = quantity(0.0005, unit="s", low=0, doc="error of each frame's own stamp")
    model: float = quantity(
        0.01,
        low=0,
        high=1,
        doc="relative deviation added to stiffness, damping and density: the grid and the material's law are not the "
        "body, whatever the number of frames",
    )


PARAMETERS = REGISTRY.names()


def name_problem(name: str) -> str:
    """What is wrong with the name of a parameter, "" if nothing is."""
    match = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", name)
    base = match[1] if match else name.partition("[")[0]
    if base not in REGISTRY:
        return f"cannot be estimated{nearest(base, PARAMETERS) or '; choose from ' + ', '.join(PARAMETERS)}"
    if match is None:
        return f"is not a component; write {base}[0]"
    if match[2] is None or REGISTRY[base].shape == "regions":  # only the scene knows how many regions there are
        return ""
    count = REGISTRY[base].moves()
    if count is None:
        return f"has no components; write {base}"
    return "" if int(match[2]) < count else f"does not exist; the last one is {base}[{count - 1}]"
