"""The deviatoric stiffness of the cells applied to several vectors, without ever forming an element matrix.

See `elasticity` for the table; every cell's sums run in a fixed order, whatever the number of threads.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import FEW_CELLS, by_size, njit, prange

_FAST = {"contract"}  # fused multiply-add; no reordering, NaN and infinity keep their meaning


@by_size(rows=0, below=FEW_CELLS, fastmath=_FAST)
def deviatoric_products(vectors: np.ndarray, gradient_index: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
    """out (C, 24, K): Gᵀ + tr(G) I - ⅔ G of all corner pairs times vectors (C, 24, K)."""
    for c in prange(vectors.shape[0]):
        x, y = vectors[c], out[c]
        for i in range(24):
            for j in range(x.shape[1]):
                y[i, j] = 0
        row = table[gradient_index[c]]
        block = np.empty((3, 3), vectors.dtype)
        k = 0
        for p in range(8):
            for q in range(p, 8):
                g = row[k : k + 9]
                k += 9
                trace = g[0] + g[4] + g[8]
                for a in range(3):
                    for b in range(3):
                        block[a, b] = g[3 * b + a] - 2 / 3 * g[3 * a + b]
                    block[a, a] += trace
                _add(block, x[3 * q : 3 * q + 3], y[3 * p : 3 * p + 3])
                if p != q:
                    _add(block.T, x[3 * p : 3 * p + 3], y[3 * q : 3 * q + 3])


@njit(cache=True, fastmath=_FAST, inline="always")
def _add(block: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """y (3, K) += block (3, 3) x (3, K)."""
    for a in range(3):
        for j in range(x.shape[1]):
            y[a, j] += block[a, 0] * x[0, j] + block[a, 1] * x[1, j] + block[a, 2] * x[2, j]
