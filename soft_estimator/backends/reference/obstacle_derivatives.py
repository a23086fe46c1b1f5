"""Contact and friction with obstacles (`obstacles`) forwards along a direction, and backwards.

Both are of g = r - A Δu at fixed Δu: the force on the right-hand side less what the blocks give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from soft_estimator.backends.interface import Array, State
from soft_estimator.backends.reference.obstacles import (
    Felt,
    Obstacles,
    by_distance,
    by_rho,
    by_sharpness,
    depth_by_sharpness,
    friction,
    place_pull,
    place_push,
    stiffness_and_sharpness,
)

if TYPE_CHECKING:
    from soft_estimator.backends.reference.step import Material
    from soft_estimator.backends.reference.step_adjoint import Received


def obstacles_tangent(
    obstacles: Obstacles, before: State, increment: Array, by: Material, moves: Array, change: State
) -> Array:
    """Change of g (N, 3) along a direction of the parameters, which moves the obstacles' frames, and of the state."""
    out = np.zeros_like(before[0])
    for at in obstacles.at(before):
        force = np.zeros_like(at.x)
        if at.o.presses:
            force += _pressing_push(obstacles, at, before, increment, by, moves, change)
        if at.o.rubs:
            force += _rubbing_push(obstacles, at, before, increment, by, moves, change)
        out += obstacles.spread(at, force)
    return out


def obstacles_adjoint(
    obstacles: Obstacles, before: State, increment: Array, lmbda: Array, out: Received
) -> tuple[Array, Array, Array]:
    """Derivatives of λᵀg by u, v and a before the step (N, 3); out gets the parameters'."""
    u_bar, ahead_bar, v_bar, a_bar = (np.zeros_like(before[0]) for _ in range(4))
    for at in obstacles.at(before):
        parts: tuple[Array, ...] = ()
        if at.o.presses:
            parts = _pressing_pull(obstacles, at, before, increment, lmbda, out)
            for total, part in zip((u_bar, ahead_bar), parts):
                total += obstacles.spread(at, part)
        if at.o.rubs:
            parts = _rubbing_pull(obstacles, at, before, increment, lmbda, out)
            for total, part in zip((u_bar, ahead_bar, v_bar, a_bar), parts):
                total += obstacles.spread(at, part)
    if obstacles.system.scheme.carries_acceleration:
        return u_bar, v_bar + ahead_bar, a_bar
    return u_bar, v_bar, a_bar + ahead_bar


def _moved(obstacles: Obstacles, at: Felt, before: State, increment: Array) -> Array:
    """c_k (Δt w - Δu) at the points."""
    s, (_, v, a) = obstacles.system, before
    return s.scheme.c_k * s.at_points(s.scheme.step_s * s.scheme.ahead(v, a) - increment)[at.few]


def _pressing_push(
    obstacles: Obstacles, at: Felt, before: State, increment: Array, by: Material, moves: Array, change: State
) -> Array:
    s, (du, dv, da) = obstacles.system, change
    sharpness, moved = stiffness_and_sharpness(s, at.o)[1], _moved(obstacles, at, before, increment)
    ahead = s.scheme.c_k * s.scheme.step_s * s.at_points(s.scheme.ahead(dv, da))[at.few]
    d_distance, dn = place_push(at, s.at_points(du)[at.few] + ahead, by, moves[at.o.number])
    gap = np.sum(at.normal * moved, axis=1)
    dgap = np.sum(at.normal * ahead + moved * dn, axis=1)
    value = at.factor * (at.depth + at.slope * gap)
    dvalue = by_distance(at, sharpness, gap) * d_distance + at.factor * at.slope * dgap
    if not at.o.own:
        dvalue += by.contact_stiffness_pa_per_m * value
        dvalue += by.contact_sharpness_per_m * by_sharpness(at, sharpness, gap)
    return dvalue[:, None] * at.normal + value[:, None] * dn


