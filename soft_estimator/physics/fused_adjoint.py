"""The adjoint on a backend that runs whole steps by itself, the same numbers as `Adjoint`."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.physics.adjoint import Adjoint, StateGradient
from soft_estimator.physics.fused import FusedSimulation
from soft_estimator.physics.fused_guard import failed
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.solver import SolveReport, SolverError
from soft_estimator.physics.state import State


class FusedAdjoint(Adjoint):
    """`Adjoint` whose steps are only started; `finish` waits for them."""

    def __init__(self, simulation: FusedSimulation) -> None:
        super().__init__(simulation)
        self._fused, self.batch = simulation, simulation.batch
        self.batch.stepper.start_backward()
        self._reports: list[Array] = []
        self._parts: dict[int, FusedAdjoint] = {}  # of steps that were cut, by how many parts make a step

    def step_back(self, before: State, after: State, bar: StateGradient) -> tuple[StateGradient, SolveReport]:
        """As in `Adjoint`; how the solve went is not known yet: see `reports`."""
        if after.fallback_parts:
            return super().step_back(before, after, bar)
        if after.substeps > 1:
            return self._parts_back(before, after, bar)
        self.batch.serve(self._fused)
        out = StateGradient(bar.u.copy(), bar.v.copy(), bar.a.copy())
        self._reports.append(self.simulation.xp.zeros((1, 3)))
        paths = self.batch.paths(np.array([[before.time_s, after.time_s]]))[0]
        states = (before.u, before.v, before.a)
        self.batch.stepper.backward(states, after.u, (out.u, out.v, out.a), paths, self._reports[-1])
        return out, SolveReport(0, float("nan"))

    def _parts_back(self, before: State, after: State, bar: StateGradient) -> tuple[StateGradient, SolveReport]:
        count, states = after.substeps, self._fused.through_parts(before, after)
        if count not in self._parts:
            self._parts[count] = FusedAdjoint(self._fused.part(count))
            self._parts[count].gradient = self.gradient
        report = SolveReport(0, float("nan"))
        for start, end in reversed(list(pairwise(states))):
            bar, report = self._parts[count].step_back(start, replace(end, substeps=1), bar)
        return bar, report

    def reports(self) -> list[SolveReport]:
        """How the solves went, in the order of the calls; waits. `rescued` marks those that failed."""
        rows = self.simulation.backend.to_host(self.simulation.xp.concatenate(self._reports))
        return [SolveReport(int(row[0]), float(row[1]), failed(row)) for row in rows]

    def finish(self, bar: StateGradient) -> ParameterGradient:
        for part in self._parts.values():
            part._collect()
            self.start_bar = self.start_bar + part.start_bar
        self._collect()
        return super().finish(bar)

    def _collect(self) -> None:
        """Take over what the device has summed up."""
        if self._reports:
            worst = max(self.reports(), key=lambda report: report.rescued)
            if worst.rescued:
                raise SolverError(
                    f"a solve of the adjoint stopped at a relative residual of {worst.relative_residual:.1e}; "
                    "use the plain Adjoint, which rescues such solves"
                )
            self.batch.serve(self._fused)
            self.batch.add_received([self.gradient])
            self.start_bar = self.start_bar + self.batch.start_sums()[0]
