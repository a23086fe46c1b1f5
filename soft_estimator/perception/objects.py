"""From a cloud to the points of one object, followed from frame to frame; what is not certain is said, not guessed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np

from soft_estimator.backends.cpu.cloud import find_flying, sort_out, split_by_plane
from soft_estimator.backends.cpu.clusters import cluster_image, cluster_voxels, mark_pieces
from soft_estimator.backends.cpu.flying import regain_steep
from soft_estimator.perception.cloud import Cloud, cloud_from_points
from soft_estimator.perception.plane import NoPlane, PlaneFit, fit_support_plane
from soft_estimator.perception.settings import ColourSettings, FinderSettings
from soft_estimator.perception.thinning import thinned_along_view
from soft_estimator.perception.track import Track, choose_pieces, specks_beside

_BORDER_PX = 3  # lines of pixels along the image's edges: the outermost ones are often lost


class Why(IntEnum):
    """Why a point was kept or removed."""

    KEPT = 0
    NOT_MEASURED = 1
    OUT_OF_RANGE = 2
    OUTSIDE_CROP = 3
    EXCLUDED = 4
    MASKED = 5
    PLANE = 6
    BELOW_PLANE = 7
    FLYING = 8
    SPECK = 9
    OTHER_PIECE = 10
    BEYOND_TRACK = 11
    TOOL = 12


class KnownThings(Protocol):
    """Things in view that are known, and none of the object."""

    @property
    def any(self) -> bool:
        """Whether there are some."""
        ...

    def owned(self, points_m: np.ndarray, std_m: np.ndarray, stamp_s: float) -> np.ndarray:
        """Which points (n, 3) [m] with deviations (n,) [m] are theirs at a stamp [s], (n,) bool."""
        ...


@dataclass(frozen=True, eq=False)
class ObjectPoints:
    """The object as one frame shows it.

    Attributes:
        points_m: thinned points in the fixed frame [m], (n, 3).
        std_m: standard deviation of each along the sensor's optical axis [m], (n,).
        voxel_m: edge of the voxels they are averages of [m]; 0 if they were few enough to hand on as they are.
        plane: the support plane, None if there is none.
        why: a `Why` code for every point of the cloud, uint8, (h, w) or (n,).
        kept: points before thinning.
        notes: what a reader should know: no plane found, cut off at a touching thing, partly hidden.
    """

    points_m: np.ndarray
    std_m: np.ndarray
    voxel_m: float
    plane: PlaneFit | None
    why: np.ndarray
    kept: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class NothingFound:
    """No object, or more than one, and why; `why` holds a `Why` code for every point."""

    reason: str
    plane: PlaneFit | None
    why: np.ndarray


class ObjectFinder:
    """Finds the object in one cloud after another. The plane and the object's track are carried between frames."""

    def __init__(self, settings: FinderSettings | None = None) -> None:
        self.settings = settings or FinderSettings()
        self.plane: PlaneFit | None = None
        self.track: Track | None = None
        boxes = [self.settings.crop, *self.settings.excluded]
        self._boxes = np.array(
            [[box.low_m, box.high_m] if box else [(-np.inf,) * 3, (np.inf,) * 3] for box in boxes], dtype=np.float64
        )

    def process(
        self,
        cloud: Cloud,
        mask: np.ndarray | None = None,
        time_s: float | None = None,
        tools: KnownThings | None = None,
    ) -> ObjectPoints | NothingFound:
        """The object's points, or why there are none.

        Args:
            cloud: the frame.
            mask: truth values of the cloud's shape, (h, w) or (n,): only points with True may belong to the object. The
                plane is fitted to the others, too.
            time_s: when it was taken [s]; frames count as evenly spaced without it.
            tools: whose points are taken out, where the time is known.
        """
        points, notes = cloud.flat_m, []
        shape = cloud.points_m.shape[:-1]
        why, std = self._first_look(cloud)
        if tools is not None and time_s is not None and tools.any:
            left = np.flatnonzero(why == 0)
            why[left[tools.owned(points[left], std[left], time_s)]] = Why.TOOL
        if not (why == 0).any():
            return NothingFound(self._nothing_left(why, cloud.size), None, why.reshape(shape))
        plane = self._support(cloud, why, std)
        if isinstance(plane, NoPlane):
            notes.append(plane.reason)
        if isinstance(plane, PlaneFit):
            s = self.settings.plane
            codes = np.array([Why.PLANE, Why.BELOW_PLANE], dtype=np.uint8)
            limits = (s.least_thickness_m, s.thickness_sigmas)
            split_by_plane(points, std, cloud.sensor_m, cloud.axis, plane.as_row, *limits, codes, why)
        self.plane = plane if isinstance(plane, PlaneFit) else None
        if mask is not None:
            why[(why == 0) & ~_as_mask(mask, shape)] = Why.MASKED
        if self.settings.colour is not None:
            why[(why == 0) & ~mask_from_colour(cloud, self.settings.colour)] = Why.MASKED
        label, pieces = self._pieces(cloud, why, std)
        border = None if self.track is not None else _border(cloud, why)
        choice = choose_pieces(points, label, pieces, self.track, self.settings, time_s, border)
        self.track = choice.track
        mark_pieces(label, choice.small, Why.SPECK, Why.OTHER_PIECE, why)
        why[choice.beyond] = Why.BEYOND_TRACK
        if len(choice.chosen) == 0:
            return NothingFound(choice.reason, self.plane, why.reshape(shape))
        beside = specks_beside(points, label, choice, self.settings.least_friends + 2, self.settings.track.speck_gap_m)
        chosen = np.concatenate([choice.chosen, beside])
        why[chosen] = Why.KEPT
        thinned, spread, voxel = thinned_along_view(cloud, points[chosen], std[chosen], self.settings)
        result = (thinned, spread, voxel, self.plane, why.reshape(shape), len(chosen))
        return ObjectPoints(*result, (*notes, *choice.notes))

    def forget(self) -> None:
        """Start anew: the next frame is a first frame."""
        self.plane = self.track = None

    def _first_look(self, cloud: Cloud) -> tuple[np.ndarray, np.ndarray]:
        noise = self.settings.noise
        why, std = np.empty(cloud.size, dtype=np.uint8), np.empty(cloud.size)
        codes = np.array([Why.NOT_MEASURED, Why.OUT_OF_RANGE, Why.OUTSIDE_CROP, Why.EXCLUDED], dtype=np.uint8)
        limits = np.array([noise.min_depth_m, noise.max_depth_m])
        law = np.array([noise.floor_m, noise.per_m])
        sort_out(cloud.flat_m, cloud.sensor_m, cloud.axis, limits, law, self._boxes, codes, why, std)
        return why, std

    def _support(self, cloud: Cloud, why: np.ndarray, std: np.ndarray) -> PlaneFit | NoPlane | None:
        if self.settings.support == "none":
            return None
        return fit_support_plane(cloud, self.settings.plane, self.settings.noise, why, std, self.plane)

    def _pieces(self, cloud: Cloud, why: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, int]:
        """Flying pixels marked in `why`, then a label per point (-1 for none) and the number of pieces."""
        s, points = self.settings, cloud.flat_m
        label = np.full(len(points), -1, dtype=np.int64)
        if cloud.organised and cloud.pixel_pitch > 0:
            height, width = cloud.points_m.shape[:2]
            view = (cloud.sensor_m, cloud.axis, cloud.pixel_pitch, float(np.tan(s.edge_incidence_rad)), s.edge_sigmas)
            flying = np.empty(len(points), dtype=np.bool_)
            find_flying(points, width, height, why, std, *view, s.least_friends, flying)
            steep, limit = np.empty(len(points)), float(np.tan(s.steepest_incidence_rad))
            oblique = (*view[:3], s.noise.lateral_px, limit, s.edge_sigmas, s.least_friends + 2)
            regain_steep(points, width, height, why, flying, std, *oblique, steep)
            why[flying] = Why.FLYING
            return label, cluster_image(points, width, height, why == 0, std, *view, steep, label)
        used = np.flatnonzero(why == 0)
        found, pieces = voxel_pieces(points[used], 0.5 * s.cluster_gap_m, s.least_friends + 1, s.sparse_share)
        label[used] = found
        return label, pieces

    def _nothing_left(self, why: np.ndarray, size: int) -> str:
        if size == 0:
            return "the cloud is empty; is the camera running?"
        counts = ", ".join(
            f"{(why == code).sum()} {Why(code).name.lower().replace('_', ' ')}" for code in np.unique(why)
        )
        return f"none of the cloud's {size} points can be used ({counts}); check the sensor, its range and the crop box"


