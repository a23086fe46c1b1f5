"""The episode at hand: the fit of its frames and their order, and what is kept of it when it ends."""

from __future__ import annotations

from soft_estimator.estimation.window.bent_start import BentStarts
from soft_estimator.estimation.window.episode import Episodes, looks
from soft_estimator.estimation.window.incoming import FrameOrder
from soft_estimator.estimation.window.lasting import Learnt
from soft_estimator.estimation.window.misfit import MisfitWatch
from soft_estimator.estimation.window.other_stiffness import OtherStiffnesses
from soft_estimator.estimation.window.own_grid import OwnErrors
from soft_estimator.estimation.window.window_fit import Answer, WindowFit


class CurrentEpisode:
    """Begins with a frame's fit, ends for many reasons; the next one then waits for its first frame.

    Args:
        led: whether tools lead the body, whose times count from one episode's start: when that is over, its motion
            cannot be simulated any more.

    Attributes:
        fit: of its frames; None before the first. since_s: stamp from which its times count [s]. order: of its frames.
        lost: whether the object has been away for too long. rests: whether the body's motion is over.
        misfit: of its newest frames. others: stiffnesses that are looked at before what is learnt first counts.
    """

    def __init__(self, episodes: Episodes, own_errors: OwnErrors, bent: BentStarts, led: bool = False) -> None:
        self.episodes, self.lasting = episodes, episodes.lasting
        self._own_errors, self._bent, self._led = own_errors, bent, led
        self.fit: WindowFit | None = None
        self.others = OtherStiffnesses()
        self.end()

    @property
    def status(self) -> str:
        """starting, tracking or lost."""
        if self.lost:
            return "lost"
        if self.fit is None or (looks(self.fit) < self.episodes.config.least_frames and not self.fit.slid):
            return "starting"
        return "tracking"

    def begin(self, fit: WindowFit | None, stamp_s: float) -> None:
        """Go on with the fit of a first frame, whose stamp is given [s]; None where the body was not found in it."""
        self.fit, self.since_s = fit, stamp_s

    def learnt_from(self, answer: Answer) -> Learnt:
        """What it knows of the lasting variables; what a bent start did to one episode must not count as known in the
        next."""
        return self.lasting.of_answer(answer, self._bent.variance(self.lasting.variables))

    def learn(self) -> None:
        """Keep what it knows of the lasting variables."""
        if self.fit is not None and self.fit.frames and self.status == "tracking":
            answer = self.fit.answer()
            self.others.before_learning(self.fit, answer, self.lasting.variables)
            self.lasting.learnt = self.learnt_from(answer)
            self.lasting.touched = self.lasting.touched or answer.touched

    def end(self, order: FrameOrder | None = None) -> None:
        """Forget it; order: of frames that the next one is to follow, by default none."""
        self.fit, self.since_s = None, 0.0
        self.order = FrameOrder() if order is None else order
        self.lost = self.rests = False
        self.misfit = MisfitWatch()
        (self.others.abandon_episode if self._led else self.others.end_episode)()
        if not self.lasting.begun:  # what was looked at is not kept, so it is to be looked at again
            self.others = OtherStiffnesses()
        self._own_errors.end_episode()

    def correct(self) -> bool:
        """Where a search found out late that an episode before had led to a wrong stiffness: end this one, which began
        with it, and keep the right one, or nothing where that has not settled. Whether that was so."""
        late, self.others.found_late = self.others.found_late, None
        if late is None:
            return False
        answer = late.answer()
        if answer.settled:
            self.lasting.learnt = self.learnt_from(answer)
        else:
            self.lasting.forget()
            self._own_errors.forget()
        self.end(self.order)
        return True

    def conclude(self, order: FrameOrder | None = None) -> None:
        """End it, and keep what it knows."""
        self.learn()
        self.end(order)
