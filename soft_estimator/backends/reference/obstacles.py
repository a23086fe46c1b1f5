"""Contact and friction of surface points with obstacles, in one step of one system (METHOD §13).

At the place x̃ = x + u + c_k Δt w, distance δ and normal n of an obstacle that moves at V, of stiffness k and a:

    pressing   k A (s + σ gap) n,    s = log(1 + exp(-a δ))/a,   σ = 1/(1 + exp(a δ)),   gap = c_k n·(Δt w - Δu)
    rubbing    -(μ f_n/S) T q,       f_n = k A s,   T = 1 - n nᵀ,   q = c_d Δu - known - V,   S² = |w₀|² + ε²

w₀ = T m + χ T d is the slip to come, m = w - V, d = c_v v + c_a a, χ = 1/(1 + ρ²), ρ = |T d|²/(|T m|² + ε²).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from soft_estimator.backends.interface import Array, State
from soft_estimator.backends.layout import MOVE, OBSTACLE, PLANE, POSE, REACH, Layout, place
from soft_estimator.backends.reference import contact, solids

if TYPE_CHECKING:
    from soft_estimator.backends.reference.step import Material, System
    from soft_estimator.backends.reference.step_adjoint import Received


def by_name(row: Array, layout: Layout) -> SimpleNamespace:
    parts = {name: row[place(layout, name)] for name, _ in layout}
    return SimpleNamespace(**{n: float(part[0]) if len(part) == 1 else part for n, part in parts.items()})


def obstacles_of(body: Mapping[str, Any]) -> list[SimpleNamespace]:
    """The rows of a body's obstacles, with the tables of fields in the place of their numbers."""
    out = [by_name(row, OBSTACLE) for row in body["obstacles"]]
    for k, o in enumerate(out):
        o.number = k
        o.table = body["tables"][int(o.table)] if len(body["tables"]) else None
    return out


@dataclass(frozen=True)
class Felt:
    """F points near an obstacle: which (F,), where x (F, 3) and from its frame's origin arm (F, 3), normal (F, 3),
    curvature (F, 3, 3), distance, smooth depth [m] and slope (F,), force per depth (F,) [N/m], and how fast the
    obstacle moves there (F, 3) [m/s]."""

    o: SimpleNamespace
    few: Array
    x: Array
    arm: Array
    normal: Array
    curvature: Array
    distance: Array
    depth: Array
    slope: Array
    factor: Array
    moving: Array
    spin: Array

    @property
    def press(self) -> Array:
        return self.factor * self.depth

    def along(self, y: Array) -> Array:
        """T y."""
        return y - self.normal * np.sum(self.normal * y, axis=1, keepdims=True)

    def along_push(self, y: Array, dy: Array, dn: Array) -> Array:
        """Change of T y."""
        turned = dn * np.sum(self.normal * y, axis=1, keepdims=True)
        return self.along(dy) - turned - self.normal * np.sum(dn * y, axis=1, keepdims=True)

    def along_pull(self, y: Array, bar: Array, normal_bar: Array) -> Array:
        """Derivative by y, given that by T y; that by n is added to normal_bar."""
        normal_bar -= bar * np.sum(self.normal * y, axis=1, keepdims=True)
        normal_bar -= y * np.sum(self.normal * bar, axis=1, keepdims=True)
        return self.along(bar)


@dataclass(frozen=True)
class Slip:
    """How the points of `Felt` slip: m and d, w₀ with its parts along the surface, ρ, χ, S and μ f_n/S."""

    m: Array
    d: Array
    m_t: Array
    d_t: Array
    rho: Array
    chi: Array
    w0: Array
    size: Array
    strength: Array


def stiffness_and_sharpness(s: System, o: SimpleNamespace) -> tuple[float, float]:
    m = s.material
    return (o.stiffness_pa_per_m, o.sharpness_per_m) if o.own else (
        m.contact_stiffness_pa_per_m, m.contact_sharpness_per_m
    )  # fmt: skip


def friction(s: System, o: SimpleNamespace) -> float:
    return o.friction if o.own else s.material.friction_coefficient


