"""Depth images into one signed distance field on a grid that stands on the support plane."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.ndimage import map_coordinates, uniform_filter

from soft_estimator.backends.cpu.tsdf import incidence, integrate, smooth_depth
from soft_estimator.perception.cloud import Cloud, Intrinsics
from soft_estimator.perception.settings import NoiseSettings

_UNBENT: np.ndarray = np.zeros((0, 0, 0, 3))
_EDGE_SLOPE = 3.7  # tan 75°: steeper steps between pixels are edges


@dataclass(frozen=True, eq=False)
class Bend:
    """By how much the places of a body had moved when it was seen: on the nodes of a grid in its rest shape's frame.

    Attributes:
        origin_m: node (0, 0, 0) [m], (3,). spacing_m: of the nodes [m]. moved_m: (nx, ny, nz, 3) [m].
    """

    origin_m: np.ndarray
    spacing_m: float
    moved_m: np.ndarray
    _on_nodes: dict[tuple[float, ...], np.ndarray] = field(default_factory=dict, init=False, repr=False)

    def at(self, points_m: np.ndarray) -> np.ndarray:
        """How far places (n, 3) [m] at rest had moved, (n, 3) [m]; beyond the grid as at its rim."""
        places = ((np.asarray(points_m) - self.origin_m) / self.spacing_m).T
        along = [map_coordinates(self.moved_m[..., a], places, order=1, mode="nearest") for a in range(3)]
        return np.stack(along, axis=1)

    def at_nodes(self, origin_m: np.ndarray, spacing_m: float, shape: tuple[int, ...]) -> np.ndarray:
        """How far the nodes of a grid had moved, (*shape, 3) [m]; known for the grid that was asked for last."""
        key = (*map(float, origin_m), spacing_m, *shape)
        if key not in self._on_nodes:
            axes = [origin_m[a] + spacing_m * np.arange(shape[a]) for a in range(3)]
            nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
            self._on_nodes.clear()
            self._on_nodes[key] = self.at(nodes).reshape(*shape, 3)
        return self._on_nodes[key]

    def back(self, points_m: np.ndarray) -> np.ndarray:
        """Where places (n, 3) [m] of the bent body are at rest, (n, 3) [m]."""
        points_m = np.asarray(points_m)
        return points_m - self.at(points_m - self.at(points_m))

    def by(self, factor: float) -> Bend:
        """The same, so many times as far."""
        return replace(self, moved_m=factor * self.moved_m)


@dataclass(frozen=True, eq=False)
class View:
    """A depth image ready for fusion.

    Attributes:
        depth_m: smoothed, (h, w) [m], 0 where nothing is known.
        surface: pixels whose depth is surface of the object or its support, (h, w) bool.
        body: those of the object alone, (h, w) bool.
        cosine: incidence, (h, w).
        lens: the camera.
        rotation, translation_m: camera frame to fixed frame; a mirrored view's rotation has determinant -1.
        bend: of the body when the image was taken, None where it had its rest shape.
    """

    depth_m: np.ndarray
    surface: np.ndarray
    body: np.ndarray
    cosine: np.ndarray
    lens: Intrinsics
    rotation: np.ndarray
    translation_m: np.ndarray
    bend: Bend | None = None

    def of_body(self) -> View:
        """The same image, whose only surface is the object's."""
        return replace(self, surface=self.body)

    def of_support(self) -> View:
        """The same image, whose only surface is the support's."""
        return replace(self, surface=self.surface & ~self.body)

    def seen_from(self, rotation: np.ndarray, shift_m: np.ndarray) -> View:
        """The same image taken by a camera moved with x ↦ rotation · x + shift (a symmetry of the scene)."""
        return replace(self, rotation=rotation @ self.rotation, translation_m=rotation @ self.translation_m + shift_m)


@dataclass(frozen=True, eq=False)
class Field:
    """A truncated signed distance field on nodes in the body frame.

    Attributes:
        origin_m: node (0, 0, 0) in the body frame [m], (3,). spacing_m: voxel [m]. truncation_m: cut-off [m].
        total, weight: Σ w sdf and Σ w at the nodes, (nx, ny, nz). free: images that saw the node free, (nx, ny, nz).
    """

    origin_m: np.ndarray
    spacing_m: float
    truncation_m: float
    total: np.ndarray
    weight: np.ndarray
    free: np.ndarray

    @property
    def distance_m(self) -> np.ndarray:
        """Fused signed distance (nx, ny, nz) [m]; free space is +truncation, NaN where nothing is known."""
        typical = float(np.median(self.weight[self.weight > 0])) if (self.weight > 0).any() else 1.0
        votes = typical * self.free
        weight = self.weight + votes
        known = weight > 0
        summed = self.total + votes * self.truncation_m
        return np.divide(summed, weight, out=np.full(weight.shape, np.nan), where=known)

    def heights_m(self) -> np.ndarray:
        """Height of each node layer above the body frame's z = 0 [m], (nz,)."""
        return self.origin_m[2] + self.spacing_m * np.arange(self.total.shape[2])

    def heights_above_m(self, plane: np.ndarray, bend: Bend | None = None) -> np.ndarray:
        """Heights [m] of the nodes above a plane (n, d), (nx, ny, nz), when the body was bent so."""
        x, y, z = (self.origin_m[a] + self.spacing_m * np.arange(self.total.shape[a]) for a in range(3))
        heights = np.asarray(plane[0] * x[:, None, None] + plane[1] * y[:, None] + plane[2] * z + plane[3])
        if bend is None:
            return heights
        return heights + bend.at_nodes(self.origin_m, self.spacing_m, heights.shape) @ plane[:3]


