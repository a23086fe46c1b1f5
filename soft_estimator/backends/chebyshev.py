"""Chebyshev's iteration for S x = r, with a matrix whose eigenvalues over its diagonal are known roughly."""

from __future__ import annotations

import numpy as np


def chebyshev_steps(count: int, largest: float, spread: float) -> np.ndarray:
    """(keep, take) of each step p = keep p + take · residual over the diagonal, (count, 2).

    Args:
        largest: eigenvalue. spread: its ratio to the smallest that the steps are laid out for.
    """
    middle, half = 0.5 * largest * (1 + 1 / spread), 0.5 * largest * (1 - 1 / spread)
    sigma = middle / half
    rho, out = 1.0 / sigma, [(0.0, 1.0 / middle)]
    for _ in range(count - 1):
        after = 1.0 / (2.0 * sigma - rho)
        out.append((rho * after, 2.0 * after / half))
        rho = after
    return np.array(out)
