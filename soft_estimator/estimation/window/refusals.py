"""Why frames were not used, counted: the same reason with other numbers in it is one reason."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
MOST_REASONS = 50  # kinds that are kept apart; a recording with more is summed up under the last


@dataclass
class Refusal:
    """One reason: an example of it in full, how many frames, and the stamps of the first and the last of them [s]."""

    example: str
    count: int
    first_s: float
    last_s: float


@dataclass
class Refusals:
    """Frames that were not used, by reason, in the order in which the reasons came up."""

    by_reason: dict[str, Refusal] = field(default_factory=dict)

    def add(self, stamp_s: float, reason: str, count: int = 1) -> None:
        """Count a frame, or several, that were not used."""
        key = _NUMBER.sub("#", reason)
        if key not in self.by_reason and len(self.by_reason) >= MOST_REASONS:
            key, reason = "another reason", "another reason"
        known = self.by_reason.setdefault(key, Refusal(reason, 0, stamp_s, stamp_s))
        known.count, known.last_s = known.count + count, stamp_s

    def joined(self, other: Refusals) -> Refusals:
        """These and another's."""
        out = Refusals()
        for item in (*self.by_reason.values(), *other.by_reason.values()):
            out.add(item.first_s, item.example, item.count)
            out.add(item.last_s, item.example, 0)
        return out

    @property
    def total(self) -> int:
        return sum(item.count for item in self.by_reason.values())

    def most_first(self) -> list[Refusal]:
        """The reasons, that of the most frames first."""
        return sorted(self.by_reason.values(), key=lambda item: -item.count)

    def as_plain(self) -> list[dict[str, Any]]:
        """For metrics.json: reason, frames, first_s and last_s, that of the most frames first."""
        return [
            {
                "reason": item.example,
                "frames": item.count,
                "first_s": item.first_s if isfinite(item.first_s) else None,
                "last_s": item.last_s if isfinite(item.last_s) else None,
            }
            for item in self.most_first()
        ]
