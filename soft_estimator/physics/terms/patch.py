"""The few points of a body that are near an obstacle, and what presses on them; contact and friction work on these.

At distance δ a point of area A is pressed by f_n = k A log(1 + exp(-a δ))/a along n = ∇δ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from soft_estimator.backends import layout
from soft_estimator.backends.interface import Array
from soft_estimator.geometry.grid import CORNER_OFFSETS
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.obstacles import Obstacle
from soft_estimator.physics.terms.interface import Assembly, Directions

STIFFNESS, SHARPNESS = "contact_stiffness_pa_per_m", "contact_sharpness_per_m"
REACH = layout.REACH  # widths 1/a of the onset
_NOTHING_BESIDE = 1e-16  # of the firmest contact's stiffness; less changes no digit of a node's block
_BESIDE = (CORNER_OFFSETS[None] - CORNER_OFFSETS[:, None] + 1) @ np.array([9, 3, 1])


@dataclass(frozen=True, eq=False)
class Patch:
    """F points near an obstacle.

    Attributes:
        few: their numbers, (F,). nodes, weight: what carries them, (F, 8). time_s: when. x: where, (F, 3) [m].
        normal: (F, 3). distance, depth [m], slope: δ, log(1 + exp(-a δ))/a and 1/(1 + exp(a δ)), (F,).
        factor: k A [N/m], (F,).
    """

    device: DeviceBody
    few: Array
    nodes: Array
    weight: Array
    time_s: float
    x: Array
    normal: Array
    distance: Array
    depth: Array
    slope: Array
    factor: Array

    @property
    def press(self) -> Array:
        """f_n [N], (F,)."""
        return self.factor * self.depth

    def at(self, nodal: Array) -> Array:
        """Nodal vectors (N, 3) or (N, 3, width) at the points."""
        if nodal.ndim == 2:
            xp = self.device.xp
            out = xp.empty((len(self.nodes), 3))
            self.device.backend.at_points(xp.ascontiguousarray(nodal), self.nodes, self.weight, out)
            return out
        return (self.weight.reshape(*self.weight.shape, *[1] * (nodal.ndim - 1)) * nodal[self.nodes]).sum(axis=1)

    def spread(self, force: Array) -> Array:
        """Vectors of the points, (F, 3) or (F, 3, width), shared between the nodes that carry them."""
        d = self.device
        flat = d.xp.zeros((len(d.point_area), force[0].size))
        flat[self.few] = force.reshape(len(force), -1)
        return d.spread(flat).reshape(-1, *force.shape[1:])

    def add_blocks(self, inner: np.ndarray, assembly: Assembly, rubs: bool = False) -> None:
        """Add weight_p weight_q inner (F, 3, 3) [N/m], on the host, to the blocks of every two nodes of each point.

        rubs: it is friction's, which the preconditioner asks for.
        """
        body, backend = self.device.body, self.device.backend
        stiff = np.abs(inner).max(axis=(1, 2))
        firm = stiff > _NOTHING_BESIDE * stiff.max()  # most points are near, and few of them press
        inner, weight = inner[firm], self.device.host(self.weight)[firm]
        pairs = weight[:, :, None] * weight[:, None, :]
        nodes = backend.to_host(self.nodes)[firm]
        slots = body.slot[nodes[:, :, None], _BESIDE]
        blocks = pairs.reshape(-1, 64, 1) * inner.reshape(-1, 1, 9)
        assembly.add_blocks(slots.ravel(), blocks.reshape(-1, 9))
        if rubs:
            trace = weight**2 * np.trace(inner, axis1=1, axis2=2)[:, None]
            assembly.add_rubbing(np.bincount(nodes.ravel(), trace.ravel(), self.device.nodes))


class Touched:
    """One obstacle against a body.

    Args:
        own: stiffness and sharpness are the obstacle's own, no parameters.
    """

    def __init__(
        self, device: DeviceBody, obstacle: Obstacle, stiffness_pa_per_m: float, sharpness_per_m: float, own: bool
    ) -> None:
        self.device, self.obstacle, self.own = device, obstacle, own
        self.stiffness, self.sharpness = stiffness_pa_per_m, sharpness_per_m

    def near(self, u: Array, time_s: float) -> Patch | None:
        """The points that the obstacle can be felt at, for a displacement u; None for none."""
        d = self.device
        x = d.surface_points(u)
        distance = self.obstacle.distance(x, time_s)
        few = d.xp.flatnonzero(distance < REACH / self.sharpness)
        if not len(few):
            return None
        x, distance = x[few], distance[few]
        depth, slope = d.xp.empty_like(distance), d.xp.empty_like(distance)
        d.backend.soft_depths(distance, self.sharpness, depth, slope)
        normal = d.xp.zeros_like(x) + self.obstacle.gradient(x, time_s)
        factor = self.stiffness * d.point_area[few]
        riding = (d.point_nodes[few], d.point_weight[few])
        return Patch(d, few, *riding, time_s, x, normal, distance, depth, slope, factor)

    def distance_push(self, at: Patch, dx: Array, directions: Directions) -> Array:
        """Change of δ, (F, width), for changes of the places (F, 3, width)."""
        own = self.obstacle.distance_push(at.x, at.time_s, directions)
        return (at.normal[:, :, None] * dx).sum(axis=1) + own

    def normal_push(self, at: Patch, dx: Array, directions: Directions) -> Array | None:
        """Change of n, (F, 3, width), with the parameters and along curved surfaces; None for none."""
        turned = self.obstacle.gradient_push(at.x, at.time_s, directions)
        curvature = self.obstacle.curvature(at.x, at.time_s)
        if curvature is not None:
            bent = self.device.xp.einsum("fab,fbk->fak", curvature, dx)
            return bent if turned is None else bent + turned
        return None if turned is None else self.device.xp.zeros_like(dx) + turned

    def place_pull(self, at: Patch, distance_bar: Array, normal_bar: Array, out: ParameterGradient) -> Array:
        """Derivatives by the places (F, 3), given those by δ and n; adds to those by the parameters."""
        self.obstacle.pull(at.x, at.time_s, distance_bar, normal_bar, out)
        bar, curvature = distance_bar[:, None] * at.normal, self.obstacle.curvature(at.x, at.time_s)
        return bar if curvature is None else bar + (curvature * normal_bar[:, None, :]).sum(axis=2)

    def numbers_push(self, value: Array, by_sharpness: Array, directions: Directions) -> Array | float:
        """Change of something that goes with k, (F, width), with k and a; by_sharpness: its derivative by a."""
        change: Array | float = 0.0
        if self.own:
            return change
        if directions.any(STIFFNESS):
            change = value[:, None] * directions.on_device(directions.column(STIFFNESS) / self.stiffness)
        if directions.any(SHARPNESS):
            change = change + by_sharpness[:, None] * directions.on_device(directions.column(SHARPNESS))
        return change

    def numbers_pull(self, bar: Array, value: Array, by_sharpness: Array, out: ParameterGradient) -> None:
        """The same backwards."""
        if not self.own:
            out.add(STIFFNESS, float((bar * value).sum()) / self.stiffness)
            out.add(SHARPNESS, float((bar * by_sharpness).sum()))

    def depth_by_sharpness(self, at: Patch) -> Array:
        """Derivative of the depth by a, (F,)."""
        return -(at.depth + at.slope * at.distance) / self.sharpness
