"""The tangent on a backend that runs whole steps by itself: all directions at once, the same numbers as `Tangent`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np

from soft_estimator.backends.interface import Array, Backend, Paths
from soft_estimator.physics.fused import FusedSimulation
from soft_estimator.physics.fused_guard import failed
from soft_estimator.physics.fused_setup import direction_row
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.state import State
from soft_estimator.physics.tangent import StateTangent, Tangent, least_force_n


@dataclass(frozen=True, eq=False)
class Changes(Sequence[StateTangent]):
    """Changes of u, v and a along several directions, each (columns, N, 3); as a sequence, one of each direction."""

    u: Array
    v: Array
    a: Array
    backend: Backend

    @classmethod
    def stacked(cls, tangents: Sequence[StateTangent], backend: Backend) -> Changes:
        parts = [backend.xp.stack([getattr(t, name) for t in tangents]) for name in ("u", "v", "a")]
        return cls(parts[0], parts[1], parts[2], backend)

    def __len__(self) -> int:
        return len(self.u)

    @overload
    def __getitem__(self, j: int) -> StateTangent: ...
    @overload
    def __getitem__(self, j: slice) -> Sequence[StateTangent]: ...
    def __getitem__(self, j: int | slice) -> StateTangent | Sequence[StateTangent]:
        if isinstance(j, slice):
            return [self[k] for k in range(*j.indices(len(self)))]
        return StateTangent(self.u[j], self.v[j], self.a[j])

    def __iter__(self) -> Iterator[StateTangent]:
        return (self[j] for j in range(len(self)))

    def mixed(self, weights: np.ndarray) -> Changes:
        """Σ_i weights_ij · change_i for every j; weights (columns, new columns), on the host."""
        turned = self.backend.to_device(weights.T, self.u.dtype)

        def mix(stack: Array) -> Array:
            return (turned @ stack.reshape(len(self), -1)).reshape(-1, *stack.shape[1:])

        return Changes(mix(self.u), mix(self.v), mix(self.a), self.backend)


class FusedTangent:
    """Carries changes of the state through the steps of a fused simulation.

    The steps are only started; `settled` and `through` wait for them and read how their solves went. A step that
    backward Euler took is done the plain way.

    Args:
        tolerance: of the solves, relative; by default the simulation's own. least_m: as in `Tangent`.
    """

    def __init__(
        self,
        simulation: FusedSimulation,
        directions: list[ParameterGradient],
        tolerance: float | None = None,
        least_m: np.ndarray | None = None,
    ) -> None:
        self.simulation, self.directions, self._least_m = simulation, directions, least_m
        self.tolerance = simulation.model.solver.relative_tolerance if tolerance is None else tolerance
        rows = np.array([direction_row(simulation.parameters, d) for d in directions])
        simulation.batch.serve(simulation)
        moves = np.array([simulation.batch.placements.moves(d) for d in directions])
        moving = any(path.moves for _, path in simulation.model.dirichlet.held)
        start = np.stack([u for u, _ in self.plain.start]) if moving else None
        self.steps: Any = simulation.tangent_steps(len(directions))
        self._least = None if least_m is None else simulation.backend.to_device(least_force_n(simulation, least_m))
        self._rows, self._moves = simulation.backend.to_device(rows), simulation.backend.to_device(moves)
        self._start = None if start is None else simulation.backend.to_device(start)
        self._reports: list[list[Array]] = []  # of the solves of each step
        self._parts: dict[int, FusedTangent] = {}  # of steps that were cut, by how many parts make a step

    @cached_property
    def plain(self) -> Tangent:
        """The same, step by step."""
        loose = self.simulation.with_solver(relative_tolerance=self.tolerance)
        return Tangent(loose, self.directions, self._least_m)

    def initial(self) -> Changes:
        """Changes of the initial state."""
        return Changes.stacked(self.plain.initial(), self.simulation.backend)

    def step(self, before: State, after: State, changes: Changes, at: tuple[Paths, Array] | None = None) -> Changes:
        """Changes of the state after a step, given those before it; waits only where backward Euler took it.

        at: where held regions and obstacles are in it, and where its report goes, zero (columns, 3), where they are on
            the device already.
        """
        if after.fallback_parts:
            return self.plain_step(before, after, changes)
        if after.substeps > 1:
            return self._through_parts(before, after, changes)
        s, xp = self.simulation, self.simulation.xp
        s.batch.serve(s)
        paths, report = at or self._places([before, after])[0]
        u, v, a = (xp.empty_like(x) for x in (changes.u, changes.v, changes.a))
        out = Changes(u, v, a, s.backend)
        self._reports.append([report])
        self.steps.step(
            self._rows,
            self._moves,
            self._start,
            (before.u, before.v, before.a),
            after.u,
            (changes.u, changes.v, changes.a),
            (out.u, out.v, out.a),
            paths,
            self.tolerance,
            report,
            self._least,
        )
        return out

    def _places(self, states: Sequence[State]) -> list[tuple[Paths, Array]]:
        """Where held regions and obstacles are in the steps between states, and where their reports go."""
        times = [(before.time_s, after.time_s) for before, after in pairwise(states)]
        reports = self.simulation.xp.zeros((len(times), len(self.directions), 3))
        return list(zip(self.simulation.batch.paths(np.array(times)), reports))

    def _through_parts(self, before: State, after: State, changes: Changes) -> Changes:
        count, states = after.substeps, self.simulation.through_parts(before, after)
        if count not in self._parts:
            finer = self.simulation.part(count)
            self._parts[count] = FusedTangent(finer, self.directions, self.tolerance, self._least_m)
        part = self._parts[count]
        for start, end in pairwise(states):
            changes = part.step(start, replace(end, substeps=1), changes)
        self._reports.append([report for reports in part._reports for report in reports])
        part._reports.clear()
        return changes

    def plain_step(self, before: State, after: State, changes: Changes) -> Changes:
        """The same by `Tangent`, which rescues solves."""
        (s, count), start = self.simulation.parts_of(after), before
        for _ in range(count - 1):  # the last one's linearisation is asked for
            start = s.step_once(start)[0]
        tangents, _ = self.plain.step(before, after, s.linearise(start), list(changes))
        return Changes.stacked(tangents, self.simulation.backend)

    def settled(self) -> bool:
        """Whether all solves since the last call went well; waits for them."""
        return self._first_failed()[1]

    def _first_failed(self) -> tuple[int, bool]:
        """How many of the steps since the last call went well before one failed, and whether all did; waits."""
        if not self._reports:
            return 0, True
        count, ends = len(self._reports), np.cumsum([sum(map(len, reports)) for reports in self._reports])
        rows = self.simulation.xp.concatenate([report for reports in self._reports for report in reports])
        wrong = (k for k, row in enumerate(self.simulation.backend.to_host(rows)) if failed(row))
        self._reports.clear()
        first = next(wrong, None)
        good = count if first is None else int(np.searchsorted(ends, first, side="right"))
        return good, good == count

    def through(self, states: Sequence[State], changes: Changes) -> list[Changes]:
        """Changes at all states of consecutive steps, given those at the first; waits, and rescues where needed."""
        return self.finished(states, self.started(states, changes))

    def started(self, states: Sequence[State], changes: Changes) -> list[Changes]:
        """The same as far as the backend makes the steps by itself, given the changes at the first state; does not
        wait."""
        self._reports.clear()
        return [changes, *self._steps(states, changes)]

    def finished(self, states: Sequence[State], started: list[Changes]) -> list[Changes]:
        """Changes at all states, of which the first ones were started; what the backend cannot or failed to do is done
        the plain way."""
        out, begun = list(started), 0
        while True:
            good = begun + self._first_failed()[0]
            del out[good + 1 :]
            if len(out) == len(states):
                return out
            out.append(self.plain_step(states[good], states[good + 1], out[-1]))
            begun = len(out) - 1
            out += self._steps(states[begun:], out[-1])

    def _steps(self, states: Sequence[State], changes: Changes) -> list[Changes]:
        """Changes at the states after the first, as far as the backend makes the steps by itself."""
        out: list[Changes] = []
        for (before, after), place in zip(pairwise(states), self._places(states)):
            if after.fallback_parts:
                break
            changes = self.step(before, after, changes, place)
            out.append(changes)
        return out
