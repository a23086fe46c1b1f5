"""What a fused simulation hands to the backend's stepper about obstacles: rows of numbers for shapes and for poses, and
for how the parameters move them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from soft_estimator.backends.interface import Backend
from soft_estimator.backends.layout import FIELD, HALF_SPACE, MOVE, OBSTACLE, PLANE, POSE, ROUND, place, size
from soft_estimator.geometry.live_path import LivePath
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.integrator import Integrator
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solids import Field, PlacedSolid, Round, Solid, SolidLaw
from soft_estimator.physics.terms.contact import ContactLaw
from soft_estimator.physics.terms.friction import FrictionLaw

_MOST_KEPT = 4096  # steps whose poses are kept, 0.6 kB each and obstacle
_MOMENTS = ("start_", "", "middle_", "end_")  # of a step, at which `layout.POSE` has an obstacle's frame
_ORIGINS = np.concatenate([np.arange(size(POSE))[place(POSE, f"{name}origin_m")] for name in _MOMENTS])
_WAY, _TURN = place(MOVE, "way_m"), place(MOVE, "turn_rad")


@dataclass(frozen=True, eq=False)
class Touchable:
    """An obstacle, and whether it presses and rubs."""

    law: ContactLaw
    presses: bool
    rubs: bool


def ground_of(model: Model) -> ContactLaw | None:
    """The law of the plane that whole steps know by themselves, without friction."""
    law = model.contact
    return law if law is not None and law.fused == "plane_contact" else None


def touchables(model: Model) -> tuple[Touchable, ...]:
    """All that is touched beside the ground's own pressing."""
    ground, laws = ground_of(model), model.laws
    rough = [law.contact for law in laws if isinstance(law, FrictionLaw)]
    pressing = [law for law in laws if isinstance(law, ContactLaw) and law is not ground]
    out = [Touchable(law, True, any(law is other for other in rough)) for law in pressing]
    alone = [law for law in rough if not any(law is other for other in pressing)]  # the ground's, for one
    return (*out, *(Touchable(law, False, True) for law in alone))


