"""Where one part of a recording belongs among others, by what each of them saw: surface, free space and its table.

Two parts agree where the surface that both saw coincides and neither has surface where the other saw nothing, or its
table. A pose is looked for among all turns by that, first for parts that stand on the same side, which can differ by a
turn about the vertical only; what was found is refined by point-to-plane steps.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from soft_estimator.backends.cpu.two_way import two_way
from soft_estimator.geometry.rigid import angle_between, turns_all_around
from soft_estimator.perception.fusion import Field, fuse
from soft_estimator.perception.placed_shape import Pose
from soft_estimator.perception.placed_side import Placed, moved_views, table_of

_UNSEEN = 0.35  # truncations: what lying in space that the other part did not see costs, so that parts stay together
_BLUR = (3.0, 1.5, 0.7)  # voxels, of what a pose is judged by, from the first look to the last
_POINTS, _PLACES = 250, 1500  # of a part, that a search and a refinement look at
_TURNS, _YAWS = 400, 48  # tried: all turns, 25 degrees apart; and turns about the vertical
_KEPT, _LAST = 60, 10  # tries that are looked at more closely, and to the end
_APART_RAD = 0.15  # poses nearer than this are one
_SAME_SIDE = 1.02  # a turn about the vertical is taken that explains as much but for this factor: it assumes less
PLENTY = 0.2  # of a part's surface shared with the others on the same side: no other side is tried
_MOST_COST = 1.1  # times what it would cost to lie in space where nothing is known: more is a contradiction
_SURER = 1.02  # the next best pose must cost so many times more
_BESIDE = 0.75  # voxels along the surface: places farther from each other are no pair, but rims of what either saw
_ALIKE = 0.8  # cosine of the normals of two places that may be one
_UPRIGHT = np.array([False, False, True, True, True, False])  # a turn about the vertical, and shifts along the table
_REFINEMENTS = 60  # steps of one refinement at most
_LEAST_PAIRS = 12
_ROBUST = 0.3  # voxels: pairs farther off count less and less
_STAY = (0.02, 0.001)  # rad and m: moves that count as much as a thousandth of one pair a voxel off
_LONGEST_MOVE = np.array([0.1, 0.1, 0.1, 0.01, 0.01, 0.01])  # rad and m, in one refinement
_BEHIND = 0.15  # of its width: how far behind what was seen the middle is
_REACH = 0.7  # of the object's width: how far around it what was seen free is kept
_VIEWS, _NODES = 3, 20_000_000  # images of a part that tell what is free, and nodes of the field at most
_LEAST_SHARED = 0.02  # of a part's surface seen by the others, too
_MOST_OFF = 0.27  # voxels rms, of the surface that is shared
_log = logging.getLogger(__name__)


class Surface:
    """What parts saw of the object's surface, in the frame of the first of them.

    Attributes:
        places, normals: on it, (n, 3) [m] and (n, 3). some_places, some_normals: as many as a refinement looks at.
        points: as many as a search does. middle_m: about the middle of the object (3,). spacing_m: the fusion's voxel.
    """

    def __init__(self, parts: list[Placed]) -> None:
        self.spacing_m = parts[0].data.voxel_m
        self.places = np.concatenate([one.places @ one.rotation.T + one.translation_m for one in parts])
        self.normals = np.concatenate([one.normals @ one.rotation.T for one in parts])
        self.tree = cKDTree(self.places)
        chosen = np.random.default_rng(0).permutation(len(self.places))
        self.points = self.places[chosen[:_POINTS]]
        self.some_places, self.some_normals = self.places[chosen[:_PLACES]], self.normals[chosen[:_PLACES]]
        # Seen from one side a body is about as deep as it is wide: its middle lies behind what was seen of it.
        mean = self.normals.mean(axis=0)
        width_m = float(np.ptp(self.places, axis=0).max())
        self.middle_m = self.places.mean(axis=0) - _BEHIND * width_m * mean / max(float(np.linalg.norm(mean)), 0.5)


class Evidence(Surface):
    """The same, with what space was seen free, and what a pose costs that puts another part's points anywhere.

    Attributes:
        field: all that was seen, fused. into_m: how far its nodes lie inside the space that is not the object's, cut
            off at limit_m [m]. costs: of a point at the nodes, ever less blurred.
    """

    def __init__(self, parts: list[Placed]) -> None:
        super().__init__(parts)
        first = parts[0].data
        low, high = self.places.min(axis=0), self.places.max(axis=0)
        reach = _REACH * float((high - low).max()) + first.truncation_m
        self.limit_m, fields, free = first.truncation_m, [], []
        for one in parts:
            views = moved_views(one, first)
            views = views[:: max(1, len(views) // _VIEWS)]
            law = (self.spacing_m, self.limit_m, first.noise, _NODES)
            fields.append(fuse(views, first.frame, low - reach, high + reach, *law))
            free.append(self._not_of_body(fields[-1], one, len(views)))
        total, weight = sum(f.total for f in fields), sum(f.weight for f in fields)
        self.field = replace(fields[0], total=np.asarray(total), weight=np.asarray(weight))
        anywhere = np.any(free, axis=0)
        self.into_m = np.minimum(ndimage.distance_transform_edt(anywhere) * self.spacing_m, self.limit_m)
        self.costs = self._costs(anywhere)

    def _not_of_body(self, field: Field, one: Placed, views: int) -> np.ndarray:
        """Nodes that a part saw free in most views, or that lie below its table."""
        seen = field.weight > 0
        near = np.where(seen, field.total / np.where(seen, field.weight, 1.0), np.inf)
        free = (field.free > 0.5 * views) & ~(near < self.spacing_m)
        if not one.data.stands:
            return free
        return free | (field.heights_above_m(table_of(one)) < -0.5 * self.spacing_m)

    def _costs(self, free: np.ndarray) -> list[np.ndarray]:
        """What a point of the other part costs at the nodes, in truncations, ever less blurred."""
        field, limit = self.field, self.limit_m
        seen = field.weight > 0
        near = np.divide(field.total, field.weight, out=np.full(field.total.shape, np.inf), where=seen)
        cost = np.where(seen & (near > -_UNSEEN * limit), np.minimum(np.abs(near) / limit, 1.0), _UNSEEN)
        before = np.where(seen & (near > 0), np.minimum(near, limit), 0.0)
        cost = np.where(free, np.maximum(self.into_m, before) / limit, cost)
        return [np.ascontiguousarray(ndimage.gaussian_filter(cost, sigma)) for sigma in _BLUR]


@dataclass(frozen=True, eq=False)
class Match:
    """A pose of a part among others, x = rotation · x_part + translation: the share of its surface that the others
    saw, too; how far that is off, rms [voxels]; and whether there is no other pose as good."""

    rotation: np.ndarray
    translation_m: np.ndarray
    shared: float
    off: float
    sure: bool


def find_match(known: Evidence, part: Evidence) -> Match | None:
    """Where a part belongs; None where its surface meets none of the known one."""
    upright = [Rotation.from_rotvec([0, 0, a]).as_matrix() for a in 2 * np.pi * np.arange(_YAWS) / _YAWS]
    found = [(cost, pose, True) for cost, pose in _searched(known, part, upright, True)]
    match = refined(known, part, *found[0][1], True)
    most = _MOST_COST * _UNSEEN**2 * (len(known.points) + len(part.points))
    if match is None or not match.sure or match.shared < PLENTY or found[0][0] > most:
        found += [(cost, pose, False) for cost, pose in _searched(known, part, list(turns_all_around(_TURNS)), False)]
        best = min(found, key=lambda one: one[0] * (1.0 if one[2] else _SAME_SIDE))
        match = refined(known, part, *best[1], best[2])
        found = [best, *(one for one in found if one is not best)]
    if match is None:
        return None
    cost, pose, alike = found[0]
    next_best = min((c for c, other, _ in found if angle_between(other[0], pose[0]) > 3 * _APART_RAD), default=np.inf)
    sure = match.sure and cost < most and next_best > _SURER * cost
    _log.info(
        "a part %s: cost %.1f, next %.1f, %.0f %% of it shared, %.2f voxels off there%s",
        "on the same side" if alike else "on another side", cost, next_best, 100 * match.shared, match.off,
        "" if sure else ": not sure",
    )  # fmt: skip
    return replace(match, sure=sure)


def _searched(known: Evidence, part: Evidence, turns: list[np.ndarray], upright: bool) -> list[tuple[float, Pose]]:
    """Poses near the turns with what they cost, cheapest first, no two of them one."""
    starts = [(turn, known.middle_m - turn @ part.middle_m) for turn in turns]
    if upright:
        starts = [(turn, np.array([shift[0], shift[1], 0.0])) for turn, shift in starts]
    found = sorted((_descended(known, part, start, 0, 6, upright) for start in starts), key=lambda one: one[0])
    found = sorted((_descended(known, part, p, 1, 10, upright) for _, p in found[:_KEPT]), key=lambda one: one[0])
    apart: list[tuple[float, Pose]] = []
    for cost, pose in found:
        if all(angle_between(pose[0], other[0]) > _APART_RAD for _, other in apart):
            apart.append((cost, pose))
    found = [_descended(known, part, pose, 2, 15, upright) for _, pose in apart[:_LAST]]
    return sorted(found, key=lambda one: one[0])


def _descended(
    known: Evidence, part: Evidence, start: Pose, level: int, steps: int, upright: bool
) -> tuple[float, Pose]:
    """Levenberg's steps on what both parts' points cost each other; upright: about the vertical and along the table."""
    free = _UPRIGHT if upright else np.ones(6, dtype=bool)
    pose, damping = start, 1e-3
    cost, matrix, slope = _agreement(known, part, pose, level)
    for _ in range(steps):
        move, used = np.zeros(6), matrix[free][:, free]
        move[free] = -np.linalg.solve(used + np.diag(damping * np.diag(used) + 1e-9), slope[free])
        tried = _moved(pose, part.middle_m, move)
        cost_tried, matrix_tried, slope_tried = _agreement(known, part, tried, level)
        if cost_tried >= cost:
            damping *= 8
            continue
        settled = cost - cost_tried < 1e-4 * cost
        pose, matrix, slope, cost, damping = tried, matrix_tried, slope_tried, cost_tried, max(damping / 5, 1e-6)
        if settled:
            break
    return cost, pose


def _moved(pose: Pose, middle_m: np.ndarray, move: np.ndarray) -> Pose:
    """A pose turned about the part's middle by move[:3] [rad] and shifted by move[3:] [m]."""
    turn = Rotation.from_rotvec(move[:3]).as_matrix() @ pose[0]
    return turn, pose[0] @ middle_m + pose[1] + move[3:] - turn @ middle_m


