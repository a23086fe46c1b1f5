"""A trajectory on a backend that runs whole steps and looks at clouds by itself; same numbers as `Trajectory`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.estimation.device_cache import DeviceCache, device_cache_for
from soft_estimator.estimation.residuals.interface import Frame, Kinds
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.estimation.trajectory import TANGENT_TOLERANCE, Moment, PredictedFrame, Trajectory, least_moves_m
from soft_estimator.physics.frame_times import between, share_of_way, steps_until
from soft_estimator.physics.fused import FusedSimulation
from soft_estimator.physics.fused_tangent import Changes, FusedTangent
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters


class FusedTrajectory(Trajectory):
    """All steps through the frames are started together, then their tangents, then the looks; the host waits thrice."""

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        directions: list[ParameterGradient] | None,
        start: Moment,
        backend: Backend,
        kinds: Kinds,
        steps_of: np.ndarray | None = None,
    ) -> None:
        self.kinds, self.directions, self.steps = kinds, directions, 0
        self._made_of = (model, parameters, directions), (backend, kinds, steps_of, None)
        changes = None
        if directions is not None:
            changes = start.known_changes
            if not isinstance(changes, Changes):
                changes = Changes.stacked(changes, backend)
        self.before = self.after = Moment(start.state, changes)

    @cached_property
    def cache(self) -> DeviceCache:
        (model, parameters, _), (backend, *_) = self._made_of
        return device_cache_for(model, parameters, backend)

    @cached_property
    def simulation(self) -> FusedSimulation:
        return self.cache.simulation(self._made_of[0][1])

    @cached_property
    def columns(self) -> FusedTangent | None:
        """What carries the changes through steps; None where they are not asked for."""
        (model, _, directions), (_, _, steps_of, _) = self._made_of
        if directions is None:
            return None
        tolerance = max(model.solver.relative_tolerance, TANGENT_TOLERANCE)
        return FusedTangent(self.simulation, directions, tolerance, least_moves_m(model, steps_of))

    def through_all(self, frames: Sequence[Frame]) -> list[PredictedFrame]:
        """As in `Trajectory`, with the steps of all frames in one go."""
        step_s, time_s = self.simulation.model.integrator.step_s, self.after.state.time_s
        ends, count = [], 0
        for frame in frames:
            count += steps_until(frame.time_s, time_s + count * step_s, step_s)
            ends.append(count)
        moments = [self.before, *self._moments(count)]  # the last one before the start, the start, and one a step
        self.before, self.after = moments[-2:]
        pairs = [(moments[end], moments[end + 1]) for end in ends]
        shares = [share_of_way(f.time_s, a.state.time_s, b.state.time_s) for f, (a, b) in zip(frames, pairs)]
        seen = self._looks(frames, pairs, shares)
        return [PredictedFrame(f, *s, *p, share) for f, s, p, share in zip(frames, seen, pairs, shares)]

    def through(self, frame: Frame) -> PredictedFrame:
        return self.through_all([frame])[0]

    def go_to(self, time_s: float) -> None:
        """As in `Trajectory`."""
        count = steps_until(time_s, self.after.state.time_s, self.simulation.model.integrator.step_s)
        if count:
            self.before, self.after = self._moments(count)[-2:]

    def _moments(self, count: int) -> list[Moment]:
        """The moment at hand and those after so many steps from it."""
        if count == 0:
            return [self.after]
        self.steps += count
        states, _ = self.simulation.roll(self.after.state, count, self.count_fallbacks)
        if self.columns is None:
            return [Moment(state, None) for state in states]
        before = self.after.known_changes
        if not isinstance(before, Changes):
            before = Changes.stacked(before, self.simulation.backend)
        return [Moment(state, changes) for state, changes in zip(states, self.columns.through(states, before))]

    def _looks(
        self, frames: Sequence[Any], pairs: list[tuple[Moment, Moment]], shares: list[float]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Residuals and their changes at frames; clouds are measured on the device and read together."""
        xp, host = self.simulation.backend.xp, self.simulation.backend.to_host
        on_device: dict[int, tuple[Array, Array]] = {}
        out: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for k, (frame, pair, share) in enumerate(zip(frames, pairs, shares)):
            kind = self.kinds.of(frame)
            if isinstance(kind, SurfaceDistance):
                on_device[k] = self._measured(frame, kind, pair, share)
            else:
                out[k] = self.look_between(frame, *pair, share)
        if on_device:
            ends = np.cumsum([len(residual) for residual, _ in on_device.values()])[:-1]
            joined = (host(xp.concatenate(list(part))) for part in zip(*on_device.values()))
            out |= dict(zip(on_device, zip(*(np.split(part, ends) for part in joined))))
        return [out[k] for k in range(len(frames))]

    def _measured(
        self, frame: Any, kind: SurfaceDistance, pair: tuple[Moment, Moment], share: float
    ) -> tuple[Array, Array]:
        a, b = pair
        view = self.cache.view([frame], kind)
        view.owner = self
        u = between(a.state.u.astype(np.float64), b.state.u, share)
        residual = view.measure(u[None]) * view.scale
        width = 0 if b.changes is None else len(b.changes)
        rows = self.simulation.backend.xp.empty((kind.count(frame), width))
        if a.changes is not None and b.changes is not None:
            view.change(0, a.changes.u, b.changes.u, share, rows)
        return residual, rows
