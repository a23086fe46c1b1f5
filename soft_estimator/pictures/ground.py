"""What is behind the objects of a picture: a checkered ground with the shade that falls on it, and the background."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from soft_estimator.camera.pinhole import PinholeCamera
from soft_estimator.pictures.colours import to_linear
from soft_estimator.pictures.lamps import KEY_COLOUR, KEY_STRENGTH, SKY_COLOUR, SKY_STRENGTH, Lamps, frame_around

BACKGROUND_TOP, BACKGROUND_BOTTOM = (0.87, 0.90, 0.94), (0.965, 0.97, 0.98)  # by eye: light


@dataclass(frozen=True, eq=False)
class Ground:
    """The checkered plane normal . x + offset_m = 0.

    Attributes:
        normal: points to the side the camera is on, shape (3,).
        offset_m: d in n . x + d = 0, n of unit length [m].
        tile_m: side of a tile [m]; a round number that fits the view by default.
        colours: sRGB of the two kinds of tile, shape (2, 3).
    """

    normal: Sequence[float] | np.ndarray = (0.0, 0.0, 1.0)
    offset_m: float = 0.0
    tile_m: float | None = None
    colours: tuple[Sequence[float], Sequence[float]] = ((0.92, 0.925, 0.935), (0.835, 0.85, 0.875))


@dataclass(frozen=True, eq=False)
class Backdrop:
    """What is seen where no object is: the background, and the ground that fades into it.

    It is the same in all pictures of a motion, but for the light on the ground. Linear RGB `steady + light · lit`.

    Attributes:
        depth_m: of the ground at every sample, (height · s, width · s), inf where there is none.
        steady, lit: at every sample, (height, s, width, s, 3). of_pixels: their means over each pixel, (height, width,
        3) each.
    """

    depth_m: np.ndarray
    steady: np.ndarray
    lit: np.ndarray
    of_pixels: tuple[np.ndarray, np.ndarray]

    def picture(self, light: np.ndarray) -> np.ndarray:
        """Linear RGB under the light on the ground, relative to that on open ground; (height, width, 3) both."""
        steady, lit = self.of_pixels
        return steady + light * lit

    def samples(self, rows: np.ndarray, columns: np.ndarray, light: np.ndarray) -> np.ndarray:
        """The samples of some pixels, (n, s, s, 3), under the light there, (n, 3)."""
        return self.steady[rows, :, columns] + light[:, None, None] * self.lit[rows, :, columns]


@lru_cache(maxsize=1)
def backdrop(ground: Ground | None, camera: PinholeCamera, fine: PinholeCamera) -> Backdrop:
    """The backdrop of a camera's pictures with the samples of a finer one; kept until another is asked for."""
    faded, tiles = _background(fine), np.zeros((fine.height_px, fine.width_px, 3))
    depth = np.full(faded.shape[:2], np.inf)
    if ground is not None and (height := _height_m(ground, fine)) > 0:  # seen from below it would only hide the scene
        depth, fade, tiles = _open_ground(ground, fine, height)
        faded = fade * faded
        steady, lit = 0.5 * faded, 0.5 * faded + tiles
    else:
        steady, lit = faded, tiles
    factor = fine.width_px // camera.width_px
    shape = (camera.height_px, factor, camera.width_px, factor, 3)
    steady, lit = steady.reshape(shape), lit.reshape(shape)
    return Backdrop(depth, steady, lit, (_mean_of_samples(steady), _mean_of_samples(lit)))


