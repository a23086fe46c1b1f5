"""One simulation through the frames of a problem: residuals, their Jacobian by the tangent, and a gradient backwards.

`PlainRun` goes loop by loop, `FusedRun` leaves whole steps to the backend, and the distances of clouds; both give the
same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.estimation.checkpoints import Checkpoints
from soft_estimator.estimation.device_cache import device_cache_for
from soft_estimator.estimation.residuals.interface import (
    Frame,
    FrameAdjoint,
    FrameChanges,
    FrameState,
    Kinds,
    Prediction,
)
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.physics.adjoint import Adjoint, StateGradient
from soft_estimator.physics.following import follow_steps
from soft_estimator.physics.frame_times import between, step_of
from soft_estimator.physics.fused import can_fuse
from soft_estimator.physics.fused_adjoint import FusedAdjoint
from soft_estimator.physics.fused_tangent import Changes, FusedTangent
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import Model, State
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.step import Linearisation, Simulation
from soft_estimator.physics.tangent import ColumnChanges, Tangent

Places = dict[int, list[tuple[int, float]]]
Taken = tuple[int, State, State, Linearisation]  # a step's number, the states before and after it, its linearisation


class Run(Protocol):
    """residuals: of each frame, in order, (n,). jacobian: by the directions, (Σ n, P). far: see `Prediction`."""

    residuals: list[np.ndarray]
    jacobian: np.ndarray | None
    far: int

    def gradient(self, residual_bar: np.ndarray) -> list[ParameterGradient]:
        """Derivatives by the parameters, given those by all residuals (Σ n,): parts that are to be added up, the one
        through the motion first."""


def run_through(
    model: Model,
    parameters: Parameters,
    frames: Sequence[Frame],
    directions: list[ParameterGradient] | None,
    backend: Backend,
    kinds: Kinds,
    steps: int | None = None,
    jacobian_tolerance: float | None = None,
) -> Run:
    """Simulate from the start through all frames, with the Jacobian along the directions where given.

    Args:
        steps, jacobian_tolerance: see `PlainRun`.
    """
    if can_fuse(model, backend):
        return FusedRun(model, parameters, frames, directions, backend, kinds)
    return PlainRun(model, parameters, frames, directions, backend, kinds, steps, jacobian_tolerance)


def places_of(frames: Sequence[Frame], step_s: float) -> Places:
    """Frames by the step they fall into: step number n → [(frame, share of the way from state n to n+1)]."""
    out: Places = {}
    for k, frame in enumerate(frames):
        n, share = step_of(frame.time_s, step_s)
        out.setdefault(n, []).append((k, share))
    return out


class PlainRun:
    """Loop by loop, for any backend and model; `grow` goes on where it ended.

    Attributes:
        displacements: of the body at each frame, (N, 3) [m].

    Args:
        steps: how many are to come in all, as far as is known; those to the last frame by default.
        jacobian_tolerance: of the Jacobian's linear solves; that of the motion's by default.
    """

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        frames: Sequence[Any],
        directions: list[ParameterGradient] | None,
        backend: Backend,
        kinds: Kinds,
        steps: int | None = None,
        jacobian_tolerance: float | None = None,
    ) -> None:
        self.simulation, self.parameters, self.kinds = Simulation(model, parameters, backend), parameters, kinds
        self.directions = directions
        tolerance = max(model.solver.relative_tolerance, jacobian_tolerance or 0.0)
        loose = self.simulation.with_solver(relative_tolerance=tolerance)
        self._tangent = None if directions is None else Tangent(loose, directions)
        self._state = self.simulation.initial_state()
        self._changes: ColumnChanges | None = None if self._tangent is None else self._tangent.initial()
        # Only a gradient asks for them again; the fewer are kept, the longer a window fits.
        steps = max(places_of(frames, model.integrator.step_s)) + 1 if steps is None else steps
        self.states = Checkpoints(self.simulation, self._state, steps)
        self._seen: dict[int, Prediction] = {}
        self._rows: dict[int, np.ndarray] = {}
        self._u: dict[int, np.ndarray] = {}
        self.frames: Sequence[Any] = []
        self.grow(frames)

    def grows_to(self, frames: Sequence[Any]) -> bool:
        """Whether these frames go on from the run's own, all of them after its last step."""
        done = len(self.frames)
        if any(a is not b for a, b in zip(frames, self.frames)) or len(frames) < done:
            return False
        step_s = self.simulation.model.integrator.step_s
        return all(step_of(frame.time_s, step_s)[0] >= len(self.states) - 1 for frame in frames[done:])

    def grow(self, frames: Sequence[Any]) -> None:
        """Go on through more frames, of which the first are the run's own (`grows_to`)."""
        self.frames, self.places = frames, places_of(frames, self.simulation.model.integrator.step_s)
        steps = range(len(self.states) - 1, max(self.places) + 1)
        if self._tangent is None:
            for n in steps:
                self._look(self._step(n))
        else:
            follow_steps(self.simulation, map(self._step, steps), self._follow)
        order = range(len(frames))
        self.seen = [self._seen[k] for k in order]
        self.residuals = [prediction.residual for prediction in self.seen]
        self.far = sum(prediction.far for prediction in self.seen)
        self.displacements = [self._u[k] for k in order]
        self.jacobian = None if self._tangent is None else np.concatenate([self._rows[k] for k in order])

    def _step(self, n: int) -> Taken:
        """The step from state n."""
        state = self._state
        self._state, _, lin = self.simulation.step_keeping(state)
        self.states.append(self._state)
        return n, state, self._state, lin

    def _look(self, taken: Taken) -> None:
        """The frames that fall into a step."""
        n, state, after, _ = taken
        for k, share in self.places.get(n, []):
            frame, to_host = self.frames[k], self.simulation.backend.to_host
            at = FrameState(state, after, share, self.parameters, to_host)
            self._seen[k], self._u[k] = self.kinds.of(frame).predict(frame, at), at.u

    def _follow(self, taken: Taken) -> None:
        """The same with the changes through the step."""
        self._look(taken)
        n, state, after, lin = taken
        changes, to_host = self._changes, self.simulation.backend.to_host
        assert self._tangent is not None and changes is not None
        self._changes, _ = self._tangent.step(state, after, lin, changes)
        for k, share in self.places.get(n, []):
            moved = FrameChanges(changes, self._changes, share, self.directions or [], to_host)
            self._rows[k] = self._seen[k].changes(moved)

    def gradient(self, residual_bar: np.ndarray) -> list[ParameterGradient]:
        parts = np.split(residual_bar, np.cumsum([len(r) for r in self.residuals])[:-1])
        pulled = [p.changes_adjoint(bar) for p, bar in zip(self.seen, parts)]
        return [go_back(Adjoint(self.simulation), self.states, self.places, pulled), *_direct(pulled)]


