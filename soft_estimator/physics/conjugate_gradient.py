"""Conjugate gradients with a preconditioner of any kind."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from soft_estimator.backends.interface import Array, Backend
from soft_estimator.backends.loops import BREAKDOWN, CONVERGED, LIMIT, STALLED

_RESTARTS = 3


class Preconditioner(Protocol):
    """About the inverse of a matrix: symmetric, positive definite."""

    def apply(self, r: Array, out: Array) -> None:
        """out = P⁻¹ r for nodal vectors (N, 3)."""


def conjugate_gradient(
    backend: Backend,
    row_start: Array,
    column: Array,
    blocks: Array,
    preconditioner: Preconditioner,
    b: Array,
    x: Array,
    free: Array,
    tolerance: float,
    limit: int,
) -> tuple[int, float, int]:
    """`MatrixLoops.conjugate_gradient` with this preconditioner: iterations, relative residual, status.

    The preconditioner rounds in single precision, so β is taken in the form that does not ask it to be linear.
    """
    xp, mask = backend.xp, free[:, None]
    z, product, last = xp.empty_like(x), xp.empty_like(x), xp.zeros_like(x)

    def residual(v: Array) -> Array:
        backend.multiply(row_start, column, blocks, v, product)
        return mask * (b - product)

    def dot(v: Array, w: Array) -> float:
        return float((v * w).sum(dtype=np.float64))

    held = (1 - mask) * x
    r = residual(held) if held.any() else mask * b
    base = np.sqrt(dot(r, r))
    if base == 0.0:
        x *= 1 - mask
        return 0, 0.0, CONVERGED
    r, rz, restarts = residual(x), 0.0, 0
    p, size = xp.zeros_like(r), np.sqrt(dot(r, r))
    for iteration in range(limit):
        if not (np.isfinite(base) and np.isfinite(size) and size <= 1e8 * base):
            return iteration, np.inf, BREAKDOWN
        if size <= tolerance * base:
            r = residual(x)  # the recurred residual drifts: only the true one counts
            size = np.sqrt(dot(r, r))
            if size <= 2 * tolerance * base or restarts == _RESTARTS:
                return iteration, size / base, CONVERGED if size <= 2 * tolerance * base else STALLED
            restarts, rz = restarts + 1, 0.0
        preconditioner.apply(r, z)
        p *= dot(z, r - last) / rz if rz > 0 else 0.0
        p += z
        rz, last = dot(r, z), r
        backend.multiply(row_start, column, blocks, p, product)
        product *= mask
        curvature = dot(p, product)
        if not (curvature > 0 and rz > 0 and np.isfinite(curvature)):
            return iteration, size / base, BREAKDOWN
        x += rz / curvature * p
        r = r - rz / curvature * product
        size = np.sqrt(dot(r, r))
    return limit, size / base, LIMIT
