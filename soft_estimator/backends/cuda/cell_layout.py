"""A body as products without a matrix take it (conjugate_gradient_cells.cu): in the fewest numbers, on the host.

On a cell with ξ in [-1, 1]³ a trilinear function is Σ_m û_m ξ^m over the eight products m of axes (x, y, z as the bits
4, 2, 1), with û = H u / 8 and H_mp = ξ_p^m at corner p. All ∫∂_a ξ^m ∂_b ξ^n are then moments of the cell, 23 of them;
the stabilisation of cut cells adds one number for the four modes that are not affine.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

ROW = 28  # numbers of a cell: moments by exponents at 9 i + 3 j + k, and the stabilisation's at 27
HOURGLASS = 27
_CELL_NUMBERS, _CHAINED, _ENDS, _FULL = 16, 1, 2, 4  # as in conjugate_gradient_cells.cu
_EVEN = (0, 2, 6, 8, 18, 20, 24)  # the moments that a full cell has
_TWISTS = {3: 2.0, 5: 2.0, 6: 2.0, 7: 1.0}  # modes that the stabilisation holds, and how much


def _exponents(m: int, n: int) -> int:
    return sum(3 ** (2 - a) * ((m >> (2 - a) & 1) + (n >> (2 - a) & 1)) for a in range(3))


def _signs() -> np.ndarray:
    """H (8 modes, 8 corners)."""
    return np.array([[(-1) ** bin(m & ~p).count("1") for p in range(8)] for m in range(8)], float)


def _table_map() -> np.ndarray:
    """Coefficients of the table's entries (36, 9) over a cell's numbers (ROW,), which take in the 1/64 of Hᵀ Ĝ H."""
    sign = _signs()
    out = np.zeros((8, 8, 3, 3, ROW))
    for a, b in np.ndindex(3, 3):
        for m, n in np.ndindex(8, 8):
            if m & 4 >> a and n & 4 >> b:
                out[:, :, a, b, _exponents(m ^ 4 >> a, n ^ 4 >> b)] += np.outer(sign[m], sign[n])
    for m, share in _TWISTS.items():
        out[:, :, range(3), range(3), HOURGLASS] += share * np.outer(sign[m], sign[m])[:, :, None]
    pairs = [(p, q) for p in range(8) for q in range(p, 8)]
    return np.stack([out[p, q].reshape(9, ROW) for p, q in pairs])


def cell_moments(table: np.ndarray) -> np.ndarray | None:
    """The cells' numbers (T, 28) from the table (T, 36, 9) of ∫∇N_p ∇N_qᵀ [m], of which the first is a full cell's.

    None if they do not make up the table: then there is something else in it.
    """
    to_table = _table_map().reshape(-1, ROW)
    rows = np.asarray(table, np.float64).reshape(len(table), -1)
    moments = rows @ np.linalg.pinv(to_table).T
    wrong = np.abs(moments @ to_table.T - rows).max(axis=1)
    full = np.abs(np.delete(moments[0], _EVEN)).max() <= 1e-6 * moments[0, 0]
    return moments if full and (wrong <= 1e-5 * np.abs(rows).max(axis=1)).all() else None


def mode_weights(weight: np.ndarray) -> np.ndarray:
    """The modes' weights (P, 8) at points with the corners' weights (P, 8): Σ_p weight_p u_p = Σ_m out_m (H u)_m."""
    return np.asarray(weight, np.float64) @ _signs().T / 8.0


def few_blocks(slot: np.ndarray, column: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slots (N, 27), row starts (N + 1,) and columns of the diagonal blocks and of the held nodes' rows alone."""
    keep = (slot >= 0) & ((held >= 0)[:, None] | (np.arange(27) == 13))
    few = np.where(keep, np.cumsum(keep).reshape(keep.shape) - 1, -1)
    return few, np.concatenate([[0], np.cumsum(keep.sum(axis=1))]), column[slot[keep]]


def lay_out_cells(arrays: Mapping[str, np.ndarray], pieces: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells in equal pieces, one for a thread of each system: (C, 16), and where in the faces each node's parts are.

    A cell goes on from the one before it in its piece where its low face along z is that one's high face.
    """
    nodes = arrays["cell_nodes"]
    count = len(nodes)
    first = count * np.arange(pieces) // pieces
    chained = np.zeros(count + 1, bool)
    chained[1:-1] = (nodes[1:, ::2] == nodes[:-1, 1::2]).all(axis=1)
    chained[first[first < count]] = False
    face = np.arange(count) + np.cumsum(~chained[:-1]) - 1
    cells = np.zeros((count, _CELL_NUMBERS), np.int32)
    cells[:, :4], cells[:, 4:8] = nodes[:, ::2], nodes[:, 1::2]
    cells[:, 8], cells[:, 9] = face, arrays["cell_region"]
    full = arrays["gradient_index"] == 0
    cells[:, 10] = _CHAINED * chained[:-1] + _ENDS * ~chained[1:] + _FULL * full
    cells[:, 12], cells[:, 13] = arrays["point_start"][:-1], arrays["point_start"][1:]
    on_face = np.empty((face[-1] + 2, 4), np.int64)
    on_face[face + 1], on_face[face] = cells[:, 4:8], cells[:, :4]
    place = np.argsort(on_face.ravel(), kind="stable")
    start = np.searchsorted(on_face.ravel()[place], np.arange(len(arrays["free"]) + 1))
    return cells, start.astype(np.int32), place.astype(np.int32)
