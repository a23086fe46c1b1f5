"""A body as products without a matrix take it (conjugate_gradient_cells.cu): in the fewest numbers, on the host.

On a cell with ξ in [-1, 1]³ a trilinear function is Σ_m û_m ξ^m over the eight products m of axes (x, y, z as the bits
4, 2, 1), with û = H u / 8 and H_mp = ξ_p^m at corner p. All ∫∂_a ξ^m ∂_b ξ^n and, but for a factor, all ∫ξ^m ξ^n are
then moments of the cell, 27 of them; the stabilisation of cut cells adds one number for the four modes that are not
affine.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from soft_estimator.backends.layout import CELL, place

ROW = 28  # numbers of a cell: moments by exponents at 9 i + 3 j + k, and the stabilisation's at 27
HOURGLASS = 27
_CELL_NUMBERS, _CHAINED, _ENDS, _FULL = 16, 1, 2, 4  # as in conjugate_gradient_cells.cu
_EVEN = (0, 2, 6, 8, 18, 20, 24, 26)  # the moments that a full cell has
_HIGHEST = [17, 23, 25, 26]  # the moments that only masses have
_PAIRS = [(p, q) for p in range(8) for q in range(p, 8)]
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
    return np.stack([out[p, q].reshape(9, ROW) for p, q in _PAIRS])


def _mass_map() -> np.ndarray:
    """Coefficients of the pairs' masses (36,) over a cell's numbers (ROW,), but for `mass_scale`."""
    sign = _signs()
    out = np.zeros((8, 8, ROW))
    for m, n in np.ndindex(8, 8):
        out[:, :, _exponents(m, n)] += np.outer(sign[m], sign[n])
    return np.stack([out[p, q] for p, q in _PAIRS])


def _dilatation_map() -> np.ndarray:
    """Coefficients of b_p (8, 3) over a cell's numbers (ROW,), but for a factor."""
    sign = _signs()
    out = np.zeros((8, 3, ROW))
    for a, m in np.ndindex(3, 8):
        if m & 4 >> a:
            out[:, a, _exponents(m ^ 4 >> a, 0)] += sign[m]
    return out


def mass_scale(moments: np.ndarray, mass_table: np.ndarray) -> float:
    """Factor s [m²] with mass_pq = s Σ_mn H_mp H_nq moment(ξ^m ξ^n): from a full cell, whose masses sum to 64 s."""
    return float(_both_halves(mass_table[:1]).sum() / (64.0 * moments[0, 0]))


def _both_halves(pairs: np.ndarray) -> np.ndarray:
    """Numbers of the pairs p <= q (T, 36) as symmetric matrices (T, 8, 8)."""
    out = np.zeros((len(pairs), 8, 8))
    for k, (p, q) in enumerate(_PAIRS):
        out[:, p, q] = out[:, q, p] = pairs[:, k]
    return out


def lumped_volume(volume: np.ndarray, cells: np.ndarray, index: np.ndarray, mass_table: np.ndarray) -> np.ndarray:
    """What the nodes' volumes (N,) keep when each cell (C, 8) takes its masses (T, 36) of row index (C,) by itself."""
    own = _both_halves(np.asarray(mass_table, np.float64)).sum(axis=2)[index]
    return volume - np.bincount(cells.ravel(), own.ravel(), len(volume))


def cell_moments(table: np.ndarray, mass_table: np.ndarray) -> np.ndarray | None:
    """The cells' numbers (T, 28) from their rows of `layout.CELL` (T, 348), of which the first is a full cell's.

    The masses of the pairs p <= q (T, 36) [m³] add the highest moments, which no product of gradients has. None if the
    numbers do not make up both: then there is something else in them.
    """
    rows, masses = np.asarray(table, np.float64), np.asarray(mass_table, np.float64)
    gradients, mean = rows[:, place(CELL, "gradients")], rows[:, place(CELL, "dilatation")]
    to_table, to_mass = _table_map().reshape(-1, ROW), _mass_map()
    moments = gradients @ np.linalg.pinv(to_table).T
    scale = mass_scale(moments, masses)
    rest = masses / scale - moments @ to_mass.T
    moments[:, _HIGHEST] += rest @ np.linalg.pinv(to_mass[:, _HIGHEST]).T
    full = np.abs(np.delete(moments[0], _EVEN)).max() <= 1e-6 * moments[0, 0]
    slopes = moments @ _dilatation_map().reshape(-1, ROW).T / np.sqrt(moments[:, :1])
    slopes *= np.abs(mean[0]).max() / np.abs(slopes[0]).max()  # the same for every row
    pairs = ((moments @ to_table.T, gradients), (scale * moments @ to_mass.T, masses), (slopes, mean))
    alike = all((np.abs(got - want).max(axis=1) <= 1e-5 * np.abs(want).max(axis=1)).all() for got, want in pairs)
    return moments if full and alike else None


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
