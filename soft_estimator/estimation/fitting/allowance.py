"""How far residuals of a good fit may be off together."""

from __future__ import annotations

import math

import numpy as np

from soft_estimator.config_parameters import KnownToConfig
from soft_estimator.physics.body import Body

# Part of a cell by which residuals of a good fit may be off in patches: the field between nodes is not the surface.
_GRID_SHARE = 0.03
# The same of a noise in all directions: points are thrown around the body's curves, to one side more than to the other.
_ISOTROPIC_SHARE = 0.3

# Times what the shape is known to: neighbouring patches that are off together, as those of a body that was scanned
# while it sagged, are not as unlikely as patches that are each off by themselves.
OFF_TOGETHER = 3.0


def shape_std_m(known: KnownToConfig, body: Body) -> float:
    """How far patches of the shape may lie off as they are known [m]."""
    radius = 0.5 * float(np.ptp(body.surface_positions_m(), axis=0).max())
    return math.hypot(known.shape_offset_m, 0.5 * known.shape_scale * radius)


def allowance_m(known: KnownToConfig, body: Body, isotropic_std_m: float = 0.0) -> float:
    """How far patches may be off without a complaint [m]: what the shape is known to, the grid's own error, and what
    isotropic noise does on a curved surface."""
    grid = math.hypot(_GRID_SHARE * body.grid.spacing_m, _ISOTROPIC_SHARE * isotropic_std_m)
    return math.hypot(shape_std_m(known, body), grid)
