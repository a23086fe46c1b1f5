"""A trajectory on a backend that runs whole steps and looks at points by itself; same numbers as `Trajectory`."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.device_cache import workshop_for
from soft_estimator.estimation.residuals.carried_field import CarriedField
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.trajectory import TANGENT_TOLERANCE, Corner, Explained, Trajectory
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
        start: Corner,
        backend: Backend,
        field: CarriedField,
    ) -> None:
        self.field, self.steps = field, 0
        self.shop = workshop_for(model, parameters, backend, field)
        self.fused = self.simulation = self.shop.simulation(parameters)
        self.tangent, self.columns = None, None
        changes = start.changes if directions is not None else None
        if directions is not None and not isinstance(changes, Changes):
            changes = Changes.stacked(changes, backend)
        self.before = self.after = Corner(start.state, changes)
        if directions is not None:
            tolerance = max(model.solver.relative_tolerance, TANGENT_TOLERANCE)
            self.columns = FusedTangent(self.fused, directions, tolerance)

    def through(self, frame: ObservedFrame) -> Explained:
        """Go on to a frame that is not earlier than the last one, and look."""
        self._go_to(frame.time_s)
        a, b, backend = self.before, self.after, self.simulation.backend
        span = b.state.time_s - a.state.time_s
        share = 1.0 if span <= 0 else float(np.clip((frame.time_s - a.state.time_s) / span, 0.0, 1.0))
        view = self.shop.view([frame])
        u = (1 - share) * a.state.u.astype(np.float64) + share * b.state.u
        view.owner = self
        residual = view.measure(u[None]) * view.scale
        rows = backend.xp.empty((len(frame.points_m), 0 if b.changes is None else len(b.changes)))
        if b.changes is not None:
            view.change(0, a.changes.u, b.changes.u, share, rows)  # type: ignore[attr-defined]
        return Explained(frame, backend.to_host(residual), backend.to_host(rows), a, b, share)

    def _go_to(self, time_s: float) -> None:
        step_s = self.simulation.model.integrator.step_s
        count = int(np.ceil((time_s - self.after.state.time_s) / step_s - 1e-6))
        if count <= 0:
            return
        self.steps += count
        states, _ = self.fused.roll(self.after.state, count)
        self.count_calmed(states[1:])  # the first is where the roll began
        changes: list = [None for _ in states]
        if self.columns is not None:
            changes = self.columns.through(states, self.after.changes)  # type: ignore[arg-type]
        self.before, self.after = (Corner(states[k], changes[k]) for k in (-2, -1))
