"""The time step run backwards: derivatives of a scalar by the state before the step and by the parameters (METHOD §7).

The names are those of `step`, with `_bar` for a derivative. With A Δu = r and A λ = Δu_bar, everything r and A depend
on receives its share of λᵀr - λᵀA Δu.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.geometry.rigid import left_jacobian, rotation_matrix
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.model import State
from soft_estimator.physics.parameters import lame_slope
from soft_estimator.physics.solver import SolveReport, solve
from soft_estimator.physics.step import Linearisation, Simulation


@dataclass
class StateGradient:
    """Derivatives of a scalar by u, v and a; each (N, 3)."""

    u: Array
    v: Array
    a: Array


class Adjoint:
    """Runs the steps of a simulation backwards and collects the derivatives by its parameters.

    Feed `step_back` the states before and after each step, last step first, adding the derivative of whatever is
    measured at a state to the state's gradient in between; then `finish` carries what is left at the start to pose
    and motion.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        regions = len(simulation.parameters.youngs_modulus_pa)
        self.gradient = ParameterGradient.zero(regions)
        self.start_bar = np.zeros((simulation.model.body.node_count, 3))

    def zero_state(self) -> StateGradient:
        s = self.simulation
        return StateGradient(*(s.xp.zeros_like(s.zero) for _ in range(3)))

    def step_back(self, before: State, after: State, bar: StateGradient) -> tuple[StateGradient, SolveReport]:
        """Derivatives by the state before a step, given those by the state after it."""
        if not after.calmed:
            return self._step_back(before, after, bar)
        whole, self.simulation = self.simulation, self.simulation.calmed(after.calmed)
        states = [before]
        for _ in range(after.calmed - 1):
            states.append(self.simulation.step_once(states[-1])[0])
        try:
            for start, end in zip(states[::-1], [after, *states[:0:-1]]):
                bar, report = self._step_back(start, end, bar)
            return bar, report
        finally:
            self.simulation = whole

    def _step_back(self, before: State, after: State, bar: StateGradient) -> tuple[StateGradient, SolveReport]:
        s, scheme = self.simulation, self.simulation.model.integrator
        free = s.free[:, None]
        increment = after.u - before.u
        lin = s.linearise(before)

        increment_bar = bar.u + scheme.d_u * free * bar.v + (1 - free) * bar.v / scheme.step_s
        out = StateGradient(bar.u.copy(), scheme.d_v * free * bar.v, s.xp.zeros_like(bar.a))
        if scheme.carries_acceleration:
            increment_bar += scheme.e_u * free * bar.a
            out.v += scheme.e_v * free * bar.a
            out.a += free * (scheme.d_a * bar.v + scheme.e_a * bar.a)
        else:
            increment_bar += scheme.e_u * bar.a

        lmbda = s.xp.zeros_like(s.zero)
        report = solve(s.backend, lin.system, increment_bar * free, lmbda, s.model.solver)
        self._held_nodes_adjoint(after.time_s, lin, lmbda, increment_bar, out)
        known_bar = self._elasticity_adjoint(before, increment, lin, lmbda, out)
        self._inertia_adjoint(before, increment, lmbda, known_bar, out)
        if lin.contact is not None:
            self._contact_adjoint(before, increment, lin, lmbda, out)
        return out, report

    def _held_nodes_adjoint(
        self, time_s: float, lin: Linearisation, lmbda: Array, increment_bar: Array, out: StateGradient
    ) -> None:
        """Δu of a moving held node is its target minus u, and enters the free rows through A."""
        s, dirichlet = self.simulation, self.simulation.model.dirichlet
        if not any(path.moves for _, path in dirichlet.held):
            return
        product = s.xp.empty_like(lmbda)
        s.backend.multiply(s.row_start, s.column, lin.system.blocks, lmbda, product)
        given = s.backend.to_host(increment_bar - product)
        for nodes, path in dirichlet.held:
            if path.moves:
                out.u[nodes] -= s.backend.to_device(given[nodes], s.model.dtype)
                self.start_bar[nodes] += given[nodes] @ path.at(time_s)[0]

    def _elasticity_adjoint(
        self, before: State, increment: Array, lin: Linearisation, lmbda: Array, out: StateGradient
    ) -> Array | None:
        """Elastic force, stiffness and stiffness damping; returns the derivative by q_v v + q_a a."""
        s, p, scheme = self.simulation, self.simulation.parameters, self.simulation.model.integrator
        cells, xp = s.model.body.cell_count, s.xp
        known = s.known_velocity(before.v, before.a)
        z = (scheme.c_k + scheme.c_d * p.stiffness_damping_s) * increment
        if known is not None:
            z -= p.stiffness_damping_s * known
        y_bar, r_bar, lame_bar = xp.empty((cells, 24)), xp.empty((cells, 9)), xp.empty((cells, 2))
        s.backend.cell_forces_adjoint(
            lmbda, before.u, z, 1.0, lin.rotations, *s.cell_arguments(), y_bar, r_bar, lame_bar
        )
        pull = xp.zeros_like(lmbda)
        s.backend.gather(y_bar, s.node_cells, 1.0, pull)
        for (group, path), target in zip(s.model.dirichlet.weak, s.weak_targets(before.time_s)):
            host = [s.backend.to_host(x) for x in (lmbda, before.u, z)]
            cell = [s.backend.to_host(x) for x in (lin.rotations, s.young)]
            y, target_bar, turn_bar, share = group.forces_adjoint(*host, target, *cell, s.lam, s.mu)
            pull += s.scatter(group.nodes, y)
            r_bar[group.cell] += s.backend.to_device(turn_bar)
            lame_bar[group.cell] += s.backend.to_device(share)
            q = path.at(before.time_s + scheme.c_k * scheme.step_s)[0]
            np.add.at(self.start_bar, group.nodes, -target_bar @ q)
        self._material_adjoint(s.backend.to_host(lame_bar))
        out.u -= pull
        turned = xp.empty((cells, 24))
        s.backend.rotations_adjoint(
            before.u + (scheme.predictor * scheme.step_s) * s.velocity_ahead(before.v, before.a),
            lin.rotations,
            r_bar,
            s.cell_nodes,
            s.spacing,
            turned,
        )
        turn = xp.zeros_like(lmbda)
        s.backend.gather(turned, s.node_cells, -1.0, turn)
        out.u += turn
        self._ahead_adjoint((scheme.predictor * scheme.step_s) * turn, out)
        self.gradient.stiffness_damping_s -= float((pull * scheme.c_d * increment).sum())
        if known is None:
            return None
        self.gradient.stiffness_damping_s += float((pull * known).sum())
        return p.stiffness_damping_s * pull

    def _ahead_adjoint(self, ahead_bar: Array, out: StateGradient) -> None:
        """The adjoint of `Simulation.velocity_ahead`."""
        if self.simulation.model.integrator.ahead_v == 0.0:
            out.a += ahead_bar
        else:
            out.v += ahead_bar

    def _material_adjoint(self, lame_bar: np.ndarray) -> None:
        """Young's modulus of each region and Poisson's ratio from the derivatives by λ and μ of the cells."""
        s, region = self.simulation, self.simulation.model.body.cell_region
        self.gradient.poissons_ratio -= float(lame_bar.sum(axis=0) @ lame_slope(s.parameters.poissons_ratio))
        by_young = np.bincount(region, lame_bar @ np.array([s.lam, s.mu]), len(self.gradient.youngs_modulus_pa))
        self.gradient.youngs_modulus_pa -= by_young / s.parameters.youngs_modulus_pa

    def _inertia_adjoint(
        self, before: State, increment: Array, lmbda: Array, known_bar: Array | None, out: StateGradient
    ) -> None:
        """Mass, mass damping and gravity."""
        s, p, scheme, g = self.simulation, self.simulation.parameters, self.simulation.model.integrator, self.gradient
        weighted = s.mass[:, None] * lmbda
        moved = -(scheme.c_m + scheme.c_d * p.mass_damping_per_s) * increment + scheme.p_v * before.v
        out.v += scheme.p_v * weighted
        g.mass_damping_per_s -= scheme.c_d * float((weighted * increment).sum())
        if scheme.carries_acceleration:
            moved += scheme.p_a * before.a
            out.a += scheme.p_a * weighted
        if known_bar is not None:
            known = s.known_velocity(before.v, before.a)
            moved += p.mass_damping_per_s * known
            g.mass_damping_per_s += float((weighted * known).sum())
            known_bar = known_bar + p.mass_damping_per_s * weighted
            out.v += scheme.q_v * known_bar
            out.a += scheme.q_a * known_bar
        total = s.backend.to_host(weighted.sum(axis=0)).astype(np.float64)
        g.gravity_m_s2 += total
        g.density_kg_m3 += (float((weighted * moved).sum()) + float(total @ p.gravity_m_s2)) / p.density_kg_m3

    def _contact_adjoint(
        self, before: State, increment: Array, lin: Linearisation, lmbda: Array, out: StateGradient
    ) -> None:
        """Contact force and stiffness: ℓ = P (n·λ)(s + σB), B = δ̃ - δ - c_k n·Δu, or its explicit form."""
        s, law, scheme = self.simulation, self.simulation.model.contact, self.simulation.model.integrator
        predicted_distance, depth, slope = lin.contact
        distance, start_depth, start_slope = s.contact_state(before.u)
        factor, at = s.pressure_factor(), s.at_points(lmbda)
        along = at @ s.normal
        if law.implicit:
            moved = s.at_points(increment)
            gap = predicted_distance - distance - scheme.c_k * (moved @ s.normal)
            predicted_bar = -factor * along * law.sharpness_per_m * slope * (1 - slope) * gap
            distance_bar = -factor * along * slope
            value = factor * (depth + slope * gap)
            normal_bar = value @ at - (scheme.c_k * factor * along * slope) @ moved
        else:
            change = predicted_distance - distance
            predicted_bar = -factor * along * start_slope
            distance_bar = factor * along * law.sharpness_per_m * start_slope * (1 - start_slope) * change
            normal_bar = (factor * (start_depth - start_slope * change)) @ at
        normal_bar = normal_bar + predicted_bar @ s.at_points(s.position + lin.predicted)
        normal_bar = normal_bar + distance_bar @ s.at_points(s.position + before.u)
        self.gradient.plane_normal += s.backend.to_host(normal_bar)
        self.gradient.plane_offset_m += float((predicted_bar + distance_bar).sum())
        s.add_along_normal(predicted_bar + distance_bar, out.u)
        push = s.xp.zeros_like(lmbda)
        s.add_along_normal(predicted_bar, push)
        self._ahead_adjoint((scheme.c_k * scheme.step_s) * push, out)

    def finish(self, bar: StateGradient) -> ParameterGradient:
        """Carry the derivatives by the initial state to the initial pose and motion; the gradient is then complete."""
        s, p, g = self.simulation, self.simulation.parameters, self.gradient
        body, host = s.model.body, s.backend.to_host
        u_bar, v_bar = (host(x).astype(np.float64) for x in (bar.u, bar.v))
        if not s.model.integrator.carries_acceleration:
            v_bar = v_bar + host(bar.a)
        else:
            self._initial_acceleration_adjoint(host(bar.a).astype(np.float64), u_bar, v_bar)
        u_bar = u_bar + self.start_bar
        v_bar = v_bar * s.model.dirichlet.free[:, None]
        arm = (body.node_position_m - body.centroid_m) @ rotation_matrix(p.rotation_rad).T
        # Sums along contiguous rows: a batch comes here once for each of its systems.
        arms, places, velocities = (np.ascontiguousarray(x.T) for x in (arm, u_bar, v_bar))
        g.translation_m += places.sum(axis=1)
        g.velocity_m_s += velocities.sum(axis=1)
        by_velocity = np.einsum("an,bn->ab", arms, velocities)
        g.angular_velocity_rad_s += _moment(by_velocity)
        turned = by_velocity @ np.cross(np.eye(3), p.angular_velocity_rad_s)  # Σ arm (v × ω)ᵀ
        by_place = np.einsum("an,bn->ab", arms, places) + turned
        g.rotation_rad += left_jacobian(p.rotation_rad).T @ _moment(by_place)
        return g

    def _initial_acceleration_adjoint(self, a_bar: np.ndarray, u_bar: np.ndarray, v_bar: np.ndarray) -> None:
        """a = M⁻¹(f + contact) - α₁ v of `Simulation.initial_acceleration`."""
        s, p, g = self.simulation, self.simulation.parameters, self.gradient
        state = s.initial_state()
        a_bar = a_bar * s.model.dirichlet.free[:, None]
        mass = p.density_kg_m3 * s.model.body.node_volume_m3
        force_bar = a_bar / mass[:, None]
        g.gravity_m_s2 += np.ascontiguousarray(a_bar.T).sum(axis=1)
        g.mass_damping_per_s -= float((a_bar * s.backend.to_host(state.v)).sum())
        v_bar -= p.mass_damping_per_s * a_bar
        if len(s.model.load_n):
            g.density_kg_m3 -= float((force_bar * s.model.load_n).sum()) / p.density_kg_m3
        if s.model.contact is None:
            return
        _, depth, slope = s.contact_state(state.u)
        factor, at = s.pressure_factor(), s.at_points(s.backend.to_device(force_bar))
        along = at @ s.normal
        g.density_kg_m3 -= float((factor * depth * along).sum()) / p.density_kg_m3
        distance_bar = -factor * slope * along
        position = s.at_points(s.position + state.u)
        g.plane_normal += s.backend.to_host((factor * depth) @ at + distance_bar @ position)
        g.plane_offset_m += float(distance_bar.sum())
        push = s.xp.zeros_like(s.zero)
        s.add_along_normal(distance_bar, push)
        u_bar += s.backend.to_host(push)


def _moment(products: np.ndarray) -> np.ndarray:
    """Σ a × b from Σ a bᵀ (3, 3)."""
    return (products - products.T)[[1, 2, 0], [2, 0, 1]]