def make_view(
    cloud: Cloud, body: np.ndarray, support: np.ndarray, ignored: np.ndarray, noise: NoiseSettings, smooth_px: int
) -> View:
    """A view from a cloud; body, support and ignored are masks of its shape. Ignored pixels are as if not measured."""
    depth, lens, index = depth_image_of(cloud, ~ignored.ravel(), noise)
    keep = depth > 0
    images = np.zeros((2, *depth.shape), dtype=bool)
    images[0, keep], images[1, keep] = body.ravel()[index[keep]], (body | support).ravel()[index[keep]]
    law = np.array([noise.floor_m, noise.per_m])
    smooth = np.empty_like(depth)
    smooth_depth(depth, law, 1.0 / lens.fx_px, _EDGE_SLOPE, 3.0, smooth_px, smooth)
    filled = (smooth > 0) & (depth == 0)
    for image in images:
        image[filled] = uniform_filter(image.astype(np.float32), 3)[filled] > 0.5
    cosine = np.empty_like(depth)
    incidence(smooth, np.array([lens.fx_px, lens.fy_px, lens.cx_px, lens.cy_px]), max(1, smooth_px), cosine)
    return View(smooth, images[1], images[0], cosine, lens, cloud.rotation, cloud.sensor_m)


def fuse(
    views: list[View],
    frame: tuple[np.ndarray, np.ndarray],
    low_m: np.ndarray,
    high_m: np.ndarray,
    spacing_m: float,
    truncation_m: float,
    noise: NoiseSettings,
    node_budget: int,
) -> Field:
    """Fuse views on nodes at multiples of the spacing around the box low..high [m] of the body frame.

    frame: rotation and translation body → fixed.
    """
    first, last = np.floor(np.asarray(low_m) / spacing_m), np.ceil(np.asarray(high_m) / spacing_m)
    counts = last - first + 1
    if not np.prod(counts) <= node_budget:
        raise ValueError(
            f"fusing at voxel_m {spacing_m:g} needs {np.prod(counts):.3g} nodes, over node_budget {node_budget}; "
            "raise voxel_m or crop to the object"
        )
    shape = tuple(int(n) for n in counts)
    total, weight, free = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    law, origin = np.array([noise.floor_m, noise.per_m]), first * spacing_m
    moved, bend = _UNBENT, None
    for view in views:
        if view.bend is not bend:
            bend = view.bend
            moved = _UNBENT if bend is None else bend.at_nodes(origin, spacing_m, shape) / spacing_m
        lens = view.lens
        numbers = (lens.fx_px, lens.fy_px, lens.cx_px, lens.cy_px, *(*lens.distortion, 0.0, 0.0, 0.0, 0.0, 0.0)[:5])
        to_camera = view.rotation.T @ frame[0]
        start = view.rotation.T @ (frame[0] @ origin + frame[1] - view.translation_m)
        images = (view.depth_m, view.surface, view.cosine, law, np.array(numbers))
        integrate(*images, np.ascontiguousarray(to_camera * spacing_m), start, moved, truncation_m, total, weight, free)
    return Field(origin, spacing_m, truncation_m, total, weight, free)


def ray_pitch(cloud: Cloud) -> float:
    """Distance at depth 1 of neighbouring pixels in the image `depth_image_of` makes of a cloud."""
    return cloud.pixel_pitch if cloud.organised else 1.0 / _lens_over(*_local_depth(cloud)).fx_px


def depth_image_of(cloud: Cloud, used: np.ndarray, noise: NoiseSettings) -> tuple[np.ndarray, Intrinsics, np.ndarray]:
    """Depth image (h, w) [m] (0: nothing), its camera, and the index of a point of each pixel in the flat cloud.

    An organised cloud gives its own image and a pinhole fitted to it; any other is drawn by a pinhole whose pixels are
    about as far apart as the points. used: (n,) bool, points that count.
    """
    local, depth = _local_depth(cloud)
    if cloud.organised:
        shape = cloud.points_m.shape[:2]
        lens = cloud.lens or _fitted_lens(local, depth, shape)
        return np.where(used, depth, 0.0).reshape(shape), lens, np.arange(cloud.size).reshape(shape)
    lens = _lens_over(local, depth)
    image, index = _drawn(local, np.where(used, depth, 0.0), lens, noise)
    return image, lens, index


