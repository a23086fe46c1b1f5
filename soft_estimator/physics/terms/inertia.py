"""Inertia with mass damping: M ü + α₁ M u̇, M = ρ ∫N_p N_q for a part of the mass and lumped for the rest.

The rows of M sum to the nodes' own masses (`Body.mass_m3`): momentum, centre of mass and weight are those of point
masses at the nodes, kinetic energy is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.terms.interface import Assembly, Columns, Directions, Pulled, Stage, Term


class Inertia(Term[None]):
    """Adds (c_m + c_d α₁) M to the matrix and M (p_v v + p_a a + α₁ known) to the right-hand side.

    Attributes:
        mass: sums of M's rows [kg], (N,).
    """

    parameters: ClassVar[tuple[str, ...]] = ("density_kg_m3", "mass_damping_per_s")

    @cached_property
    def mass(self) -> Array:
        """Of the nodes [kg], (N,)."""
        return self.device.up(self.values.density_kg_m3 * self.device.body.node_volume_m3)

    def times_mass(self, nodal: Array) -> Array:
        """M times nodal vectors, (N, 3) or (N, 3, K)."""
        return self.values.density_kg_m3 * self.device.weighed(nodal)

    def add_blocks(self, stage: Stage, at: None, assembly: Assembly) -> None:
        p, scheme = self.values, stage.scheme
        assembly.add_inertia((scheme.c_m + scheme.c_d * p.mass_damping_per_s) * p.density_kg_m3 * self.device.mass)

    def add_force(self, stage: Stage, at: None, rhs: Array) -> None:
        rhs += self.times_mass(self._driving(stage, stage.state.v, stage.state.a, stage.known_velocity))

    def _driving(self, stage: Stage, v: Array, a: Array, known: Array | None) -> Array:
        """p_v v + p_a a + α₁ known, of the state or of its changes."""
        scheme = stage.scheme
        out = scheme.p_v * v
        if scheme.carries_acceleration:
            out = out + scheme.p_a * a
        if known is not None:
            out = out + self.values.mass_damping_per_s * known
        return out

    def _slowing(self, stage: Stage, increment: Array) -> Array:
        """What mass damping acts on: known - c_d Δu."""
        slowing = -stage.scheme.c_d * increment
        return slowing if stage.known_velocity is None else stage.known_velocity + slowing

    def push(
        self, stage: Stage, at: None, increment: Array, changes: Columns, directions: Directions, out: Array
    ) -> None:
        p, scheme, dtype = self.values, stage.scheme, self.device.dtype
        change = self._driving(stage, changes.v, changes.a, changes.known)
        if directions.any("mass_damping_per_s"):
            damping = directions.on_device(directions.column("mass_damping_per_s"), dtype)
            change = change + self._slowing(stage, increment)[:, :, None] * damping
        if directions.any("density_kg_m3"):
            relative = directions.on_device(directions.column("density_kg_m3") / p.density_kg_m3, dtype)
            moved = self._driving(stage, stage.state.v, stage.state.a, stage.known_velocity)
            moved = moved - (scheme.c_m + scheme.c_d * p.mass_damping_per_s) * increment
            change = change + moved[:, :, None] * relative
        out += self.times_mass(change)

    def pull(self, stage: Stage, at: None, increment: Array, lmbda: Array, out: Pulled) -> None:
        p, scheme = self.values, stage.scheme
        weighted = self.times_mass(lmbda)
        out.v += scheme.p_v * weighted
        if scheme.carries_acceleration:
            out.a += scheme.p_a * weighted
        if stage.known_velocity is not None:
            out.known += p.mass_damping_per_s * weighted
        out.gradient.mass_damping_per_s += float((weighted * self._slowing(stage, increment)).sum())
        moved = self._driving(stage, stage.state.v, stage.state.a, stage.known_velocity)
        moved = moved - (scheme.c_m + scheme.c_d * p.mass_damping_per_s) * increment
        out.gradient.density_kg_m3 += float((weighted * moved).sum()) / p.density_kg_m3

    def energies_j(self, state: State, rotations: Array) -> Mapping[str, float]:
        d = self.device
        if np.dtype(d.dtype) == np.float64:
            return {"kinetic_j": 0.5 * float((state.v * self.times_mass(state.v)).sum())}
        v = d.host(state.v)
        return {"kinetic_j": 0.5 * self.values.density_kg_m3 * float((v * (d.body.mass_matrix_m3 @ v)).sum())}

    def resists(self) -> np.ndarray | None:
        return np.zeros((0, 3))


@dataclass(frozen=True)
class InertiaLaw:
    """Every body has mass."""

    fused: ClassVar[str] = "inertia"

    def defaults(self) -> Mapping[str, Any]:
        return {}

    def bind(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> Inertia:
        return Inertia(device, values, start)
