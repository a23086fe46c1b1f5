"""Everything about a simulation that may be estimated, in SI units."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


def lame(poissons_ratio: float) -> tuple[float, float]:
    """Lamé parameters λ, μ of a material with Young's modulus 1."""
    nu = poissons_ratio
    return nu / ((1 + nu) * (1 - 2 * nu)), 0.5 / (1 + nu)


def lame_slope(poissons_ratio: float) -> tuple[float, float]:
    """Derivatives of λ, μ (for Young's modulus 1) by Poisson's ratio."""
    nu = poissons_ratio
    return (1 + 2 * nu**2) / ((1 + nu) * (1 - 2 * nu)) ** 2, -0.5 / (1 + nu) ** 2


@dataclass(frozen=True)
class Parameters:
    """Material, loads, contact plane and start of a simulation.

    Attributes:
        youngs_modulus_pa: E of each material region [Pa], (R,). poissons_ratio: ν. density_kg_m3: ρ.
        mass_damping_per_s, stiffness_damping_s: Rayleigh α₁ [1/s] and α₂ [s]: D = α₁ M + α₂ K.
        gravity_m_s2: (3,). plane_normal: (3,), used as given, unit length expected. plane_offset_m: d in n·x + d = 0.
        translation_m, rotation_rad: initial pose, rotation vector about the body's centroid.
        velocity_m_s, angular_velocity_rad_s: initial motion, the latter about the centroid, world axes.
    """

    youngs_modulus_pa: np.ndarray
    poissons_ratio: float
    density_kg_m3: float
    mass_damping_per_s: float = 0.0
    stiffness_damping_s: float = 0.0
    gravity_m_s2: np.ndarray = field(default_factory=lambda: np.array([0.0, -9.81, 0.0]))
    plane_normal: np.ndarray = field(default_factory=lambda: np.array([0.0, 1.0, 0.0]))
    plane_offset_m: float = 0.0
    translation_m: np.ndarray = field(default_factory=lambda: np.zeros(3))
    rotation_rad: np.ndarray = field(default_factory=lambda: np.zeros(3))
    velocity_m_s: np.ndarray = field(default_factory=lambda: np.zeros(3))
    angular_velocity_rad_s: np.ndarray = field(default_factory=lambda: np.zeros(3))

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "youngs_modulus_pa", np.atleast_1d(np.asarray(self.youngs_modulus_pa, dtype=np.float64))
        )
        for name in (
            "gravity_m_s2",
            "plane_normal",
            "translation_m",
            "rotation_rad",
            "velocity_m_s",
            "angular_velocity_rad_s",
        ):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64).reshape(3))
        if not -1 < self.poissons_ratio < 0.5:
            raise ValueError(
                f"poissons_ratio = {self.poissons_ratio:g} must lie between -1 and 0.5; "
                "0.5 is incompressible: use 0.45-0.49 instead"
            )
