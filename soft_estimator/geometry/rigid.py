"""Rotation vectors and rigid motions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


def skew(w: np.ndarray) -> np.ndarray:
    """[w]ₓ, so that [w]ₓ y = w × y."""
    return np.array([[0.0, -w[2], w[1]], [w[2], 0.0, -w[0]], [-w[1], w[0], 0.0]])


def quaternion(rotation: np.ndarray) -> np.ndarray:
    """The unit quaternion (x, y, z, w) of a rotation matrix (3, 3), which SciPy 1.11 wants writable."""
    from scipy.spatial.transform import Rotation  # half a second that most commands do not need

    return np.asarray(Rotation.from_matrix(np.array(rotation)).as_quat())


def rotation_matrix(rotation_rad: np.ndarray) -> np.ndarray:
    """Rodrigues' formula: the rotation by |r| about r."""
    r = np.asarray(rotation_rad, dtype=np.float64)
    angle = float(np.linalg.norm(r))
    k = skew(r)
    if angle < 1e-6:  # series, to rounding
        return np.eye(3) + (1 - angle**2 / 6) * k + (0.5 - angle**2 / 24) * (k @ k)
    return np.eye(3) + np.sin(angle) / angle * k + (1 - np.cos(angle)) / angle**2 * (k @ k)


def left_jacobian(rotation_rad: np.ndarray) -> np.ndarray:
    """J with exp([r + δ]ₓ) ≈ exp([J δ]ₓ) exp([r]ₓ): how a change of the rotation vector turns the body."""
    r = np.asarray(rotation_rad, dtype=np.float64)
    angle = float(np.linalg.norm(r))
    k = skew(r)
    if angle < 1e-4:
        return np.eye(3) + (0.5 - angle**2 / 24) * k + (1 / 6 - angle**2 / 120) * (k @ k)
    return np.eye(3) + (1 - np.cos(angle)) / angle**2 * k + (angle - np.sin(angle)) / angle**3 * (k @ k)


@dataclass(frozen=True)
class RigidPath:
    """A rigid motion along waypoints, linear in between and at rest before the first and after the last.

    Attributes:
        time_s: increasing times (W,). translation_m, rotation_rad: (W, 3), the rotation vector about `centre_m`.
        centre_m: point the rotation turns about, (3,).
    """

    time_s: np.ndarray = field(default_factory=lambda: np.zeros(1))
    translation_m: np.ndarray = field(default_factory=lambda: np.zeros((1, 3)))
    rotation_rad: np.ndarray = field(default_factory=lambda: np.zeros((1, 3)))
    centre_m: np.ndarray = field(default_factory=lambda: np.zeros(3))

    def __post_init__(self) -> None:
        if np.any(np.diff(self.time_s) <= 0):
            raise ValueError(f"waypoint times must increase, got {np.asarray(self.time_s).tolist()}")

    @property
    def moves(self) -> bool:
        return bool(np.any(self.translation_m) or np.any(self.rotation_rad))

    def at(self, time_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Rotation Q (3, 3) and shift b (3,) [m] at a time: x ↦ Q x + b."""
        blend = [
            np.array([np.interp(time_s, self.time_s, column) for column in np.asarray(values).T])
            for values in (self.translation_m, self.rotation_rad)
        ]
        q = rotation_matrix(blend[1])
        return q, self.centre_m - q @ self.centre_m + blend[0]


def turns_all_around(count: int) -> np.ndarray:
    """Turns spread evenly, (count, 3, 3): super-Fibonacci spirals (Alexa 2022)."""
    from scipy.spatial.transform import Rotation

    s = np.arange(count) + 0.5
    inner, outer = np.sqrt(s / count), np.sqrt(1 - s / count)
    a, b = 2 * np.pi * s / np.sqrt(2.0), 2 * np.pi * s / 1.533751168755204288118041
    quaternions = np.stack([inner * np.sin(a), inner * np.cos(a), outer * np.sin(b), outer * np.cos(b)], axis=1)
    return np.asarray(Rotation.from_quat(quaternions).as_matrix())


def angle_between(a: np.ndarray, b: np.ndarray) -> float:
    """Angle [rad] between two turns (3, 3)."""
    return float(np.arccos(np.clip((np.sum(a * b) - 1) / 2, -1, 1)))
