"""The deviatoric stiffness of the cells, from its formula (METHOD §10, §12), in double precision.

∫ 2μ ε:ε - (2μ/3) div div is, for corners p, q and μ = 1, Gᵀ + tr(G) I - ⅔ G with G = ∫∇N_p ∇N_qᵀ.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.backends.reference.cells import gradient_products


def deviatoric_matrices(table: Array) -> Array:
    """One for each row of the table, (T, 8, 3, 8, 3) [m]."""
    g = gradient_products(table)
    trace = np.trace(g, axis1=3, axis2=4)[..., None, None]
    return (g.swapaxes(3, 4) + trace * np.eye(3) - 2 / 3 * g).transpose(0, 1, 3, 2, 4)


def deviatoric_products(vectors: Array, gradient_index: Array, table: Array, out: Array) -> None:
    matrices = deviatoric_matrices(table.astype(np.float64)).reshape(-1, 24, 24)
    out[...] = np.einsum("cij,cjk->cik", matrices[gradient_index], vectors)
