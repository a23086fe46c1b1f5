"""A trajectory on a backend that runs whole steps and looks at clouds by itself; same numbers as `Trajectory`."""

from __future__ import annotations

from typing import Any

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.device_cache import device_cache_for
from soft_estimator.estimation.residuals.interface import Kinds
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.estimation.trajectory import TANGENT_TOLERANCE, Moment, Trajectory
from soft_estimator.physics.frame_times import between, steps_until
from soft_estimator.physics.fused_tangent import Changes, FusedTangent
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters


class FusedTrajectory(Trajectory):
    """All steps to a frame are started together, and their tangents; the host waits once or twice a frame."""

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        directions: list[ParameterGradient] | None,
        start: Moment,
        backend: Backend,
        kinds: Kinds,
    ) -> None:
        self.kinds, self.directions, self.steps = kinds, directions, 0
        self.cache = device_cache_for(model, parameters, backend)
        self.fused = self.simulation = self.cache.simulation(parameters)
        self.tangent, self.columns = None, None
        changes = None
        if directions is not None:
            changes = start.known_changes
            if not isinstance(changes, Changes):
                changes = Changes.stacked(changes, backend)
            tolerance = max(model.solver.relative_tolerance, TANGENT_TOLERANCE)
            self.columns = FusedTangent(self.fused, directions, tolerance)
        self.before = self.after = Moment(start.state, changes)

    def look(self, frame: Any, share: float) -> tuple[np.ndarray, np.ndarray]:
        """As in `Trajectory`; clouds are measured on the device."""
        kind = self.kinds.of(frame)
        if not isinstance(kind, SurfaceDistance):
            return super().look(frame, share)
        a, b, backend = self.before, self.after, self.simulation.backend
        view = self.cache.view([frame], kind)
        view.owner = self
        u = between(a.state.u.astype(np.float64), b.state.u, share)
        residual = view.measure(u[None]) * view.scale
        rows = backend.xp.empty((kind.count(frame), 0 if b.changes is None else len(b.changes)))
        if a.changes is not None and b.changes is not None:
            view.change(0, a.changes.u, b.changes.u, share, rows)
        return backend.to_host(residual), backend.to_host(rows)

    def go_to(self, time_s: float) -> None:
        """As in `Trajectory`."""
        count = steps_until(time_s, self.after.state.time_s, self.simulation.model.integrator.step_s)
        if count == 0:
            return
        self.steps += count
        states, _ = self.fused.roll(self.after.state, count)
        self.count_fallbacks(states[1:])  # the first is where the roll began
        if self.columns is None:
            self.before, self.after = (Moment(states[k], None) for k in (-2, -1))
            return
        before = self.after.known_changes
        if not isinstance(before, Changes):
            before = Changes.stacked(before, self.simulation.backend)
        changes = self.columns.through(states, before)
        self.before, self.after = (Moment(states[k], changes[k]) for k in (-2, -1))
