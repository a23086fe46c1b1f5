"""Weights: masses that ride on the body's surface; a load with inertia, m ü = m g, and no damping of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.terms.interface import Assembly, Columns, Directions, Pulled, Stage, Term


class Weights(Term[None]):
    """Adds c_m m to the matrix and m (p_v v + p_a a + g) to the right-hand side.

    A body in free fall does not feel what falls with it: its initial acceleration is the same without.
    """

    parameters: ClassVar[tuple[str, ...]] = ("gravity_m_s2",)
    rests_undeformed: ClassVar[bool] = True

    def __init__(self, device: DeviceBody, values: Parameters, start: np.ndarray, mass_kg: np.ndarray) -> None:
        """mass_kg: on the nodes, (N,)."""
        super().__init__(device, values, start)
        self.mass_kg, self.mass = mass_kg, device.up(mass_kg)
        self.force = device.up(mass_kg[:, None] * values.gravity_m_s2)

    def add_blocks(self, stage: Stage, at: None, assembly: Assembly) -> None:
        assembly.diagonal += stage.scheme.c_m * self.mass

    def add_force(self, stage: Stage, at: None, rhs: Array) -> None:
        rhs += self.mass[:, None] * self._driving(stage, stage.state.v, stage.state.a) + self.force

    def _driving(self, stage: Stage, v: Array, a: Array) -> Array:
        """p_v v + p_a a, of the state or of its changes."""
        scheme = stage.scheme
        return scheme.p_v * v + scheme.p_a * a if scheme.carries_acceleration else scheme.p_v * v

    def push(
        self, stage: Stage, at: None, increment: Array, changes: Columns, directions: Directions, out: Array
    ) -> None:
        change = self._driving(stage, changes.v, changes.a)
        if directions.any("gravity_m_s2"):
            change = change + directions.on_device(directions.column("gravity_m_s2"), self.device.dtype)
        out += self.mass[:, None, None] * change

    def pull(self, stage: Stage, at: None, increment: Array, lmbda: Array, out: Pulled) -> None:
        weighted = self.mass[:, None] * lmbda
        out.v += stage.scheme.p_v * weighted
        if stage.scheme.carries_acceleration:
            out.a += stage.scheme.p_a * weighted
        out.gradient.gravity_m_s2 += self.device.host(weighted.sum(axis=0))

    def energies_j(self, state: State, rotations: Array) -> Mapping[str, float]:
        u, v = self.device.host(state.u), self.device.host(state.v)
        moment = self.mass_kg @ (self.device.body.node_position_m + u)
        kinetic = 0.5 * float(self.mass_kg @ (v**2).sum(axis=1))
        return {"kinetic_j": kinetic, "gravity_j": float(-self.values.gravity_m_s2 @ moment)}

    def resists(self) -> np.ndarray | None:
        return np.zeros((0, 3))


@dataclass(frozen=True, eq=False)
class WeightsLaw:
    """Masses on the nodes [kg], (N,)."""

    mass_kg: np.ndarray
    fused: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mass_kg).all() and (self.mass_kg >= 0).all()):
            raise ValueError(f"a weight's mass_kg = {self.mass_kg.min():g} must not be negative; give the mass itself")

    def defaults(self) -> Mapping[str, Any]:
        return {}

    def bind(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> Weights:
        return Weights(device, values, start, self.mass_kg)
