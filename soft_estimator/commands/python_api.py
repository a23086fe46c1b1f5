"""`soft-estimator python-api`: the reference of the Python interface, made from its docstrings."""

from __future__ import annotations

import argparse
import inspect
import json
import re
from typing import Any

from soft_estimator.commands.console import HelpFormatter

EPILOG = """examples:
  soft-estimator python-api
  soft-estimator python-api --json | jq '.[].name'
  soft-estimator python-api > docs/api.md"""

_HEAD = """# From Python

Made by `soft-estimator python-api` from the docstrings of `soft_estimator.api`; do not edit it here. Programs that run:
[examples](../examples).

"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "python-api",
        help="print the reference of the Python interface",
        description="Print functions and classes of `import soft_estimator` with what they take and give, as Markdown.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    import soft_estimator as se

    names = [name for name in se.__all__ if not name.startswith("_")]
    entries = [_entry(f"se.{name}", getattr(se, name)) for name in _order(names)]
    if args.json:
        print(json.dumps(entries, indent=1))
    else:
        about = inspect.getdoc(inspect.getmodule(se.measure)) or ""
        print(_HEAD + _block(about) + "\n" + "\n".join(map(_markdown, entries)), end="")
    return 0


def _order(names: list[str]) -> list[str]:
    """What is called first, then what it gives."""
    return sorted(names, key=lambda name: (name[0].isupper(), name))


def _entry(name: str, thing: Any) -> dict[str, Any]:
    """Name, signature, documentation and members of a function or a class."""
    members = []
    if inspect.isclass(thing):
        for key, member in vars(thing).items():
            what = member.fget if isinstance(member, property) else member
            if key.startswith("_") or not inspect.isfunction(what) or not inspect.getdoc(what):
                continue
            call = "" if isinstance(member, property) else _signature(what)
            members.append({"name": key, "signature": call, "doc": inspect.getdoc(what)})
    shown = "" if inspect.isclass(thing) else _signature(thing)
    return {"name": name, "signature": shown, "doc": inspect.getdoc(thing) or "", "members": members}


def _signature(function: Any) -> str:
    """Its parameters with types and defaults, as they are written in the code."""
    signature, shown, named_only = inspect.signature(function), [], False
    for p in signature.parameters.values():
        if p.name == "self":
            continue
        if p.kind is p.KEYWORD_ONLY and not named_only:
            named_only = True
            shown.append("*")
        default = "" if p.default is p.empty else f" = {p.default!r}"
        star = "**" if p.kind is p.VAR_KEYWORD else ""
        shown.append(f"{star}{p.name}: {p.annotation}{default}")
    return f"({', '.join(shown)}) -> {signature.return_annotation}"


def _markdown(entry: dict[str, Any]) -> str:
    lines = [f"## {entry['name']}", "", f"`{entry['name']}{entry['signature']}`", "", _block(entry["doc"])]
    for member in entry["members"]:
        lines.append(f"- `.{member['name']}{member['signature']}`: {' '.join(member['doc'].split())}")
    return "\n".join(lines).rstrip() + "\n"


def _block(doc: str) -> str:
    """A docstring as Markdown: its lists of arguments and attributes as lists, code that is indented stays so."""
    out: list[str] = []
    listed = False
    for line in doc.splitlines():
        if line in ("Args:", "Attributes:"):
            listed = True
            out.append(line)
            out.append("")
        elif listed and line.startswith("    "):
            out += _items(line)
        else:
            listed = listed and not line
            out.append(line)
    return "\n".join(out).rstrip() + "\n"


def _items(line: str) -> list[str]:
    """The entries of one line of such a list: `name: text. other: text.`; a line that goes on is put below."""
    if line.startswith("        "):
        return [f"  {line.strip()}"]
    parts = re.split(r"(?<=\.) (?=[a-z_]+(?:, [a-z_]+)*: )", line.strip())
    return [f"- {re.sub(r'^([a-z_, ]+): ', lambda m: _names(m[1]) + ': ', part)}" for part in parts]


def _names(text: str) -> str:
    return ", ".join(f"`{name}`" for name in text.split(", "))
