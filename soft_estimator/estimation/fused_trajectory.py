"""A trajectory on a backend that runs whole steps and looks at clouds by itself; same numbers as `Trajectory`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from operator import is_
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.estimation.device_cache import DeviceCache, DeviceViews, device_cache_for, grids_for, views_for
from soft_estimator.estimation.fused_carried_changes import FusedCarriedChanges, FusedCarriedTangent
from soft_estimator.estimation.residuals.interface import Frame, Kinds
from soft_estimator.estimation.residuals.surface_distance import SurfaceDistance
from soft_estimator.estimation.trajectory import TANGENT_TOLERANCE, Moment, PredictedFrame, Trajectory, least_moves_m
from soft_estimator.physics.coarser import CoarserModel
from soft_estimator.physics.frame_times import between, share_of_way, steps_until
from soft_estimator.physics.fused import FusedSimulation, can_fuse
from soft_estimator.physics.fused_coarser import DeviceGrids
from soft_estimator.physics.fused_tangent import Changes, FusedTangent
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State


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
        coarser: CoarserModel | None = None,
    ) -> None:
        self.kinds, self.directions, self.steps = kinds, directions, 0
        self._made_of = (model, parameters, directions), (backend, kinds, steps_of, coarser)
        changes = None
        if directions is not None:
            changes = start.known_changes
            if not isinstance(changes, Changes):
                changes = Changes.stacked(changes, backend)
            if self.grids is not None and not isinstance(changes, FusedCarriedChanges):
                changes = FusedCarriedChanges.from_fine(changes, start.state, self.grids)
        self.before = self.after = Moment(start.state, changes)

    @cached_property
    def cache(self) -> DeviceCache:
        (model, parameters, _), (backend, *_) = self._made_of
        return device_cache_for(model, parameters, backend)

    @cached_property
    def simulation(self) -> FusedSimulation:
        return self.cache.simulation(self._made_of[0][1])

    @cached_property
    def views(self) -> DeviceViews:
        """Of the body that frames see."""
        return views_for(self.simulation.model.body, self.simulation.backend)

    @cached_property
    def grids(self) -> DeviceGrids | None:
        """Where the changes are worked out; None: on the grid of the motion."""
        _, (backend, _, _, coarser) = self._made_of
        if coarser is None or not can_fuse(coarser.model, backend):
            return None
        return grids_for(coarser, backend)

    @cached_property
    def columns(self) -> FusedTangent | FusedCarriedTangent | None:
        """What carries the changes through steps; None where they are not asked for."""
        (_, parameters, directions), (*_, steps_of, _) = self._made_of
        if directions is None:
            return None
        of, cache = (parameters, directions, self.grids, steps_of), self.cache
        known = cache.columns
        if known is None or known[0][0] != parameters or not all(map(is_, known[0][1:], of[1:])):
            known = cache.columns = (of, self._made_columns(directions))
        return known[1]

    def _made_columns(self, directions: list[ParameterGradient]) -> FusedTangent | FusedCarriedTangent:
        (model, parameters, _), (backend, _, steps_of, _) = self._made_of
        tolerance, least_m = max(model.solver.relative_tolerance, TANGENT_TOLERANCE), least_moves_m(model, steps_of)
        if self.grids is None:
            return FusedTangent(self.simulation, directions, tolerance, least_m)
        there = device_cache_for(self.grids.model, parameters, backend).simulation(parameters)
        return FusedCarriedTangent(self.grids, there, directions, tolerance, least_m)

    def through_all(self, frames: Sequence[Frame]) -> list[PredictedFrame]:
        """As in `Trajectory`, with the steps of all frames in one go."""
        step_s, time_s = self.simulation.model.integrator.step_s, self.after.state.time_s
        ends, count = [], 0
        for frame in frames:
            count += steps_until(frame.time_s, time_s + count * step_s, step_s)
            ends.append(count)
        moments = self._advanced(count)
        pairs = [(self._seen(moments[end]), self._seen(moments[end + 1])) for end in ends]
        shares = [share_of_way(f.time_s, a.state.time_s, b.state.time_s) for f, (a, b) in zip(frames, pairs)]
        seen = self._looks(frames, pairs, shares)
        return [PredictedFrame(f, *s, *p, share) for f, s, p, share in zip(frames, seen, pairs, shares)]

    def through(self, frame: Frame) -> PredictedFrame:
        return self.through_all([frame])[0]

    def go_to(self, time_s: float) -> None:
        """As in `Trajectory`."""
        count = steps_until(time_s, self.after.state.time_s, self.simulation.model.integrator.step_s)
        if count:
            self._advanced(count)

    def _advanced(self, count: int) -> list[Moment]:
        """Go on by so many steps: the last moment before the start, the start, and one a step."""
        moments = [self.before, *self._moments(self.after, count)]
        self.before, self.after = moments[-2:]
        return moments

    def _seen(self, moment: Moment) -> Moment:
        """A moment as frames see it."""
        return moment

    def _moments(self, start: Moment, count: int) -> list[Moment]:
        """A moment and those after so many steps from it."""
        if count == 0:
            return [start]
        self.steps += count
        columns = self.columns
        if columns is None:
            return [Moment(state, None) for state in self.simulation.roll(start.state, count, self.count_retaken)[0]]
        before = start.known_changes
        if not isinstance(before, Changes):
            before = Changes.stacked(before, self.simulation.backend)
        if isinstance(columns, FusedCarriedTangent):
            assert isinstance(before, FusedCarriedChanges), "a motion that begins carries its changes"
            return self._carried(columns, start, before, count)
        states, _ = self.simulation.roll(start.state, count, self.count_retaken)
        return [Moment(state, changes) for state, changes in zip(states, columns.through(states, before))]

    def _carried(
        self, columns: FusedCarriedTangent, start: Moment, before: FusedCarriedChanges, count: int
    ) -> list[Moment]:
        """The same with changes that are worked out on the coarser grid, while the steps are under way."""
        step_s, found = self.simulation.model.integrator.step_s, [before]
        times_s = np.cumsum([start.state.time_s, *[step_s] * count])[1:].tolist()

        def carry(_: list[State]) -> None:
            found.extend(columns.through(times_s, before))

        _ = columns.begins(before)  # while there is nothing under way to wait for

        states, _ = self.simulation.roll(start.state, count, self.count_retaken, carry)
        return [Moment(state, changes) for state, changes in zip(states, found)]

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
        view = self.views.view([frame], kind)
        view.owner = self
        u = between(a.state.u.astype(np.float64), b.state.u, share)
        residual = view.measure(u[None]) * view.scale
        width = 0 if b.changes is None else len(b.changes)
        rows = self.simulation.backend.xp.empty((kind.count(frame), width))
        if a.changes is not None and b.changes is not None:
            view.change(0, a.changes.u, b.changes.u, share, rows)
        return residual, rows


class FusedCoarserTrajectory(FusedTrajectory):
    """`CoarserTrajectory` by whole steps: the body on the coarser grid, seen at the fine nodes."""

    def __init__(
        self,
        coarser: CoarserModel,
        parameters: Parameters,
        directions: list[ParameterGradient] | None,
        start: Moment,
        backend: Backend,
        kinds: Kinds,
        steps_of: np.ndarray | None = None,
    ) -> None:
        super().__init__(coarser.model, parameters, None, start, backend, kinds, steps_of)
        self._made_of = (coarser.model, parameters, directions), (backend, kinds, steps_of, coarser)
        self.directions, there, changes = directions, grids_for(coarser, backend), start.changes
        if isinstance(changes, FusedCarriedChanges):
            begins, own = changes.state, changes.coarse
        else:
            begins, own = there.restricted_state(start.state), None
            if directions is not None and changes is not None:
                fine = changes if isinstance(changes, Changes) else Changes.stacked(changes, backend)
                own = FusedCarriedChanges.from_fine(fine, start.state, there).coarse
        self.there = there
        self._last = self._newest = Moment(begins, own if directions is not None else None)

    @cached_property
    def grids(self) -> DeviceGrids | None:
        """None: changes are worked out where the motion is."""
        return None

    @cached_property
    def views(self) -> DeviceViews:
        return views_for(self.there.grids.fine, self.there.backend)

    def __reduce__(self) -> tuple[Any, ...]:
        (_, parameters, directions), (backend, kinds, steps_of, coarser) = self._made_of
        made_of = (coarser, parameters, directions, self.after, backend, kinds, steps_of)
        names = ("before", "after", "steps", "retaken_parts", "most_retaken_parts", "_last", "_newest")
        return FusedCoarserTrajectory, made_of, {name: getattr(self, name) for name in names}

    def _advanced(self, count: int) -> list[Moment]:
        moments = [self._last, *self._moments(self._newest, count)]
        self._last, self._newest = moments[-2:]
        if count:
            self.before, self.after = map(self._seen, moments[-2:])
        return moments

    def _seen(self, moment: Moment) -> Moment:
        state = self.there.prolonged_state(moment.state)
        if not isinstance(moment.given, Changes):
            return Moment(state, None)
        return Moment(state, FusedCarriedChanges(moment.given, moment.state, self.there))
