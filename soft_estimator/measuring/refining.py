"""What grid and time step do to the answer of several drops: each drop's frames once more with half the spacing, and
with half the step (see `estimation.fitting.discretisation`).

What all drops have in common they err in together: the move of the answer goes from drop to drop as the answer does.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.fitting.consider import Effect
from soft_estimator.estimation.fitting.discretisation import GRID, STEP, taken_and_left
from soft_estimator.estimation.problem import kinds_of
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.interface import Kinds
from soft_estimator.estimation.window.lasting import Lasting
from soft_estimator.estimation.window.window_fit import WindowFit
from soft_estimator.estimation.window.window_motion import WindowMotion
from soft_estimator.physics.integrator import with_step
from soft_estimator.physics.model import Model
from soft_estimator.physics.solver import SolverError
from soft_estimator.scene.finer import on_finer_grid
from soft_estimator.scene.scene import Scene

MOST_NODES = 60_000  # of the finer grid: eight times those of the body
_log = logging.getLogger(__name__)


class Refining:
    """Follows a window from drop to drop.

    Attributes:
        moves: by source, how far the answer's lasting variables and offset would move with half of it, (P + 1,).
    """

    def __init__(self, scene: Scene, kinds: Kinds, backend: Backend) -> None:
        self.backend = backend
        model, scheme = scene.model, scene.model.integrator
        shorter = model.with_step(with_step(scheme, 0.5 * scheme.step_s))
        self._models: dict[tuple[str, str, str], tuple[Model, Kinds, int]] = {STEP: (shorter, kinds, scheme.order)}
        if 8 * scene.body.node_count <= MOST_NODES:
            finer = on_finer_grid(scene)
            self._models[GRID] = (finer.model, kinds_of(finer.body, carry_field(finer.body), backend, ()), 2)
        self.moves: dict[tuple[str, str, str], np.ndarray] = {}

    def look(self, fit: WindowFit, lasting: Lasting) -> tuple[np.ndarray, Sequence[Effect]]:
        """What is to be taken off the lasting variables after a drop, (P,), and what is left as a deviation."""
        count = len(lasting.variables)
        shift, effects = np.zeros(count), []
        for source, (model, kinds, order) in self._models.items():
            before = np.zeros(len(fit.at.z))
            places = lasting.places(len(before))
            if source in self.moves:
                before[places] = self.moves[source]
            motion = WindowMotion(model, fit.motion.variables, self.backend, kinds)
            try:
                frames = motion.look(fit.at.z, [e.frame for e in fit.frames])
            except SolverError as error:  # a motion that half the step cannot follow tells nothing of the other
                _log.info("not refined (%s): %s", source[1], error)
                continue
            self.moves[source] = fit.moved_minimum([e.residual for e in frames], before)[places]
            taken, left = taken_and_left(lasting.variables, fit.at.z[:count], self.moves[source][:count], order)
            _log.info("%s moves the answer by %s", source[1], np.array2string(taken, precision=4))
            shift = shift + taken
            effects.append(Effect(*source, np.diag(np.abs(left))))
        return shift, effects
