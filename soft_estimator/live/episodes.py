"""Episodes: runs of frames that follow one another, and when one ends."""

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
