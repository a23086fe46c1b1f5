"""One simulation through the frames of a problem: residuals, their Jacobian by the tangent, and a gradient backwards.

`PlainRun` goes loop by loop, `FusedRun` leaves whole steps and the points to the backend; both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.checkpoints import Checkpoints
from soft_estimator.estimation.device_cache import workshop_for
from soft_estimator.estimation.residuals.carried_field import CarriedField
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.residuals.surface_distance import Residuals, point_residuals
from soft_estimator.physics.adjoint import Adjoint, StateGradient
from soft_estimator.physics.fused import FusedAdjoint, can_fuse
from soft_estimator.physics.fused_tangent import FusedTangent
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import Model, State
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.tangent import Tangent

Places = dict[int, list[tuple[int, float]]]


class Run(Protocol):
    """residual: whitened, frames in order, (n,). jacobian: by the directions, (n, P). far: points beyond the halo."""

    residual: np.ndarray
    jacobian: np.ndarray | None
    far: int

    def gradient(self, residual_bar: np.ndarray) -> ParameterGradient:
        """Derivatives by the parameters, given those by the whitened residuals (n,)."""


def run_through(
    model: Model,
    parameters: Parameters,
    frames: list[ObservedFrame],
    directions: list[ParameterGradient] | None,
    backend: Backend,
    field: CarriedField,
) -> Run:
    """Simulate from the start through all frames, with the Jacobian along the directions where given."""
    kind = FusedRun if can_fuse(model, backend) else PlainRun
    return kind(model, parameters, frames, directions, backend, field)


def places_of(frames: list[ObservedFrame], step_s: float) -> Places:
    """Frames by the step they fall into: step number n → [(frame, share of the way from state n to n+1)]."""
    out: Places = {}
    for k, frame in enumerate(frames):
        at = frame.time_s / step_s
        n = int(np.floor(at + 1e-9))
        share = at - n
        out.setdefault(n - 1 if share < 1e-6 and n > 0 else n, []).append((k, 1.0 if share < 1e-6 and n > 0 else share))
    return out


class PlainRun:
    """Loop by loop, for any backend and model."""

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        frames: list[ObservedFrame],
        directions: list[ParameterGradient] | None,
        backend: Backend,
        field: CarriedField,
    ) -> None:
        self.simulation, self.frames = Simulation(model, parameters, backend), frames
        self.places = places_of(frames, model.integrator.step_s)
        tangent = Tangent(self.simulation, directions) if directions is not None else None
        host = backend.to_host
        state = self.simulation.initial_state()
        steps = max(self.places) + 1
        # Only a gradient asks for them again; the fewer are kept, the longer a window fits.
        self.states, seen, rows = Checkpoints(self.simulation, state, steps), {}, {}
        changes = tangent.initial() if tangent else []
        for n in range(steps):
            after, _, lin = self.simulation.step_keeping(state)
            new_changes = tangent.step(state, after, lin, changes)[0] if tangent else []
            for k, share in self.places.get(n, []):
                u = (1 - share) * host(state.u) + share * host(after.u)
                seen[k] = point_residuals(model.body, field, frames[k], u.astype(np.float64), backend)
                columns = [
                    seen[k].change((1 - share) * host(a.u) + share * host(b.u)) for a, b in zip(changes, new_changes)
                ]
                rows[k] = np.stack(columns, axis=1) / frames[k].std_m[:, None] if columns else None
            state, changes = after, new_changes
            self.states.append(state)
        order = range(len(frames))
        self.seen: list[Residuals] = [seen[k] for k in order]
        self.residual = np.concatenate([s.value_m / f.std_m for s, f in zip(self.seen, frames)])
        self.far = int(sum(s.far.sum() for s in self.seen))
        self.jacobian = np.concatenate([rows[k] for k in order]) if tangent else None

    def gradient(self, residual_bar: np.ndarray) -> ParameterGradient:
        ends = np.cumsum([0] + [len(f.points_m) for f in self.frames])
        backend, dtype = self.simulation.backend, self.simulation.model.dtype
        pulled = [
            backend.to_device(s.pull_back(residual_bar[a:b] / f.std_m), dtype)
            for s, f, a, b in zip(self.seen, self.frames, ends, ends[1:])
        ]
        return go_back(Adjoint(self.simulation), self.states, self.places, pulled)


class FusedRun:
    """Whole steps and all frames at once, on a backend that can."""

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        frames: list[ObservedFrame],
        directions: list[ParameterGradient] | None,
        backend: Backend,
        field: CarriedField,
    ) -> None:
        self.backend, self.places = backend, places_of(frames, model.integrator.step_s)
        shop = workshop_for(model, parameters, backend, field)
        self.simulation, self.view = shop.simulation(parameters), shop.view(frames)
        self.states, _ = self.simulation.roll(self.simulation.initial_state(), max(self.places) + 1)
        xp = backend.xp
        u = xp.empty((len(frames), model.body.node_count, 3))
        for n, members in self.places.items():
            for k, share in members:
                u[k] = (1 - share) * self.states[n].u.astype(np.float64) + share * self.states[n + 1].u
        self._u, self.view.owner = u, self
        residual = self.view.measure(u) * self.view.scale
        rows = None if directions is None else self._jacobian(directions)
        self.residual = backend.to_host(residual)
        self.far = int(self.view.far.sum())
        self.jacobian = None if rows is None else backend.to_host(rows)

    def _jacobian(self, directions: list[ParameterGradient]) -> Any:
        tangent = FusedTangent(self.simulation, directions)
        rows = self.backend.xp.empty((len(self.view.points), len(directions)))
        changes = tangent.initial()
        for plain in (False, True):  # once more, and rescuing, where a solve failed
            for n in range(len(self.states) - 1):
                step = tangent.plain_step if plain else tangent.step
                after = step(self.states[n], self.states[n + 1], changes)
                for k, share in self.places.get(n, []):
                    self.view.change(k, changes.u, after.u, share, rows)
                changes = after
            if plain or tangent.settled():
                break
            changes = tangent.initial()
        return rows

    def gradient(self, residual_bar: np.ndarray) -> ParameterGradient:
        if self.view.owner is not self:  # another run has looked at these frames since
            self.view.owner = self
            self.view.measure(self._u)
        bar = self.backend.to_device(residual_bar) * self.view.scale
        pulled = list(self.view.pull_back(bar).astype(self.simulation.model.dtype))
        try:
            return go_back(FusedAdjoint(self.simulation), self.states, self.places, pulled)
        except SolverError:  # the plain adjoint knows how to rescue a solve, or says why it cannot
            return go_back(Adjoint(self.simulation), self.states, self.places, pulled)


def go_back(adjoint: Adjoint, states: Sequence[State], places: Places, pulled: list[Any]) -> ParameterGradient:
    """The gradient, given the derivatives (N, 3) by the displacement at every frame."""
    bar: StateGradient = adjoint.zero_state()
    for n in range(len(states) - 2, -1, -1):
        before_bar = 0.0
        for k, share in places.get(n, []):
            bar.u += share * pulled[k]
            before_bar = before_bar + (1 - share) * pulled[k]
        bar, _ = adjoint.step_back(states[n], states[n + 1], bar)
        bar.u += before_bar
    return adjoint.finish(bar)
