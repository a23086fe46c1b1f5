"""Flat faces of what stands beside the object and never moves: walls, boxes, shelves.

The object's own faces are flat, too, where it is a box. But it is lifted, dropped and moved: what no frame of a
recording sees through is there to stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import ndimage
from scipy.spatial import ConvexHull, QhullError, cKDTree

from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.fusion import depth_image_of
from soft_estimator.perception.objects import ObjectFinder, Why, voxel_pieces
from soft_estimator.perception.plane import PlaneFit, largest_plane
from soft_estimator.perception.settings import FinderSettings, NoiseSettings, PlaneSettings

# A point is seen through where a frame measures something this much farther along its ray, and so many deviations.
_THROUGH_M, _THROUGH_SIGMAS = 0.01, 6.0
_MOST_POINTS = 5_000  # of a frame that are looked at
_GAP_M = 0.012  # between the points of one thing
_CELL_M = 0.008  # of a face are looked at for whether it hangs together
_LEAST_POINTS, _LEAST_M = 150, 0.025  # that make a face, and its shorter side
_FILLED = 0.4  # least share of a face's rectangle that has points: the object hides some, the picture ends
_OF_THEIR_LIKE = 0.7  # least share of a thing's points in a picture that stay
_FLAT = 0.7  # least share of the points within _NEAR_M of a face that lie on it: a mug's side is no face
_NEAR_M = 0.012
_ROUGH_SIGMAS, _ROUGH_M = 1.5, 0.0005  # rms of a face's points off its plane: the side of a ball is no face
_ON_SIGMAS, _ON_M = 4.0, 0.0015  # how near to its plane points are a face's
_MOST_FACES = 6  # of one thing
_LEAST_SEEN, _SEEN_AGAIN = 3, 0.85  # pictures that show a point, and share of those in which nothing hid it
_SEEN_THROUGH = 0.05  # share of a face's points that a frame may see through, at its edges
_STRAYS = 0.005  # share of a face's points beyond its edges
# Points of the faces: how far before them, and how far beyond their edges, or from a point of the thing.
_OWN_M, _BESIDE_M = 0.002, 0.01
_THIN_M = 0.004  # edge of the cubes that a point of a thing stands for
_PAST_M, _BORDER_PX = 0.005, 4  # a face goes on where so much past its edge the picture ends
_UPRIGHT = 0.9  # |n·up| below which a face has an upper edge
_SEARCH = PlaneSettings(hypotheses=2000, min_share=0.05)


@dataclass(frozen=True, eq=False)
class Face:
    """A flat face, in the fixed frame.

    Attributes:
        plane: which it lies in, n away from the thing. axes: two unit directions in it, (2, 3), the second as upright
            as it can be. low_m, high_m: where it begins and ends along them [m], (2,) each: axes·x.
        points_m: points on it, (n, 3) [m].
        thing_m: points of the whole thing that it belongs to, edges and all, (m, 3) [m].
        leaves: at which of its edges it goes on beyond the picture, (2, 2) bool: low and high along each axis.
    """

    plane: PlaneFit
    axes: np.ndarray
    low_m: np.ndarray
    high_m: np.ndarray
    points_m: np.ndarray
    thing_m: np.ndarray
    leaves: np.ndarray = field(default_factory=lambda: np.zeros((2, 2), dtype=bool))

    @property
    def size_m(self) -> np.ndarray:
        """Lengths of its sides [m], (2,)."""
        return self.high_m - self.low_m

    def beyond_m(self, points_m: np.ndarray) -> np.ndarray:
        """How far points (n, 3) [m] lie beyond its edges, seen along its normal [m], (n,); negative within."""
        along = points_m @ self.axes.T
        return np.asarray(np.maximum(self.low_m - along, along - self.high_m).max(axis=1))


class Faces:
    """Faces, and the things they belong to, whose points are none of the object's."""

    def __init__(self, faces: Sequence[Face]) -> None:
        self.faces = tuple(faces)
        things = {id(face.thing_m): face.thing_m for face in faces}
        self._things = [cKDTree(_thinned(points)) for points in things.values()]

    def __reduce__(self) -> tuple[type[Faces], tuple[tuple[Face, ...]]]:
        return Faces, (self.faces,)  # the trees are grown again

    @property
    def any(self) -> bool:
        """Whether there are some."""
        return bool(self.faces)

    def owned(self, points_m: np.ndarray, std_m: np.ndarray, stamp_s: float) -> np.ndarray:
        """Which points (n, 3) [m] with deviations (n,) [m] lie on a face or its thing, (n,) bool."""
        out = np.zeros(len(points_m), dtype=bool)
        for face in self.faces:
            near = np.abs(face.plane.height_m(points_m)) < _OWN_M + _ON_SIGMAS * std_m
            out |= near & (face.beyond_m(points_m) < _BESIDE_M)
        for tree in self._things:
            about = ((points_m > tree.mins - _BESIDE_M) & (points_m < tree.maxes + _BESIDE_M)).all(axis=1) & ~out
            left = np.flatnonzero(about)
            out[left] = np.isfinite(tree.query(points_m[left], distance_upper_bound=_BESIDE_M)[0])
        return out


