"""Several right-hand sides solved to a tolerance, by iterations of any kind.

Only columns that are not done go on, and of those only what others do not hold already (`_independent`). Iterations are
begun anew where the true residual is not what they took it for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from soft_estimator.backends.cpu.compiled import njit
from soft_estimator.backends.cpu.linear import BREAKDOWN, CONVERGED, LIMIT
from soft_estimator.backends.cpu.product import CHUNK
from soft_estimator.backends.cpu.product_many import residual_many

_FAST = {"contract"}
_RESTARTS = 3
# In units of what a column's residual may be: parts that all columns together hardly hold are left out, and the others
# solved this far; their sum then stays below one, or is gone on with.
_SMALL, DONE = 0.3, 0.9
# From x = 0 and its residuals r (N, 3, K), which may be overwritten, until all are below `DONE`, in so many
# iterations at most: iterations, status.
Descend = Callable[[np.ndarray, np.ndarray, int], tuple[int, int]]


def solve_by(
    descend: Descend,
    pattern: tuple[np.ndarray, np.ndarray, np.ndarray],
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    """`linear_many.conjugate_gradient_many` with iterations of any kind; pattern: row_start, column, blocks."""
    width = b.shape[2]
    partial = np.zeros(((len(free) + CHUNK - 1) // CHUNK, width))
    r, square = np.empty_like(x), np.zeros(width)
    reference = squares_of_given(pattern, b, x, free, r, partial)
    nothing = reference == 0.0  # solved by zero; from any guess it would never get there
    if nothing.any():
        x[:, :, nothing] *= (free == 0)[:, None, None]
    iterations, worst = 0, 0.0
    for restart in range(_RESTARTS + 2):
        # The recurred residual may drift from the true one: believe only the latter.
        residual_many(*pattern, b, x, free, r, partial, square)
        if not (np.isfinite(square).all() and np.isfinite(reference).all()):
            return iterations, np.inf, BREAKDOWN
        relative = np.sqrt(square / np.where(nothing, 1.0, reference))
        worst = float(relative.max())
        if worst <= (tolerance if restart == 0 else 2.0 * tolerance):
            return iterations, worst, CONVERGED
        if restart > _RESTARTS or iterations >= limit:
            break
        going = np.flatnonzero(relative > tolerance)
        parts, shares = _independent(r, going, tolerance * np.sqrt(reference[going]))
        found = np.zeros_like(parts)
        spent, status = descend(found, parts, limit - iterations)
        iterations += spent
        if status == BREAKDOWN:
            return iterations, np.inf, BREAKDOWN
        x[:, :, going] += _mixed(found, np.arange(found.shape[2]), shares)
    return iterations, worst, LIMIT


def squares_of_given(
    pattern: tuple[np.ndarray, np.ndarray, np.ndarray],
    b: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    r: np.ndarray,
    partial: np.ndarray,
) -> np.ndarray:
    """Squares (B,) of what is given on the free nodes: right-hand sides, and held nodes that move. r (N, 3, B), partial
    (chunks, B): overwritten."""
    held, reference = np.flatnonzero(free == 0), np.zeros(b.shape[2])
    if len(held) == 0 or not x[held].any():
        return _squares(b, free)
    residual_many(*pattern, b, x * (free == 0)[:, None, None], free, r, partial, reference)
    return reference


def _independent(r: np.ndarray, going: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fewer right-hand sides that hold all of some: columns (N, 3, K) whose sums with shares (K, G) are r[:, :, going].

    A body's changes along its directions are alike: moving it along a plane's normal is moving the plane the other way.
    In columns at right angles to each other, those that all of them nearly lack can be left out, and of those that are
    small a few digits are enough. Each column of r counts in its own unit (G,), and so do the sums: parts below one
    are done.
    """
    _, turn = np.linalg.eigh(_products(r, going, 1.0 / unit))
    parts = _mixed(r, going, turn / unit[:, None])
    size = np.sqrt(
        _squares(parts, np.ones(len(parts)))
    )  # of what they are, not what rounding makes of the products' eigenvalues
    kept = np.flatnonzero(size > _SMALL)
    return np.ascontiguousarray(parts[:, :, kept]), (turn[:, kept] * unit[:, None]).T


@njit(cache=True, fastmath=_FAST)
def _products(nodal: np.ndarray, chosen: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Products (G, G) of the chosen columns of a nodal array (N, 3, B) with each other, each times its factor (G,)."""
    count = chosen.shape[0]
    out, rows = np.zeros((count, count)), np.empty((3, count))
    for i in range(nodal.shape[0]):
        for a in range(3):
            for j in range(count):
                rows[a, j] = factor[j] * nodal[i, a, chosen[j]]
        for j in range(count):
            x, y, z = rows[0, j], rows[1, j], rows[2, j]
            for k in range(count):
                out[j, k] += x * rows[0, k] + y * rows[1, k] + z * rows[2, k]
    return out


@njit(cache=True, fastmath=_FAST)
def _squares(nodal: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Sums of squares (B,) of a nodal array's columns (N, 3, B) over the free nodes."""
    out = np.zeros(nodal.shape[2])
    for i in range(nodal.shape[0]):
        if free[i] == 0:
            continue
        for a in range(3):
            for j in range(nodal.shape[2]):
                out[j] += np.float64(nodal[i, a, j]) * nodal[i, a, j]
    return out


@njit(cache=True, fastmath=_FAST)
def _mixed(nodal: np.ndarray, chosen: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sums (N, 3, K) of the chosen columns of a nodal array (N, 3, B) with weights (G, K)."""
    width = weights.shape[1]
    out = np.empty((nodal.shape[0], 3, width), nodal.dtype)
    row = np.empty(width)
    for i in range(nodal.shape[0]):
        for a in range(3):
            row[:] = 0.0
            for j in range(chosen.shape[0]):
                each = np.float64(nodal[i, a, chosen[j]])
                for k in range(width):
                    row[k] += each * weights[j, k]
            for k in range(width):
                out[i, a, k] = row[k]
    return out
