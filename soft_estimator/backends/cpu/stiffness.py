"""The stiffness of each distinct cell, made of its table once for a Poisson's ratio; see `elasticity` for the formula.

Rows are laid out for `lanes`: stiffness[t, p, 3 b + a, q] is the entry of corner q, direction a, and corner p,
direction b, of a cell with E = 1 Pa: eight corners q next to each other. A body has as many distinct cells as cut ones,
and one more; each takes 4.6 kB.
"""

from __future__ import annotations

import weakref

import numpy as np

from soft_estimator.backends.cpu.compiled import njit, prange
from soft_estimator.backends.layout import CELL, place

_FAST = {"contract"}
_MEAN = place(CELL, "dilatation").start
_KEPT = 3  # of a table: a material's own, that of what relaxes, and one that is tried beside them

# By the table's identity, while it lives: (lam, mu) and what was made for them.
_known: dict[int, dict[tuple[float, float], np.ndarray]] = {}


def stiffness_of(table: np.ndarray, lam: float, mu: float) -> np.ndarray:
    """Stiffness (T, 8, 9, 8) of the rows of a table (T, 348), which nobody changes; lam, mu: Lamé's parameters of a
    material with E = 1 Pa."""
    if id(table) not in _known:
        weakref.finalize(table, _known.pop, id(table), None)
    kept, key = _known.setdefault(id(table), {}), (float(lam), float(mu))
    made = kept.pop(key, None)
    if made is None:
        made = np.empty((len(table), 8, 9, 8))
        _make(table, *key, made)
    kept[key] = made
    while len(kept) > _KEPT:
        kept.pop(next(iter(kept)), None)  # what was not asked for the longest, unless another thread did so
    return made


@njit(parallel=True, cache=True, fastmath=_FAST)
def _make(table: np.ndarray, lam: float, mu: float, out: np.ndarray) -> None:
    bulk, local = lam + mu * (2.0 / 3.0), -mu * (2.0 / 3.0)
    for t in prange(table.shape[0]):
        k = 0
        for p in range(8):
            for q in range(p, 8):
                trace = mu * (table[t, k] + table[t, k + 4] + table[t, k + 8])
                for a in range(3):
                    for b in range(3):
                        value = local * table[t, k + 3 * a + b] + mu * table[t, k + 3 * b + a]
                        value += trace if a == b else 0.0
                        value += bulk * table[t, _MEAN + 3 * p + a] * table[t, _MEAN + 3 * q + b]
                        out[t, q, 3 * b + a, p] = value
                        out[t, p, 3 * a + b, q] = value
                k += 9