def find_faces(clouds: Sequence[Cloud], finder: FinderSettings) -> list[Face]:
    """Flat faces above the table that most of these clouds see, and none sees through, largest first.

    Args:
        clouds: of one recording, spread over it, in one fixed frame.
    """
    looks = [_Look(cloud, finder) for cloud in clouds if _measured(cloud) >= _LEAST_POINTS]
    tables = [look.table for look in looks if look.table is not None]
    if not tables:
        return []
    points, std = _staying(looks)
    up = np.median([table.normal for table in tables], axis=0)
    faces = [
        face
        for piece in _pieces(points)
        for face in _faces_of(replace(clouds[0], points_m=points[piece], colour=None), std[piece], up, finder.noise)
    ]
    faces = [replace(face, leaves=_leaving(face, looks)) for face in faces]
    return sorted(faces, key=lambda face: -float(face.size_m.prod()))


def still_there(faces: Sequence[Face], clouds: Iterable[Cloud], noise: NoiseSettings) -> list[Face]:
    """The faces that most of the clouds see, and none sees through."""
    left = {k: _Tally(face.points_m) for k, face in enumerate(faces)}
    for cloud in clouds:
        if left and _measured(cloud) >= _LEAST_POINTS:
            image = _Image(cloud, np.isfinite(cloud.flat_m).all(axis=1), noise)
            left = {k: tally for k, tally in left.items() if tally.add(image).mean() <= _SEEN_THROUGH}
    return [faces[k] for k, tally in left.items() if tally.seen_again().mean() > 0.5]


def seen_through(points_m: np.ndarray, cloud: Cloud, noise: NoiseSettings) -> np.ndarray:
    """Which points (n, 3) [m] a cloud measures something behind, (n,) bool."""
    if _measured(cloud) < _LEAST_POINTS:
        return np.zeros(len(points_m), dtype=bool)
    return _Image(cloud, np.isfinite(cloud.flat_m).all(axis=1), noise).look_for(points_m)[0]


