"""The rest shape that an estimate was made with, kept beside its numbers: a scene's mesh or scan may move or change."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from soft_estimator.geometry.array_files import one_line, read_npz
from soft_estimator.geometry.body_file import body_bytes, read_body
from soft_estimator.geometry.grid import SignedDistanceGrid
from soft_estimator.physics.body import Body

REST_SHAPE = "rest_shape.npz"


@dataclass(frozen=True)
class RestShape:
    """A body at rest: grid: φ as it was simulated. volume_m3: of its cells. centroid_m: what it turns about, (3,)."""

    grid: SignedDistanceGrid
    volume_m3: float
    centroid_m: np.ndarray

    @classmethod
    def of(cls, body: Body) -> RestShape:
        return cls(body.grid, body.volume_m3, body.centroid_m)


def rest_shape_bytes(body: Body) -> bytes:
    """The content of rest_shape.npz."""
    return body_bytes(body.grid, volume_m3=body.volume_m3, centroid_m=body.centroid_m)


def read_rest_shape(path: Path) -> RestShape:
    """Read rest_shape.npz."""
    grid = read_body(path)
    try:
        volume, centroid = read_npz(path, ("volume_m3", "centroid_m"), 8 * 3)
    except ValueError as error:
        raise ValueError(f"{path} is no rest shape ({one_line(error)}); write the result anew") from error
    numbers = np.concatenate([volume.ravel(), centroid.ravel()])
    if numbers.shape != (4,) or numbers.dtype.kind != "f" or not (np.isfinite(numbers).all() and numbers[0] > 0):
        raise ValueError(f"{path} has volume_m3 = {volume} and centroid_m = {centroid}; write the result anew")
    return RestShape(grid, float(numbers[0]), numbers[1:])
