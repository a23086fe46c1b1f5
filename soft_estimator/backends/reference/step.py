"""The equations of one time step of one system (METHOD §3-§5), in double precision.

    A Δu = M (p_v v + p_a a) + D (q_v v + q_a a) + f - f_int(u) + contact,   A = c_m M + c_d D + c_k (K + contact)
    v⁺ = d_u Δu + d_v v + d_a a        a⁺ = e_u Δu + e_v v + e_a a        D = α₁ M + α₂ K

Rotations are taken at u + predictor Δt w, contact at u + c_k Δt w, where w is v or, without an acceleration, a.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Array, State
from soft_estimator.backends.layout import MATERIAL, place, size
from soft_estimator.backends.reference import cells, contact, matrix
from soft_estimator.backends.reference.obstacles import Obstacles, obstacles_of


@dataclass(frozen=True)
class Scheme:
    """The integrator's coefficients, in the order in which a stepper is given them."""

    step_s: float
    predictor: float
    c_m: float
    c_d: float
    c_k: float
    p_v: float
    d_u: float
    d_v: float
    ahead_v: float
    ahead_a: float
    p_a: float
    q_v: float
    q_a: float
    d_a: float
    e_u: float
    e_v: float
    e_a: float
    h_u: float
    h_v: float
    h_a: float
    k_u: float
    k_v: float
    k_a: float

    @property
    def carries_acceleration(self) -> bool:
        """Whether a is an acceleration; otherwise it is the last step's mean velocity."""
        return self.ahead_a == 0.0

    @property
    def speeding(self) -> tuple[float, float]:
        """What v and a tell of the velocity of the force balance beyond w, if the acceleration stays as it is."""
        if self.carries_acceleration:
            return 0.0, self.c_k * self.step_s
        return (2.0, -2.0) if self.d_v == -1.0 else (0.0, 0.0)

    def ahead(self, v: Array, a: Array) -> Array:
        """The velocity w that looks ahead to where rotations and contact are taken."""
        return v if self.carries_acceleration else a

    def known(self, v: Array, a: Array) -> Array:
        """The part of the damped velocity that is known before the solve."""
        return self.q_v * v + self.q_a * a


@dataclass(frozen=True)
class Material:
    """A row of `layout.MATERIAL`, or a direction of the parameters in the same order, by name."""

    lam: float
    mu: float
    density_kg_m3: float
    mass_damping_per_s: float
    stiffness_damping_s: float
    gravity_m_s2: Array
    plane_normal: Array
    plane_offset_m: float
    contact_stiffness_pa_per_m: float
    contact_sharpness_per_m: float
    friction_coefficient: float
    youngs_modulus_pa: Array

    @classmethod
    def of(cls, row: Array) -> Material:
        fields: dict[str, Any] = {}
        for name, count in MATERIAL:
            part = row[place(MATERIAL, name)]
            fields[name] = float(part[0]) if count == 1 else part
        return cls(**fields, youngs_modulus_pa=row[size(MATERIAL) :])


@dataclass(frozen=True)
class Touch:
    """Contact points of a step, each (P,): distance at its start and where it is looked ahead to; distance, depth and
    slope where contact is linearised, which is the latter for implicit contact and the former for explicit."""

    start: Array
    predicted: Array
    distance: Array
    depth: Array
    slope: Array

    @property
    def change(self) -> Array:
        return self.predicted - self.start


@dataclass(frozen=True)
class Linearised:
    """Rotations (C, 9), blocks (B, 9), inverse diagonal blocks (N, 9), contact of a step and its obstacles."""

    rotations: Array
    blocks: Array
    inverse: Array
    touch: Touch | None
    obstacles: Obstacles


