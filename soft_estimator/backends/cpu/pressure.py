"""The cells' pressures in a preconditioner; see `physics.pressure` for the formulas.

They lie on a lattice with a border, so that all 27 neighbours of a run of cells are runs as well, and in single
precision, which is enough for a preconditioner: a product with S then runs at the speed of the processor's vectors.
Every sum runs in a fixed order, whatever the number of threads.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit, prange

Arrays = tuple[np.ndarray, ...]
_FAST = {"contract"}
_THREADS_FROM = 20_000  # places of the lattice; below, a step is shorter than waking a second thread


@njit(parallel=True, cache=True, fastmath=_FAST)
def pressure_matrix(
    inverse: np.ndarray,
    rows: np.ndarray,
    cell_nodes: np.ndarray,
    node_cells: np.ndarray,
    place: np.ndarray,
    out: np.ndarray,
) -> None:
    """out (27, M): S = I + B D⁻¹ Bᵀ; inverse (N, 9) of D's blocks, rows (C, 24) of B, place (C,) of the cells."""
    for o in prange(27):
        for k in range(out.shape[1]):
            out[o, k] = 0
    for c in prange(cell_nodes.shape[0]):
        sums = np.zeros(27)
        sums[13] = 1.0
        for p in range(8):
            n = cell_nodes[c, p]
            d, b0, b1, b2 = inverse[n], rows[c, 3 * p], rows[c, 3 * p + 1], rows[c, 3 * p + 2]
            w0 = d[0] * b0 + d[1] * b1 + d[2] * b2
            w1 = d[3] * b0 + d[4] * b1 + d[5] * b2
            w2 = d[6] * b0 + d[7] * b1 + d[8] * b2
            for q in range(8):
                other = node_cells[n, q]
                if other >= 0:
                    offset = 13 + 9 * ((p >> 2) - (q >> 2)) + 3 * ((p >> 1 & 1) - (q >> 1 & 1)) + (p & 1) - (q & 1)
                    k = 3 * q
                    sums[offset] += w0 * rows[other, k] + w1 * rows[other, k + 1] + w2 * rows[other, k + 2]
        for o in range(27):
            out[o, place[c]] = sums[o]


@njit(cache=True, fastmath=_FAST)
def _run(system: Arrays, run: np.ndarray, keep: np.float32, take: np.float32, vectors: Arrays) -> None:
    """r -= S p, then the next step of x, after = keep p + take · scaled r, on one run of the lattice.

    system: S, the strides to its neighbours, one over its diagonal. vectors: p, x, r, after.
    """
    matrix, strides, scale = system
    p, x, r, after = vectors
    low, high = run[0], run[1]
    left = r[low:high].copy()
    for o in range(27):
        row, near = matrix[o, low:high], p[low + strides[o] : high + strides[o]]
        for i in range(high - low):
            left[i] -= row[i] * near[i]
    for i in range(high - low):
        move = keep * p[low + i] + take * scale[low + i] * left[i]
        r[low + i] = left[i]
        after[low + i] = move
        x[low + i] += move


@njit(parallel=True, cache=True)
def _on_threads(system: Arrays, runs: np.ndarray, keep: np.float32, take: np.float32, vectors: Arrays) -> None:
    for k in prange(len(runs)):
        _run(system, runs[k], keep, take, vectors)


@njit(cache=True)
def _step(system: Arrays, runs: np.ndarray, keep: float, take: float, vectors: Arrays) -> None:
    """One of Chebyshev's steps on all runs (·, 2); the bits are the same for any number of threads."""
    kept, taken = np.float32(keep), np.float32(take)
    if len(system[2]) >= _THREADS_FROM:
        _on_threads(system, runs, kept, taken, vectors)
    else:
        for k in range(len(runs)):
            _run(system, runs[k], kept, taken, vectors)


@njit(cache=True)
def _chebyshev(system: Arrays, runs: np.ndarray, steps: np.ndarray, x: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Add Chebyshev's steps for S x = r to x and leave the last but one residual in r; returns the last step."""
    p, after = np.float32(steps[0, 1]) * system[2] * r, np.zeros_like(r)
    x += p
    for k in range(1, len(steps)):
        _step(system, runs, steps[k, 0], steps[k, 1], (p, x, r, after))
        p, after = after, p
    return p


@njit(parallel=True, cache=True, fastmath=_FAST)
def precondition_pressure(
    r: np.ndarray,
    inverse: np.ndarray,
    rows: np.ndarray,
    cell_nodes: np.ndarray,
    node_cells: np.ndarray,
    place: np.ndarray,
    strides: np.ndarray,
    runs: np.ndarray,
    matrix: np.ndarray,
    steps: np.ndarray,
    out: np.ndarray,
) -> None:
    """out (N, 3) = D⁻¹ (r - Bᵀ y), y about S⁻¹ B D⁻¹ r by Chebyshev's steps taken twice."""
    nodes, size = r.shape[0], matrix.shape[1]
    q, y, scale = np.zeros(size, np.float32), np.zeros(size, np.float32), np.zeros(size, np.float32)
    for i in prange(nodes):
        for a in range(3):
            out[i, a] = inverse[i, 3 * a] * r[i, 0] + inverse[i, 3 * a + 1] * r[i, 1] + inverse[i, 3 * a + 2] * r[i, 2]
    for c in prange(cell_nodes.shape[0]):
        total = 0.0
        for k in range(8):
            n = cell_nodes[c, k]
            total += rows[c, 3 * k] * out[n, 0] + rows[c, 3 * k + 1] * out[n, 1] + rows[c, 3 * k + 2] * out[n, 2]
        q[place[c]], scale[place[c]] = total, 1.0 / matrix[13, place[c]]
    system = (matrix, strides, scale)
    last = _chebyshev(system, runs, steps, y, q)
    _step(system, runs, 0.0, 0.0, (last, y, q, np.zeros_like(q)))
    _chebyshev(system, runs, steps, y, q)
    for i in prange(nodes):
        t0, t1, t2 = r[i, 0] * 1.0, r[i, 1] * 1.0, r[i, 2] * 1.0
        for k in range(8):
            c = node_cells[i, k]
            if c >= 0:
                pressure = y[place[c]]
                t0 -= rows[c, 3 * k] * pressure
                t1 -= rows[c, 3 * k + 1] * pressure
                t2 -= rows[c, 3 * k + 2] * pressure
        for a in range(3):
            out[i, a] = inverse[i, 3 * a] * t0 + inverse[i, 3 * a + 1] * t1 + inverse[i, 3 * a + 2] * t2
