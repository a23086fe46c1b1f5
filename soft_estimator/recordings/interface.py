"""A recording as everything that reads one sees it: so many frames, each by its number.

Bags, folders of point files or depth images, and single files all look like this (`open_recording`); a live camera is
the same, without an end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from soft_estimator.geometry.pose_path import PosePath
from soft_estimator.perception.cloud import Cloud
from soft_estimator.recordings.ground_truth import TruthRow
from soft_estimator.recordings.point_files import PointFile


@dataclass(frozen=True, eq=False)
class TrueSurface:
    """The true surface at a stamp [s]: corners of its triangles (F, 3, 3) [m]."""

    stamp_s: float
    triangles_m: np.ndarray


@dataclass(frozen=True, eq=False)
class WrenchReading:
    """What a force-torque sensor read at a stamp [s]: force [N] and moment [N m] in a frame, (6,).

    frame_id: the sensor's frame, "" where the recording does not name it.
    """

    stamp_s: float
    wrench: np.ndarray
    frame_id: str = ""


@dataclass(frozen=True, eq=False)
class Frame:
    """One recorded frame. One that cannot be used has no cloud: it costs itself, not the recording.

    Attributes:
        time_s: its stamp, NaN without one. name: what to call it.
        cloud: the points in the fixed frame. problem: why there is none, in full; reason: in two or three words.
        mask: where the object may be, of the cloud's shape; None for anywhere.
        content: what a point file says, in the fixed frame; it may hold each point's deviation.
        frame_id: the sensor's frame, where the recording names it.
        surfaces: true surfaces recorded with it, where the recording holds ground truth.
    """

    time_s: float
    name: str
    cloud: Cloud | None
    problem: str = ""
    reason: str = ""
    mask: np.ndarray | None = None
    content: PointFile | None = None
    frame_id: str = ""
    surfaces: tuple[TrueSurface, ...] = ()

    def usable(self) -> Cloud:
        """The cloud; a ValueError with the problem where there is none."""
        if self.cloud is None:
            raise ValueError(self.problem)
        return self.cloud


class Recording(AbstractContextManager["Recording"], Protocol):
    """Frames by number, cheapest in their order. Use it in a `with` block: it may hold files open.

    Attributes:
        source: the topic or folder they come from. truth: true numbers, empty where it holds none.
        notes: what a reader should know, in plain words. posed: whether it says where the camera stands; known within
            the `with` block.
    """

    @property
    def source(self) -> str: ...

    @property
    def truth(self) -> tuple[TruthRow, ...]: ...

    @property
    def notes(self) -> list[str]: ...

    @property
    def posed(self) -> bool: ...

    def path_of(self, frame: str) -> tuple[PosePath, bool]:
        """Poses of a frame of its transforms in the fixed frame, by stamps [s], and whether it rests there; a
        ValueError says why it holds none."""
        ...

    def wrenches_of(self, topic: str) -> Sequence[WrenchReading]:
        """What a force-torque sensor read, in the order of the recording; none where it holds no such topic."""
        ...

    @property
    def start_s(self) -> float:
        """Stamp of the first frame that it holds [s], NaN without one."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Frame: ...

    def __iter__(self) -> Iterator[Frame]: ...
