"""A motion and how it changes with every variable, run through frames one after another, and ready to go on."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.device_cache import workshop_for
from soft_estimator.estimation.residuals.carried_field import CarriedField
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import point_residuals
from soft_estimator.physics.fused import can_fuse
from soft_estimator.physics.fused_tangent import Changes
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import Model, State
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import ColumnChanges, Tangent

# A Gauss-Newton direction needs no more digits of the Jacobian than this; the residuals themselves stay exact.
TANGENT_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Corner:
    """A moment between two steps: the state, and its change with each variable (none: they were not asked for)."""

    state: State
    changes: ColumnChanges | Changes | None

    def moved(self, by: np.ndarray) -> Corner:
        """The corner with the variables moved by `by` (P,), to first order."""
        s, step = self.state, self.changes.mixed(by[:, None])[0]
        return Corner(replace(s, u=s.u + step.u, v=s.v + step.v, a=s.a + step.a), self.changes)

    def in_terms_of(self, mixing: np.ndarray) -> Corner:
        """The changes with other variables, of which the old ones are mixing (P, P) @ new ones."""
        return Corner(self.state, self.changes.mixed(mixing))


@dataclass(frozen=True, eq=False)
class Explained:
    """A frame and what the trajectory makes of it.

    Attributes:
        residual: whitened, (n,). jacobian: its change with each variable, (n, P).
        before: the corner at or before the frame. corner: the one at or after it.
        share: how far from one to the other the frame lies.
    """

    frame: ObservedFrame
    residual: np.ndarray
    jacobian: np.ndarray
    before: Corner
    corner: Corner
    share: float

    def in_terms_of(self, mixing: np.ndarray) -> Explained:
        """The same for other variables; see `Corner.in_terms_of`."""
        return replace(
            self,
            jacobian=self.jacobian @ mixing,
            before=self.before.in_terms_of(mixing),
            corner=self.corner.in_terms_of(mixing),
        )

    def moved_to(self, motion: Explained) -> Explained:
        """The motion and residuals of another explanation of the frame, with the changes of this one."""
        return replace(
            motion,
            jacobian=self.jacobian,
            before=Corner(motion.before.state, self.before.changes),
            corner=Corner(motion.corner.state, self.corner.changes),
        )


class Trajectory:
    """Runs from a corner through frames in order of time.

    Args:
        directions: change of the parameters with each variable, (P,); zero for one that moves the state alone. None:
            the motion is run without its changes, several times faster.
    """

    calmed: int = 0  # parts of steps that backward Euler had to take
    most_calmed: float = np.inf

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        directions: list[ParameterGradient] | None,
        start: Corner,
        backend: Backend,
        field: CarriedField,
    ) -> None:
        self.field = field
        self.simulation = Simulation(model, parameters, backend)
        self.before = self.after = start
        self.steps = 0
        if directions is None:
            self.tangent: Tangent | None = None
            self.before = self.after = Corner(start.state, None)
            return
        loose = copy(self.simulation)
        tolerance = max(model.solver.relative_tolerance, TANGENT_TOLERANCE)
        loose.model = replace(model, solver=replace(model.solver, relative_tolerance=tolerance))
        self.tangent = Tangent(loose, directions)

    def through(self, frame: ObservedFrame) -> Explained:
        """Go on to a frame that is not earlier than the last one, and look."""
        model, host = self.simulation.model, self.simulation.backend.to_host
        while self.after.state.time_s < frame.time_s - 1e-6 * model.integrator.step_s:
            self.before, self.after = self.after, self._step(self.after)
        span = self.after.state.time_s - self.before.state.time_s
        share = 1.0 if span <= 0 else float(np.clip((frame.time_s - self.before.state.time_s) / span, 0.0, 1.0))
        a, b = self.before, self.after
        u = ((1 - share) * host(a.state.u) + share * host(b.state.u)).astype(np.float64)
        seen = point_residuals(model.body, self.field, frame, u)
        rows = np.zeros((len(frame.std_m), 0))
        if a.changes is not None and b.changes is not None:
            du = ((1 - share) * host(a.changes.u) + share * host(b.changes.u)).astype(np.float64)
            rows = seen.changes(du)[:, : len(b.changes)] / frame.std_m[:, None]
        return Explained(frame, seen.value_m / frame.std_m, rows, a, b, share)

    def count_calmed(self, states: list[State]) -> None:
        """Note what the steps to these states took, and give up where it is too much."""
        self.calmed += sum(int(state.calmed) for state in states)
        if self.calmed > self.most_calmed:
            raise SolverError("the motion is too violent for its steps; use a smaller step_s")

    def _step(self, corner: Corner) -> Corner:
        state, _, linearisation = self.simulation.step_keeping(corner.state)
        self.steps += 1
        self.count_calmed([state])
        if self.tangent is None:
            return Corner(state, None)
        changes, _ = self.tangent.step(corner.state, state, linearisation, corner.changes)
        return Corner(state, changes)


def initial_corner(
    model: Model,
    parameters: Parameters,
    directions: list[ParameterGradient],
    backend: Backend,
    field: CarriedField,
) -> Corner:
    """The start of a simulation, undeformed and in rigid motion."""
    if can_fuse(model, backend):
        simulation: Simulation = workshop_for(model, parameters, backend, field).simulation(parameters)
    else:
        simulation = Simulation(model, parameters, backend)
    return Corner(simulation.initial_state(), Tangent(simulation, directions).initial())


def trajectory_from(
    model: Model,
    parameters: Parameters,
    directions: list[ParameterGradient] | None,
    start: Corner,
    backend: Backend,
    field: CarriedField,
) -> Trajectory:
    """The trajectory that suits the backend; see `Trajectory` for the arguments."""
    if can_fuse(model, backend):
        from soft_estimator.estimation.fused_trajectory import FusedTrajectory

        return FusedTrajectory(model, parameters, directions, start, backend, field)
    return Trajectory(model, parameters, directions, start, backend, field)
