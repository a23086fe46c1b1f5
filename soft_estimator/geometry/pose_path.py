"""Poses over time, of a tool or of anything else that is led: read from a CSV file, joined by even motions.

    time_s,x_m,y_m,z_m,qx,qy,qz,qw

is the file's first line; a line for each time follows, in seconds, metres and a unit quaternion: the pose of the tool's
frame in the world.
"""

from __future__ import annotations

import csv
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from soft_estimator.geometry.rigid import rotation_matrix, skew

COLUMNS = ("time_s", "x_m", "y_m", "z_m", "qx", "qy", "qz", "qw")
MOST_BYTES = 64 << 20
_UNIT_WITHIN = 1e-2  # a quaternion further from length 1 than this was not meant as one


@dataclass(frozen=True, eq=False)
class PosePath:
    """Poses x ↦ Q x + b at rising times; between them it moves and turns evenly, outside of them it rests.

    Attributes:
        time_s: (W,). rotation: Q, (W, 3, 3). translation_m: b, (W, 3).
    """

    time_s: np.ndarray
    rotation: np.ndarray
    translation_m: np.ndarray

    def __post_init__(self) -> None:
        if len(self.time_s) == 0 or (np.diff(self.time_s) <= 0).any():
            raise ValueError("a path's times must rise from pose to pose, and there must be one; sort its lines")
        turns = np.swapaxes(self.rotation[:-1], 1, 2) @ self.rotation[1:]
        object.__setattr__(self, "_turns", np.array([rotation_vector(turn) for turn in turns]).reshape(-1, 3))

    def _between(self, time_s: float) -> tuple[int, float]:
        """The interval that a time lies in, and how far it is into it, 0-1; -1 outside of all."""
        if not self.time_s[0] <= time_s < self.time_s[-1]:
            return -1, 0.0
        k = int(np.searchsorted(self.time_s, time_s, side="right")) - 1
        return k, float((time_s - self.time_s[k]) / (self.time_s[k + 1] - self.time_s[k]))

    def at(self, time_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Q (3, 3) and b (3,) [m] at a time."""
        k, share = self._between(time_s)
        if k < 0:
            end = 0 if time_s < self.time_s[0] else -1
            return self.rotation[end], self.translation_m[end]
        turn = self.rotation[k] @ rotation_matrix(share * self._turns[k])  # type: ignore[attr-defined]
        return turn, (1 - share) * self.translation_m[k] + share * self.translation_m[k + 1]

    def motion(self, time_s: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Drift (3,) [m/s] and spin (3, 3) [1/s]: what is carried along moves at drift + spin x; None at rest."""
        k, _ = self._between(time_s)
        if k < 0:
            return None
        turn, shift = self.at(time_s)
        lasts = self.time_s[k + 1] - self.time_s[k]
        # Q turns about an axis of its own frame, which is the same at both ends of an interval.
        spin = skew(turn @ (self._turns[k] / lasts))  # type: ignore[attr-defined]
        return (self.translation_m[k + 1] - self.translation_m[k]) / lasts - spin @ shift, spin


def rotation_vector(turn: np.ndarray) -> np.ndarray:
    """Axis times angle [rad], (3,), of a rotation (3, 3)."""
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_matrix(turn).as_rotvec())


def read_pose_path(path: Path | str) -> PosePath:
    """Read a CSV file; a mistake in it is a ValueError of one line."""
    from scipy.spatial.transform import Rotation

    numbers = read_numbers(path, COLUMNS)
    length = np.linalg.norm(numbers[:, 4:], axis=1)
    wrong = np.flatnonzero(np.abs(length - 1.0) > _UNIT_WITHIN)
    if len(wrong):
        raise ValueError(f"{path}: the quaternion of line {wrong[0] + 2} has length {length[wrong[0]]:.3g}; make it 1")
    return PosePath(numbers[:, 0], Rotation.from_quat(numbers[:, 4:]).as_matrix(), numbers[:, 1:4].copy())


def read_numbers(path: Path | str, columns: tuple[str, ...]) -> np.ndarray:
    """The numbers (lines, columns) of a CSV file whose first line names its columns and whose first column is rising
    time; a mistake in it is a ValueError of one line."""
    try:
        size = Path(path).stat().st_size
        if size > MOST_BYTES:
            raise ValueError(f"it has {size} bytes, over the {MOST_BYTES} that are read")
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if "".join(row).strip()]
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"{path} is not a text table ({' '.join(str(error).split())}); write it anew") from None
    if not rows or [name.strip() for name in rows[0]] != list(columns):
        first = ",".join(rows[0])[:60] if rows else ""
        raise ValueError(f"{path}: its first line '{first}' must read {','.join(columns)}")
    out = np.full((len(rows) - 1, len(columns)), np.nan)
    for k, row in enumerate(rows[1:]):
        with suppress(ValueError):
            out[k] = [float(field) for field in row] if len(row) == len(columns) else np.nan
        if not np.isfinite(out[k]).all():
            raise ValueError(f"{path}: line {k + 2} holds '{','.join(row)[:60]}', not {len(columns)} numbers")
    if len(out) == 0 or (np.diff(out[:, 0]) <= 0).any():
        raise ValueError(f"{path}: time_s must rise from line to line, and there must be one; sort the lines")
    return out
