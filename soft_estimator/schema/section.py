"""How a section of a configuration is declared, and how it checks itself."""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from soft_estimator.schema.units import UnitError, parse_quantity

REQUIRED = dataclasses.MISSING
# Beyond these no quantity of a scene makes sense, and squares and cubes of them, in single precision too, leave what
# floating-point numbers can hold.
LARGEST, SMALLEST = 1e15, 1e-15


class ConfigError(ValueError):
    """A configuration mistake: one line that names the key, the value and the remedy."""

    def __init__(self, problem: str, key: str = "") -> None:
        super().__init__(" ".join(f"{key} {problem}".split()))
        self.problem = problem
        self.key = key

    def inside(self, path: str) -> ConfigError:
        """The same error seen from the section that `path` names."""
        return ConfigError(self.problem, join_keys(path, self.key))


@dataclass(frozen=True)
class Rule:
    """What a field may hold: unit, bounds, choices, and the sentence that documents it."""

    doc: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    high_open: bool = False
    choices: tuple[str, ...] = ()
    advice: str = ""

    def bounds(self) -> str:
        """The bounds as text, such as "> 0, <= 0.5"; empty without bounds."""
        low = "" if self.low is None else f"{'>' if self.low_open else '>='} {self.low:g}"
        high = "" if self.high is None else f"{'<' if self.high_open else '<='} {self.high:g}"
        return ", ".join(part for part in (low, high) if part)

    def allows(self, value: float) -> bool:
        """Whether the number lies within the bounds."""
        above = self.low is None or value > self.low or (value == self.low and not self.low_open)
        below = self.high is None or value < self.high or (value == self.high and not self.high_open)
        return above and below


def quantity(
    default: Any = REQUIRED,
    *,
    doc: str,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    low_open: bool = False,
    high_open: bool = False,
    advice: str = "",
) -> Any:
    """A number [unit] within bounds; `advice` ends the message when it lies outside."""
    return _declare(default, Rule(doc, unit, low, high, low_open, high_open, advice=advice))


def vector(
    default: Any = REQUIRED, *, doc: str, unit: str = "", low: float | None = None, low_open: bool = False
) -> Any:
    """A fixed-length vector of numbers [unit]; the bounds hold for each component."""
    return _declare(default, Rule(doc, unit, low, low_open=low_open))


def choice(default: Any = REQUIRED, *, options: tuple[str, ...], doc: str) -> Any:
    """One word out of several."""
    return _declare(default, Rule(doc, choices=options))


def setting(default: Any = REQUIRED, *, doc: str) -> Any:
    """A text or a truth value."""
    return _declare(default, Rule(doc))


def words(default: Any = REQUIRED, *, doc: str, advice: str = "") -> Any:
    """A list of words; `advice` says what each of them must be."""
    return _declare(default, Rule(doc, advice=advice))


def section(default: Any = REQUIRED, *, doc: str) -> Any:
    """A nested section, or one section out of a tagged union; pass its class as default for "all its defaults"."""
    if isinstance(default, type):
        return field(default_factory=default, metadata={"rule": Rule(doc)})
    return _declare(default, Rule(doc))


def sections(default: Any = (), *, doc: str) -> Any:
    """A list of sections, empty unless told otherwise."""
    return _declare(default, Rule(doc))


def _declare(default: Any, rule: Rule) -> Any:
    return field(default=default, metadata={"rule": rule})


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a configuration. Leaves are converted and checked on construction, then `check` looks across fields."""

    tag: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for kind in kinds_of(type(self)):
            value = getattr(self, kind.name)
            if value is not None or not kind.optional:
                object.__setattr__(self, kind.name, _convert(kind, value))
        self.check()

    def check(self) -> None:
        """Raise ConfigError when fields contradict each other. Subclasses override this."""


S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class Kind:
    """A field and its annotation, taken apart."""

    name: str
    rule: Rule
    form: str  # number, whole number, truth value, text, vector, words, section, sections
    optional: bool
    classes: tuple[type[Section], ...]
    length: int
    default: Any

    @property
    def tagged(self) -> bool:
        """Whether a section here is written under its tag, as in `shape: {torus: {...}}`."""
        return any(cls.tag for cls in self.classes)


_LEAVES = {float: "number", int: "whole number", bool: "truth value", str: "text"}


_KINDS: dict[type[Section], tuple[Kind, ...]] = {}


def kinds_of(cls: type[Section]) -> tuple[Kind, ...]:
    """The fields of a section class, annotations resolved."""
    if cls not in _KINDS:
        hints = typing.get_type_hints(cls)
        _KINDS[cls] = tuple(_kind(f, hints[f.name]) for f in dataclasses.fields(cls))
    return _KINDS[cls]


def _kind(declared: dataclasses.Field[Any], hint: Any) -> Kind:
    members = _members(hint)
    optional = type(None) in members
    members = tuple(m for m in members if m is not type(None))
    form, classes, length = "section", members, 0
    if members[0] in _LEAVES:
        form, classes = _LEAVES[members[0]], ()
    elif typing.get_origin(members[0]) is tuple:
        arguments = typing.get_args(members[0])
        if arguments[0] is str:
            form, classes = "words", ()
        elif arguments[-1] is Ellipsis:
            form, classes = "sections", _members(arguments[0])
        else:
            form, classes, length = "vector", (), len(arguments)
    default = declared.default if declared.default_factory is REQUIRED else declared.default_factory()
    return Kind(declared.name, declared.metadata["rule"], form, optional, classes, length, default)


def _members(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _convert(kind: Kind, value: Any) -> Any:
    """Turn a given value into the field's type, or say in one line why not."""
    if value is None:
        raise ConfigError("is empty; give it a value or remove the key", kind.name)
    if kind.form == "section":
        return _instance(kind, value, kind.name)
    if kind.form in ("sections", "vector", "words"):
        items = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(items, (str, bytes)) or not isinstance(items, Sequence):
            wanted = kind.form if kind.form != "vector" else f"{kind.length} numbers{_of_unit(kind.rule)}"
            raise ConfigError(f"= {shown(value)} must be a list of {wanted}", kind.name)
        if kind.form == "sections":
            return tuple(_instance(kind, item, f"{kind.name}[{i}]") for i, item in enumerate(items))
        if kind.form == "words":
            return tuple(_listed_word(kind.rule, item, f"{kind.name}[{i}]") for i, item in enumerate(items))
        if len(items) != kind.length:
            raise ConfigError(f"= {shown(items)} has {len(items)} entries; it needs {kind.length}", kind.name)
        return tuple(_number(kind.rule, item, f"{kind.name}[{i}]") for i, item in enumerate(items))
    if kind.form == "number":
        return _number(kind.rule, value, kind.name)
    if kind.form == "whole number":
        number = _number(kind.rule, value, kind.name)
        if number != int(number):
            raise ConfigError(f"= {shown(value)} must be a whole number", kind.name)
        return int(number)
    return _word(kind, value)


