"""What a command tells beside its answer: on stderr with -v, and all of it in a log file with --log.

Library code tells through `logging.getLogger(__name__)`; nothing is written anywhere unless a command, or the program
that imports the package, asks for it.
"""

from __future__ import annotations

import argparse
import logging
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

ROOT = logging.getLogger("soft_estimator")
_FORMAT, _CLOCK = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S"


def add_log_options(parser: argparse.ArgumentParser, default: object = argparse.SUPPRESS) -> None:
    """Add -v and --log; a command's own stand in for those in front of it."""
    group = parser.add_argument_group("what it tells")
    group.add_argument(
        "-v", "--verbose", action="count", default=default, help="tell on stderr what is being done; -vv: more of it"
    )
    group.add_argument(
        "--log", metavar="FILE", type=Path, default=default, help="add all of it to a file, with times and tracebacks"
    )


class CommandLog:
    """Handlers of the package's log for as long as a command runs; use it in a `with` block."""

    def __init__(self, verbose: int | None, file: Path | None) -> None:
        self._handlers: list[logging.Handler] = []
        self._level, self._clock = ROOT.level, perf_counter()
        if verbose:
            shown = logging.StreamHandler(sys.stderr)
            shown.setFormatter(logging.Formatter("soft-estimator: %(message)s"))
            shown.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
            # What the command itself writes on stderr is there already.
            shown.addFilter(lambda record: not getattr(record, "on_stderr", False))
            self._handlers.append(shown)
        if file is not None:
            kept = logging.FileHandler(file, encoding="utf-8")
            kept.setFormatter(logging.Formatter(_FORMAT, _CLOCK))
            kept.setLevel(logging.DEBUG)
            self._handlers.append(kept)

    def __enter__(self) -> CommandLog:
        for handler in self._handlers:
            ROOT.addHandler(handler)
        if self._handlers:
            ROOT.setLevel(logging.DEBUG)
        return self

    def begin(self, arguments: Sequence[str], version: str) -> None:
        """What was called, and what with."""
        ROOT.debug("soft-estimator %s, Python %s, %s", version, platform.python_version(), platform.platform())
        ROOT.debug("called with %s in %s", list(arguments), Path.cwd())

    def end(self, exit_code: int) -> None:
        """How it ended, and how long it took."""
        ROOT.debug("exit code %d after %.1f s", exit_code, perf_counter() - self._clock)

    def __exit__(self, *_: object) -> None:
        for handler in self._handlers:
            ROOT.removeHandler(handler)
            handler.close()
        ROOT.setLevel(self._level)
