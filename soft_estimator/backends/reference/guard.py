"""Whether steps can be trusted: energies, momentum, work, unforeseen turns, and how stiff extrapolated contact is."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.interface import Array, Paths, State, Stepper
from soft_estimator.backends.reference import cells
from soft_estimator.backends.reference.contact import depth_and_slope, softplus_integral
from soft_estimator.backends.reference.obstacles import Obstacles
from soft_estimator.backends.reference.step import Linearised, System
from soft_estimator.backends.reference.stepper import of_system, own_stepper


class ReferenceGuard:
    """See `soft_estimator.backends.whole_steps.Guard` for the numbers of a row."""

    def __init__(self, stepper: Stepper, fill: Array) -> None:
        self._stepper, self._fill = own_stepper(stepper), np.asarray(fill, np.float64)

    def state(self, u: Array, v: Array, paths: Paths, out: Array) -> None:
        for j, s in enumerate(self._stepper.systems):
            at = u[j].astype(np.float64)
            out[j] = _held(s, at, v[j].astype(np.float64))
            out[j, 5] += Obstacles(s, paths.obstacles[j]).energy_j(at)

    def step(self, before: State, after: State, paths: Paths, out: Array) -> None:
        self.state(after[0], after[1], paths, out)
        for j, (s, (lin, rhs)) in enumerate(zip(self._stepper.systems, self._stepper.last)):
            start, end = of_system(before, j), of_system(after, j)
            out[j, 1] = self._surprise(s, lin, start[0], end[0])
            out[j, 4] = _work_on_held(s, lin, rhs, start, end, paths.held)
            out[j, 4] += lin.obstacles.work_j(start[0], end[0])
            out[j, 6:8] = _ground(s, lin, start)

    def _surprise(self, s: System, lin: Linearised, u: Array, u_after: Array) -> float:
        """Σ fill · (largest entry by which a cell's rotation misses the foreseen one)²."""
        share = s.scheme.predictor
        if share == 0.0:
            return 0.0
        reached = s.rotations(u + share * (u_after - u))
        return float(self._fill @ np.abs(reached - lin.rotations).max(axis=1) ** 2)


def _held(s: System, u: Array, v: Array) -> Array:
    """Row of a state: elastic, 0, kinetic, potential of gravity and loads, 0, contact, 0, 0, momentum."""
    elastic = np.empty(len(s.young))
    cells.cell_energies(u, np.zeros_like(u), s.rotations(u), *s.cell_arguments(), s.spacing, elastic)
    momentum = s.mass @ v
    kinetic = 0.5 * float((v * s.times_mass(v)).sum())
    potential = -float(s.mass @ (s.body["position"] + u) @ s.material.gravity_m_s2) - float((s.body["load"] * u).sum())
    touch = 0.0
    if s.has_contact:
        touch = float(s.pressure_factor @ softplus_integral(s.material.contact_sharpness_per_m, s.distance(u)))
    return np.array([elastic.sum(), 0.0, kinetic, potential, 0.0, touch, 0.0, 0.0, *momentum])


def _work_on_held(s: System, lin: Linearised, rhs: Array, before: State, after: State, paths: Array) -> float:
    """What drags the rest along, (A Δu - r)·Δu, with the change of the kinetic energy that held nodes have part in.

    That takes the place of inertia's own work b·M Δu, b = c_m Δu - p_v v - p_a a, wherever a held node has part in it.
    """
    held, scheme, increment = s.body["held"], s.scheme, after[0] - before[0]
    moves = (held >= 0) & (paths[np.maximum(held, 0), 0] != 0)
    others = ~moves[:, None]
    acceleration = scheme.c_m * increment - scheme.p_v * before[1] - scheme.p_a * before[2]
    work = (s.multiply(lin.blocks, increment) - rhs - s.times_mass(acceleration)) * increment
    work -= acceleration * s.times_mass(others * increment)
    for v, sign in ((after[1], 0.5), (before[1], -0.5)):
        work += sign * v * (s.times_mass(v) + s.times_mass(others * v))
    return float(work[moves].sum())


def _ground(s: System, lin: Linearised, before: State) -> tuple[float, float]:
    """Stiffness of extrapolated contact [N/m], and the largest of it over what holds against it at a point."""
    if lin.touch is None or s.implicit:
        return 0.0, 0.0
    stiff = s.pressure_factor * depth_and_slope(s.material.contact_sharpness_per_m, lin.touch.predicted)[1]
    diagonal = lin.blocks[s.body["slot"][:, 13]][:, [0, 4, 8]].mean(axis=1)
    give = (s.body["point_weight"] ** 2 / diagonal[s.body["point_nodes"]]).sum(axis=1)
    return float(stiff.sum()), float((stiff * give).max(initial=0.0))
