"""Long work that may be ended at any time: a limit to its time, and files that are only ever replaced as a whole."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

UNFINISHED = "unfinished.json"
CTRL_C = "Ctrl-C"
EVERY_S = 2.0  # between two writings; work of less has lost nothing worth keeping


class TimeUp(Exception):
    """The time that work was given is over."""


@dataclass
class TimeLimit:
    """limit_s: wall-clock time that work may take from now on, None for any."""

    limit_s: float | None = None
    _began: float = field(default_factory=monotonic)

    def check(self) -> None:
        """Raises TimeUp where there is no time left."""
        if self.limit_s is not None and monotonic() - self._began > self.limit_s:
            raise TimeUp(f"the {self.limit_s:g} s that it was given are over")


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in place of the one that is there: a process that is killed leaves the last complete one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(path)
