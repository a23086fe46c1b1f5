"""Launches what tells whether steps can be trusted; nothing is read back here."""

from __future__ import annotations

import cupy
import numpy as np

from soft_estimator.backends.cuda.kernels import kernel, launch
from soft_estimator.backends.cuda.stepper import own_stepper
from soft_estimator.backends.interface import Array, Paths, State, Stepper

SUMS = 11  # of a state, as numbered in guard.cu


class CudaGuard:
    """Sums over a stepper's states and steps.

    Args:
        fill: how much of each cell is inside the body, (C,).

    A row of sums holds: elastic energy [J], fill-weighted squared turn that was not foreseen, kinetic energy [J],
    potential of gravity and loads [J], work of held nodes and obstacles that are led [J], contact energy [J], stiffness
    of extrapolated contact [N/m], the largest ratio of that to what holds against it at a point, momentum (3) [N s].
    """

    def __init__(self, stepper: Stepper, fill: Array) -> None:
        self.stepper = stepper = own_stepper(stepper)
        self.fill = cupy.ascontiguousarray(cupy.asarray(fill), np.float64)
        b = stepper.systems
        self.of_cells, self.of_nodes = cupy.empty((b, 2, stepper.cells)), cupy.empty((b, 6, stepper.nodes))
        touches = stepper.has_contact or stepper.obstacles.count
        self.of_points = cupy.empty((b, 4, stepper.points)) if touches else None  # POINT_SUMS of guard.cu

    def state(self, u: Array, v: Array, paths: Paths, out: Array) -> None:
        """Energies of the state at the end of paths, u and v (systems, N, 3), into out (systems, 11)."""
        self._sum((None, None, None), u, v, paths, out)

    def step(self, before: State, after: State, paths: Paths, out: Array) -> None:
        """The sums of the step that the stepper has just made, into out (systems, 11)."""
        self._sum(before, after[0], after[1], paths, out)

    def _sum(self, before: State | tuple[None, None, None], u: Array, v: Array, paths: Paths, out: Array) -> None:
        s = self.stepper
        common, grid = s.common(), (s.systems,)
        cells = (self.fill, before[0], u, s.rotation, self.of_cells)
        launch("guard", "guard_cells", s.real, 8 * s.cells, *common, *cells, grid=grid)
        nodes = (paths.held, *before, u, v, s.blocks, s.rhs, self.of_nodes)
        launch("guard", "guard_nodes", s.real, s.nodes, *common, *nodes, grid=grid)
        if self.of_points is not None:
            points = (*s.obstacles.given(paths), *before, u, s.blocks, self.of_points)
            launch("guard", "guard_points", s.real, s.points, *common, *points, grid=grid)
        touched = np.uint64(0) if self.of_points is None else self.of_points
        arguments = (s.body, self.of_cells, self.of_nodes, touched, out)
        kernel("guard", "guard_sums", s.real.name)((SUMS, s.systems), (256,), arguments)
