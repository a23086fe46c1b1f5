"""How a body lies on a table whose contact begins softly."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from soft_estimator.geometry.surface import face_areas_m2

_HIGHEST_M = 0.1  # far above any contact's onset


def floats_by_m(
    vertices_m: np.ndarray, faces: np.ndarray, weight_n: float, stiffness_pa_per_m: float, sharpness_per_m: float
) -> float:
    """How far [m] below a table at z = 0 the plane of the contact is, for a body to lie on it as it lies on the table.

    A light body with a wide base is carried before it touches: Σ A k log(1 + exp(-a (z + d)))/a = m g over the
    triangles' areas A and middles z. One that would have to sink in gives way itself, and the plane is the table: 0.
    """
    area, z = face_areas_m2(vertices_m, faces), vertices_m[faces][:, :, 2].mean(axis=1)

    def short_n(d: float) -> float:
        pressed = stiffness_pa_per_m / sharpness_per_m * np.logaddexp(0.0, -sharpness_per_m * (z + d))
        return weight_n - float(area @ pressed)

    return float(brentq(short_n, 0.0, _HIGHEST_M)) if short_n(0.0) < 0 else 0.0
