"""Flat faces that stand about an object, learnt while frames come: they never move, and no frame sees through them.

What `measure` finds in a whole recording (`faces`), as far as it can be known by now: what stands there is none of the
object, and a reader is told where the object comes near to something that nobody has told the estimator of.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, sqrt

import numpy as np

from soft_estimator.geometry.extent import widest_m
from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.faces import Face, Faces, find_faces, seen_through
from soft_estimator.perception.objects import KnownThings, NothingFound, ObjectPoints, Why
from soft_estimator.perception.settings import FinderSettings

_LOOKS = 8  # that faces are searched in
_EVERY_S, _LONGEST_S = 0.12, 4.0  # between the first of them; twice as long after every search, up to that
_MOST_PIXELS = 40_000  # of a look
_CLUTTER = 150  # points beside the object, and no table, that are worth a search
_WIDER = 1.3  # times the object's width: a thing that is no wider may be the object itself, at rest
_THROUGH = 0.05  # share of a face's points that a frame may see through, at its edges
_NEAR = 0.9  # times its width from the middle of what is seen of the object: its far side may touch a face


class StandingFaces:
    """What stands about, beside the things that are known.

    Args:
        finder: how the object is found. width_m: its largest width. known: things of the scene, led or at rest.
    Attributes:
        faces: found by now.
    """

    def __init__(self, finder: FinderSettings, width_m: float, known: KnownThings | None = None) -> None:
        self.finder, self.width_m, self.known = finder, width_m, known
        self.faces: tuple[Face, ...] = ()
        self._own = Faces(())
        self._looks: list[Cloud] = []
        self._cluttered = 0  # of the looks
        self._every_s, self._next_s = _EVERY_S, -np.inf
        self._last_s = -np.inf

    @property
    def any(self) -> bool:
        """Whether there is anything."""
        return bool(self.faces) or (self.known is not None and self.known.any)

    def owned(self, points_m: np.ndarray, std_m: np.ndarray, stamp_s: float) -> np.ndarray:
        """Which points (n, 3) [m] with deviations (n,) [m] are of a known thing or a face at a stamp [s], (n,) bool."""
        out = self._own.owned(points_m, std_m, stamp_s)
        return out if self.known is None else out | self.known.owned(points_m, std_m, stamp_s)

    def look(self, cloud: Cloud, found: ObjectPoints | NothingFound, stamp_s: float) -> bool:
        """Take in a frame and what was found in it; whether the object is to be looked for anew, without what is known
        of other things now.

        Only what an optical camera saw tells that it is seen through: of other clouds no face is learnt.
        """
        if stamp_s < self._last_s:  # played again
            self._next_s = stamp_s
        self._last_s = stamp_s
        if not stamp_s >= self._next_s or abs(cloud.axis @ cloud.rotation[:, 2] - 1) > 1e-6:
            return False
        self._next_s = stamp_s + self._every_s
        seen = _small(cloud, found.why == Why.TOOL)
        before, self.faces = self.faces, self._still(seen)
        self._looks.append(seen)
        self._cluttered += self._is_cluttered(found)
        if len(self._looks) >= _LOOKS:
            self._search()
        if self.faces == before:
            return False
        self._own = Faces(self.faces)
        return len(self.faces) != len(before)

    def beside(self, points_m: np.ndarray) -> str:
        """What a reader is told where the object, seen at points (n, 3) [m], may touch a face soon; "" where it is
        far."""
        middle = points_m.mean(axis=0)[None]
        for face in self.faces:
            apart_m = float(max(abs(face.plane.height_m(middle)[0]), face.beyond_m(middle)[0]))
            if apart_m < _NEAR * self.width_m:
                size = " by ".join(f"{1e3 * side:.0f}" for side in face.size_m)
                return (
                    f"the middle of what is seen of the object is {1e3 * apart_m:.0f} mm from a flat face of {size} mm "
                    "that stands there and is no obstacle of the scene; if it touches it, `measure` a recording with "
                    "it, or add it to `obstacles`"
                )
        return ""

    def _is_cluttered(self, found: ObjectPoints | NothingFound) -> bool:
        """Whether a frame shows more than a table and the object."""
        others = np.isin(found.why, (Why.OTHER_PIECE, Why.BEYOND_TRACK)).sum()
        wide = isinstance(found, ObjectPoints) and widest_m(found.points_m, 0.01) > _WIDER * self.width_m
        return bool(others >= _CLUTTER or wide)

    def _still(self, seen: Cloud) -> tuple[Face, ...]:
        """The faces that a look does not see through, without what it sees through of the things they are of."""
        things = {id(face.thing_m): face.thing_m for face in self.faces}
        left = {}
        for key, points in things.items():
            through = seen_through(points, seen, self.finder.noise)
            left[key] = points[~through] if through.any() else points
        stay = (f for f in self.faces if seen_through(f.points_m, seen, self.finder.noise).mean() <= _THROUGH)
        return tuple(
            face if left[id(face.thing_m)] is face.thing_m else replace(face, thing_m=left[id(face.thing_m)])
            for face in stay
        )

    def _search(self) -> None:
        """Look for faces in what was kept; every other look stays for the next search, which waits twice as long."""
        if 2 * self._cluttered >= len(self._looks):
            found = find_faces(self._looks, self.finder)
            wide = {id(face.thing_m): widest_m(face.thing_m, 0.01) > _WIDER * self.width_m for face in found}
            self.faces = (*self.faces, *(face for face in found if wide[id(face.thing_m)]))
        self._looks, self._cluttered = self._looks[1::2], self._cluttered // 2
        self._every_s = min(2.0 * self._every_s, _LONGEST_S)


def _small(cloud: Cloud, taken: np.ndarray) -> Cloud:
    """A cloud of fewer points, without those that are somebody's already, (h, w) or (n,) bool."""
    points, every = cloud.points_m, max(1, ceil(cloud.size / _MOST_PIXELS))
    step = (slice(None, None, ceil(sqrt(every))),) * 2 if cloud.organised else (slice(None, None, every),)
    points = np.where(taken[step][..., None], np.nan, points[step])
    return replace(cloud, points_m=points, colour=None, lens=None)
