"""What commands share: help layout, lines on stderr, colours where they are wanted, a progress bar."""

from __future__ import annotations

import argparse
import difflib
import logging
import os
import re
import sys
import threading
from collections.abc import Sequence
from time import monotonic
from types import TracebackType
from typing import Any, NoReturn, TextIO

from soft_estimator.schema.section import printable

EXIT_INTERRUPTED = 130
PROGRESS_AFTER_S = 2.0  # shorter work needs no bar
LINE_EVERY_S = 20.0  # where nobody watches, a line in the log so often

_log = logging.getLogger(__name__)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Examples keep their lines; options get room."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=min(110, int(os.environ.get("COLUMNS", "110"))))


class Parser(argparse.ArgumentParser):
    """A parser whose one line about a wrong word names the nearest right one."""

    def error(self, message: str) -> NoReturn:
        """End with the usage, the mistake and what was probably meant."""
        super().error(message + self._meant(message))

    def _meant(self, message: str) -> str:
        wrong = re.search(r"invalid choice: '([^']*)'", message)
        if wrong is not None:
            named = message.partition(":")[0].removeprefix("argument ")
            choices = [str(c) for action in self._actions if action.choices for c in action.choices]
            return _suggestion(wrong[1], choices) if named else ""
        if message.startswith("unrecognized arguments:"):
            # The parser of the command was left by then: its options are looked for, too.
            words = [word.partition("=")[0] for word in message.split(":", 1)[1].split() if word.startswith("--")]
            return "".join(_suggestion(word, self._options()) for word in words[:1])
        return ""

    def _options(self) -> list[str]:
        out: list[str] = []
        for action in self._actions:
            out += action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    out += [o for a in parser._actions for o in a.option_strings]
        return out


def _suggestion(wrong: str, known: Sequence[str]) -> str:
    if wrong in known:  # an option of another command
        return ""
    near = difflib.get_close_matches(wrong, list(dict.fromkeys(known)), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def wants_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user has not asked for plain text (NO_COLOR)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def bold(text: str, stream: TextIO) -> str:
    return f"\033[1m{text}\033[0m" if wants_colour(stream) else text


def stderr_line(text: str, label: str = "") -> None:
    """One line on stderr, with the program's name in front; what a terminal would obey is replaced."""
    text = "\n".join(printable(line, most=4000) for line in text.split("\n"))
    level = {"error": logging.ERROR, "warning": logging.WARNING}.get(label, logging.INFO)
    _log.log(level, "%s", text, extra={"on_stderr": True})  # a log file has it, too
    if label:
        code = "31" if label == "error" else "33"
        text = f"\033[1;{code}m{label}:\033[0m {text}" if wants_colour(sys.stderr) else f"{label}: {text}"
    print(f"soft-estimator: {text}", file=sys.stderr, flush=True)


def describe_error(error: Exception) -> str | None:
    """One line for a failure that the user can do something about; None for a bug."""
    if isinstance(error, OSError):
        name = f" {error.filename}" if error.filename else ""
        return f"cannot use{name} ({error.strerror or error}); check the path, the rights and the space on the disk"
    if isinstance(error, MemoryError):
        return "out of memory; use a larger spacing_m, or on a GPU float32 under solver.precision"
    if isinstance(error, ValueError) or type(error).__name__ == "SolverError":
        return " ".join(str(error).split())
    return None


class ProgressBar:
    """A bar on stderr for work of over two seconds; outside a terminal a line now and then, for a log.

    Calling it with (stage, done, total) moves it; a new stage starts a new bar. Its text may end in a note, such as the
    cost and the values of the moment.
    """

    def __init__(self, forced: bool = False) -> None:
        self.enabled = forced or sys.stderr.isatty()
        self._bar: Any = None
        self._stage = ""
        self._timer: threading.Timer | None = None
        self._told = monotonic()  # when the last line was written, or the work began [s]
        self._logged = ""  # the stage that was told last
        self._since = 0.0  # when the stage began [s]

    def __enter__(self) -> ProgressBar:
        return self

    def __call__(self, stage: str, done: int, total: int, note: str = "") -> None:
        if stage != self._logged:
            self._logged = stage
            _log.info("%s", stage)
        if not self.enabled:
            self._tell(stage, done, total, note)
            return
        if stage != self._stage:
            self._start(stage, total)
        self._bar.update(done - self._bar.n)
        if note:
            # The bar itself needs some forty columns.
            self._bar.set_description_str(f"{stage}: {note[:110]}", refresh=False)
            if monotonic() - self._since > PROGRESS_AFTER_S:  # where the count stands still, the note does not
                self._bar.refresh()

    def _tell(self, stage: str, done: int, total: int, note: str) -> None:
        """A line for a log, where it is time for one."""
        if monotonic() - self._told >= LINE_EVERY_S:
            self._told = monotonic()
            stderr_line(f"{stage}: {done} of {total}{f', {note}' if note else ''}")

    def _start(self, stage: str, total: int) -> None:
        from tqdm import tqdm

        self._close()
        self._stage, self._since = stage, monotonic()
        self._bar = tqdm(
            total=total,
            desc=stage,
            file=sys.stderr,
            delay=PROGRESS_AFTER_S,
            leave=False,
            colour="green" if wants_colour(sys.stderr) else None,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]",
        )
        # The bar draws itself when something is done; the first step may compile for half a minute before that.
        self._timer = threading.Timer(PROGRESS_AFTER_S, self._bar.refresh)
        self._timer.daemon = True
        self._timer.start()

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._bar is not None:
            self._bar.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
