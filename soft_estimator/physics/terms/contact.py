"""Soft penalty contact of the surface with a plane (METHOD §4): pressure k · log(1 + exp(-a δ))/a along its normal.

Obstacles of other shapes have the same law in `terms.obstacle_contact`.

With P = k · area, s the smooth depth and σ its slope at distance δ, a surface point feels P (s + σ gap) n. Implicit
contact takes s, σ, n at the predicted place x̃ and gap = c_k n·(guess - Δu): the Newton step from there. Extrapolated
contact takes them at the step's start and gap = -c_k n·guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.obstacles import ObstacleLaw, PlaneLaw
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solids import SolidLaw
from soft_estimator.physics.state import State
from soft_estimator.physics.terms.interface import Assembly, Columns, Directions, Pulled, Stage, Term
from soft_estimator.physics.terms.obstacle_contact import ObstacleContact
from soft_estimator.physics.terms.patch import Touched

# Contact points that give way less than this (1 is firm contact) change nothing that any number could hold.
_UNTOUCHED = 1e-20


@dataclass(frozen=True)
class ContactLaw:
    """Soft penalty: pressure = stiffness · log(1 + exp(-sharpness δ))/sharpness at distance δ.

    Attributes:
        stiffness_pa_per_m: pressure per depth [Pa/m]. sharpness_per_m: the softmin's a [1/m]; 1/a is the width of the
        soft zone. Both hold where the parameters do not give others.
        implicit: put the contact's stiffness into the system; otherwise extrapolate the force in time.
        obstacle: what is touched. own: these numbers are the obstacle's own; no parameter stands for them.
        friction: Coulomb's coefficient, where the parameters give no other; None without (`terms.friction`).
        slip_speed_m_s: ε, the speed of slip at which friction is at 71 % of its full size. substeps: shorter steps that
        a step is cut into while something rubs.
    """

    stiffness_pa_per_m: float
    sharpness_per_m: float
    implicit: bool = True
    obstacle: ObstacleLaw = field(default_factory=PlaneLaw)
    friction: float | None = None
    slip_speed_m_s: float = 2e-3
    substeps: int = 1
    own: bool = False

    @property
    def fused(self) -> str:
        plane = type(self.obstacle) is PlaneLaw
        if plane and not self.own:
            return "plane_contact"
        known = plane or (type(self.obstacle) is SolidLaw and self.obstacle.fused)
        return "obstacle_contact" if known and self.implicit else ""

    def __post_init__(self) -> None:
        for name in ("stiffness_pa_per_m", "sharpness_per_m", "slip_speed_m_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"contact {name} = {getattr(self, name)} must be positive")
        if self.friction is not None and not self.friction >= 0:
            raise ValueError(f"contact friction = {self.friction} must not be negative; leave it out for none")
        if self.substeps < 1:
            raise ValueError(f"contact substeps = {self.substeps} must be 1 or more")

    def defaults(self) -> Mapping[str, Any]:
        shift = self.obstacle.defaults() if isinstance(self.obstacle, SolidLaw) else {}
        if self.own:
            return shift
        return {
            **shift,
            "contact_stiffness_pa_per_m": self.stiffness_pa_per_m,
            "contact_sharpness_per_m": self.sharpness_per_m,
        }

    def bind(self, device: DeviceBody, values: Parameters, start: np.ndarray) -> Contact | ObstacleContact:
        if isinstance(self.obstacle, PlaneLaw) and not self.own:
            return Contact(device, values, start, self)
        return ObstacleContact(device, values, start, self)

    def touched(self, device: DeviceBody, values: Parameters) -> Touched:
        """The obstacle with the numbers of its contact."""
        stiffness = self.stiffness_pa_per_m if self.own else values.contact_stiffness_pa_per_m
        sharpness = self.sharpness_per_m if self.own else values.contact_sharpness_per_m
        return Touched(device, self.obstacle.bind(device.backend, values), stiffness, sharpness, self.own)


@dataclass(frozen=True)
class Touch:
    """The contact points where contact is made linear.

    Attributes:
        time_s: when. x: their places (P, 3) [m]. normal: (3,). distance, depth [m], slope: δ, s, σ, (P,).
        implicit: whether contact's stiffness is in the system.
    """

    time_s: float
    x: Array
    normal: Array
    distance: Array
    depth: Array
    slope: Array
    implicit: bool

    @cached_property
    def untouched(self) -> bool:
        """Whether the body is so far away that nothing of contact shows in any number."""
        return float(self.slope.max()) < _UNTOUCHED


class Contact(Term[Touch]):
    """The surface against the plane of the parameters."""

    parameters: ClassVar[tuple[str, ...]] = ("contact_stiffness_pa_per_m", "contact_sharpness_per_m")
    curved: ClassVar[bool] = True

    def __init__(self, device: DeviceBody, values: Parameters, start: np.ndarray, law: ContactLaw) -> None:
        super().__init__(device, values, start)
        self.law, self.obstacle = law, law.obstacle.bind(device.backend, values)
        self.sharpness = values.contact_sharpness_per_m
        self.rest_points = device.rest_points
        self._last: tuple[State, tuple[Array, Array, Array, Array]] | None = None

    @cached_property
    def factor(self) -> Array:
        """Force per depth of every contact point [N/m], (P,)."""
        return self.values.contact_stiffness_pa_per_m * self.device.point_area

    def touch(self, u: Array, time_s: float) -> tuple[Array, Array, Array, Array]:
        """Places, distance, smooth depth and slope of the contact points at displacement u."""
        x = self.device.surface_points(u)
        distance = self.obstacle.distance(x, time_s)
        return x, distance, *self._soft(distance)

    def _soft(self, distance: Array) -> tuple[Array, Array]:
        """Smooth depth [m] and slope at distances (P,) [m]."""
        depth, slope = self.device.xp.empty_like(distance), self.device.xp.empty_like(distance)
        self.device.backend.soft_depths(distance, self.sharpness, depth, slope)
        return depth, slope

    def prepare(self, stage: Stage) -> Touch:
        implicit = self.law.implicit or stage.all_implicit
        time_s = stage.balance_time_s if implicit else stage.state.time_s
        x, distance, depth, slope = self.touch(stage.predicted if implicit else stage.state.u, time_s)
        return Touch(time_s, x, self.obstacle.gradient(x, time_s), distance, depth, slope, implicit)

    def add_blocks(self, stage: Stage, at: Touch, assembly: Assembly) -> None:
        if not at.implicit or at.untouched:
            return
        d, value = self.device, stage.scheme.c_k * self.factor * at.slope
        points = (d.node_cells, d.point_start, d.point_weight)
        d.backend.add_contact_blocks(at.normal, value, *points, d.slot, assembly.writable())

    def add_force(self, stage: Stage, at: Touch, rhs: Array) -> None:
        if at.untouched:
            return
        rhs += self.device.spread(self._pressing(at, self._gap(self._moved(stage, at, None), at)))

    def add_residual(self, stage: Stage, at: Touch, out: Array) -> None:
        if at.untouched:
            return
        out += self.device.spread((self.factor * at.depth)[:, None] * at.normal)

    def potential_j(self, stage: Stage, at: Touch) -> Array:
        return self._energies_j(at.distance) / stage.scheme.c_k

    def _moved(self, stage: Stage, at: Touch, increment: Array | None) -> Array:
        """What the gap measures along the normal (P, 3): c_k (guess - Δu), or c_k times minus the guess."""
        ahead = stage.scheme.c_k * self.device.at_points(stage.guess)
        if not at.implicit:
            return -ahead
        if increment is None:
            return ahead
        return ahead - stage.scheme.c_k * self.device.at_points(increment)

    def _gap(self, moved: Array, at: Touch) -> Array:
        return (moved * at.normal).sum(axis=1)

    def _pressing(self, at: Touch, gap: Array) -> Array:
        """Force on every point [N], (P, 3)."""
        return (self.factor * (at.depth + at.slope * gap))[:, None] * at.normal

    def _by_sharpness(self, at: Touch, gap: Array) -> Array:
        """Derivative of s + σ gap by the sharpness a, (P,)."""
        bend = at.distance * at.slope * (1 - at.slope) * gap
        return -(at.depth + at.slope * at.distance) / self.sharpness - bend

    def push(
        self, stage: Stage, at: Touch, increment: Array, changes: Columns, directions: Directions, out: Array
    ) -> None:
        if at.untouched:
            return
        scheme = stage.scheme
        moved = self._moved(stage, at, increment)
        gap = self._gap(moved, at)
        bend = self.sharpness * at.slope * (1 - at.slope) * gap
        dx = changes.u + scheme.c_k * changes.guess if at.implicit else changes.u
        along = self._columns_along(dx, at.normal) + self.obstacle.distance_push(at.x, at.time_s, directions)
        ahead = scheme.c_k * self._columns_along(changes.guess, at.normal)
        turned = self.obstacle.gradient_push(at.x, at.time_s, directions)
        d_gap = ahead if at.implicit else -ahead
        if turned is not None:
            d_gap = d_gap + moved @ turned
        value = at.depth + at.slope * gap
        change = -(at.slope + bend)[:, None] * along + at.slope[:, None] * d_gap
        if directions.any("contact_stiffness_pa_per_m"):
            relative = directions.column("contact_stiffness_pa_per_m") / self.values.contact_stiffness_pa_per_m
            change = change + value[:, None] * directions.on_device(relative)
        if directions.any("contact_sharpness_per_m"):
            sharper = directions.on_device(directions.column("contact_sharpness_per_m"))
            change = change + self._by_sharpness(at, gap)[:, None] * sharper
        out += self.device.spread(self.factor[:, None] * change)[:, None, :] * at.normal[:, None]
        if turned is not None:
            out += self.device.spread((self.factor * value)[:, None])[:, None, :] * turned

    def _columns_along(self, nodal: Array, normal: Array) -> Array:
        """The part along the normal of nodal changes (N, 3, width) at the points, (P, width)."""
        height = self.device.xp.ascontiguousarray((nodal * normal[:, None]).sum(axis=1))
        return self.device.columns_at_points(height)

    def pull(self, stage: Stage, at: Touch, increment: Array, lmbda: Array, out: Pulled) -> None:
        if at.untouched:
            return
        d, scheme = self.device, stage.scheme
        moved = self._moved(stage, at, increment)
        gap = self._gap(moved, at)
        pulled = d.at_points(lmbda)
        along = self.factor * (pulled * at.normal).sum(axis=1)
        bend = self.sharpness * at.slope * (1 - at.slope) * gap
        value = at.depth + at.slope * gap
        distance_bar, gap_bar = -(at.slope + bend) * along, at.slope * along
        normal_bar = (self.factor * value)[:, None] * pulled + gap_bar[:, None] * moved
        self.obstacle.pull(at.x, at.time_s, distance_bar, normal_bar, out.gradient)
        out.gradient.contact_stiffness_pa_per_m += float((along * value).sum()) / self.values.contact_stiffness_pa_per_m
        out.gradient.contact_sharpness_per_m += float((along * self._by_sharpness(at, gap)).sum())
        place_bar = distance_bar[:, None] * at.normal
        x_bar, m_bar = d.spread(place_bar), scheme.c_k * d.spread(gap_bar[:, None] * at.normal)
        out.u += x_bar
        out.guess += scheme.c_k * x_bar + m_bar if at.implicit else -m_bar

    def energies_j(self, state: State, rotations: Array) -> Mapping[str, float]:
        return {"contact_j": float(self._energies_j(self._touch_of(state)[1]).sum())}

    def _energies_j(self, distance: Array) -> Array:
        """Energies of points at given distances (P,) [J]."""
        out = self.device.xp.empty_like(distance)
        self.device.backend.soft_energies(distance, self.sharpness, out)
        return self.factor * out

    def _touch_of(self, state: State) -> tuple[Array, Array, Array, Array]:
        """`touch` at a state; energy and force ask for the same one in turn."""
        if self._last is None or self._last[0] is not state:
            self._last = (state, self.touch(state.u, state.time_s))
        return self._last[1]

    def force_n(self, state: State) -> np.ndarray:
        x, _, depth, slope = self._touch_of(state)
        if float(slope.max()) < _UNTOUCHED:
            return np.zeros(3)
        normal = self.obstacle.gradient(x, state.time_s)
        return self.device.host(((self.factor * depth)[:, None] * normal).sum(axis=0))

    def resists(self) -> np.ndarray | None:
        return self.device.host(self.obstacle.gradient(self.rest_points, 0.0))[None, :]

    def unsound(self, stage: Stage, at: Touch, after: State, blocks: Array) -> bool:
        """Whether extrapolated contact is stiffer than the system it pushes, at a point or for the body as a whole."""
        if at.implicit:
            return False
        foreseen = at.distance - self._gap(self._moved(stage, at, None), at)
        d, stiff = self.device, self.factor * self._soft(foreseen)[1]
        centre = blocks[d.slot[:, 13]]
        diagonal = (centre[:, 0] + centre[:, 4] + centre[:, 8]) / 3
        give = (d.point_weight**2 / diagonal[d.point_nodes]).sum(axis=1)
        inertia = stage.scheme.c_m * self.values.density_kg_m3 * float(d.volume.sum())
        return bool((stiff * give > 1.0).any()) or float(stiff.sum()) > inertia
