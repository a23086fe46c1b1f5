"""`soft-estimator completion`: what the shell needs to complete commands, options and scenes."""

from __future__ import annotations

import argparse
import importlib
import json
from typing import Any

from soft_estimator.commands.console import HelpFormatter

SHELLS = ("bash", "zsh", "fish", "tcsh")

EPILOG = """examples:
  soft-estimator completion bash > ~/.local/share/bash-completion/completions/soft-estimator
  soft-estimator completion zsh > ~/.zfunc/_soft-estimator     # with fpath+=~/.zfunc before compinit
  soft-estimator completion fish > ~/.config/fish/completions/soft-estimator.fish
  eval "$(soft-estimator completion bash)"                     # for this terminal only"""


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "completion",
        help="print the completion script of a shell",
        description="Print a script that lets a shell complete commands, options, built-in scenes and files.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.add_argument("--json", action="store_true", help="print the script as JSON: shell, script")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    script = completion_script(args.shell, args.whole_parser)
    print(json.dumps({"shell": args.shell, "script": script}) if args.json else script)
    return 0


def completion_script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script, made from the parser itself."""
    try:
        shtab = importlib.import_module("shtab")
    except ModuleNotFoundError:
        raise ValueError("completion needs the Python package shtab; python -m pip install shtab") from None
    if shell not in shtab.SUPPORTED_SHELLS:
        raise ValueError(f"shtab {shtab.__version__} does not know {shell}; python -m pip install --upgrade shtab")
    for command in _subcommands(parser).values():
        for action in command._actions:
            _say_what_fits(action, shtab)
    return str(shtab.complete(parser, shell=shell))


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next(dict(a.choices) for a in parser._actions if isinstance(a, argparse._SubParsersAction))


def _say_what_fits(action: Any, shtab: Any) -> None:
    """Files where a path is asked for, folders where a folder is; and the built-in scenes."""
    from soft_estimator.scene.files import builtin_scene_names

    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if (metavar in ("SCENE", "NAME") and action.dest in ("scene", "show")) and action.choices is None:
        # A file fits as well: the shell offers it where no scene begins like the word.
        action.choices = builtin_scene_names()
    elif action.option_strings and metavar in ("DIR", "FOLDER"):
        action.complete = shtab.DIRECTORY
    elif metavar in ("FILE", "BAG", "FRAMES|BAG", "DIR", "FOLDER", "PATH"):
        action.complete = shtab.FILE