class FusedRun:
    """Whole steps and the clouds of all frames at once, on a backend that can; other kinds of frames on the host."""

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        frames: Sequence[Any],
        directions: list[ParameterGradient] | None,
        backend: Backend,
        kinds: Kinds,
    ) -> None:
        self.backend, self.places = backend, places_of(frames, model.integrator.step_s)
        self.parameters, self.frames, self.directions = parameters, frames, directions
        cache = device_cache_for(model, parameters, backend)
        self.simulation = cache.simulation(parameters)
        self.states, _ = self.simulation.roll(self.simulation.initial_state(), max(self.places) + 1)
        at = {k: (n, share) for n, members in self.places.items() for k, share in members}
        self._at = [at[k] for k in range(len(frames))]
        measured = {k: kind for k, frame in enumerate(frames) if isinstance(kind := kinds.of(frame), SurfaceDistance)}
        self.clouds = list(measured)
        nothing: np.ndarray = np.zeros(0)
        self.residuals = [nothing] * len(frames)
        self.far = 0
        if self.clouds:
            self.view = cache.view([frames[k] for k in self.clouds], measured[self.clouds[0]])
            self._look_at_clouds()
        self.seen = {k: self._predict(k, kinds) for k in range(len(frames)) if k not in measured}
        for k, prediction in self.seen.items():
            self.residuals[k], self.far = prediction.residual, self.far + prediction.far
        self.jacobian = None if directions is None else self._jacobian(directions)

    def _look_at_clouds(self) -> None:
        model, xp = self.simulation.model, self.backend.xp
        self._u = xp.empty((len(self.clouds), model.body.node_count, 3))
        for place, k in enumerate(self.clouds):
            n, share = self._at[k]
            self._u[place] = between(self.states[n].u.astype(np.float64), self.states[n + 1].u, share)
        self.view.owner = self
        residual = self.backend.to_host(self.view.measure(self._u) * self.view.scale)
        for part, k in zip(np.split(residual, self._ends()), self.clouds):
            self.residuals[k] = part
        self.far += int(self.view.far.sum())

    def _ends(self) -> np.ndarray:
        """Where the points of each cloud but the last end among those of all."""
        return np.cumsum([len(self.frames[k].points_m) for k in self.clouds])[:-1]

    def _predict(self, k: int, kinds: Kinds) -> Prediction:
        n, share = self._at[k]
        at = FrameState(self.states[n], self.states[n + 1], share, self.parameters, self.backend.to_host)
        return kinds.of(self.frames[k]).predict(self.frames[k], at)

    def _jacobian(self, directions: list[ParameterGradient]) -> np.ndarray:
        tangent = FusedTangent(self.simulation, directions)
        for plain in (False, True):  # once more, and rescuing, where a solve failed
            step = tangent.plain_step if plain else tangent.step
            rows: dict[int, np.ndarray] = {}
            changes, on_device = tangent.initial(), self._device_rows(len(directions))
            for n in range(len(self.states) - 1):
                after = step(self.states[n], self.states[n + 1], changes)
                self._rows_of_step(n, changes, after, on_device, rows)
                changes = after
            if plain or tangent.settled():
                break
        if self.clouds:
            rows |= dict(zip(self.clouds, np.split(self.backend.to_host(on_device), self._ends())))
        return np.concatenate([rows[k] for k in range(len(self.frames))])

    def _device_rows(self, columns: int) -> Array:
        count = len(self.view.points) if self.clouds else 0
        return self.backend.xp.empty((count, columns))

    def _rows_of_step(
        self, n: int, before: Changes, after: Changes, on_device: Array, rows: dict[int, np.ndarray]
    ) -> None:
        for k, share in self.places.get(n, []):
            if k in self.seen:
                moved = FrameChanges(before, after, share, self.directions or [], self.backend.to_host)
                rows[k] = self.seen[k].changes(moved)
            else:
                self.view.change(self.clouds.index(k), before.u, after.u, share, on_device)

    def gradient(self, residual_bar: np.ndarray) -> list[ParameterGradient]:
        parts = np.split(residual_bar, np.cumsum([len(r) for r in self.residuals])[:-1])
        pulled = [FrameAdjoint() for _ in self.frames]
        for k, prediction in self.seen.items():
            pulled[k] = prediction.changes_adjoint(parts[k])
        if self.clouds:
            if self.view.owner is not self:  # another run has looked at these frames since
                self.view.owner = self
                self.view.measure(self._u)
            bar = self.backend.to_device(np.concatenate([parts[k] for k in self.clouds])) * self.view.scale
            for k, u_bar in zip(self.clouds, self.view.pull_back(bar)):
                pulled[k] = FrameAdjoint(u=u_bar)
        try:
            motion = go_back(FusedAdjoint(self.simulation), self.states, self.places, pulled)
        except SolverError:  # the plain adjoint knows how to rescue a solve, or says why it cannot
            motion = go_back(Adjoint(self.simulation), self.states, self.places, pulled)
        return [motion, *_direct(pulled)]


def _direct(pulled: Sequence[FrameAdjoint]) -> list[ParameterGradient]:
    """What frames see of the parameters themselves, not through the motion."""
    return [p.parameters for p in pulled if p.parameters is not None]


def go_back(
    adjoint: Adjoint, states: Sequence[State], places: Places, pulled: Sequence[FrameAdjoint]
) -> ParameterGradient:
    """The gradient through the motion, given the derivatives by the state at every frame."""
    simulation = adjoint.simulation
    to_device, dtype = simulation.backend.to_device, simulation.model.dtype
    bar: StateGradient = adjoint.zero_state()
    for n in range(len(states) - 2, -1, -1):
        before_bar: dict[str, Array] = {}
        for k, share in places.get(n, []):
            for name in ("u", "v"):
                given = getattr(pulled[k], name)
                if given is not None:
                    given = to_device(given, dtype)
                    setattr(bar, name, getattr(bar, name) + share * given)
                    before_bar[name] = before_bar.get(name, 0.0) + (1 - share) * given
        bar, _ = adjoint.step_back(states[n], states[n + 1], bar)
        for name, value in before_bar.items():
            setattr(bar, name, getattr(bar, name) + value)
    return adjoint.finish(bar)
