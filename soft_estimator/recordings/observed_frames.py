"""Recorded frames for an estimate: a folder (see frame_folder.py) as points with their noise.

Seconds count from the scene's time 0, and points are in its frame, by a pose where the folder gives one. Whatever
cannot be used, a frame or single points, is set aside and counted, with the reason.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from soft_estimator.estimation.residuals.observed_frame import RAY_CURVATURE_SHARE, ObservedFrame
from soft_estimator.recordings.frame_folder import STAMPS, FrameFolder
from soft_estimator.recordings.interface import Frame
from soft_estimator.recordings.point_files import PointFile

# Deviation (n,) [m] and curvature share (n,) of points (n, 3) [m] whose file does not say.
NoiseOf = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class SetAside:
    """A frame that is not used, and why: in two or three words, and in full where its file says more."""

    file: str
    time_s: float | None
    reason: str
    problem: str = ""


@dataclass(frozen=True)
class FrameSet:
    """The frames to explain, in order of time, and what was left out.

    Attributes:
        names: of the frames' files. set_aside: frames not used.
        nan_points: points that are not finite, stray_points: points far from the body, copied_points: points that are
            others of their frame once more, all left out of used frames.
    """

    frames: tuple[ObservedFrame, ...]
    names: tuple[str, ...]
    set_aside: tuple[SetAside, ...] = ()
    nan_points: int = 0
    stray_points: int = 0
    copied_points: int = 0

    @property
    def points(self) -> int:
        return sum(len(frame.points_m) for frame in self.frames)


@dataclass
class _Pile:
    """What is collected while frames are read."""

    frames: list[ObservedFrame] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    aside: list[SetAside] = field(default_factory=list)
    nan_points: int = 0


def read_frames(folder: Path | str, noise_of: NoiseOf, duration_s: float = np.inf, budget: int | None = None,
                seed: int = 0) -> FrameSet:  # fmt: skip
    """Read recorded frames; an error only where none is left.

    Args:
        noise_of: noise of points whose file does not give it. duration_s: later frames are set aside.
        budget: most points kept of a frame, drawn at random with the seed; all by default.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"--frames {folder} is not a folder; give the one that holds {STAMPS}")
    recording = FrameFolder(folder, in_file_order=True)
    pile, rng = _Pile(), np.random.default_rng(seed)
    for index in _in_order(recording, pile):
        row, problem = recording.rows[index], ""
        reason = _reason_by_time(row.time_s, duration_s)
        if not reason:
            frame = recording[index]
            reason, problem = _add(frame, noise_of, budget, rng, pile), frame.problem
        if reason:
            pile.aside.append(SetAside(row.name, row.time_s, reason, problem))
    made = FrameSet(tuple(pile.frames), tuple(pile.names), tuple(pile.aside), pile.nan_points)
    check_any_left(made, folder)
    return made


def check_any_left(made: FrameSet, folder: Path | str) -> None:
    """Say why nothing is left, if so."""
    if made.frames:
        return
    counts: dict[str, int] = {}
    for item in made.set_aside:
        counts[item.reason] = counts.get(item.reason, 0) + 1
    listed = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items(), key=lambda c: -c[1])[:3])
    first = next((f"the first: {item.problem}" for item in made.set_aside if item.problem), "look at these files")
    raise ValueError(f"{folder} has no usable frame ({listed}); {first}")


def _in_order(recording: FrameFolder, pile: _Pile) -> list[int]:
    """The most frames whose stamps rise; the others are set aside, so that one wild stamp costs one frame."""
    rows = recording.rows
    stamped = [index for index, row in enumerate(rows) if np.isfinite(row.time_s)]
    pile.aside += [SetAside(row.name, None, "without a stamp") for row in rows if not np.isfinite(row.time_s)]
    kept = rising([rows[index].time_s for index in stamped])
    for place, index in enumerate(stamped):
        if place not in kept:
            pile.aside.append(SetAside(rows[index].name, rows[index].time_s, "stamped out of order"))
    return [index for place, index in enumerate(stamped) if place in kept]


def rising(values: Sequence[float]) -> set[int]:
    """Where the longest strictly rising selection of the values is (patience sorting)."""
    tops: list[float] = []
    top_at: list[int] = []
    before: list[int] = []
    for i, value in enumerate(values):
        place = bisect_left(tops, value)
        before.append(top_at[place - 1] if place else -1)
        tops[place : place + 1], top_at[place : place + 1] = [value], [i]
    out: set[int] = set()
    at = top_at[-1] if top_at else -1
    while at >= 0:
        out.add(at)
        at = before[at]
    return out


