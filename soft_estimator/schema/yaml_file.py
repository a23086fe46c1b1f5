"""YAML files, read strictly: every failure is one line, and no file takes more than a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from soft_estimator.schema.section import ConfigError, shown

MOST_BYTES = 256 * 1024
MOST_CHARACTERS = 10_000  # of one value
MOST_DEPTH = 40
MOST_NODES = 30_000  # keys and values, with everything that `*name` and `<<` repeat written out


def read_yaml(path: Path | str) -> Any:
    """Read one YAML file strictly; every failure is a ConfigError that names the file."""
    try:
        with Path(path).open("rb") as stream:
            raw = stream.read(MOST_BYTES + 1)
        text = raw.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror}); give the path of a YAML file", str(path)) from None
    except ValueError:  # a NUL in the path, or bytes that are no text
        raise ConfigError("is not UTF-8 text; give a YAML file", str(path)) from None
    if len(raw) > MOST_BYTES:
        raise ConfigError(f"is larger than {MOST_BYTES >> 10} kB; give a YAML file of settings, not of data", str(path))
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except ConfigError as error:
        raise ConfigError(error.problem, str(path)) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" on line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"is not valid YAML{where}: {getattr(error, 'problem', error)}", str(path)) from None
    except (ValueError, OverflowError) as error:  # an escape beyond Unicode
        raise ConfigError(f"is not valid YAML: {error}", str(path)) from None


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice, where YAML would silently keep the last; and whatever has no end."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._sizes: dict[int, int] = {}  # nodes below and with each node, repeated ones counted each time

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        line = self.peek_event().start_mark.line + 1
        repeated = self.check_event(yaml.AliasEvent)
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise ConfigError(f"is nested deeper than {MOST_DEPTH} levels on line {line}; flatten it")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if repeated:
            if id(node) not in self._sizes:
                raise ConfigError(f"has a value on line {line} that contains itself; write out what is meant")
            return node
        size = 1
        if isinstance(node, yaml.ScalarNode) and len(node.value) > MOST_CHARACTERS:
            raise ConfigError(f"has a value of over {MOST_CHARACTERS} characters on line {line}; shorten it")
        if isinstance(node, yaml.CollectionNode):
            for child in node.value:
                parts = child if isinstance(child, tuple) else (child,)
                size += sum(self._sizes[id(part)] for part in parts)
        if max(size, len(self._sizes)) > MOST_NODES:
            raise ConfigError(
                f"holds over {MOST_NODES} values by line {line}, with what it repeats written out; shorten it"
            )
        self._sizes[id(node)] = size
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ConfigError, yaml.YAMLError):
            raise
        except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError):
            # in so many ways `!!int ""`, `!!bool x` or the 31st of February end inside the library
            tag, line = node.tag.rpartition(":")[2], node.start_mark.line + 1
            raise ConfigError(
                f"has {shown(node.value)} on line {line}, which is no {tag}; correct or quote it"
            ) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):
            return super().construct_mapping(node, deep)  # it says what it found instead
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"has a key on line {line} that is not a single word")
            if key in seen:
                raise ConfigError(f"has the key {shown(key)} twice, on lines {seen[key]} and {line}; keep one")
            seen[key] = line
        return super().construct_mapping(node, deep)
