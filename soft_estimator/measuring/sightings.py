"""Where the object is in every frame of a recording, how high above the table, and why it is not in the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from soft_estimator.estimation.window.refusals import Refusals
from soft_estimator.live.episodes import EpisodeWatch
from soft_estimator.perception.objects import KnownThings, NothingFound, ObjectFinder
from soft_estimator.perception.settings import FinderSettings
from soft_estimator.recordings.interface import Recording

Progress = Callable[[str, int, int], None]  # stage, done, total

_LOWEST, _HIGHEST = 0.03, 0.97  # shares of the points beyond which strays may lie
_TILT_RAD = 0.05  # a table whose normal turns by more between frames means that the camera moved


@dataclass(frozen=True, eq=False)
class Sighting:
    """The object in one frame, in the recording's fixed frame.

    Attributes:
        index: number of the frame. time_s: its stamp [s]. points_m, std_m: the object's points (n, 3) [m], noise (n,).
        sensor_m: where the camera was [m], (3,). low_m, high_m: heights of its lower and upper edge above the table.
        middle_m: mean of the points (3,) [m]. touched: whether something else was cut off it.
        cut: whether something else was cut off by the body's shape.
    """

    index: int
    time_s: float
    points_m: np.ndarray
    std_m: np.ndarray
    sensor_m: np.ndarray
    low_m: float
    high_m: float
    middle_m: np.ndarray
    touched: bool
    cut: bool = False


@dataclass(eq=False)
class Survey:
    """All sightings of a recording, in order of time.

    Attributes:
        plane: the table as (n, d), n·x + d = 0, n towards the camera. refusals: frames without the object, and why.
        frames: how many there are. rate_hz: frames a second.
    """

    sightings: list[Sighting]
    plane: np.ndarray
    refusals: Refusals
    frames: int
    rate_hz: float
    notes: list[str] = field(default_factory=list)


def look_through(
    recording: Recording,
    finder: FinderSettings,
    progress: Progress | None = None,
    stage: str = "looking for the object",
    beside: KnownThings | None = None,
) -> Survey:
    """Find the object in every frame; a ValueError where it is in none, with the reasons. beside: what is known to
    stand there, and none of it."""
    search, episodes, refusals = ObjectFinder(finder), EpisodeWatch(), Refusals()
    found_in, planes, stamps = [], [], []
    for index, frame in enumerate(recording):
        if progress is not None:
            progress(stage, index + 1, len(recording))
        stamps.append(frame.time_s)
        if frame.cloud is None:
            refusals.add(frame.time_s, frame.problem)
            continue
        if episodes.jump(frame.time_s, finder.track.forget_after_s):
            search.forget()
        found = search.process(frame.cloud, frame.mask, frame.time_s, beside)
        if isinstance(found, NothingFound):
            refusals.add(frame.time_s, found.reason)
            continue
        if found.plane is None:
            refusals.add(frame.time_s, "; ".join(found.notes) or "no table is seen under the object")
            continue
        planes.append(found.plane.as_row)
        touched = any("touches" in note for note in found.notes)
        found_in.append((index, frame.time_s, found.points_m, found.std_m, frame.cloud.sensor_m, touched))
    if not found_in:
        raise ValueError(_nothing(refusals, len(stamps)))
    plane = _one_plane(np.array(planes))
    sightings = [_sighting(*row, plane) for row in found_in]
    gaps = np.diff(np.sort(stamps))
    gaps = gaps[gaps > 0]
    rate = float(1.0 / np.median(gaps)) if len(gaps) else 30.0
    return Survey(sightings, plane, refusals, len(stamps), rate)


def spread(total: int, most: int) -> list[int]:
    """At most so many numbers below a total, evenly spread."""
    return [int(k) for k in np.unique(np.linspace(0, total - 1, min(total, most)).round())] if total else []


def _sighting(
    index: int,
    time_s: float,
    points: np.ndarray,
    std: np.ndarray,
    sensor: np.ndarray,
    touched: bool,
    plane: np.ndarray,
) -> Sighting:
    low, high = np.quantile(points @ plane[:3] + plane[3], (_LOWEST, _HIGHEST))
    return Sighting(index, time_s, points, std, sensor, float(low), float(high), points.mean(axis=0), touched)


def sighting_of(seen: Sighting, own: np.ndarray, plane: np.ndarray) -> Sighting:
    """A sighting with some of its points alone, own (n,) bool; plane: the table (n, d)."""
    rest = _sighting(seen.index, seen.time_s, seen.points_m[own], seen.std_m[own], seen.sensor_m, False, plane)
    return replace(rest, cut=True)


def _one_plane(rows: np.ndarray) -> np.ndarray:
    """The median table (4,); a ValueError where it turns from frame to frame."""
    row = np.median(rows, axis=0)
    row = row / np.linalg.norm(row[:3])
    cosine = rows[:, :3] @ row[:3] / np.linalg.norm(rows[:, :3], axis=1)
    turned = float(np.quantile(np.arccos(np.clip(cosine, -1.0, 1.0)), 0.9))
    if turned > _TILT_RAD:
        raise ValueError(
            f"the table turns by {np.degrees(turned):.0f} degrees during the recording: the camera moved (fix it, or "
            "record its transforms, /tf), or hardly any of the table is in view"
        )
    return row


def _nothing(refusals: Refusals, frames: int) -> str:
    if frames == 0:
        return "the recording has no frames; record the object's cloud or depth topic"
    why = "; ".join(f"{item.count} frames: {item.example}" for item in refusals.most_first()[:3])
    return f"the object was found in none of {frames} frames ({why}); soft-estimator inspect shows a frame"
