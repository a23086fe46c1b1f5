"""Dictionaries into sections, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from soft_estimator.schema.section import REQUIRED, ConfigError, Kind, S, Section, join_keys, kinds_of, nearest, shown


def load(cls: type[S], data: Any, name: str = "configuration") -> S:
    """Build a section from nested dictionaries; `name` is what the whole is called in messages ("scene")."""
    return _load(cls, data, "", name)


def _load(cls: type[S], data: Any, path: str, name: str) -> S:
    here = path or name
    if not isinstance(data, Mapping):
        raise ConfigError(f"= {shown(data)} must be a mapping of keys to values", here)
    kinds = {kind.name: kind for kind in kinds_of(cls)}
    for key in data:
        if key not in kinds:
            hint = nearest(shown(key).strip("'"), list(kinds)) or f"; the keys are {', '.join(kinds)}"
            raise ConfigError(f"unknown key {shown(key)} in {here}{hint}")
    missing = [k for k, kind in kinds.items() if kind.default is REQUIRED and k not in data]
    if missing:
        kind = kinds[missing[0]]
        unit = f" [{kind.rule.unit}]" if kind.rule.unit else ""
        raise ConfigError(f"missing key '{missing[0]}' in {here}; add it: {kind.rule.doc}{unit}")
    values = {key: _value(kinds[key], value, join_keys(path, key)) for key, value in data.items()}
    try:
        return cls(**values)
    except ConfigError as error:
        raise error.inside(path) from None


def _value(kind: Kind, value: Any, path: str) -> Any:
    """Build what lies below a field; leaves are left for the section itself to convert."""
    if not kind.classes or value is None:
        return value
    if kind.form == "section":
        return _member(kind, value, path)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_member(kind, item, f"{path}[{i}]") for i, item in enumerate(value))
    return value


def _member(kind: Kind, value: Any, path: str) -> Section:
    if not kind.tagged:
        return _load(kind.classes[0], value, path, path)
    by_tag = {cls.tag: cls for cls in kind.classes}
    if not isinstance(value, Mapping) or len(value) != 1:
        found = f"the keys {shown(list(value))[1:-1]}" if isinstance(value, Mapping) and value else shown(value)
        raise ConfigError(f"has {found}; it needs exactly one of {', '.join(by_tag)}", path)
    tag, inner = next(iter(value.items()))
    if tag not in by_tag:
        hint = nearest(shown(tag).strip("'"), list(by_tag)) or f"; it is one of {', '.join(by_tag)}"
        raise ConfigError(f"unknown key {shown(tag)} in {path}{hint}")
    # `shape: {sphere: }` with everything left to the defaults is a mapping too.
    return _load(by_tag[tag], {} if inner is None else inner, join_keys(path, tag), path)


def to_plain(section: Section) -> dict[str, Any]:
    """The resolved section as plain dictionaries, lists and numbers; `load` turns it into an equal section."""
    plain: dict[str, Any] = {}
    for kind in kinds_of(type(section)):
        value = getattr(section, kind.name)
        if value is None:
            continue
        if kind.form == "section":
            plain[kind.name] = _plain_member(kind, value)
        elif kind.form == "sections":
            plain[kind.name] = [_plain_member(kind, item) for item in value]
        else:
            plain[kind.name] = list(value) if kind.form in ("vector", "words") else value
    return plain


def _plain_member(kind: Kind, value: Section) -> dict[str, Any]:
    return {value.tag: to_plain(value)} if kind.tagged else to_plain(value)
