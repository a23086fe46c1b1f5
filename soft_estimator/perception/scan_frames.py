"""What static frames show of an object: its points, the table, a frame of its own, and images ready to be fused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.fusion import Bend, View, make_view, ray_pitch
from soft_estimator.perception.objects import KnownThings, NothingFound, ObjectFinder, ObjectPoints, Why
from soft_estimator.perception.plane import PlaneFit
from soft_estimator.perception.settings import FinderSettings, NoiseSettings, ScanSettings

Frame = tuple[np.ndarray, np.ndarray]  # rotation and translation, body frame to fixed frame

# An object that lies still stays where it is by a few tenths of a millimetre; beyond this many of a point's standard
# deviations, or this far [m], it moved.
_STILL_SIGMAS, _STILL_M = 3.0, 0.002


@dataclass(frozen=True, eq=False)
class Support:
    """A table that the object stood on in some of the views, (n, d) in the body frame; those views, with the table as
    their surface; and the others, in which it stood otherwise and shows what that table flattened and hid; and how
    the object was bent on it."""

    plane: np.ndarray
    own: list[View]
    others: list[View]
    bend: Bend | None = None


@dataclass(frozen=True, eq=False)
class ScanData:
    """Static frames made ready.

    Attributes:
        frames: clouds with the object found in them. plane: mean support plane (n, d), (4,), None without one.
        frame: body frame to fixed frame. local_m: all points of the object in the body frame, (n, 3) [m]. toward: unit
            vectors from them to the camera, (n, 3).
        voxel_m, truncation_m: resolution of the fusion [m]. std_m: noise of a point at the object's depth [m].
        views: the frames as images. noise: the sensor's. notes: what a reader should know.
        supports: of sides that were joined (see `scan_sides`), whose `plane` is None: all tables that it stood on.
    """

    frames: list[tuple[Cloud, ObjectPoints]]
    plane: np.ndarray | None
    frame: Frame
    local_m: np.ndarray
    toward: np.ndarray
    voxel_m: float
    truncation_m: float
    std_m: float
    views: list[View]
    noise: NoiseSettings
    notes: tuple[str, ...]
    supports: tuple[Support, ...] = ()

    @property
    def stands(self) -> bool:
        """Whether the object stands on a plane that was seen."""
        return self.plane is not None


def gather(
    clouds: Iterable[Cloud],
    settings: ScanSettings,
    finder: FinderSettings,
    masks: Iterable[np.ndarray | None] | None = None,
    beside: KnownThings | None = None,
) -> ScanData:
    """Find the object in static frames; frames in which it moved are left out. beside: what is known to stand there."""
    frames, notes = _find_in_frames(clouds, finder, masks, beside)
    frames, moved = _still_ones(frames)
    plane = _mean_plane([found.plane for _, found in frames if found.plane is not None])
    points = np.concatenate([found.points_m for _, found in frames])
    frame = _body_frame(plane, points)
    local = (points - frame[1]) @ frame[0]
    rays = np.concatenate([cloud.sensor_m - found.points_m for cloud, found in frames]) @ frame[0]
    toward = rays / np.linalg.norm(rays, axis=1)[:, None]
    voxel, truncation, smooth, std = _resolution(frames, local, settings, finder)
    views = [_view(cloud, found, finder, smooth) for cloud, found in frames]
    return ScanData(frames, plane, frame, local, toward, voxel, truncation, std, views, finder.noise, (*notes, *moved))


def _still_ones(
    frames: list[tuple[Cloud, ObjectPoints]],
) -> tuple[list[tuple[Cloud, ObjectPoints]], list[str]]:
    """The frames in which the object lies where most frames of the same camera pose have it, and notes on the others.

    Views from other sides see other points: only frames from one pose can be compared.
    """
    kept, off_mm = [], []
    # Means, not medians: between the legs of a toy there is a gap, and its median jumps by millimetres with the noise.
    middles = np.array([found.points_m.mean(axis=0) for _, found in frames])
    poses = np.array([np.append(cloud.rotation.ravel(), cloud.sensor_m) for cloud, _ in frames])
    for index, (cloud, found) in enumerate(frames):
        limit = max(_STILL_M, _STILL_SIGMAS * float(np.median(found.std_m)))
        same = middles[(np.abs(poses - poses[index]) < 1e-6).all(axis=1)]
        # Where most frames agree: an object that is also seen flying is anywhere in the others.
        friends = (np.linalg.norm(same[:, None] - same[None], axis=2) < limit).sum(axis=1)
        off = float(np.linalg.norm(middles[index] - same[int(np.argmax(friends))]))
        if off > limit:
            off_mm.append(1e3 * off)
        else:
            kept.append((cloud, found))
    if not kept:
        raise ValueError("the object moved in all frames of the scan; record it while it lies still")
    if not off_mm:
        return kept, []
    how_far = f"{min(off_mm):.1f}" if len(off_mm) == 1 else f"{min(off_mm):.1f} to {max(off_mm):.1f}"
    which = "1 frame" if len(off_mm) == 1 else f"{len(off_mm)} frames"
    return kept, [f"{which} left out: the object lay {how_far} mm from where most frames have it"]


def _find_in_frames(
    clouds: Iterable[Cloud],
    finder: FinderSettings,
    masks: Iterable[np.ndarray | None] | None,
    beside: KnownThings | None = None,
) -> tuple[list[tuple[Cloud, ObjectPoints]], list[str]]:
    frames: list[tuple[Cloud, ObjectPoints]] = []
    notes: list[str] = []
    last = "there are no frames"
    masks = iter(masks) if masks is not None else None
    # Pixels at grazing incidence complete the object in a single frame. In a field, where each stands for the space
    # before and behind it, they do more harm than good.
    search = ObjectFinder(replace(finder, steepest_incidence_rad=0.0))
    for index, cloud in enumerate(clouds):
        if frames and not np.allclose(frames[-1][0].rotation, cloud.rotation):
            search.forget()  # another pose sees another side: the piece's size does not carry over
        found = search.process(cloud, next(masks) if masks is not None else None, float(index), beside)
        if isinstance(found, NothingFound):
            last = found.reason
            notes.append(f"frame {index} left out: {found.reason}")
        else:
            frames.append((cloud, found))
    if not frames:
        raise ValueError(f"no frame of the scan shows the object: {last}")
    return frames, notes


def _mean_plane(planes: list[PlaneFit]) -> np.ndarray | None:
    """Mean (n, d) of the frames' planes, (4,), None without any."""
    if not planes:
        return None
    row = np.mean([plane.as_row for plane in planes], axis=0)
    tilt = max(float(np.arccos(np.clip(plane.normal @ row[:3] / np.linalg.norm(row[:3]), -1, 1))) for plane in planes)
    if tilt > 0.09:
        raise ValueError(
            f"the frames' support planes differ by up to {np.degrees(tilt):.1f} degrees; check the camera poses"
        )
    return row / np.linalg.norm(row[:3])


