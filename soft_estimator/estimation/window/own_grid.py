"""What the grid does to a window's answer while a tool presses on the body.

Of the grid a window states one per cent (`window.model_std`), which is what it does to a ball that bounces. Under a
tool that is as narrow as a cell it is more: fingers of 1 cm radius that grip and lift a block of 12 mm cells press 4 %
harder on it than on half the spacing. Once a tool touches, the frames at hand are looked at on half the spacing every
now and then, as they are with half the step (`own_step`).

A window that has slid begins with a state of its own grid, which is not at rest on another: what was found before holds
on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.fitting.consider import Effect
from soft_estimator.estimation.fitting.discretisation import GRID
from soft_estimator.estimation.residuals.interface import Kinds
from soft_estimator.estimation.window.lasting import Lasting
from soft_estimator.estimation.window.own_step import OwnError
from soft_estimator.estimation.window.window_fit import Answer, WindowFit
from soft_estimator.physics.model import Model

# Relative deviation of a stiffness under a tool no wider than two cells, where nobody looks; less under a wider one.
_UNSEEN = 0.05


class FinerGrid(Protocol):
    """The window's model, tools and all, on half the spacing; made when first asked for."""

    def in_steps_of(self, model: Model) -> tuple[Model, Kinds] | None:
        """It in the steps of a model of the window, and what frames are measured against there; None where it has too
        many nodes."""


class ToolGridError(OwnError):
    """That of the grid, from the first touch of a tool on; eight times the cells, without their changes."""

    source, seconds = GRID, 4.0

    def __init__(self, finer: FinerGrid, backend: Backend, kinds: Kinds) -> None:
        self.finer = finer
        super().__init__(backend, kinds)

    def end_episode(self) -> None:
        super().end_episode()
        self.touched = False

    def look(
        self,
        fit: WindowFit,
        answer: Answer,
        lasting: Lasting,
        in_time: Callable[[float], bool] | None = None,
        hurried: bool = False,
    ) -> None:
        if not self.touched:
            return
        if fit.slid or self.finer.in_steps_of(fit.motion.model) is None:
            self.put_off, self._late = False, self._late or self._move is None
            return
        super().look(fit, answer, lasting, in_time, hurried)

    def closer(self, fit: WindowFit) -> tuple[Model, Kinds]:
        made = self.finer.in_steps_of(fit.motion.model)
        assert made is not None, "a window is looked at only where there is a finer grid"
        return made

    def order(self, fit: WindowFit) -> int:
        return 2

    def unseen(self, fit: WindowFit) -> float:
        body = fit.motion.model.body
        return _UNSEEN * min(1.0, body.grid.spacing_m / body.contact_points.edge_m)


class OwnErrors:
    """All of them at once; as each of them does."""

    def __init__(self, errors: Sequence[OwnError]) -> None:
        self.errors = tuple(errors)

    def forget(self) -> None:
        for error in self.errors:
            error.forget()

    def end_episode(self) -> None:
        for error in self.errors:
            error.end_episode()

    def abandon_episode(self) -> None:
        for error in self.errors:
            error.abandon_episode()

    def new_plane(self, lasting: Lasting) -> None:
        for error in self.errors:
            error.new_plane(lasting)

    def left_window(self) -> None:
        for error in self.errors:
            error.left_window()

    def touched(self) -> None:
        """A tool touches the body."""
        for error in self.errors:
            if isinstance(error, ToolGridError):
                error.touched = True

    @property
    def put_off(self) -> bool:
        return any(error.put_off for error in self.errors)

    @property
    def changes(self) -> list[list[np.ndarray]]:
        """`change` of each that looked."""
        return [error.change for error in self.errors if error.change]

    def look(
        self,
        fit: WindowFit,
        answer: Answer,
        lasting: Lasting,
        in_time: Callable[[float], bool] | None = None,
        hurried: bool = False,
    ) -> None:
        for error in self.errors:
            error.look(fit, answer, lasting, in_time, hurried)

    def catch_up(self, fit: WindowFit, answer: Answer, lasting: Lasting) -> bool:
        """A piece of the looks that were put off: whether it was the last."""
        for error in self.errors:
            if error.put_off:
                if error.begin(fit):
                    return False
                error.look(fit, answer, lasting)
        return True

    def refined(self, fit: WindowFit, lasting: Lasting) -> tuple[np.ndarray, list[Effect]]:
        parts = [error.refined(fit, lasting) for error in self.errors]
        shift = sum((taken for taken, _ in parts), np.zeros(len(lasting.variables)))
        return shift, [effect for _, effects in parts for effect in effects]
