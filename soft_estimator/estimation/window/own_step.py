"""What the time step does to a window's answer: how finely it is cut, and what is left of its error.

The trapezoid rule lets a mode of frequency ω swing at (2/Δt) atan(ωΔt/2) only. A body that bounces within a few steps
is slower in the simulation than it is, so that a fit makes it stiffer, by (ωΔt)²/6 for short steps: a ball of 10 cm and
30 kPa by 40 % with steps of 8 ms. Two things are done about it:

- An episode cuts the scene's step so that a swing of the body takes at least six parts of it, as far as its
  stiffness is known; a window that finds its body stiffer goes on with more parts.
- The frames at hand are looked at with half the step every now and then, and what that moves the answer by is taken off
  (`fitting.discretisation`). What is learnt from frames that have left the window was moved, too: the move goes from
  episode to episode as knowledge does.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.fitting.consider import Effect
from soft_estimator.estimation.fitting.discretisation import STEP, taken_and_left
from soft_estimator.estimation.residuals.interface import Kinds
from soft_estimator.estimation.trajectory import PredictedFrame
from soft_estimator.estimation.window.coarser_look import CoarserLook
from soft_estimator.estimation.window.lasting import PLANE, Lasting
from soft_estimator.estimation.window.window_fit import Answer, WindowFit
from soft_estimator.estimation.window.window_motion import WindowMotion
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverError

# ω R / c_s of the slowest swing of a ball that a bounce excites: 2.64 at ν = 0.3, 2.62 to 2.66 from 0.2 to 0.5. Other
# bodies are taken for balls of the same volume over area: a ring bounces by its tube, not by its slower ovals.
_BALL = 2.64
# A step, at most: a free swing then fits a sixth too stiff, and 0.03 of (tan x / x)² are beyond its second order. The
# demo's first drop, whose guess makes it 1.05, ended 0.7 % too stiff in halves of its steps and 6 % in whole ones.
_FASTEST_RAD = 1.0
# Fewer parts than an episode before had are taken only where a step is no longer than this: what is learnt of both is
# one number. The demo's later drops, in whole steps of 0.74 after a first in halves of 0.37 to 0.5, ended 8 % too stiff
# of a first that was 2 % off; in halves 2 %.
_FEWER_RAD = 0.6
PARTS = (1, 2, 4)
_LOOK_AFTER = 8  # frames
_LOOK_LATE = 2 * _LOOK_AFTER  # frames, while newer ones wait
_NEWS = 0.7  # of a standard deviation before: the data say so much more that an old look is no longer theirs
_log = logging.getLogger(__name__)


def swing_rad_s(model: Model, p: Parameters) -> float:
    """The frequency at which a free body bounces, about."""
    shear_pa = float(np.max(p.youngs_modulus_pa)) / (2.0 * (1.0 + float(p.poissons_ratio)))
    return _BALL * float(np.sqrt(shear_pa / float(p.density_kg_m3))) / (0.5 * model.body.thickness_m)


def parts_of_step(model: Model, p: Parameters, before: int = 1) -> int:
    """Into how many parts the model's step is cut for a free body with these parameters, of `PARTS`; before: in an
    episode from which something is known."""
    turn = swing_rad_s(model, p) * model.integrator.step_s
    longest = {parts: _FASTEST_RAD if parts >= before else _FEWER_RAD for parts in PARTS}
    return next((parts for parts in PARTS if turn <= longest[parts] * parts), PARTS[-1])


class CutSteps:
    """A model with its step cut; each one is made once, so that what a backend keeps of it stays its own."""

    def __init__(self, model: Model) -> None:
        self._by_parts = {1: model}

    def into(self, parts: int) -> Model:
        """The model with its step cut into so many parts."""
        if parts not in self._by_parts:
            self._by_parts[parts] = self._by_parts[1].in_parts(parts)
        return self._by_parts[parts]

    def half(self, model: Model) -> Model:
        """One of these models with half its step."""
        return self.into(2 * self.parts(model))

    def parts(self, model: Model) -> int:
        """Into how many parts the step of one of these models is cut."""
        return next(parts for parts, cut in self._by_parts.items() if cut is model)


@dataclass(frozen=True, eq=False)
class Move:
    """What another model does to a window.

    Attributes:
        by: how far its lasting variables and the offset would move, (P + 1,).
        change: of every frame's residuals once everything has moved, [(n,)].
        last: the last step of that, (P + 1,); all of it where the other model was looked at once.
    """

    by: np.ndarray
    change: list[np.ndarray]
    last: np.ndarray


@dataclass(frozen=True, eq=False)
class Refined:
    """What a closer look at a window's frames found.

    Attributes:
        shift: what to add to the lasting variables, (P,). effects: what more there is to their deviations.
        change: of every frame's residuals, with the variables moved along, [(n,)]; none where nobody looked.
    """

    shift: np.ndarray
    effects: Sequence[Effect] = ()
    change: Sequence[np.ndarray] = ()


def move_with(
    model: Model,
    kinds: Kinds,
    backend: Backend,
    fit: WindowFit,
    lasting: Lasting,
    before: np.ndarray | None,
    near: np.ndarray | None = None,
    looks: int = 1,
) -> Move:
    """How far a window's answer would move with another model: steps by that one's residuals and the window's own
    Jacobian, towards the minimum that the other model has.

    before: how far what was known before the window would have, (P + 1,); None: not at all. near: a step by less, (P,),
    is the last one, as is the one after so many looks at the other model. Raises SolverError where the model cannot
    follow the motion.
    """
    moved, places = _known_before(fit, lasting, before)
    motion = WindowMotion(model, fit.motion.variables, backend, kinds)
    motion.start = fit.motion.start
    like = fit.at if model.body is fit.motion.model.body else None  # another grid has a flight of its own
    best: list[PredictedFrame] = []
    least, by, step = np.inf, np.zeros_like(moved), np.zeros_like(moved)
    for _ in range(looks):
        seen = motion.look(fit.at.z + by + step, [e.frame for e in fit.frames], like)
        cost = fit.linear.moved_cost([e.residual for e in seen], moved, by + step)
        if not best or cost < least:
            best, least, by = seen, cost, by + step
            from_here = [other.residual - e.jacobian @ by for other, e in zip(best, fit.frames)]
            step = fit.linear.moved_minimum(from_here, moved) - by
        else:
            step = 0.5 * step
        if near is not None and (np.abs(step[places][: len(near)]) <= near).all():
            break
    change = [other.residual - e.residual + e.jacobian @ step for other, e in zip(best, fit.frames)]
    return Move((by + step)[places], change, step[places])


def _known_before(fit: WindowFit, lasting: Lasting, before: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """By how much what was known before a window is off, (P,), and which of its variables that is."""
    moved = np.zeros(len(fit.at.z))
    places = lasting.places(len(moved))
    if before is not None:
        moved[places] = before
    return moved, places


class OwnError(ABC):
    """What a closer simulation of the frames at hand does to a window's answer, followed from episode to episode.

    Attributes:
        source: of the error, as `fitting.discretisation` names it. seconds: of a look, in multiples of the time that
            the window's own simulation takes.
        change: of the residuals of the frames that were looked at last; none where that failed.
        put_off: whether a look is due that waits for a pause between frames.
    """

    source: tuple[str, str, str]
    seconds: float

    def __init__(self, backend: Backend, kinds: Kinds) -> None:
        self.backend, self.kinds = backend, kinds
        self.forget()

    def forget(self) -> None:
        """Nothing is known of any frame."""
        self._move: np.ndarray | None = None
        self.change: list[np.ndarray] = []
        self.end_episode()

    def end_episode(self) -> None:
        """What comes next starts from what is known."""
        self._first = self._before = self._move
        self._frames, self._std, self._late, self.put_off = 0, np.full(0, np.inf), False, False

    def abandon_episode(self) -> None:
        """Frames that were looked at since the last start are forgotten."""
        self._move = self._first

    def new_plane(self, lasting: Lasting) -> None:
        """A plane was seen: knowledge of it is the camera's, not that of any simulation."""
        if self._move is not None:
            names = [v.name for v in lasting.variables.variables]
            self._move = np.where([*(name in PLANE for name in names), False], 0.0, self._move)
            self._first = self._before = self._move

    def left_window(self) -> None:
        """Frames were marginalised: the knowledge before the window is theirs, too."""
        self._before = self._move

    def look(
        self,
        fit: WindowFit,
        answer: Answer,
        lasting: Lasting,
        in_time: Callable[[float], bool] | None = None,
        hurried: bool = False,
    ) -> None:
        """After a frame: look at the window more closely where that is due and there is time for it.

        in_time: whether there is time for work of so many seconds; None: look in any case. hurried: newer frames wait,
            and so does the look, for a while: what an earlier one found still holds.
        """
        self._frames += 1
        count = len(lasting.variables)
        std = np.sqrt(np.diag(answer.covariance)[:count])
        news = len(self._std) != count or bool((std < _NEWS * self._std).any())
        if in_time is not None:
            if not news and self._frames < _LOOK_AFTER:
                return
            self.put_off = hurried and self._frames < _LOOK_LATE
            if self.put_off:
                self._late = self._late or self._move is None
                return
            # A window that has not settled needs its time for that.
            self._late = not (answer.settled and in_time(self.takes(fit)))
            if self._late:
                return
        self._frames, self._std, self._late, self.put_off, self.change = 0, std, False, False, []
        try:
            found = self.moved(fit, lasting)
            self._move, self.change = found.by, found.change
        except SolverError as error:  # a motion that cannot be followed more closely tells nothing of the other
            self._late = True
            _log.info("%s was not looked at: %s", self.source[1], error)

    def refined(self, fit: WindowFit, lasting: Lasting) -> tuple[np.ndarray, Sequence[Effect]]:
        """What is to be taken off the lasting variables, (P,), and what is left as a deviation."""
        count = len(lasting.variables)
        move = np.zeros(count) if self._move is None else self._move[:count]
        taken, left = taken_and_left(lasting.variables, fit.at.z[:count], move, self.source, self.order(fit))
        if self._late:
            relative = [v.transform in ("log", "logit") for v in lasting.variables.variables]
            left = np.maximum(np.abs(left), np.where(relative, self.unseen(fit), 0.0))
        return taken, (Effect(*self.source, np.diag(np.abs(left))),)

    def takes(self, fit: WindowFit) -> float:
        """How long a look takes [s], about."""
        return self.seconds * fit.seconds

    def begin(self, fit: WindowFit) -> bool:
        """A first part of a look that may be taken by itself, in a pause: whether there was one to take."""
        return False

    def moved(self, fit: WindowFit, lasting: Lasting) -> Move:
        """What a closer look does to a window; raises SolverError where the motion cannot be followed."""
        return move_with(*self.closer(fit), self.backend, fit, lasting, self._before)

    @abstractmethod
    def closer(self, fit: WindowFit) -> tuple[Model, Kinds]:
        """The window's model with half of what errs, and what frames are measured against there."""

    @abstractmethod
    def order(self, fit: WindowFit) -> int:
        """The lowest one of the errors."""

    @abstractmethod
    def unseen(self, fit: WindowFit) -> float:
        """Relative deviation of a stiffness that nobody has looked at."""


