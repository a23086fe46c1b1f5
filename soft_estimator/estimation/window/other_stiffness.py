"""Before a window vouches for a stiffness: does a clearly different one explain its frames better?

A body that is seen again a frame or two after its first touch looks alike at several stiffnesses, with the ground a
little higher or lower; a window that grows frame by frame may have followed the wrong one. Of a torus of 18.6 kPa with
a fifth of its frames missing it settled at 10 kPa, and stayed there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace

import numpy as np

from soft_estimator.estimation.fitting.uncertainty import NARROWED
from soft_estimator.estimation.variables import Variables
from soft_estimator.estimation.window.window_fit import Answer, WindowFit, always
from soft_estimator.physics.solver import SolverError

# By half octaves: of a capsule of 33 kPa that a window had followed to 23 the search from twice that ended at 44, 32 of
# the cost above it, and the one from 1.4 times at 35, 6 below (bench_live_drops, seed 1012: vouched for at 21.8 ± 1.9).
FACTORS = (0.5, 0.7, 1.4, 2.0)
_ITERATIONS = 4  # simulations of the window from each; a minimum that is as good is near enough by then
# A search that comes so near, as a logarithm, to the stiffness at hand has come back to it.
_BACK = 0.2
_TO_THE_END = 12  # simulations at most, of what is learnt from an episode that is over
# By so much a minimum must be lower: two deviations in one direction.
_LOWER = 2.0


class OtherStiffnesses:
    """Looks once for what is learnt for the first time, at a stretch or piece by piece.

    A search that is not over when its episode is goes on with that episode's frames.

    Attributes:
        looked: whether it has. found_late: the window of an episode that is over, where another stiffness explains it
            better than the one that was learnt from it.
    """

    def __init__(self) -> None:
        self.looked = False
        self.found_late: WindowFit | None = None
        self._search: _Search | None = None

    @property
    def searching(self) -> bool:
        """Whether there are stiffnesses that are still to be tried."""
        return self._search is not None

    def end_episode(self) -> None:
        """The window that is searched goes on no more."""
        if self._search is not None:
            self._search.over = True

    def before_learning(self, fit: WindowFit, answer: Answer, variables: Variables) -> None:
        """The window ends, and what it says is kept: where it has not settled, it was not searched either, and will
        be."""
        if self._search is None and not answer.settled:
            self._begin(fit, replace(answer, settled=True), variables)

    def abandon_episode(self) -> None:
        """Nothing is learnt from the window that is searched, or it cannot be simulated any more."""
        self._search = None

    def better(
        self,
        fit: WindowFit,
        answer: Answer,
        variables: Variables,
        in_time: Callable[[float], bool],
        most: int | None = None,
    ) -> WindowFit:
        """The window at another stiffness where that explains its frames better, else as it is.

        Args:
            variables: the lasting ones, the first of the fit's. in_time: whether there is time for so many seconds.
            most: simulations of the window that may be spent now; None: until all is tried.
        """
        if self._search is None and not self._begin(fit, answer, variables):
            return fit
        if in_time((len(FACTORS) * _ITERATIONS if most is None else most) * fit.seconds):
            self.spend(most)
        return self.taken(fit) or fit

    def _begin(self, fit: WindowFit, answer: Answer, variables: Variables) -> bool:
        """Begin a search where it is due: whether it was."""
        chosen = [j for j, v in enumerate(variables.variables) if v.name == "youngs_modulus_pa"]
        narrow = [np.sqrt(answer.covariance[j, j]) < NARROWED * variables.variables[j].prior_std for j in chosen]
        if self.looked or fit.slid or not answer.settled or not any(narrow):
            return False
        self._search = _Search(fit, chosen)
        return True

    def spend(self, most: int | None = None) -> None:
        """Go on with a search by so many simulations of its window; None: to its end."""
        while self._search is not None and not self._search.ended and most != 0:
            self._search.go_on()
            most = None if most is None else most - 1

    def taken(self, fit: WindowFit | None) -> WindowFit | None:
        """The window as a search leaves it that is at its end: at another stiffness, or as it is."""
        search = self._search
        if search is not None and not search.over and (fit is None or fit.slid):  # its first frames are gone
            self._search = None
        if search is None or self._search is None or not search.ended:
            return fit
        self.looked, self._search = True, None
        if search.over or fit is None:
            self.found_late = search.settled()
            return fit
        return search.on(fit)


class _Search:
    """From a window as it stands to the best of those that other stiffnesses lead to.

    Attributes:
        best: the best so far, None where nothing explains the frames better. over: whether the window's episode is.
    """

    def __init__(self, fit: WindowFit, chosen: list[int]) -> None:
        self.fit, self.chosen = copy(fit), chosen  # which goes on without it
        self.best: WindowFit | None = None
        self.over = False
        self._least = fit.cost_of(fit) - _LOWER
        self._factors, self._tried = list(FACTORS), 0
        self._other: WindowFit | None = None

    @property
    def ended(self) -> bool:
        return self._other is None and not self._factors

    def go_on(self) -> None:
        """One simulation of the window further."""
        try:
            self._other = self._further(self._other)
        except SolverError:  # it cannot be simulated so soft or stiff
            self._other = None

    def _further(self, other: WindowFit | None) -> WindowFit | None:
        """The search at hand one simulation further; None where it is over."""
        if other is None:
            z = self.fit.at.z.copy()
            z[self.chosen] += np.log(self._factors.pop(0))
            self._tried = 0
            return self.fit.from_another(z)
        other.refine(1, always)
        self._tried += 1
        if np.abs(other.at.z[self.chosen] - self.fit.at.z[self.chosen]).max() < _BACK:
            return None
        if self._tried < _ITERATIONS:
            return other
        cost = self.fit.cost_of(other)
        if cost < self._least:
            self.best, self._least = other, cost
        return None

    def settled(self) -> WindowFit | None:
        """The best at its minimum, as far as it gets there; None where there is none."""
        if self.best is not None:
            with suppress(SolverError):  # where it stands it explains the frames better all the same
                self.best.refine(_TO_THE_END, always)
        return self.best

    def on(self, fit: WindowFit) -> WindowFit:
        """The best with the frames that a window has taken in since, where it still explains them better than that."""
        if self.best is None or len(fit.frames) == len(self.fit.frames):
            return self.best or fit
        try:
            other = fit.from_another(self.best.at.z)
            other.refine(_ITERATIONS, always)
        except SolverError:
            return fit
        return other if fit.cost_of(other) < fit.cost_of(fit) - _LOWER else fit
