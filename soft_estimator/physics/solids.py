"""Rigid solids as obstacles: half-spaces, balls, capsules, boxes with round edges, fields; at rest or on a path.

A solid gives distance, gradient and curvature in its own frame; points y (P, 3) [m] and results live where the backend
computes, xp is its array module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import ClassVar, Protocol

import numpy as np
from scipy import ndimage

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.geometry.live_path import LedPath
from soft_estimator.geometry.rigid import left_jacobian, rotation_matrix
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.obstacles import Motion
from soft_estimator.physics.parameters import Parameters, Value
from soft_estimator.physics.terms.interface import Directions

SHIFT, TURN = "obstacle_shift_m", "obstacle_turn_rad"  # of all
OWN_SHIFT, OWN_TURN = "obstacle_#_shift_m", "obstacle_#_turn_rad"  # of one, by its number
_LEAST = 1e-12  # [m]: closer to a centre there is no direction


class Solid(Protocol):
    """A shape about its own origin."""

    def distance(self, xp: ModuleType, y: Array) -> Array:
        """δ [m], (P,), negative inside."""
        ...

    def gradient(self, xp: ModuleType, y: Array) -> Array:
        """∇δ, (P, 3)."""
        ...

    def curvature(self, xp: ModuleType, y: Array) -> Array | None:
        """∇∇δ [1/m], (P, 3, 3); None where it is zero everywhere."""
        ...


@dataclass(frozen=True)
class HalfSpace:
    """Everything below z = 0."""

    def distance(self, xp: ModuleType, y: Array) -> Array:
        return y[:, 2]

    def gradient(self, xp: ModuleType, y: Array) -> Array:
        return xp.zeros_like(y) + xp.asarray([0.0, 0.0, 1.0])

    def curvature(self, xp: ModuleType, y: Array) -> Array | None:
        return None


@dataclass(frozen=True)
class Round:
    """All points within radius_m [m] of a core: the origin, a segment or a box, half as long as half_m (3,) [m].

    A zero of half_m leaves an axis out: three make a ball, two a capsule, none a box with round edges.
    """

    half_m: tuple[float, float, float]
    radius_m: float

    def _arm(self, xp: ModuleType, y: Array) -> Array:
        """From the core to the points, (P, 3); zero inside the core."""
        half = xp.asarray(self.half_m)
        return y - xp.clip(y, -half, half)

    def _inside(self, xp: ModuleType, y: Array) -> tuple[Array, Array]:
        """For points within the core: which they are (P,), and the way out as a unit vector (P, 3)."""
        beyond = xp.abs(y) - xp.asarray(self.half_m)
        way = xp.where(xp.arange(3) == beyond.argmax(axis=1)[:, None], xp.where(y < 0, -1.0, 1.0), 0.0)
        return (beyond <= 0).all(axis=1), way

    def distance(self, xp: ModuleType, y: Array) -> Array:
        beyond = (xp.abs(y) - xp.asarray(self.half_m)).max(axis=1)
        return xp.linalg.norm(self._arm(xp, y), axis=1) + xp.minimum(beyond, 0.0) - self.radius_m

    def gradient(self, xp: ModuleType, y: Array) -> Array:
        arm = self._arm(xp, y)
        inside, way = self._inside(xp, y)
        length = xp.maximum(xp.linalg.norm(arm, axis=1), _LEAST)
        return xp.where(inside[:, None], way, arm / length[:, None])

    def curvature(self, xp: ModuleType, y: Array) -> Array | None:
        arm = self._arm(xp, y)
        n, length = self.gradient(xp, y), xp.maximum(xp.linalg.norm(arm, axis=1), _LEAST)
        turning = xp.where(arm != 0, 1.0, 0.0)[:, :, None] * xp.eye(3) - n[:, :, None] * n[:, None, :]
        inside = (arm == 0).all(axis=1)
        return xp.where(inside[:, None, None], 0.0, turning / length[:, None, None])


class Field:
    """A signed distance grid as a smooth solid: cubic splines through its nodes, so that normals turn without jumps.

    Beyond the grid the distance grows by the way back to it, without a direction that means anything: give it a margin
    wider than the onset of the contact.
    """

    def __init__(self, grid: SignedDistanceGrid) -> None:
        self.grid = grid
        padded = np.pad(grid.phi_m, 2, mode="reflect", reflect_type="odd")
        self.table = np.ascontiguousarray(ndimage.spline_filter(padded, order=3, mode="mirror"))

    def _local(self, xp: ModuleType, y: Array) -> tuple[Array, Array, Array]:
        """Lowest cell (P, 3), place within it (P, 3) in 0-1, and the way back to the grid (P,) [m]."""
        g = self.grid
        s = (y - xp.asarray(g.origin_m)) / g.spacing_m
        last = xp.asarray(np.array(g.shape) - 1.0)
        inside = xp.clip(s, 0.0, last)
        away = g.spacing_m * xp.linalg.norm(s - inside, axis=1)
        cell = xp.minimum(xp.floor(inside), last - 1).astype(np.int64)
        return cell, inside - cell, away

    def _sums(self, xp: ModuleType, y: Array, orders: list[tuple[int, int, int]]) -> list[Array]:
        """Derivatives of the spline of these orders along x, y and z, (P,) each."""
        cell, t, _ = self._local(xp, y)
        table = xp.asarray(self.table)
        steps = xp.arange(4)
        # the node before a cell's lowest one lies at cell + 1 of the padded table
        i, j, k = (cell[:, axis, None] + 1 + steps for axis in range(3))
        nodes = table[i[:, :, None, None], j[:, None, :, None], k[:, None, None, :]]
        weights = [
            [_cubic(xp, t[:, axis], order) / self.grid.spacing_m**order for order in range(3)] for axis in range(3)
        ]
        out = []
        for a, b, c in orders:
            along = xp.einsum("pijk,pk->pij", nodes, weights[2][c])
            out.append(xp.einsum("pij,pi,pj->p", along, weights[0][a], weights[1][b]))
        return out

    def distance(self, xp: ModuleType, y: Array) -> Array:
        away = self._local(xp, y)[2]
        out = away + float(self.grid.phi_m.max())
        near = xp.flatnonzero(away == 0)
        if len(near):
            out[near] = self._sums(xp, y[near], [(0, 0, 0)])[0]
        return out

    def gradient(self, xp: ModuleType, y: Array) -> Array:
        return xp.stack(self._sums(xp, y, [(1, 0, 0), (0, 1, 0), (0, 0, 1)]), axis=1)

    def curvature(self, xp: ModuleType, y: Array) -> Array | None:
        xx, yy, zz, xy, xz, yz = self._sums(
            xp, y, [(2, 0, 0), (0, 2, 0), (0, 0, 2), (1, 1, 0), (1, 0, 1), (0, 1, 1)]
        )  # fmt: skip
        return xp.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz], axis=1).reshape(-1, 3, 3)


def _cubic(xp: ModuleType, t: Array, order: int) -> Array:
    """Weights (P, 4) of a uniform cubic B-spline at t in 0-1, or their first or second derivatives."""
    if order == 0:
        parts = [(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3]
    elif order == 1:
        parts = [-3 * (1 - t) ** 2, 9 * t**2 - 12 * t, -9 * t**2 + 6 * t + 3, 3 * t**2]
    else:
        parts = [6 * (1 - t), 18 * t - 12, 6 - 18 * t, 6 * t]
    return xp.stack(parts, axis=1) / 6.0


@dataclass(frozen=True, eq=False)
class SolidLaw:
    """A rigid solid, at rest or led along a path.

    Attributes:
        solid: its shape, in its own frame. rotation, centre_m: that frame in the tool's frame, (3, 3) and (3,) [m].
        path: the tool's frame in the world; None for one that rests there.
        pivot_m: what a resting one may be turned about, (3,) [m]; None where nobody asks how it is turned.
        shifts, turn: the parameters that move it, added up, and the one that turns it.
    """

    solid: Solid
    rotation: np.ndarray = field(default_factory=lambda: np.eye(3))
    centre_m: np.ndarray = field(default_factory=lambda: np.zeros(3))
    path: LedPath | None = None
    pivot_m: np.ndarray | None = None
    shifts: tuple[str, ...] = (SHIFT,)
    turn: str = TURN

    def __post_init__(self) -> None:
        if self.pivot_m is not None and self.path is not None:
            raise ValueError("an obstacle on a path cannot be turned; leave out pivot_m or path")

    @property
    def fused(self) -> bool:
        """Whether whole steps on a device know it."""
        return type(self.solid) in (HalfSpace, Round, Field)

    @property
    def posed(self) -> bool:
        """Whether more parameters than the shift of all say where it is."""
        return self.pivot_m is not None or self.shifts != (SHIFT,)

    def defaults(self) -> dict[str, np.ndarray]:
        """The parameters that place it, at their defaults."""
        return {name: np.zeros(3) for name in (*self.shifts, *([] if self.pivot_m is None else [self.turn]))}

    def shift_of(self, values: Mapping[str, Value]) -> np.ndarray:
        """How far parameters, or a direction of them, move it, (3,) [m]."""
        return np.sum([np.asarray(values.get(name, np.zeros(3))) for name in self.shifts], axis=0)

    def bind(self, backend: Backend, values: Parameters) -> PlacedSolid:
        turn = np.asarray(values.values.get(self.turn, np.zeros(3)))
        return PlacedSolid(backend, self, self.shift_of(values.values), turn)

    def pose(self, time_s: float) -> tuple[np.ndarray, np.ndarray]:
        """The solid's own frame in the world at a time: rotation (3, 3) and origin (3,) [m]."""
        if self.path is None:
            return self.rotation, self.centre_m
        turn, shift = self.path.at(time_s)
        return turn @ self.rotation, turn @ self.centre_m + shift


