"""The time step linearised: how the state changes with the parameters, for several of them at once.

The counterpart of `adjoint`, line by line; the steps' matrices are those of the simulation itself. All directions are
worked on together: their changes lie next to each other in memory, (N, 3, width).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.geometry.rigid import left_jacobian, rotation_matrix
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import State
from soft_estimator.physics.parameters import lame_slope
from soft_estimator.physics.solver import SolveReport, solve_many
from soft_estimator.physics.step import Linearisation, Simulation

# Contact points that give way less than this (1 is firm contact) change nothing that any number could hold.
_UNTOUCHED = 1e-20


@dataclass
class StateTangent:
    """Changes of u, v and a along one direction of the parameters; each (N, 3)."""

    u: Array
    v: Array
    a: Array


@dataclass(frozen=True, eq=False)
class ColumnChanges(Sequence[StateTangent]):
    """Changes of u, v and a along `number` directions, each (N, 3, width); as a sequence, one of each direction.

    Columns of zeros fill up to a width that the backend's inner loops take in whole registers.
    """

    u: Array
    v: Array
    a: Array
    number: int
    backend: Backend

    @classmethod
    def of(cls, changes: Sequence[StateTangent], backend: Backend) -> ColumnChanges:
        """The same changes, side by side."""
        if isinstance(changes, ColumnChanges):
            return changes
        width = padded(len(changes), backend)
        parts = []
        for name in ("u", "v", "a"):
            first = getattr(changes[0], name)
            part = backend.xp.zeros((*first.shape, width), first.dtype)
            for j, change in enumerate(changes):
                part[:, :, j] = getattr(change, name)
            parts.append(part)
        return cls(parts[0], parts[1], parts[2], len(changes), backend)

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, j: Any) -> Any:
        if not -self.number <= j < self.number:
            raise IndexError(j)
        j %= self.number
        return StateTangent(self.u[:, :, j], self.v[:, :, j], self.a[:, :, j])

    def __iter__(self) -> Iterator[StateTangent]:
        return (self[j] for j in range(self.number))

    def mixed(self, weights: np.ndarray) -> ColumnChanges:
        """Σ_i weights_ij · change_i for every j; weights (number, new number), on the host."""
        full = np.zeros((self.u.shape[2], padded(weights.shape[1], self.backend)))
        full[: weights.shape[0], : weights.shape[1]] = weights
        there = self.backend.to_device(full, self.u.dtype)
        return ColumnChanges(self.u @ there, self.v @ there, self.a @ there, weights.shape[1], self.backend)


def padded(count: int, backend: Backend) -> int:
    """The width in which so many columns are handed over."""
    return -(-count // backend.column_multiple) * backend.column_multiple


class Tangent:
    """Carries the changes of the state along given directions of the parameters through the steps of a simulation."""

    def __init__(self, simulation: Simulation, directions: list[ParameterGradient]) -> None:
        self.simulation, self.directions = simulation, directions
        self.start = [self._start_change(d) for d in directions]
        p, backend = simulation.parameters, simulation.backend

        def column(name: str) -> np.ndarray:
            """The directions' changes of a parameter, (..., width)."""
            values = np.array([getattr(d, name) for d in directions], dtype=np.float64)
            out = np.zeros((padded(len(directions), backend), *values.shape[1:]))
            out[: len(directions)] = values
            return np.moveaxis(out, 0, -1)

        self._relative = column("density_kg_m3") / p.density_kg_m3
        self._mass_damping, self._stiffness_damping = column("mass_damping_per_s"), column("stiffness_damping_s")
        self._gravity = column("gravity_m_s2") + self._relative * p.gravity_m_s2[:, None]
        self._normal, self._offset = column("plane_normal"), column("plane_offset_m")
        stiffer, slope = column("youngs_modulus_pa") / p.youngs_modulus_pa[:, None], lame_slope(p.poissons_ratio)
        self._lam = simulation.lam * stiffer + slope[0] * column("poissons_ratio")
        self._mu = simulation.mu * stiffer + slope[1] * column("poissons_ratio")

    def initial(self) -> ColumnChanges:
        """Changes of the initial state."""
        s, out = self.simulation, []
        state = s.initial_state()
        for d, (u, v) in zip(self.directions, self.start):
            du, dv = s.backend.to_device(u, s.model.dtype), s.backend.to_device(v, s.model.dtype)
            carries = s.model.integrator.carries_acceleration
            a = self._initial_acceleration(d, state, du, dv) if carries else dv.copy()
            out.append(StateTangent(du, dv, a))
        return ColumnChanges.of(out, s.backend)

    def _start_change(self, d: ParameterGradient) -> tuple[np.ndarray, np.ndarray]:
        p, body = self.simulation.parameters, self.simulation.model.body
        arm = (body.node_position_m - body.centroid_m) @ rotation_matrix(p.rotation_rad).T
        turn = np.cross(left_jacobian(p.rotation_rad) @ d.rotation_rad, arm)
        v = d.velocity_m_s + np.cross(d.angular_velocity_rad_s, arm) + np.cross(p.angular_velocity_rad_s, turn)
        return d.translation_m + turn, v * self.simulation.model.dirichlet.free[:, None]

    def _initial_acceleration(self, d: ParameterGradient, state: State, du: Array, dv: Array) -> Array:
        s, p = self.simulation, self.simulation.parameters
        change = s.xp.zeros_like(s.zero) + s.backend.to_device(d.gravity_m_s2)
        change -= d.mass_damping_per_s * state.v + p.mass_damping_per_s * dv
        other = s.xp.zeros_like(s.zero)
        if len(s.model.load_n):
            other -= (d.density_kg_m3 / p.density_kg_m3) * s.backend.to_device(s.model.load_n, s.model.dtype)
        if s.model.contact is not None:
            _, depth, slope = s.contact_state(state.u)
            factor, turned = s.pressure_factor(), s.backend.to_device(d.plane_normal)
            distance = s.at_points(du) @ s.normal + d.plane_offset_m + s.at_points(s.position + state.u) @ turned
            s.add_along_normal(-factor * slope * distance - factor * depth * d.density_kg_m3 / p.density_kg_m3, other)
            s.add_along_normal(factor * depth, other, turned)
        return (change + other / s.mass[:, None]) * s.free[:, None]

    def step(
        self, before: State, after: State, lin: Linearisation, changes: Sequence[StateTangent]
    ) -> tuple[ColumnChanges, SolveReport]:
        """Changes of the state after a step, given those before it and the step's linearisation."""
        columns = ColumnChanges.of(changes, self.simulation.backend)
        if not after.calmed:
            return self._step(before, after, lin, columns)
        whole, self.simulation = self.simulation, self.simulation.calmed(after.calmed)
        try:
            for _ in range(after.calmed - 1):
                start, (before, _, part) = before, self.simulation.step_once(before)
                columns, _ = self._step(start, before, part, columns)
            return self._step(before, after, lin, columns)
        finally:
            self.simulation = whole

    def _step(
        self, before: State, after: State, lin: Linearisation, changes: ColumnChanges
    ) -> tuple[ColumnChanges, SolveReport]:
        """Solve for the change of Δu with the change of r - A Δu at fixed Δu on the right-hand side."""
        s, scheme = self.simulation, self.simulation.model.integrator
        increment = after.u - before.u
        rhs = s.xp.zeros(changes.u.shape, s.model.dtype)
        together = hasattr(s.backend, "cell_forces_tangents") and not s.model.dirichlet.weak
        (self._elasticity if together else self._elasticity_by_column)(before, increment, lin, changes, rhs)
        self._inertia(before, increment, changes, rhs)
        if lin.contact is not None:
            self._contact(before, increment, lin, changes, rhs)
        solution = scheme.step_s * s.velocity_ahead(changes.v, changes.a)
        self._held_nodes(after.time_s, changes, solution)
        report = solve_many(s.backend, lin.system, rhs, solution, s.model.solver)
        return self._advance(changes, solution), report

    def _damped_pull(self, before: State, increment: Array, changes: ColumnChanges) -> tuple[Array, Array]:
        """What the cells' stiffness acts on beside u: z (N, 3), and the change of u + z (N, 3, width)."""
        s, scheme = self.simulation, self.simulation.model.integrator
        damping, known = s.parameters.stiffness_damping_s, s.known_velocity(before.v, before.a)
        z = (scheme.c_k + scheme.c_d * damping) * increment
        velocity = scheme.c_d * increment
        moved = changes.u
        if known is not None:
            z -= damping * known
            velocity = velocity - known
            moved = moved - damping * s.known_velocity(changes.v, changes.a)
        if self._stiffness_damping.any():
            moved = moved + velocity[:, :, None] * s.backend.to_device(self._stiffness_damping, velocity.dtype)
        return z, moved

    def _elasticity(
        self, before: State, increment: Array, lin: Linearisation, changes: ColumnChanges, out: Array
    ) -> None:
        s, scheme = self.simulation, self.simulation.model.integrator
        z, moved = self._damped_pull(before, increment, changes)
        ahead = scheme.predictor * scheme.step_s
        nodes, index, table, young, lam, mu, spacing = s.cell_arguments()
        corner = s.xp.empty((s.model.body.cell_count, 24, out.shape[2]), s.model.dtype)
        s.backend.cell_forces_tangents(
            before.u + ahead * s.velocity_ahead(before.v, before.a),
            changes.u + ahead * s.velocity_ahead(changes.v, changes.a),
            before.u, z, moved, lin.rotations, nodes, index, table, young,
            s.backend.to_device(s.model.body.cell_region), lam, mu,
            s.backend.to_device(self._lam), s.backend.to_device(self._mu), spacing, corner,
        )  # fmt: skip
        s.backend.gather_many(corner, s.node_cells, -1.0, out)

    def _elasticity_by_column(
        self, before: State, increment: Array, lin: Linearisation, changes: ColumnChanges, out: Array
    ) -> None:
        """The same direction by direction, with the weakly held regions."""
        s, scheme = self.simulation, self.simulation.model.integrator
        z, all_moved = self._damped_pull(before, increment, changes)
        ahead, body = scheme.predictor * scheme.step_s, s.model.body
        at = before.u + ahead * s.velocity_ahead(before.v, before.a)
        nodes, index, table, young, lam, mu, spacing = s.cell_arguments()
        turn = s.xp.empty((body.cell_count, 9))
        corner, more = (s.xp.empty((body.cell_count, 24), s.model.dtype) for _ in range(2))
        for j, t in enumerate(changes):
            dlam, dmu = (s.backend.to_device(x[body.cell_region, j]) for x in (self._lam, self._mu))
            at_change = s.xp.ascontiguousarray(t.u + ahead * s.velocity_ahead(t.v, t.a))
            s.backend.rotations_tangent(at, at_change, lin.rotations, s.cell_nodes, s.spacing, turn)
            s.backend.cell_forces_tangent(
                turn, before.u, z, 1.0, lin.rotations, nodes, index, table, young, lam, mu, dlam, dmu, spacing, corner
            )
            moved = s.xp.ascontiguousarray(all_moved[:, :, j])
            s.backend.cell_forces(moved, moved, 0.0, lin.rotations, *s.cell_arguments(), more)
            total = s.xp.zeros_like(s.zero)
            s.backend.gather(corner + more, s.node_cells, -1.0, total)
            self._weak_elasticity(j, before, lin, z, moved, turn, dlam, dmu, total)
            out[:, :, j] += total

    def _weak_elasticity(
        self,
        j: int,
        before: State,
        lin: Linearisation,
        z: Array,
        moved: Array,
        turn: Array,
        dlam: Array,
        dmu: Array,
        out: Array,
    ) -> None:
        s, scheme = self.simulation, self.simulation.model.integrator
        host = s.backend.to_host
        start = self.start[j][0]
        for (group, path), target in zip(s.model.dirichlet.weak, s.weak_targets(before.time_s)):
            q = path.at(before.time_s + scheme.c_k * scheme.step_s)[0]
            cell = (host(lin.rotations), host(s.young), s.lam, s.mu)
            zero = np.zeros_like(host(z))
            change = group.forces(host(moved), zero, start[group.nodes] @ q.T, *cell)
            change -= group.forces(zero, zero, np.zeros_like(target), *cell)
            change += group.forces_tangent(host(turn), host(before.u), host(z), target, *cell, host(dlam), host(dmu))
            out -= s.scatter(group.nodes, change)

    def _inertia(self, before: State, increment: Array, changes: ColumnChanges, out: Array) -> None:
        s, p, scheme = self.simulation, self.simulation.parameters, self.simulation.model.integrator
        known = s.known_velocity(before.v, before.a)

        def column(values: np.ndarray) -> Array:
            return s.backend.to_device(values, s.model.dtype)

        change = scheme.p_v * changes.v
        if scheme.carries_acceleration:
            change += scheme.p_a * changes.a
        if known is not None:
            change += p.mass_damping_per_s * s.known_velocity(changes.v, changes.a)
        if self._gravity.any():
            change += column(self._gravity)
        if self._mass_damping.any():
            damped = -scheme.c_d * increment if known is None else known - scheme.c_d * increment
            change += damped[:, :, None] * column(self._mass_damping)
        if self._relative.any():
            inertia = scheme.p_v * before.v - (scheme.c_m + scheme.c_d * p.mass_damping_per_s) * increment
            if scheme.carries_acceleration:
                inertia = inertia + scheme.p_a * before.a
            if known is not None:
                inertia = inertia + p.mass_damping_per_s * known
            change += inertia[:, :, None] * column(self._relative)
        change *= s.mass[:, None, None]
        out += change

    def _contact(self, before: State, increment: Array, lin: Linearisation, changes: ColumnChanges, out: Array) -> None:
        """Change of n P (s + σB), B = δ̃ - δ - c_k n·Δu, or of its explicit form."""
        s, law, scheme = self.simulation, self.simulation.model.contact, self.simulation.model.integrator
        predicted_distance, depth, slope = lin.contact
        distance, start_depth, start_slope = s.contact_state(before.u)
        if float((slope if law.implicit else start_slope).max()) < _UNTOUCHED:
            return
        factor, ahead = s.pressure_factor(), scheme.c_k * scheme.step_s
        # Along the plane's normal there is one number a node and direction: (N, width).
        height, speed = (
            s.xp.ascontiguousarray((x * s.normal[:, None]).sum(axis=1))
            for x in (changes.u, s.velocity_ahead(changes.v, changes.a))
        )
        distance_change = self._distance_change(height, before.u)
        predicted_change = self._distance_change(height + ahead * speed, lin.predicted)
        if law.implicit:
            moved = s.at_points(increment)
            gap = predicted_distance - distance - scheme.c_k * (moved @ s.normal)
            bend = law.sharpness_per_m * slope * (1 - slope) * gap
            change = -bend[:, None] * predicted_change - slope[:, None] * distance_change
            if self._normal.any():
                change -= (scheme.c_k * slope)[:, None] * (moved @ s.backend.to_device(self._normal))
            value = depth + slope * gap
        else:
            ahead_by = predicted_distance - distance
            bend = law.sharpness_per_m * start_slope * (1 - start_slope) * ahead_by
            change = bend[:, None] * distance_change - start_slope[:, None] * predicted_change
            value = start_depth - start_slope * ahead_by
        spread = s.xp.zeros((len(s.mass), out.shape[2]))
        s.backend.spread_columns(factor[:, None] * change, s.node_cells, s.point_start, s.point_weight, spread)
        out += spread[:, None, :] * s.normal[:, None]
        if self._normal.any():
            force = s.xp.zeros((len(s.mass), 1))
            s.backend.spread_columns((factor * value)[:, None], s.node_cells, s.point_start, s.point_weight, force)
            out += force[:, :, None] * s.backend.to_device(self._normal)

    def _distance_change(self, height: Array, u: Array) -> Array:
        """Change of the points' distance n·x + d (P, width) for one of the nodes' heights (N, width) and the plane."""
        s = self.simulation
        change = s.xp.empty((len(s.point_area), height.shape[1]))
        s.backend.columns_at_points(height, s.point_nodes, s.point_weight, change)
        change += s.backend.to_device(self._offset)
        if self._normal.any():
            change += s.at_points(s.position + u) @ s.backend.to_device(self._normal)
        return change

    def _held_nodes(self, time_s: float, changes: ColumnChanges, increment: Array) -> None:
        s = self.simulation
        for nodes, path in s.model.dirichlet.held:
            increment[nodes] = 0.0
            if not path.moves:
                continue
            turned = path.at(time_s)[0]
            for j, (start, _) in enumerate(self.start):
                target = s.backend.to_device(start[nodes] @ turned.T, s.model.dtype)
                increment[nodes, :, j] = target - changes.u[nodes, :, j]

    def _advance(self, changes: ColumnChanges, increment: Array) -> ColumnChanges:
        s, scheme = self.simulation, self.simulation.model.integrator
        v = scheme.d_u * increment + scheme.d_v * changes.v
        a = scheme.e_u * increment
        if scheme.carries_acceleration:
            v += scheme.d_a * changes.a
            a = (a + scheme.e_v * changes.v + scheme.e_a * changes.a) * s.free[:, None, None]
        for nodes, _ in s.model.dirichlet.held:
            v[nodes] = increment[nodes] / scheme.step_s
        return ColumnChanges(changes.u + increment, v, a, changes.number, s.backend)
