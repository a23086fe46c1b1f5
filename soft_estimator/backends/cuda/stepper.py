"""Whole time steps, forward and backward, launched back to back without waiting for the device.

A batch of systems shares the body and differs in material, plane, loads and start; one system is a batch of one.
Nothing here is read back: solve reports and parameter sums stay on the device until asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from soft_estimator.backends.cuda.arrays import precision
from soft_estimator.backends.cuda.cell_layout import cell_moments, few_blocks
from soft_estimator.backends.cuda.cells import CellSolver, device_can_solve
from soft_estimator.backends.cuda.coarse_solver import CoarseSolver, solver_with_coarse_level
from soft_estimator.backends.cuda.kernels import compile_ahead, kernel, launch
from soft_estimator.backends.cuda.linear import BatchSolver
from soft_estimator.backends.cuda.obstacles import CudaObstacles
from soft_estimator.backends.cuda.pressure import FusedPressures
from soft_estimator.backends.interface import Array, Paths, State, Stepper
from soft_estimator.backends.layout import ADJOINT_SUMS, MATERIAL, place, size

# Systems from which on the cells' products are faster than the assembled matrices'. A gradient of four on a torus of
# 9,174 nodes takes 92 ms against 96 in single and 112 against 132 in double precision, one of three 90 against 79.
FEWEST_WITHOUT_MATRIX = 4

_MODULES = ("step", "step_adjoint", "guard", "rotation", "elasticity", "contact", "linear")

# The pointers of `struct Body` in step.cuh, in order, with their types.
_BODY = (
    ("cell_nodes", np.int32),
    ("node_cells", np.int32),
    ("gradient_index", np.int32),
    ("cell_region", np.int32),
    ("table", None),
    ("position", None),
    ("free", None),
    ("volume", np.float64),
    ("load", np.float64),
    ("slot", np.int64),
    ("row_start", np.int64),
    ("column", np.int32),
    ("held", np.int32),
    ("near", np.int32),
    ("spread", None),
    ("point_nodes", np.int32),
    ("point_weight", np.float64),
    ("point_start", np.int64),
    ("point_area", np.float64),
)


class CudaStepper:
    """Steps of a batch of systems.

    Args:
        body: the arrays named in `_BODY`, on the device, and obstacles; see `whole_steps`. spacing_m: of the grid.
        scheme: the 23 coefficients of the integrator in the order of `struct Scheme`.
        contact: 1 with contact, 1 for implicit contact; else 0.
        materials: rows of `layout.MATERIAL`, then E of each region, (systems, numbers).
        start: initial displacements (systems, N, 3) [m]. real: precision.
        tolerance, limit: of the linear solver.
    """

    def __init__(
        self,
        body: Mapping[str, Any],
        spacing_m: float,
        scheme: Sequence[float],
        contact: Sequence[float],
        materials: np.ndarray,
        start: Array,
        real: npt.DTypeLike,
        tolerance: float,
        limit: int,
    ) -> None:
        self.real, self.tolerance, self.limit = precision(real), tolerance, limit
        self.systems, self.regions = len(materials), materials.shape[1] - size(MATERIAL)
        compile_ahead(*((name, self.real.name) for name in _MODULES))
        self._arrays = {k: cupy.ascontiguousarray(body[k], dtype=t or self.real) for k, t in _BODY}
        self.nodes, self.cells = len(self._arrays["free"]), len(self._arrays["cell_region"])
        many = self.systems >= FEWEST_WITHOUT_MATRIX and device_can_solve(self.real)
        many = many and not len(body["obstacles"])  # the cells' products know the plane's pressing alone
        self._mass_table = np.asarray(body["mass_table"])
        self._moments = cell_moments(cupy.asnumpy(body["table"]), self._mass_table) if many else None
        self._kept: cupy.ndarray | None = None  # 27 · node + offset of the blocks that are kept, where not all are
        if self._moments is not None:
            self._keep_few_blocks()
        self.row_blocks, self.points = len(self._arrays["column"]), len(self._arrays["point_area"])
        pointers = [self.nodes, self.cells, self.points, *(self._arrays[k].data.ptr for k, _ in _BODY)]
        words = np.concatenate([np.array(pointers, np.uint64), np.array([spacing_m]).view(np.uint64)])
        self.body = cupy.asarray(words)
        self.scheme = cupy.asarray(np.array([*scheme, *contact], np.float64))
        self.has_contact = contact[0] > 0
        self._implicit_share = float(scheme[4] * contact[0] * contact[1])  # c_k where contact is implicit
        self.materials = cupy.asarray(np.ascontiguousarray(materials, np.float64))
        self._stiffest_contact = float(materials[:, place(MATERIAL, "contact_stiffness_pa_per_m")].max())
        self.start = cupy.ascontiguousarray(cupy.asarray(start), np.float64)
        self.solver: Any
        self._allocate()
        self.obstacles = CudaObstacles(self, body)
        self.coarse: CoarseSolver | None = None
        self.pressures: FusedPressures | None = None
        if self.systems == 1:
            self.pressures = FusedPressures(self.solver, self._arrays)
            self.pressures.choose(materials[0])
            self.coarse = solver_with_coarse_level(self.solver, body.get("coarse"), self._arrays, scheme, spacing_m)
        if self.coarse is not None:
            self.solver = self.coarse
            self.coarse.choose(materials[0])

    def _allocate(self) -> None:
        b, n, c, real = self.systems, self.nodes, self.cells, self.real
        self.rotation, self.corner = cupy.empty((b, c, 9), real), cupy.empty((b, c, 24), real)
        self.blocks, self.inverse = cupy.empty((b, self.row_blocks, 9), real), cupy.empty((b, n, 9), real)
        self.rhs, self.solution = cupy.empty((b, n, 3), real), cupy.empty((b, n, 3), real)
        self.touch = cupy.empty((b, self.points, 2))
        held = bool((self._arrays["held"] >= 0).any())  # weakly held bodies have no whole steps
        self._gains: cupy.ndarray | None = None if held else cupy.empty((b, 3))
        self.pulled: cupy.ndarray | None = None  # the adjoint's own arrays, made when first needed
        self.nothing: cupy.ndarray | None = None  # derivatives of zero, likewise
        if self._moments is None:
            solver = (self._arrays["row_start"], self._arrays["column"], self._arrays["free"])
            self.solver = BatchSolver(*solver, b, real)
        else:
            self.solver = CellSolver(
                self.scheme, self._arrays, self._moments, self._mass_table, b, real, self.implicit_stiffness
            )
            self._put_alike_together(self.materials.get())

    def _put_alike_together(self, materials: np.ndarray) -> None:
        """Systems side by side that need about as many iterations: those of about the same speed of sound."""
        mu, density = (materials[:, place(MATERIAL, name)][:, 0] for name in ("mu", "density_kg_m3"))
        self.solver.set_order(np.argsort(mu * materials[:, size(MATERIAL) :].max(axis=1) / density))

    def _keep_few_blocks(self) -> None:
        """Of the matrices only what is needed beside products: diagonal blocks and the rows of held nodes."""
        names = ("slot", "row_start", "column")
        few = few_blocks(*(cupy.asnumpy(self._arrays[k]) for k in ("slot", "column", "held")))
        for name, array in zip(names, few):
            self._arrays[name] = cupy.asarray(array, self._arrays[name].dtype)
        self._kept = cupy.asarray(np.nonzero(few[0].ravel() >= 0)[0], np.int32)

    @property
    def implicit_stiffness(self) -> float:
        """c_k times the stiffest contact [Pa/m]; 0 without implicit contact."""
        return self._implicit_share * self._stiffest_contact

    @property
    def arrays(self) -> Mapping[str, Any]:
        """The body's arrays, by the names in `_BODY`."""
        return self._arrays

    def set_parameters(self, materials: np.ndarray, start: Array) -> None:
        """Take other materials and starts for the same systems."""
        self.materials.set(np.ascontiguousarray(materials, np.float64))
        self.start[...] = cupy.asarray(start)
        if self.coarse is not None:
            self.coarse.choose(materials[0])
        if self.pressures is not None:
            self.pressures.choose(materials[0])
        if self._moments is not None:
            self._put_alike_together(materials)

    def common(self) -> tuple:
        """What all kernels of a step take first."""
        return self.body, self.scheme, self.materials, self.materials.shape[1]

    def _launch(self, name: str, function: str, threads: int, *arguments: object, grid: tuple[int, ...] = ()) -> None:
        launch(name, function, self.real, threads, *arguments, grid=(*grid, self.systems))

    def forward(self, before: State, after: State, paths: Paths, report: Array) -> None:
        """One step from `before`, written to `after`.

        Args:
            paths: where held regions and obstacles are in the step.
            report: out, (systems, 3): iterations, relative residual and status of the solve.
        """
        common = self.common()
        self._launch("step", "turn_cells", 8 * self.cells, *common, *before, self.rotation, self.corner)
        self._assemble()
        system = (self.blocks, self.inverse, self.rhs, self.solution)
        self._touch(before)
        if self._gains is not None:
            arguments = (*common[:2], *before[1:], self._gains)
            kernel("step", "gain_in_speed", self.real.name)((3, self.systems), (512,), arguments)
        loads = (paths.held, self.start, self.corner, self.touch, self.obstacles.touch(before, paths), self._gains)
        self._launch("step", "prepare_step", 8 * self.nodes, *common, *before, *loads, *system)
        self._solve(report)
        self._launch("step", "advance", 3 * self.nodes, *common[:2], *before, self.solution, *after)

    def _solve(self, report: Array) -> None:
        system = (self.inverse, self.rhs, self.solution)
        if self.pressures is not None and self.pressures.used:
            given = (self.common(), self.rotation, self.blocks, self.rhs, self.solution)
            self.pressures.solve(*given, self.tolerance, self.limit, report)
        elif self._moments is None:
            self.solver.solve(self.blocks, *system, self.tolerance, self.limit, report)
        else:
            cells = (self.materials, self.rotation, *system, self.touch)
            self.solver.solve(*cells, self.tolerance, self.limit, report)

    def linearise(self, before: State, paths: Paths, bar: State | None = None) -> None:
        """Rotations, blocks and preconditioner of the step from `before`; the adjoint's right-hand side for `bar`."""
        common = self.common()
        if bar is None:
            if self.nothing is None:
                self.nothing = cupy.zeros((self.systems, self.nodes, 3), self.real)
            bar = (self.nothing, self.nothing, self.nothing)
        self._launch("step", "turn_cells", 8 * self.cells, *common, *before, self.rotation, None)
        self._assemble()
        system = (self.blocks, self.inverse, self.rhs, self.solution)
        self._touch(before)
        touched = (self.touch, self.obstacles.touch(before, paths))
        self._launch("step_adjoint", "prepare_step_adjoint", 8 * self.nodes, *common, *before, *bar, *touched, *system)

    def _assemble(self) -> None:
        threads, grid = (self.nodes, (27,)) if self._kept is None else (self.row_blocks, (1,))
        blocks = (self._kept, self.rotation, self.blocks)
        self._launch("step", "assemble_systems", threads, *self.common(), *blocks, grid=grid)

    def _touch(self, before: State) -> None:
        """Force and stiffness of the contact points."""
        if self.has_contact:
            self._launch("step", "touch_points", self.points, *self.common(), *before, self.touch)

    def start_backward(self) -> None:
        """Forget what the parameters have received so far."""
        b, n, c = self.systems, self.nodes, self.cells
        if self.pulled is None:
            self.pulled, self.turned = cupy.empty((b, c, 24)), cupy.empty((b, c, 24))
            self.touch_bar = cupy.empty((b, self.points, 7))  # TOUCH_BARS of step_adjoint.cu
        self.sums, self.lame_sums = cupy.zeros((b, size(ADJOINT_SUMS), n)), cupy.zeros((b, 2, c))
        self.obstacles.start_backward()

    def backward(self, before: State, u_after: Array, bar: State, paths: Paths, report: Array) -> None:
        """One step backwards: `bar`, the derivatives by the state after the step, become those by the one before."""
        self.linearise(before, paths, bar)
        common = self.common()
        self._solve(report)
        cells = (self.rotation, self.pulled, self.turned, self.lame_sums)
        self._launch(
            "step_adjoint", "pull_cells_adjoint", 8 * self.cells, *common, *before, u_after, self.solution, *cells
        )
        if self.has_contact:
            points = (*before, u_after, self.solution, self.touch_bar)
            self._launch("step_adjoint", "touch_points_adjoint", self.points, *common, *points)
        felt_bar = self.obstacles.touch_adjoint(before, u_after, self.solution, paths)
        nodes = (paths.held, self.blocks, self.solution, self.pulled, self.turned, self.touch_bar, felt_bar)
        self._launch(
            "step_adjoint", "collect_nodes_adjoint", 8 * self.nodes, *common, *before, u_after, *nodes, *bar, self.sums
        )

    def collected(self) -> tuple[np.ndarray, np.ndarray]:
        """What the parameters received: rows of `layout.ADJOINT_SUMS`, and the cells' (systems, regions, 2); waits."""
        nodal = size(ADJOINT_SUMS)
        columns = nodal + 2 * self.regions
        out = cupy.empty((self.systems, columns))
        arguments = (self.body, np.int32(self.regions), self.sums, self.lame_sums, out)
        # One block of 256 threads a sum.
        kernel("step_adjoint", "finish_sums", self.real.name)((columns, self.systems), (256,), arguments)
        host = out.get()
        return host[:, :nodal], host[:, nodal:].reshape(self.systems, self.regions, 2)

    def frame_sums(self) -> np.ndarray:
        """Derivatives by the frames of posed obstacles, rows of `layout.MOVE` (systems, obstacles, 6); waits."""
        return self.obstacles.frame_sums()

    def start_sums(self) -> np.ndarray:
        """Derivatives by the initial displacement that came through moving held nodes, (systems, N, 3); waits."""
        return cupy.ascontiguousarray(cupy.moveaxis(self.sums[:, place(ADJOINT_SUMS, "start")], 1, 2)).get()


def own_stepper(stepper: Stepper) -> CudaStepper:
    """The stepper, which guards and tangents read on the device."""
    if not isinstance(stepper, CudaStepper):
        raise TypeError(f"a {type(stepper).__name__} is not on the device; hand over one made by the CUDA backend")
    return stepper
