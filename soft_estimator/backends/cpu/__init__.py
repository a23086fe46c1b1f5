"""The CPU backend: hot loops in Numba, parallel, cached, the same bits for any number of threads."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu import contact, elasticity, linear, linear_many, rotation


class CpuBackend:
    """Arrays in, arrays out; see `soft_estimator.backends.interface.Backend` for what each loop does."""

    name = "cpu"
    xp = np

    rotations = staticmethod(rotation.rotations)
    rotations_tangent = staticmethod(rotation.rotations_tangent)
    rotations_adjoint = staticmethod(rotation.rotations_adjoint)
    cell_forces = staticmethod(elasticity.cell_forces)
    cell_forces_tangent = staticmethod(elasticity.cell_forces_tangent)
    cell_forces_adjoint = staticmethod(elasticity.cell_forces_adjoint)
    cell_energies = staticmethod(elasticity.cell_energies)
    gather = staticmethod(elasticity.gather)
    assemble = staticmethod(elasticity.assemble)
    contact_points = staticmethod(contact.contact_points)
    spread_along = staticmethod(contact.spread_along)
    add_contact_blocks = staticmethod(contact.add_contact_blocks)
    add_blocks = staticmethod(linear.add_blocks)
    invert_diagonal = staticmethod(linear.invert_diagonal)
    multiply = staticmethod(linear.multiply)
    conjugate_gradient = staticmethod(linear.conjugate_gradient)
    conjugate_gradient_many = staticmethod(linear_many.conjugate_gradient_many)

    @staticmethod
    def to_device(array: np.ndarray, dtype: np.dtype | type | None = None) -> np.ndarray:
        return np.ascontiguousarray(array, dtype=dtype)

    @staticmethod
    def to_host(array: np.ndarray) -> np.ndarray:
        return array
