"""The contact part of the scene configuration: the ground plane, obstacles beside it, and how rough they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from soft_estimator.config_body import BoxShape, CapsuleShape, MeshShape, ScanShape, SdfShape, SphereShape, Vector
from soft_estimator.schema import ConfigError, Section, choice, quantity, section, sections, setting, vector

UP = (0.0, 1.0, 0.0)
ZERO = (0.0, 0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class WaypointConfig(Section):
    """Where a held box or an obstacle is at a given time, relative to where it starts."""

    time_s: float = quantity(unit="s", low=0, doc="time of the waypoint")
    translation_m: Vector = vector(ZERO, unit="m", doc="shift of it")
    rotation_rad: Vector = vector(ZERO, unit="rad", doc="axis-angle rotation about its centre")


def check_times(path: Sequence[WaypointConfig]) -> None:
    """Refuse waypoints that are not in order."""
    times = [waypoint.time_s for waypoint in path]
    for i in range(1, len(times)):
        if times[i] <= times[i - 1]:
            problem = f"= {times[i]} must be later than the waypoint before it ({times[i - 1]}); put them in order"
            raise ConfigError(problem, f"path[{i}].time_s")


def check_direction(direction: Vector, key: str) -> None:
    """Refuse a vector without a direction: squares of shorter ones than this underflow."""
    if max(map(abs, direction)) < 1e-100:
        raise ConfigError("= [0, 0, 0] has no direction; give a normal such as [0, 1, 0]", key)


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
    substeps: int = quantity(
        1,
        low=1,
        high=64,
        doc="shorter steps that a step is cut into while something rubs: what slides in a blow wants 0.25 ms or less",
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
        check_direction(self.normal, "normal")

    @property
    def unit_normal(self) -> Vector:
        """The normal n scaled to length 1."""
        length = math.hypot(*self.normal)
        x, y, z = self.normal
        return (x / length, y / length, z / length)


@dataclass(frozen=True, kw_only=True)
class PlaneShape(Section):
    """Everything below a plane."""

    tag: ClassVar[str] = "plane"
    normal: Vector = vector(UP, doc="direction out of it, of any length but zero")
    through_m: Vector = vector(ZERO, unit="m", doc="a point of it")

    def check(self) -> None:
        check_direction(self.normal, "normal")


ObstacleShape = PlaneShape | SphereShape | CapsuleShape | BoxShape | MeshShape | SdfShape | ScanShape


@dataclass(frozen=True, kw_only=True)
class ObstacleConfig(Section):
    """A rigid thing beside the ground plane, at rest, led along a path, or a tool whose pose comes in live.

    Its pressure is that of `contact`, with numbers of its own.
    """

    shape: ObstacleShape = section(
        doc="what it looks like, in world coordinates; with path_file or tool_frame in the tool's frame"
    )
    edge_m: float = quantity(
        1e-3, unit="m", low=0, doc="radius of a box's edges; 0 is sharp, and jolts what slides over"
    )
    spacing_m: float | None = quantity(
        None,
        unit="m",
        low=0,
        low_open=True,
        doc="edge of the cells a mesh is sampled on; a 48th of its size if left out",
    )
    stiffness_pa_per_m: float = quantity(1e7, unit="Pa/m", low=0, low_open=True, doc="pressure k per penetration depth")
    sharpness_per_m: float = quantity(2000.0, unit="1/m", low=0, low_open=True, doc="sharpness a of the onset")
    friction: FrictionConfig | None = section(None, doc="how rough it is; without friction if left out")
    path: tuple[WaypointConfig, ...] = sections(
        doc="waypoints at increasing times, relative to where it starts; before the first and after the last it rests"
    )
    path_file: str | None = setting(
        None, doc="CSV file of the tool's frame in the world: time_s,x_m,y_m,z_m,qx,qy,qz,qw; instead of path"
    )
    path_clock: str = choice(
        "start",
        options=("start", "stamps"),
        doc="what path_file counts its times from: the scene's start, which is a recording's first frame, or the clock "
        "of a recording's stamps (a robot's log)",
    )
    tool_frame: str | None = setting(
        None,
        doc="name of the tool's frame in tf, which leads it in a replay of a bag and in the nodes; instead of path",
    )
    own_points_m: float = quantity(
        2e-3,
        unit="m",
        low=0,
        doc="points of a camera nearer to it than this, and four deviations, are its own and none of the body's",
    )

    def check(self) -> None:
        check_times(self.path)
        if self.path and self.path_file is not None:
            raise ConfigError(f"= '{self.path_file}' and path both lead it; give only one", "path_file")
        if self.tool_frame is not None and (self.path or self.path_file is not None):
            other = "path" if self.path else "path_file"
            raise ConfigError(f"= '{self.tool_frame}' and {other} both lead it; give only one", "tool_frame")
        if self.tool_frame is not None and not self.tool_frame.strip("/ "):
            raise ConfigError(f"= '{self.tool_frame}' names no frame; give one of tf such as tool0", "tool_frame")
        if self.path_clock == "stamps" and self.path_file is None:
            raise ConfigError(
                "= stamps is about path_file, which is not given; give it, or leave this out", "path_clock"
            )
        if isinstance(self.shape, BoxShape) and 2 * self.edge_m >= min(self.shape.size_m):
            problem = f"= {self.edge_m} must be below half of the shortest side ({min(self.shape.size_m)}); lower it"
            raise ConfigError(problem, "edge_m")