class _Image:
    """The nearest that a camera measured about every pixel."""

    def __init__(self, cloud: Cloud, used: np.ndarray, noise: NoiseSettings) -> None:
        self.cloud, self.noise = cloud, noise
        depth, self.lens, _ = depth_image_of(cloud, used, noise)
        # of the pixels about, so that nobody sees past an edge by half a pixel
        nearest = ndimage.minimum_filter(np.where(depth > 0, depth, np.inf), 3, mode="nearest")
        self.nearest_m = np.where(depth > 0, nearest, 0.0)

    def pixels(self, points_m: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Column and row (n,) that points (n, 3) [m] are seen in, -1 for those behind the camera; their depths (n,)."""
        local = (points_m - self.cloud.sensor_m) @ self.cloud.rotation
        before = local[:, 2] > 1e-6
        z = np.where(before, local[:, 2], 1.0)
        x, y = self.lens.distort(local[:, 0] / z, local[:, 1] / z)
        u = np.rint(self.lens.fx_px * x + self.lens.cx_px).clip(-1, 1e9)
        v = np.rint(self.lens.fy_px * y + self.lens.cy_px).clip(-1, 1e9)
        return np.where(before, u, -1).astype(np.int64), np.where(before, v, -1).astype(np.int64), z

    def inside(self, u: np.ndarray, v: np.ndarray, border_px: int = 0) -> np.ndarray:
        """Which pixels lie in the picture, and not on a border of so many pixels, (n,) bool."""
        height, width = self.nearest_m.shape
        return (u >= border_px) & (u < width - border_px) & (v >= border_px) & (v < height - border_px)

    def look_for(self, points_m: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which points (n, 3) [m] something was measured behind, which were seen there, and which something hides, (n,)
        bool each; where nothing was measured, none of these."""
        u, v, z = self.pixels(points_m)
        inside = self.inside(u, v)
        seen = np.where(inside, self.nearest_m[np.where(inside, v, 0), np.where(inside, u, 0)], 0.0)
        off = _THROUGH_M + _THROUGH_SIGMAS * _std_m(self.noise, z)
        through, hidden = seen > z + off, (seen > 0) & (seen < z - off)
        return through, (seen > 0) & ~through & ~hidden, hidden


class _Tally:
    """How often points (n, 3) [m] were seen, and not hidden."""

    def __init__(self, points_m: np.ndarray) -> None:
        self.points_m = points_m
        self.seen, self.due = np.zeros(len(points_m)), np.zeros(len(points_m))

    def add(self, image: _Image) -> np.ndarray:
        """Count a picture; which points it sees through, (n,) bool."""
        through, there, hidden = image.look_for(self.points_m)
        self.seen, self.due = self.seen + there, self.due + ~hidden
        return through

    def seen_again(self) -> np.ndarray:
        """Which points were seen in most of the pictures in which nothing hid them, and in three at least, (n,) bool:
        what comes and goes before a background that is too far to be measured is never seen through."""
        return np.asarray((self.seen >= _LEAST_SEEN) & (self.seen > _SEEN_AGAIN * self.due))


class _Look:
    """A cloud with its table found, and its points above that."""

    def __init__(self, cloud: Cloud, finder: FinderSettings) -> None:
        found = ObjectFinder(finder).process(cloud)
        why = found.why.ravel()
        self.table = found.plane
        above = np.flatnonzero(np.isin(why, (Why.KEPT, Why.OTHER_PIECE, Why.BEYOND_TRACK)))
        above = above[:: max(1, len(above) // _MOST_POINTS)]
        self.points_m = cloud.flat_m[above]
        self.std_m = _std_m(finder.noise, (self.points_m - cloud.sensor_m) @ cloud.axis)
        used = np.isfinite(cloud.flat_m).all(axis=1) & (why != Why.FLYING)
        self.image = _Image(cloud, used, finder.noise)


def _thinned(points: np.ndarray) -> np.ndarray:
    """One point of every little cube that has some."""
    _, first = np.unique(np.floor(points / _THIN_M).astype(np.int64), axis=0, return_index=True)
    return points[first]


def _measured(cloud: Cloud) -> int:
    return int(np.isfinite(cloud.flat_m).all(axis=1).sum())


def _std_m(noise: NoiseSettings, depth_m: np.ndarray) -> np.ndarray:
    return np.asarray(noise.floor_m + noise.per_m * depth_m**2)


def _staying(looks: list[_Look]) -> tuple[np.ndarray, np.ndarray]:
    """Points above the table that no look sees through (n, 3) [m], and their deviations (n,) [m]."""
    points, std = [], []
    for look in looks:
        if look.table is None or not len(look.points_m):
            continue
        tally = _Tally(look.points_m)
        stays = ~np.any([tally.add(other.image) for other in looks], axis=0) & tally.seen_again()
        stays &= _with_their_like(look.points_m, stays)
        points.append(look.points_m[stays])
        std.append(look.std_m[stays])
    return (np.concatenate(points), np.concatenate(std)) if points else (np.empty((0, 3)), np.empty(0))


def _with_their_like(points: np.ndarray, stays: np.ndarray) -> np.ndarray:
    """Which points (n,) belong to a piece of their picture that stays for the most part: where the top of an object is
    that is lifted straight up nothing farther off is seen, but it hangs together with sides that go."""
    out = np.zeros(len(points), dtype=bool)
    for piece in _pieces(points, 1):
        out[piece] = stays[piece].mean() > _OF_THEIR_LIKE
    return out


def _pieces(points: np.ndarray, least: int = _LEAST_POINTS) -> list[np.ndarray]:
    """Numbers of the points of every thing that has so many of them."""
    if len(points) < least:
        return []
    label, count = voxel_pieces(points, _GAP_M, 4, 0.05)
    size = np.bincount(label[label >= 0], minlength=count)
    return [np.flatnonzero(label == piece) for piece in np.flatnonzero(size >= least)]


def _faces_of(cloud: Cloud, std: np.ndarray, up: np.ndarray, noise: NoiseSettings) -> list[Face]:
    """The faces of one thing."""
    taken, faces, points = np.zeros(cloud.size, dtype=np.uint8), [], cloud.flat_m
    for _ in range(_MOST_FACES):
        if not (taken == 0).any() or (fit := largest_plane(cloud, _SEARCH, noise, taken, std)) is None:
            break
        near = np.abs(fit.height_m(points)) < _ON_M + _ON_SIGMAS * std
        on = np.flatnonzero(near & (taken == 0))
        if len(on) < _LEAST_POINTS or fit.share < _SEARCH.min_share:
            break
        face = _face(fit, points, std, on, up)
        if face is not None:
            faces.append(face)
        taken[on] = 1
    return faces


def _face(plane: PlaneFit, points: np.ndarray, std: np.ndarray, on: np.ndarray, up: np.ndarray) -> Face | None:
    """The largest part of the points in a plane that hangs together; None where it is no face."""
    axes = _axes(plane.normal, up, points[on])
    along = points[on] @ axes.T
    cell = np.floor((along - along.min(axis=0)) / _CELL_M).astype(np.int64)
    filled = np.zeros(cell.max(axis=0) + 1, dtype=bool)
    filled[tuple(cell.T)] = True
    label, _ = ndimage.label(filled, np.ones((3, 3)))
    own_label = label[tuple(cell.T)]
    own = own_label == int(np.argmax(np.bincount(own_label)))
    low, high = np.quantile(along[own], (_STRAYS, 1.0 - _STRAYS), axis=0)
    face = Face(plane, axes, low, high, points[on[own]], points)
    cells = np.ceil(face.size_m / _CELL_M).prod()
    flat = np.abs(plane.height_m(points)) < _NEAR_M
    flat &= face.beyond_m(points) < 0.0
    if face.size_m.min() < _LEAST_M or own.sum() < _LEAST_POINTS:
        return None
    if len(np.unique(cell[own], axis=0)) < _FILLED * cells or own.sum() < _FLAT * flat.sum():
        return None
    rough = float(np.sqrt(np.mean(plane.height_m(face.points_m) ** 2)))
    if rough > _ROUGH_SIGMAS * float(np.median(std[on[own]])) + _ROUGH_M:
        return None
    return face


def _leaving(face: Face, looks: list[_Look]) -> np.ndarray:
    """At which of its edges the face goes on beyond the picture of every look, (2, 2) bool."""
    middle = 0.5 * (face.low_m + face.high_m)
    foot = -face.plane.offset_m * face.plane.normal
    out = np.zeros((2, 2), dtype=bool)
    for axis in range(2):
        for end, edge in enumerate((face.low_m[axis] - _PAST_M, face.high_m[axis] + _PAST_M)):
            at = middle.copy()
            at[axis] = edge
            past = (foot + at @ face.axes)[None]
            out[axis, end] = not any(look.image.inside(*look.image.pixels(past)[:2], _BORDER_PX)[0] for look in looks)
    return out


def _axes(normal: np.ndarray, up: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Directions of a face's sides (2, 3): the second upright; of one that lies, those of the least rectangle about its
    points."""
    if abs(normal @ up) < _UPRIGHT:
        second = up - (up @ normal) * normal
        second = second / np.linalg.norm(second)
        return np.stack([np.cross(second, normal), second])
    first = np.cross(normal, np.eye(3)[int(np.argmin(np.abs(normal)))])
    axes = np.stack([first / np.linalg.norm(first), np.cross(normal, first / np.linalg.norm(first))])
    flat = points @ axes.T
    try:
        hull = flat[ConvexHull(flat).vertices]
    except QhullError:
        return axes
    side = np.diff(hull, axis=0, append=hull[:1])
    turns = np.arctan2(side[:, 1], side[:, 0])
    turned = np.stack([np.stack([np.cos(turns), np.sin(turns)], 1), np.stack([-np.sin(turns), np.cos(turns)], 1)], 1)
    area = np.ptp(np.einsum("tij,pj->tpi", turned, hull), axis=1).prod(axis=1)
    return np.asarray(turned[int(np.argmin(area))] @ axes)
