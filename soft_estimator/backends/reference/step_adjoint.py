"""The equations of `step` backwards (METHOD §7): with A λ = Δu_bar, all that r and A depend on gets its part of
λᵀ(r - A Δu)."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.interface import Array, State
from soft_estimator.backends.layout import ADJOINT_SUMS, MOVE, size
from soft_estimator.backends.reference import cells
from soft_estimator.backends.reference.obstacle_derivatives import obstacles_adjoint
from soft_estimator.backends.reference.step import Linearised, System, Touch


class Received:
    """What the parameters received so far.

    Attributes:
        sums: by name, as `layout.ADJOINT_SUMS` has them. start: by the initial displacement, (N, 3).
        lame: by λ and μ of each cell, (C, 2). frames: of posed obstacles, rows of `layout.MOVE`, (O, 6).
    """

    def __init__(self, nodes: int, cell_count: int, obstacles: int) -> None:
        self.sums = {name: np.zeros(count) for name, count in ADJOINT_SUMS}
        self.start, self.lame = np.zeros((nodes, 3)), np.zeros((cell_count, 2))
        self.frames = np.zeros((obstacles, size(MOVE)))

    def row(self) -> Array:
        self.sums["start"] = self.start.sum(axis=0)
        return np.concatenate([self.sums[name] for name, _ in ADJOINT_SUMS])


def increment_adjoint(s: System, bar: State) -> Array:
    """Δu_bar: the adjoint of `System.advance` by the increment."""
    u_bar, v_bar, a_bar = bar
    by_v, by_a = np.where(s.free, s.scheme.d_u, s.scheme.h_u), np.where(s.free, s.scheme.e_u, s.scheme.k_u)
    return u_bar + by_v * v_bar + by_a * a_bar


def step_adjoint(
    s: System, lin: Linearised, before: State, u_after: Array, bar: State, lmbda: Array, paths: Array, out: Received
) -> State:
    """Derivatives by the state before the step, given those by the state after it and λ; out gets the parameters'."""
    u, v, a = before
    scheme, m, increment = s.scheme, s.material, u_after - u
    known, weighted = scheme.known(v, a), s.times_mass(lmbda)
    pull, turn = elasticity_adjoint(s, lin, before, increment, known, lmbda, out)
    damped = known - scheme.c_d * increment
    moved = scheme.p_v * v + scheme.p_a * a - scheme.c_m * increment + m.mass_damping_per_s * damped
    out.sums["stiffness_damping_s"] += (pull * damped).sum()
    out.sums["mass_damping_per_s"] += (weighted * damped).sum()
    out.sums["gravity_m_s2"] += weighted.sum(axis=0)
    out.sums["density_kg_m3"] += (weighted * moved).sum()
    known_bar = m.stiffness_damping_s * pull + m.mass_damping_per_s * weighted
    u_out = bar[0] - pull + turn
    v_kept = np.where(s.free, scheme.d_v, scheme.h_v) * bar[1] + np.where(s.free, scheme.e_v, scheme.k_v) * bar[2]
    a_kept = np.where(s.free, scheme.d_a, scheme.h_a) * bar[1] + np.where(s.free, scheme.e_a, scheme.k_a) * bar[2]
    v_out = v_kept + scheme.p_v * weighted + scheme.q_v * known_bar
    a_out = a_kept + scheme.p_a * weighted + scheme.q_a * known_bar
    ahead_bar = scheme.predictor * scheme.step_s * turn
    by_u, by_v, by_a = obstacles_adjoint(lin.obstacles, before, increment, lmbda, out)
    u_out, v_out, a_out = u_out + by_u, v_out + by_v, a_out + by_a
    if lin.touch is not None:
        by_distance, by_prediction = contact_adjoint(s, lin.touch, before, increment, lmbda, out)
        u_out = u_out + s.spread(by_distance + by_prediction)
        ahead_bar = ahead_bar + scheme.c_k * scheme.step_s * s.spread(by_prediction)
    u_out = u_out - held_adjoint(s, increment_adjoint(s, bar) - s.multiply(lin.blocks, lmbda), paths, out)
    if scheme.carries_acceleration:
        return u_out, v_out + ahead_bar, a_out
    return u_out, v_out, a_out + ahead_bar


