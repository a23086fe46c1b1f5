"""The class that stands for the CUDA backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import cupy
import numpy as np
import numpy.typing as npt

from soft_estimator.backends.cuda import linear, loops, neo_hookean, points
from soft_estimator.backends.cuda.guard import CudaGuard
from soft_estimator.backends.cuda.stepper import CudaStepper
from soft_estimator.backends.cuda.tangent import CudaTangent
from soft_estimator.backends.interface import Array, Item, One, Other


class CudaBackend:
    """Arrays in, arrays out; see `soft_estimator.backends.interface.Backend` for what each loop does."""

    name = "cuda"
    xp = cupy
    single_precision = True
    column_multiple = 1
    stepper = CudaStepper  # whole steps without the host; physics/fused.py uses it
    tangent_stepper = CudaTangent
    guard = CudaGuard
    observer = points.CudaObserver  # residuals of whole windows; estimation/residuals/surface_observer.py uses it

    multigrid = bands = None  # whole steps have a coarse level of their own
    joints = None  # whole steps precondition each node by itself
    pressures = None  # whole steps have their own; launched one by one, its loops take longer than they save

    rotations = staticmethod(loops.rotations)
    rotations_tangent = staticmethod(loops.rotations_tangent)
    rotations_adjoint = staticmethod(loops.rotations_adjoint)
    cell_forces = staticmethod(loops.cell_forces)
    cell_forces_adjoint = staticmethod(loops.cell_forces_adjoint)
    cell_forces_tangents = staticmethod(loops.cell_forces_tangents)
    cell_energies = staticmethod(loops.cell_energies)
    gather = staticmethod(loops.gather)
    gather_many = staticmethod(loops.gather_many)
    assemble = staticmethod(loops.assemble)
    neo_hookean_forces = staticmethod(neo_hookean.neo_hookean_forces)
    neo_hookean_blocks = staticmethod(neo_hookean.neo_hookean_blocks)
    gather_blocks = staticmethod(neo_hookean.gather_blocks)
    block_products = staticmethod(neo_hookean.block_products)
    deviatoric_products = staticmethod(loops.deviatoric_products)
    soft_depths = staticmethod(loops.soft_depths)
    soft_energies = staticmethod(loops.soft_energies)
    at_points = staticmethod(loops.at_points)
    columns_at_points = staticmethod(loops.columns_at_points)
    spread_columns = staticmethod(loops.spread_columns)
    add_contact_blocks = staticmethod(loops.add_contact_blocks)
    sums = staticmethod(linear.sums)
    add_blocks = staticmethod(linear.add_blocks)
    invert_diagonal = staticmethod(linear.invert_diagonal)
    multiply = staticmethod(linear.multiply)
    multiply_scalars = staticmethod(linear.multiply_scalars)
    conjugate_gradient = staticmethod(linear.conjugate_gradient)
    conjugate_gradient_many = staticmethod(linear.conjugate_gradient_many)
    find_cells = staticmethod(points.find_cells)
    surface_distances = staticmethod(points.surface_distances)

    @staticmethod
    def to_device(array: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> cupy.ndarray:
        return cupy.ascontiguousarray(cupy.asarray(array), dtype=dtype)

    @staticmethod
    def to_host(array: Array) -> np.ndarray:
        return cupy.asnumpy(array)

    @staticmethod
    def wait() -> None:
        cupy.cuda.runtime.deviceSynchronize()

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
        return cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
