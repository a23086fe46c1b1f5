"""The reference backend: every loop straight from its formula in plain NumPy, slow and plain to check.

It is the oracle that the other backends are compared with, and stands in for their whole steps where there is no GPU.
It computes in double precision; float32 is only how arrays are kept.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from soft_estimator.backends.interface import Item, One, Other
from soft_estimator.backends.reference import cells, contact, joint, matrix, neo_hookean, points, pressure, relaxation
from soft_estimator.backends.reference.guard import ReferenceGuard
from soft_estimator.backends.reference.observer import ReferenceObserver
from soft_estimator.backends.reference.stepper import ReferenceStepper
from soft_estimator.backends.reference.tangent import ReferenceTangent


class ReferenceBackend:
    """Arrays in, arrays out; see `soft_estimator.backends.interface.Backend` for what each loop does."""

    name = "reference"
    xp = np
    single_precision = True
    column_multiple = 1
    stepper = ReferenceStepper
    guard = ReferenceGuard
    tangent_stepper = ReferenceTangent
    observer = ReferenceObserver
    pressures = pressure
    multigrid = bands = None  # block-Jacobi, to compare with
    joints = joint

    rotations = staticmethod(cells.rotations)
    rotations_tangent = staticmethod(cells.rotations_tangent)
    rotations_adjoint = staticmethod(cells.rotations_adjoint)
    cell_forces = staticmethod(cells.cell_forces)
    cell_forces_adjoint = staticmethod(cells.cell_forces_adjoint)
    cell_forces_tangents = staticmethod(cells.cell_forces_tangents)
    cell_energies = staticmethod(cells.cell_energies)
    deviatoric_products = staticmethod(relaxation.deviatoric_products)
    gather = staticmethod(cells.gather)
    gather_many = staticmethod(cells.gather_many)
    assemble = staticmethod(cells.assemble)
    neo_hookean_forces = staticmethod(neo_hookean.neo_hookean_forces)
    neo_hookean_blocks = staticmethod(neo_hookean.neo_hookean_blocks)
    gather_blocks = staticmethod(neo_hookean.gather_blocks)
    block_products = staticmethod(neo_hookean.block_products)
    soft_depths = staticmethod(contact.soft_depths)
    soft_energies = staticmethod(contact.soft_energies)
    at_points = staticmethod(contact.at_points)
    columns_at_points = staticmethod(contact.columns_at_points)
    spread_columns = staticmethod(contact.spread_columns)
    add_contact_blocks = staticmethod(contact.add_contact_blocks)
    sums = staticmethod(matrix.sums)
    add_blocks = staticmethod(matrix.add_blocks)
    invert_diagonal = staticmethod(matrix.invert_diagonal)
    multiply = staticmethod(matrix.multiply)
    multiply_scalars = staticmethod(matrix.multiply_scalars)
    conjugate_gradient = staticmethod(matrix.conjugate_gradient)
    conjugate_gradient_many = staticmethod(matrix.conjugate_gradient_many)
    find_cells = staticmethod(points.find_cells)
    surface_distances = staticmethod(points.surface_distances)

    @staticmethod
    def to_device(array: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> np.ndarray:
        return np.ascontiguousarray(array, dtype=dtype)

    @staticmethod
    def to_host(array: np.ndarray) -> np.ndarray:
        return array

    @staticmethod
    def wait() -> None:
        """Nothing is left to be done when a loop returns."""

    @staticmethod
    def beside(one: Callable[[], One], other: Callable[[], Other], rows: int = 0) -> tuple[One, Other]:
        """One after the other."""
        return one(), other()

    @staticmethod
    def followed(lead: Iterable[Item], follow: Callable[[Item], None], rows: int = 0) -> None:
        """One after the other."""
        for item in lead:
            follow(item)

    @staticmethod
    def device_name() -> str:
        return f"{platform.processor() or platform.machine()}, NumPy"