def _agreement(known: Evidence, part: Evidence, pose: Pose, level: int) -> tuple[float, np.ndarray, np.ndarray]:
    """What the points of either cost the other, Σ r²; JᵀJ (6, 6) and Jᵀr (6,) by a turn about the part's middle and a
    shift."""
    turn, shift = np.ascontiguousarray(pose[0]), np.ascontiguousarray(pose[1])
    matrix, slope = np.empty((6, 6)), np.empty(6)
    fields = (known.costs[level], known.field.origin_m, part.costs[level], part.field.origin_m)
    spacing = np.array([known.spacing_m, part.spacing_m])
    points = (known.points, part.points)
    cost = two_way(*fields, spacing, *points, turn, shift, turn @ part.middle_m + shift, matrix, slope)
    return float(cost), matrix, slope


def refined(known: Surface, part: Surface, turn: np.ndarray, shift: np.ndarray, upright: bool) -> Match | None:
    """Point to plane from a pose, between places that both saw and whose normals agree; None where those are too few.

    shift [m]; upright: as `_descended` takes it.
    """
    h, free = known.spacing_m, _UPRIGHT if upright else np.ones(6, dtype=bool)
    shared, off = 0.0, np.inf
    for number in range(_REFINEMENTS):
        within = 1.5 * h * max(1.0, 3.0 * 0.9**number)
        middle = turn @ part.middle_m + shift
        moved, normals = part.some_places @ turn.T + shift, part.some_normals @ turn.T
        mine, mine_at, mine_normal = _pairs(known, moved, normals, within)
        back = (known.some_places - shift) @ turn
        his, his_at, his_normal = _pairs(part, back, known.some_normals @ turn, within)
        his_at, his_normal = his_at @ turn.T + shift, his_normal @ turn.T
        rows = np.concatenate([
            _rows(mine_normal, moved[mine], middle, ((moved[mine] - mine_at) * mine_normal).sum(axis=1)),
            _rows(his_normal, his_at, middle, ((his_at - known.some_places[his]) * his_normal).sum(axis=1)),
        ])  # fmt: skip
        if len(rows) < _LEAST_PAIRS:
            return None
        weight = 1.0 / (1.0 + (rows[:, 6] / (_ROBUST * h)) ** 2)
        used = rows[:, :6][:, free]
        stay = np.repeat([h**2 / _STAY[0] ** 2, h**2 / _STAY[1] ** 2], 3)[free]
        move = np.zeros(6)
        matrix = used.T @ (weight[:, None] * used) + 1e-3 * np.diag(stay)
        move[free] = -np.linalg.solve(matrix, used.T @ (weight * rows[:, 6]))
        turn, shift = _moved((turn, shift), part.middle_m, np.clip(move, -_LONGEST_MOVE, _LONGEST_MOVE))
        shared, off = float(mine.mean()), float(np.sqrt(np.mean(rows[:, 6] ** 2)) / h)
        if within <= 1.5 * h and np.abs(move[:3]).max() < 1e-4 and np.abs(move[3:]).max() < 1e-5:
            break
    return Match(turn, shift, shared, off, shared > _LEAST_SHARED and off < _MOST_OFF)


def _pairs(
    field: Surface, places: np.ndarray, normals: np.ndarray, within_m: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which places (n,) bool have one of the field's near with a like normal; those (m, 3), and mean normals (m, 3)."""
    distance, nearest = field.tree.query(places, distance_upper_bound=within_m)
    paired = np.isfinite(distance)
    nearest = np.where(paired, nearest, 0)
    paired &= (field.normals[nearest] * normals).sum(axis=1) > _ALIKE
    way = places - field.places[nearest]
    beside = way - (way * field.normals[nearest]).sum(axis=1)[:, None] * field.normals[nearest]
    paired &= np.linalg.norm(beside, axis=1) < _BESIDE * field.spacing_m
    normal = field.normals[nearest][paired] + normals[paired]
    return paired, field.places[nearest][paired], normal / np.linalg.norm(normal, axis=1)[:, None]


def _rows(normals: np.ndarray, places: np.ndarray, middle: np.ndarray, off: np.ndarray) -> np.ndarray:
    """(n, 7): how residuals change by a turn about the middle and a shift, and the residuals."""
    return np.concatenate([np.cross(places - middle, normals), normals, off[:, None]], axis=1)