def _local_depth(cloud: Cloud) -> tuple[np.ndarray, np.ndarray]:
    """Points in the camera frame (n, 3) [m], and their depths (n,) [m], 0 where nothing was measured."""
    if abs(cloud.axis @ cloud.rotation[:, 2] - 1) > 1e-6:
        raise ValueError("fusion needs clouds in an optical frame (z forward): give a transform from the optical frame")
    local = (cloud.flat_m - cloud.sensor_m) @ cloud.rotation
    return local, np.where(np.isfinite(local[:, 2]) & (local[:, 2] > 0), local[:, 2], 0.0)


def _fitted_lens(local: np.ndarray, depth: np.ndarray, shape: tuple[int, int]) -> Intrinsics:
    """Pinhole of an organised cloud: x/z is linear in the column, y/z in the row."""
    seen = np.flatnonzero(depth > 0)
    if len(seen) < 10:
        raise ValueError(
            f"an organised cloud with {len(seen)} measured points does not tell its camera; give intrinsics"
        )
    seen = seen[:: max(1, len(seen) // 20000)]
    v, u = np.unravel_index(seen, shape)
    numbers = []
    for pixel, axis in ((u, 0), (v, 1)):
        ratio = local[seen, axis] / depth[seen]
        slope, offset = np.polyfit(pixel, ratio, 1) if np.ptp(pixel) > 0 else (0.0, 0.0)
        rest = float(np.abs(ratio - slope * pixel - offset).max())
        if not slope > 0 or rest > slope:
            raise ValueError(
                f"the organised cloud is no pinhole image ({rest / max(slope, 1e-12):.1f} px off along axis {axis}): "
                "give points in the optical frame, or as (n, 3)"
            )
        numbers.append((1 / slope, -offset / slope))
    (fx, cx), (fy, cy) = numbers
    return Intrinsics(shape[1], shape[0], fx, fy, cx, cy)


def _lens_over(local: np.ndarray, depth: np.ndarray) -> Intrinsics:
    """Pinhole with as many pixels as points, over the part of the view that has points.

    With larger pixels fewer stay empty, but a pixel at the outline shows the nearer surface: the body grows by a part
    of it.
    """
    seen = np.flatnonzero(depth > 0)
    if len(seen) < 10:
        raise ValueError(
            f"a cloud with {len(seen)} points before the sensor cannot be fused; check its frame and transform"
        )
    ray = local[seen, :2] / depth[seen, None]
    low, high = np.quantile(ray, 0.001, axis=0), np.quantile(ray, 0.999, axis=0)
    focal = float(np.sqrt(len(seen) / max(np.prod(high - low), 1e-12)))
    focal = min(focal, 4000.0 / max(float((high - low).max()), 1e-9))
    width, height = (int(n) for n in np.ceil((high - low) * focal) + 1)
    return Intrinsics(width, height, focal, focal, -low[0] * focal, -low[1] * focal)


def _drawn(
    local: np.ndarray, depth: np.ndarray, lens: Intrinsics, noise: NoiseSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Depth image (h, w) [m], and the index of each pixel's nearest point.

    A pixel's depth is the mean of its nearest surface's points. The nearest point itself would lie before the surface,
    by half a standard deviation for two points, and every scanned body would be fatter by that.
    """
    seen = np.flatnonzero(depth > 0)
    spot = np.rint(local[seen, :2] / depth[seen, None] * lens.fx_px + (lens.cx_px, lens.cy_px)).astype(np.int64)
    fits = ((spot >= 0) & (spot < (lens.width_px, lens.height_px))).all(axis=1)
    seen, pixel = seen[fits], spot[fits, 1] * lens.width_px + spot[fits, 0]
    order = np.lexsort((depth[seen], pixel))
    seen, pixel = seen[order], pixel[order]
    first = np.flatnonzero(np.diff(pixel, prepend=-1))
    nearest = np.repeat(depth[seen[first]], np.diff(first, append=len(seen)))
    same = depth[seen] - nearest < 3 * np.sqrt(2) * (noise.floor_m + noise.per_m * nearest**2)
    image, index = np.zeros(lens.height_px * lens.width_px), np.zeros(lens.height_px * lens.width_px, dtype=np.int64)
    if len(seen):
        image[pixel[first]] = np.add.reduceat(same.astype(float), first) / np.add.reduceat(same / depth[seen], first)
    index[pixel[first]] = seen[first]
    shape = (lens.height_px, lens.width_px)
    return image.reshape(shape), index.reshape(shape)
