"""The tree of frames that a recording's transform messages describe, at any time within it."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

from soft_estimator.geometry.pose_path import PosePath
from soft_estimator.recordings.messages import seconds_of
from soft_estimator.schema.section import printable, shown

MOST_FRAMES = 1000  # of a tree; a robot has dozens, and each is walked through for every cloud
MOST_BEYOND_S = 0.1  # so long before the first and after the last transform, that one still counts


def rotation_of(quaternion: Any, what: str) -> np.ndarray:
    """(3, 3) of a quaternion (x, y, z, w), of unit length within a percent."""
    x, y, z, w = _unit(quaternion, what)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def slerp(a: np.ndarray, b: np.ndarray, share: float) -> np.ndarray:
    """Unit quaternion (4,) at this share of the shortest turn from a to b, at constant speed."""
    cosine = float(a @ b)
    if cosine < 0:  # q and -q are the same rotation
        b, cosine = -b, -cosine
    angle = np.arccos(min(cosine, 1.0))
    if angle < 1e-6:  # sin(angle) cancels; the straight way is the arc to rounding
        mixed = (1 - share) * a + share * b
    else:
        mixed = (np.sin((1 - share) * angle) * a + np.sin(share * angle) * b) / np.sin(angle)
    return mixed / np.linalg.norm(mixed)


class _Link:
    """A frame in its parent over time: stamps [s] in order, positions (3,) [m] and quaternions (4,)."""

    def __init__(self, parent: str) -> None:
        self.parent, self.static = parent, False
        self.times_s: list[float] = []
        self.places: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, time_s: float, position_m: np.ndarray, quaternion: np.ndarray, static: bool) -> None:
        if static or self.static:  # the newest static one replaces all before
            self.static, self.times_s, self.places = True, [time_s], [(position_m, quaternion)]
            return
        at = bisect_left(self.times_s, time_s)
        if at < len(self.times_s) and self.times_s[at] == time_s:
            self.places[at] = (position_m, quaternion)
        else:
            self.times_s.insert(at, time_s)
            self.places.insert(at, (position_m, quaternion))

    def matrix(self, time_s: float | None, child: str) -> np.ndarray:
        """(4, 4) from the frame to its parent."""
        position, quaternion = self._place(time_s, child)
        matrix = np.eye(4)
        matrix[:3, :3], matrix[:3, 3] = rotation_of(quaternion, f"transform of {printable(child)}"), position
        return matrix

    def _place(self, time_s: float | None, child: str) -> tuple[np.ndarray, np.ndarray]:
        if self.static or time_s is None:
            return self.places[-1]
        first, last = self.times_s[0], self.times_s[-1]
        beyond = max(first - time_s, time_s - last)
        if beyond > MOST_BEYOND_S:
            raise ValueError(
                f"the cloud's stamp {time_s:.3f} s lies {beyond:.3f} s outside the transforms from {shown(child)} to "
                f"{shown(self.parent)}, which cover {first:.3f} to {last:.3f} s; record /tf all the while, or name "
                "another fixed frame"
            )
        after = min(max(bisect_left(self.times_s, time_s), 1), len(self.times_s) - 1)
        if len(self.times_s) == 1 or beyond >= 0:
            return self.places[0] if time_s <= first else self.places[-1]
        (position_a, turn_a), (position_b, turn_b) = self.places[after - 1], self.places[after]
        share = (time_s - self.times_s[after - 1]) / (self.times_s[after] - self.times_s[after - 1])
        return (1 - share) * position_a + share * position_b, slerp(turn_a, turn_b, share)


class TransformTree:
    """Every frame's transform to its parent, over time; static ones hold at any time."""

    def __init__(self) -> None:
        self.parents: dict[str, _Link] = {}

    def add(self, message: Any, static: bool = False) -> None:
        """Take in a TFMessage, from /tf or (static) /tf_static."""
        for entry in message.transforms:
            child, parent = entry.child_frame_id.lstrip("/"), entry.header.frame_id.lstrip("/")
            link = self.parents.get(child)
            if link is None and len(self.parents) >= MOST_FRAMES:
                raise ValueError(f"the transforms name over {MOST_FRAMES} frames; record the robot's and camera's only")
            if link is None or link.parent != parent:
                link = self.parents[child] = _Link(parent)
            r, t, stamp = entry.transform.rotation, entry.transform.translation, entry.header.stamp
            quaternion = _unit((r.x, r.y, r.z, r.w), f"transform of {printable(child)}")
            link.add(seconds_of(stamp), np.array([t.x, t.y, t.z]), quaternion, static)

    def root(self, frame: str) -> str:
        """The frame's farthest ancestor, itself if it has none."""
        frame, met = frame.lstrip("/"), set()
        while frame in self.parents and frame not in met:
            met.add(frame)
            frame = self.parents[frame].parent
        return frame

    def pose(self, frame: str, fixed: str, time_s: float | None = None) -> np.ndarray:
        """(4, 4) from a frame to the fixed frame, up to their common ancestor and down again.

        time_s: when [s]; between two stamps positions run straight and rotations at constant speed. The newest
        transforms are taken without it.
        """
        frame, fixed = frame.lstrip("/"), fixed.lstrip("/")
        up, down = self._to_root(frame), self._to_root(fixed)
        for ancestor in up:
            if ancestor in down:
                there = self._along(up, ancestor, time_s)
                return np.linalg.inv(self._along(down, ancestor, time_s)) @ there
        names = sorted({*self.parents, *(link.parent for link in self.parents.values())})
        raise ValueError(
            f"the bag's transforms do not lead from {shown(frame)} to {shown(fixed)}; known frames: "
            f"{printable(', '.join(names)) or 'none'}"
        )

    def path(self, frame: str, fixed: str) -> tuple[PosePath, bool]:
        """All poses of a frame in the fixed frame, at every stamp of a transform between them; and whether it rests
        there, so that its one pose holds at any time."""
        frame, fixed = frame.lstrip("/"), fixed.lstrip("/")
        self.pose(frame, fixed)  # says why where there is no way
        up, down = self._to_root(frame), self._to_root(fixed)
        shared = next(name for name in up if name in down)
        chain = [self.parents[name] for part in (up, down) for name in part[: part.index(shared)]]
        moving = [link.times_s for link in chain if not link.static]
        if not moving:
            times = np.zeros(1)
        else:
            times = np.unique(np.concatenate(moving))
            first, last = max(t[0] for t in moving), min(t[-1] for t in moving)
            times = times[(times >= first) & (times <= last)]
            if len(times) == 0:
                raise ValueError(
                    f"the transforms from {shown(frame)} to {shown(fixed)} have no time in common; record all of /tf"
                )
        poses = np.array([self.pose(frame, fixed, float(t)) for t in times])
        return PosePath(times, poses[:, :3, :3], poses[:, :3, 3]), not moving

    def _to_root(self, frame: str) -> list[str]:
        chain = [frame]
        while frame in self.parents and self.parents[frame].parent not in chain:
            frame = self.parents[frame].parent
            chain.append(frame)
        return chain

    def _along(self, chain: list[str], end: str, time_s: float | None) -> np.ndarray:
        matrix = np.eye(4)
        for frame in chain[: chain.index(end)]:
            matrix = self.parents[frame].matrix(time_s, frame) @ matrix
        return matrix


def _unit(quaternion: Any, what: str) -> np.ndarray:
    q = np.asarray(quaternion, dtype=np.float64)
    length = float(np.linalg.norm(q))
    if q.shape != (4,) or not abs(length - 1) < 0.01:
        raise ValueError(f"{what} has the quaternion {q.tolist()}; give x, y, z, w of unit length")
    return q / length
