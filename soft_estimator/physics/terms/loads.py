"""Gravity and dead loads: f = ρ g · volume + load."""

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
from soft_estimator.physics.terms.interface import Columns, Directions, Pulled, Stage, Term


class Loads(Term[None]):
    """Forces that no motion changes.

    Attributes:
        load_n: the part that is not weight [N], on the host, (N, 3) or empty.
    """

    parameters: ClassVar[tuple[str, ...]] = ("density_kg_m3", "gravity_m_s2")

    def __init__(self, device: DeviceBody, values: Parameters, start: np.ndarray, load_n: np.ndarray) -> None:
        super().__init__(device, values, start)
        self.load_n = load_n

    @cached_property
    def mass(self) -> Array:
        """Of the nodes [kg], (N,)."""
        return self.device.up(self.values.density_kg_m3 * self.device.body.node_volume_m3)

    @cached_property
    def force(self) -> Array:
        """[N], (N, 3)."""
        values = self.values
        force = values.density_kg_m3 * self.device.body.node_volume_m3[:, None] * values.gravity_m_s2
        return self.device.up(force + self.load_n if len(self.load_n) else force)

    def add_force(self, stage: Stage, at: None, rhs: Array) -> None:
        rhs += self.force

    def push(
        self, stage: Stage, at: None, increment: Array, changes: Columns, directions: Directions, out: Array
    ) -> None:
        relative = directions.column("density_kg_m3") / self.values.density_kg_m3
        gravity = directions.column("gravity_m_s2") + relative * self.values.gravity_m_s2[:, None]
        if gravity.any():
            out += self.mass[:, None, None] * directions.on_device(gravity, self.device.dtype)

    def pull(self, stage: Stage, at: None, increment: Array, lmbda: Array, out: Pulled) -> None:
        total = self.device.host((self.mass[:, None] * lmbda).sum(axis=0))
        out.gradient.gravity_m_s2 += total
        out.gradient.density_kg_m3 += float(total @ self.values.gravity_m_s2) / self.values.density_kg_m3

    def energies_j(self, state: State, rotations: Array) -> Mapping[str, float]:
        """Potentials; that of gravity is zero at the world's origin."""
        u, (weight, at_rest_j) = self.device.backend.to_host(state.u), self._gravity
        load = -float((self.load_n * u).sum()) if len(self.load_n) else 0.0
        return {"gravity_j": at_rest_j - float(weight @ u @ self.values.gravity_m_s2), "load_j": load}

    @cached_property
    def _gravity(self) -> tuple[np.ndarray, float]:
        """Masses of the nodes [kg], (N,), and the potential of the body at rest [J], on the host."""
        body = self.device.body
        mass = self.values.density_kg_m3 * body.node_volume_m3
        return mass, -float(mass @ body.node_position_m @ self.values.gravity_m_s2)

    def resists(self) -> np.ndarray | None:
        return np.zeros((0, 3))


@dataclass(frozen=True, eq=False)
class LoadsLaw:
    """Gravity, and dead loads on the nodes [N], (N, 3) or empty."""

    load_n: np.ndarray
    fused: ClassVar[str] = "loads"

    def defaults(self) -> Mapping[str, Any]:
        return {}

    def bind(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> Loads:
        return Loads(device, values, start, self.load_n)
