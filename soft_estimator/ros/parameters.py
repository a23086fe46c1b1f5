"""Sections of the configuration as ROS parameters: declared, read back, and checked by the sections themselves.

Names are dotted paths (`window.frames`). ROS knows no empty value, so these stand for "left out": NaN for a number, a
vector of NaN, "" for a text, -1 for a whole number, [NaN] for a list of sections. A list of sections of numbers is one
list of numbers, one section after the other. A section that may be left out is so while all its required keys are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter

from soft_estimator.schema import ConfigError, Section, load
from soft_estimator.schema.section import REQUIRED, Kind, join_keys, kinds_of

S = TypeVar("S", bound=Section)

_TYPES = {
    "number": Parameter.Type.DOUBLE,
    "whole number": Parameter.Type.INTEGER,
    "truth value": Parameter.Type.BOOL,
    "text": Parameter.Type.STRING,
    "vector": Parameter.Type.DOUBLE_ARRAY,
    "sections": Parameter.Type.DOUBLE_ARRAY,
}
_LEFT_OUT = {"number": "NaN", "whole number": "-1", "text": "empty", "vector": "all NaN", "sections": "[NaN]"}
_LARGEST = 2**63 - 1


def parameter_values(cls: type[Section], value: Section | None = None, prefix: str = "") -> dict[str, Any]:
    """Every parameter of a section class by name, with the values of `value`, or the defaults."""
    return {name: shown for name, _, shown in _leaves(cls, value, prefix)}


def section_from(cls: type[S], values: dict[str, Any], prefix: str = "") -> S:
    """The section that parameter values describe; ConfigError, keys with the prefix, where it refuses them."""
    try:
        return load(cls, _plain(cls, values, prefix), prefix or "the parameters")
    except ConfigError as error:
        raise (error.inside(prefix) if error.key else error) from None


def descriptor_of(kind: Kind, read_only: bool) -> ParameterDescriptor:
    """Type, sentence, range and read-only flag of one parameter."""
    rule = kind.rule
    optional = kind.optional or kind.form == "sections" or kind.default is REQUIRED
    unit = f" [{rule.unit}]" if rule.unit else ""
    left_out = f"; {_LEFT_OUT[kind.form]} for none" if optional and kind.form in _LEFT_OUT else ""
    constraints = f"one of {', '.join(rule.choices)}" if rule.choices else rule.bounds()
    made = ParameterDescriptor(
        type=_TYPES[kind.form].value,
        description=f"{rule.doc}{unit}{left_out}",
        additional_constraints=constraints,
        read_only=read_only,
    )
    # A range would refuse what stands for "left out"; the section checks the bounds in any case.
    if optional or (rule.low is None and rule.high is None):
        return made
    if kind.form == "number":
        low, high = -math.inf if rule.low is None else rule.low, math.inf if rule.high is None else rule.high
        made.floating_point_range = [FloatingPointRange(from_value=float(low), to_value=float(high), step=0.0)]
    elif kind.form == "whole number":
        low, high = -_LARGEST if rule.low is None else rule.low, _LARGEST if rule.high is None else rule.high
        made.integer_range = [IntegerRange(from_value=int(low), to_value=int(high), step=1)]
    return made


@dataclass
class _Group:
    cls: type[Section]
    prefix: str
    names: frozenset[str]
    changed: Callable[[Any], None] | None


class NodeParameters:
    """The sections a node takes its parameters from. Those with a `changed` function may be changed while it runs."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._groups: list[_Group] = []
        node.add_on_set_parameters_callback(self._on_set)

    def add(
        self,
        cls: type[S],
        prefix: str = "",
        default: S | None = None,
        changed: Callable[[S], None] | None = None,
    ) -> S:
        """Declare a section and return it as the node was started with; `changed` is told of later ones."""
        names = []
        for name, kind, value in _leaves(cls, default, prefix):
            self._node.declare_parameter(name, value, descriptor_of(kind, changed is None))
            names.append(name)
        made = section_from(cls, {name: self._node.get_parameter(name).value for name in names}, prefix)
        self._groups.append(_Group(cls, prefix, frozenset(names), changed))
        return made

    def _on_set(self, parameters: Sequence[Parameter]) -> SetParametersResult:
        """Let every section that is touched check the new values together; tell only when all agree."""
        given = {p.name: p.value for p in parameters}
        try:
            told = []
            for group in self._groups:
                if group.changed is not None and group.names & given.keys():
                    now = {name: self._node.get_parameter(name).value for name in group.names}
                    new = section_from(
                        group.cls, {**now, **{n: given[n] for n in group.names & given.keys()}}, group.prefix
                    )
                    told.append((group.changed, new))
            for changed, new in told:
                changed(new)
        except ValueError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)


