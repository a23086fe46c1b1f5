"""The CPU backend: hot loops in Numba, parallel, cached, the same bits for any number of threads."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any

# Waiting threads sleep instead of spinning: a robot's cores are shared with its camera driver and other nodes, and a
# spinning
# wait makes the solver ten times slower there. Must be set before Numba starts its threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numba
import numpy as np
import numpy.typing as npt

from soft_estimator.backends.cpu import contact, elasticity, elasticity_many, linear, linear_many, points, rotation

# Below this many rows an iteration is shorter than waking a second thread; the bits are the same either way.
_ONE_THREAD_BELOW = 3000


def _with_fitting_threads(solver: Callable[..., tuple], system: tuple) -> tuple:
    if len(system[3]) >= _ONE_THREAD_BELOW:
        return solver(*system)
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        return solver(*system)
    finally:
        numba.set_num_threads(before)


class CpuBackend:
    """Arrays in, arrays out; see `soft_estimator.backends.interface.Backend` for what each loop does."""

    name = "cpu"
    xp = np
    column_multiple = 8  # width of several columns that the loops run over at full speed
    stepper = guard = tangent_stepper = observer = None  # loops only

    rotations = staticmethod(rotation.rotations)
    rotations_tangent = staticmethod(rotation.rotations_tangent)
    rotations_adjoint = staticmethod(rotation.rotations_adjoint)
    cell_forces = staticmethod(elasticity.cell_forces)
    cell_forces_tangent = staticmethod(elasticity.cell_forces_tangent)
    cell_forces_adjoint = staticmethod(elasticity.cell_forces_adjoint)
    cell_forces_tangents = staticmethod(elasticity_many.cell_forces_tangents)
    gather_many = staticmethod(elasticity_many.gather_many)
    cell_energies = staticmethod(elasticity.cell_energies)
    gather = staticmethod(elasticity.gather)
    assemble = staticmethod(elasticity.assemble)
    contact_points = staticmethod(contact.contact_points)
    at_points = staticmethod(contact.at_points)
    spread_along = staticmethod(contact.spread_along)
    columns_at_points = staticmethod(contact.columns_at_points)
    spread_columns = staticmethod(contact.spread_columns)
    add_contact_blocks = staticmethod(contact.add_contact_blocks)
    add_blocks = staticmethod(linear.add_blocks)
    invert_diagonal = staticmethod(linear.invert_diagonal)
    multiply = staticmethod(linear.multiply)
    find_cells = staticmethod(points.find_cells)
    surface_distances = staticmethod(points.surface_distances)

    @staticmethod
    def conjugate_gradient(*system: Any) -> tuple[int, float, int]:
        return _with_fitting_threads(linear.conjugate_gradient, system)

    @staticmethod
    def conjugate_gradient_many(*system: Any) -> tuple[int, float, int]:
        return _with_fitting_threads(linear_many.conjugate_gradient_many, system)

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
