"""Energies, momentum and contact force of a state, in double precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import spence

from soft_estimator.physics.model import State
from soft_estimator.physics.step import Simulation


@dataclass(frozen=True)
class Balance:
    """What a state holds: energies [J], centre of mass [m], contact force on the body [N].

    elastic_j includes the energy of weakly held surfaces. load_j is the potential of the dead loads.
    """

    kinetic_j: float
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
    s, p, body = simulation, simulation.parameters, simulation.model.body
    to_host = s.backend.to_host
    u, v = (to_host(x).astype(np.float64) for x in (state.u, state.v))
    mass = p.density_kg_m3 * body.node_volume_m3
    energies = s.xp.empty(body.cell_count)
    turned = s.cell_rotations(state.u)
    arguments = (s.cell_nodes, s.gradient_index, s.table, s.young, s.lam, s.mu, s.spacing)
    s.backend.cell_energies(state.u, s.zero, turned, *arguments, energies)
    centre = mass @ (body.node_position_m + u) / mass.sum()
    contact_j, force = 0.0, np.zeros(3)
    if s.model.contact is not None:
        law = s.model.contact
        distance, depth, _ = (to_host(x) for x in s.contact_state(state.u))
        factor = to_host(s.pressure_factor())
        contact_j = float(factor @ softplus_integral(law.sharpness_per_m, distance))
        force = float(factor @ depth) * p.plane_normal
    return Balance(
        kinetic_j=float(0.5 * mass @ (v**2).sum(axis=1)),
        elastic_j=float(to_host(energies).sum()) + _weak_energy(s, state, u, to_host(turned)),
        gravity_j=float(-mass.sum() * p.gravity_m_s2 @ centre),
        contact_j=contact_j,
        load_j=-float((s.model.load_n * u).sum()) if len(s.model.load_n) else 0.0,
        centre_of_mass_m=centre,
        contact_force_n=force,
    )


def _weak_energy(s: Simulation, state: State, u: np.ndarray, turned: np.ndarray) -> float:
    targets = s.model.dirichlet.weak_targets(s.model.body, s.start, state.time_s)
    young = s.backend.to_host(s.young)
    pairs = zip(s.model.dirichlet.weak, targets)
    return sum(cells.energy(u, target, turned, young, s.lam, s.mu) for (cells, _), target in pairs)


def softplus_integral(sharpness_per_m: float, distance_m: np.ndarray) -> np.ndarray:
    """∫ from δ to ∞ of log(1 + exp(-a t))/a dt = -Li₂(-exp(-a δ))/a² [m²], without overflow."""
    t = -sharpness_per_m * np.asarray(distance_m)
    small = np.exp(-np.abs(t))
    dilogarithm = -spence(1.0 + small)  # -Li₂(-e^-|t|)
    deep = np.pi**2 / 6 + 0.5 * t**2 - dilogarithm
    return np.where(t > 0, deep, dilogarithm) / sharpness_per_m**2
