"""A support that carries the body's weight until it is taken away: f = -(1 - s) m g, s = x² (3 - 2x), x = (t - t₀)/T.

x is kept within 0-1. Hands that hold something straight and let go need some hundredths of a second to do so; t₀ and T
tell when and how fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.state import State
from soft_estimator.physics.terms.interface import Columns, Directions, Pulled, Stage, Term

UNTIL, WITHIN = "support_until_s", "support_gone_within_s"


class Support(Term[None]):
    """Carries what the body and its weights weigh, node by node."""

    parameters: ClassVar[tuple[str, ...]] = ("density_kg_m3", "gravity_m_s2", UNTIL, WITHIN)

    def __init__(self, device: DeviceBody, values: Parameters, start: np.ndarray, weights_kg: np.ndarray) -> None:
        """weights_kg: what rides on the nodes beside the body itself, (N,) or empty."""
        super().__init__(device, values, start)
        self.until_s, self.within_s = values.support_until_s, values.support_gone_within_s
        if not self.within_s > 0.0:
            raise ValueError(f"{WITHIN} = {self.within_s:g} must be a positive time in seconds")
        mass = values.density_kg_m3 * device.body.node_volume_m3
        self.own, self.mass = device.up(mass), device.up(mass + weights_kg if len(weights_kg) else mass)
        self.gravity = device.up(values.gravity_m_s2)

    def _gone(self, time_s: float) -> tuple[float, float, float]:
        """s at a time, and its slopes by t₀ and T [1/s]."""
        x = min(max((time_s - self.until_s) / self.within_s, 0.0), 1.0)
        slope = 6.0 * x * (1.0 - x) / self.within_s
        return x * x * (3.0 - 2.0 * x), -slope, -slope * x

    def add_force(self, stage: Stage, at: None, rhs: Array) -> None:
        rhs -= (1.0 - self._gone(stage.balance_time_s)[0]) * self.mass[:, None] * self.gravity

    def push(
        self, stage: Stage, at: None, increment: Array, changes: Columns, directions: Directions, out: Array
    ) -> None:
        gone, by_until, by_within = self._gone(stage.balance_time_s)
        p, column = self.values, directions.column
        lighter = p.gravity_m_s2[:, None] * (by_until * column(UNTIL) + by_within * column(WITHIN))
        lighter = lighter - (1.0 - gone) * column("gravity_m_s2")
        out += self.mass[:, None, None] * directions.on_device(lighter, self.device.dtype)
        denser = -(1.0 - gone) * p.gravity_m_s2[:, None] * column("density_kg_m3") / p.density_kg_m3
        out += self.own[:, None, None] * directions.on_device(denser, self.device.dtype)

    def pull(self, stage: Stage, at: None, increment: Array, lmbda: Array, out: Pulled) -> None:
        gone, by_until, by_within = self._gone(stage.balance_time_s)
        p, host = self.values, self.device.host
        total, own = (host((mass[:, None] * lmbda).sum(axis=0)) for mass in (self.mass, self.own))
        along = float(total @ p.gravity_m_s2)
        out.gradient.add(UNTIL, by_until * along)
        out.gradient.add(WITHIN, by_within * along)
        out.gradient.gravity_m_s2 -= (1.0 - gone) * total
        out.gradient.density_kg_m3 -= (1.0 - gone) * float(own @ p.gravity_m_s2) / p.density_kg_m3

    def work_j(self, before: State, after: State) -> float:
        """Of the force at the step's middle along its way: without it the guard takes it for energy out of nothing."""
        carried = 1.0 - self._gone(0.5 * (before.time_s + after.time_s))[0]
        moment = self.device.host((self.mass[:, None] * (after.u - before.u)).sum(axis=0))
        return -carried * float(moment @ self.values.gravity_m_s2)

    def resists(self) -> np.ndarray | None:
        return np.zeros((0, 3))


@dataclass(frozen=True, eq=False)
class SupportLaw:
    """A support that begins to give way at until_s and is gone gone_within_s later [s]; weights_kg: see `Support`."""

    until_s: float
    gone_within_s: float
    weights_kg: np.ndarray
    fused: ClassVar[str] = ""

    def defaults(self) -> Mapping[str, Any]:
        return {UNTIL: self.until_s, WITHIN: self.gone_within_s}

    def bind(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> Support:
        return Support(device, values, start, self.weights_kg)
