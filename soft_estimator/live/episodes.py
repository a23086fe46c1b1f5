"""Episodes: runs of frames that follow one another. When one ends, and which are taken in when work falls behind."""

from __future__ import annotations

from soft_estimator.estimation.window.incoming import OUT_OF_ORDER_S


class EpisodeWatch:
    """Notices where an episode ends. What was known of an object's motion before is of no use after.

    The one rule for forgetting an object, over recordings and in the nodes.
    """

    def __init__(self) -> None:
        self._newest_s: float | None = None

    def jump(self, stamp_s: float, gap_s: float) -> str:
        """Why a frame begins a new episode, empty where it follows the last one.

        Args:
            gap_s: time between two frames beyond which they do not belong together [s].
        """
        newest = self._newest_s
        ahead = 0.0 if newest is None else stamp_s - newest
        if -OUT_OF_ORDER_S <= ahead <= gap_s:
            self._newest_s = stamp_s if newest is None else max(newest, stamp_s)
            return ""
        self._newest_s = stamp_s
        return f"time went back by {-ahead:.3f} s" if ahead < 0 else f"no cloud for {ahead:.1f} s"


class EpisodeGate:
    """Closes when too many frames wait, and opens again when none does and a new episode begins.

    A motion that is seen from its beginning tells more than the same number of frames out of the middle of several: a
    body in the middle of a bounce is bent, and nobody knows how.

    Args:
        most_waiting: frames that may wait. gap_s: time between two frames that begins a new episode [s].
        patience_s: time without a gap after which any frame begins one [s].
    """

    def __init__(self, most_waiting: int, gap_s: float, patience_s: float) -> None:
        self.most_waiting, self.gap_s, self.patience_s = most_waiting, gap_s, patience_s
        self.left_out = 0
        self._open = True
        self._watch = EpisodeWatch()
        self._free_since_s: float | None = None

    def admit(self, stamp_s: float, waiting: int) -> tuple[bool, int]:
        """Whether a frame goes in while so many wait, and how many were left out just before it."""
        begins = bool(self._watch.jump(stamp_s, self.gap_s))
        if self._open:
            if waiting < self.most_waiting:
                return True, 0
            self._open, self._free_since_s, self.left_out = False, None, 1
            return False, 0
        if waiting == 0:
            since = self._free_since_s = stamp_s if self._free_since_s is None else self._free_since_s
            if begins or not 0 <= stamp_s - since <= self.patience_s:
                left_out, self.left_out, self._open = self.left_out, 0, True
                return True, left_out
        self.left_out += 1
        return False, 0
