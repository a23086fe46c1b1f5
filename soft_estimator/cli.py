"""The `soft-estimator` command: it mounts the commands and turns every failure into one line and an exit code.

A command lives in a module with two functions, one that adds its parser and one that runs it:

    def add_parser(commands) -> argparse.ArgumentParser   # commands.add_parser("name", ...)
    def run(args) -> int                                  # the exit code

Modules import what is heavy inside `run`, so that help and mistakes answer at once.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from soft_estimator.commands.console import EXIT_INTERRUPTED, HelpFormatter, Parser, describe_error, stderr_line
from soft_estimator.commands.logs import ROOT, CommandLog, add_log_options

EXIT_FAILED, EXIT_MISTAKE = 1, 2

EPILOG = """examples:
  soft-estimator measure my_bag --mass "158 g" --out out/mine
  soft-estimator scenes
  soft-estimator simulate swinging_torus --out out/torus
  soft-estimator simulate my_scene.yaml --out out/mine --json
  soft-estimator estimate swinging_torus --out out/estimate
  soft-estimator doctor                                         # is everything there, and does it work?
  soft-estimator completion bash                                # for your shell

exit codes, of every command:
  0    done
  1    it ran and failed: a simulation that could not go on, a gradient off, no object found, a node that died
  2    a mistake in the command, the scene or a file; the line on stderr says which and what to do
  130  interrupted with Ctrl-C

Every command takes --json, -v and --log FILE. Colours are left out where NO_COLOR is set or nobody watches."""


@dataclass(frozen=True)
class Command:
    """Where a command's two functions are. `optional` ones are left out where their module is not there."""

    module: str
    add: str = "add_parser"
    run: str = "run"
    optional: bool = False


COMMANDS = (
    Command("soft_estimator.commands.measure"),
    Command("soft_estimator.commands.simulate"),
    Command("soft_estimator.commands.estimate"),
    Command("soft_estimator.commands.check_gradient"),
    Command("soft_estimator.commands.record"),
    Command("soft_estimator.commands.replay"),
    Command("soft_estimator.commands.export"),
    Command("soft_estimator.commands.bench"),
    Command("soft_estimator.commands.studies"),
    Command("soft_estimator.commands.run"),
    Command("soft_estimator.commands.demo"),
    Command("soft_estimator.commands.scenes"),
    Command("soft_estimator.commands.scene_format"),
    Command("soft_estimator.commands.ros_interface"),
    Command("soft_estimator.commands.python_api"),
    Command("soft_estimator.commands.view"),
    Command("soft_estimator.commands.doctor"),
    Command("soft_estimator.commands.completion"),
    Command("soft_estimator.commands.scan", "add_scan_parser", "run_scan", optional=True),
    Command("soft_estimator.commands.scan", "add_inspect_parser", "run_inspect", optional=True),
)


def build_parser(left_out: list[str] | None = None) -> argparse.ArgumentParser:
    """The parser with every command mounted.

    A command whose module cannot be imported, because a library is missing or broken, is left out and its reason added
    to `left_out`: the others, and doctor above all, still work.
    """
    parser = Parser(
        prog="soft-estimator",
        description="Simulate soft bodies, and estimate their stiffness, damping and contact plane from depth cameras.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"soft-estimator {version()}")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from, for bug reports")
    add_log_options(parser, None)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, title="commands")
    for command in COMMANDS:
        if command.optional and not _exists(command.module):
            continue
        try:
            module = importlib.import_module(command.module)
        except ImportError as error:
            if left_out is None:
                raise
            left_out.append(f"{command.module} cannot be loaded ({error}); soft-estimator doctor says what to do")
            continue
        added = getattr(module, command.add)(commands)
        add_log_options(added)
        added.set_defaults(run=getattr(module, command.run), whole_parser=parser)
    return parser


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def version() -> str:
    """The installed package's version."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("soft_estimator")
    except PackageNotFoundError:
        return "(not installed)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    left_out: list[str] = []
    parser = build_parser(left_out)
    for reason in sorted(set(left_out)):
        stderr_line(reason, label="warning")
    try:
        args = parser.parse_args(arguments)
    except SystemExit as done:  # argparse has said what there is to say
        return int(done.code or 0)
    try:
        told = CommandLog(args.verbose, args.log)
    except OSError as error:
        stderr_line(f"--log {args.log} cannot be written ({error.strerror}); name another file", label="error")
        return EXIT_MISTAKE
    with told as log:
        log.begin(sys.argv[1:] if arguments is None else arguments, version())
        code = _run(args)
        log.end(code)
    return code


def _run(args: argparse.Namespace) -> int:
    """The exit code of a command; a failure that the user can do something about is one line on stderr."""
    try:
        return int(args.run(args) or 0)
    except KeyboardInterrupt:
        stderr_line("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output has left, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        ROOT.debug("where the error came from", exc_info=True)
        if args.traceback:
            raise
        line = describe_error(error)
        if line is None:
            raise
        stderr_line(line, label="error")
        return EXIT_FAILED if type(error).__name__ == "SolverError" else EXIT_MISTAKE
