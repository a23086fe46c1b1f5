"""Modes of a free elastic ball: their closed forms, and their frequencies as a simulation shows them.

The torsional mode (2, 0) twists the halves against each other: u = j₂(k r)/r² z (-y, x, 0), k R = 2.50113, with the
frequency 2.50113 c_s/(2π R), c_s = √(μ/ρ), for any Poisson's ratio (Lamb 1882). In the breathing mode all points move
along the radius, u = j₁(k r) r̂, tan x = x/(1 - x²/(4c²)) with x = k R = ω R/c_p and c = c_s/c_p: it tells about λ.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.sparse.linalg import eigsh
from scipy.special import spherical_jn

from soft_estimator.physics.matrices import assemble_matrices
from soft_estimator.physics.step import Simulation
from soft_estimator.scene.scene import Scene

ROOT_TORSION = 2.50113


def torsion_hz(young_pa: float, poisson: float, density_kg_m3: float, radius_m: float) -> float:
    """The closed form."""
    shear_speed = np.sqrt(young_pa / (2 * (1 + poisson)) / density_kg_m3)
    return float(ROOT_TORSION * shear_speed / (2 * np.pi * radius_m))


def torsion_shape(points_m: np.ndarray, radius_m: float, amplitude: float) -> np.ndarray:
    """Displacements (n, 3) [m] of the mode at points of a ball about the origin; the largest is amplitude · R."""
    r = np.maximum(np.linalg.norm(points_m, axis=1), 1e-9 * radius_m)
    twist = spherical_jn(2, ROOT_TORSION * r / radius_m) / r**2 * points_m[:, 2]
    u = twist[:, None] * np.stack([-points_m[:, 1], points_m[:, 0], np.zeros(len(r))], axis=1)
    return amplitude * radius_m * u / np.abs(u).max()


def breathing_hz(young_pa: float, poisson: float, density_kg_m3: float, radius_m: float) -> float:
    """The closed form of the lowest breathing mode."""
    shear_speed = np.sqrt(young_pa / (2 * (1 + poisson)) / density_kg_m3)
    return float(_breathing_root(poisson) * shear_speed / _speed_ratio(poisson) / (2 * np.pi * radius_m))


def breathing_shape(points_m: np.ndarray, radius_m: float, poisson: float, amplitude: float) -> np.ndarray:
    """Displacements (n, 3) [m] of the mode at points of a ball about the origin; the largest is amplitude · R."""
    r = np.maximum(np.linalg.norm(points_m, axis=1), 1e-9 * radius_m)
    u = (spherical_jn(1, _breathing_root(poisson) * r / radius_m) / r)[:, None] * points_m
    return amplitude * radius_m * u / np.abs(u).max()


def _speed_ratio(poisson: float) -> float:
    """c_s/c_p."""
    return float(np.sqrt((1 - 2 * poisson) / (2 - 2 * poisson)))


def _breathing_root(poisson: float) -> float:
    """The lowest x; multiplied out, so that nothing is divided by zero on the way: it lies between 1.5 and π."""
    square = 4 * _speed_ratio(poisson) ** 2
    return float(brentq(lambda x: (square - x * x) * np.sin(x) - square * x * np.cos(x), 1.5, np.pi))


def our_first_hz(scene: Scene) -> float:
    """The lowest frequency of our own discretisation, after the six rigid motions."""
    matrices = assemble_matrices(Simulation(scene.model, scene.parameters))
    # shifted below zero, since K of a free body is singular; rigid motions come out at rounding
    shift = -1e-2 * matrices.stiffness.diagonal().max() / sp.csr_matrix(matrices.mass).diagonal().max()
    squares = eigsh(matrices.stiffness, 9, matrices.mass, sigma=shift, which="LM", return_eigenvectors=False)
    hertz = np.sort(np.sqrt(np.maximum(squares, 0.0))) / (2 * np.pi)
    assert hertz[5] < 1e-3 * hertz[6]
    return float(hertz[6])


def crossing_hz(time_s: np.ndarray, signal: np.ndarray) -> float:
    """The frequency of an oscillation about zero, by its zero crossings, linear in between."""
    at = np.flatnonzero(signal[1:] * signal[:-1] < 0)
    assert len(at) >= 3, "fewer than three zero crossings"
    crossing = time_s[at] - signal[at] * (time_s[at + 1] - time_s[at]) / (signal[at + 1] - signal[at])
    return float((len(crossing) - 1) / (2 * (crossing[-1] - crossing[0])))
