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


def failed(row: np.ndarray) -> bool:
    """Whether a solve's report (iterations, relative residual, status) is one that the plain solver would rescue."""
    return not (row[2] == 0 or (row[2] == 3 and row[1] < STALL_ACCEPTED))


def first_unsound(s: Simulation, report: np.ndarray, sums: np.ndarray) -> int:
    """The first step that the plain way must take instead, or the number of steps.

    Args:
        report: of the solves, (steps, 3). sums: of the states, (steps + 1, 11), as the backend's guard gives them.
    """
    for k, row in enumerate(report):
        if failed(row) or not sound(s, sums[k], sums[k + 1]):
            return k
    return len(report)


def sound(s: Simulation, before: np.ndarray, after: np.ndarray) -> bool:
    """Whether a step turned its cells as foreseen, met no ground too stiff for it and made no energy."""
    _, surprise, _, _, work, _, stiffness, give = after[:8]
    body = s.model.body
    inertia = s.model.integrator.c_m * s.parameters.density_kg_m3 * float(body.node_volume_m3.sum())
    turned = surprise <= LARGEST_SURPRISE**2 * float(body.cells.fill.sum())
    gain = relative_to_allowed(held_energy(s, before), held_energy(s, after), float(work))
    return bool(turned and give <= 1.0 and stiffness <= inertia and gain <= 1.0)


def held_energy(s: Simulation, sums: np.ndarray) -> Balance:
    """A row of sums as `balance` gives it; the potential of gravity holds that of the dead loads."""
    mass = s.parameters.density_kg_m3 * float(s.model.body.node_volume_m3.sum())
    return Balance(
        kinetic_j=float(sums[2]),
        drift_j=drift_j(s, sums[8:], mass),
        elastic_j=float(sums[0]),
        gravity_j=float(sums[3]),
        contact_j=float(sums[5]),
        load_j=0.0,
        centre_of_mass_m=np.full(3, np.nan),
        contact_force_n=np.full(3, np.nan),
    )
