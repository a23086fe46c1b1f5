"""Derivatives by the parameters: one number for each number in `Parameters`."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from soft_estimator.physics.parameters import Parameters

NAMES = tuple(f.name for f in fields(Parameters))


@dataclass
class ParameterGradient:
    """A value for every entry of `Parameters`, in its own unit inverted: the gradient of a scalar, or a direction."""

    youngs_modulus_pa: np.ndarray
    poissons_ratio: float
    density_kg_m3: float
    mass_damping_per_s: float
    stiffness_damping_s: float
    gravity_m_s2: np.ndarray
    plane_normal: np.ndarray
    plane_offset_m: float
    translation_m: np.ndarray
    rotation_rad: np.ndarray
    velocity_m_s: np.ndarray
    angular_velocity_rad_s: np.ndarray

    @classmethod
    def zero(cls, regions: int) -> ParameterGradient:
        """All zeros for a body with this many material regions."""
        vectors = {"youngs_modulus_pa": regions}
        shapes = {name: vectors.get(name, 3) for name in NAMES if name in vectors or _is_vector(name)}
        return cls(**{name: np.zeros(shapes[name]) if name in shapes else 0.0 for name in NAMES})

    @classmethod
    def unit(cls, regions: int, name: str, index: int | None = None) -> ParameterGradient:
        """The direction of one parameter, for a vector that of one component."""
        out = cls.zero(regions)
        if index is None:
            setattr(out, name, 1.0)
        else:
            getattr(out, name)[index] = 1.0
        return out

    def dot(self, other: ParameterGradient) -> float:
        """Sum over all entries of the products."""
        return float(sum(np.sum(np.asarray(getattr(self, n)) * getattr(other, n)) for n in NAMES))


def _is_vector(name: str) -> bool:
    return name.split("_")[0] in ("gravity", "translation", "rotation", "velocity", "angular") or name == "plane_normal"


def shifted(parameters: Parameters, direction: ParameterGradient, amount: float) -> Parameters:
    """parameters + amount · direction."""
    return Parameters(**{n: getattr(parameters, n) + amount * getattr(direction, n) for n in NAMES})
