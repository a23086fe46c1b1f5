"""The contact part of the scene configuration: the ground plane and how rough it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from soft_estimator.config_body import Vector
from soft_estimator.schema import ConfigError, Section, choice, quantity, section, vector

UP = (0.0, 1.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class FrictionConfig(Section):
    """Smooth Coulomb friction: a point that slips at a speed w is held back by μ w/√(w² + ε²) of what presses on it."""

    coefficient: float = quantity(low=0, doc="Coulomb's coefficient μ")
    slip_speed_m_s: float = quantity(
        2e-3,
        unit="m/s",
        low=0,
        low_open=True,
        doc="speed ε; what sticks creeps by less than about that, and steps that are much shorter allow a smaller one",
    )


@dataclass(frozen=True, kw_only=True)
class ContactConfig(Section):
    """A soft plane n·x + d = 0; the body belongs on the side that n points to.

    The pressure at distance δ = n·x + d is k log(1 + exp(-a δ)) / a: k times the depth once well inside.
    """

    normal: Vector = vector(UP, doc="direction n away from the ground, of any length but zero")
    offset_m: float = quantity(0.0, unit="m", doc="offset d of the plane; -d is its height along the unit normal")
    stiffness_pa_per_m: float = quantity(1e7, unit="Pa/m", low=0, low_open=True, doc="pressure k per penetration depth")
    sharpness_per_m: float = quantity(
        2000.0, unit="1/m", low=0, low_open=True, doc="sharpness a of the onset; it sets in over a depth of about 1/a"
    )
    method: str = choice(
        "implicit",
        options=("implicit", "extrapolated"),
        doc="implicit adds the contact stiffness to the system, extrapolated predicts the force from the velocity",
    )
    friction: FrictionConfig | None = section(None, doc="how rough it is; a plane without friction if left out")

    def check(self) -> None:
        # Squares of shorter vectors than this underflow, and no direction is left.
        if max(map(abs, self.normal)) < 1e-100:
            raise ConfigError("= [0, 0, 0] has no direction; give a normal such as [0, 1, 0]", "normal")

    @property
    def unit_normal(self) -> Vector:
        """The normal n scaled to length 1."""
        length = math.hypot(*self.normal)
        x, y, z = self.normal
        return (x / length, y / length, z / length)
