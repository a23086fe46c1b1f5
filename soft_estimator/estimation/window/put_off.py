"""What a window puts off while newer frames wait, and does piece by piece in the pauses between them."""

from __future__ import annotations

from soft_estimator.estimation.window.current_episode import CurrentEpisode
from soft_estimator.estimation.window.live_estimate import LiveEstimate, unvouched
from soft_estimator.estimation.window.own_grid import OwnErrors
from soft_estimator.estimation.window.window_fit import WindowFit


class WorkPutOff:
    """Other stiffnesses that are to be tried, and then looks at the window with half the step, or half the spacing."""

    def __init__(self, episode: CurrentEpisode, own_errors: OwnErrors) -> None:
        self._episode, self._own_errors = episode, own_errors

    @property
    def waits(self) -> bool:
        """Whether there is some."""
        return self._episode.others.searching or (self._episode.status == "tracking" and self._own_errors.put_off)

    def do_a_piece(self) -> WindowFit | None:
        """A piece of it: the window once all of it is done; None while there is more, or where nothing is tracked."""
        episode, others = self._episode, self._episode.others
        if others.searching:
            others.spend(1)
            episode.fit = others.taken(episode.fit)
            if episode.correct() or self.waits:
                return None
        elif episode.fit is not None and self._own_errors.put_off:
            self._own_errors.catch_up(episode.fit, episode.fit.answer(), episode.lasting)
        else:
            return None
        return episode.fit if episode.status == "tracking" else None

    def vouched(self, said: LiveEstimate) -> LiveEstimate:
        """An estimate as it may be published: of one that is still on its way no value counts as observed."""
        return said if said.settled and not self._episode.others.searching else unvouched(said)
