"""Energies, momentum and contact force of a state, in double precision: sums over the simulation's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from soft_estimator.physics.state import State

if TYPE_CHECKING:
    from soft_estimator.physics.step import Simulation

ENERGIES = ("kinetic_j", "elastic_j", "gravity_j", "contact_j", "load_j")


@dataclass(frozen=True)
class Balance:
    """What a state holds: energies [J], centre of mass [m], contact force on the body [N].

    elastic_j includes the energy of weakly held surfaces. load_j is the potential of the dead loads. drift_j is the
    part of kinetic_j that nothing can turn into anything else: a free body's mean motion, along the plane if it has
    one.
    """

    kinetic_j: float
    drift_j: float
    elastic_j: float
    gravity_j: float
    contact_j: float
    load_j: float
    centre_of_mass_m: np.ndarray
    contact_force_n: np.ndarray

    @property
    def total_j(self) -> float:
        return self.kinetic_j + self.elastic_j + self.gravity_j + self.contact_j + self.load_j


def balance(simulation: Simulation, state: State) -> Balance:
    """Evaluate a state; the gravity potential is zero at the world's origin."""
    s, host = simulation, simulation.backend.to_host
    mass, mass_kg, moment = s.weights
    rotations, energies, force = s.device.rotations(state.u), dict.fromkeys(ENERGIES, 0.0), np.zeros(3)
    for term in s.terms:
        for name, value in term.energies_j(state, rotations).items():
            energies[name] += value
        force = force + term.force_n(state)
    return Balance(
        **energies,
        drift_j=drift_j(s, mass @ host(state.v), mass_kg),
        centre_of_mass_m=(moment + mass @ host(state.u)) / mass_kg,
        contact_force_n=force,
    )


def drift_directions(simulation: Simulation) -> np.ndarray:
    """Directions (k, 3), at right angles to each other, in which nothing resists the body's mean motion."""
    directions = [term.resists() for term in simulation.terms]
    if simulation.model.dirichlet.held or any(d is None for d in directions):
        return np.zeros((0, 3))
    basis = np.linalg.svd(np.concatenate([np.zeros((1, 3)), *(d for d in directions if d is not None)]))
    return basis[2][np.sum(basis[1] > 1e-9) :]


def drift_j(simulation: Simulation, momentum: np.ndarray, mass_kg: float) -> float:
    """Energy [J] of the mean motion across all directions in which something resists, for a momentum (3,) [N s]."""
    rest = simulation.drifts @ momentum
    return float(0.5 * rest @ rest / mass_kg)