def _reason_by_time(time_s: float, duration_s: float) -> str:
    if time_s < 0:
        return "before the scene's time 0"
    return f"after the watched {duration_s:g} s" if time_s > duration_s * (1 + 1e-9) else ""


def _add(frame: Frame, noise_of: NoiseOf, budget: int | None, rng: np.random.Generator, pile: _Pile) -> str:
    """Put a frame on the pile, or say why not."""
    if frame.cloud is None:
        return frame.reason
    content = frame.content or PointFile(frame.cloud.points_m)
    points: np.ndarray = content.points_m.reshape(-1, 3)
    if len(points) == 0:
        return "without points"
    finite = np.isfinite(points).all(axis=1)
    if not finite.any():
        return "with nothing but NaN"
    wanted = finite if frame.mask is None else finite & frame.mask.ravel()
    if not wanted.any():
        return "with every point masked"
    std = np.full(len(points), np.nan) if content.std_m is None else np.array(content.std_m)
    share = np.full(len(points), RAY_CURVATURE_SHARE) if content.more is None else content.more[:, 0]
    keep = np.nonzero(wanted)[0]
    if budget is not None and len(keep) > budget:
        keep = np.sort(rng.choice(keep, budget, replace=False))
    points, std, share = points[keep], std[keep], share[keep]
    along = content.more[keep, 1:4] if content.more is not None and content.more.shape[1] >= 4 else None
    silent = ~(np.isfinite(std) & (std > 0) & np.isfinite(share))
    if silent.any():
        std[silent], share[silent] = noise_of(points[silent])
        along = None  # a noise that is only guessed has no known direction
    if along is not None and not np.isfinite(along).all():
        along = None
    pile.frames.append(ObservedFrame(float(frame.time_s), np.ascontiguousarray(points), std, share, along))
    pile.names.append(frame.name)
    pile.nan_points += int(np.count_nonzero(~finite))
    return ""


def without_strays(made: FrameSet, surfaces_m: Sequence[np.ndarray], reach_m: float) -> FrameSet:
    """The frames without points farther than reach_m from the body; frames of nothing else are set aside.

    Args:
        surfaces_m: where the body is expected to be at each frame, (V, 3) each.
    """
    frames, names, aside, strays = [], [], list(made.set_aside), 0
    for frame, name, surface in zip(made.frames, made.names, surfaces_m):
        tree = cKDTree(surface)
        near = tree.query(frame.points_m, distance_upper_bound=reach_m)[0] <= reach_m
        if not near.any():
            reason = f"with every point over {reach_m:.2g} m from the body"
            aside.append(SetAside(name, frame.time_s, reason, _why_far(name, frame.points_m, tree)))
            continue
        strays += int(np.count_nonzero(~near))
        frames.append(frame.only(near))
        names.append(name)
    return FrameSet(tuple(frames), tuple(names), tuple(aside), made.nan_points, strays)


def _why_far(name: str, points: np.ndarray, tree: cKDTree) -> str:
    """What the points of a frame seem to be that all lie far from the body; points: (n, 3), as their file has them."""
    as_large = np.ptp(points, axis=0).max() / max(np.ptp(tree.data, axis=0).max(), 1e-12)
    if 100 < as_large < 3000:
        return f"{name} spans {as_large:.0f} times the body's size, as points in millimetres do; write metres"
    return (
        f"{name} comes within {tree.query(points)[0].min():.3g} m of where the body is expected; give points in the "
        "scene's frame, or put the body there by initial"
    )


def without_copies(made: FrameSet) -> FrameSet:
    """The frames with every point once: a copy tells nothing new, and would make an answer look surer."""
    frames, copies = [], 0
    for frame in made.frames:
        first = np.sort(np.unique(np.round(frame.points_m, 9), axis=0, return_index=True)[1])
        if len(first) < len(frame.points_m):
            copies += len(frame.points_m) - len(first)
            frame = frame.only(first)
        frames.append(frame)
    return replace(made, frames=tuple(frames), copied_points=copies)


def write_frames(folder: Path | str, frames: Sequence[ObservedFrame]) -> None:
    """Write frames as `read_frames` reads them: .npy of x, y, z, deviation, curvature share and, where known, the three
    components of `along`; and stamps.csv."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["file,seconds"]
    for k, frame in enumerate(frames):
        name = f"{k:05d}.npy"
        columns = [frame.points_m, frame.std_m, frame.curvature_share]
        np.save(folder / name, np.column_stack(columns if frame.along is None else [*columns, frame.along]))
        lines.append(f"{name},{frame.time_s!r}")
    (folder / STAMPS).write_text("\n".join(lines) + "\n", encoding="utf-8")
