"""`soft-estimator scenes`: list the built-in scenes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from soft_estimator.commands.console import HelpFormatter, bold

EPILOG = """examples:
  soft-estimator scenes
  soft-estimator scenes --json
  soft-estimator scenes --show swinging_torus > my_scene.yaml"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "scenes",
        help="list the built-in scenes",
        description="List the built-in scenes, or print the file of one to start your own from.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--show", metavar="NAME", help="print the file of this scene")
    parser.add_argument("--json", action="store_true", help="print the list, or the file, as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from soft_estimator.config import load_scene
    from soft_estimator.scene.files import builtin_scene_names, builtin_scene_path

    if args.show:
        text = builtin_scene_path(args.show).read_text(encoding="utf-8")
        print(json.dumps({"name": args.show, "file": text}) if args.json else text, end="\n" if args.json else "")
        return 0
    rows: list[dict[str, Any]] = []
    for name in builtin_scene_names():
        scene = load_scene(builtin_scene_path(name))
        files = _files(scene.body.shape)
        rows.append({"name": name, "description": scene.description, "needs_data": bool(files), "files": files})
    if args.json:
        print(json.dumps(rows, indent=1))
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        needs = f" [--data with {', '.join(row['files'])}]" if row["files"] else ""
        print(f"{bold(row['name'].ljust(width), sys.stdout)}  {row['description']}{needs}")
    return 0


def _files(shape: Any) -> list[str]:
    """The files that a shape names."""
    if hasattr(shape, "of"):
        return [name for part in shape.of for name in _files(part)]
    return [shape.file] if hasattr(shape, "file") else []