class System:
    """One body with one material.

    Args: body: arrays as a stepper takes them. contact: 1 with contact, 1 for implicit contact; else 0.
    """

    def __init__(
        self, body: Mapping[str, Any], spacing_m: float, scheme: Scheme, contact: Sequence[float], material: Material
    ) -> None:
        self.body, self.spacing, self.scheme, self.material = body, spacing_m, scheme, material
        self.has_contact, self.implicit = bool(contact[0]), bool(contact[1])
        self.mass = material.density_kg_m3 * body["volume"]  # sums of the mass matrix' rows
        self.young = material.youngs_modulus_pa[body["cell_region"]]
        self.free = (body["free"] != 0)[:, None]
        self.obstacles = obstacles_of(body)

    def cell_arguments(self) -> tuple[Array, Array, Array, Array, float, float]:
        """What the cell loops take after the rotations, up to the Lamé parameters."""
        b, m = self.body, self.material
        return b["cell_nodes"], b["gradient_index"], b["table"], self.young, m.lam, m.mu

    def gather(self, corner: Array) -> Array:
        """Corner values (C, 24) summed at the nodes, (N, 3)."""
        out = np.zeros((len(self.mass), 3))
        cells.gather(corner, self.body["node_cells"], 1.0, out)
        return out

    def times_mass(self, x: Array) -> Array:
        """M x = ρ (volume x_i + Σ_j spread_ij (x_j - x_i)) of nodal vectors (N, 3)."""
        spread, near = self.body["spread"].astype(np.float64), self.body["near"]
        moved = np.einsum("oi,oia->ia", spread, x[near] - x)
        return self.mass[:, None] * x + self.material.density_kg_m3 * moved

    def inertia(self) -> Array:
        """M as one number for each block of the pattern, (B,)."""
        slot = self.body["slot"]
        out = np.zeros(len(self.body["column"]))
        out[slot[slot >= 0]] = self.body["spread"].T[slot >= 0]
        out[slot[:, 13]] += self.body["volume"]
        return self.material.density_kg_m3 * out

    def at_points(self, nodal: Array) -> Array:
        """Nodal values (N, 3) at the contact points (P, 3)."""
        out = np.empty((len(self.body["point_area"]), 3))
        contact.at_points(nodal, self.body["point_nodes"], self.body["point_weight"], out)
        return out

    def spread(self, value: Array, normal: Array | None = None) -> Array:
        """Point values (P,) along a normal, the plane's if none is given, at the nodes (N, 3)."""
        b, out = self.body, np.zeros((len(self.mass), 3))
        along = self.material.plane_normal if normal is None else normal
        contact.spread_along(along, value, b["node_cells"], b["point_start"], b["point_weight"], out)
        return out

    @property
    def pressure_factor(self) -> Array:
        """Force per depth of every contact point [N/m]."""
        return self.material.contact_stiffness_pa_per_m * self.body["point_area"]

    def rotations(self, u: Array) -> Array:
        out = np.empty((len(self.young), 9))
        cells.rotations(u, self.body["cell_nodes"], self.spacing, out)
        return out

    def turned_at(self, state: State) -> Array:
        """The displacement that a step's rotations are taken at."""
        u, v, a = state
        return u + self.scheme.predictor * self.scheme.step_s * self.scheme.ahead(v, a)

    def distance(self, u: Array) -> Array:
        """n·x + d of the contact points (P,) [m]."""
        return self.at_points(self.body["position"] + u) @ self.material.plane_normal + self.material.plane_offset_m

    def touch(self, state: State) -> Touch | None:
        """Depth and slope where contact is looked ahead to; of explicit contact, at the start."""
        if not self.has_contact:
            return None
        u, v, a = state
        start = self.distance(u)
        predicted = self.distance(u + self.scheme.c_k * self.scheme.step_s * self.scheme.ahead(v, a))
        at = predicted if self.implicit else start
        return Touch(start, predicted, at, *contact.depth_and_slope(self.material.contact_sharpness_per_m, at))

    def linearise(self, state: State, poses: Array) -> Linearised:
        """poses: where the obstacles are in the step, rows of `layout.POSE`."""
        b, m, s = self.body, self.material, self.scheme
        turned, touch = self.rotations(self.turned_at(state)), self.touch(state)
        blocks, inverse = np.empty((len(b["column"]), 9)), np.empty((len(self.mass), 9))
        inertia = (s.c_m + s.c_d * m.mass_damping_per_s) * self.inertia()
        matrix_arguments = (s.c_k + s.c_d * m.stiffness_damping_s, inertia, b["row_start"], b["slot"], blocks)
        stiffness = (b["gradient_index"], b["table"], self.young, m.lam, m.mu)
        cells.assemble(turned, b["node_cells"], *stiffness, *matrix_arguments)
        if touch is not None and self.implicit:
            stiff, points = s.c_k * self.pressure_factor * touch.slope, (b["point_start"], b["point_weight"])
            contact.add_contact_blocks(m.plane_normal, stiff, b["node_cells"], *points, b["slot"], blocks)
        obstacles = Obstacles(self, poses)
        obstacles.add_blocks(state, blocks)
        matrix.invert_diagonal(blocks, b["slot"], b["free"], inverse)
        return Linearised(turned, blocks, inverse, touch, obstacles)

    def contact_force(self, touch: Touch) -> Array:
        """Normal force of every contact point [N]: f(ũ) + C (ũ - u), or extrapolated, f(u) - C (ũ - u)."""
        change = touch.change if self.implicit else -touch.change
        return self.pressure_factor * (touch.depth + touch.slope * change)

    def right_hand_side(self, state: State, lin: Linearised) -> Array:
        u, v, a = state
        m, s = self.material, self.scheme
        known, corner = s.known(v, a), np.empty((len(self.young), 24))
        z = -m.stiffness_damping_s * known
        cells.cell_forces(u, z, 1.0, lin.rotations, *self.cell_arguments(), self.spacing, corner)
        rhs = self.mass[:, None] * m.gravity_m_s2 + self.body["load"] - self.gather(corner)
        rhs += self.times_mass(s.p_v * v + s.p_a * a + m.mass_damping_per_s * known)
        if lin.touch is not None:
            rhs += self.spread(self.contact_force(lin.touch))
        return rhs + lin.obstacles.force(state)

    def guess(self, state: State, start: Array, paths: Array) -> Array:
        """Δt w on the free nodes; on held ones what their path asks for: Q (x + start) + shift - x - u."""
        u, v, a = state
        out, at, held = self.scheme.step_s * self.scheme.ahead(v, a), self.body["position"], self.body["held"]
        for region in np.unique(held[held >= 0]):
            nodes, path = held == region, paths[region]
            target = (at + start)[nodes] @ path[1:10].reshape(3, 3).T + path[10:]
            out[nodes] = (target - at[nodes] - u[nodes]) if path[0] else 0.0
        return out

    def solve(self, lin: Linearised, b: Array, x: Array, tolerance: float, limit: int) -> tuple[int, float, int]:
        pattern = (self.body["row_start"], self.body["column"], lin.blocks, lin.inverse)
        return matrix.conjugate_gradient(*pattern, b, x, self.body["free"], tolerance, limit)

    def multiply(self, blocks: Array, x: Array) -> Array:
        out = np.empty_like(x)
        matrix.multiply(self.body["row_start"], self.body["column"], blocks, x, out)
        return out

    def advance(self, state: State, increment: Array) -> State:
        """The state after an increment Δu, or its change after the increment's."""
        u, v, a = state
        s = self.scheme
        own = (s.d_u * increment + s.d_v * v + s.d_a * a, s.e_u * increment + s.e_v * v + s.e_a * a)
        held = (s.h_u * increment + s.h_v * v + s.h_a * a, s.k_u * increment + s.k_v * v + s.k_a * a)
        return u + increment, np.where(self.free, own[0], held[0]), np.where(self.free, own[1], held[1])
