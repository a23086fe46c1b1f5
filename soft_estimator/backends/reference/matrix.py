"""The block-sparse matrix and conjugate gradients as a textbook writes them, in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum

import numpy as np
import scipy.sparse as sp

from soft_estimator.backends.interface import Array
from soft_estimator.backends.loops import BREAKDOWN, CONVERGED, LIMIT, STALLED

_RESTARTS = 3
_DIVERGED = 1e8  # times the right-hand side


def matrix_of(row_start: Array, column: Array, blocks: Array) -> sp.bsr_matrix:
    """The matrix (3N, 3N), in double precision."""
    size = 3 * (len(row_start) - 1)
    return sp.bsr_matrix((blocks.astype(np.float64).reshape(-1, 3, 3), column, row_start), shape=(size, size))


def sums(pairs: Sequence[tuple[Array, Array | None]]) -> list[float]:
    """Without any rounding but that of the products and of the result."""
    wide = [(np.asarray(a, np.float64), 1.0 if b is None else np.asarray(b, np.float64)) for a, b in pairs]
    return [fsum((a * b).ravel()) if np.isfinite(a * b).all() else float((a * b).sum()) for a, b in wide]


def add_blocks(slots: Array, values: Array, blocks: Array) -> None:
    np.add.at(blocks, slots, values)


def invert_diagonal(blocks: Array, slot: Array, free: Array, out: Array) -> None:
    centre = blocks[slot[:, 13]].astype(np.float64).reshape(-1, 3, 3)
    out[...] = np.where(free[:, None] != 0, np.linalg.inv(centre).reshape(-1, 9), 0.0)


def multiply(row_start: Array, column: Array, blocks: Array, x: Array, out: Array) -> None:
    out[...] = (matrix_of(row_start, column, blocks) @ x.astype(np.float64).ravel()).reshape(-1, 3)


def multiply_scalars(row_start: Array, column: Array, values: Array, x: Array, out: Array) -> None:
    shape = (len(out), len(x))
    out[...] = sp.csr_matrix((values.astype(np.float64), column, row_start), shape=shape) @ x.astype(np.float64)


def conjugate_gradient(
    row_start: Array,
    column: Array,
    blocks: Array,
    inverse: Array,
    b: Array,
    x: Array,
    free: Array,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    """Preconditioned by the inverse diagonal blocks, on the free nodes; the others keep their x."""
    each = inverse.astype(np.float64).reshape(-1, 3, 3)
    matrix = matrix_of(row_start, column, blocks)
    return iterate(matrix, lambda r: np.einsum("iab,ib->ia", each, r), b, x, free, tolerance, limit)


def iterate(
    matrix: sp.bsr_matrix,
    precondition: Callable[[Array], Array],
    b: Array,
    x: Array,
    free: Array,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    """With any preconditioner that keeps held nodes at rest."""
    mask = (free != 0)[:, None]
    solution = x.astype(np.float64)

    def residual_of(guess: Array) -> Array:
        return mask * (b - (matrix @ guess.ravel()).reshape(-1, 3))

    size = float(np.linalg.norm(residual_of(np.where(mask, 0.0, solution))))
    r = residual_of(solution)
    if not (np.isfinite(size) and np.isfinite(r).all()):
        return 0, np.inf, BREAKDOWN
    if size == 0.0:
        x[...] = np.where(mask, 0.0, solution)
        return 0, 0.0, CONVERGED
    p, rz, restarts = np.zeros_like(r), 0.0, 0
    for iteration in range(limit):
        if np.linalg.norm(r) <= tolerance * size:
            r = residual_of(solution)  # the recurred one drifts: only the true one counts
            relative = float(np.linalg.norm(r)) / size
            if relative <= 2 * tolerance or restarts == _RESTARTS:
                x[...] = solution
                return iteration, relative, CONVERGED if relative <= 2 * tolerance else STALLED
            restarts, rz = restarts + 1, 0.0
        z = precondition(r)
        before, rz = rz, float((r * z).sum())
        p = z + (rz / before if before > 0 else 0.0) * p
        ap = mask * (matrix @ p.ravel()).reshape(-1, 3)
        curvature = float((p * ap).sum())
        if not (curvature > 0 and np.isfinite(curvature)):
            return iteration, float(np.linalg.norm(r)) / size, BREAKDOWN
        solution += rz / curvature * p
        r = r - rz / curvature * ap
        if not np.linalg.norm(r) <= _DIVERGED * size:
            return iteration + 1, float(np.linalg.norm(r)) / size, BREAKDOWN
    x[...] = solution
    return limit, float(np.linalg.norm(r)) / size, LIMIT


def conjugate_gradient_many(
    row_start: Array,
    column: Array,
    blocks: Array,
    inverse: Array,
    b: Array,
    x: Array,
    free: Array,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    system = (row_start, column, blocks, inverse)
    return column_by_column(lambda one, guess: conjugate_gradient(*system, one, guess, free, tolerance, limit), b, x)


def column_by_column(
    solve: Callable[[Array, Array], tuple[int, float, int]], b: Array, x: Array
) -> tuple[int, float, int]:
    """Each right-hand side of (N, 3, K) from its guess, which is overwritten: the worst of all."""
    reports = []
    for j in range(b.shape[2]):
        guess = x[:, :, j].copy()
        reports.append(solve(b[:, :, j], guess))
        x[:, :, j] = guess
    iterations, residuals, statuses = zip(*reports)
    status = BREAKDOWN if BREAKDOWN in statuses else LIMIT if any(statuses) else CONVERGED
    return max(iterations), max(residuals), status
