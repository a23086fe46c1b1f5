"""Which frames an estimator takes in when it cannot keep up: whole stretches of them, from one gap to the next."""

from __future__ import annotations


class Stretches:
    """Closes when too many frames wait, and opens again when none does and a new stretch begins.

    A motion that is seen from its beginning tells more than the same number of frames out of the middle of several: a
    body in the middle of a bounce is bent, and nobody knows how.

    Args:
        most_waiting: frames that may wait. gap_s: time between two frames that begins a new stretch [s].
        patience_s: time without a gap after which any frame begins one [s].
    """

    def __init__(self, most_waiting: int, gap_s: float, patience_s: float) -> None:
        self.most_waiting, self.gap_s, self.patience_s = most_waiting, gap_s, patience_s
        self.left_out = 0
        self._open = True
        self._newest_s: float | None = None
        self._free_since_s: float | None = None

    def admit(self, stamp_s: float, waiting: int) -> tuple[bool, int]:
        """Whether a frame goes in while so many wait, and how many were left out just before it."""
        before, self._newest_s = self._newest_s, stamp_s
        begins = before is None or not 0 <= stamp_s - before <= self.gap_s
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