def _mean_of_samples(values: np.ndarray) -> np.ndarray:
    """Over the samples (height, s, width, s, 3) of each pixel. NumPy's own mean takes six times as long over them."""
    factor = values.shape[1]
    total = values[:, 0, :, 0].copy()
    for sample in range(1, factor * factor):
        total += values[:, sample // factor, :, sample % factor]
    return total / (factor * factor)


def _height_m(ground: Ground, camera: PinholeCamera) -> float:
    """Of the camera above the plane."""
    return float(frame_around(ground.normal)[0] @ camera.position_m + ground.offset_m / np.linalg.norm(ground.normal))


def _background(camera: PinholeCamera) -> np.ndarray:
    """Linear RGB of an empty picture, shape (height, width, 3)."""
    down = np.linspace(0.0, 1.0, camera.height_px)[:, None, None]
    colour = (1 - down) * to_linear(BACKGROUND_TOP) + down * to_linear(BACKGROUND_BOTTOM)
    return np.broadcast_to(colour, (camera.height_px, camera.width_px, 3))


def _open_ground(ground: Ground, fine: PinholeCamera, height: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Depth [m] of the plane, how far it fades into the background and what is left of its colour, per fine pixel."""
    normal, side, across = frame_around(ground.normal)
    rays = fine.rays()
    depth = _plane_depth(rays, fine, normal, height)
    seen = np.isfinite(depth)
    points = fine.to_world_frame((rays * np.where(seen, depth, 0.0)[..., None]).reshape(-1, 3))
    points = points.reshape(*depth.shape, 3)
    # everything scales with where the view's axis meets the plane, so a fixed camera gives a steady ground
    forward = fine.rotation[:, 2]
    reach = min(height / max(-float(forward @ normal), 1e-3), 6 * height)
    focus = fine.position_m + reach * forward
    tile = ground.tile_m or _round_length(reach / 11)
    u, v = points @ side / tile, points @ across / tile
    blend = _checker(u, v)[..., None]
    colour = (1 - blend) * to_linear(ground.colours[0]) + blend * to_linear(ground.colours[1])
    away = np.linalg.norm(points - focus, axis=-1) / reach
    fade = np.clip((away - 0.35) / 0.75, 0.0, 1.0)
    fade = np.where(seen, fade * fade * (3 - 2 * fade), 1.0)[..., None]
    return depth, fade, (1 - fade) * colour


def _plane_depth(rays: np.ndarray, camera: PinholeCamera, normal: np.ndarray, height: float) -> np.ndarray:
    """Depth [m] of a plane `height` [m] below the camera along its rays (rows, columns, 3), inf above the horizon."""
    towards = -(rays @ (normal @ camera.rotation))
    return np.where(towards > 1e-9, height / np.where(towards > 1e-9, towards, 1.0), np.inf)


def ground_light(ground: Ground | None, camera: PinholeCamera, key: Lamps, sky: Lamps) -> np.ndarray:
    """Light on the plane relative to that on open ground, linear RGB, (height, width, 3).

    Asked for at every other pixel each way, and linear between: a texel of the lamps' maps is as wide as two.
    """
    if ground is None or _height_m(ground, camera) <= 0:
        return np.ones((1, 1, 3))
    rows, columns, seen, points, normals = _asked_places(ground, camera)
    normal = frame_around(ground.normal)[0]
    open_key = float(np.maximum(-key.rotations[:, :, 2] @ normal, 0) @ key.weights)
    open_sky = float(np.maximum(-sky.rotations[:, :, 2] @ normal, 0) @ sky.weights)
    shares = KEY_STRENGTH * open_key * KEY_COLOUR, SKY_STRENGTH * open_sky * SKY_COLOUR
    light = np.ones((*seen.shape, 3))
    light[seen] = (key.light(points, normals) / open_key)[:, None] * shares[0]
    light[seen] += (sky.light(points, normals) / open_sky)[:, None] * shares[1]
    light[seen] /= shares[0] + shares[1]
    down = _between(light, rows, camera.height_px)
    return np.ascontiguousarray(_between(down.swapaxes(0, 1), columns, camera.width_px).swapaxes(0, 1))


@lru_cache(maxsize=1)
def _asked_places(
    ground: Ground, camera: PinholeCamera
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows and columns of pixels at which light is asked for, which of them see the plane, and where on it [m]; its
    normal there."""
    rows, columns = (np.append(np.arange(0, count - 1, 2), count - 1) for count in (camera.height_px, camera.width_px))
    rays, normal = camera.rays()[np.ix_(rows, columns)], frame_around(ground.normal)[0]
    depth = _plane_depth(rays, camera, normal, _height_m(ground, camera))
    seen = np.isfinite(depth)
    points = camera.to_world_frame(rays[seen] * depth[seen][:, None])
    return rows, columns, seen, points, np.tile(normal, (len(points), 1))


def _between(values: np.ndarray, places: np.ndarray, count: int) -> np.ndarray:
    """Values (n, ...) at these of `count` pixels at all of them, linear between."""
    at = np.arange(count)
    left = np.clip(np.searchsorted(places, at, side="right") - 1, 0, max(len(places) - 2, 0))
    right = np.minimum(left + 1, len(places) - 1)
    share = ((at - places[left]) / np.maximum(places[right] - places[left], 1)).reshape(-1, *[1] * (values.ndim - 1))
    return (1.0 - share) * values[left] + share * values[right]


def _checker(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """0..1 checkerboard of unit tiles, averaged over each pixel's footprint in u and in v."""
    waves = []
    for coordinate in (u, v):
        footprint = np.maximum(sum(np.abs(np.gradient(coordinate, axis=axis)) for axis in (0, 1)), 1e-9)
        low, high = (0.5 * (coordinate + sign * 0.5 * footprint) for sign in (-1, 1))
        triangle = [np.abs(x - np.floor(x) - 0.5) for x in (low, high)]  # the integral of a square wave
        waves.append(2.0 * (triangle[0] - triangle[1]) / footprint)
    return 0.5 - 0.5 * np.clip(waves[0], -1, 1) * np.clip(waves[1], -1, 1)


def _round_length(length_m: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is not above length_m [m]."""
    power = 10.0 ** np.floor(np.log10(length_m))
    return float(power * max(step for step in (1, 2, 5) if step * power <= length_m * (1 + 1e-9)))
