"""The linear system of a step: solved, watched and, where it fails, rescued."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.backends.loops import CONVERGED, STALLED
from soft_estimator.config import SolverConfig
from soft_estimator.physics.band import BandFactor
from soft_estimator.physics.conjugate_gradient import conjugate_gradient
from soft_estimator.physics.joint_block import TiedBlock
from soft_estimator.physics.multigrid import Multigrid
from soft_estimator.physics.pressure import PressurePreconditioner

_NAMES = {0: "converged", 1: "reached the iteration limit", 2: "broke down", 3: "stalled"}
# A stalled single-precision solve is as good as its precision allows below this residual.
STALL_ACCEPTED = 1e-4
# From this tolerance on, several right-hand sides are tried in single precision, for at most so many iterations.
SINGLE_FROM, SINGLE_ITERATIONS = 3e-4, 60
_DEFAULT = SolverConfig()


class SolverError(RuntimeError):
    """A system that neither conjugate gradients nor a direct solve could handle."""


@dataclass(frozen=True)
class SolverSettings:
    """relative_tolerance: stop at |r| <= tolerance · |b|. max_iterations: before a direct solve takes over.

    rounds: Newton rounds a step may take; 1 is one linear solve, made linear where the last motion leads.
    round_tolerance: they end when Δu changes by less than this part of its largest entry.
    own_parts: steps that cannot be trusted are taken again in parts of their own scheme first (see `guard`).
    """

    relative_tolerance: float = _DEFAULT.relative_tolerance
    max_iterations: int = _DEFAULT.max_iterations
    rounds: int = 1
    round_tolerance: float = 1e-8
    own_parts: bool = True


@dataclass(frozen=True)
class SolveReport:
    """iterations of conjugate gradients, the relative residual reached, and whether a direct solve had to step in."""

    iterations: int
    relative_residual: float
    rescued: bool = False


@dataclass(frozen=True)
class LinearSystem:
    """Block-sparse symmetric matrix with its block-Jacobi preconditioner, on the backend's device.

    pressure, multigrid: better preconditioners, for nearly incompressible bodies and for those of many nodes.
    band: a direct solve, for slender ones. tied: block-Jacobi with the nodes that friction ties in one block; None
    where there are none, or something better.
    """

    row_start: Array
    column: Array
    blocks: Array
    inverse: Array
    free: Array
    pressure: PressurePreconditioner | None = None
    multigrid: Multigrid | None = None
    band: BandFactor | None = None
    tied: TiedBlock | None = None

    def to_scipy(self, backend: Backend) -> sp.bsr_matrix:
        """The matrix as scipy.sparse, in double precision."""
        host = [backend.to_host(a) for a in (self.blocks, self.column, self.row_start)]
        n = len(host[2]) - 1
        return sp.bsr_matrix((host[0].astype(np.float64).reshape(-1, 3, 3), host[1], host[2]), shape=(3 * n, 3 * n))


def solve(backend: Backend, system: LinearSystem, b: Array, x: Array, settings: SolverSettings) -> SolveReport:
    """Solve A x = b on the free nodes from the guess in x, which is overwritten; never returns a bad x silently."""
    start = x.copy()
    iterations, residual, status = _iterate(backend, system, b, x, settings)
    if status == 0 or (status == 3 and residual < STALL_ACCEPTED):
        return SolveReport(int(iterations), float(residual))
    solution, residual = _solve_directly(backend, system, b, start, _NAMES[int(status)])
    x[...] = backend.to_device(solution, x.dtype)
    return SolveReport(int(iterations), residual, rescued=True)


def _iterate(
    backend: Backend, system: LinearSystem, b: Array, x: Array, settings: SolverSettings
) -> tuple[int, float, int]:
    """Conjugate gradients; where a better preconditioner does not lead to the end, block-Jacobi starts anew."""
    ending = (settings.relative_tolerance, settings.max_iterations)
    if system.band is not None:
        start, matrix = x.copy(), (system.row_start, system.column, system.blocks)
        found = system.band.solve_many(*matrix, b[:, :, None], x[:, :, None], system.free, *ending)
        if found[2] == CONVERGED:
            return found
        x[...] = start
    better = system.pressure or system.multigrid
    if better is not None:
        start, pattern = x.copy(), (system.row_start, system.column)
        found = conjugate_gradient(backend, *pattern, system.blocks, better, b, x, system.free, *ending)
        if found[2] in (CONVERGED, STALLED):
            return found
        x[...] = start
    return by_blocks(backend, system, b, x, ending)


def by_blocks(
    backend: Backend, system: LinearSystem, b: Array, x: Array, ending: tuple[float, int]
) -> tuple[int, float, int]:
    """Conjugate gradients with block-Jacobi, the nodes that friction ties together in one block; ending: tolerance and
    most iterations."""
    pattern = (system.row_start, system.column)
    if system.tied is not None:
        return system.tied.solve(pattern, system.blocks, b, x, system.free, ending)
    return backend.conjugate_gradient(*pattern, system.blocks, system.inverse, b, x, system.free, *ending)


def _solve_directly(
    backend: Backend, system: LinearSystem, b: Array, start: Array, what: str
) -> tuple[np.ndarray, float]:
    """Sparse LU in double precision, checked by its residual."""
    matrix = system.to_scipy(backend).tocsr()
    free = np.repeat(backend.to_host(system.free) > 0, 3)
    x = np.where(free, 0.0, backend.to_host(start).astype(np.float64).ravel())
    rhs = (backend.to_host(b).astype(np.float64).ravel() - matrix @ x)[free]
    if not (np.isfinite(rhs).all() and np.isfinite(matrix.data).all()):
        raise SolverError(
            "the step's system holds NaN or infinite values: the state has already diverged; use a smaller step_s"
        )
    inner = matrix[free][:, free].tocsc()
    x[free] = spsolve(inner, rhs)
    residual = float(np.linalg.norm(inner @ x[free] - rhs) / max(float(np.linalg.norm(rhs)), 1e-300))
    if not residual < STALL_ACCEPTED:
        raise SolverError(
            f"conjugate gradients {what} and the direct solve left a relative residual of {residual:.1e}; "
            "the body may be unsupported or the step too large: fix a region or use a smaller step_s"
        )
    return x.reshape(-1, 3), residual


def solve_many(
    backend: Backend,
    system: LinearSystem,
    b: Array,
    x: Array,
    settings: SolverSettings,
    least: np.ndarray | None = None,
) -> SolveReport:
    """Solve for several right-hand sides, b and x (N, 3, B); where the joint solve fails, column by column.

    least: right-hand sides no larger than this, (B,), are solved by zero: they are rounding, or too small to matter.
    """
    if least is None:
        return _solve_columns(backend, system, b, x, settings)
    xp, size = backend.xp, np.sqrt(backend.to_host((b * b).sum(axis=(0, 1))))
    moves = np.flatnonzero(~(size <= least))  # NaN moves: the solver has a word for it
    width = -(-len(moves) // backend.column_multiple) * backend.column_multiple
    some_b, some_x = (xp.zeros((*b.shape[:2], width), b.dtype) for _ in range(2))
    some_b[:, :, : len(moves)], some_x[:, :, : len(moves)] = b[:, :, moves], x[:, :, moves]
    x *= (1 - system.free)[:, None, None]
    if not width:
        return SolveReport(0, 0.0)
    report = _solve_columns(backend, system, some_b, some_x, settings)
    x[:, :, moves] = some_x[:, :, : len(moves)]
    return report


def _solve_columns(backend: Backend, system: LinearSystem, b: Array, x: Array, settings: SolverSettings) -> SolveReport:
    start, tolerance, limit = x.copy(), settings.relative_tolerance, settings.max_iterations
    tries: list[tuple[Multigrid | BandFactor | None, type, int]] = [(None, np.float64, limit)]
    # What is asked for loosely is tried in single precision first, at twice the speed.
    if system.band is not None:
        tries.insert(0, (system.band, np.float64, limit))
    elif tolerance >= SINGLE_FROM and x.dtype != backend.xp.float32:
        tries.insert(0, (system.multigrid, np.float32, min(SINGLE_ITERATIONS, limit)))
    elif system.multigrid is not None:
        tries.insert(0, (system.multigrid, np.float64, limit))
    for better, real, most in tries:
        solution = start.copy()
        iterations, residual, status = _try_columns(backend, system, better, real, b, solution, (tolerance, most))
        if status == CONVERGED:
            x[...] = solution
            return SolveReport(int(iterations), float(residual))
    reports = []
    for j in range(b.shape[2]):
        column = backend.xp.ascontiguousarray(start[:, :, j])
        reports.append(solve(backend, system, backend.xp.ascontiguousarray(b[:, :, j]), column, settings))
        x[:, :, j] = column
    worst = max(report.relative_residual for report in reports)
    return SolveReport(int(iterations), worst, any(report.rescued for report in reports))


def _try_columns(
    backend: Backend,
    system: LinearSystem,
    better: Multigrid | BandFactor | None,
    real: type,
    b: Array,
    x: Array,
    ending: tuple[float, int],
) -> tuple[int, float, int]:
    """Conjugate gradients from x, which is overwritten, in single precision or in that of x: iterations, worst relative
    residual and status."""
    blocks, inverse, free, size = system.blocks, system.inverse, system.free, None
    if real is np.float32 and x.dtype != real:
        # Right-hand sides of about one, since the smallest numbers single precision can hold make a processor several
        # times slower.
        size = abs(b).max(axis=(0, 1))
        size = backend.xp.where(size > 0, size, 1.0)
        blocks, inverse, free = (a.astype(real) for a in (blocks, inverse, free))
        b, solution = (b / size).astype(real), (x / size).astype(real)
    else:
        solution = x
    pattern = (system.row_start, system.column)
    if better is None and system.tied is not None:
        found = system.tied.solve(pattern, blocks, b, solution, free, ending)
    elif better is None:
        found = backend.conjugate_gradient_many(*pattern, blocks, inverse, b, solution, free, *ending)
    else:
        found = better.solve_many(*pattern, blocks, b, solution, free, *ending)
    if size is not None:
        x[...] = solution * size
    return found
