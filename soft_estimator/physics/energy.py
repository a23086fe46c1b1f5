"""Energies, momentum and contact force of a state, in double precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import spence

from soft_estimator.physics.model import State

if TYPE_CHECKING:
    from soft_estimator.physics.step import Simulation


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


def relative_gain(before: Balance, after: Balance, work_j: float) -> float:
    """Energy that a step made out of nothing, as a part of what the body holds after it in motion, strain and contact.

    work_j: what the regions that hold and move the body put in [J].
    """
    # A thousandth of the drift stays in: the solver's tolerance makes and loses about a millionth.
    holds = after.kinetic_j - 0.999 * after.drift_j + after.elastic_j + after.contact_j
    return (after.total_j - before.total_j - work_j) / max(holds, 1e-300)


def in_contact(before: Balance, after: Balance) -> bool:
    """Whether a step had to do with the plane."""
    return max(before.contact_j, after.contact_j) > 1e-3 * (after.kinetic_j - after.drift_j + after.elastic_j)


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
        drift_j=_drift(s, mass, v),
        elastic_j=float(to_host(energies).sum()) + _weak_energy(s, state.time_s, u, to_host(turned)),
        gravity_j=float(-mass.sum() * p.gravity_m_s2 @ centre),
        contact_j=contact_j,
        load_j=-float((s.model.load_n * u).sum()) if len(s.model.load_n) else 0.0,
        centre_of_mass_m=centre,
        contact_force_n=force,
    )


def _drift(s: Simulation, mass: np.ndarray, v: np.ndarray) -> float:
    if s.model.dirichlet.any:
        return 0.0
    momentum, normal = mass @ v, s.parameters.plane_normal
    if s.model.contact is not None:
        momentum = momentum - (momentum @ normal) * normal
    return float(0.5 * momentum @ momentum / mass.sum())


def weak_work(s: Simulation, before: State, after: State) -> float:
    """Work [J] of the weakly held regions that move: the change of energy with their place, by the trapezoidal rule."""
    if not any(path.moves for _, path in s.model.dirichlet.weak):
        return 0.0
    total = 0.0
    for state, other in ((before, after), (after, before)):
        u, turned = s.backend.to_host(state.u).astype(np.float64), s.backend.to_host(s.cell_rotations(state.u))
        change = _weak_energy(s, other.time_s, u, turned) - _weak_energy(s, state.time_s, u, turned)
        total += 0.5 * change if state is before else -0.5 * change
    return total


def _weak_energy(s: Simulation, time_s: float, u: np.ndarray, turned: np.ndarray) -> float:
    targets = s.model.dirichlet.weak_targets(s.model.body, s.start, time_s)
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
