"""The CPU backend: hot loops in Numba, parallel, cached, the same bits for any number of threads."""

from __future__ import annotations

import os
import platform

# Waiting threads sleep instead of spinning: a robot's cores are shared with its camera driver and other nodes, and a
# spinning wait makes the solver ten times slower there. Must be set before Numba starts its threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numba
import numpy as np
import numpy.typing as npt

from soft_estimator.backends.cpu import (
    assembly,
    contact,
    elasticity,
    elasticity_many,
    linear,
    linear_many,
    neo_hookean,
    points,
    pressure,
    product,
    relaxation,
    rotation,
    soft_contact,
)
from soft_estimator.backends.cpu import band as band_loops
from soft_estimator.backends.cpu import joint as joint_loops
from soft_estimator.backends.cpu import multigrid as multigrid_loops
from soft_estimator.backends.cpu.lanes import LANES
from soft_estimator.backends.cpu.side_by_side import beside, followed
from soft_estimator.backends.cpu.sums import sums


class CpuBackend:
    """Arrays in, arrays out; see `soft_estimator.backends.interface.Backend` for what each loop does."""

    name = "cpu"
    xp = np
    # Not surely faster here (steps and gradients took 0.5 to 2.5 times as long on a busy machine), and every loop would
    # be compiled twice. Loose solves of several columns have single precision of their own (`physics/solver.py`).
    single_precision = False
    column_multiple = LANES  # width of several columns that the loops run over at full speed
    stepper = guard = tangent_stepper = observer = None  # loops only
    pressures = pressure
    multigrid = multigrid_loops
    bands = band_loops
    joints = joint_loops

    rotations = staticmethod(rotation.rotations)
    rotations_tangent = staticmethod(rotation.rotations_tangent)
    rotations_adjoint = staticmethod(rotation.rotations_adjoint)
    cell_forces = staticmethod(elasticity.cell_forces)
    cell_forces_adjoint = staticmethod(elasticity.cell_forces_adjoint)
    cell_forces_tangents = staticmethod(elasticity_many.cell_forces_tangents)
    gather_many = staticmethod(elasticity_many.gather_many)
    cell_energies = staticmethod(elasticity.cell_energies)
    deviatoric_products = staticmethod(relaxation.deviatoric_products)
    gather = staticmethod(elasticity.gather)
    assemble = staticmethod(assembly.assemble)
    neo_hookean_forces = staticmethod(neo_hookean.neo_hookean_forces)
    neo_hookean_blocks = staticmethod(neo_hookean.neo_hookean_blocks)
    gather_blocks = staticmethod(neo_hookean.gather_blocks)
    block_products = staticmethod(neo_hookean.block_products)
    soft_depths = staticmethod(soft_contact.soft_depths)
    soft_energies = staticmethod(soft_contact.soft_energies)
    at_points = staticmethod(contact.at_points)
    columns_at_points = staticmethod(contact.columns_at_points)
    spread_columns = staticmethod(contact.spread_columns)
    add_contact_blocks = staticmethod(contact.add_contact_blocks)
    sums = staticmethod(sums)
    add_blocks = staticmethod(linear.add_blocks)
    invert_diagonal = staticmethod(linear.invert_diagonal)
    multiply = staticmethod(product.multiply)
    multiply_scalars = staticmethod(product.multiply_scalars)
    conjugate_gradient = staticmethod(linear.conjugate_gradient)
    conjugate_gradient_many = staticmethod(linear_many.conjugate_gradient_many)
    find_cells = staticmethod(points.find_cells)
    surface_distances = staticmethod(points.surface_distances)
    beside = staticmethod(beside)
    followed = staticmethod(followed)

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
    def device_name() -> str:
        return f"{platform.processor() or platform.machine()}, {numba.get_num_threads()} threads"
