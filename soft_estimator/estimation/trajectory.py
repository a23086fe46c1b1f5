"""A motion and how it changes with every variable, run through frames one after another, and ready to go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.estimation.carried_changes import Carried, CarriedChanges, CarriedTangent
from soft_estimator.estimation.device_cache import device_cache_for
from soft_estimator.estimation.residuals.interface import Frame, FrameChanges, FrameState, Kinds
from soft_estimator.physics.coarser import CoarserModel
from soft_estimator.physics.frame_times import share_of_way, steps_until
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
# Nor any change smaller than this part of the body's size, for a step of a variable over which it is linear: rounding
# makes about a thousandth of that, and before a body touches anything most of its changes are nothing else.
TANGENT_LEAST = 1e-7
_NO_CHANGES = "this motion was run without its changes; run it with directions"


@dataclass(frozen=True, eq=False)
class Moment:
    """A moment in time between two steps: the state, and its changes with each variable (None: not asked for).

    mixing: what the given changes are still to be mixed by, where they are asked for: a window that slides says all its
    moments in terms of other variables, and most of them are never asked.
    """

    state: State
    given: ColumnChanges | Changes | None
    mixing: np.ndarray | None = None

    @cached_property
    def changes(self) -> ColumnChanges | Changes | None:
        """Of the state, with each variable."""
        if self.given is None or self.mixing is None:
            return self.given
        changes = self.given.mixed(self.mixing)
        return changes.followed(self.state) if isinstance(changes, Carried) else changes

    @property
    def known_changes(self) -> ColumnChanges | Changes:
        """The changes, where they were asked for."""
        if self.changes is None:
            raise ValueError(_NO_CHANGES)
        return self.changes

    def moved(self, by: np.ndarray) -> Moment:
        """The moment with the variables moved by `by` (P,), to first order; columns after those stay."""
        changes = self.known_changes
        along = changes.moved(self._weights(by)) if isinstance(changes, Carried) else changes
        return Moment(self.moved_state(by), along)

    def moved_state(self, by: np.ndarray) -> State:
        """The state with the variables moved by `by` (P,), to first order."""
        s, step = self.state, self.known_changes.mixed(self._weights(by))[0]
        memory = {name: part + step.memory[name] if name in step.memory else part for name, part in s.memory.items()}
        return replace(s, u=s.u + step.u, v=s.v + step.v, a=s.a + step.a, memory=memory)

    def _weights(self, by: np.ndarray) -> np.ndarray:
        """The same as weights of the changes, (P, 1)."""
        weights = np.zeros((len(self.known_changes), 1))
        weights[: len(by), 0] = by
        return weights

    def in_terms_of(self, mixing: np.ndarray) -> Moment:
        """The changes with other variables, of which the old ones are mixing (P, P) @ new ones; columns after those
        stay as they are."""
        if self.given is None:
            raise ValueError(_NO_CHANGES)
        whole = np.eye(len(self.given))
        whole[: len(mixing), : len(mixing)] = mixing
        if self.mixing is None or "changes" in vars(self):
            return Moment(self.state, self.changes, whole)
        return Moment(self.state, self.given, self.mixing @ whole)


@dataclass(frozen=True, eq=False)
class PredictedFrame:
    """A frame and what the trajectory makes of it.

    Attributes:
        residual: as its kind gives it, (n,). jacobian: its change with each variable, (n, P).
        before: the moment at or before the frame. after: the one at or after it.
        share: how far from one to the other the frame lies.
        fixed: its change with each number that is held fixed and may be wrong, (n, K), for a standard deviation of it.
    """

    frame: Any
    residual: np.ndarray
    jacobian: np.ndarray
    before: Moment
    after: Moment
    share: float
    fixed: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def in_terms_of(self, mixing: np.ndarray) -> PredictedFrame:
        """The same for other variables; see `Moment.in_terms_of`."""
        return replace(
            self,
            jacobian=self.jacobian @ mixing,
            before=self.before.in_terms_of(mixing),
            after=self.after.in_terms_of(mixing),
        )

    def moved_to(self, motion: PredictedFrame) -> PredictedFrame:
        """The motion and residuals of another prediction of the frame, with the changes of this one."""
        return replace(
            motion,
            jacobian=self.jacobian,
            fixed=self.fixed,
            before=replace(self.before, state=motion.before.state),
            after=replace(self.after, state=motion.after.state),
        )


class Trajectory:
    """Runs from a moment through frames in order of time.

    Args:
        directions: change of the parameters with each variable, (P,); zero for one that moves the state alone. None:
            the motion is run without its changes, several times faster.
        steps_of: how far each variable may go before it is made linear anew, (P,); changes that do not show over such
            a step are left out. None: none is.
        coarser: works out the changes on a coarser grid; None: on that of the motion.
    """

    retaken_parts: int = 0  # parts of steps that could not be trusted and were taken again
    most_retaken_parts: float = np.inf

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        directions: list[ParameterGradient] | None,
        start: Moment,
        backend: Backend,
        kinds: Kinds,
        steps_of: np.ndarray | None = None,
        coarser: CoarserModel | None = None,
    ) -> None:
        self.kinds, self.directions = kinds, directions
        self._made_of = (model, parameters, directions), (backend, kinds, steps_of, coarser)
        self.before = self.after = start if directions is not None else Moment(start.state, None)
        if directions is not None and coarser is not None:
            self.before = self.after = _carried(start, coarser)
        self.steps = 0

    @cached_property
    def simulation(self) -> Simulation:
        """Made when the first step is taken: of most trajectories that could go on nobody asks it."""
        (model, parameters, _), (backend, *_) = self._made_of
        return Simulation(model, parameters, backend)

    @cached_property
    def tangent(self) -> Tangent | CarriedTangent | None:
        """What carries the changes through steps; None where they are not asked for."""
        (model, parameters, directions), (backend, _, steps_of, coarser) = self._made_of
        if directions is None:
            return None
        tolerance = max(model.solver.relative_tolerance, TANGENT_TOLERANCE)
        least_m = least_moves_m(model, steps_of)
        if coarser is None:
            return Tangent(self.simulation.with_solver(relative_tolerance=tolerance), directions, least_m)
        return CarriedTangent(coarser, parameters, directions, backend, tolerance, least_m)

    def __reduce__(self) -> tuple[Any, ...]:
        """What it is made of and where it stands: what is worked out from that is worked out again, to the bit."""
        model, rest = self._made_of
        names = ("before", "after", "steps", "retaken_parts", "most_retaken_parts")
        return trajectory_from, (*model, self.after, *rest), {name: getattr(self, name) for name in names}

    def through(self, frame: Frame) -> PredictedFrame:
        """Go on to a frame that is not earlier than the last one, and look."""
        self.go_to(frame.time_s)
        a, b = self.before, self.after
        return self.seen_between(frame, a, b, share_of_way(frame.time_s, a.state.time_s, b.state.time_s))

    def seen_between(self, frame: Frame, a: Moment, b: Moment, share: float) -> PredictedFrame:
        """What is seen of a frame at a share of the way from one moment to the next."""
        return PredictedFrame(frame, *self.look_between(frame, a, b, share), a, b, share)

    def through_all(self, frames: Sequence[Frame]) -> list[PredictedFrame]:
        """Go on through several frames."""
        return [self.through(frame) for frame in frames]

    def go_to(self, time_s: float) -> None:
        """Take the steps that lead to a time."""
        for _ in range(steps_until(time_s, self.after.state.time_s, self.simulation.model.integrator.step_s)):
            self.before, self.after = self.after, self._step(self.after)

    def look_between(self, frame: Any, a: Moment, b: Moment, share: float) -> tuple[np.ndarray, np.ndarray]:
        """The residuals (n,) of a frame at a share of the way from one moment to the next; their changes (n, P)."""
        host = self.simulation.backend.to_host
        at = FrameState(a.state, b.state, share, self.simulation.parameters, host)
        seen = self.kinds.of(frame).predict(frame, at)
        residual = seen.residual
        if a.changes is None or b.changes is None:
            return residual, np.zeros((len(residual), 0))
        return residual, seen.changes(FrameChanges(a.changes, b.changes, share, self.directions or [], host))

    def count_retaken(self, states: list[State]) -> None:
        """Note what the steps to these states took, and give up where it is too much."""
        self.retaken_parts += sum(int(state.retaken_parts) for state in states)
        if self.retaken_parts > self.most_retaken_parts:
            raise SolverError("the motion is too violent for its steps; use a smaller step_s")

    def _step(self, moment: Moment) -> Moment:
        state, _, linearisation = self.simulation.step_keeping(moment.state)
        self.steps += 1
        self.count_retaken([state])
        if self.tangent is None:
            return Moment(state, None)
        assert isinstance(self.tangent, Tangent), "changes on a coarser grid are `CarriedTrajectory`'s"
        changes, _ = self.tangent.step(moment.state, state, linearisation, moment.known_changes)
        return Moment(state, changes)


class CarriedTrajectory(Trajectory):
    """Steps the body, and beside it the coarser one that makes its changes: neither needs the other's motion."""

    def through(self, frame: Frame) -> PredictedFrame:
        return self.through_all([frame])[0]

    def through_all(self, frames: Sequence[Frame]) -> list[PredictedFrame]:
        around = self._around([frame.time_s for frame in frames])
        shares = [share_of_way(f.time_s, a.state.time_s, b.state.time_s) for f, (a, b) in zip(frames, around)]
        return [self.seen_between(f, a, b, share) for f, (a, b), share in zip(frames, around, shares)]

    def go_to(self, time_s: float) -> None:
        self._around([time_s])

    def _around(self, times_s: Sequence[float]) -> list[tuple[Moment, Moment]]:
        """Take the steps that lead to times, which rise: the moments before and after each."""
        start, step_s, ends, count = self.after, self.simulation.model.integrator.step_s, [], 0
        for time_s in times_s:
            count += steps_until(time_s, start.state.time_s + count * step_s, step_s)
            ends.append(count)
        if count == 0:
            return [(self.before, start)] * len(ends)
        stamps = np.cumsum([start.state.time_s, *[step_s] * count])[1:].tolist()
        asked, known, tangent = {n for end in ends for n in (end - 1, end)}, start.known_changes, self.tangent
        assert isinstance(tangent, CarriedTangent) and isinstance(known, CarriedChanges)
        states, changes = self.simulation.backend.beside(
            lambda: self._states(start.state, count, asked), lambda: _changes(tangent, known, stamps, asked)
        )
        moments = {n: Moment(state, changes[n]) for n, state in states.items()}
        moments |= {-1: self.before, 0: start}
        self.before, self.after = moments[count - 1], moments[count]
        return [(moments[end - 1], moments[end]) for end in ends]

    def _states(self, state: State, count: int, asked: set[int]) -> dict[int, State]:
        """After so many steps from a state, of those that are asked for."""
        found = {}
        for n in range(1, count + 1):
            state, _ = self.simulation.step(state)
            self.steps += 1
            self.count_retaken([state])
            if n in asked:
                found[n] = state
        return found


