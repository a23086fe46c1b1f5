"""Walls and boxes that the object may touch, as obstacles of the scene it is measured in."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import hypot
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.spatial.transform import Rotation

from soft_estimator.measuring.sightings import Progress, Sighting, spread
from soft_estimator.perception.faces import Face, find_faces, still_there
from soft_estimator.perception.scan_frames import Frame
from soft_estimator.perception.settings import FinderSettings
from soft_estimator.recordings.interface import Recording

_FRAMES, _MOST_LOOKS = 12, 150  # in which what stands about is looked for, and that may see through it
_REACH_M = 0.01  # beyond the object's width from what is seen of it: a face as near as this may be touched
_EDGE_M = 0.001  # radius of a box's edges
_JOINED_M = 0.012  # between the edges of two faces of one box
_SQUARE = 0.12  # |cosine| of the angle between two of them
_SLANTED = (0.3, 0.95)  # |n·up| of a face that is no side of a box on the table
_THIN_M = 0.03  # a box of which one face was seen is at least as thick
_BEHIND_M = 0.01  # points of the object behind a plane show that it ends there
_CALIBRATED_M = 0.0003  # what is left of a face's place if its plane is known exactly
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Obstacles as the scene's file says them, in its frame; how far off each may be [m]; and what is said of them."""

    obstacles: tuple[dict[str, Any], ...] = ()
    stds_m: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()


def standing_faces(recording: Recording, finder: FinderSettings, progress: Progress | None = None) -> list[Face]:
    """Flat faces above the table that no frame of a recording sees through."""
    if progress is not None:
        progress("looking at what stands about", 0, 1)
    some = [recording[k].cloud for k in spread(len(recording), _FRAMES)]
    found = find_faces([cloud for cloud in some if cloud is not None], finder)
    if not found:
        return []
    rest = (recording[k].cloud for k in spread(len(recording), _MOST_LOOKS))
    faces = still_there(found, (cloud for cloud in rest if cloud is not None), finder.noise)
    for face in faces:
        _log.info("a face of %.0f by %.0f mm stands there", *(1e3 * face.size_m))
    return faces


def surroundings_of(
    faces: list[Face], frame: Frame, width_m: float, sightings: list[Sighting], moving: list[int]
) -> Surroundings:
    """The faces that the object comes near to.

    Args:
        faces: that never move. frame: the scene's frame to the fixed one. width_m: the object's largest.
        moving: numbers of the sightings of its drops.
    """
    if not faces or not moving:
        return Surroundings()
    middles = np.array([sightings[k].middle_m for k in moving])
    seen = np.concatenate([sightings[k].points_m for k in moving])
    out: list[dict[str, Any]] = []
    notes, stds_m = list[str](), list[float]()
    for parts in _things(faces):
        gap = np.min([np.maximum(np.abs(f.plane.height_m(middles)), f.beyond_m(middles)) for f in parts], axis=0)
        nearest = int(np.argmin(gap))
        if gap[nearest] > width_m + _REACH_M:
            continue
        shapes, what = _shapes(parts, frame, seen, width_m)
        out += shapes
        off_m = [face.plane.height_std_m(middles[nearest]) for face in parts]
        # A wall is one face of its own; a box is as far off as the worst of its faces.
        stds_m += off_m if len(shapes) == len(parts) else [max(off_m)] * len(shapes)
        notes.append(f"{what} stands {1e3 * gap[nearest]:.0f} mm from the middle of what is seen of it")
    return Surroundings(tuple(out), tuple(hypot(_CALIBRATED_M, std_m) for std_m in stds_m), tuple(notes))


def _shapes(parts: list[Face], frame: Frame, seen: np.ndarray, width_m: float) -> tuple[list[dict[str, Any]], str]:
    """A thing as obstacles of a scene, none where it will not do, and what it is called."""
    if all(_is_wall(face, seen, width_m) for face in parts):
        return [_wall(face, frame) for face in parts], "a wall, which is an obstacle now,"
    if any(_SLANTED[0] < abs(face.plane.normal @ frame[0][:, 2]) < _SLANTED[1] for face in parts):
        return [], "something slanted that ends near it, which is left out,"
    shape, guessed = _box(parts, frame)
    unseen = f" ({guessed} unseen, and a guess)" if guessed else ""
    return [shape], f"a box{unseen}, which is an obstacle now,"


