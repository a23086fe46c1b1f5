"""A last look at a fit: the motion is run once more, with the columns of everything that was held fixed.

What comes of it widens the intervals (`fitting.consider`) and tells whether the model fits at all (`fitting.verdict`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from scipy.spatial import cKDTree

from soft_estimator.estimation.fixed_numbers import SeenFrame, Source, sources_of
from soft_estimator.estimation.passing import look_on
from soft_estimator.estimation.problem import Problem
from soft_estimator.estimation.residuals.interface import FrameChanges, FrameState
from soft_estimator.estimation.residuals.local_noise import LEAST_POINTS, neighbours_of
from soft_estimator.estimation.residuals.observed_frame import ObservedFrame
from soft_estimator.estimation.trajectory import Moment, initial_moment, trajectory_from
from soft_estimator.geometry.surface import face_areas_m2
from soft_estimator.physics.body import Body
from soft_estimator.physics.frame_times import share_of_way

# A patch should hold some fifteen points of a frame: enough for a mean that is four times surer than a point.
_POINTS_A_PATCH, _LEAST_PATCHES, _MOST_PATCHES = 15, 4, 24
_SMALL_PATCH_CELLS = 1.0  # width of a small patch in cells: errors of a grid are no wider

Places = tuple[np.ndarray, np.ndarray, np.ndarray]  # patch, stated noise, neighbour; see `Inspection`


@dataclass(frozen=True, eq=False)
class Inspection:
    """What the last look found, in the order of the residuals.

    Attributes:
        columns: of each source, (n, k), for one standard deviation of each of its components.
        patch: part of the body's surface that each point lies on, (n,); -1 for what is no point of a cloud.
        std_m: stated noise of each point [m], (n,); NaN for what is none.
        neighbour: nearest point of its frame, as an index of these arrays, (n,).
        by_offset: change of each residual with an offset of the surface outwards [1/m], (n,).
        small_patch: as `patch`, a cell wide each, (n,); of a body that nothing holds -1.
    """

    sources: tuple[Source, ...]
    columns: tuple[np.ndarray, ...]
    patch: np.ndarray
    std_m: np.ndarray
    neighbour: np.ndarray
    by_offset: np.ndarray
    small_patch: np.ndarray


# θ and the last look there, of problems that somebody still holds.
_last: WeakKeyDictionary[Problem, tuple[np.ndarray, Inspection]] = WeakKeyDictionary()


def look_at(problem: Problem, theta: np.ndarray) -> Inspection:
    """The look at a fit with everything in it that may be wrong by `problem.known`. The last one is kept: several
    questions are asked of the same fit, and each would simulate it again."""
    kept = _last.get(problem)
    if kept is None or not np.array_equal(kept[0], theta):
        known, parameters = problem.known, problem.variables.parameters(theta)
        sources = [] if known is None else sources_of(problem.model, problem.variables, parameters, known)
        _last[problem] = kept = np.array(theta), inspect_fit(problem, theta, sources)
    return kept[1]


def forget_look(problem: Problem) -> None:
    """Let go of the last look, once all that was to be asked of the fit has been."""
    _last.pop(problem, None)


def inspect_fit(problem: Problem, theta: np.ndarray, sources: list[Source]) -> Inspection:
    """Run the motion at θ and collect the columns of the sources and the places of the points."""
    parameters, model, backend = problem.variables.parameters(theta), problem.model, problem.backend
    whole = [d for source in sources for d in source.directions]
    # Cameras and clocks do not move the body: no columns of zeros are simulated for them.
    moving = [k for k, d in enumerate(whole) if any(np.any(value) for value in d.values.values())]
    directions = [whole[k] for k in moving]
    start = initial_moment(model, parameters, directions or problem.variables.directions(theta), backend)
    path = trajectory_from(model, parameters, directions or None, start, backend, problem.kinds)
    problem.simulations += 1
    clouds = [len(f.points_m) for f in problem.frames if isinstance(f, ObservedFrame)]
    patches = SurfacePatches(model.body, int(np.median(clouds)) if clouds else 0)
    small = _small_patches(model.body) if model.dirichlet.any else None
    rows: list[np.ndarray] = []
    places: list[Places] = []
    offsets: list[np.ndarray] = []
    small_places: list[np.ndarray] = []

    def look(k: int, a: Moment, b: Moment) -> None:
        frame = problem.frames[k]
        share = share_of_way(frame.time_s, a.state.time_s, b.state.time_s)
        at = FrameState(a.state, b.state, share, parameters, backend.to_host)
        kind = problem.kinds.of(frame)
        seen = kind.predict(frame, at)
        here = SeenFrame.of(model.body, frame, at, seen, kind.by_offset(frame))
        changes = None
        if a.changes is not None and b.changes is not None:
            changes = np.zeros((len(seen.residual), len(whole)))
            changes[:, moving] = seen.changes(FrameChanges(a.changes, b.changes, share, directions, backend.to_host))
        rows.append(frame_columns(sources, changes, here))
        offsets.append(here.by_offset)
        places.append(patches.of(frame, at.u, len(seen.residual)))
        small_places.append(_small_patch(small, frame, at.u, places[-1][0]))

    look_on(path, [frame.time_s for frame in problem.frames], look)
    joined = np.concatenate(rows)
    parts: tuple[np.ndarray, ...] = ()
    if sources:
        parts = tuple(np.split(joined, np.cumsum([len(source.directions) for source in sources])[:-1], axis=1))
    return Inspection(
        tuple(sources), parts, *joined_places(places), np.concatenate(offsets), np.concatenate(small_places)
    )


def frame_columns(sources: list[Source], changes: np.ndarray | None, look: SeenFrame) -> np.ndarray:
    """The columns of all sources in one frame, (n, K): through the motion, and through what is seen of it."""
    rows = np.zeros((len(look.prediction.residual), sum(len(s.directions) for s in sources)))
    if changes is not None:
        rows += changes
    first = 0
    for source in sources:
        last = first + len(source.directions)
        if source.seen is not None:
            rows[:, first:last] += source.seen(look)
        first = last
    return rows


class SurfacePatches:
    """Parts of a body's surface, the same at all times, of about as many points as make a mean.

    Args:
        points: of a usual frame. width_m: of a patch [m], however many points it then holds.
    """

    def __init__(self, body: Body, points: int, *, width_m: float | None = None) -> None:
        vertices = body.surface_positions_m()
        # A camera sees half of the patches at a time.
        wanted = int(np.clip(2 * points // _POINTS_A_PATCH, _LEAST_PATCHES, _MOST_PATCHES))
        if width_m is not None:
            wanted = int(np.ceil(face_areas_m2(vertices, body.surface.faces).sum() / width_m**2))
        self.body, self.of_vertex = body, _spread_out(vertices, wanted)

    @property
    def count(self) -> int:
        return int(self.of_vertex.max()) + 1

    def of(self, frame: object, u: np.ndarray, count: int) -> Places:
        """Patch (n,), stated noise [m] (n,) and nearest neighbour (n,) of a frame's residuals."""
        if not isinstance(frame, ObservedFrame) or len(frame.points_m) != count:
            return np.full(count, -1), np.full(count, np.nan), np.arange(count)
        return self.at(frame.points_m, u), frame.std_m, _neighbours(frame.points_m)

    def at(self, points_m: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Patch of each of some points (n, 3) [m] at the body displaced by u (N, 3) [m], (n,)."""
        tree = cKDTree(self.body.surface_positions_m(u), compact_nodes=False, balanced_tree=False)  # for one look only
        return self.of_vertex[tree.query(points_m)[1]]


def few_of(frame: ObservedFrame, patch: np.ndarray, chosen: np.ndarray) -> Places:
    """Places of some of a frame's points, whose patches (n,) are known; chosen: which ones, (m,)."""
    return patch[chosen], frame.std_m[chosen], _neighbours(frame.points_m[chosen])


def _neighbours(points_m: np.ndarray) -> np.ndarray:
    """The nearest other point of each, (n,); itself where there are too few for a neighbourhood."""
    return neighbours_of(points_m) if len(points_m) >= LEAST_POINTS else np.arange(len(points_m))


def _small_patches(body: Body) -> SurfacePatches:
    return SurfacePatches(body, 0, width_m=_SMALL_PATCH_CELLS * body.grid.spacing_m)


def _small_patch(small: SurfacePatches | None, frame: Any, u: np.ndarray, patch: np.ndarray) -> np.ndarray:
    """Small patch of each of a frame's residuals, (n,); -1 where they lie on no patch (n,) at all."""
    return np.full(len(patch), -1) if small is None or (patch < 0).all() else small.at(frame.points_m, u)


def joined_places(places: Sequence[Places]) -> Places:
    """Those of several frames, one after another."""
    before = np.cumsum([0, *(len(place[0]) for place in places[:-1])])
    patch, std = (np.concatenate([place[k] for place in places]) for k in range(2))
    return patch, std, np.concatenate([place[2] + first for place, first in zip(places, before)])


def _spread_out(vertices_m: np.ndarray, count: int) -> np.ndarray:
    """The nearest of `count` vertices that lie as far from each other as can be, for every vertex, (V,)."""
    chosen = [int(np.argmax(vertices_m[:, 0]))]
    distance = np.linalg.norm(vertices_m - vertices_m[chosen[0]], axis=1)
    while len(chosen) < min(count, len(vertices_m)):
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.linalg.norm(vertices_m - vertices_m[chosen[-1]], axis=1))
    return np.asarray(cKDTree(vertices_m[chosen]).query(vertices_m)[1])
