"""The linear elastic material that elasticity and weakly held surfaces share: E of each cell, λ and μ for E = 1."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.physics.device_body import DeviceBody
from soft_estimator.physics.gradient import ParameterGradient
from soft_estimator.physics.parameters import Parameters, lame, lame_slope
from soft_estimator.physics.terms.interface import Directions


class LinearMaterial:
    """Attributes: lam, mu: Lamé parameters for E = 1."""

    parameters = ("youngs_modulus_pa", "poissons_ratio", "stiffness_damping_s")

    def __init__(self, device: DeviceBody, values: Parameters) -> None:
        self.device, self.values, self.region = device, values, device.body.cell_region
        self.lam, self.mu = lame(values.poissons_ratio)

    @cached_property
    def young(self) -> Array:
        """E of the cells [Pa], (C,), on the device."""
        return self.device.up(self.values.youngs_modulus_pa[self.region])

    def push(self, directions: Directions) -> tuple[np.ndarray, np.ndarray]:
        """Changes of λ and μ in each region, relative to its E, (R, width), on the host."""
        p = self.values
        stiffer = directions.column("youngs_modulus_pa") / p.youngs_modulus_pa[:, None]
        slope, change = lame_slope(p.poissons_ratio), directions.column("poissons_ratio")
        return self.lam * stiffer + slope[0] * change, self.mu * stiffer + slope[1] * change

    def pull(self, lame_bar: np.ndarray, gradient: ParameterGradient, cells: np.ndarray | None = None) -> None:
        """Add to E of each region and ν, given derivatives (S, 2) by λ and μ, relative to E, of all or some cells."""
        p, region = self.values, self.region if cells is None else self.region[cells]
        gradient.poissons_ratio += float(lame_bar.sum(axis=0) @ lame_slope(p.poissons_ratio))
        by_young = np.bincount(region, lame_bar @ np.array([self.lam, self.mu]), len(p.youngs_modulus_pa))
        gradient.youngs_modulus_pa += by_young / p.youngs_modulus_pa
