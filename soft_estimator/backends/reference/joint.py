"""Block-Jacobi with one larger block, from its formula (`physics.joint_block`)."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.backends.joint_loops import JointBlock
from soft_estimator.backends.reference.matrix import column_by_column, iterate, matrix_of


def factorise_joint(
    row_start: Array, column: Array, blocks: Array, nodes: Array, place: Array, first: Array, factor: Array
) -> bool:
    """A_TT = L Lᵀ, L with its diagonal inverted."""
    rows = (3 * nodes[:, None] + np.arange(3)).ravel()
    part = matrix_of(row_start, column, blocks).tocsr()[rows][:, rows].toarray()
    beside = part.reshape(len(nodes), 3, len(nodes), 3).any(axis=(1, 3)) | np.eye(len(nodes), dtype=bool)
    first[...] = beside.argmax(axis=1)
    try:
        factor[...] = np.linalg.cholesky(part)
    except np.linalg.LinAlgError:
        return False
    np.fill_diagonal(factor, 1.0 / np.diag(factor))
    return True


def conjugate_gradient_joint(
    row_start: Array,
    column: Array,
    blocks: Array,
    inverse: Array,
    joint: JointBlock,
    b: Array,
    x: Array,
    free: Array,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    """z = D⁻¹ r, and A_TT⁻¹ r on the joint nodes."""
    each, lower = inverse.astype(np.float64).reshape(-1, 3, 3), joint.factor.copy()
    np.fill_diagonal(lower, 1.0 / np.diag(lower))

    def precondition(r: Array) -> Array:
        z = np.einsum("iab,ib->ia", each, r)
        half = np.linalg.solve(lower, r[joint.nodes].ravel())
        z[joint.nodes] = np.linalg.solve(lower.T, half).reshape(-1, 3)
        return z

    return iterate(matrix_of(row_start, column, blocks), precondition, b, x, free, tolerance, limit)


def conjugate_gradient_joint_many(
    row_start: Array,
    column: Array,
    blocks: Array,
    inverse: Array,
    joint: JointBlock,
    b: Array,
    x: Array,
    free: Array,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    system = (row_start, column, blocks, inverse, joint)

    def solve(one: Array, guess: Array) -> tuple[int, float, int]:
        return conjugate_gradient_joint(*system, one, guess, free, tolerance, limit)

    return column_by_column(solve, b, x)
