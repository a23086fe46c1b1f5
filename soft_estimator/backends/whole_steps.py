"""What a backend provides beside the loops where it can: whole steps, their tangents, and whole windows of points.

Nothing here waits for the device. A stepper holds a batch of systems that share a body and differ in material, plane,
loads and start. S systems, N nodes, C cells, P contact points, R material regions, H held regions (at least one row),
O obstacles, K directions, T frames, M nodes of a carried field (the surface's vertices are the last of them), n points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]  # NumPy's, or CuPy's, which has the same methods and no types of its own
State: TypeAlias = tuple[Array, Array, Array]  # u [m], v [m/s], a (acceleration or mean velocity), each (S, N, 3)


class Paths(NamedTuple):
    """Where what is led is within a step.

    Attributes:
        held: a row of 13 numbers for each held region, (H, 13): 1 where it moves, its rotation (9) and its shift (3)
            [m] at the end of the step. obstacles: rows of `layout.POSE` of every system, (S, O, numbers).
    """

    held: Array
    obstacles: Array


class Stepper(Protocol):
    """Steps of a batch of systems, forward and backward.

    Materials are rows of `layout.MATERIAL` in SI units, then E of each region [Pa]. A report is a row of three numbers
    for each system: iterations, relative residual, status as of `Backend.conjugate_gradient`.
    """

    def set_parameters(self, materials: Array, start: Array, /) -> None:
        """Take other materials and initial displacements (S, N, 3) [m] for the same systems."""

    def forward(self, before: State, after: State, paths: Paths, report: Array, /) -> None:
        """One step from `before`, written to `after` and report (S, 3)."""

    def start_backward(self) -> None:
        """Forget what the parameters have received so far."""

    def backward(self, before: State, u_after: Array, bar: State, paths: Paths, report: Array, /) -> None:
        """One step backwards: `bar`, the derivatives by the state after the step, become those by the one before."""

    def collected(self) -> tuple[Array, Array]:
        """What the parameters received, on the host; waits.

        Returns:
            rows of `layout.ADJOINT_SUMS`, (S, numbers).
            (S, R, 2): derivatives by λ and μ of the work of the elastic forces along the adjoint state, in each region.
                The forces stand on the right-hand side with a minus: what is measured changes by minus these.
        """

    def frame_sums(self) -> Array:
        """Derivatives by the frames of obstacles, rows of `layout.MOVE` (S, O, 6), on the host; zero of those that are
        not posed; waits."""

    def start_sums(self) -> Array:
        """Derivatives by the initial displacement, through held nodes that move, (S, N, 3), on the host; waits."""


class StepperFactory(Protocol):
    """Makes a stepper."""

    def __call__(
        self,
        body: Mapping[str, Any],
        spacing_m: float,
        scheme: Sequence[float],
        contact: Sequence[float],
        materials: Array,
        start: Array,
        real: npt.DTypeLike,
        tolerance: float,
        limit: int,
        /,
    ) -> Stepper:
        """A stepper of len(materials) systems.

        Args:
            body: device arrays cell_nodes (C, 8), node_cells (N, 8), gradient_index, cell_region (C,), table, rows of
                `layout.CELL`, position (N, 3) [m], free (N,), volume (N,) [m³], load (N, 3) [N], slot (N, 27),
                row_start (N + 1,), column, held (N,; region that holds a node, -1 for none), near and spread (27, N)
                [m³], see `fused_setup.mass_stencil`, point_nodes, point_weight (P, 8), point_start (C + 1,), point_area
                (P,) [m²]; coarse: the preconditioner's coarse grid, or None; and on the host mass_table, consistent
                masses over the density of corner pairs (rows of table, 36) [m³], obstacles, rows of `layout.OBSTACLE`
                (O, numbers), and tables, the splines' coefficients of fields.
            spacing_m: edge of a cell. scheme: the 23 coefficients of the integrator, in its own order of fields.
            contact: 1 with contact, 1 for implicit contact; else 0.
            materials: (S, numbers). start: initial displacements (S, N, 3) [m]. real: precision.
            tolerance, limit: of the linear solver.
        """


class Guard(Protocol):
    """Sums over a stepper's states and steps that tell whether a step can be trusted.

    A row of sums holds 11 numbers: elastic energy [J], fill-weighted squared turn that was not foreseen, kinetic energy
    [J], potential of gravity and loads [J], work of held nodes and obstacles that are led [J], contact energy [J],
    stiffness of extrapolated contact [N/m], the largest ratio of that to what holds against it at a point, momentum (3)
    [N s].
    """

    def state(self, u: Array, v: Array, paths: Paths, out: Array, /) -> None:
        """Energies and momentum of the state at the end of paths, u and v (S, N, 3), into out (S, 11)."""

    def step(self, before: State, after: State, paths: Paths, out: Array, /) -> None:
        """The sums of the step that the stepper has just made, into out (S, 11)."""


class GuardFactory(Protocol):
    """Makes a guard."""

    def __call__(self, stepper: Stepper, fill: Array, /) -> Guard:
        """The guard of a stepper made by the same backend; fill: how much of each cell is inside the body, (C,)."""


class TangentStepper(Protocol):
    """Tangent steps of a stepper's only system along K directions."""

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
        /,
    ) -> None:
        """Changes of the state after a step, written to `out`.

        Args:
            directions: (K, numbers), laid out as a material, see `layout.MATERIAL`. moves: of the obstacles' frames,
                rows of `layout.MOVE`, (K, O, 6).
            start: changes of the initial displacement (K, N, 3) [m], needed where held
                regions move.
            before: state before the step, each (N, 3). u_after: displacement after it (N, 3). changes: of the state
                before it, each (K, N, 3). tolerance: of the solves, relative. report: out, (K, 3).
            least: right-hand sides no larger than this, (K,) [N], are solved by zero; None: all of them are solved.
        """