def _changes(
    tangent: CarriedTangent, changes: CarriedChanges, stamps_s: list[float], asked: set[int]
) -> dict[int, CarriedChanges]:
    """The same of the changes, at the steps' times [s]."""
    found = {}
    for n, time_s in enumerate(stamps_s, 1):
        changes = tangent.step(changes, time_s)
        if n in asked:
            found[n] = changes
    return found


class CoarserTrajectory(Trajectory):
    """Steps the body on the coarser grid alone; what is seen of it is that, at the fine nodes.

    An eighth of the work and less. It is off by what the grid does, and shows what something else does to the motion:
    a shorter step, another stiffness.
    """

    def __init__(
        self,
        grids: CoarserModel,
        parameters: Parameters,
        directions: list[ParameterGradient] | None,
        start: Moment,
        backend: Backend,
        kinds: Kinds,
        steps_of: np.ndarray | None = None,
    ) -> None:
        super().__init__(grids.model, parameters, directions, start, backend, kinds, steps_of, grids)
        self.grids, changes = grids, start.changes
        begins = changes.state if isinstance(changes, CarriedChanges) else grids.restricted_state(start.state)
        self._last = self._newest = Moment(begins, self.after.given)

    def __reduce__(self) -> tuple[Any, ...]:
        (_, parameters, directions), (backend, kinds, steps_of, grids) = self._made_of
        made_of = (grids, parameters, directions, self.after, backend, kinds, steps_of)
        names = ("before", "after", "steps", "retaken_parts", "most_retaken_parts", "_last", "_newest")
        return CoarserTrajectory, made_of, {name: getattr(self, name) for name in names}

    def go_to(self, time_s: float) -> None:
        steps = steps_until(time_s, self.after.state.time_s, self.grids.model.integrator.step_s)
        for _ in range(steps):
            self._last, self._newest = self._newest, self._step(self._newest)
        if steps:
            self.before, self.after = (
                Moment(self.grids.prolonged_state(m.state), m.given) for m in (self._last, self._newest)
            )

    def _step(self, moment: Moment) -> Moment:
        self.steps += 1
        if isinstance(self.tangent, CarriedTangent) and isinstance(moment.given, CarriedChanges):
            changes = self.tangent.step(moment.given, moment.given.state.time_s + self.grids.model.integrator.step_s)
            self.count_retaken([changes.state])
            return Moment(changes.state, changes)
        state, _ = self.simulation.step(moment.state)
        self.count_retaken([state])
        return Moment(state, None)


