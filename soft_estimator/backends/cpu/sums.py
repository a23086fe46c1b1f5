"""Sums over whole arrays, by NumPy's pairwise summation: the same bits for any number of threads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def sums(pairs: Sequence[tuple[np.ndarray, np.ndarray | None]]) -> list[float]:
    """Σ a b of every pair, Σ a where b is None, in double precision."""
    return [float((a if b is None else a * b).sum(dtype=np.float64)) for a, b in pairs]
