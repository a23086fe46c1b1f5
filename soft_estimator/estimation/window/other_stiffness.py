"""Before a window vouches for a stiffness: does a clearly different one explain its frames better?

A body that is seen again a frame or two after its first touch looks alike at several stiffnesses, with the ground a
little higher or lower; a window that grows frame by frame may have followed the wrong one. Of a torus of 18.6 kPa with
a fifth of its frames missing it settled at 10 kPa, and stayed there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace

import numpy as np

from soft_estimator.estimation.fitting.uncertainty import NARROWED
from soft_estimator.estimation.variables import Variables
from soft_estimator.estimation.window.window_fit import TO_THE_END, Answer, WindowFit, always
from soft_estimator.physics.solver import SolverError

# By half octaves: of a capsule of 33 kPa that a window had followed to 23 the search from twice that ended at 44, 32 of
# the cost above it, and the one from 1.4 times at 35, 6 below (bench_live_drops, seed 1012: vouched for at 21.8 ± 1.9).
FACTORS = (0.5, 0.7, 1.4, 2.0)
_ITERATIONS = 4  # simulations of the window from each; a minimum that is as good is near enough by then
# A search that comes so near, as a logarithm, to the stiffness at hand has come back to it.
_BACK = 0.2
# By so much a minimum must be lower: two deviations in one direction.
_LOWER = 2.0
# On the coarser grid all are off alike, but for this much; one that is no worse there is looked at on the window's own.
_PERHAPS = 50.0


class OtherStiffnesses:
    """Looks once for what is learnt for the first time, at a stretch or piece by piece.

    A search that is not over when its episode is goes on with that episode's frames; a window that ends on the way to
    its minimum is followed there first.

    Attributes:
        looked: whether it has. found_late: the window of an episode that is over, where more is known of it now than
            when it ended. late_was_learnt: whether something was learnt from it then, which was wrong.
    """

    def __init__(self) -> None:
        self.looked = False
        self.found_late: WindowFit | None = None
        self.late_was_learnt = False
        self._search: _Search | None = None

    @property
    def searching(self) -> bool:
        """Whether there is a way to a minimum that is left, or stiffnesses that are still to be tried."""
        return self._search is not None

    @property
    def over(self) -> bool:
        """Whether there is one for an episode that is over."""
        return self._search is not None and self._search.over

    @property
    def doubtful(self) -> bool:
        """Whether what is said meanwhile may turn out to be at the wrong stiffness."""
        return self._search is not None and not (self._search.on_way and self.looked)

    def end_episode(self) -> None:
        """The window that is searched goes on no more."""
        if self._search is not None:
            self._search.over = True

    def before_learning(self, fit: WindowFit, answer: Answer, variables: Variables) -> None:
        """The window ends, and what it says is kept, settled or as near as it gets: where it was not searched yet, it
        will be."""
        if self._search is None:
            self._begin(fit, replace(answer, settled=True), variables)

    def instead_of_learning(self, fit: WindowFit, variables: Variables) -> None:
        """The window ends on its way, and nothing that it says is kept: it will be followed to its minimum."""
        if self._search is None:
            self._search = _Search(fit, variables, () if self.looked else FACTORS, on_way=True)

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

    def tries_in(self, seconds: float, fit: WindowFit) -> int:
        """How often the window that is searched is simulated in so many seconds, once at least; fit: the one at hand,
        which is searched where none is yet."""
        searched = fit if self._search is None else self._search.fit
        return max(1, int(seconds / max(searched.seconds, 1e-3)))

    def _begin(self, fit: WindowFit, answer: Answer, variables: Variables) -> bool:
        """Begin a search where it is due: whether it was."""
        if self.looked or fit.slid or not answer.settled or not _narrowed(answer, variables):
            return False
        self._search = _Search(fit, variables, FACTORS)
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
        self.looked, self._search = self.looked or search.looked, None
        if search.over or fit is None:
            self.found_late, self.late_was_learnt = search.late, not search.on_way
            return fit
        return search.on(fit)


def stiffnesses(variables: Variables) -> list[int]:
    """Which of them are Young's moduli."""
    return [j for j, v in enumerate(variables.variables) if v.name == "youngs_modulus_pa"]


def _narrowed(answer: Answer, variables: Variables) -> bool:
    """Whether an answer says more of a stiffness than was known before any frame."""
    chosen = stiffnesses(variables)
    return any(np.sqrt(answer.covariance[j, j]) < NARROWED * variables.variables[j].prior_std for j in chosen)


