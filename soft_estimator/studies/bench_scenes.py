"""Bodies and models that `soft-estimator bench` times."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from soft_estimator.geometry.rigid import rotation_matrix
from soft_estimator.geometry.sdf_file import read_sdf
from soft_estimator.geometry.shapes import Box, Placed, Torus, sample
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import hht_scheme
from soft_estimator.physics.model import Model, build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import SolverSettings

STEP_S = 0.005  # of the built-in scenes
Scene = tuple[Body, FixedRegion, Parameters]


@cache
def torus(spacing_m: float) -> Scene:
    """The built-in swinging_torus at another resolution; 2.98 mm gives about 9,200 nodes."""
    ring = Placed(Torus(0.035, 0.015, axis=(0, 0, 1)), rotation_matrix(np.array([np.pi / 4, 0, 0])).tolist(), (0, 0, 0))
    grip = FixedRegion(Box((0.024, 0.021, 0.021), (0, 0.0345, 0.0345)))
    return build_body(sample(ring, spacing_m)), grip, Parameters(np.array([2e4]), 0.3, 1000.0, 0.2, 1e-3)


@cache
def dragon(file: Path) -> Scene:
    """The built-in dragon, held by its head, on the grid of its file."""
    grip = FixedRegion(Box((0.07, 0.037, 0.12), (-0.045, 0.1315, 0.0)))
    return build_body(read_sdf(file, spacing_m=0.003)), grip, Parameters(np.array([5e4]), 0.35, 1000.0, 0.2, 1e-3)


@cache
def block(nodes: int) -> Scene:
    """A 20 cm cube of about so many nodes, held at one side."""
    cells = max(2, round(nodes ** (1 / 3)) - 1)
    body = build_body(sample(Box((0.2, 0.2, 0.2)), 0.2 / cells))
    return body, FixedRegion(Box((0.01, 0.3, 0.3), (-0.1, 0, 0))), Parameters(np.array([5e4]), 0.3, 1000.0, 0.2, 1e-3)


def torus_of(nodes: int) -> Scene:
    """The torus with about so many nodes."""
    return torus(round(0.00298 * (9200 / nodes) ** (1 / 3), 6))


SCENES: dict[str, Callable[[int], Scene]] = {"torus": torus_of, "block": block}


def model_of(body: Body, grip: FixedRegion, dtype: type, tolerance: float = 1e-6) -> Model:
    solver = SolverSettings(tolerance, 5000)
    return build_model(body, hht_scheme(STEP_S, -0.1), fixed=[grip], solver=solver, dtype=dtype)
