"""What a live estimator should warn of: a camera that is silent, frames that wait, an estimate that is old.

A recording that is silent has ended, or has not begun: nothing to warn of.
"""

from __future__ import annotations

from dataclasses import dataclass

LARGEST_AGE_S = 3600.0  # beyond, stamps are not of this clock: a recording that is played again


def age_of(stamp_s: float, now_s: float, since_arrival_s: float) -> float:
    """How old a frame is [s]: by its stamp where that is of the same clock as now_s, else since it arrived."""
    age_s = now_s - stamp_s
    return age_s if 0.0 <= age_s < LARGEST_AGE_S else since_arrival_s


class RecordingWatch:
    """Tells of each silence of a recording once, when it has lasted `after_s` [s]. what: that stays out."""

    def __init__(self, what: str, after_s: float) -> None:
        self._what, self._after_s = what, after_s
        self._told = False

    def news(self, quiet_s: float) -> str:
        """What to tell now, "" for nothing. quiet_s: since the newest frame came [s]."""
        told, self._told = self._told, quiet_s > self._after_s
        new = self._told and not told
        return f"no {self._what} for {quiet_s:.0f} s: the recording has ended, or is paused" if new else ""


@dataclass(frozen=True)
class Flow:
    """Frames and estimates at one time, in seconds.

    Attributes:
        quiet_s: since the newest frame came, or since frames could come where none has. any_frame: whether one has.
        newest_s: stamp of the newest frame. estimated_s: stamp of the newest estimate, None before the first.
        waiting: frames that wait. waiting_for: why the last frame did not count, "" where it did.
    """

    quiet_s: float
    any_frame: bool
    newest_s: float
    estimated_s: float | None
    waiting: int
    waiting_for: str = ""

    def complaint(self, quiet_after_s: float, late_after_s: float) -> str:
        """What to warn of, "" for nothing."""
        if self.quiet_s > quiet_after_s:
            so_far = "no object_points" if self.any_frame else "no object_points yet,"
            return f"{so_far} for {self.quiet_s:.0f} s; does the camera run?"
        if self.estimated_s is None or not self.any_frame:
            return ""
        behind_s = self.newest_s - self.estimated_s
        if behind_s <= late_after_s:
            return ""
        why = f"{self.waiting} frames wait" if self.waiting else self.waiting_for or "no frame since then counted"
        return f"the estimate is {behind_s:.1f} s behind the newest frame: {why}"