class PlacedSolid:
    """A solid where its pose and its shifts put it, turned about its pivot before that."""

    parameters: ClassVar[tuple[str, ...]] = (SHIFT, TURN, OWN_SHIFT, OWN_TURN)

    def __init__(self, backend: Backend, law: SolidLaw, shift_m: np.ndarray, turn_rad: np.ndarray) -> None:
        self.backend, self.xp, self.law, self.shift_m = backend, backend.xp, law, shift_m
        self.turned = rotation_matrix(turn_rad) if law.pivot_m is not None else None
        self.turning = left_jacobian(turn_rad)  # ω of a change of the rotation vector

    def frame(self, time_s: float) -> tuple[np.ndarray, np.ndarray]:
        """The solid's frame in the world: rotation (3, 3) and origin (3,) [m], on the host."""
        rotation, origin = self.law.pose(time_s)
        if self.turned is not None:
            assert self.law.pivot_m is not None
            rotation = self.turned @ rotation
            origin = self.law.pivot_m + self.turned @ (origin - self.law.pivot_m)
        return rotation, origin + self.shift_m

    def _local(self, x: Array, time_s: float) -> tuple[Array, Array]:
        """Points in the solid's frame (P, 3), and that frame's rotation (3, 3)."""
        rotation, origin = self.frame(time_s)
        turn = self.backend.to_device(rotation)
        return (x - self.backend.to_device(origin)) @ turn, turn

    def _arms(self, x: Array) -> Array:
        """[x - pivot]ₓ of points (P, 3), the pivot shifted along: ω × arm = -[arm]ₓ ω, (P, 3, 3)."""
        assert self.law.pivot_m is not None
        return crossed(self.xp, x - self.backend.to_device(self.law.pivot_m + self.shift_m))

    def _moves(self, x: Array, directions: Directions) -> Array | None:
        """How the obstacle's points at x move with the parameters, (3, width) or (P, 3, width); None if they do not."""
        moving = [directions.column(name) for name in self.law.shifts if directions.any(name)]
        out = directions.on_device(np.sum(moving, axis=0)) if moving else None
        spin = self._spins(directions)
        if spin is None:
            return out
        moved = -self._arms(x) @ spin
        return moved if out is None else moved + out

    def _spins(self, directions: Directions) -> Array | None:
        """ω of the directions, (3, width); None where none turns it."""
        if self.turned is None or not directions.any(self.law.turn):
            return None
        return directions.on_device(self.turning @ directions.column(self.law.turn))

    def distance(self, x: Array, time_s: float) -> Array:
        return self.law.solid.distance(self.xp, self._local(x, time_s)[0])

    def gradient(self, x: Array, time_s: float) -> Array:
        y, turn = self._local(x, time_s)
        return self.law.solid.gradient(self.xp, y) @ turn.T

    def curvature(self, x: Array, time_s: float) -> Array | None:
        y, turn = self._local(x, time_s)
        found = self.law.solid.curvature(self.xp, y)
        return None if found is None else turn @ found @ turn.T

    def distance_push(self, x: Array, time_s: float, directions: Directions) -> Array:
        moves = self._moves(x, directions)
        if moves is None:
            return self.xp.zeros((1, directions.width))
        n = self.gradient(x, time_s)
        return -n @ moves if moves.ndim == 2 else -(n[:, None, :] @ moves)[:, 0]

    def gradient_push(self, x: Array, time_s: float, directions: Directions) -> Array | None:
        """∇δ goes along with a turn, and changes on the way to where the obstacle was."""
        moves, spin = self._moves(x, directions), self._spins(directions)
        curvature = self.curvature(x, time_s) if moves is not None else None
        out = None if curvature is None else -curvature @ moves
        if spin is None:
            return out
        turned = -crossed(self.xp, self.gradient(x, time_s)) @ spin
        return turned if out is None else out + turned

    def pull(self, x: Array, time_s: float, distance_bar: Array, gradient_bar: Array, out: ParameterGradient) -> None:
        n, curvature = self.gradient(x, time_s), self.curvature(x, time_s)
        moves_bar = -distance_bar[:, None] * n  # of the obstacle's points
        if curvature is not None:
            moves_bar = moves_bar - (curvature @ gradient_bar[:, :, None])[:, :, 0]
        for name in self.law.shifts:
            out.add(name, np.asarray(self.backend.to_host(moves_bar.sum(axis=0)), dtype=np.float64))
        if self.turned is not None:
            turned_bar = self._arms(x) @ moves_bar[:, :, None] + crossed(self.xp, n) @ gradient_bar[:, :, None]
            spin_bar = np.asarray(self.backend.to_host(turned_bar.sum(axis=0)[:, 0]), dtype=np.float64)
            out.add(self.law.turn, self.turning.T @ spin_bar)

    def motion(self, time_s: float) -> Motion | None:
        found = None if self.law.path is None else self.law.path.motion(time_s)
        return None if found is None else Motion(*map(self.backend.to_device, found))


def crossed(xp: ModuleType, vectors: Array) -> Array:
    """[v]ₓ of vectors (P, 3), (P, 3, 3)."""
    x, y, z = vectors[:, 0], vectors[:, 1], vectors[:, 2]
    zero = xp.zeros_like(x)
    return xp.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=1).reshape(-1, 3, 3)