def obstacle_rows(touched: tuple[Touchable, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Rows of `layout.OBSTACLE`, and the tables of fields that they name by number."""
    tables: list[np.ndarray] = []
    rows = np.zeros((len(touched), size(OBSTACLE)))
    for row, obstacle in zip(rows, touched):
        law = obstacle.law
        fields: dict[str, Any] = {
            "presses": obstacle.presses,
            "rubs": obstacle.rubs,
            "own": law.own,
            "stiffness_pa_per_m": law.stiffness_pa_per_m,
            "sharpness_per_m": law.sharpness_per_m,
            "friction": law.friction or 0.0,
            "slip_speed_m_s": law.slip_speed_m_s,
            "posed": isinstance(law.obstacle, SolidLaw) and law.obstacle.posed,
            **(_shape(law.obstacle.solid, tables) if isinstance(law.obstacle, SolidLaw) else {"kind": PLANE}),
        }
        for name, value in fields.items():
            row[place(OBSTACLE, name)] = value
    return rows, tables


def _shape(solid: Solid, tables: list[np.ndarray]) -> dict[str, Any]:
    if isinstance(solid, Round):
        return {"kind": ROUND, "half_m": solid.half_m, "radius_m": solid.radius_m}
    if isinstance(solid, Field):
        grid = solid.grid
        tables.append(solid.table)
        return {
            "kind": FIELD,
            "grid_origin_m": grid.origin_m,
            "grid_spacing_m": grid.spacing_m,
            "grid_nodes": grid.shape,
            "farthest_m": grid.phi_m.max(),
            "table": len(tables) - 1,
        }
    return {"kind": HALF_SPACE}


class ObstaclePoses:
    """Rows of `layout.POSE` for steps between given times, but for what parameters add: `Placements` does. What was
    worked out is kept, but of paths that grow."""

    def __init__(self, touched: tuple[Touchable, ...], scheme: Integrator) -> None:
        self.places = [t.law.obstacle if isinstance(t.law.obstacle, SolidLaw) else None for t in touched]
        self.scheme = scheme
        self._resting = [_at_rest(solid) for solid in self.places]
        self._grow = any(solid is not None and isinstance(solid.path, LivePath) for solid in self.places)
        self._known: dict[tuple[float, float], np.ndarray] = {}

    def of_steps(self, times_s: np.ndarray) -> np.ndarray:
        """(T, O, numbers) for times (T, 2) at which steps start and end."""
        out = np.empty((len(times_s), len(self.places), size(POSE)))
        if self.places:
            for row, (start_s, end_s) in zip(out, times_s):
                row[...] = self._of_step(float(start_s), float(end_s))
        return out

    def _of_step(self, start_s: float, end_s: float) -> np.ndarray:
        key = (start_s, end_s)
        if self._grow or key not in self._known:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            pairs = zip(self.places, self._resting)
            self._known[key] = np.array([self._led(s, *key) if rest is None else rest for s, rest in pairs])
        return self._known[key]

    def _led(self, solid: SolidLaw | None, start_s: float, end_s: float) -> np.ndarray:
        out = np.zeros(size(POSE))
        if solid is None or solid.path is None:
            raise AssertionError("what rests is not led")
        times_s = {"start_": start_s, "": start_s + self.scheme.c_k * self.scheme.step_s}
        times_s |= {"middle_": 0.5 * (start_s + end_s), "end_": end_s}
        for name, time_s in times_s.items():
            _put(out, name, *solid.pose(time_s))
        for name in ("", "middle_"):
            motion = solid.path.motion(times_s[name])
            if motion is not None:
                out[place(POSE, f"{name}moves")] = 1.0
                out[place(POSE, f"{name}drift_m_s")] = motion[0]
                out[place(POSE, f"{name}spin_per_s")] = motion[1].ravel()
        return out


def _at_rest(solid: SolidLaw | None) -> np.ndarray | None:
    """The row of an obstacle that does not move; None of one that is led."""
    if solid is not None and solid.path is not None:
        return None
    return _resting(*((np.eye(3), np.zeros(3)) if solid is None else solid.pose(0.0)))


def _resting(turn: np.ndarray, origin: np.ndarray) -> np.ndarray:
    out = np.zeros(size(POSE))
    for name in _MOMENTS:
        _put(out, name, turn, origin)
    return out


def _put(row: np.ndarray, name: str, turn: np.ndarray, origin: np.ndarray) -> None:
    row[place(POSE, f"{name}turn")] = np.ravel(turn)
    row[place(POSE, f"{name}origin_m")] = origin


class Placements:
    """Where the parameters of each system of a batch put its obstacles."""

    def __init__(self, touched: tuple[Touchable, ...], backend: Backend, parameters: Sequence[Parameters]) -> None:
        laws = [t.law.obstacle if isinstance(t.law.obstacle, SolidLaw) else None for t in touched]
        self.posed = any(law is not None and law.posed for law in laws)
        self._placed = [[None if law is None else law.bind(backend, p) for law in laws] for p in parameters]
        self._shifts = np.zeros((len(parameters), len(laws), size(POSE)))  # what is added to rows
        self._turned: list[tuple[int, int, np.ndarray]] = []  # what may be turned rests: rows of a system's obstacle
        for s, row in enumerate(self._placed):
            for o, at in enumerate(row):
                if at is not None:
                    self._shifts[s, o, _ORIGINS] = np.tile(at.shift_m, len(_MOMENTS))
                if at is not None and at.turned is not None:
                    self._turned.append((s, o, _resting(*at.frame(0.0))))

    def put(self, poses: np.ndarray) -> np.ndarray:
        """Poses of steps (T, O, numbers), where the parameters put them: (T, systems, O, numbers)."""
        out: np.ndarray = poses[:, None] + self._shifts
        for s, o, row in self._turned:
            out[:, s, o] = row
        return out

    def moves(self, direction: ParameterGradient) -> np.ndarray:
        """How a direction of the first system's parameters moves the obstacles: rows of `layout.MOVE`, (O, 6)."""
        out = np.zeros((len(self._placed[0]), size(MOVE)))
        for row, at in zip(out, self._placed[0]):
            if at is None:
                continue
            row[_WAY] = at.law.shift_of(direction.values)
            if at.turned is not None:
                row[_TURN] = at.turning @ np.asarray(direction.values.get(at.law.turn, np.zeros(3)))
                row[_WAY] += np.cross(row[_TURN], _from_pivot(at))
        return out

    def moves_adjoint(self, system: int, bar: np.ndarray, out: ParameterGradient) -> None:
        """Add to the parameters of a system, given derivatives by its posed obstacles' moves (O, 6)."""
        for row, at in zip(bar, self._placed[system]):
            if at is None or not at.law.posed:
                continue
            if at.turned is not None:
                out.add(at.law.turn, at.turning.T @ (row[_TURN] + np.cross(_from_pivot(at), row[_WAY])))
            for name in at.law.shifts:
                out.add(name, row[_WAY])


def _from_pivot(at: PlacedSolid) -> np.ndarray:
    """From the point that an obstacle is turned about to its frame's origin, (3,) [m]."""
    assert at.law.pivot_m is not None
    return at.frame(0.0)[1] - (at.law.pivot_m + at.shift_m)
