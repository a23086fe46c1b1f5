"""Which of the steps that a backend made by itself can be trusted; the rules are those of `guard`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from soft_estimator.physics.energy import Balance, drift_j
from soft_estimator.physics.guard import relative_to_allowed
from soft_estimator.physics.solver import STALL_ACCEPTED
from soft_estimator.physics.terms.corotated import LARGEST_SURPRISE

if TYPE_CHECKING:
    from soft_estimator.physics.step import Simulation

_SURPRISE, _WORK, _STIFFNESS, _GIVE = 1, 4, 6, 7  # places in a row of sums


def failed(row: np.ndarray) -> bool:
    """Whether a solve's report (iterations, relative residual, status) is one that the plain solver would rescue."""
    return not (row[2] == 0 or (row[2] == 3 and row[1] < STALL_ACCEPTED))


def first_unsound(s: Simulation, report: np.ndarray, sums: np.ndarray) -> int:
    """The first step that the plain way must take instead, or the number of steps.

    Args:
        report: of the solves, (steps, 3). sums: of the states, (steps + 1, 11), as the backend's guard gives them.
    """
    judge = _Judge(s)
    start = judge.energy(sums[0])
    for k, (row, after) in enumerate(zip(report, sums[1:])):
        end = judge.energy(after)
        if failed(row) or not judge.stays(after) or relative_to_allowed(start, end, float(after[_WORK])) > 1.0:
            return k
        start = end
    return len(report)


def sound_together(s: Simulation, report: np.ndarray, sums: np.ndarray) -> bool:
    """Whether the parts of one step can be trusted, which make no energy all in all; arguments as above."""
    judge = _Judge(s)
    if any(failed(row) for row in report) or not all(judge.stays(after) for after in sums[1:]):
        return False
    start, end = judge.energy(sums[0]), judge.energy(sums[-1])
    return relative_to_allowed(start, end, float(sums[1:, _WORK].sum())) <= 1.0


class _Judge:
    """What the rows of sums of one body are held against, worked out once."""

    def __init__(self, s: Simulation) -> None:
        body = s.model.body
        self.s, self.mass_kg = s, s.parameters.density_kg_m3 * float(body.node_volume_m3.sum())
        self.most_turned = LARGEST_SURPRISE**2 * float(body.cells.fill.sum())

    def stays(self, after: np.ndarray) -> bool:
        """Whether a step turned its cells as foreseen and met no ground too stiff for it."""
        inertia = self.s.model.integrator.c_m * self.mass_kg
        return bool(after[_SURPRISE] <= self.most_turned and after[_GIVE] <= 1.0 and after[_STIFFNESS] <= inertia)

    def energy(self, sums: np.ndarray) -> Balance:
        return held_energy(self.s, sums, self.mass_kg)


def held_energy(s: Simulation, sums: np.ndarray, mass_kg: float) -> Balance:
    """A row of sums as `balance` gives it; the potential of gravity holds that of the dead loads."""
    return Balance(
        kinetic_j=float(sums[2]),
        drift_j=drift_j(s, sums[8:], mass_kg),
        elastic_j=float(sums[0]),
        gravity_j=float(sums[3]),
        contact_j=float(sums[5]),
        load_j=0.0,
        centre_of_mass_m=np.full(3, np.nan),
        contact_force_n=np.full(3, np.nan),
    )
