"""The depth noise of a camera, learnt from the table it looks at: what lies off a plane is noise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from soft_estimator.perception.cloud import Cloud
from soft_estimator.perception.plane import NoPlane, fit_support_plane
from soft_estimator.perception.settings import NoiseSettings, PlaneSettings

_NEAR_M = 0.02  # points farther from the plane are objects
_LEAST_SLANT = 0.25  # cosine of the incidence: rays that graze the table tell its height, not its depth
_LEAST_POINTS = 500
_LEAST_STD_M = 5e-5  # finer than any depth camera; a simulated one without noise must not claim perfection
_BLOCK = 4  # pixels to a side of the blocks whose means show what neighbours share


def learn_noise(
    clouds: Iterable[Cloud], start: NoiseSettings | None = None, plane: PlaneSettings | None = None
) -> tuple[NoiseSettings, str]:
    """Noise settings that fit what the table shows, and a line about them; the given ones where there is no table.

    The law a + b z² is scaled as a whole: one table spans too few depths to tell its two numbers apart.
    """
    start = start or NoiseSettings()
    ratios, shared = [], []
    for cloud in clouds:
        found = _residuals(cloud, start, plane)
        if found is None:
            continue
        ratio, kept = found
        ratios.append(1.4826 * float(np.median(np.abs(ratio[kept] - np.median(ratio[kept])))))
        if cloud.organised:
            shared.append(_shared_px(ratio, kept, cloud.points_m.shape[:2]))
    if not ratios:
        return start, "no table to learn the camera's noise from: a RealSense D435's is assumed"
    scale = float(np.median(ratios))
    law = replace(
        start,
        floor_m=max(scale * start.floor_m, _LEAST_STD_M),
        per_m=scale * start.per_m,
        shared_px=float(np.clip(np.median(shared), 1.0, 25.0)) if shared else start.shared_px,
    )
    return law, f"depth noise {scale:.2g} times that of a RealSense D435, learnt from the table in {len(ratios)} frames"


def _residuals(
    cloud: Cloud, noise: NoiseSettings, settings: PlaneSettings | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Depth errors of the table's points in units of the stated noise, (n,), and which points they are."""
    fit = fit_support_plane(cloud, settings, noise)
    if isinstance(fit, NoPlane):
        return None
    points = cloud.flat_m
    depth = (points - cloud.sensor_m) @ cloud.axis
    with np.errstate(invalid="ignore", divide="ignore"):
        ray = (points - cloud.sensor_m) / depth[:, None]
        slant = -(ray @ fit.normal)
        height = fit.height_m(points)
        kept = (np.abs(height) < _NEAR_M) & (slant > _LEAST_SLANT * np.linalg.norm(ray, axis=1))
        error = height / slant / (noise.floor_m + noise.per_m * depth**2)
    kept &= np.isfinite(error)
    return (error, kept) if int(kept.sum()) >= _LEAST_POINTS else None


def _shared_px(error: np.ndarray, kept: np.ndarray, shape: tuple[int, ...]) -> float:
    """Pixels that share one error: how much more block means vary than means of independent pixels would."""
    height, width = (n // _BLOCK * _BLOCK for n in shape)
    values = np.where(kept, error, np.nan).reshape(shape)[:height, :width]
    blocks = values.reshape(height // _BLOCK, _BLOCK, width // _BLOCK, _BLOCK).swapaxes(1, 2).reshape(-1, _BLOCK**2)
    whole = np.isfinite(blocks).all(axis=1)
    if whole.sum() < 20:
        return 1.0
    blocks = blocks[whole]
    single = 1.4826 * float(np.median(np.abs(blocks - np.median(blocks))))
    means = blocks.mean(axis=1)
    mean = 1.4826 * float(np.median(np.abs(means - np.median(means))))
    return (mean / max(single, 1e-12)) ** 2 * _BLOCK**2
