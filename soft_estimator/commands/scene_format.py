"""`soft-estimator scene-format`: the reference of the scene file, made from the configuration classes themselves."""

from __future__ import annotations

import argparse
import json
from typing import Any

from soft_estimator.commands.console import HelpFormatter

EPILOG = """examples:
  soft-estimator scene-format
  soft-estimator scene-format --json | jq '.[] | select(.key == "material.youngs_modulus_pa")'
  soft-estimator scene-format > docs/scene_format.md"""

_HEAD = """# The scene file

Made by `soft-estimator scene-format`; do not edit it here.

A scene is one YAML file. A number is taken in the unit its key names; a text such as `"50 kPa"`, `"4 mm"`, `"45 deg"`
or `"2 1/mm"` is converted. An unknown key, a wrong unit or a number out of bounds is refused with one line that says
what to do.

{notes}

```yaml
{example}```

## Keys

`[]` marks a list of sections. A section that may be left out takes the defaults below it. A body's shape is written
under the name of its kind, as in `shape: {{torus: {{...}}}}`; the parts of a `union` take any of the kinds above it.
"""

_EXAMPLE = """name: my_ball
body:
  shape:
    sphere: {radius_m: "5 cm", center_m: [0, 0.15, 0]}
  spacing_m: "6 mm"
material:
  youngs_modulus_pa: "60 kPa"
contact: {normal: [0, 1, 0]}
"""


_TABLE = ("| key | type | unit | default | bounds | what it is |", "|---|---|---|---|---|---|")


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "scene-format",
        help="print the reference of the scene file",
        description="Print the reference of the scene file: every key with its unit, default and bounds, as Markdown.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print the keys as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if not args.json:
        print(scene_reference(), end="")
        return 0
    from soft_estimator import config
    from soft_estimator.schema import describe

    print(json.dumps([vars(row) for row in describe(config.SceneConfig)], indent=1, default=str))
    return 0


def scene_reference() -> str:
    """The reference as Markdown, one table for each section of the scene."""
    from soft_estimator import config
    from soft_estimator.schema import describe

    notes = (config.__doc__ or "").split("\n\n", 1)[1].strip()
    blocks: dict[str, list[str]] = {}
    for row in describe(config.SceneConfig):
        parent, _, name = row.key.rpartition(".")
        default = "required" if row.required else "" if row.default in (None, "", []) else f"`{row.default}`"
        if row.type.startswith("section"):
            default = default if row.required else "may be left out"
        cells = (f"`{name}`", row.type, row.unit, default, ", ".join(row.choices) or row.bounds, row.doc)
        blocks.setdefault(parent, []).append("| " + " | ".join(cells) + " |")
    parts = [_HEAD.format(notes=notes, example=_EXAMPLE)]
    for parent, rows in blocks.items():
        parts.append("\n".join([f"### {parent or 'the scene'}", "", *_TABLE, *rows]) + "\n")
    return "\n".join(parts)