def _body_frame(plane: np.ndarray | None, points: np.ndarray) -> Frame:
    """z along the plane's normal, origin on the plane under the middle of the points."""
    up = np.array([0.0, 0.0, 1.0]) if plane is None else plane[:3]
    side = np.eye(3)[int(np.argmin(np.abs(up)))]
    x = side - (side @ up) * up
    x /= np.linalg.norm(x)
    rotation = np.stack([x, np.cross(up, x), up], axis=1)
    middle = 0.5 * (points.min(axis=0) + points.max(axis=0))
    if plane is not None:
        middle = middle - (up @ middle + plane[3]) * up
    return rotation, middle


def _resolution(
    frames: list[tuple[Cloud, ObjectPoints]], local: np.ndarray, settings: ScanSettings, finder: FinderSettings
) -> tuple[float, float, int, float]:
    """Voxel [m], truncation [m], smoothing radius [px] and a point's noise [m]: as fine as the pixels, no finer than
    the wanted cells need."""
    noise, depths, pitches = finder.noise, [], []
    for cloud, found in frames:
        depths.append(float(np.median((found.points_m - cloud.sensor_m) @ cloud.axis)))
        pitches.append(ray_pitch(cloud))
    depth = float(np.median(depths))
    std, pixel = noise.floor_m + noise.per_m * depth**2, float(np.median(pitches)) * depth
    extent = np.ptp(local, axis=0)
    cell = float((0.5 * np.prod(np.maximum(extent, 1e-6)) / settings.target_cells) ** (1 / 3))
    voxel = settings.voxel_m or float(np.clip(0.6 * cell, 1.5 * pixel, max(extent.max() / 12, 1.5 * pixel)))
    smooth = int(np.clip(np.ceil(voxel / max(pixel, 1e-9) - 0.5), 1, 4))
    return voxel, max(2.5 * voxel, 4 * std), smooth, std


def _view(cloud: Cloud, found: ObjectPoints, finder: FinderSettings, smooth_px: int) -> View:
    body, support = found.why == Why.KEPT, found.why == Why.PLANE
    ignored = (found.why == Why.FLYING) | (found.why == Why.SPECK) | (found.why == Why.NOT_MEASURED)
    return make_view(cloud, body, support, ignored, finder.noise, smooth_px)
