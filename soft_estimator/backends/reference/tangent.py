"""Whole tangent steps: the equations of `step` differentiated along several directions, one after the other."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.interface import Array, Paths, State, Stepper
from soft_estimator.backends.reference import cells
from soft_estimator.backends.reference.obstacle_derivatives import obstacles_tangent
from soft_estimator.backends.reference.step import Linearised, Material, System, Touch
from soft_estimator.backends.reference.step_adjoint import by_sharpness
from soft_estimator.backends.reference.stepper import of_system, own_stepper, put_system


class ReferenceTangent:
    """See `soft_estimator.backends.whole_steps.TangentStepper`."""

    def __init__(self, stepper: Stepper, columns: int) -> None:
        self._stepper, self._columns = own_stepper(stepper), columns
        if len(self._stepper.systems) != 1:
            raise ValueError(f"a tangent needs a stepper of one system, not of {len(self._stepper.systems)}")

    def step(
        self,
        directions: Array,
        moves: Array,
        start: Array | None,
        before: State,
        u_after: Array,
        changes: State,
        out: State,
        paths: Paths,
        tolerance: float,
        report: Array,
        least: Array | None = None,
    ) -> None:
        s, limit = self._stepper.systems[0], self._stepper.limit
        u, v, a = (x.reshape(-1, 3).astype(np.float64) for x in before)
        lin, increment = s.linearise((u, v, a), paths.obstacles[0]), u_after.reshape(-1, 3).astype(np.float64) - u
        by_column = [(Material.of(directions[j]), of_system(changes, j)) for j in range(self._columns)]
        elastic = elasticity_tangents(s, lin, (u, v, a), increment, by_column)
        for j, (by, change) in enumerate(by_column):
            rhs = elastic[:, :, j] + inertia_tangent(s, (u, v, a), increment, by, change)
            if lin.touch is not None:
                rhs += contact_tangent(s, lin.touch, (u, v, a), increment, by, change)
            rhs += obstacles_tangent(lin.obstacles, (u, v, a), increment, by, moves[j], change)
            if least is not None and np.linalg.norm(rhs) <= least[j]:
                rhs[...] = 0.0
            solution = guess_tangent(s, change, None if start is None else start[j], paths.held)
            report[j] = s.solve(lin, rhs, solution, tolerance, limit)
            put_system(out, j, s.advance(change, solution))


def elasticity_tangents(
    s: System, lin: Linearised, before: State, increment: Array, by_column: list[tuple[Material, State]]
) -> Array:
    """-δ[f_int(u) + (c_k + c_d α₂) K Δu - α₂ K known] at fixed Δu, (N, 3, K): through R, λ, μ and the nodes' motion."""
    u, v, a = before
    m, scheme, known = s.material, s.scheme, s.scheme.known(v, a)
    z = (scheme.c_k + scheme.c_d * m.stiffness_damping_s) * increment - m.stiffness_damping_s * known
    moved, ahead, dlam, dmu = [], [], [], []
    for by, (du, dv, da) in by_column:
        damped = by.stiffness_damping_s * (scheme.c_d * increment - known)
        moved.append(du - m.stiffness_damping_s * scheme.known(dv, da) + damped)
        ahead.append(du + scheme.predictor * scheme.step_s * scheme.ahead(dv, da))
        dlam.append(m.lam * by.youngs_modulus_pa + by.lam)
        dmu.append(m.mu * by.youngs_modulus_pa + by.mu)
    nodes, index, table, young, lam, mu = s.cell_arguments()
    corner, out = np.empty((len(s.young), 24, len(by_column))), np.zeros((*u.shape, len(by_column)))
    cells.cell_forces_tangents(
        s.turned_at(before), np.stack(ahead, 2), u, z, np.stack(moved, 2), lin.rotations, nodes, index, table, young,
        s.body["cell_region"], lam, mu, np.stack(dlam, 1), np.stack(dmu, 1), s.spacing, corner,
    )  # fmt: skip
    cells.gather_many(corner, s.body["node_cells"], -1.0, out)
    return out


def inertia_tangent(s: System, before: State, increment: Array, by: Material, change: State) -> Array:
    """δ[M (g + p_v v + p_a a + α₁ known - (c_m + c_d α₁) Δu)] at fixed Δu; by.density_kg_m3 is relative."""
    (_, v, a), (_, dv, da) = before, change
    m, scheme = s.material, s.scheme
    known = scheme.known(v, a)
    push = m.gravity_m_s2 + scheme.p_v * v + scheme.p_a * a + m.mass_damping_per_s * known
    push = push - (scheme.c_m + scheme.c_d * m.mass_damping_per_s) * increment
    moved = by.gravity_m_s2 + scheme.p_v * dv + scheme.p_a * da + m.mass_damping_per_s * scheme.known(dv, da)
    moved = moved + by.mass_damping_per_s * (known - scheme.c_d * increment)
    return s.times_mass(by.density_kg_m3 * push + moved)


def contact_tangent(s: System, touch: Touch, before: State, increment: Array, by: Material, change: State) -> Array:
    """δ[n P (depth + slope B)], B = δ̃ - δ - c_k n·Δu, at fixed Δu, or of its explicit form."""
    (u, v, a), (du, dv, da) = before, change
    scheme, normal, factor = s.scheme, s.material.plane_normal, s.pressure_factor
    ahead = scheme.c_k * scheme.step_s
    place = s.body["position"] + u
    predicted = place + ahead * scheme.ahead(v, a)
    by_start = s.at_points(du) @ normal + s.at_points(place) @ by.plane_normal + by.plane_offset_m
    by_ahead = s.at_points(du + ahead * scheme.ahead(dv, da)) @ normal
    by_predicted = by_ahead + s.at_points(predicted) @ by.plane_normal + by.plane_offset_m
    bend, moved = s.material.contact_sharpness_per_m * touch.slope * (1 - touch.slope), s.at_points(increment)
    if s.implicit:
        gap = touch.change - scheme.c_k * (moved @ normal)
        # δ(slope) = -bend δδ̃, δ(depth) = -slope δδ̃, δB = δδ̃ - δδ - c_k δn·Δu
        total = -bend * gap * by_predicted - touch.slope * (by_start + scheme.c_k * (moved @ by.plane_normal))
    else:
        gap = -touch.change
        total = -bend * gap * by_start - touch.slope * by_predicted
    value = touch.depth + touch.slope * gap
    total += by.contact_stiffness_pa_per_m * value + by.contact_sharpness_per_m * by_sharpness(s, touch, gap)
    return s.spread(factor * total) + s.spread(factor * value, by.plane_normal)


def guess_tangent(s: System, change: State, start: Array | None, paths: Array) -> Array:
    """Δt δw on the free nodes; Q δstart - δu on held ones that move, 0 on those that do not."""
    du, dv, da = change
    out, held = s.scheme.step_s * s.scheme.ahead(dv, da), s.body["held"]
    for region in np.unique(held[held >= 0]):
        nodes, path = held == region, paths[region]
        out[nodes] = 0.0
        if path[0] and start is not None:
            out[nodes] = start[nodes] @ path[1:10].reshape(3, 3).T - du[nodes]
    return out
