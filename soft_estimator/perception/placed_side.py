"""One still part of a recording, a side of the object as one camera saw it, and its pose among the other parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import cKDTree

from soft_estimator.perception.fusion import Bend, View
from soft_estimator.perception.scan_frames import ScanData

_PLACE, _AROUND = 0.5, 1.5  # voxels: how far apart places on the surface are, and what their normals are fitted to
_LEAST_POINTS = 3  # of a place
_LEAST_FACING = 0.3  # cosine between a place's normal and the ray to it
NOWHERE = (np.eye(3), np.zeros(3))  # the pose of a part in its own frame


@dataclass(frozen=True, eq=False)
class Placed:
    """A part and its pose in the frame of the first one: x_first = rotation · x + translation; places on its surface
    (n, 3) [m] and normals there (n, 3), in its own frame; how the object was bent there, in the frame of the first."""

    data: ScanData
    places: np.ndarray
    normals: np.ndarray
    rotation: np.ndarray
    translation_m: np.ndarray
    bend: Bend | None = None

    def at(self, rotation: np.ndarray, translation_m: np.ndarray) -> Placed:
        """The same part elsewhere."""
        return replace(self, rotation=rotation, translation_m=translation_m)

    def bent(self, bend: Bend | None) -> Placed:
        """The same part, with the object bent so in it: its places are those of the object at rest."""
        straight = replace(self, bend=bend)
        return replace(straight, places=(straight.at_rest_m(self.places) - self.translation_m) @ self.rotation)

    def at_rest_m(self, points_m: np.ndarray) -> np.ndarray:
        """Where points of the part (n, 3) [m] are on the object at rest, in the frame of the first, (n, 3) [m]."""
        there = points_m @ self.rotation.T + self.translation_m
        return there if self.bend is None else self.bend.back(there)


def table_of(one: Placed) -> np.ndarray:
    """The table of a part (n, d) in the frame of the first."""
    up = one.rotation[:, 2]
    return np.append(up, -up @ one.translation_m)


def moved_views(one: Placed, first: ScanData) -> list[View]:
    """The views of a part in the frame of the first; its table is no surface there."""
    return [view.of_body() for view in seen_by(one, first)]


def seen_by(one: Placed, first: ScanData) -> list[View]:
    """The views of a part as if its camera had moved and the first part stayed."""
    turn = first.frame[0] @ one.rotation @ one.data.frame[0].T
    shift = first.frame[0] @ one.translation_m + first.frame[1] - turn @ one.data.frame[1]
    return [replace(view.seen_from(turn, shift), bend=one.bend) for view in one.data.views]


def surface_of(data: ScanData) -> tuple[np.ndarray, np.ndarray]:
    """Places on the surface that a part saw, (n, 3) [m], and normals there, (n, 3), where it did not graze it.

    Means of the points themselves, of all frames: the fused field bends outwards along the rim of what was seen, by
    half a voxel, and poses that are fitted to it come out 2 to 6 mm off.
    """
    cell = np.unique(np.floor(data.local_m / (_PLACE * data.voxel_m)).astype(np.int64), axis=0, return_inverse=True)[1]
    count = np.bincount(cell.ravel())
    mean = np.stack([np.bincount(cell.ravel(), weights=x) for x in data.local_m.T], axis=1) / count[:, None]
    mean = mean[count >= _LEAST_POINTS]
    tree = cKDTree(data.local_m)
    near = tree.query_ball_point(mean, _AROUND * data.voxel_m)
    sensor = (data.frames[0][0].sensor_m - data.frame[1]) @ data.frame[0]
    out, normals = [], []
    for place, rows in zip(mean, near):
        points = data.local_m[rows] - data.local_m[rows].mean(axis=0)
        normal = np.linalg.eigh(points.T @ points)[1][:, 0]
        ray = (sensor - place) / np.linalg.norm(sensor - place)
        facing = float(normal @ ray)
        if abs(facing) > _LEAST_FACING:
            out.append(place)
            normals.append(normal if facing > 0 else -normal)
    if not out:
        raise ValueError("a still part shows no surface; look at it from nearer")
    return np.array(out), np.array(normals)
