"""Depth and energy of soft contact at given distances, over whole arrays: mostly exponentials and logarithms.

They are computed for the points near the obstacle alone: of a body in the air there is none.
"""

from __future__ import annotations

import numpy as np
from scipy.special import spence

_REACH = 60.0  # widths of the onset; beyond, less than e⁻⁶⁰ of it is left


def soft_depths(distance: np.ndarray, sharpness: float, depth: np.ndarray, slope: np.ndarray) -> None:
    """log(1 + exp(-a δ))/a [m] and σ = 1/(1 + exp(a δ)), both safe for any a δ."""
    near = np.flatnonzero(distance < _REACH / sharpness)
    t = sharpness * distance[near]
    e = np.exp(-abs(t))
    depth[...] = slope[...] = 0.0
    depth[near] = (np.log1p(e) - np.minimum(t, 0.0)) / sharpness
    slope[near] = np.where(t >= 0.0, e, 1.0) / (1.0 + e)


def soft_energies(distance: np.ndarray, sharpness: float, out: np.ndarray) -> None:
    near = np.flatnonzero(distance < _REACH / sharpness)
    out[...] = 0.0
    out[near] = softplus_integral(sharpness, distance[near])


def softplus_integral(sharpness_per_m: float, distance_m: np.ndarray) -> np.ndarray:
    """∫ from δ to ∞ of log(1 + exp(-a t))/a dt = -Li₂(-exp(-a δ))/a² [m²], without overflow."""
    t = -sharpness_per_m * np.asarray(distance_m)
    small = np.exp(-np.abs(t))
    dilogarithm = -spence(1.0 + small)  # -Li₂(-e^-|t|)
    deep = np.pi**2 / 6 + 0.5 * t**2 - dilogarithm
    return np.where(t > 0, deep, dilogarithm) / sharpness_per_m**2
