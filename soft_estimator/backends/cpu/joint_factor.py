"""Block-Jacobi with one larger block, that of nodes which are solved for together; see `backends.joint_loops`."""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit
from soft_estimator.backends.joint_loops import JointBlock

_FAST = {"contract"}
_SUM = {"contract", "reassoc"}  # sums in the order of the vectors' lanes, always the same
NOTHING = JointBlock(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 0)))


@njit(cache=True)
def _fill(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    nodes: np.ndarray,
    place: np.ndarray,
    first: np.ndarray,
    factor: np.ndarray,
) -> None:
    """The joint nodes' blocks on and left of the diagonal."""
    for i in range(nodes.shape[0]):
        first[i] = i
        for k in range(row_start[nodes[i]], row_start[nodes[i] + 1]):
            j = place[column[k]]
            if j < 0 or j > i:
                continue
            first[i] = min(first[i], j)
            for a in range(3):
                for b in range(3):
                    factor[3 * i + a, 3 * j + b] = blocks[k, 3 * a + b]


@njit(cache=True, fastmath=_SUM)
def _dot(p: np.ndarray, q: np.ndarray) -> float:
    total = 0.0
    for k in range(p.shape[0]):
        total += p[k] * q[k]
    return total


@njit(cache=True)
def factorise_joint(
    row_start: np.ndarray,
    column: np.ndarray,
    blocks: np.ndarray,
    nodes: np.ndarray,
    place: np.ndarray,
    first: np.ndarray,
    factor: np.ndarray,
) -> bool:
    """Row by row; what is zero before the first block of a row stays so."""
    _fill(row_start, column, blocks, nodes, place, first, factor)
    for i in range(factor.shape[0]):
        low = 3 * first[i // 3]
        for j in range(low, i):
            begin = max(low, 3 * first[j // 3])
            factor[i, j] = (factor[i, j] - _dot(factor[i, begin:j], factor[j, begin:j])) * factor[j, j]
        left = factor[i, i] - _dot(factor[i, low:i], factor[i, low:i])
        if not left > 0.0:
            return False
        factor[i, i] = 1.0 / np.sqrt(left)
        factor[i, i + 1 :] = 0.0
    return True


@njit(cache=True, fastmath=_FAST)
def _take_off(share: float, row: np.ndarray, y: np.ndarray) -> None:
    for k in range(row.shape[0]):
        y[k] -= share * row[k]


@njit(cache=True)
def solve_joint(joint: JointBlock, r: np.ndarray, z: np.ndarray) -> float:
    """z = A_TT⁻¹ r on the joint nodes, r and z (N, 3); returns their part of r·z."""
    nodes, first, factor = joint
    y = np.empty(factor.shape[0])
    for i in range(nodes.shape[0]):
        for a in range(3):
            y[3 * i + a] = r[nodes[i], a]
    for i in range(y.shape[0]):
        low = 3 * first[i // 3]
        y[i] = (y[i] - _dot(factor[i, low:i], y[low:i])) * factor[i, i]
    for i in range(y.shape[0] - 1, -1, -1):
        low = 3 * first[i // 3]
        y[i] *= factor[i, i]
        _take_off(y[i], factor[i, low:i], y[low:i])
    product = 0.0
    for i in range(nodes.shape[0]):
        for a in range(3):
            z[nodes[i], a] = y[3 * i + a]
            product += r[nodes[i], a] * y[3 * i + a]
    return product


@njit(cache=True, fastmath=_FAST)
def _take_off_columns(share: float, row: np.ndarray, y: np.ndarray) -> None:
    for c in range(y.shape[0]):
        y[c] -= share * row[c]


@njit(cache=True)
def solve_joint_many(joint: JointBlock, r: np.ndarray, z: np.ndarray, product: np.ndarray) -> None:
    """The same for r and z (N, 3, K); product (K,) += the joint nodes' part of r·z."""
    nodes, first, factor = joint
    width = r.shape[2]
    y = np.empty((factor.shape[0], width))
    for i in range(nodes.shape[0]):
        for a in range(3):
            for c in range(width):
                y[3 * i + a, c] = r[nodes[i], a, c]
    for i in range(y.shape[0]):
        for j in range(3 * first[i // 3], i):
            _take_off_columns(factor[i, j], y[j], y[i])
        for c in range(width):
            y[i, c] *= factor[i, i]
    for i in range(y.shape[0] - 1, -1, -1):
        for c in range(width):
            y[i, c] *= factor[i, i]
        for j in range(3 * first[i // 3], i):
            _take_off_columns(factor[i, j], y[i], y[j])
    for i in range(nodes.shape[0]):
        for a in range(3):
            for c in range(width):
                z[nodes[i], a, c] = y[3 * i + a, c]
                product[c] += r[nodes[i], a, c] * y[3 * i + a, c]