def _rubbing_push(
    obstacles: Obstacles, at: Felt, before: State, increment: Array, by: Material, moves: Array, change: State
) -> Array:
    s, (_, v, a), (du, dv, da) = obstacles.system, before, change
    scheme, slip, sharpness = s.scheme, obstacles.slip(at, before), stiffness_and_sharpness(s, at.o)[1]

    def here(nodal: Array) -> Array:
        return s.at_points(nodal)[at.few]

    dx = here(du + scheme.c_k * scheme.step_s * scheme.ahead(dv, da))
    d_distance, dn = place_push(at, dx, by, moves[at.o.number])
    carried, (by_v, by_a) = dx @ at.spin.T, scheme.speeding
    q = here(scheme.c_d * increment - scheme.known(v, a)) - at.moving
    dm_t = at.along_push(slip.m, here(scheme.ahead(dv, da)) - carried, dn)
    dd_t = at.along_push(slip.d, here(by_v * dv + by_a * da), dn)
    dchi = by_rho(at, slip) * np.sum(slip.d_t * dd_t - slip.rho[:, None] * slip.m_t * dm_t, axis=1)
    dw0 = dm_t + slip.chi[:, None] * dd_t + dchi[:, None] * slip.d_t
    dsize = np.sum(slip.w0 * dw0, axis=1) / slip.size
    dpress = -at.factor * at.slope * d_distance
    dfriction = 0.0
    if not at.o.own:
        dpress += by.contact_stiffness_pa_per_m * at.press
        dpress += by.contact_sharpness_per_m * at.factor * depth_by_sharpness(at, sharpness)
        dfriction = by.friction_coefficient
    dstrength = (friction(s, at.o) * dpress + dfriction * at.press - slip.strength * dsize) / slip.size
    dq = at.along_push(q, -here(scheme.known(dv, da)) - carried, dn)
    return -dstrength[:, None] * at.along(q) - slip.strength[:, None] * dq


def _pressing_pull(
    obstacles: Obstacles, at: Felt, before: State, increment: Array, lmbda: Array, out: Received
) -> tuple[Array, Array]:
    """Derivatives by u and by the velocity w that looks ahead, at the points."""
    s = obstacles.system
    (stiffness, sharpness), moved = stiffness_and_sharpness(s, at.o), _moved(obstacles, at, before, increment)
    pulled = s.at_points(lmbda)[at.few]
    gap, along = np.sum(at.normal * moved, axis=1), np.sum(at.normal * pulled, axis=1)
    value, gap_bar = at.factor * (at.depth + at.slope * gap), at.factor * at.slope * along
    if not at.o.own:
        out.sums["contact_stiffness_pa_per_m"] += (along * value).sum() / stiffness
        out.sums["contact_sharpness_per_m"] += (along * by_sharpness(at, sharpness, gap)).sum()
    normal_bar = value[:, None] * pulled + gap_bar[:, None] * moved
    x_bar = place_pull(at, by_distance(at, sharpness, gap) * along, normal_bar, out)
    return x_bar, s.scheme.c_k * s.scheme.step_s * (x_bar + gap_bar[:, None] * at.normal)


def _rubbing_pull(
    obstacles: Obstacles, at: Felt, before: State, increment: Array, lmbda: Array, out: Received
) -> tuple[Array, Array, Array, Array]:
    """Derivatives by u, by the velocity w that looks ahead, by v and by a, at the points."""
    s, (_, v, a) = obstacles.system, before
    scheme, slip, (stiffness, sharpness) = s.scheme, obstacles.slip(at, before), stiffness_and_sharpness(s, at.o)
    pulled, normal_bar = s.at_points(lmbda)[at.few], np.zeros_like(at.x)
    q = s.at_points(scheme.c_d * increment - scheme.known(v, a))[at.few] - at.moving
    strength_bar = -np.sum(pulled * at.along(q), axis=1) / slip.size
    w0_bar = -(strength_bar * slip.strength / slip.size)[:, None] * slip.w0
    q_bar = at.along_pull(q, -slip.strength[:, None] * pulled, normal_bar)
    rho_bar = by_rho(at, slip) * np.sum(w0_bar * slip.d_t, axis=1)
    d_bar = at.along_pull(slip.d, slip.chi[:, None] * w0_bar + rho_bar[:, None] * slip.d_t, normal_bar)
    m_bar = at.along_pull(slip.m, w0_bar - (rho_bar * slip.rho)[:, None] * slip.m_t, normal_bar)
    press_bar = friction(s, at.o) * strength_bar
    x_bar = place_pull(at, -press_bar * at.factor * at.slope, normal_bar, out)
    x_bar = x_bar - (q_bar + m_bar) @ at.spin
    if not at.o.own:
        out.sums["contact_stiffness_pa_per_m"] += (press_bar * at.press).sum() / stiffness
        by_a = press_bar * at.factor * depth_by_sharpness(at, sharpness)
        out.sums["contact_sharpness_per_m"] += by_a.sum()
        out.sums["friction_coefficient"] += (strength_bar * at.press).sum()
    gained = scheme.speeding
    ahead_bar = m_bar + scheme.c_k * scheme.step_s * x_bar
    return x_bar, ahead_bar, gained[0] * d_bar - scheme.q_v * q_bar, gained[1] * d_bar - scheme.q_a * q_bar
