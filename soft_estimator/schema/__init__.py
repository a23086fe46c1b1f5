"""A small strict loader: YAML-like dictionaries into frozen dataclasses, with units, bounds and one-line errors.

A section of a configuration is a subclass of `Section` whose fields are declared with `quantity`, `vector`, `choice`,
`setting`, `words`, `section` or `sections`. The class itself checks every leaf when it is made, so a section built in
Python and one read from a file obey the same bounds. The annotation says what a field is:

    float, int, bool, str       a leaf (numbers are SI; text such as "50 kPa" is converted)
    tuple[float, float, float]  a vector
    tuple[str, ...]             a list of words
    SomeSection                 a nested section
    tuple[SomeSection, ...]     a list of sections
    A | B | C                   exactly one of several sections, each named by its `tag`: {torus: {...}}
    ... | None                  any of these may be left out
"""

from soft_estimator.schema.describing import FieldDescription, describe
from soft_estimator.schema.loading import load, to_plain
from soft_estimator.schema.section import (
    ConfigError,
    Section,
    choice,
    quantity,
    section,
    sections,
    setting,
    vector,
    words,
)
from soft_estimator.schema.units import UnitError, parse_quantity, parse_unit
from soft_estimator.schema.yaml_file import read_yaml

__all__ = [
    "ConfigError",
    "FieldDescription",
    "Section",
    "UnitError",
    "choice",
    "describe",
    "load",
    "parse_quantity",
    "parse_unit",
    "quantity",
    "read_yaml",
    "section",
    "sections",
    "setting",
    "to_plain",
    "vector",
    "words",
]
