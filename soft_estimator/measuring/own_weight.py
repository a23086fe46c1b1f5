"""The sides of an object that was only ever seen lying, each without what its own weight had done to it there.

A duck of 8 kPa that stands on a table is 3 mm lower than in the air, and on its back its head is elsewhere: sides that
are joined as they were seen contradict each other, and thin parts about which they do, such as ears, are cut away. How
a body bends on each of its tables follows from its shape but for one factor, ρ g/E. The one is taken with which all
sides agree best; then once more, with the shape that they make so. Sides that lie alike are bent alike and cannot tell.
What can is the object in the air, where nothing bends it: of all factors, the one whose shape it has there. A duck
lies 1.35 mm off there as its sides were seen, 1.22, 1.12, 1.11, 1.29 if they were bent 0.5, 1, 2, 3 times (with noise);
their cost, 0.258, is then 0.265, 0.256, 0.302, 0.373, and differs by 0.01 where nothing does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from soft_estimator.geometry.shapes import Shape
from soft_estimator.geometry.surface import vertex_normals
from soft_estimator.measuring.phases import GRAVITY_M_S2
from soft_estimator.perception.fusion import Bend
from soft_estimator.perception.placed_side import Placed, table_of
from soft_estimator.perception.scan import ScannedBody, close_body
from soft_estimator.perception.scan_choice import judge_body
from soft_estimator.perception.scan_frames import ScanData
from soft_estimator.perception.scan_sides import settled, together
from soft_estimator.perception.settings import ScanSettings
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverError
from soft_estimator.physics.statics import solve_static
from soft_estimator.physics.step import Simulation

_SQUEEZED, _PART = 0.02, 0.05  # ρ g L/E of the body that is bent once: so many times as far as by this part of it
_FIRST, _NEXT, _ROUNDS = (0.5, 1.0, 2.0), (0.67, 1.0, 1.5), 2  # multiples tried first, then of the best; how often
_NU, _DENSITY_KG_M3 = 0.35, 1000.0
_CELLS, _VIEWS = 400, 2  # of the body that is bent, and of a side that a multiple is judged by
_IN_AIR = (0.0, 0.5, 1.0, 2.0, 3.0)  # multiples that are tried by the object in the air
_UNSURE_IN_AIR = 0.2  # of such a one: chosen; in a test with a known bend the multiple found is 5 % off
_UNSURE = 0.5  # of a multiple that was found: 0.7 and 1.7 to 2.5 times the true ones of a duck and a bunny
_BETTER = 0.97  # times what their disagreement costs: less is noise, and they stay as they were seen
_BASE = 0.6  # voxels above its table: what is lower lies on it
_TOLERANCE, _MOST_ROUNDS = 1e-3, 60  # part of the weight left unbalanced, and rounds until then
_TIPS_RAD = 0.2  # a body that turns by more as it bends does not lie there on what is known of its base
_AROUND, _NEIGHBOURS = 3, 4  # cells around the body that are moved as it is, by so many of its nodes
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Tried:
    """Sides unbent by a multiple, the body that they make, and how badly they agree on it."""

    multiple: float
    sides: list[Placed]
    body: ScannedBody
    cost: float


def without_weight(sides: list[Placed], notes: list[str]) -> tuple[ScanData, float]:
    """All sides as one scan of the object's rest shape, as they were seen where no bend makes them agree better; and
    how far off its surface may be by what its weight does to it and they do not tell [m], rms."""
    few = _few(sides)
    best = seen = _tried(few, [None] * len(few), 0.0)
    bent_m = 0.0
    for number in range(_ROUNDS):
        bends = _bends(best.body, sides)
        bent_m = bent_m or _bent_m(best.body, bends)
        if len({id(bend) for bend in bends if bend is not None}) < 2:
            return together(sides, notes), bent_m
        multiples = _FIRST if number == 0 else tuple(part * best.multiple for part in _NEXT)
        found = [one for multiple in multiples if (one := _tried_or_none(few, bends, multiple)) is not None]
        # The next shape is judged anew: an ear that was cut away is there now.
        best = min(found if number else [best, *found], key=lambda one: one.cost, default=best)
        if best.multiple == 0.0:
            return together(sides, notes), bent_m
    if best.cost > _BETTER * seen.cost:
        return together(sides, notes), bent_m
    return _straightened(best, sides, notes), _UNSURE * best.multiple * bent_m


def _few(sides: list[Placed]) -> list[Placed]:
    """The sides with the views alone that a multiple is judged by."""
    step = max(1, len(sides[0].data.views) // _VIEWS)
    return [replace(one, data=replace(one.data, views=one.data.views[::step])) for one in sides]


def _straightened(best: _Tried, sides: list[Placed], notes: list[str]) -> ScanData:
    """All views of the sides, placed and unbent as those that were tried."""
    straight = [replace(one, data=whole.data) for one, whole in zip(best.sides, sides)]
    most_m = max(float(np.linalg.norm(one.bend.moved_m, axis=3).max()) for one in straight if one.bend is not None)
    said = f"its own weight bent it by up to {1e3 * most_m:.1f} mm where it lay: the rest shape is without that"
    return together(straight, [*notes, said])


def as_it_flies(
    sides: list[Placed], now: ScannedBody, notes: list[str], off_m: Callable[[ScannedBody], float]
) -> tuple[ScanData, float] | None:
    """As `without_weight`, with the bend whose rest shape the object has in the air; None where that is not nearer to
    it than the shape `now`.

    Args:
        off_m: how far the object in the air lies off a body [m].
    """
    few, bends = _few(sides), _bends(now, sides)
    bent_m = _bent_m(now, bends)
    if bent_m == 0.0:
        return None
    tried: list[tuple[float, _Tried]] = []

    def look(multiple: float) -> None:
        if (one := _tried_or_none(few, bends, multiple)) is not None:
            tried.append((off_m(one.body), one))
            _log.info("bent %.2f times, it lies %.2f mm off in the air", multiple, 1e3 * tried[-1][0])

    for multiple in _IN_AIR:
        look(multiple)
    if len(tried) == len(_IN_AIR) and (lowest := _lowest(_IN_AIR, [off for off, _ in tried])) is not None:
        look(lowest)
    off, best = min(tried, key=lambda pair: pair[0], default=(np.inf, None))
    if best is None or best.multiple == 0.0 or off > _BETTER * off_m(now):
        return None
    return _straightened(best, sides, notes), _UNSURE_IN_AIR * best.multiple * bent_m


def _lowest(places: Sequence[float], values: Sequence[float]) -> float | None:
    """Where the parabola through the least of the values and its neighbours is lowest; None where that is at an end."""
    k = int(np.argmin(values))
    if k in (0, len(places) - 1):
        return None
    curve = np.polyfit(places[k - 1 : k + 2], values[k - 1 : k + 2], 2)
    return float(-0.5 * curve[1] / curve[0]) if curve[0] > 0 else None


def _bent_m(body: ScannedBody, bends: Sequence[Bend | None]) -> float:
    """How far the surface of a body that is bent once moves out or in, but for a shift of all of it, rms over it and
    its tables [m]; 0 where no bend could be told."""
    normals = vertex_normals(body.vertices_m, body.faces)
    moved = [bend.at(body.vertices_m) for bend in bends if bend is not None]
    along = [((one - one.mean(axis=0)) * normals).sum(axis=1) for one in moved]
    return float(np.sqrt(np.mean(np.square(along)))) if along else 0.0


def _tried_or_none(sides: list[Placed], bends: Sequence[Bend | None], multiple: float) -> _Tried | None:
    try:
        return _tried(sides, bends, multiple)
    except ValueError as error:  # such sides enclose nothing
        _log.info("bent %.2f times: %s", multiple, error)
        return None


def _tried(sides: list[Placed], bends: Sequence[Bend | None], multiple: float) -> _Tried:
    """The sides placed anew by what they show of the body at rest, if it was bent so, and judged."""
    by = {id(bend): None if bend is None else bend.by(multiple) for bend in bends}
    straight = [one.bent(by[id(bend)]) for one, bend in zip(sides, bends)]
    if multiple > 0:
        straight = settled(straight)
    data = together(straight, [])
    body = close_body(data, ScanSettings(target_cells=_CELLS, prior="none"))
    cost = judge_body(body, data).cost
    _log.info("if it is bent %.2f times, its sides agree at a cost of %.3f", multiple, cost)
    return _Tried(multiple, straight, body, cost)


def _bends(body: ScannedBody, sides: list[Placed]) -> list[Bend | None]:
    """How its weight bends the object in each of the sides, where ρ g L/E is `_SQUEEZED`; None where that cannot be
    told."""
    shape, known = build_body(body.grid, detail=body.detail), list[tuple[np.ndarray, Bend | None]]()
    out: list[Bend | None] = []
    for one in sides:
        table = table_of(one)
        like = [bend for other, bend in known if np.abs(table - other).max() <= 1e-9]
        known_here = like or [_bend(shape, table, _BASE * body.voxel_m) if one.data.stands else None]
        out.append(known_here[0])
        known.append((table, out[-1]))
    return out


def _bend(shape: Body, table: np.ndarray, within_m: float) -> Bend | None:
    """How a body that is held where it lies on a table (n, d) is moved by its weight, within and around it."""
    lowest_m = float((shape.surface_positions_m() @ table[:3]).min() + table[3])
    young_pa = _DENSITY_KG_M3 * GRAVITY_M_S2 * shape.volume_m3 ** (1 / 3) / (_PART * _SQUEEZED)
    weight = Parameters(np.array([young_pa]), _NU, _DENSITY_KG_M3, 0.0, 0.0, gravity_m_s2=-GRAVITY_M_S2 * table[:3])
    try:
        base = FixedRegion(_Below(table, max(lowest_m, 0.0) + within_m), "nitsche")
        lying = Simulation(build_model(shape, theta_scheme(0.01), fixed=[base]), weight)
        state, _ = solve_static(lying, tolerance=_TOLERANCE, max_rounds=_MOST_ROUNDS)
    except (SolverError, ValueError) as error:
        _log.info("how it lies on one of its sides cannot be told: %s", error)
        return None
    rest, moved, h = shape.node_position_m, np.asarray(state.u) / _PART, shape.grid.spacing_m
    there = rest + moved
    turn = Rotation.align_vectors(there - there.mean(axis=0), rest - rest.mean(axis=0))[0].magnitude()
    if turn > _TIPS_RAD:
        _log.info("on one of its sides it would turn by %.0f degrees: it is left as it was seen", np.degrees(turn))
        return None
    low = rest.min(axis=0) - _AROUND * h
    count = np.ceil((rest.max(axis=0) + _AROUND * h - low) / h).astype(int) + 1
    nodes = np.stack(np.meshgrid(*(low[a] + h * np.arange(count[a]) for a in range(3)), indexing="ij"), axis=-1)
    distance, near = cKDTree(rest).query(nodes.reshape(-1, 3), k=_NEIGHBOURS)
    share = 1.0 / np.maximum(distance, 1e-6 * h) ** 2
    share /= share.sum(axis=1, keepdims=True)
    return Bend(low, h, np.einsum("nk,nki->ni", share, moved[near]).reshape(*count, 3))


class _Below(Shape):
    """What lies lower than so far above a plane (n, d)."""

    def __init__(self, plane: np.ndarray, height_m: float) -> None:
        self.plane, self.height_m = plane, height_m

    def distance_m(self, points_m: np.ndarray) -> np.ndarray:
        return np.asarray(np.asarray(points_m) @ self.plane[:3] + self.plane[3] - self.height_m)

    def support_m(self, direction: np.ndarray) -> float:
        """Unbounded but straight up."""
        straight = float(np.dot(direction, self.plane[:3])) > 1 - 1e-12
        return self.height_m - float(self.plane[3]) if straight else np.inf
