"""A soft lamp and a bright sky: many lamps, each with a depth map of what it sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from soft_estimator.backends.cpu.shading import depth_maps, gather_light
from soft_estimator.camera.pinhole import PinholeCamera

# A warm lamp and a bluish sky, by eye.
KEY_COLOUR, SKY_COLOUR = np.array((1.00, 0.95, 0.87)), np.array((0.88, 0.94, 1.00))
KEY_STRENGTH, SKY_STRENGTH = 0.72, 0.50
# By eye: fewer lamps, or coarser depth maps, leave steps in the soft shadows.
KEY_LAMPS, SKY_LAMPS, MAP_SIZE_PX = 40, 56, 128
TURNS = 4  # samples of a pixel that share the lamps
LAMP_DISTANCE = 12.0  # of the scene's radius: far enough that rays are nearly parallel


@dataclass(frozen=True, eq=False)
class Lamps:
    """Lamps of one colour: frames (nl, 3, 3), positions [m] (nl, 3), weights (nl,) and their depth maps [m]."""

    rotations: np.ndarray
    positions: np.ndarray
    weights: np.ndarray
    focal_px: float
    maps_m: np.ndarray
    bias_m: float

    def light(self, points_m: np.ndarray, normals: np.ndarray, turn: np.ndarray | None = None) -> np.ndarray:
        """Light at these points, shape (n,).

        turn: in 0..3, rising, (n,): each point asks only that quarter of the lamps. The four samples of a pixel, which
        differ by little, then ask all of them together.
        """
        # lifting the point off the surface by a texel keeps a surface from shadowing itself
        lifted, weights = np.ascontiguousarray(points_m + self.bias_m * normals), self.weights
        if turn is not None:  # a quarter of the lamps is as strong as all
            number = np.arange(len(weights)) % TURNS
            weights = weights * (weights.sum() / np.bincount(number, weights))[number]
        frames = (self.positions, self.rotations, weights, self.focal_px)
        return gather_light(lifted, np.ascontiguousarray(normals), *frames, self.maps_m, self.bias_m, turn, TURNS)


def frame_around(up: Sequence[float] | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit vectors (up, side, across), right-handed as (side, across, up), side near world x where that is possible."""
    axis = np.asarray(up, dtype=np.float64)
    length = np.linalg.norm(axis)
    if not length > 0:
        raise ValueError(f"up direction {up} has no length: give three numbers, not all zero")
    axis = axis / length
    side = np.array((1.0, 0.0, 0.0)) if abs(axis[0]) < 0.9 else np.array((0.0, 1.0, 0.0))
    side = side - (side @ axis) * axis
    side /= np.linalg.norm(side)
    return axis, side, np.cross(axis, side)


def make_lamps(vertices: np.ndarray, faces: np.ndarray, camera: PinholeCamera, up: np.ndarray) -> tuple[Lamps, Lamps]:
    """The key light, over the viewer's left shoulder, and the sky, on vertices (nv, 3) [m] and faces (nf, 3)."""
    right, _, forward = camera.rotation.T
    towards = up + 0.75 * _level(-right, up) - 0.35 * _level(forward, up)
    towards /= np.linalg.norm(towards)
    _, side, across = frame_around(towards)
    turn, fraction = _spiral(KEY_LAMPS)
    spread = 0.12 * np.sqrt(fraction)[:, None]
    key = towards + spread * (np.cos(turn)[:, None] * side + np.sin(turn)[:, None] * across)
    _, side, across = frame_around(up)
    turn, height = _spiral(SKY_LAMPS)
    flat = np.sqrt(1 - height**2)[:, None]
    sky = height[:, None] * up + flat * (np.cos(turn)[:, None] * side + np.sin(turn)[:, None] * across)
    keys = _lamps(vertices, faces, key, np.full(KEY_LAMPS, 1 / KEY_LAMPS))
    return keys, _lamps(vertices, faces, sky, np.ones(SKY_LAMPS) / height.sum())


def _level(direction: np.ndarray, up: np.ndarray) -> np.ndarray:
    """The horizontal part of a direction, of unit length (or zero)."""
    flat = direction - (direction @ up) * up
    return flat / max(np.linalg.norm(flat), 1e-9)


def _spiral(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Angles [rad] and evenly spaced fractions in (0, 1) of a golden-angle spiral, shape (count,) each."""
    return np.pi * (3 - np.sqrt(5)) * np.arange(count), (np.arange(count) + 0.5) / count


def _lamps(vertices: np.ndarray, faces: np.ndarray, directions: np.ndarray, weights: np.ndarray) -> Lamps:
    """Lamps in these directions (nl, 3), far from the mesh, each with its depth map of it."""
    low, high = (vertices.min(axis=0), vertices.max(axis=0)) if len(vertices) else (np.zeros(3), np.ones(3))
    centre, radius = 0.5 * (low + high), max(0.5 * float(np.linalg.norm(high - low)), 1e-6)
    directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    positions = centre + LAMP_DISTANCE * radius * directions
    frames = [frame_around(-direction) for direction in directions]
    rotations = np.stack([np.stack([side, across, axis], axis=1) for axis, side, across in frames])
    focal = 0.5 * (MAP_SIZE_PX - 4) * (LAMP_DISTANCE - 1.0)
    maps = depth_maps(vertices, faces, positions, rotations, focal, MAP_SIZE_PX)
    return Lamps(rotations, positions, weights, focal, maps, 2.5 * radius / MAP_SIZE_PX)