def voxel_pieces(points: np.ndarray, voxel_m: float, least: int, sparse: float) -> tuple[np.ndarray, int]:
    """A label per point (n, 3) [m] of an unorganised cloud, -1 for none, and the number of pieces; see
    `cluster_voxels`."""
    chosen, label = np.ascontiguousarray(points), np.empty(len(points), dtype=np.int64)
    every, low = np.ones(len(points), dtype=np.bool_), chosen.min(axis=0) if len(points) else np.zeros(3)
    return label, cluster_voxels(chosen, every, low, voxel_m, least, sparse, _table_size(len(points)), label)


def _border(cloud: Cloud, why: np.ndarray) -> np.ndarray | None:
    """Which points lie on the border of the measured part of the image, (n,); None where there is no image."""
    if not cloud.organised:
        return None
    shape = cloud.points_m.shape[:2]
    measured = (why != Why.NOT_MEASURED).reshape(shape)
    border = np.zeros(shape, dtype=bool)
    rows, columns = np.flatnonzero(measured.any(axis=1)), np.flatnonzero(measured.any(axis=0))
    border[np.concatenate([rows[:_BORDER_PX], rows[-_BORDER_PX:]])] = True
    border[:, np.concatenate([columns[:_BORDER_PX], columns[-_BORDER_PX:]])] = True
    return border.ravel()


