"""What a long search has so far, kept in a file beside its results: it may be ended at any time, and gone on with."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from soft_estimator.config import SceneConfig
from soft_estimator.estimation.long_work import EVERY_S, TimeLimit, replace_file
from soft_estimator.estimation.residuals.tool_wrench import WrenchFrame
from soft_estimator.schema import to_plain


@dataclass
class KeptStart:
    """One start of a search: θ where it stands, over how many frames, at what cost; why it ended, "" while it runs, and
    whether at its limit of iterations."""

    theta: list[float]
    frames: int
    cost: float
    steps: int = 0
    reason: str = ""
    reached_limit: bool = False


@dataclass
class Keeper:
    """Keeps the starts of a search.

    Attributes:
        path: of the file; None keeps nothing on disk. identity: of scene and frames, see `identity_of`.
        resume: whether to go on from the file. time: after which the search ends with what it has.
        starts: what is known of each so far.
    """

    path: Path | None = None
    identity: str = ""
    resume: bool = False
    time: TimeLimit = field(default_factory=TimeLimit)
    starts: list[KeptStart] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)
    _written: float = -np.inf

    def note(self, start: int, theta: np.ndarray, frames: int, cost: float, values: dict[str, float]) -> None:
        """A step of a start; raises TimeUp where there is no time for another."""
        before = self.starts[start].steps if start < len(self.starts) else 0
        self.starts[start:] = [KeptStart(theta.tolist(), frames, float(cost), before + 1)]
        self.values = values
        if monotonic() - self._written > EVERY_S:
            self.write()
        self.time.check()

    def ended(self, start: int, reason: str, reached_limit: bool = False) -> None:
        """A start has come to its end."""
        if start < len(self.starts):
            self.starts[start].reason, self.starts[start].reached_limit = reason, reached_limit
            self.write()

    def write(self) -> None:
        """Bring what is known to the disk."""
        self._written = monotonic()
        if self.path is None:
            return
        plain = {"identity": self.identity, "values": self.values, "starts": [asdict(s) for s in self.starts]}
        replace_file(self.path, (json.dumps(plain, indent=1) + "\n").encode())

    def remove(self) -> None:
        """The search is over: its result stands elsewhere."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def take_up(self, identity: str) -> None:
        """Go on from the file, where there is one, of the same scene and frames."""
        self.identity = identity
        if not self.resume or self.path is None or not self.path.exists():
            return
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            starts = [KeptStart(**s) for s in data["starts"]]
            same = data["identity"] == identity
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path} cannot be read ({error}); remove it, or leave --resume out") from error
        if not same:
            raise ValueError(f"{self.path} is of another scene or of other frames; give another --out, or no --resume")
        self.starts = starts


def identity_of(config: SceneConfig, frames: list[Any]) -> str:
    """A number that other scenes and frames do not share."""
    digest = hashlib.sha256(json.dumps(to_plain(config), sort_keys=True).encode())
    for frame in frames:
        digest.update(np.float64(frame.time_s).tobytes())
        measured = frame.wrench if isinstance(frame, WrenchFrame) else frame.points_m
        digest.update(np.ascontiguousarray(measured).tobytes())
    return digest.hexdigest()
