"""A simulated stereo RGB-D sensor: its noise, and the frames it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from soft_estimator.backends.cpu.depth_noise import facing, look_beside
from soft_estimator.camera.pinhole import Mesh, PinholeCamera, depth_and_mesh_images, points_from_depth
from soft_estimator.config_estimation import NoiseConfig

_DEFAULT = NoiseConfig()  # the configuration is the home of defaults


@dataclass(frozen=True)
class DepthNoise:
    """Noise of a stereo depth sensor; the defaults resemble an Intel RealSense D435.

    A stereo matcher's error is a fraction of a pixel of disparity f B / z, so depth errs with z² / (f B): with focal
    length f = 640 px (1280x720), baseline B = 50 mm and 0.08 px that is 2.5 mm at one metre. Disparity comes in steps
    of 1/32 px. Applied in this order: lateral jitter, flying pixels, axial noise, quantisation, range, dropout. Every
    part is switched off by a zero (max_range_m by infinity).

    Attributes:
        axial_floor_m: a in std = a + b z² [m].
        axial_per_m: b in std = a + b z² [1/m].
        lateral_std_px: std of where in the image a pixel really looks [px].
        baseline_m: B [m], for quantisation.
        disparity_steps_per_px: disparity levels per pixel; depth step = z² / (f B steps).
        flying_probability: chance that a pixel at a depth edge gets a depth between the two surfaces.
        edge_relative: a step to the next pixel of more than this fraction of the depth is an edge.
        background_m: depth assumed where nothing is seen [m], only for flying pixels.
        dropout_probability: chance that a pixel seen head-on is lost.
        grazing_dropout_probability: chance at grazing incidence; between them p = p0 + (p1 - p0) (1 - cos)^4.
        min_range_m, max_range_m: measured depths outside are lost [m].
    """

    axial_floor_m: float = _DEFAULT.axial_floor_m
    axial_per_m: float = _DEFAULT.axial_per_m
    lateral_std_px: float = _DEFAULT.lateral_std_px
    baseline_m: float = _DEFAULT.baseline_m
    disparity_steps_per_px: float = _DEFAULT.disparity_steps_per_px
    flying_probability: float = _DEFAULT.flying_probability
    edge_relative: float = _DEFAULT.edge_relative
    background_m: float = _DEFAULT.background_m
    dropout_probability: float = _DEFAULT.dropout_probability
    grazing_dropout_probability: float = _DEFAULT.grazing_dropout_probability
    min_range_m: float = _DEFAULT.min_range_m
    max_range_m: float = _DEFAULT.max_range_m

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value >= 0:
                raise ValueError(f"DepthNoise.{name} is {value}: give a number of at least 0")
            if name.endswith("probability") and value > 1:
                raise ValueError(f"DepthNoise.{name} is {value}: a probability lies between 0 and 1")

    def std_m(self, depth_m: np.ndarray | float, camera: PinholeCamera | None = None) -> np.ndarray:
        """Axial standard deviation [m] at these depths [m]; with a camera, the quantisation's step²/12 is added in."""
        depth = np.asarray(depth_m, dtype=np.float64)
        std = self.axial_floor_m + self.axial_per_m * depth**2
        return std if camera is None else np.hypot(std, self.depth_step_m(depth, camera) / np.sqrt(12.0))

    def depth_step_m(self, depth_m: np.ndarray, camera: PinholeCamera) -> np.ndarray:
        """Spacing [m] of the depths the sensor can express around these depths [m]; zero when not quantised."""
        per_disparity = camera.fx_px * self.baseline_m * self.disparity_steps_per_px
        return depth_m**2 / per_disparity if per_disparity > 0 else np.zeros_like(depth_m)

    def apply(self, depth_m: np.ndarray, camera: PinholeCamera, rng: np.random.Generator) -> np.ndarray:
        """A noisy copy of a depth image [m], shape (height, width), 0 where nothing is measured."""
        exact = np.asarray(depth_m, dtype=np.float64)
        depth = self._jittered(exact, rng) if self.lateral_std_px > 0 else exact
        if self.flying_probability > 0:
            depth = self._with_flying_pixels(depth, rng)
        depth = np.where(depth > 0, depth + self.std_m(depth) * rng.standard_normal(depth.shape), 0.0)
        depth = self._quantised(depth, camera)
        depth = np.where((depth >= max(self.min_range_m, 1e-9)) & (depth <= self.max_range_m), depth, 0.0)
        if self.dropout_probability > 0 or self.grazing_dropout_probability > 0:
            lost = rng.random(depth.shape) < self.dropout_chance(exact, camera)
            depth = np.where(lost, 0.0, depth)
        return depth

    def dropout_chance(self, depth_m: np.ndarray, camera: PinholeCamera) -> np.ndarray:
        """Probability that each pixel is lost, shape (height, width), from the incidence angle in the exact depth."""
        grazing = np.square(np.square(1.0 - incidence_cosine(camera, depth_m)))
        return self.dropout_probability + (self.grazing_dropout_probability - self.dropout_probability) * grazing

    def _jittered(self, depth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Every pixel looks a little beside itself: 1/z interpolated (exact on a plane), the nearest pixel at edges."""
        shift = self.lateral_std_px * rng.standard_normal((2, *depth.shape))
        out = np.empty(depth.shape)
        look_beside(np.ascontiguousarray(depth), shift, self.edge_relative, out)
        return out

    def _with_flying_pixels(self, depth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Some pixels beside an edge get a depth between their own and that across the edge.

        An edge is a step to the neighbour that the step on the other side does not predict: an oblique plane, on which
        1/z is linear, has none however steep it is.
        """
        flies, share = rng.random(depth.shape) < self.flying_probability, rng.random(depth.shape)
        v, u = np.nonzero(flies)  # no other pixel asks for its neighbours
        padded = np.pad(np.where(depth > 0, depth, self.background_m), 1, mode="edge")
        left, right, above, below = padded[v + 1, u], padded[v + 1, u + 2], padded[v, u + 1], padded[v + 2, u + 1]
        own = depth[v, u]
        largest: np.ndarray = np.zeros(len(v))
        across, safe = own.copy(), np.where(own > 0, own, 1.0)
        for ahead, behind in ((left, right), (right, left), (above, below), (below, above)):
            ahead, behind = np.where(ahead > 0, ahead, safe), np.where(behind > 0, behind, safe)
            step = np.abs(ahead - safe) / np.minimum(ahead, safe)
            bend = np.abs(safe / ahead + safe / behind - 2.0)
            edge = (own > 0) & (step > self.edge_relative) & (bend > self.edge_relative) & (step > largest)
            across, largest = np.where(edge, ahead, across), np.where(edge, step, largest)
        out = depth.copy()
        out[v, u] = own + (across - own) * share[v, u]
        return out

    def _quantised(self, depth: np.ndarray, camera: PinholeCamera) -> np.ndarray:
        """Depths whose disparity f B / z is a whole number of steps; zero disparity is nothing measured."""
        scale = camera.fx_px * self.baseline_m * self.disparity_steps_per_px
        if scale <= 0:
            return depth
        level = np.rint(scale / np.where(depth > 0, depth, np.inf))
        return np.where(level > 0, scale / np.maximum(level, 1.0), 0.0)


def incidence_cosine(camera: PinholeCamera, depth_m: np.ndarray) -> np.ndarray:
    """Cosine between each ray and the surface normal, shape (height, width); 1 where nothing is seen.

    On a plane n.p = c the inverse depth is (n/c).d with d the ray, linear in the image: its slopes give n/c. Of the two
    one-sided slopes the smaller is taken, the one that stays on the surface at an edge.
    """
    out = np.empty(depth_m.shape)
    facing(np.ascontiguousarray(depth_m, dtype=np.float64), camera.rays(), camera.fx_px, camera.fy_px, out)
    return out


@dataclass(frozen=True, eq=False)
class DepthFrame:
    """What one camera saw.

    Attributes:
        points_m: seen points in the world [m], shape (n, 3), in row-major pixel order.
        std_m: standard deviation of each point's depth, along the camera's z axis [m], shape (n,); zero without noise.
        pixel: (u, v) of each point, int32, shape (n, 2).
        depth_m: depth image [m], shape (height, width), 0 where nothing was measured.
        mesh_index: which mesh the pixel's true ray hits, int32, shape (n,); -1 for a point that lateral jitter put just
            outside every outline.
        camera: the camera.
    """

    points_m: np.ndarray
    std_m: np.ndarray
    pixel: np.ndarray
    depth_m: np.ndarray
    mesh_index: np.ndarray
    camera: PinholeCamera


def observe(
    camera: PinholeCamera,
    vertices_m: np.ndarray,
    faces: np.ndarray,
    noise: DepthNoise | None = None,
    rng: np.random.Generator | None = None,
) -> DepthFrame:
    """One frame of one mesh; see `observe_meshes`."""
    return observe_meshes(camera, [(vertices_m, faces)], noise, rng)


def observe_meshes(
    camera: PinholeCamera,
    meshes: Sequence[Mesh],
    noise: DepthNoise | None = None,
    rng: np.random.Generator | None = None,
) -> DepthFrame:
    """One frame of several meshes that hide each other (an object and its table, say), noisy when `noise` is given."""
    depth, mesh_index = depth_and_mesh_images(camera, meshes)
    if noise is not None:
        if rng is None:
            raise ValueError("a noisy frame needs rng: pass numpy.random.default_rng(seed)")
        depth = noise.apply(depth, camera, rng)
    seen = depth > 0
    v, u = np.nonzero(seen)
    std = np.zeros(len(u)) if noise is None else noise.std_m(depth[seen], camera)
    pixel = np.stack([u, v], axis=-1).astype(np.int32)
    return DepthFrame(points_from_depth(camera, depth), std, pixel, depth, mesh_index[seen], camera)
