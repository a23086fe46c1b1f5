"""The episode at hand: the fit of its frames and their order, and what is kept of it when it ends."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from soft_estimator.estimation.fitting.told_plane import FAR, NEAR, plane_off, stands_by_plane
from soft_estimator.estimation.window.bent_start import BentStarts
from soft_estimator.estimation.window.episode import Episodes, looks
from soft_estimator.estimation.window.incoming import FrameOrder
from soft_estimator.estimation.window.lasting import Learnt
from soft_estimator.estimation.window.misfit import MisfitWatch
from soft_estimator.estimation.window.other_stiffness import OtherStiffnesses
from soft_estimator.estimation.window.own_grid import OwnErrors
from soft_estimator.estimation.window.window_fit import TO_THE_END, Answer, WindowFit, always
from soft_estimator.physics.solver import SolverError

_FEW_LOOKS, _HARDLY = 6, 0.5  # see `told_plane.NEAR`; deviations of the plane


class CurrentEpisode:
    """Begins with a frame's fit, ends for many reasons; the next one then waits for its first frame.

    Args:
        led: whether tools lead the body, whose times count from one episode's start: when that is over, its motion
            cannot be simulated any more.

    Attributes:
        fit: of its frames; None before the first. since_s: stamp from which its times count [s]. order: of its frames.
        lost: whether the object has been away for too long. rests: whether the body's motion is over.
        worked_out: whether somebody has fitted it for as long as it takes.
        live: whether frames come while it computes: then the end of an episode is not the time for a long fit.
        misfit: of its newest frames. others: stiffnesses that are looked at before what is learnt first counts.
    """

    def __init__(self, episodes: Episodes, own_errors: OwnErrors, bent: BentStarts, led: bool = False) -> None:
        self.episodes, self.lasting = episodes, episodes.lasting
        self._own_errors, self._bent, self._led = own_errors, bent, led
        self.fit: WindowFit | None = None
        self.live = False
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

    def learnt_from(self, fit: WindowFit, answer: Answer) -> Learnt:
        """What a window of it knows of the lasting variables, where that can be kept, else what was known before it;
        what a bent start did to one episode must not count as known in the next."""
        if not self._can_keep(fit, answer):
            return self.lasting.learnt
        return self.lasting.of_answer(answer, self._bent.variance(self.lasting.variables))

    def stands_by_plane(self, fit: WindowFit, z: np.ndarray) -> bool:
        """Whether a window at z leaves the plane where it was seen; one of few looks may hardly take it further off
        than was known before."""
        variables, within = self.lasting.variables, FAR
        if looks(fit) < _FEW_LOOKS:
            known = plane_off(variables, self.lasting.learnt.knowledge.mean[: len(variables)])
            within = max(NEAR, float(np.abs(known).max(initial=0.0)) + _HARDLY)
        return stands_by_plane(variables, z[: len(variables)], within)

    def _can_keep(self, fit: WindowFit, answer: Answer) -> bool:
        """Whether the next episode may begin with it: at its minimum, or as near as it gets, and by the plane that was
        seen.

        One that is still on its way is anywhere. Kept, it led the next episodes astray: under a ball of 8 kPa, on half
        a core, the ground was taken to be up to 29 mm off. When the plane is seen anew that is forgotten; a stiffness
        that belongs to it would not be.
        """
        return (answer.settled or self.worked_out) and self.stands_by_plane(fit, answer.z)

    def learn(self) -> None:
        """Keep what it knows of the lasting variables, once it has reached its minimum: at once, or, where frames wait,
        beside the next episode."""
        if self.fit is None or not self.fit.frames or self.status != "tracking":
            return
        answer = self.fit.answer()
        if not answer.settled and not self.live and not self.worked_out:
            with suppress(SolverError):  # then it stays where it is
                self.fit.refine(TO_THE_END, always)
            answer = self.fit.answer()
        if self._can_keep(self.fit, answer):
            self.others.before_learning(self.fit, answer, self.lasting.variables)
            self.lasting.learnt = self.learnt_from(self.fit, answer)
            self.lasting.touched = self.lasting.touched or answer.touched
        elif not answer.settled and self.live:
            self.others.instead_of_learning(self.fit, self.lasting.variables)

    def end(self, order: FrameOrder | None = None) -> None:
        """Forget it; order: of frames that the next one is to follow, by default none."""
        self.fit, self.since_s = None, 0.0
        self.order = FrameOrder() if order is None else order
        self.lost = self.rests = self.worked_out = False
        self.misfit = MisfitWatch()
        (self.others.abandon_episode if self._led else self.others.end_episode)()
        if not self.lasting.begun and not self.others.searching:  # what was looked at is not kept: look again
            self.others = OtherStiffnesses()
        self._own_errors.end_episode()

    def correct(self) -> str:
        """Where a search found out late what an episode before tells: end this one, which began without it, and keep
        that; or nothing, where it has not settled and what was learnt then was wrong. What to say then, else ""."""
        late, self.others.found_late = self.others.found_late, None
        if late is None:
            return ""
        answer, same = late.answer(), self.lasting.same_plane(late.motion.variables.reference)
        if self._can_keep(late, answer) and same:
            self.lasting.learnt = self.learnt_from(late, answer)
            self.lasting.touched = self.lasting.touched or answer.touched
        elif not self.others.late_was_learnt:
            return ""
        else:
            self.lasting.forget()
            self._own_errors.forget()
        self.end(self.order)
        wrong = self.others.late_was_learnt
        return "another stiffness explains an earlier motion better" if wrong else "an earlier motion was worked out"

    def conclude(self, order: FrameOrder | None = None) -> None:
        """End it, and keep what it knows."""
        self.learn()
        self.end(order)
