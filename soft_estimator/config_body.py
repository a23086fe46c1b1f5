"""The body part of the scene configuration: shapes, where they come from, and the grid they are put on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from soft_estimator.schema import ConfigError, Section, choice, quantity, section, sections, setting, vector

Vector = tuple[float, float, float]

_ORIGIN = (0.0, 0.0, 0.0)
_OWN_CENTRE = "axis-angle rotation about the shape's own centre"
_ABOUT_ORIGIN = "axis-angle rotation about the origin"


def check_box(low_m: Vector, high_m: Vector) -> None:
    """Refuse a box whose low corner is not below its high corner along every axis."""
    for axis, low, high in zip("xyz", low_m, high_m):
        if low >= high:
            raise ConfigError(f"= {list(low_m)} must be below high_m {list(high_m)} along {axis}; swap them", "low_m")


@dataclass(frozen=True, kw_only=True)
class BoxShape(Section):
    """A cuboid."""

    tag: ClassVar[str] = "box"
    size_m: Vector = vector(unit="m", low=0, low_open=True, doc="edge lengths")
    center_m: Vector = vector(_ORIGIN, unit="m", doc="centre")
    rotation_rad: Vector = vector(_ORIGIN, unit="rad", doc=_OWN_CENTRE)


@dataclass(frozen=True, kw_only=True)
class SphereShape(Section):
    """A ball."""

    tag: ClassVar[str] = "sphere"
    radius_m: float = quantity(unit="m", low=0, low_open=True, doc="radius")
    center_m: Vector = vector(_ORIGIN, unit="m", doc="centre")
    rotation_rad: Vector = vector(_ORIGIN, unit="rad", doc=_OWN_CENTRE)


@dataclass(frozen=True, kw_only=True)
class TorusShape(Section):
    """A ring of round section."""

    tag: ClassVar[str] = "torus"
    major_radius_m: float = quantity(unit="m", low=0, low_open=True, doc="radius of the ring's centre line")
    minor_radius_m: float = quantity(unit="m", low=0, low_open=True, doc="radius of its round section")
    axis: str = choice("y", options=("x", "y", "z"), doc="axis of symmetry, before the rotation")
    center_m: Vector = vector(_ORIGIN, unit="m", doc="centre")
    rotation_rad: Vector = vector(_ORIGIN, unit="rad", doc=_OWN_CENTRE)

    def check(self) -> None:
        if self.minor_radius_m >= self.major_radius_m:
            problem = (
                f"= {self.minor_radius_m} must be below major_radius_m ({self.major_radius_m}); the ring needs a hole"
            )
            raise ConfigError(problem, "minor_radius_m")


@dataclass(frozen=True, kw_only=True)
class CapsuleShape(Section):
    """All points within a radius of a line segment."""

    tag: ClassVar[str] = "capsule"
    radius_m: float = quantity(unit="m", low=0, low_open=True, doc="radius")
    start_m: Vector = vector(unit="m", doc="one end of the segment")
    end_m: Vector = vector(unit="m", doc="the other end")
    rotation_rad: Vector = vector(_ORIGIN, unit="rad", doc="axis-angle rotation about the segment's middle")

    def check(self) -> None:
        if self.start_m == self.end_m:
            raise ConfigError(f"= {list(self.end_m)} must differ from start_m; use a sphere for a ball", "end_m")


@dataclass(frozen=True, kw_only=True)
class CylinderShape(Section):
    """A round body between two flat ends: a jelly, a cheese, a roller."""

    tag: ClassVar[str] = "cylinder"
    radius_m: float = quantity(unit="m", low=0, low_open=True, doc="radius")
    height_m: float = quantity(unit="m", low=0, low_open=True, doc="from one flat end to the other")
    axis: str = choice("y", options=("x", "y", "z"), doc="axis of symmetry, before the rotation")
    center_m: Vector = vector(_ORIGIN, unit="m", doc="centre")
    rotation_rad: Vector = vector(_ORIGIN, unit="rad", doc=_OWN_CENTRE)


@dataclass(frozen=True, kw_only=True)
class UnionShape(Section):
    """Several shapes joined into one body."""

    tag: ClassVar[str] = "union"
    of: tuple[Shape, ...] = sections(doc="the shapes, at least one")
    rotation_rad: Vector = vector(_ORIGIN, unit="rad", doc=_ABOUT_ORIGIN)

    def check(self) -> None:
        if not self.of:
            raise ConfigError("= [] must hold at least one shape", "of")


@dataclass(frozen=True, kw_only=True)
class MeshShape(Section):
    """The inside of a watertight triangle mesh."""

    tag: ClassVar[str] = "mesh"
    file: str = setting(doc="OBJ, STL or PLY file, beside the scene file or in the data folder")
    scale_to_m: float = quantity(1.0, unit="m", low=0, low_open=True, doc="metres per unit of length in the file")
    rotation_rad: Vector = vector(_ORIGIN, unit="rad", doc=_ABOUT_ORIGIN)


@dataclass(frozen=True, kw_only=True)
class SdfShape(Section):
    """A signed distance grid file; its stored offset places it."""

    tag: ClassVar[str] = "sdf"
    file: str = setting(doc=".sdf file, beside the scene file or in the data folder")
    size_m: float | None = quantity(None, unit="m", low=0, low_open=True, doc="longest side of the body")
    spacing_m: float | None = quantity(None, unit="m", low=0, low_open=True, doc="edge of the file's cells")
    rotation_rad: Vector = vector(_ORIGIN, unit="rad", doc=_ABOUT_ORIGIN)

    def check(self) -> None:
        if (self.size_m is None) == (self.spacing_m is None):
            given = "both are given" if self.size_m is not None else "neither is given"
            raise ConfigError(f"or spacing_m sets the scale, and {given}; give exactly one", "size_m")


@dataclass(frozen=True, kw_only=True)
class ScanShape(Section):
    """A body file that `soft-estimator scan` wrote: z is up, and the body rests on z = 0 over the origin."""

    tag: ClassVar[str] = "scan"
    file: str = setting(doc=".npz file, beside the scene file or in the data folder")
    rotation_rad: Vector = vector(_ORIGIN, unit="rad", doc=_ABOUT_ORIGIN)
    shift_m: Vector = vector(_ORIGIN, unit="m", doc="where the file's origin is put, after the rotation")


Simple = BoxShape | SphereShape | TorusShape | CylinderShape | CapsuleShape
Shape = Simple | UnionShape | MeshShape | SdfShape | ScanShape


@dataclass(frozen=True, kw_only=True)
class BodyConfig(Section):
    """A shape and the grid of cut cells it is put on."""

    shape: Shape = section(doc="what the body looks like at rest")
    spacing_m: float | None = quantity(
        None, unit="m", low=0, low_open=True, doc="edge h of a cell; an sdf or scan file alone brings its own"
    )
    cells_along_longest: int | None = quantity(
        None, low=2, high=4096, doc="cells along the longest side of the body, instead of spacing_m"
    )
    min_fill: float = quantity(0.02, low=0, high=0.5, doc="cells filled less than this fraction are dropped")
    snap_fraction: float = quantity(
        0.02, low=0, high=0.5, doc="nodes closer to the surface than this times h are on it"
    )
    subdivision: int = quantity(2, low=1, high=8, doc="a cut cell is split this many times a side for its integrals")
    detail: int = quantity(
        2,
        low=1,
        high=4,
        doc="the shape is integrated over on a field this many times as fine, where it is known so well",
    )
    skin: str = choice(
        "grid",
        options=("grid", "detail"),
        doc="the surface that touches and is seen: the grid's, which bevels edges by up to a cell, or the detail's",
    )
    stabilisation: float = quantity(
        0.1, low=0, high=1, doc="stiffness against twisting of the empty part of cut cells, as a part of a full cell's"
    )
    align: str = choice(
        "bounds",
        options=("bounds", "centre", "origin"),
        doc="the grid fits the body's bounds, has a node at their centre, or has nodes at whole multiples of h",
    )

    def check(self) -> None:
        if self.spacing_m is not None and self.cells_along_longest is not None:
            problem = f"= {self.cells_along_longest} and spacing_m = {self.spacing_m} both set the grid; give only one"
            raise ConfigError(problem, "cells_along_longest")
        own_grid = isinstance(self.shape, SdfShape | ScanShape) and not any(self.shape.rotation_rad)
        if self.spacing_m is None and self.cells_along_longest is None and not own_grid:
            raise ConfigError("is missing; give the edge of a cell there, or cells_along_longest", "spacing_m")
