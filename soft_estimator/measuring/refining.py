"""What grid and contact do to the answer of several drops: each drop's frames once more with half the spacing (see
`estimation.fitting.discretisation`), and by how much a table that gives makes a body seem softer than it is; the step's
error is the window's own affair.

What all drops have in common they err in together: the move of the answer goes from drop to drop as the answer does.
"""

from __future__ import annotations

import logging

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.fitting.consider import Effect
from soft_estimator.estimation.fitting.discretisation import GRID, taken_and_left, whole_of
from soft_estimator.estimation.problem import kinds_of
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.interface import Kinds
from soft_estimator.estimation.window.lasting import Lasting
from soft_estimator.estimation.window.own_step import Refined, move_with
from soft_estimator.estimation.window.window_fit import WindowFit
from soft_estimator.physics.model import Model
from soft_estimator.physics.solver import SolverError
from soft_estimator.scene.finer import MOST_NODES, on_finer_grid
from soft_estimator.scene.scene import Scene

CONTACT = ("contact", "the give of the contact", "give the scene a stiffer contact, and shorter steps")
# Deviations of log E, of the part by which the contact gives of what the body does: a box of 40 kPa that was dropped on
# its edges came back off by 2.7 of it, a ball on a known plane by 0.3.
_GIVE = 1.5
# Looks at the finer grid, at most, until a step is this part of a deviation.
_LOOKS, _NEAR = 4, 0.2
# Times what is left of an error of first order: creases may err by a lower one. The lowest frequency of five balls in
# one falls by 0.27, 0.34, 0.40 Hz a millimetre from cells of 8.6 mm to 6.3, 5.2, 4.3.
_CREASES = 2.0
_log = logging.getLogger(__name__)


class GridError:
    """Follows a window from drop to drop.

    Attributes:
        order: lowest one of the grid's error.
        move: how far the answer's lasting variables and offset would move on the finer grid, (P + 1,); None where that
            has too many nodes, or none was looked at.
        beyond: whether the answer to the drop that was looked at last was not found on the finer grid.
    """

    def __init__(self, scene: Scene, backend: Backend, order: int = 2) -> None:
        self.backend, self.order, self.beyond = backend, order, False
        self.move: np.ndarray | None = None
        self._before: np.ndarray | None = None
        self._finer: tuple[Model, Kinds] | None = None
        if 8 * scene.body.node_count <= MOST_NODES:
            finer = on_finer_grid(scene)
            self._finer = finer.model, kinds_of(finer.body, carry_field(finer.body), backend, ())

    def abandon_drop(self) -> None:
        """The drop that was looked at last is forgotten."""
        self.move = self._before

    def look(self, fit: WindowFit, lasting: Lasting) -> Refined:
        """What is to be taken off the lasting variables after a drop, (P,), and what is left as a deviation."""
        count, self._before, self.beyond = len(lasting.variables), self.move, False
        if self._finer is None:
            return Refined(np.zeros(count), (give_of_contact(fit, lasting),))
        model, kinds = self._finer
        model = model.with_step(fit.motion.model.integrator)
        std = std_of(fit, count)
        try:
            found = move_with(model, kinds, self.backend, fit, lasting, self.move, _NEAR * std, _LOOKS)
        except SolverError as error:  # a motion that the finer grid cannot follow tells nothing of the other
            _log.info("not refined: %s", error)
            return Refined(np.zeros(count), (give_of_contact(fit, lasting),))
        self.move, self.beyond = found.by, bool((np.abs(found.last[:count]) > std).any())
        move = self.move[:count]
        _log.info("on half the spacing the answer moves by %s", np.array2string(move, precision=4))
        if self.beyond:
            taken, left = np.zeros(count), whole_of(self.order) * move
        else:
            taken, left = taken_and_left(lasting.variables, fit.at.z[:count], move, GRID, self.order, std)
            left = (_CREASES if self.order == 1 else 1.0) * left
        _log.info("%s moves the answer by %s", GRID[1], np.array2string(taken, precision=4))
        effects = Effect(*GRID, np.diag(np.abs(left))), give_of_contact(fit, lasting)
        return Refined(taken, effects, found.change)


def give_of_contact(fit: WindowFit, lasting: Lasting) -> Effect:
    """How far off a table that gives lets the stiffness seem.

    A body that meets it at a speed v is pressed by ρ c v, c² = E/ρ, sinks in by that over the contact's k, and is
    itself squeezed by L v/c: the contact gives by the part E/(k L) of what the body does, L being its thickness 6 V/A.
    """
    p, thickness_m = fit.motion.parameters(fit.at.z), fit.motion.model.body.thickness_m
    part = float(np.max(p.youngs_modulus_pa)) / (float(p.contact_stiffness_pa_per_m) * thickness_m)
    moved = [_GIVE * part if v.name == "youngs_modulus_pa" else 0.0 for v in lasting.variables.variables]
    return Effect(*CONTACT, np.diag(moved))


def std_of(fit: WindowFit, count: int) -> np.ndarray:
    """Deviations of a window's first variables by its frames alone, (count,)."""
    return np.sqrt(np.diag(fit.answer().covariance)[:count])
