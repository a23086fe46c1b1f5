"""A configuration class as a table of its keys, for documentation and for ROS parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from soft_estimator.schema.loading import to_plain
from soft_estimator.schema.section import REQUIRED, Kind, Rule, Section, join_keys, kinds_of


@dataclass(frozen=True)
class FieldDescription:
    """One key: its dotted path (`[]` marks a list), type, SI unit, default (None if left out), bounds and sentence."""

    key: str
    type: str
    unit: str
    required: bool
    default: Any
    low: float | None
    high: float | None
    bounds: str
    choices: tuple[str, ...]
    doc: str


def describe(cls: type[Section]) -> list[FieldDescription]:
    """Every key of a configuration class, in the order of declaration; a recursive section is opened once."""
    return _describe(cls, "", ())


def _describe(cls: type[Section], path: str, open_classes: tuple[type[Section], ...]) -> list[FieldDescription]:
    rows: list[FieldDescription] = []
    for kind in kinds_of(cls):
        key = join_keys(path, kind.name) + ("[]" if kind.form == "sections" else "")
        rows.append(_row(kind, key))
        if set(kind.classes) & {*open_classes, cls}:
            continue
        for member in kind.classes:
            inner = join_keys(key, member.tag) if kind.tagged else key
            rows += _describe(member, inner, (*open_classes, cls))
    return rows


def _row(kind: Kind, key: str) -> FieldDescription:
    rule: Rule = kind.rule
    type_name = {"vector": f"{kind.length} numbers", "words": "list of words"}.get(kind.form, kind.form)
    if kind.tagged:
        names = ", ".join(member.tag for member in kind.classes)
        type_name = f"{'list, each one' if kind.form == 'sections' else 'one'} of {names}"
    default = None if kind.default is REQUIRED else kind.default
    if isinstance(default, Section):
        default = {default.tag: to_plain(default)} if kind.tagged else to_plain(default)
    elif isinstance(default, tuple):
        default = [to_plain(item) if isinstance(item, Section) else item for item in default]
    required = kind.default is REQUIRED
    bounds = rule.bounds()
    return FieldDescription(
        key, type_name, rule.unit, required, default, rule.low, rule.high, bounds, rule.choices, rule.doc
    )