def _carried(start: Moment, grids: CoarserModel) -> Moment:
    """A moment with its changes on the coarser grid, too."""
    changes = start.known_changes
    if isinstance(changes, CarriedChanges) or not isinstance(changes, ColumnChanges):
        return start
    return Moment(start.state, CarriedChanges.from_fine(changes, start.state, grids))


def initial_moment(
    model: Model, parameters: Parameters, directions: list[ParameterGradient], backend: Backend
) -> Moment:
    """The start of a simulation, undeformed and in rigid motion."""
    if can_fuse(model, backend):
        simulation: Simulation = device_cache_for(model, parameters, backend).simulation(parameters)
    else:
        simulation = Simulation(model, parameters, backend)
    return Moment(simulation.initial_state(), Tangent(simulation, directions).initial())


def least_moves_m(model: Model, steps_of: np.ndarray | None) -> np.ndarray | None:
    """Moves within a step that do not show, (P,) [m], for variables that go so far, (P,); None: all of them do."""
    size_m = float(np.linalg.norm(np.ptp(model.body.node_position_m, axis=0)))
    return None if steps_of is None else TANGENT_LEAST * size_m / steps_of


def trajectory_from(
    model: Model,
    parameters: Parameters,
    directions: list[ParameterGradient] | None,
    start: Moment,
    backend: Backend,
    kinds: Kinds,
    steps_of: np.ndarray | None = None,
    coarser: CoarserModel | None = None,
) -> Trajectory:
    """The trajectory that suits the backend; see `Trajectory` for the arguments."""
    if can_fuse(model, backend):
        from soft_estimator.estimation.fused_trajectory import FusedTrajectory

        return FusedTrajectory(model, parameters, directions, start, backend, kinds, steps_of, coarser)
    kind = Trajectory if directions is None or coarser is None else CarriedTrajectory
    return kind(model, parameters, directions, start, backend, kinds, steps_of, coarser)


def coarser_trajectory_from(
    grids: CoarserModel,
    parameters: Parameters,
    directions: list[ParameterGradient] | None,
    start: Moment,
    backend: Backend,
    kinds: Kinds,
    steps_of: np.ndarray | None = None,
) -> Trajectory:
    """One on the coarser grid alone, that suits the backend; see `CoarserTrajectory`."""
    if can_fuse(grids.model, backend):
        from soft_estimator.estimation.fused_trajectory import FusedCoarserTrajectory

        return FusedCoarserTrajectory(grids, parameters, directions, start, backend, kinds, steps_of)
    return CoarserTrajectory(grids, parameters, directions, start, backend, kinds, steps_of)