class TangentStepperFactory(Protocol):
    """Makes a tangent stepper."""

    def __call__(self, stepper: Stepper, columns: int, /) -> TangentStepper:
        """Tangent steps along `columns` directions of a stepper of one system, made by the same backend."""


class View(Protocol):
    """Residuals of some frames of points; arrays stay where the backend computes.

    Attributes:
        owner: who measured last, for those who come back to what they measured. points: (n, 3) [m]. scale: 1/std (n,)
        [1/m]. far: 1 where a point had to take the nearest vertex's distance, (n,).
    """

    owner: Any
    points: Array
    scale: Array
    far: Array

    def measure(self, u: Array, /) -> Array:
        """Signed distances (n,) [m] at displacements u (T, N, 3) [m] of the body's nodes."""

    def change(self, frame: int, before: Array, after: Array, way: float, out: Array, /) -> None:
        """Changes of a frame's residuals times 1/std, into out (n of all frames, K).

        Args: before, after: changes of the body's nodes around the frame, (K, N, 3). way: share of the way between.
        """

    def pull_back(self, bar: Array, /) -> Array:
        """Derivatives by the body's nodes (T, N, 3), given those by the residuals (n,)."""


class Observer(Protocol):
    """A carried field that measures frames of points."""

    def watch(self, points: Array, along: Array, bias: Array, line_bias: Array, scale: Array, counts: Array, /) -> View:
        """Frames of points (n, 3) [m], `counts` of them each.

        along: ray over its cosine to the normal, zero where unknown, (n, 3). bias, line_bias: how much of Δφ the noise
            sees, at a point and where its line meets the surface, (n,) [m²]. scale: 1/std, (n,) [1/m].
        """


class ObserverFactory(Protocol):
    """Makes an observer."""

    def __call__(
        self,
        field: Mapping[str, Any],
        vertices: int,
        spacing_m: float,
        halo_cells: int,
        least_slope: float,
        reach: float,
        /,
    ) -> Observer:
        """The observer of a carried field.

        Args:
            field: rest (M, 3) [m], phi [m], laplacian [1/m] of the grid's nodes, cell_nodes (C, 8), node_cells (·, 8;
                -1 for none), in_body (C,); follow_start, follow_column, follow_share: rows of the matrix (M, N) that
                carries the body's displacements to the nodes; follower_start, ...: of its transpose.
            vertices: how many of the last nodes are the surface's vertices. spacing_m: edge of a cell. halo_cells:
                rings of cells around the body. least_slope: below which the field's gradient is held. reach: cells
                within which rays are followed to the surface.
        """
