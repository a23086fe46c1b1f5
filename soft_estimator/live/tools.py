"""The obstacles of a scene as a live estimator knows them: led by stamps, seen by a camera, drawn by a viewer.

A tool's poses come from tf (`tool_frame`), from a robot's log (`path_file` with `path_clock: stamps`), or from the
scene itself, whose start is then the first frame's stamp. A gripper is two tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.config import SceneConfig
from soft_estimator.geometry.live_path import LivePath
from soft_estimator.geometry.pose_path import PosePath
from soft_estimator.physics.model import Model
from soft_estimator.physics.solids import SolidLaw
from soft_estimator.recordings.interface import Recording
from soft_estimator.scene.obstacles import SceneObstacle
from soft_estimator.scene.scene import Scene

_OWN_SIGMAS = 4.0  # a point so many of its deviations off a tool is still the tool's

# Stamps that go back, or on, by more than that [s] are those of another repetition.
_BACK_S, _PAUSE_S = 0.2, 1.0

Pose = tuple[float, np.ndarray, np.ndarray]  # stamp [s], Q (3, 3) and b (3,) [m] of x ↦ Q x + b


@dataclass(frozen=True, eq=False)
class Tool:
    """An obstacle.

    Attributes:
        key: its place in the scene. frame: of tf, "" for one that tf does not lead.
        place: its solid, led by `path`; None for one that rests. own_m: how near to it points are its own [m].
        vertices_m, faces: its surface in the solid's frame.
    """

    key: str
    frame: str
    place: SolidLaw
    path: LivePath | None
    own_m: float
    vertices_m: np.ndarray
    faces: np.ndarray

    def pose_at(self, stamp_s: float, foretold: bool = False) -> tuple[np.ndarray, np.ndarray] | None:
        """The solid's frame in the world at a stamp, Q (3, 3) and b (3,) [m]; None where nobody knows it.

        foretold: beyond the newest pose where a simulation takes it to be.
        """
        if self.path is None:
            return self.place.rotation, self.place.centre_m
        if not self.path.stamps_s if foretold else self.path.lacks(stamp_s):
            return None
        turn, shift = self.path.at_stamp(stamp_s)
        return turn @ self.place.rotation, turn @ self.place.centre_m + shift


class Tools:
    """All obstacles of a scene, with paths of their own: two estimators of one scene do not lead each other's.

    Args:
        config: of the scene. obstacles: made of it. model: of the scene, None where nobody simulates.
    Attributes:
        model: the same with these paths. began_s: stamp of the scene's time 0 [s], which the paths that the scene leads
            count from; None where nobody knows it yet, or none counts from there.
    """

    def __init__(self, config: SceneConfig, obstacles: Sequence[SceneObstacle], model: Model | None = None) -> None:
        self._from_start: list[tuple[LivePath, PosePath]] = []  # paths that count from the scene's start
        self._told_s: float | None = None
        self.began_s: float | None = None
        self._pinned = False  # a recording says when the scene began
        tools, laws = [], []
        for k, (obstacle, told) in enumerate(zip(obstacles, config.obstacles)):
            key, led = f"obstacles[{k}]", obstacle.place.path
            path: LivePath | None = None
            if isinstance(led, LivePath):
                path = LivePath(led.name, led.longest_gap_s if obstacle.log is None else np.inf)
                if obstacle.log is not None:
                    path.extend(_poses(obstacle.log))
            elif isinstance(led, PosePath):
                path = LivePath(f"{key}.path_file" if told.path_file else f"{key}.path", np.inf, bool(told.path))
                self._from_start.append((path, led))
            place = replace(obstacle.place, path=path)
            laws.append(replace(obstacle.law, obstacle=place))
            frame = (told.tool_frame or "").lstrip("/")
            tools.append(Tool(key, frame, place, path, told.own_points_m, obstacle.vertices_m, obstacle.faces))
        self.tools = tuple(tools)
        self.model = model if model is None or not laws else replace(model, obstacles=tuple(laws))

    @property
    def frames(self) -> list[str]:
        """The frames of tf that lead tools, each once."""
        return list(dict.fromkeys(tool.frame for tool in self.tools if tool.frame))

    def begin(self, stamp_s: float) -> None:
        """Told every frame's stamp [s]: the first is the scene's time 0, and the first after a jump in time, where a
        live scene is played again."""
        last_s, self._told_s = self._told_s, stamp_s
        goes_on = -_BACK_S <= stamp_s - last_s <= _PAUSE_S if last_s is not None else False
        if self._pinned or goes_on or not np.isfinite(stamp_s):
            return
        self.begin_at(stamp_s)

    def begin_at(self, stamp_s: float) -> None:
        """Told by somebody who knows it: the stamp of the scene's time 0 [s]."""
        if not self._from_start or stamp_s == self.began_s:
            return
        self.began_s = stamp_s
        for path, led in self._from_start:
            path.clear()
            path.extend(_poses(led, stamp_s))

    def add_poses(self, frame: str, poses: Iterable[Pose], rests: bool = False) -> None:
        """Take in poses of a frame of tf in the world; rests: it stays where it is before and after them."""
        found = list(poses)
        for tool in self.tools:
            if tool.frame == frame.lstrip("/") and tool.path is not None:
                tool.path.rests = rests
                tool.path.extend(found)

    def read(self, recording: Recording) -> None:
        """Take in what a recording holds of the tools: the stamp of its first frame, and the poses of its
        transforms."""
        if self._from_start and np.isfinite(start_s := recording.start_s):
            self.begin(start_s)
            self._pinned = True
        for frame in self.frames:
            path, rests = recording.path_of(frame)
            self.add_poses(frame, _poses(path), rests)

    def newest_s(self, frame: str) -> float:
        """Stamp of the newest pose of a frame of tf [s]; -inf without one."""
        known = [tool.path for tool in self.tools if tool.frame == frame and tool.path is not None]
        return max((path.stamps_s[-1] for path in known if path.stamps_s), default=-np.inf)

    def forget_before(self, stamp_s: float) -> None:
        """Let go of poses from tf that are older than a stamp [s]."""
        for tool in self.tools:
            if tool.frame and tool.path is not None:
                tool.path.forget_before(stamp_s)

    @property
    def any(self) -> bool:
        """Whether there are some."""
        return bool(self.tools)

    def owned(self, points_m: np.ndarray, std_m: np.ndarray, stamp_s: float) -> np.ndarray:
        """Which points (n, 3) [m] with deviations (n,) [m] lie on or in a tool at a stamp [s], (n,) bool."""
        owned = np.zeros(len(points_m), dtype=bool)
        for tool in self.tools:
            pose = tool.pose_at(stamp_s)
            if pose is not None:
                distance = tool.place.solid.distance(np, (points_m - pose[1]) @ pose[0])
                owned |= np.asarray(distance) < tool.own_m + _OWN_SIGMAS * std_m
        return owned

    def meshes(self, stamp_s: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """What to draw at a stamp [s]: vertices (V, 3) [m] in the world and faces (T, 3) of each that has a pose, by
        its place in the scene and its frame."""
        placed = [(tool, tool.pose_at(stamp_s, foretold=True)) for tool in self.tools]
        return {
            f"{tool.key} {tool.frame}".strip(): (tool.vertices_m @ pose[0].T + pose[1], tool.faces)
            for tool, pose in placed
            if pose is not None
        }

    @property
    def made_once(self) -> dict[str, object]:
        """What the scene makes, by name; recorded poses are read again by whoever goes on."""
        paths = {f"path of {tool.key}": tool.path for tool in self.tools if tool.path is not None}
        return {"tools": self, **({} if self.model is None else {"model with tools": self.model}), **paths}


def tools_of(scene: Scene) -> Tools:
    """The tools of a scene, and its model with their paths."""
    return Tools(scene.config, scene.obstacles, scene.model)


def _poses(path: PosePath, start_s: float = 0.0) -> Iterable[Pose]:
    """The poses of a path whose times count from start_s."""
    return zip((path.time_s + start_s).tolist(), path.rotation, path.translation_m)
