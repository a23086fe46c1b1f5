"""A scene with its tools on half the spacing, for a window that looks at what its grid does (`window.own_grid`)."""

from __future__ import annotations

from dataclasses import replace

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.problem import kinds_of
from soft_estimator.estimation.residuals.carried_field import carry_field
from soft_estimator.estimation.residuals.interface import Kinds
from soft_estimator.estimation.residuals.tool_wrench import ToolWrench
from soft_estimator.physics.model import Model
from soft_estimator.scene.finer import MOST_NODES, on_finer_grid
from soft_estimator.scene.scene import Scene


class FinerScene:
    """Made when it is first asked for: many a tool never touches.

    Args:
        model: of the window, with its tools' paths.
    """

    def __init__(self, scene: Scene, model: Model, backend: Backend) -> None:
        self._scene, self._model, self._backend = scene, model, backend
        self._made: list[tuple[Model, Kinds]] = []  # one for each step: what a backend keeps of it stays its own

    def in_steps_of(self, model: Model) -> tuple[Model, Kinds] | None:
        """The model on half the spacing in the steps of another, and what frames are measured against there; None where
        it has too many nodes."""
        if 8 * self._scene.body.node_count > MOST_NODES:
            return None
        if not self._made:
            finer = on_finer_grid(self._scene)
            led = replace(finer.model, obstacles=self._model.obstacles)
            kinds = kinds_of(led.body, carry_field(led.body), self._backend, [ToolWrench(led)])
            self._made.append((led.with_step(model.integrator), kinds))
        for made, kinds in self._made:
            if made.integrator == model.integrator:
                return made, kinds
        first, kinds = self._made[0]
        self._made.append((first.with_step(model.integrator), kinds))
        return self._made[-1]
