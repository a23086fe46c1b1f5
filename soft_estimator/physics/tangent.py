"""The time step linearised: how the state changes with the parameters, for several of them at once.

The counterpart of `adjoint`, line by line; the steps' matrices are those of the simulation itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.geometry.rigid import left_jacobian, rotation_matrix
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import State
from soft_estimator.physics.parameters import lame_slope
from soft_estimator.physics.solver import SolveReport, solve_many
from soft_estimator.physics.step import Linearisation, Simulation


@dataclass
class StateTangent:
    """Changes of u, v and a along one direction of the parameters; each (N, 3)."""

    u: Array
    v: Array
    a: Array


class Tangent:
    """Carries the changes of the state along given directions of the parameters through the steps of a simulation."""

    def __init__(self, simulation: Simulation, directions: list[ParameterGradient]) -> None:
        self.simulation, self.directions = simulation, directions
        self.start = [self._start_change(d) for d in directions]

    def initial(self) -> list[StateTangent]:
        """Changes of the initial state."""
        s, out = self.simulation, []
        state = s.initial_state()
        for d, (u, v) in zip(self.directions, self.start):
            du, dv = s.backend.to_device(u, s.model.dtype), s.backend.to_device(v, s.model.dtype)
            carries = s.model.integrator.carries_acceleration
            a = self._initial_acceleration(d, state, du, dv) if carries else dv.copy()
            out.append(StateTangent(du, dv, a))
        return out

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
            factor = s.pressure_factor()
            distance = self._distance_change(d, state.u, du)
            s.add_along_normal(-factor * slope * distance - factor * depth * d.density_kg_m3 / p.density_kg_m3, other)
            self._add_along(d, factor * depth, other)
        return (change + other / s.mass[:, None]) * s.free[:, None]

    def step(
        self, before: State, after: State, lin: Linearisation, tangents: list[StateTangent]
    ) -> tuple[list[StateTangent], SolveReport]:
        """Changes of the state after a step, given those before it and the step's linearisation."""
        if not after.calmed:
            return self._step(before, after, lin, tangents)
        whole, self.simulation = self.simulation, self.simulation.calmed(after.calmed)
        try:
            for _ in range(after.calmed - 1):
                start, (before, _, part) = before, self.simulation.step_once(before)
                tangents, _ = self._step(start, before, part, tangents)
            return self._step(before, after, lin, tangents)
        finally:
            self.simulation = whole

    def _step(
        self, before: State, after: State, lin: Linearisation, tangents: list[StateTangent]
    ) -> tuple[list[StateTangent], SolveReport]:
        s, scheme = self.simulation, self.simulation.model.integrator
        increment = after.u - before.u
        # Zero columns fill up to a width that the inner loops take in whole registers.
        width = -(-len(tangents) // s.backend.column_multiple) * s.backend.column_multiple
        rhs = s.xp.zeros((*s.zero.shape, width), s.model.dtype)
        guess = s.xp.zeros_like(rhs)
        together = hasattr(s.backend, "cell_forces_tangents") and not s.model.dirichlet.weak
        if together:
            self._elasticity_together(before, increment, lin, tangents, rhs)
        for j, t in enumerate(tangents):
            rhs[:, :, j] += self._right_hand_side(j, before, increment, lin, t, with_elasticity=not together)
            guess[:, :, j] = scheme.step_s * s.velocity_ahead(t.v, t.a)
            self._held_nodes(j, after.time_s, t, guess[:, :, j])
        report = solve_many(s.backend, lin.system, rhs, guess, s.model.solver)
        return [self._advance(t, s.xp.ascontiguousarray(guess[:, :, j])) for j, t in enumerate(tangents)], report

    def _elasticity_together(
        self, before: State, increment: Array, lin: Linearisation, tangents: list[StateTangent], out: Array
    ) -> None:
        """`_elasticity` of all directions in one pass; out (N, 3, B)."""
        s, p, scheme = self.simulation, self.simulation.parameters, self.simulation.model.integrator
        known = s.known_velocity(before.v, before.a)
        z = (scheme.c_k + scheme.c_d * p.stiffness_damping_s) * increment
        if known is not None:
            z -= p.stiffness_damping_s * known
        ahead = scheme.predictor * scheme.step_s
        regions, slope = len(p.youngs_modulus_pa), lame_slope(p.poissons_ratio)
        at = before.u + ahead * s.velocity_ahead(before.v, before.a)
        at_change, moved = s.xp.zeros_like(out), s.xp.zeros_like(out)
        dlam, dmu = np.zeros((regions, out.shape[2])), np.zeros((regions, out.shape[2]))
        for j, (d, t) in enumerate(zip(self.directions, tangents)):
            at_change[:, :, j] = t.u + ahead * s.velocity_ahead(t.v, t.a)
            moved[:, :, j] = t.u + (scheme.c_d * d.stiffness_damping_s) * increment
            if known is not None:
                moved[:, :, j] -= d.stiffness_damping_s * known
                moved[:, :, j] -= p.stiffness_damping_s * s.known_velocity(t.v, t.a)
            relative = d.youngs_modulus_pa / p.youngs_modulus_pa
            dlam[:, j] = s.lam * relative + slope[0] * d.poissons_ratio
            dmu[:, j] = s.mu * relative + slope[1] * d.poissons_ratio
        nodes, index, table, young, lam, mu, spacing = s.cell_arguments()
        corner = s.xp.empty((s.model.body.cell_count, 24, out.shape[2]), s.model.dtype)
        s.backend.cell_forces_tangents(
            at, at_change, before.u, z, moved, lin.rotations, nodes, index, table, young,
            s.backend.to_device(s.model.body.cell_region), lam, mu,
            s.backend.to_device(dlam), s.backend.to_device(dmu), spacing, corner,
        )  # fmt: skip
        s.backend.gather_many(corner, s.node_cells, -1.0, out)

    def _held_nodes(self, j: int, time_s: float, t: StateTangent, increment: Array) -> None:
        s = self.simulation
        for nodes, path in s.model.dirichlet.held:
            if not path.moves:
                increment[nodes] = 0.0
                continue
            target = self.start[j][0][nodes] @ path.at(time_s)[0].T
            increment[nodes] = s.backend.to_device(target, s.model.dtype) - t.u[nodes]

    def _right_hand_side(
        self,
        j: int,
        before: State,
        increment: Array,
        lin: Linearisation,
        t: StateTangent,
        with_elasticity: bool = True,
    ) -> Array:
        """Change of r - A Δu at fixed Δu along direction j."""
        s, d = self.simulation, self.directions[j]
        known = s.known_velocity(before.v, before.a)
        known_change = s.known_velocity(t.v, t.a)
        if with_elasticity:
            out = self._elasticity(j, before, increment, lin, t, known, known_change)
        else:
            out = s.xp.zeros_like(s.zero)
        self._inertia(d, before, increment, t, known, known_change, out)
        if lin.contact is not None:
            self._contact(d, before, increment, lin, t, out)
        return out

    def _elasticity(
        self,
        j: int,
        before: State,
        increment: Array,
        lin: Linearisation,
        t: StateTangent,
        known: Array | None,
        known_change: Array | None,
    ) -> Array:
        s, p, scheme = self.simulation, self.simulation.parameters, self.simulation.model.integrator
        d = self.directions[j]
        z = (scheme.c_k + scheme.c_d * p.stiffness_damping_s) * increment
        z_change = (scheme.c_d * d.stiffness_damping_s) * increment
        if known is not None:
            z -= p.stiffness_damping_s * known
            z_change -= d.stiffness_damping_s * known + p.stiffness_damping_s * known_change
        slope = lame_slope(p.poissons_ratio)
        relative = (d.youngs_modulus_pa / p.youngs_modulus_pa)[s.model.body.cell_region]
        dlam = s.backend.to_device(s.lam * relative + slope[0] * d.poissons_ratio)
        dmu = s.backend.to_device(s.mu * relative + slope[1] * d.poissons_ratio)
        ahead = scheme.predictor * scheme.step_s
        turn = s.xp.empty((s.model.body.cell_count, 9))
        s.backend.rotations_tangent(
            before.u + ahead * s.velocity_ahead(before.v, before.a),
            t.u + ahead * s.velocity_ahead(t.v, t.a),
            lin.rotations,
            s.cell_nodes,
            s.spacing,
            turn,
        )
        corner, more = (s.xp.empty((s.model.body.cell_count, 24), s.model.dtype) for _ in range(2))
        nodes, index, table, young, lam, mu, spacing = s.cell_arguments()
        s.backend.cell_forces_tangent(
            turn, before.u, z, 1.0, lin.rotations, nodes, index, table, young, lam, mu, dlam, dmu, spacing, corner
        )
        moved = t.u + z_change
        s.backend.cell_forces(moved, moved, 0.0, lin.rotations, *s.cell_arguments(), more)
        out = s.xp.zeros_like(s.zero)
        s.backend.gather(corner + more, s.node_cells, -1.0, out)
        self._weak_elasticity(j, before, lin, z, moved, turn, dlam, dmu, out)
        return out

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

    def _inertia(
        self,
        d: ParameterGradient,
        before: State,
        increment: Array,
        t: StateTangent,
        known: Array | None,
        known_change: Array | None,
        out: Array,
    ) -> None:
        s, p, scheme = self.simulation, self.simulation.parameters, self.simulation.model.integrator
        relative = d.density_kg_m3 / p.density_kg_m3
        change = s.backend.to_device(d.gravity_m_s2 + relative * p.gravity_m_s2) + scheme.p_v * t.v
        change = change - d.mass_damping_per_s * scheme.c_d * increment
        if relative != 0.0:
            change += relative * (scheme.p_v * before.v - (scheme.c_m + scheme.c_d * p.mass_damping_per_s) * increment)
        if scheme.carries_acceleration:
            change += scheme.p_a * (t.a + relative * before.a)
        if known is not None:
            change += (d.mass_damping_per_s + relative * p.mass_damping_per_s) * known
            change += p.mass_damping_per_s * known_change
        out += s.mass[:, None] * change

    def _distance_change(self, d: ParameterGradient, u: Array, du: Array) -> Array:
        """Change of the points' distance n·x + d for a change du and the plane's own."""
        s = self.simulation
        change = s.at_points(du) @ s.normal + d.plane_offset_m
        if d.plane_normal.any():
            change = change + s.at_points(s.position + u) @ s.backend.to_device(d.plane_normal)
        return change

    def _add_along(self, d: ParameterGradient, value: Array, out: Array) -> None:
        """out += (change of n) · value."""
        s = self.simulation
        if d.plane_normal.any():
            s.add_along_normal(value, out, s.backend.to_device(d.plane_normal))

    def _contact(
        self, d: ParameterGradient, before: State, increment: Array, lin: Linearisation, t: StateTangent, out: Array
    ) -> None:
        """Change of n P (s + σB), B = δ̃ - δ - c_k n·Δu, or of its explicit form."""
        s, law, scheme = self.simulation, self.simulation.model.contact, self.simulation.model.integrator
        predicted_distance, depth, slope = lin.contact
        distance, start_depth, start_slope = s.contact_state(before.u)
        factor, ahead = s.pressure_factor(), scheme.c_k * scheme.step_s
        predicted_change = self._distance_change(d, lin.predicted, t.u + ahead * s.velocity_ahead(t.v, t.a))
        distance_change = self._distance_change(d, before.u, t.u)
        if law.implicit:
            moved = s.at_points(increment)
            gap = predicted_distance - distance - scheme.c_k * (moved @ s.normal)
            change = -law.sharpness_per_m * slope * (1 - slope) * gap * predicted_change - slope * distance_change
            if d.plane_normal.any():
                change = change - slope * scheme.c_k * (moved @ s.backend.to_device(d.plane_normal))
            value = depth + slope * gap
        else:
            ahead_by = predicted_distance - distance
            bend = law.sharpness_per_m * start_slope * (1 - start_slope)
            change = -start_slope * predicted_change + bend * ahead_by * distance_change
            value = start_depth - start_slope * ahead_by
        s.add_along_normal(factor * change, out)
        self._add_along(d, factor * value, out)

    def _advance(self, t: StateTangent, increment: Array) -> StateTangent:
        s, scheme = self.simulation, self.simulation.model.integrator
        v = scheme.d_u * increment + scheme.d_v * t.v
        a = scheme.e_u * increment
        if scheme.carries_acceleration:
            v += scheme.d_a * t.a
            a = (a + scheme.e_v * t.v + scheme.e_a * t.a) * s.free[:, None]
        for nodes, _ in s.model.dirichlet.held:
            v[nodes] = increment[nodes] / scheme.step_s
        return StateTangent(t.u + increment, v, a)
