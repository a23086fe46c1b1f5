"""What a window puts off while newer frames wait, and does piece by piece in the pauses between them."""

from __future__ import annotations

from soft_estimator.estimation.window.current_episode import CurrentEpisode
from soft_estimator.estimation.window.live_estimate import FEW_LOOKS, LiveEstimate, unvouched
from soft_estimator.estimation.window.own_grid import OwnErrors
from soft_estimator.estimation.window.window_fit import TO_THE_END, WindowFit, always
from soft_estimator.physics.solver import SolverError


class WorkPutOff:
    """The way to the minimum that is left, other stiffnesses that are to be tried, and then looks at the window with
    half the step, or half the spacing."""

    def __init__(self, episode: CurrentEpisode, own_errors: OwnErrors) -> None:
        self._episode, self._own_errors = episode, own_errors
        self._spent: tuple[WindowFit | None, int, int] = (None, 0, 0)  # simulations of a window of so many frames

    @property
    def waits(self) -> bool:
        """Whether there is some."""
        if self._episode.status != "tracking":
            return self._episode.others.searching
        return self._episode.others.searching or self._own_errors.put_off or self._on_its_way

    @property
    def _on_its_way(self) -> bool:
        """Whether the window has not reached its minimum, and may yet."""
        fit = self._episode.fit
        if fit is None or not fit.frames:
            return False
        seen, frames, spent = self._spent
        return not (seen is fit and frames == len(fit.frames) and spent >= TO_THE_END) and not fit.holds

    def _further(self, fit: WindowFit) -> None:
        """One simulation nearer to the minimum; once it is there, other stiffnesses may be due."""
        seen, frames, spent = self._spent
        spent = spent + 1 if seen is fit and frames == len(fit.frames) else 1
        try:
            fit.refine(1, always)
        except SolverError:
            spent = TO_THE_END
        self._spent = fit, len(fit.frames), spent
        if fit.holds:
            self._episode.others.better(fit, fit.answer(), self._episode.lasting.variables, always, most=0)

    def do_a_piece(self) -> WindowFit | None:
        """A piece of it: the window once all of it is done; None while there is more, or where nothing is tracked."""
        episode, others = self._episode, self._episode.others
        if not others.searching and episode.fit is not None and episode.status == "tracking" and self._on_its_way:
            self._further(episode.fit)
            if self.waits:
                return None
        elif others.searching:
            others.spend(1)
            episode.fit = others.taken(episode.fit)
            if episode.correct() or self.waits:
                return None
        elif episode.fit is not None and self._own_errors.put_off:
            if not self._own_errors.catch_up(episode.fit, episode.fit.answer(), episode.lasting):
                return None
        else:
            return None
        return episode.fit if episode.status == "tracking" else None

    def vouched(self, said: LiveEstimate) -> LiveEstimate:
        """An estimate as it may be published: of one that is still on its way no value counts as observed, nor where a
        few looks at a first touch need another ground than was seen."""
        if not said.settled or self._episode.others.doubtful:
            return unvouched(said)
        fit = self._episode.fit
        return said if fit is None or self._episode.stands_by_plane(fit, fit.at.z) else unvouched(said, FEW_LOOKS)
