"""What a long replay has so far, kept beside its results: it may be ended after any frame, and gone on with.

`unfinished.json` and `estimates.csv` are for people; `unfinished.state` is what a replay goes on from. Bytes of the
whole do not change by it: a replay that was ended and gone on with writes the same estimates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from soft_estimator.estimation.long_work import EVERY_S, UNFINISHED, TimeLimit, TimeUp, replace_file
from soft_estimator.live.replay_config import ReplayConfig, config_text
from soft_estimator.live.replay_state import read_state, state_bytes

Shared = Callable[[], Mapping[str, object]]
Files = Callable[[], Mapping[str, bytes]]

STATE = "unfinished.state"
_MOST_SHARE = 0.05  # of the time, at most, goes into writing


@dataclass
class ReplayKeeper:
    """Keeps a replay.

    Attributes:
        folder: of the results; None keeps nothing on disk. resume: whether to go on from what is there.
        time: after which the replay ends with what it has. end: set to why it is to end after the frame at hand.
    """

    folder: Path | None = None
    resume: bool = False
    time: TimeLimit = field(default_factory=TimeLimit)
    end: str = ""
    identity: str = ""
    _written: float = -inf
    _pause_s: float = EVERY_S

    def take_up(self, identity: str, shared: Shared) -> dict[str, Any] | None:
        """The state to go on from, of the same bag and configuration; None where there is none.

        shared: gives parts of it that are not written but named.
        """
        self.identity = identity
        path = None if self.folder is None else self.folder / STATE
        if not self.resume or path is None or not path.exists():
            return None
        known, _, content = path.read_bytes().partition(b"\n")
        if known != identity.encode():
            raise ValueError(f"{path} is of another bag or configuration; give another --out, or no --resume")
        try:
            return read_state(content, shared())
        except ValueError as error:
            raise ValueError(f"{path} cannot be read ({error}); remove it, or leave --resume out") from error

    def note(
        self,
        state: Mapping[str, Any],
        shared: Shared,
        files: Files,
    ) -> None:
        """A frame is done; raises TimeUp where there is to be no other.

        Args:
            state: changing parts of the replay, by name. shared: gives parts of them that are not written but
                named. files: makes what people want to see, by file name.
        """
        ending = self.end
        try:
            self.time.check()
        except TimeUp as over:
            ending = ending or str(over)
        if ending or monotonic() - self._written > self._pause_s:
            self._write(state, shared, files)
        if ending:
            raise TimeUp(ending)

    def _write(
        self,
        state: Mapping[str, Any],
        shared: Shared,
        files: Files,
    ) -> None:
        if self.folder is not None:
            from_s = monotonic()
            replace_file(self.folder / STATE, self.identity.encode() + b"\n" + state_bytes(state, shared()))
            for name, content in files().items():
                replace_file(self.folder / name, content)
            self._pause_s = max(EVERY_S, (monotonic() - from_s) / _MOST_SHARE)
        self._written = monotonic()


def forget(folder: Path) -> None:
    """A replay is over: its result stands elsewhere."""
    for name in (STATE, UNFINISHED):
        (folder / name).unlink(missing_ok=True)


def identity_of(bag: Path | str, config: ReplayConfig, backend: str) -> str:
    """A number that other bags, configurations, backends and versions of the package do not share."""
    try:
        own = version("soft_estimator")
    except PackageNotFoundError:
        own = ""
    digest = hashlib.sha256(f"{own}\n{backend}\n{config_text(config)}".encode())
    path = Path(bag)
    for file in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
    return digest.hexdigest()
