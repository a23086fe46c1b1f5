"""What a body can touch: signed distance of points to an obstacle, gradient and curvature, and their derivatives.

An obstacle is at home in the world, may move in time, and may be described by registered parameters. The plane is the
first; anything with a distance can follow, in one class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.terms.interface import Directions


@dataclass(frozen=True, eq=False)
class Motion:
    """How an obstacle moves: v(x) = drift + spin x, (3,) [m/s] and (3, 3) [1/s], on the backend."""

    drift: Array
    spin: Array

    def at(self, x: Array) -> Array:
        """Velocities at points (P, 3)."""
        return self.drift + x @ self.spin.T


class Obstacle(Protocol):
    """A signed distance with everything contact asks of it. x: points (P, 3) [m] on the backend, at a time [s].

    Gradients (and their changes) are (P, 3), or (3,) where they are the same everywhere.
    """

    parameters: ClassVar[tuple[str, ...]]

    def distance(self, x: Array, time_s: float) -> Array:
        """δ [m], (P,), negative inside."""
        ...

    def gradient(self, x: Array, time_s: float) -> Array:
        """∇δ, the direction away from the obstacle."""
        ...

    def curvature(self, x: Array, time_s: float) -> Array | None:
        """∇∇δ [1/m], (P, 3, 3); None where it is zero everywhere."""
        ...

    def distance_push(self, x: Array, time_s: float, directions: Directions) -> Array:
        """Change of δ with the parameters at fixed x, (P, width)."""
        ...

    def gradient_push(self, x: Array, time_s: float, directions: Directions) -> Array | None:
        """Change of ∇δ with the parameters at fixed x, (3, width) or (P, 3, width); None for none."""
        ...

    def pull(self, x: Array, time_s: float, distance_bar: Array, gradient_bar: Array, out: ParameterGradient) -> None:
        """Add to the parameters, given derivatives by δ (P,) and ∇δ (P, 3)."""
        ...

    def motion(self, time_s: float) -> Motion | None:
        """How it moves; None at rest. No parameter may change it."""
        ...


class ObstacleLaw(Protocol):
    """An obstacle's fixed part, bound to parameters and a backend by `bind`."""

    def bind(self, backend: Backend, values: Parameters) -> Obstacle: ...


@dataclass(frozen=True)
class PlaneLaw:
    """The plane n·x + d = 0 of the parameters plane_normal and plane_offset_m."""

    def bind(self, backend: Backend, values: Parameters) -> Plane:
        return Plane(backend, values)


class Plane:
    """n·x + d, n used as given, unit length expected."""

    parameters: ClassVar[tuple[str, ...]] = ("plane_normal", "plane_offset_m")

    def __init__(self, backend: Backend, values: Parameters) -> None:
        self.backend = backend
        self.normal, self.offset_m = backend.to_device(values.plane_normal), values.plane_offset_m

    def distance(self, x: Array, time_s: float) -> Array:
        return x @ self.normal + self.offset_m

    def gradient(self, x: Array, time_s: float) -> Array:
        return self.normal

    def curvature(self, x: Array, time_s: float) -> Array | None:
        return None

    def distance_push(self, x: Array, time_s: float, directions: Directions) -> Array:
        change = directions.on_device(directions.column("plane_offset_m"))[None, :]
        if directions.any("plane_normal"):
            change = change + x @ directions.on_device(directions.column("plane_normal"))
        return change

    def gradient_push(self, x: Array, time_s: float, directions: Directions) -> Array | None:
        if not directions.any("plane_normal"):
            return None
        return directions.on_device(directions.column("plane_normal"))

    def pull(self, x: Array, time_s: float, distance_bar: Array, gradient_bar: Array, out: ParameterGradient) -> None:
        by_normal = distance_bar @ x + gradient_bar.sum(axis=0)
        out.plane_normal += np.asarray(self.backend.to_host(by_normal), dtype=np.float64)
        out.plane_offset_m += float(distance_bar.sum())

    def motion(self, time_s: float) -> Motion | None:
        return None
