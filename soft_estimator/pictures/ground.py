"""The checkered ground of a picture, with what shade falls on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from soft_estimator.camera.pinhole import PinholeCamera
from soft_estimator.pictures.colours import to_linear
from soft_estimator.pictures.lamps import KEY_COLOUR, KEY_STRENGTH, SKY_COLOUR, SKY_STRENGTH, Lamps, frame_around


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


def paint_ground(
    picture: np.ndarray, ground: Ground, camera: PinholeCamera, fine: PinholeCamera, key: Lamps, sky: Lamps
) -> np.ndarray:
    """Paint the plane into a linear RGB picture; returns its depth [m], inf where it is not seen."""
    normal = frame_around(ground.normal)[0]
    height = float(normal @ fine.position_m + ground.offset_m / np.linalg.norm(ground.normal))
    if height <= 0:  # seen from below it would only hide the scene
        return np.full(picture.shape[:2], np.inf)
    depth, fade, colour = _open_ground(ground, fine, height)
    lit = _ground_light(camera, fine, normal, height, key, sky)
    picture[:] = fade * picture * (0.5 + 0.5 * lit) + colour * lit
    return depth.copy()


@lru_cache(maxsize=1)
def _open_ground(ground: Ground, fine: PinholeCamera, height: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Depth [m] of the plane, how far it fades into the background and the colour that is left of it, per fine pixel.

    The same for every picture of a motion: kept until another camera or plane is asked for.
    """
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


def _ground_light(
    camera: PinholeCamera, fine: PinholeCamera, normal: np.ndarray, height: float, key: Lamps, sky: Lamps
) -> np.ndarray:
    """Light on the plane relative to that on open ground, linear RGB per fine pixel.

    Asked for at every other pixel each way, and linear between: a texel of the lamps' maps is as wide as two.
    """
    rows, columns = (np.append(np.arange(0, count - 1, 2), count - 1) for count in (camera.height_px, camera.width_px))
    rays = camera.rays()[np.ix_(rows, columns)]
    depth = _plane_depth(rays, camera, normal, height)
    seen = np.isfinite(depth)
    points = camera.to_world_frame(rays[seen] * depth[seen][:, None])
    normals = np.broadcast_to(normal, points.shape)
    open_key = float(np.maximum(-key.rotations[:, :, 2] @ normal, 0) @ key.weights)
    open_sky = float(np.maximum(-sky.rotations[:, :, 2] @ normal, 0) @ sky.weights)
    shares = KEY_STRENGTH * open_key * KEY_COLOUR, SKY_STRENGTH * open_sky * SKY_COLOUR
    light = np.ones((*depth.shape, 3))
    light[seen] = (key.light(points, normals) / open_key)[:, None] * shares[0]
    light[seen] += (sky.light(points, normals) / open_sky)[:, None] * shares[1]
    light[seen] /= shares[0] + shares[1]
    factor = fine.width_px // camera.width_px
    down, across = _between(rows, fine.height_px, factor), _between(columns, fine.width_px, factor)
    return np.einsum("ri,cj,ijk->rck", down, across, light, optimize=["einsum_path", (0, 2), (0, 1)])


def _between(places: np.ndarray, count: int, factor: int) -> np.ndarray:
    """Weights (count, n) of values at these pixels at the centres of pixels `factor` times as fine, linear between."""
    at = np.clip((np.arange(count) + 0.5) / factor - 0.5, places[0], places[-1])
    left = np.clip(np.searchsorted(places, at, side="right") - 1, 0, max(len(places) - 2, 0))
    right = np.minimum(left + 1, len(places) - 1)
    share = (at - places[left]) / np.maximum(places[right] - places[left], 1)
    out = np.zeros((count, len(places)))
    out[np.arange(count), left] = 1.0 - share
    out[np.arange(count), right] += share
    return out


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
