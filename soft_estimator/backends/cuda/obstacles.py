"""Obstacles of a stepper's systems on the device, and the launches of what the body's points feel of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np

from soft_estimator.backends.cuda.kernels import compile_ahead, kernel, launch
from soft_estimator.backends.interface import Array, Paths, State
from soft_estimator.backends.layout import FIELD, MOVE, OBSTACLE, place, size

if TYPE_CHECKING:
    from soft_estimator.backends.cuda.stepper import CudaStepper

_FELT, _FELT_BARS = 9, 19  # numbers of a point, as in step.cuh


class CudaObstacles:
    """What is touched beside the ground's pressing; without obstacles every launch is left out.

    Args:
        body: `obstacles`, rows of `layout.OBSTACLE`, and `tables`, the splines' coefficients of fields, on the host.
    """

    def __init__(self, stepper: CudaStepper, body: Mapping[str, Any]) -> None:
        self.stepper, self.count = stepper, len(body["obstacles"])
        self._tables = [cupy.asarray(np.ascontiguousarray(table, np.float64)) for table in body["tables"]]
        rows = np.array(body["obstacles"], np.float64)
        kind, table = (rows[:, place(OBSTACLE, name)][:, 0] for name in ("kind", "table"))
        pointers = [self._tables[int(t)].data.ptr if k == FIELD else 0 for k, t in zip(kind, table)]
        rows[:, place(OBSTACLE, "table")] = np.array(pointers, np.uint64).view(np.float64)[:, None]
        self.rows = cupy.asarray(rows)
        self.felt: Array | None = None
        self.felt_bar: Array | None = None
        self._posed = bool(rows[:, place(OBSTACLE, "posed")].any())
        self._frame_sums: Array | None = None  # by the frames of posed obstacles, of every point
        if self.count:
            compile_ahead(("obstacles", stepper.real.name))
            self.felt = cupy.empty((stepper.systems, stepper.points, _FELT))

    def given(self, paths: Paths) -> tuple:
        """How many they are, the obstacles and where they are in a step, as kernels take them."""
        if not self.count:
            return 0, None, None
        return self.count, self.rows, paths.obstacles

    def touch(self, before: State, paths: Paths) -> Array | None:
        """What every point feels in the step from `before`, (systems, P, 9); None without obstacles."""
        if self.count:
            self._launch("obstacles", "touch_obstacles", self.stepper.common(), paths, *before, self.felt)
        return self.felt

    def start_backward(self) -> None:
        """Forget what the obstacles' frames have received so far."""
        if self._posed:
            self._frame_sums = cupy.zeros((self.stepper.systems, self.count, size(MOVE), self.stepper.points))

    def frame_sums(self) -> np.ndarray:
        """What they received, rows of `layout.MOVE` (systems, obstacles, 6); waits."""
        rows, out = self._frame_sums, cupy.zeros((self.stepper.systems, self.count, size(MOVE)))
        if rows is not None and rows.size:
            arguments = (rows, np.int32(self.stepper.points), out)
            kernel("step_adjoint", "sum_rows", self.stepper.real.name)((out.size,), (256,), arguments)
        return out.get()

    def touch_adjoint(self, before: State, u_after: Array, lmbda: Array, paths: Paths) -> Array | None:
        """What every point receives in the step back to `before`, (systems, P, 19); None without obstacles."""
        if self.count:
            if self.felt_bar is None:
                self.felt_bar = cupy.empty((self.stepper.systems, self.stepper.points, _FELT_BARS))
            given = (*before, u_after, lmbda, self.felt_bar, self._frame_sums)
            self._launch("obstacles_adjoint", "touch_obstacles_adjoint", self.stepper.common(), paths, *given)
        return self.felt_bar

    def change(
        self,
        directions: Array,
        moves: Array,
        before: State,
        u_after: Array,
        changes: State,
        paths: Paths,
        out: Array | None,
    ) -> None:
        """Change of every point's force along directions, which move the frames, into out (directions, P, 3)."""
        if out is not None:
            common, given = (*self.stepper.common(), directions, moves), (*before, u_after, *changes, out)
            self._launch("obstacles_tangent", "change_obstacles", common, paths, *given, columns=len(out))

    def _launch(
        self, name: str, function: str, common: tuple, paths: Paths, *given: object, columns: int | None = None
    ) -> None:
        s = self.stepper
        arguments = (*common, *self.given(paths), *given)
        launch(name, function, s.real, s.points, *arguments, grid=(s.systems if columns is None else columns,))
