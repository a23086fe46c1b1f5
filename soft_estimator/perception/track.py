"""Which pieces of a cloud are the object: a seed, the only large one, or the ones where it was expected to be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.spatial import cKDTree

from soft_estimator.geometry.extent import widest_m
from soft_estimator.perception.settings import FinderSettings

_WHOLE = 0.85  # a frame with this share of the points seen before shows the object well enough to learn its box from
_PARTLY = 0.6  # with less than this, a reader is told
_TOO_LARGE = 1.5  # a piece this many times longer than the object is not, or not only, the object
_TOUCHING = 0.3  # a piece with this share of the object's points where it is expected has merged with it
_TIGHT_M = 0.005  # how far beyond its box a merged piece is still taken for the object
_GROWN = 1.35  # an object that reaches this many times farther from its middle than before is not, or not only, it
_GROWTH = 1.03  # what a frame may add to the reach that is believed: another side faces the camera
_MOST_GROWTH = 1.5  # of the reach in the first frame, ever
_REACH_SHARE = 0.98  # share of the points within the reach: strays do not count
_LEAVES_PX = 3  # points of a piece on the image's border, and this share of its points, that say it leaves the picture
_LEAVES_SHARE = 0.005
# Times the known width beyond which a piece is not, or not only, the object: one that is found anew, and one that is
# followed, which may be flattened by a bounce.
_TOO_WIDE, _TOO_WIDE_FOLLOWED = 1.15, 1.3
_MOST_PIECES = 40  # with more, the scene is cluttered beyond telling self-hiding from neighbours


@dataclass(frozen=True, eq=False)
class Track:
    """What is carried over from frame to frame.

    Attributes:
        low_m, high_m: corners of the box around its points in the last frame that showed it well [m], (3,) each.
        velocity_m: motion of the box's middle per second, or per frame without times [m], (3,).
        points: points it had there.
        time_s: when that was [s] (or the frame's number).
        missed: frames since without it. reach_m: how far its points lie from their middle; first_reach_m: the same in
            the first frame [m].
    """

    low_m: np.ndarray
    high_m: np.ndarray
    velocity_m: np.ndarray
    points: int
    time_s: float
    missed: int = 0
    reach_m: float = np.inf
    first_reach_m: float = np.inf

    def grown(self, reach_m: float) -> float:
        """The reach that is believed after a frame in which it was this."""
        return min(max(self.reach_m, min(reach_m, _GROWTH * self.reach_m)), _MOST_GROWTH * self.first_reach_m)

    def reach(self, time_s: float, margin_m: float) -> tuple[np.ndarray, np.ndarray]:
        """Box the object is expected in: where it was, where its velocity takes it, all between, and a margin around.

        Standing still must stay possible, for a bounce turns the velocity round within a frame. Unseen, it may be
        anywhere near:
        then the velocity says nothing any more and the margin grows.
        """
        shift = self.velocity_m * (time_s - self.time_s) if self.missed == 0 else np.zeros(3)
        margin = margin_m * min(1 + self.missed, 4)
        return np.minimum(self.low_m, self.low_m + shift) - margin, np.maximum(
            self.high_m, self.high_m + shift
        ) + margin

    def partly_seen(self, low_m: np.ndarray, high_m: np.ndarray, time_s: float) -> Track:
        """The track with its box moved no farther than needed to hold the part that was seen."""
        shift = np.maximum(high_m - self.high_m, 0.0) + np.minimum(low_m - self.low_m, 0.0)
        # what is hidden may be hidden for good (another side faces the camera): forget slowly what it was like
        points = int(0.97 * self.points)
        low, high, velocity = self.low_m + shift, self.high_m + shift, 0.5 * self.velocity_m
        return Track(low, high, velocity, points, time_s, 0, self.reach_m, self.first_reach_m)


@dataclass(frozen=True, eq=False)
class Choice:
    """Indices of the chosen points, of those cut off the chosen pieces, which pieces are specks, and what to say."""

    chosen: np.ndarray
    beyond: np.ndarray
    small: np.ndarray
    track: Track | None
    reason: str = ""
    notes: tuple[str, ...] = ()


_NONE = np.empty(0, dtype=np.int64)


def choose_pieces(
    points: np.ndarray,
    label: np.ndarray,
    pieces: int,
    track: Track | None,
    settings: FinderSettings,
    time_s: float | None,
    border: np.ndarray | None = None,
) -> Choice:
    """Choose among labelled pieces; label (n,) is -1 for points of none.

    border: which points lie on the border of the image, (n,), None where there is no image. What leaves the picture (an
    arm, a wall) is not the object, unless there is nothing else.
    """
    member = np.flatnonzero(label >= 0)
    size = np.bincount(label[member], minlength=max(pieces, 1))
    small = size < settings.min_points
    now = time_s if time_s is not None else (track.time_s + track.missed + 1 if track is not None else 0.0)
    if track is not None:
        return _follow(points, label, member, size, small, track, settings, now)
    if settings.track.seed_m is None:
        label, member = _whole_ones(label, member, size, small, border)
        size = np.bincount(label[member], minlength=len(size))
    label, size, wide = _whole_pieces(points, label, member, size, small, settings)
    large = np.flatnonzero(size >= settings.min_points)
    if settings.track.seed_m is not None:
        return _at_seed(points, label, member, large, small, settings, now)
    if len(large) == 0:
        return Choice(_NONE, _NONE, small, None, wide or _no_object(size, settings))
    order = large[np.argsort(-size[large], kind="stable")]
    if len(order) > 1 and size[order[1]] >= settings.track.rival_share * size[order[0]]:
        places = " and ".join(_place(points[member[label[member] == piece]]) for piece in order[:2])
        return Choice(
            _NONE, _NONE, small, None,
            f"two objects in view, {size[order[0]]} and {size[order[1]]} points around {places}; give "
            "track.seed_m, a crop box or a mask",
        )  # fmt: skip
    return _first(points, member[label[member] == order[0]], small, now)


def _whole_ones(
    label: np.ndarray, member: np.ndarray, size: np.ndarray, small: np.ndarray, border: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Labels and members without the pieces that leave the picture; all of them where nothing else is large."""
    if border is None:
        return label, member
    on_border = np.bincount(label[member[border[member]]], minlength=len(size))
    leaves = on_border >= np.maximum(_LEAVES_PX, _LEAVES_SHARE * size)
    if not leaves.any() or not (~leaves & ~small).any():
        return label, member
    inside = np.where((label >= 0) & leaves[label], -1, label)
    return inside, member[~leaves[label[member]]]


def _whole_pieces(
    points: np.ndarray,
    label: np.ndarray,
    member: np.ndarray,
    size: np.ndarray,
    small: np.ndarray,
    settings: FinderSettings,
) -> tuple[np.ndarray, np.ndarray, str]:
    """Labels and sizes of pieces with their neighbours joined to them, 0 for those wider than the object; and why there
    is none, where all of them are.

    A hand beside the object joins it by mistake: where that makes a piece too wide, pieces stay as they are.
    """
    joined, counts = _joined(points, label, member, size, small, settings.track.self_gap_m)
    known = settings.track.size_m
    if known is None:
        return joined, counts, ""
    widest = 0.0
    for labels, sizes in ((joined, counts), (label, size.copy())):
        for piece in np.flatnonzero(sizes >= settings.min_points):
            width = widest_m(points[member[labels[member] == piece]], 1.0 - _REACH_SHARE)
            if width > _TOO_WIDE * known:
                sizes[piece], widest = 0, max(widest, width)
        if (sizes >= settings.min_points).any():
            return labels, sizes, ""
    if not widest:
        return joined, counts, ""
    return (
        joined,
        counts,
        f"what is above the table is {widest:.2f} m across, the object {known:.2f} m: it is not alone",
    )


def _reach_of(points: np.ndarray) -> float:
    """How far points (n, 3) lie from their middle [m], strays left out; nearly the same however the object turns."""
    return float(np.quantile(np.linalg.norm(points - np.median(points, axis=0), axis=1), _REACH_SHARE))


def _joined(
    points: np.ndarray, label: np.ndarray, member: np.ndarray, size: np.ndarray, small: np.ndarray, gap_m: float
) -> tuple[np.ndarray, np.ndarray]:
    """Labels and sizes with pieces nearer than gap_m made one; a piece that is joined to another has size 0
    afterwards."""
    large = np.flatnonzero(~small)
    if len(large) < 2 or gap_m <= 0 or len(large) > _MOST_PIECES:
        return label, size
    trees = {}
    for piece in large:
        own = points[member[label[member] == piece]]
        trees[piece] = cKDTree(own[:: max(1, len(own) // 1000)])
    target = np.arange(len(size))
    for a, b in combinations(large, 2):
        if target[a] != target[b] and np.isfinite(trees[a].query(trees[b].data, distance_upper_bound=gap_m)[0]).any():
            target[target == target[b]] = target[a]
    joined = np.where(label >= 0, target[label], -1)
    return joined, np.bincount(joined[member], minlength=len(size))


def _at_seed(
    points: np.ndarray,
    label: np.ndarray,
    member: np.ndarray,
    large: np.ndarray,
    small: np.ndarray,
    settings: FinderSettings,
    now: float,
) -> Choice:
    candidate = member[~small[label[member]]] if len(large) else _NONE
    if len(candidate) == 0:
        return Choice(_NONE, _NONE, small, None, _no_object(np.bincount(label[member], minlength=1), settings))
    distance = np.linalg.norm(points[candidate] - np.asarray(settings.track.seed_m), axis=1)
    nearest = int(np.argmin(distance))
    if distance[nearest] > settings.track.seed_reach_m:
        return Choice(
            _NONE, _NONE, small, None,
            f"the nearest object is {distance[nearest]:.3f} m from track.seed_m, beyond seed_reach_m "
            f"{settings.track.seed_reach_m:g}; move the seed or raise the reach",
        )  # fmt: skip
    return _first(points, member[label[member] == label[candidate[nearest]]], small, now)


def _first(points: np.ndarray, chosen: np.ndarray, small: np.ndarray, now: float) -> Choice:
    low, high = points[chosen].min(axis=0), points[chosen].max(axis=0)
    reach = _reach_of(points[chosen])
    return Choice(
        chosen, _NONE, small, Track(low, high, np.zeros(3), len(chosen), now, reach_m=reach, first_reach_m=reach)
    )


def _follow(
    points: np.ndarray,
    label: np.ndarray,
    member: np.ndarray,
    size: np.ndarray,
    small: np.ndarray,
    track: Track,
    settings: FinderSettings,
    now: float,
) -> Choice:
    low, high = track.reach(now, settings.track.reach_m)
    inside = ((points[member] >= low) & (points[member] <= high)).all(axis=1)
    share = np.bincount(label[member], weights=inside, minlength=len(size)) / np.maximum(size, 1)
    # a piece that only reaches in with a corner is somebody else's
    mine = ~small & (share >= settings.track.own_share)
    longest = _TOO_LARGE * float(np.linalg.norm(track.high_m - track.low_m)) + settings.track.reach_m
    known = settings.track.size_m
    for piece in np.flatnonzero(mine):
        own = points[member[label[member] == piece]]
        mine[piece] = np.linalg.norm(np.ptp(own, axis=0)) <= longest and (
            known is None or widest_m(own, 1.0 - _REACH_SHARE) <= _TOO_WIDE_FOLLOWED * known
        )
    chosen, beyond = member[mine[label[member]]], _NONE
    if not mine.any():
        merged = member[(~small & (share * size >= _TOUCHING * track.points))[label[member]]]
        low, high = track.reach(now, _TIGHT_M)
        within = ((points[merged] >= low) & (points[merged] <= high)).all(axis=1)
        chosen, beyond = merged[within], merged[~within]
    chosen, beyond, reach_m = _without_growth(points, chosen, beyond, track, now)
    if len(chosen) < settings.min_points:
        missed = track.missed + 1
        if missed > settings.track.patience_frames:
            return Choice(
                _NONE, _NONE, small, None, f"the object has been out of view for {missed} frames and is given up"
            )
        reason = f"the object is not where it was expected ({_place(0.5 * (low + high)[None])}): hidden or out of view"
        return Choice(_NONE, _NONE, small, replace(track, missed=missed), reason)
    notes = [f"{len(beyond)} points of a thing that touches the object were cut off"] if len(beyond) else []
    if len(chosen) < _PARTLY * track.points:
        notes.append(f"partly hidden: {len(chosen)} points, {track.points} before")
    new_low, new_high = points[chosen].min(axis=0), points[chosen].max(axis=0)
    if len(beyond):  # what touches may fill the box up to its rim: nothing can be learned of where the object went
        return Choice(chosen, beyond, small, replace(track, time_s=now, missed=0), "", tuple(notes))
    if len(chosen) < _WHOLE * track.points:
        return Choice(chosen, beyond, small, track.partly_seen(new_low, new_high, now), "", tuple(notes))
    step = 0.5 * (new_low + new_high - track.low_m - track.high_m)
    passed = now - track.time_s
    velocity = track.velocity_m if passed < 1e-3 else step / passed  # repeated stamps say nothing of speed
    velocity = velocity if track.missed == 0 else np.zeros(3)
    count = max(len(chosen), int(0.97 * track.points))
    reach = track.grown(_reach_of(points[chosen]) if reach_m is None else reach_m)
    followed = Track(new_low, new_high, velocity, count, now, 0, reach, track.first_reach_m)
    return Choice(chosen, beyond, small, followed, "", tuple(notes))


def _without_growth(
    points: np.ndarray, chosen: np.ndarray, beyond: np.ndarray, track: Track, now: float
) -> tuple[np.ndarray, np.ndarray, float | None]:
    """Chosen points and those cut off, where the chosen ones reach much farther than the object ever did: a hand or a
    neighbour is among them, and what lies beyond the object's reach from where it is expected is cut off. And how far
    the chosen ones reach [m], where that is known."""
    if len(chosen) < 2:
        return chosen, beyond, None
    reach_m = _reach_of(points[chosen])
    if reach_m <= _GROWN * track.reach_m:
        return chosen, beyond, reach_m
    middle = 0.5 * (track.low_m + track.high_m)
    if track.missed == 0:
        middle = middle + track.velocity_m * (now - track.time_s)
    near = np.linalg.norm(points[chosen] - middle, axis=1) <= _GROWN * track.reach_m
    return chosen[near], np.concatenate([beyond, chosen[~near]]), None


def specks_beside(points: np.ndarray, label: np.ndarray, choice: Choice, least: int, gap_m: float) -> np.ndarray:
    """Points of small pieces, of at least `least` points, with a point within gap_m [m] of the chosen ones.

    Lost pixels and the object's own parts before it cut such pieces off, where it is seen obliquely above all.
    """
    member = np.flatnonzero(label >= 0)
    member = member[choice.small[label[member]]]
    member = member[np.bincount(label[member], minlength=len(choice.small))[label[member]] >= least]
    if len(member) == 0 or len(choice.chosen) == 0 or gap_m <= 0:
        return _NONE
    own = points[choice.chosen]
    near = ((points[member] > own.min(axis=0) - gap_m) & (points[member] < own.max(axis=0) + gap_m)).all(axis=1)
    piece = label[member]
    member = member[np.isin(piece, piece[near])]
    if len(member) == 0:
        return _NONE
    close = np.isfinite(cKDTree(own).query(points[member], distance_upper_bound=gap_m)[0])
    return member[np.isin(label[member], label[member][close])]


def _no_object(size: np.ndarray, settings: FinderSettings) -> str:
    largest = int(size.max()) if size.size else 0
    return (
        f"no object in view: the largest piece above the support plane has {largest} points, min_points is "
        f"{settings.min_points}"
    )


def _place(points: np.ndarray) -> str:
    return str(np.round(points.mean(axis=0), 3).tolist())