def felt(s: System, o: SimpleNamespace, pose: SimpleNamespace, when: str, u: Array) -> Felt | None:
    """The points that feel an obstacle at a displacement; when: "start_", "", "middle_" or "end_" of the step."""
    x, m = s.at_points(s.body["position"] + u), s.material
    turn, origin = getattr(pose, f"{when}turn").reshape(3, 3), getattr(pose, f"{when}origin_m")
    y = (x - origin) @ turn
    distance = x @ m.plane_normal + m.plane_offset_m if o.kind == PLANE else solids.distance(o, y)
    stiffness, sharpness = stiffness_and_sharpness(s, o)
    few = np.flatnonzero(distance < REACH / sharpness)
    if not len(few):
        return None
    x, y, distance = x[few], y[few], distance[few]
    normal, curvature = np.tile(m.plane_normal, (len(few), 1)), np.zeros((len(few), 3, 3))
    if o.kind != PLANE:
        normal, curvature = solids.gradient(o, y) @ turn.T, turn @ solids.curvature(o, y) @ turn.T
    depth, slope = contact.depth_and_slope(sharpness, distance)
    moves = when in ("", "middle_")
    spin = getattr(pose, f"{when}spin_per_s").reshape(3, 3) if moves else np.zeros((3, 3))
    moving = (getattr(pose, f"{when}drift_m_s") if moves else np.zeros(3)) + x @ spin.T
    factor = stiffness * s.body["point_area"][few]
    return Felt(o, few, x, x - origin, normal, curvature, distance, depth, slope, factor, moving, spin)


class Obstacles:
    """All obstacles of a system, in one step."""

    def __init__(self, system: System, poses: Array) -> None:
        self.system = system
        self.poses = [by_name(row, POSE) for row in poses]
        self.pairs = list(zip(system.obstacles, self.poses))
        self._last: tuple[State, list[Felt]] | None = None

    def at(self, state: State) -> list[Felt]:
        """The points that feel each of them where the last motion leads; kept for those who ask again."""
        if self._last is None or any(a is not b for a, b in zip(state, self._last[0])):
            s, (u, v, a) = self.system, state
            ahead = u + s.scheme.c_k * s.scheme.step_s * s.scheme.ahead(v, a)
            found = (felt(s, o, pose, "", ahead) for o, pose in self.pairs)
            self._last = state, [at for at in found if at is not None]
        return self._last[1]

    def slip(self, at: Felt, state: State) -> Slip:
        s, (_, v, a), e2 = self.system, state, at.o.slip_speed_m_s**2
        by_v, by_a = s.scheme.speeding
        m = s.at_points(s.scheme.ahead(v, a))[at.few] - at.moving
        d = s.at_points(by_v * v + by_a * a)[at.few]
        m_t, d_t = at.along(m), at.along(d)
        rho = np.sum(d_t**2, axis=1) / (np.sum(m_t**2, axis=1) + e2)
        chi = 1.0 / (1.0 + rho**2)
        w0 = m_t + chi[:, None] * d_t
        size = np.sqrt(np.sum(w0**2, axis=1) + e2)
        return Slip(m, d, m_t, d_t, rho, chi, w0, size, friction(s, at.o) * at.press / size)

    def spread(self, at: Felt, force: Array) -> Array:
        """Vectors of the points (F, 3) at the nodes (N, 3)."""
        b, s = self.system.body, self.system
        all_points, out = np.zeros((len(b["point_area"]), 3)), np.zeros((len(s.mass), 3))
        all_points[at.few] = force
        contact.spread_columns(all_points, b["node_cells"], b["point_start"], b["point_weight"], out)
        return out

    def add_blocks(self, state: State, blocks: Array) -> None:
        """Contact's c_k k A σ n nᵀ and friction's c_d (μ f_n/S) T."""
        s, b = self.system, self.system.body
        for at in self.at(state):
            across = at.normal[:, :, None] * at.normal[:, None, :]
            inner = (at.o.presses * s.scheme.c_k * at.factor * at.slope)[:, None, None] * across
            if at.o.rubs:
                inner = inner + s.scheme.c_d * self.slip(at, state).strength[:, None, None] * (np.eye(3) - across)
            every = np.zeros((len(b["point_area"]), 9))
            every[at.few] = inner.reshape(-1, 9)
            points = (b["node_cells"], b["point_start"], b["point_weight"], b["slot"])
            contact.add_point_blocks(every, *points, blocks)

    def force(self, state: State) -> Array:
        """On the right-hand side, (N, 3): all but what is in the blocks."""
        s, (_, v, a) = self.system, state
        out = np.zeros((len(s.mass), 3))
        guess, known = s.scheme.step_s * s.scheme.ahead(v, a), s.scheme.known(v, a)
        for at in self.at(state):
            gap = s.scheme.c_k * np.sum(at.normal * s.at_points(guess)[at.few], axis=1)
            force = (at.o.presses * at.factor * (at.depth + at.slope * gap))[:, None] * at.normal
            if at.o.rubs:
                dragged = at.along(s.at_points(known)[at.few] + at.moving)
                force = force + self.slip(at, state).strength[:, None] * dragged
            out += self.spread(at, force)
        return out

    # Energies, for the guard

    def energy_j(self, u: Array, when: str = "end_") -> float:
        """Contact's energy at a displacement."""
        return sum(self._energy_j(o, pose, u, when) for o, pose in self.pairs)

    def _energy_j(self, o: SimpleNamespace, pose: SimpleNamespace, u: Array, when: str) -> float:
        at = felt(self.system, o, pose, when, u) if o.presses else None
        if at is None:
            return 0.0
        return float(at.factor @ contact.softplus_integral(stiffness_and_sharpness(self.system, o)[1], at.distance))

    def work_j(self, u: Array, u_after: Array) -> float:
        """Of obstacles that move: the energy that their motion gives to the points at rest, and what they drag by."""
        s, total = self.system, 0.0
        for o, pose in self.pairs:
            if not pose.middle_moves:
                continue
            for place_u in (u, u_after):
                total += 0.5 * self._energy_j(o, pose, place_u, "end_")
                total -= 0.5 * self._energy_j(o, pose, place_u, "start_")
            at = felt(s, o, pose, "middle_", 0.5 * (u + u_after)) if o.rubs else None
            if at is None:
                continue
            w = at.along(s.at_points(u_after - u)[at.few] / s.scheme.step_s - at.moving)
            size = np.sqrt(np.sum(w**2, axis=1) + o.slip_speed_m_s**2)
            total -= s.scheme.step_s * float((friction(s, o) * at.press / size) @ np.sum(w * at.moving, axis=1))
        return total


