"""The simulations of a window: from its start through its frames, for any value of its variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.estimation.fixed_numbers import Source, fixed_directions, window_sources
from soft_estimator.estimation.residuals.interface import Frame, Kinds
from soft_estimator.estimation.trajectory import (
    Moment,
    PredictedFrame,
    Trajectory,
    coarser_trajectory_from,
    initial_moment,
    trajectory_from,
)
from soft_estimator.estimation.variables import Variables
from soft_estimator.estimation.window.arrival import POSE
from soft_estimator.estimation.window.holding import Holding, moved_rigidly
from soft_estimator.estimation.window.newest import Newest
from soft_estimator.physics.coarser import CoarserModel
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters

# Parts of steps that a trial may take again beyond those of the motion at hand: a trial that is far more violent
# than that is not worth its many small steps.
_MORE_RETAKEN_PARTS = 8


@dataclass(frozen=True, eq=False)
class WindowStart:
    """Where a window begins that has slid: the moment, z there, and the pose variables of the first start (12,)."""

    moment: Moment
    z: np.ndarray
    pose: np.ndarray


@dataclass(frozen=True, eq=False)
class WindowRun:
    """A window simulated at z, and ready to go on.

    Attributes:
        frames: predicted, in order of time. changes_at: z at which the changes were worked out.
        retaken_parts: parts of steps that could not be trusted and were taken again.
        cost: of the window, where it was asked for.
    """

    z: np.ndarray
    trajectory: Trajectory
    frames: list[PredictedFrame]
    changes_at: np.ndarray
    retaken_parts: int
    cost: float = np.nan

    @property
    def stale(self) -> bool:
        """Whether the changes are those of another place."""
        return bool((self.changes_at != self.z).any())


class WindowMotion:
    """Simulates a window at z = (the variables, an offset of the whole surface outwards from its model [m]).

    The offset stands for a bias of the sensor or an error of the shape, which no number of points averages out.

    Args:
        known: how far off what is held fixed may be; None: it is exact, and no column is carried for it.
        clock: wall-clock seconds, by which `seconds_per_step` is measured.
        coarser: the model on which changes are worked out; None: the model itself.
        alone: the motion, too, is that of the coarser model: an eighth of the work, off by what its grid does.
    """

    def __init__(
        self,
        model: Model,
        variables: Variables,
        backend: Backend,
        kinds: Kinds,
        known: KnownToConfig | None = None,
        clock: Callable[[], float] = perf_counter,
        coarser: CoarserModel | None = None,
        alone: bool = False,
    ) -> None:
        self.alone = alone
        self.model, self.variables, self.backend, self.kinds = model, variables, backend, kinds
        self.known, self.clock, self.coarser = known, clock, coarser
        # Of the start; where a clamp keeps the body is no matter of when a window begins.
        of_start = [j for j, v in enumerate(variables.variables) if v.name in POSE and not v.beside]
        self.pose = np.array(of_start, dtype=np.int64)
        # Beside it the modes' amplitudes, which stay those of the first start when the window slides.
        modal = [j for j, v in enumerate(variables.variables) if v.kind.shape == "modes"]
        self.of_start = np.array([*of_start, *modal], dtype=np.int64)
        self.start: WindowStart | None = None
        self.seconds_per_step = 0.0
        self.simulations, self.simulated_s = 0, 0.0  # of the whole window, and how long they took
        # Moves of the surface with each column of what is held fixed [m], (K,); they do not change with the variables.
        self._parameters: Newest[Parameters] = Newest()
        self._columns: Newest[list[ParameterGradient]] = Newest()
        self._sources: dict[str, tuple[bytes, Source | None]] = {}
        self.held_fixed = self.sources(variables.start())
        self.offsets_m = np.array([source.offset_m for source in self.held_fixed for _ in source.directions])
        # How far the variables go, the offset, and what is held fixed, which is counted in standard deviations.
        within = [v.kind.linear_within for v in variables.variables]
        self.steps_of = np.array([*within, 1.0, *np.ones(len(self.offsets_m))])
        self.holding = Holding(variables, self.pose, model.body, model.integrator.step_s, np.array(within))

    def on_coarser_grid(self) -> WindowMotion | None:
        """The same from its first frame on, on the coarser grid alone and without a column for what is held fixed: a
        third of the work of its changes. None without such a grid, or where this is it."""
        if self.coarser is None or self.alone:
            return None
        rest = (self.backend, self.kinds, None, self.clock, self.coarser)
        return WindowMotion(self.model, self.variables, *rest, alone=True)

    def parameters(self, z: np.ndarray) -> Parameters:
        """Parameters of the simulation at z; the pose is that of the first start for good."""
        theta = self.theta(z)
        return self._parameters.of((theta.tobytes(), self.variables), lambda: self.variables.parameters(theta))

    def theta(self, z: np.ndarray) -> np.ndarray:
        """The variables of the simulation at z."""
        theta = np.array(z[: len(self.variables)], dtype=np.float64)
        if self.start is not None:
            theta[self.pose] = self.start.pose
        return theta

    def sources(self, z: np.ndarray) -> list[Source]:
        """What is held fixed and may be wrong; the same things (`held_fixed`) for any z."""
        if self.known is None:
            return []
        return window_sources(self.model, self.variables, self.parameters(z), self.known, self._sources)

    def _directions(self, z: np.ndarray) -> list[ParameterGradient]:
        """Of the variables, of the offset, and of what is held fixed; nobody changes them."""
        of = (self.theta(z).tobytes(), self.variables, self.start is None)
        return self._columns.of(of, lambda: self._directions_at(z))

    def _directions_at(self, z: np.ndarray) -> list[ParameterGradient]:
        still = ParameterGradient.zero(len(self.variables.reference.youngs_modulus_pa))
        out = [*self.variables.directions(self.theta(z)), still, *fixed_directions(self.sources(z))]
        if self.start is not None:
            for j in self.pose:
                out[j] = still
        return out

    def run(
        self, z: np.ndarray, frames: Sequence[Frame], retaken_parts: int | None = None, like: WindowRun | None = None
    ) -> WindowRun:
        """Simulate the window with its changes; retaken_parts: of the motion at hand, for a trial. like: a run of the
        same frames, whose first part is taken over as far as it holds."""
        start_s = self.clock()
        trajectory, predicted = self._through(z, frames, retaken_parts, with_changes=True, like=like)
        if trajectory.steps:
            self.seconds_per_step = (self.clock() - start_s) / trajectory.steps
        return WindowRun(z, trajectory, predicted, z, trajectory.retaken_parts)

    def look(self, z: np.ndarray, frames: Sequence[Frame], like: WindowRun | None = None) -> list[PredictedFrame]:
        """The frames as the motion at z shows them, without its changes; like: as in `run`."""
        return self.follow(z, frames, like)[1]

    def follow(
        self, z: np.ndarray, frames: Sequence[Frame], like: WindowRun | None = None
    ) -> tuple[Trajectory, list[PredictedFrame]]:
        """The same, and the motion at its end, which `through` leads on to the next frames."""
        return self._through(z, frames, None, with_changes=False, like=like)

    def run_keeping_changes(self, z: np.ndarray, at: WindowRun) -> WindowRun:
        """Simulate the motion only, several times faster; the changes are those of `at`."""
        frames = [e.frame for e in at.frames]
        trajectory, moved = self._through(z, frames, at.retaken_parts, with_changes=False, like=at)
        predicted = [old.moved_to(new) for old, new in zip(at.frames, moved)]
        going_on = self.continued(z, predicted[-1], trajectory.steps)
        return WindowRun(z, going_on, predicted, at.changes_at, trajectory.retaken_parts)

    def _through(
        self,
        z: np.ndarray,
        frames: Sequence[Frame],
        retaken_parts: int | None,
        with_changes: bool,
        like: WindowRun | None = None,
    ) -> tuple[Trajectory, list[PredictedFrame]]:
        self.simulations += 1
        start_s = self.clock()
        parameters, directions = self.parameters(z), self._directions(z)
        held = self._held(z, like, with_changes)
        if held:
            moment = held[-1].after
        elif self.start is None:
            moment = initial_moment(self.model, parameters, directions, self.backend)
        else:
            moment = self.start.moment.moved(z - self.start.z)
        wanted = directions if with_changes else None
        trajectory = self._trajectory(parameters, wanted, moment)
        if held:
            trajectory.before = held[-1].before
        if retaken_parts is not None:
            trajectory.most_retaken_parts = retaken_parts + _MORE_RETAKEN_PARTS
        first = [trajectory.seen_between(e.frame, e.before, e.after, e.share) for e in held]
        seen = [*first, *trajectory.through_all(frames[len(held) :])]
        trajectory.most_retaken_parts = np.inf  # where it is taken it goes on through frames that no motion knows yet
        self.simulated_s += self.clock() - start_s
        return trajectory, [self._offset(e, z) for e in seen]

    def _held(self, z: np.ndarray, like: WindowRun | None, with_changes: bool) -> list[PredictedFrame]:
        """The first frames of a run as they are at z, as far as they need not be simulated for that."""
        if like is None or self.pose.size == 0:
            return []
        count = self.holding.frames(like.frames, z - like.z, z - like.changes_at)

        def moved(moment: Moment) -> Moment:
            there = moved_rigidly(moment, z - like.z, self.model.body)
            return there if with_changes else Moment(there.state, None)

        return [replace(e, before=moved(e.before), after=moved(e.after)) for e in like.frames[:count]]

    def _trajectory(
        self, parameters: Parameters, directions: list[ParameterGradient] | None, start: Moment
    ) -> Trajectory:
        if self.alone and self.coarser is not None:
            return coarser_trajectory_from(
                self.coarser, parameters, directions, start, self.backend, self.kinds, self.steps_of
            )
        return trajectory_from(
            self.model, parameters, directions, start, self.backend, self.kinds, self.steps_of, self.coarser
        )

    def through(self, trajectory: Trajectory, frame: Frame, z: np.ndarray) -> PredictedFrame:
        """A trajectory's next frame, seen with the surface moved outwards by the offset in z."""
        return self._offset(trajectory.through(frame), z)

    def _offset(self, seen: PredictedFrame, z: np.ndarray) -> PredictedFrame:
        by_offset = self.kinds.of(seen.frame).by_offset(seen.frame)
        jacobian, fixed = seen.jacobian, seen.fixed
        if jacobian.shape[1]:
            jacobian, fixed = np.split(jacobian.copy(), [len(z)], axis=1)
            jacobian[:, -1] = by_offset
            fixed += by_offset[:, None] * self.offsets_m
        return replace(seen, residual=seen.residual + z[-1] * by_offset, jacobian=jacobian, fixed=fixed)

    def continued(self, z: np.ndarray, newest: PredictedFrame, steps: int) -> Trajectory:
        """A trajectory that goes on from the newest frame."""
        parameters, directions = self.parameters(z), self._directions(z)
        out = self._trajectory(parameters, directions, newest.after)
        out.before, out.steps = newest.before, steps
        return out