def _leaves(cls: type[Section], value: Section | None, prefix: str) -> Iterator[tuple[str, Kind, Any]]:
    """(name, kind, value as a parameter) of every parameter below a section."""
    for kind in kinds_of(cls):
        name = join_keys(prefix, kind.name)
        default = None if kind.default is REQUIRED else kind.default
        held = getattr(value, kind.name) if value is not None else default
        if kind.form != "section":
            yield name, kind, _encode(kind, held)
            continue
        if kind.tagged or (kind.optional and not _required(kind.classes[0])):
            raise TypeError(f"{cls.__name__}.{kind.name} cannot be written as parameters")
        yield from _leaves(kind.classes[0], held, name)


def _required(cls: type[Section]) -> list[Kind]:
    return [kind for kind in kinds_of(cls) if kind.default is REQUIRED]


def _encode(kind: Kind, value: Any) -> Any:
    if kind.form == "sections":
        numbers = [x for item in value for part in kinds_of(type(item)) for x in _numbers(getattr(item, part.name))]
        return numbers or [math.nan]
    if value is None:
        if kind.form == "truth value":
            raise TypeError(f"{kind.name}: a truth value that may be left out cannot be written as a parameter")
        left_out = {"number": math.nan, "whole number": -1, "text": "", "vector": [math.nan] * kind.length}
        return left_out[kind.form]
    return [float(x) for x in value] if kind.form == "vector" else value


def _numbers(value: Any) -> list[float]:
    return [float(x) for x in value] if isinstance(value, tuple) else [float(value)]


def _plain(cls: type[Section], values: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Nested dictionaries for the strict loader."""
    plain: dict[str, Any] = {}
    for kind in kinds_of(cls):
        name = join_keys(prefix, kind.name)
        if kind.form == "section":
            inner = kind.classes[0]
            empty = all(_left_out(k, values[join_keys(name, k.name)]) for k in _required(inner))
            plain[kind.name] = None if kind.optional and empty else _plain(inner, values, name)
        elif kind.form == "sections":
            plain[kind.name] = _sections(kind, values[name], name)
        elif not _left_out(kind, values[name]) or not (kind.optional or kind.default is REQUIRED):
            plain[kind.name] = list(values[name]) if kind.form == "vector" else values[name]
        elif kind.optional:
            plain[kind.name] = None
    return plain


def _left_out(kind: Kind, value: Any) -> bool:
    if kind.form in ("vector", "sections"):
        return all(math.isnan(x) for x in value)
    if kind.form == "number":
        return math.isnan(value)
    return value == (-1 if kind.form == "whole number" else "") and not isinstance(value, bool)


def _sections(kind: Kind, numbers: Sequence[float], name: str) -> list[dict[str, Any]]:
    if _left_out(kind, numbers):
        return []
    parts = [(part.name, part.length if part.form == "vector" else 1) for part in kinds_of(kind.classes[0])]
    width = sum(length for _, length in parts)
    if len(numbers) % width:
        listed = ", ".join(part for part, _ in parts)
        raise ConfigError(f"has {len(numbers)} numbers; give {width} for each ({listed})", kind.name)
    out, left = [], list(numbers)
    while left:
        item: dict[str, Any] = {}
        for part, length in parts:
            item[part] = left[:length] if length > 1 else left[0]
            left = left[length:]
        out.append(item)
    return out