def by_rho(at: Felt, slip: Slip) -> Array:
    """∂χ/∂ρ times the 2/(|T m|² + ε²) of ρ's own slopes, (F,)."""
    return -4.0 * slip.rho * slip.chi**2 / (np.sum(slip.m_t**2, axis=1) + at.o.slip_speed_m_s**2)


def by_distance(at: Felt, sharpness: float, gap: Array) -> Array:
    """Derivative of k A (s + σ gap) by δ."""
    return -at.factor * at.slope * (1.0 + sharpness * (1.0 - at.slope) * gap)


def depth_by_sharpness(at: Felt, sharpness: float) -> Array:
    return -(at.depth + at.slope * at.distance) / sharpness


def by_sharpness(at: Felt, sharpness: float, gap: Array) -> Array:
    """Derivative of k A (s + σ gap) by a."""
    return at.factor * (depth_by_sharpness(at, sharpness) - at.distance * at.slope * (1.0 - at.slope) * gap)


def place_push(at: Felt, dx: Array, by: Material, move: Array) -> tuple[Array, Array]:
    """Changes of δ (F,) and n (F, 3) for changes of the points' places (F, 3), of the plane's parameters, and a move of
    the obstacle's frame, a row of `layout.MOVE`."""
    if at.o.kind == PLANE:
        return np.sum(at.normal * dx, axis=1) + at.x @ by.plane_normal + by.plane_offset_m, np.tile(
            by.plane_normal, (len(dx), 1)
        )
    turned = move[place(MOVE, "turn_rad")]
    moved = dx - move[place(MOVE, "way_m")] - np.cross(turned, at.arm)
    dn = np.einsum("fab,fb->fa", at.curvature, moved) + np.cross(turned, at.normal)
    return np.sum(at.normal * moved, axis=1), dn


def place_pull(at: Felt, distance_bar: Array, normal_bar: Array, out: Received) -> Array:
    """Derivatives by the places, given those by δ and n; the obstacle's parameters, or its frame, get theirs."""
    bar = distance_bar[:, None] * at.normal + np.einsum("fab,fb->fa", at.curvature, normal_bar)
    if at.o.kind == PLANE:
        out.sums["plane_normal"] += distance_bar @ at.x + normal_bar.sum(axis=0)
        out.sums["plane_offset_m"] += distance_bar.sum()
    elif at.o.posed:
        frame = out.frames[at.o.number]
        frame[place(MOVE, "way_m")] -= bar.sum(axis=0)
        frame[place(MOVE, "turn_rad")] += (np.cross(at.normal, normal_bar) - np.cross(at.arm, bar)).sum(axis=0)
    else:
        out.sums["obstacle_shift_m"] -= bar.sum(axis=0)
    return bar