class StepError(OwnError):
    """That of the time step: twice as many of them, without their changes.

    Where a window's changes are worked out on a coarser grid, the step's error is, too: a step slows the lowest swings,
    and these are alike on both grids. Over 18 looks at two of the demo's drops what it does to E came within 0.8 % of
    E, what it does to damping, from the third frame of a touch on, within four tenths, in two thirds of the time.
    """

    source, seconds = STEP, 2.0

    def __init__(self, steps: CutSteps, backend: Backend, kinds: Kinds) -> None:
        self.steps = steps
        self._whole: CoarserLook | None = None
        self._half: CoarserLook | None = None
        super().__init__(backend, kinds)

    def end_episode(self) -> None:
        super().end_episode()
        self._whole = self._half = None

    def closer(self, fit: WindowFit) -> tuple[Model, Kinds]:
        return self.steps.half(fit.motion.model), self.kinds

    def takes(self, fit: WindowFit) -> float:
        newer = None if self._half is None else self._half.newer(fit)
        return super().takes(fit) * (1.0 if newer is None else newer / len(fit.frames))

    def begin(self, fit: WindowFit) -> bool:
        if fit.motion.coarser is None or (self._whole is not None and self._whole.newer(fit) is not None):
            return False
        self._whole = self._half = None
        with suppress(SolverError):  # the look will say so
            self._whole = self._look(fit, fit.motion.model, fit.at.z)
        return self._whole is not None

    def moved(self, fit: WindowFit, lasting: Lasting) -> Move:
        if fit.motion.coarser is None:
            return super().moved(fit, lasting)
        (whole, half), self._whole, self._half = (self._whole, self._half), None, None  # none, should they fail
        whole = self._up_to_now(whole, fit) or self._look(fit, fit.motion.model, fit.at.z)
        half = self._up_to_now(half if half is not None and half.z is whole.z else None, fit)
        half = half or self._look(fit, self.closer(fit)[0], whole.z)
        self._whole, self._half = whole, half
        before, places = _known_before(fit, lasting, self._before)
        changes = [finer - coarser for coarser, finer in zip(whole.residuals, half.residuals)]
        step = fit.linear.moved_minimum([e.residual + change for e, change in zip(fit.frames, changes)], before)
        change = [change + e.jacobian @ step for change, e in zip(changes, fit.frames)]
        return Move(step[places], change, step[places])

    def _look(self, fit: WindowFit, model: Model, z: np.ndarray) -> CoarserLook:
        return CoarserLook(fit, z, model, self.backend, self.kinds)

    def _up_to_now(self, look: CoarserLook | None, fit: WindowFit) -> CoarserLook | None:
        """A look that is led on to the newest frame; None where it is not of this window, or too far from it."""
        if look is None or look.newer(fit) is None:
            return None
        look.go_on(fit)
        return look

    def order(self, fit: WindowFit) -> int:
        return fit.motion.model.integrator.order

    def unseen(self, fit: WindowFit) -> float:
        """As much as the step does to it."""
        model = fit.motion.model
        turn = swing_rad_s(model, fit.motion.parameters(fit.at.z)) * model.integrator.step_s
        return turn**2 / 6.0
