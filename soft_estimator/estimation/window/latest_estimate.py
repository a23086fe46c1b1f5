"""What a window publishes: what a fit knows, and what is held of it while frames come that are not used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from soft_estimator.estimation.trajectory import PredictedFrame
from soft_estimator.estimation.window.bent_start import BentStarts
from soft_estimator.estimation.window.current_episode import CurrentEpisode
from soft_estimator.estimation.window.incoming import FrameOrder
from soft_estimator.estimation.window.live_estimate import LiveEstimate
from soft_estimator.estimation.window.own_grid import OwnErrors
from soft_estimator.estimation.window.own_step import Refined
from soft_estimator.estimation.window.refusals import Refusals
from soft_estimator.estimation.window.window_fit import Answer, WindowFit


class LatestEstimate:
    """Makes the estimates that a window publishes, and holds the last one.

    Args:
        clock: wall-clock seconds. refusals: where frames that are not used are counted.

    Attributes:
        estimate: published last, None before the first. waiting_for: why the last frame did not count.
    """

    def __init__(
        self,
        episode: CurrentEpisode,
        own_errors: OwnErrors,
        bent: BentStarts,
        refusals: Refusals,
        clock: Callable[[], float],
    ) -> None:
        self.episode, self.clock, self.refusals = episode, clock, refusals
        self._own_errors, self._bent = own_errors, bent
        self.estimate: LiveEstimate | None = None
        self.waiting_for = ""

    def publish(
        self,
        fit: WindowFit,
        answer: Answer,
        newest: PredictedFrame,
        stamp_s: float,
        start: float,
        notes: tuple[str, ...],
        more: Refined | None = None,
        ended: bool = False,
    ) -> LiveEstimate:
        """What a fit knows, worked out since `start` by the clock."""
        episodes = self.episode.episodes
        shift, effects = self._own_errors.refined(fit, episodes.lasting)
        changes = []
        if more is not None:
            shift, effects = shift + more.shift, [*effects, *more.effects]
            changes = [*self._own_errors.changes, *([more.change] if more.change else [])]
        found = episodes.estimate(fit, answer, newest, self._bent.model_std, shift, effects, changes, ended)
        if not found.settled:
            notes = (*notes, "the fit has not settled yet: the intervals hold the way that is left")
        if not found.verdict.fits:
            notes = (*notes, f"the model does not fit: {found.verdict.reason}")
        self.estimate = replace(found, stamp_s=stamp_s, seconds=self.clock() - start, notes=notes)
        return self.estimate

    def staying(self, stamp_s: float, start: float, reason: str) -> LiveEstimate | None:
        """Of a body that stays where it is: what was known of its motion, once that is over."""
        self.refusals.add(stamp_s, reason)
        self.waiting_for = reason
        if not self.episode.rests:
            return None
        if self.estimate is not None:
            self.estimate = replace(self.estimate, stamp_s=stamp_s, seconds=self.clock() - start, notes=())
        return self.estimate

    def refused(self, stamp_s: float, reason: str) -> LiveEstimate | None:
        """Count why a frame is not used; then as without an object."""
        self.refusals.add(stamp_s, reason)
        return self.without_object(stamp_s, reason)

    def without_object(self, stamp_s: float, reason: str) -> LiveEstimate | None:
        """Hold the last estimate; call the object lost when it has been away for too long."""
        self.waiting_for, episode = reason, self.episode
        if self.estimate is None:
            return None
        order = episode.order
        away = stamp_s - (order.used_s if order.used_s is not None else self.estimate.stamp_s)
        if away <= episode.episodes.config.lost_after_s and episode.status != "lost":
            return None
        if episode.status != "lost":
            episode.conclude(FrameOrder(order.newest_s))
            episode.lost = True
        self.estimate = replace(self.estimate, status="lost", notes=(reason,), seconds=0.0)
        return self.estimate