class _Search:
    """From a window as it stands to the best of those that other stiffnesses lead to.

    Args:
        variables: the lasting ones, the first of the window's. factors: to try.
        on_way: whether the window is still on the way to its own minimum, which comes first.

    Attributes:
        best: the best so far, None where nothing explains the frames better. over: whether the window's episode is.
        looked: whether other stiffnesses were tried.
    """

    def __init__(
        self,
        fit: WindowFit,
        variables: Variables,
        factors: Sequence[float],
        on_way: bool = False,
    ) -> None:
        self.fit, self.on_way = copy(fit), on_way  # which goes on without it
        self.chosen = stiffnesses(variables)
        self.best: WindowFit | None = None
        self.over = self.looked = False
        self._variables, self._untried = variables, factors
        self._factors: list[float] = []
        self._tried = self._spent = self._to_follow = 0
        self._other: WindowFit | None = None
        self._coarse: WindowFit | None = None  # the window on its coarser grid, where others are tried first
        self._arriving = on_way
        if not on_way:
            self._arrive()

    def _arrive(self) -> None:
        """At the window's own minimum: now the others, where it tells anything of the stiffness."""
        self._arriving, self._spent, self._least = False, 0, self.fit.cost_of(self.fit) - _LOWER
        answer = self.fit.answer() if self.on_way else None
        if answer is None or (answer.settled and not self.fit.slid and _narrowed(answer, self._variables)):
            self._factors, self.looked = list(self._untried), bool(self._untried)

    @property
    def ended(self) -> bool:
        return not self._arriving and self._other is None and not self._factors and not self._unsettled

    @property
    def _unsettled(self) -> bool:
        """Whether the best of an episode that is over may yet come nearer to its minimum."""
        return self.over and self.best is not None and self._spent < TO_THE_END and not self.best.holds

    def go_on(self) -> None:
        """One simulation of the window further."""
        all_tried = self._other is None and not self._factors
        try:
            if self._arriving:
                self._nearer(self.fit)
                if self._spent >= TO_THE_END or self.fit.holds:
                    self._arrive()
            elif all_tried and self.best is not None:
                self._nearer(self.best)
            else:
                self._other = self._further(self._other)
        except SolverError:  # it cannot be simulated so soft or stiff
            self._other = None
            if self._arriving:
                self._arrive()
            elif all_tried:
                self._spent = TO_THE_END

    def _nearer(self, fit: WindowFit) -> None:
        self._spent += 1
        fit.refine(1, always)

    def _further(self, other: WindowFit | None) -> WindowFit | None:
        """The search at hand one simulation further; None where it is over."""
        if other is None:
            return self._next()
        other.refine(1, always)
        self._tried += 1
        on_coarse = other.motion.alone
        own = self._coarse if on_coarse and self._coarse is not None else self.fit
        if not self._apart(other, own):
            return None
        if self._tried < _ITERATIONS:
            return other
        cost = own.cost_of(other)
        if on_coarse:
            self._tried = 0
            known = self.best is not None and not self._apart(other, self.best)
            worse = cost >= own.cost_of(own) + _PERHAPS
            return None if known or worse else self.fit.from_another(other.at.z)
        if cost < self._least:
            self.best, self._least = other, cost
        return None

    def _next(self) -> WindowFit | None:
        """Where the next search begins; None while the window itself is still to be followed on its coarser grid."""
        if self._coarse is None:
            self._coarse = self.fit  # where there is none, or it cannot be simulated there
            if (found := self.fit.on_coarser_grid()) is not None:
                self._coarse, self._to_follow = found, _ITERATIONS
                return None
        if self._to_follow:
            self._to_follow = 0 if self._coarse.holds else self._to_follow - 1
            if self._to_follow:
                self._coarse.refine(1, always)
            elif self._apart(self._coarse, self.fit):  # it does not stay where the window is
                self._tried = 0
                return self.fit.from_another(self._coarse.at.z)
            return None
        z = self._coarse.at.z.copy()
        z[self.chosen] += np.log(self._factors.pop(0))
        self._tried = 0
        return self._coarse.from_another(z)

    def _apart(self, one: WindowFit, other: WindowFit) -> bool:
        return bool(np.abs(one.at.z[self.chosen] - other.at.z[self.chosen]).max() >= _BACK)

    @property
    def late(self) -> WindowFit | None:
        """What an episode that is over says after all; None where that is nothing new."""
        return self.best or (self.fit if self.on_way and self.fit.holds else None)

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