def _things(faces: list[Face]) -> list[list[Face]]:
    """Faces, those together that are square to each other and meet in an edge."""
    meet = [[_meet(one, other) or _meet(other, one) for other in faces] for one in faces]
    count, label = connected_components(np.array(meet), directed=False)
    return [[faces[k] for k in np.flatnonzero(label == thing)] for thing in range(count)]


def _meet(one: Face, other: Face) -> bool:
    """Whether two faces are square to each other and meet in an outer edge."""
    if abs(one.plane.normal @ other.plane.normal) > _SQUARE:
        return False
    within = (np.abs(one.plane.height_m(other.points_m)) < _JOINED_M) & (one.beyond_m(other.points_m) < _JOINED_M)
    # the other face goes back from this one's plane, not forward as in a corner of a room
    goes_back = float(np.median(one.plane.height_m(other.points_m))) < 0.0
    return bool(within.sum() >= 10) and goes_back


def _is_wall(face: Face, seen: np.ndarray, width_m: float) -> bool:
    """Whether the object never comes near to an edge of the face but the one on the table: it might as well have
    none."""
    height = face.plane.height_m(seen)
    if (height < -_BEHIND_M).mean() > 0.001:
        return False
    along = seen[height < width_m] @ face.axes.T
    if not len(along):
        return True
    low, high = along.min(axis=0), along.max(axis=0)
    first, last = (low > face.low_m) | face.leaves[:, 0], (high < face.high_m) | face.leaves[:, 1]
    return bool(first[0] and last[0] and last[1])


def _wall(face: Face, frame: Frame) -> dict[str, Any]:
    centre = face.points_m.mean(axis=0)
    through = centre - face.plane.height_m(centre) * face.plane.normal
    return {
        "plane": {"normal": _plain(face.plane.normal @ frame[0]), "through_m": _plain((through - frame[1]) @ frame[0])}
    }


def _box(faces: list[Face], frame: Frame) -> tuple[dict[str, Any], str]:
    """A box that stands on the table with these faces, and what of it is a guess."""
    up = frame[0][:, 2]
    upright = [face for face in faces if abs(face.plane.normal @ up) < 0.5]
    lying = [face for face in faces if abs(face.plane.normal @ up) >= 0.5]
    largest = max(upright or lying, key=lambda face: float(face.size_m.prod()))
    first = largest.plane.normal if upright else largest.axes[0]
    first = first - (first @ up) * up
    first = first / np.linalg.norm(first)
    turn = np.stack([first, np.cross(up, first), up], axis=1)
    points = (np.concatenate([face.points_m for face in faces]) - frame[1]) @ turn
    low, high = np.quantile(points, 0.002, axis=0), np.quantile(points, 0.998, axis=0)
    for face in faces:  # where a face lies is known better than where its outermost points do
        direction = turn.T @ face.plane.normal
        axis = int(np.argmax(np.abs(direction)))
        place = float(turn[:, axis] @ (face.points_m.mean(axis=0) - frame[1]))
        (high if direction[axis] > 0 else low)[axis] = place
    low[2] = min(0.0, low[2])
    guessed = ""
    if not lying and all(abs(face.plane.normal @ turn[:, 0]) > 0.5 for face in faces):
        low[0] = min(low[0], high[0] - max(_THIN_M, 0.5 * float(high[1] - low[1])))
        guessed = "depth"
    local = frame[0].T @ turn
    centre = local @ (0.5 * (low + high))
    return {
        "box": {
            "size_m": _plain(np.maximum(high - low, 4 * _EDGE_M)),
            "center_m": _plain(centre),
            "rotation_rad": _plain(Rotation.from_matrix(local).as_rotvec()),
        }
    }, guessed


def _plain(vector: np.ndarray) -> list[float]:
    return [round(float(x), 6) for x in vector]