def _instance(kind: Kind, value: Any, key: str) -> Any:
    if isinstance(value, kind.classes):
        return value
    raise ConfigError(f"= {shown(value)} must be a {' or '.join(cls.__name__ for cls in kind.classes)}", key)


def _word(kind: Kind, value: Any) -> Any:
    wanted = bool if kind.form == "truth value" else str
    if not isinstance(value, wanted):
        remedy = "true or false" if wanted is bool else " or ".join(kind.rule.choices) or "text (put it in quotes)"
        raise ConfigError(f"= {shown(value)} must be {remedy}", kind.name)
    if kind.rule.choices and value not in kind.rule.choices:
        near = nearest(str(value), kind.rule.choices)
        raise ConfigError(f"= {shown(value)} must be one of {', '.join(kind.rule.choices)}{near}", kind.name)
    return value


def _listed_word(rule: Rule, value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"= {shown(value)} must be {rule.advice or 'text (put it in quotes)'}", key)
    return value


def _number(rule: Rule, value: Any, key: str) -> float:
    if isinstance(value, str):
        try:
            number = parse_quantity(value, rule.unit)
        except UnitError as error:
            raise ConfigError(f"= {shown(value)} {error}", key) from None
    elif isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ConfigError(f"= {shown(value)} must be a number{_of_unit(rule)}", key)
    else:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    if not math.isfinite(number):
        raise ConfigError(f"= {shown(value)} must be finite", key)
    if abs(number) > LARGEST:
        raise ConfigError(f"= {shown(value)} must be at most {LARGEST:g} in size; check its unit", key)
    if rule.low == 0 and rule.low_open and 0 < number < SMALLEST:
        raise ConfigError(f"= {shown(value)} must be at least {SMALLEST:g}; check its unit", key)
    if not rule.allows(number):
        advice = f"; {rule.advice}" if rule.advice else ""
        raise ConfigError(f"= {shown(value)} must be {rule.bounds()}{_of_unit(rule)}{advice}", key)
    return number


def _of_unit(rule: Rule) -> str:
    return f" [{rule.unit}]" if rule.unit else ""


def nearest(word: str, known: Sequence[str]) -> str:
    """ "; did you mean '...'?" for a misspelt word, or nothing."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def join_keys(path: str, key: str) -> str:
    """The dotted key path."""
    return f"{path}.{key}" if path and key else path or key


def shown(value: Any, most: int = 60) -> str:
    """A value as it appears in a message: on one line and not too long.

    Cut while it is written: a small file whose lists name each other many times over has no end of text.
    """
    text = ""
    for piece in _pieces(value, most):
        text += piece
        if len(text) > most:
            return text[: most - 3] + "..."
    return text


def printable(text: str, most: int = 300) -> str:
    """Foreign text within a message: on one line, not too long, and nothing in it that a terminal obeys."""
    line = "".join(c if c.isprintable() else "\ufffd" for c in text[: most + 1])
    return line if len(line) <= most else line[: most - 3] + "..."


def _pieces(value: Any, most: int) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield "{"
        for i, (key, item) in enumerate(value.items()):
            yield ", " if i else ""
            yield from _pieces(key, most)
            yield ": "
            yield from _pieces(item, most)
        yield "}"
    elif isinstance(value, list | tuple):
        yield "[" if isinstance(value, list) else "("
        for i, item in enumerate(value):
            yield ", " if i else ""
            yield from _pieces(item, most)
        yield "]" if isinstance(value, list) else ",)" if len(value) == 1 else ")"
    elif isinstance(value, str | bytes):
        yield repr(value[: most + 1])
    elif isinstance(value, int) and value.bit_length() > 4 * most:
        yield f"a whole number of {value.bit_length()} bits"  # Python refuses to write out very long ones
    else:
        yield repr(value)