def mask_from_colour(cloud: Cloud, wanted: ColourSettings) -> np.ndarray:
    """Which points have the wanted colour, (n,) bool."""
    if cloud.colour is None:
        raise ValueError(
            "settings name the object's colour, but the cloud carries none; drop `colour` or record colours"
        )
    rgb = cloud.colour.reshape(-1, 3).astype(np.float64) / 255
    value, spread = rgb.max(axis=1), np.ptp(rgb, axis=1)
    # hue as the angle of the colour around the grey diagonal
    hue = np.arctan2(np.sqrt(3) * (rgb[:, 1] - rgb[:, 2]), 2 * rgb[:, 0] - rgb[:, 1] - rgb[:, 2])
    apart = np.abs((hue - wanted.hue_rad + np.pi) % (2 * np.pi) - np.pi)
    grey = spread < wanted.least_saturation * value
    return (apart <= wanted.hue_width_rad) & ~grey & (value >= wanted.least_value)


def _as_mask(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(mask)
    if array.shape != shape:
        raise ValueError(f"mask of shape {array.shape} for a cloud of {shape} points: give one truth value per point")
    return array.astype(bool).ravel()


def _table_size(count: int) -> int:
    return 1 << max(4, int(2 * count).bit_length())


def find_a_ball() -> None:
    """Look for an object in two clouds of a ball, an organised one and a bare one: what that takes is then compiled."""
    x, y = np.meshgrid(np.linspace(-0.4, 0.4, 160), np.linspace(-0.3, 0.3, 120))
    depth = np.full(x.shape, 1.0)
    hill = 0.01 - x**2 - y**2
    depth[hill > 0] -= np.sqrt(hill[hill > 0])
    points = np.stack([x * depth, y * depth, depth], axis=-1)
    for shown in (points, points.reshape(-1, 3)):
        finder = ObjectFinder()
        for _ in range(2):
            finder.process(cloud_from_points(shown))
