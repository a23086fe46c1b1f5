"""Whole tangent steps: changes of one system's state along several directions, launched without waiting."""

from __future__ import annotations

import cupy
import numpy as np

from soft_estimator.backends.cuda.arrays import near_power_of_two
from soft_estimator.backends.cuda.columns import ColumnSolver, column_modules
from soft_estimator.backends.cuda.kernels import compile_ahead, launch
from soft_estimator.backends.cuda.stepper import own_stepper
from soft_estimator.backends.interface import Array, Paths, State, Stepper

DIRECTIONS_AT_ONCE = 6  # as in step_tangent.cu
SINGLE_IS_ENOUGH = 1e-4  # relative tolerance from which on a solve in single precision reaches it


class CudaTangent:
    """Tangent steps of a stepper's only system, along so many directions."""

    def __init__(self, stepper: Stepper, columns: int) -> None:
        stepper = own_stepper(stepper)
        if stepper.systems != 1:
            raise ValueError(f"a tangent needs a stepper of one system, not of {stepper.systems}")
        self.stepper, self.columns = stepper, columns
        nodes, cells, real = stepper.nodes, stepper.cells, stepper.real
        self.points = len(stepper.arrays["point_area"])
        self.corner = cupy.empty((columns, cells, 24), real)
        self.rhs, self.solution = (cupy.empty((columns, nodes, 3), real) for _ in range(2))
        self.contact_change = cupy.empty((columns, max(1, self.points)))
        self.contact_force = cupy.empty(max(1, self.points))
        self.felt_change: Array | None = None
        if stepper.obstacles.count:
            self.felt_change = cupy.empty((columns, self.points, 3))
            compile_ahead(("obstacles_tangent", real.name))
        self._solvers: dict[str, ColumnSolver] = {}
        compile_ahead(*column_modules(np.float32), ("step_tangent", real.name))  # most tolerances are loose

    def step(
        self,
        directions: Array,
        moves: Array,
        start: Array | None,
        before: State,
        u_after: Array,
        changes: State,
        out: State,
        paths: Paths,
        tolerance: float,
        report: Array,
        least: Array | None = None,
    ) -> None:
        """Changes of the state after a step, written to `out`.

        Args:
            directions: (columns, numbers): changes laid out as a material, see `layout.MATERIAL`.
            moves: of the obstacles' frames, rows of `layout.MOVE`, (columns, obstacles, 6).
            start: changes of the initial displacement (columns, N, 3) [m], where held regions move.
            before: u, v, a before the step. u_after: after it. changes: of u, v, a before it, each (columns, N, 3).
            paths: where held regions and obstacles are in the step.
            tolerance: of the solves. report: out, (columns, 3): their iterations, relative residuals and statuses.
            least: right-hand sides no larger than this, (columns,) [N], are solved by zero.
        """
        s, contact, solver = self.stepper, (self.contact_change, self.contact_force), self._solver(tolerance)
        s.linearise(before, paths)
        common = (*s.common(), directions)
        motion = (*before, u_after, *changes)
        groups = -(-self.columns // DIRECTIONS_AT_ONCE)
        given = (*common, self.columns, *motion, s.rotation, self.corner)
        launch("step_tangent", "change_cells", s.real, 8 * s.cells, *given, grid=(groups,))
        nodes, weight, area, begin = (s.arrays[f"point_{name}"] for name in ("nodes", "weight", "area", "start"))
        if s.has_contact:
            riding = (self.points, nodes, weight, area)
            self._launch("change_contact", self.points, *common, *riding, *motion, *contact)
        s.obstacles.change(directions, moves, before, u_after, changes, paths, self.felt_change)
        system, held = (self.rhs, self.solution), (paths.held, start, self.corner)
        points, felt = (self.points, begin, weight), (*contact, self.felt_change)
        self._launch("prepare_step_tangent", s.nodes, *common, *points, *motion, *held, *felt, *system)
        if least is not None:
            self.rhs *= (cupy.linalg.norm(self.rhs.reshape(self.columns, -1), axis=1) > least)[:, None, None]
        self._solve(solver, tolerance, report)
        arguments = (*s.common()[:2], *changes, self.solution, *out)
        launch("step", "advance", s.real, 3 * s.nodes, *arguments, grid=(self.columns,))

    def _solver(self, tolerance: float) -> ColumnSolver:
        """In single precision where that is enough: half the bytes."""
        s = self.stepper
        real = np.dtype(np.float32) if tolerance >= SINGLE_IS_ENOUGH else s.real
        if real.name not in self._solvers:
            row_start, column, free = (s.arrays[name] for name in ("row_start", "column", "free"))
            self._solvers[real.name] = ColumnSolver(row_start, column, free.astype(real), self.columns, real)
        return self._solvers[real.name]

    def _solve(self, solver: ColumnSolver, tolerance: float, report: Array) -> None:
        s, real = self.stepper, solver.real
        blocks, inverse = (x.astype(real, copy=False) for x in (s.blocks, s.inverse))
        second = s.coarse.coarse if s.coarse is not None and s.coarse.used else None
        if second is not None:
            second.keep_fresh(s.blocks)
        if real == s.real:
            solver.solve(blocks, inverse, self.rhs, self.solution, tolerance, s.limit, report, second)
            return
        size = column_sizes(self.rhs)
        rhs, guess = ((x / size).astype(real) for x in (self.rhs, self.solution))
        solver.solve(blocks, inverse, rhs, guess, tolerance, s.limit, report, second)
        cupy.multiply(guess, size, out=self.solution)

    def _launch(self, function: str, threads: int, *arguments: object) -> None:
        launch("step_tangent", function, self.stepper.real, threads, *arguments, grid=(self.columns,))


def column_sizes(rhs: Array) -> cupy.ndarray:
    """A power of two near the largest number of each column, (columns, 1, 1); 1 for a column of zeros.

    Far from the ground a plane's shift changes forces by 1e-20 N: squares of that vanish in single precision.
    """
    return near_power_of_two(cupy.abs(rhs).max(axis=(1, 2), keepdims=True))