def elasticity_adjoint(
    s: System, lin: Linearised, before: State, increment: Array, known: Array, lmbda: Array, out: Received
) -> tuple[Array, Array]:
    """What the elastic forces pull at u + z, and minus what they pull at the rotations' displacement, both (N, 3)."""
    damping, scheme, count = s.material.stiffness_damping_s, s.scheme, len(s.young)
    z = (scheme.c_k + scheme.c_d * damping) * increment - damping * known
    y_bar, r_bar, lame_bar, turned = (np.empty((count, width)) for width in (24, 9, 2, 24))
    cells.cell_forces_adjoint(
        lmbda, before[0], z, 1.0, lin.rotations, *s.cell_arguments(), s.spacing, y_bar, r_bar, lame_bar
    )
    cells.rotations_adjoint(s.turned_at(before), lin.rotations, r_bar, s.body["cell_nodes"], s.spacing, turned)
    out.lame += lame_bar
    return s.gather(y_bar), -s.gather(turned)


def by_sharpness(s: System, touch: Touch, gap: Array) -> Array:
    """Derivative of s + σ gap by the sharpness a: ∂s/∂a = -(s + σ δ)/a, ∂σ/∂a = -δ σ (1 - σ)."""
    by_depth = -(touch.depth + touch.slope * touch.distance) / s.material.contact_sharpness_per_m
    return by_depth - touch.distance * touch.slope * (1 - touch.slope) * gap


def contact_adjoint(
    s: System, touch: Touch, before: State, increment: Array, lmbda: Array, out: Received
) -> tuple[Array, Array]:
    """Derivatives by the points' distances at the start and where they are looked ahead to, of

    ℓ = P (n·λ)(depth + slope B), B = δ̃ - δ - c_k n·Δu, or of its explicit form P (n·λ)(depth - slope (δ̃ - δ)).
    """
    m, scheme, factor = s.material, s.scheme, s.pressure_factor
    at, moved = s.at_points(lmbda), s.at_points(increment)
    along, bend = at @ m.plane_normal, m.contact_sharpness_per_m * touch.slope * (1 - touch.slope)
    if s.implicit:
        gap = touch.change - scheme.c_k * (moved @ m.plane_normal)
        by_prediction, by_distance = -factor * along * bend * gap, -factor * along * touch.slope
    else:
        gap = -touch.change
        by_prediction, by_distance = -factor * along * touch.slope, -factor * along * bend * gap
    value = touch.depth + touch.slope * gap
    u, v, a = before
    place = s.body["position"] + u
    ahead = place + scheme.c_k * scheme.step_s * scheme.ahead(v, a)
    normal_bar = (factor * value) @ at + by_distance @ s.at_points(place) + by_prediction @ s.at_points(ahead)
    if s.implicit:
        normal_bar -= (scheme.c_k * factor * along * touch.slope) @ moved
    out.sums["plane_normal"] += normal_bar
    out.sums["plane_offset_m"] += (by_distance + by_prediction).sum()
    out.sums["contact_stiffness_pa_per_m"] += (factor * along * value).sum() / m.contact_stiffness_pa_per_m
    out.sums["contact_sharpness_per_m"] += (factor * along * by_sharpness(s, touch, gap)).sum()
    return by_distance, by_prediction


def held_adjoint(s: System, given: Array, paths: Array, out: Received) -> Array:
    """Of held nodes that move, Δu = Q (x + start) + shift - x - u: what goes to u, (N, 3); start gets its part."""
    moves, held = np.zeros((len(given), 1)), s.body["held"]
    for region in np.unique(held[held >= 0]):
        nodes, path = held == region, paths[region]
        if path[0]:
            moves[nodes] = 1.0
            out.start[nodes] += given[nodes] @ path[1:10].reshape(3, 3)
    return moves * given
