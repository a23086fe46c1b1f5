"""How much of the volume's curvature a neo-Hookean point may keep for its tangent to stay positive semi-definite.

Along the singular vectors of F, with singular values σ (the last one negative where det F is), ∂²J/∂F² has the
eigenvalues ±σ_i on shears and turns, and on stretches the matrix Z with Z_ij = σ_k; g = (σ₂σ₃, σ₁σ₃, σ₁σ₂) is ∂J/∂F.
So μ I + μ/3 g gᵀ + s c ∂²J/∂F² is positive semi-definite up to the smallest s at which s |c| max|σ| = μ or
μ I + μ/3 g gᵀ + s c Z ceases to be positive definite.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import njit

_HALVINGS = 48  # of the interval that holds the largest share: to rounding


@njit(cache=True)
def _squared_stretches(h: np.ndarray) -> tuple[float, float, float]:
    """Eigenvalues of FᵀF, F = I + H (9,), largest first; Smith's closed form, which is exact where they coincide."""
    f = h.copy()
    f[0] += 1.0
    f[4] += 1.0
    f[8] += 1.0
    a0 = f[0] * f[0] + f[3] * f[3] + f[6] * f[6]
    a1 = f[1] * f[1] + f[4] * f[4] + f[7] * f[7]
    a2 = f[2] * f[2] + f[5] * f[5] + f[8] * f[8]
    b0 = f[1] * f[2] + f[4] * f[5] + f[7] * f[8]
    b1 = f[0] * f[2] + f[3] * f[5] + f[6] * f[8]
    b2 = f[0] * f[1] + f[3] * f[4] + f[6] * f[7]
    mean = (a0 + a1 + a2) / 3.0
    a0, a1, a2 = a0 - mean, a1 - mean, a2 - mean
    spread = np.sqrt((a0 * a0 + a1 * a1 + a2 * a2 + 2.0 * (b0 * b0 + b1 * b1 + b2 * b2)) / 6.0)
    if not spread > 0.0:
        return mean, mean, mean
    half = (a0 * (a1 * a2 - b0 * b0) - b2 * (b2 * a2 - b0 * b1) + b1 * (b2 * b0 - a1 * b1)) / (2.0 * spread**3)
    angle = np.arccos(min(max(half, -1.0), 1.0)) / 3.0
    first, last = mean + 2.0 * spread * np.cos(angle), mean + 2.0 * spread * np.cos(angle + 2.0 * np.pi / 3.0)
    return first, 3.0 * mean - first - last, last


@njit(cache=True)
def _stretches_resist(mu: float, bend: float, x: float, y: float, z: float) -> bool:
    """Whether μ I + μ/3 g gᵀ + bend Z is positive definite, by its leading minors."""
    t, g0, g1, g2 = mu / 3.0, y * z, x * z, x * y
    b00, b11, b22 = mu + t * g0 * g0, mu + t * g1 * g1, mu + t * g2 * g2
    b01, b02, b12 = t * g0 * g1 + bend * z, t * g0 * g2 + bend * y, t * g1 * g2 + bend * x
    minor = b00 * b11 - b01 * b01
    return minor > 0.0 and b22 * minor - b12 * (b00 * b12 - b01 * b02) + b02 * (b01 * b12 - b02 * b11) > 0.0


@njit(cache=True)
def definite_share(h: np.ndarray, mu: float, bend: float) -> float:
    """The largest s <= 1 that leaves μ I + μ/3 g gᵀ + s bend ∂²J/∂F² positive semi-definite at F = I + H (9,)."""
    first, second, third = _squared_stretches(h)
    x, y, z = np.sqrt(max(first, 0.0)), np.sqrt(max(second, 0.0)), np.sqrt(max(third, 0.0))
    f0, f4, f8 = 1.0 + h[0], 1.0 + h[4], 1.0 + h[8]
    if f0 * (f4 * f8 - h[5] * h[7]) - h[1] * (h[3] * f8 - h[5] * h[6]) + h[2] * (h[3] * h[7] - f4 * h[6]) < 0.0:
        z = -z
    share = min(1.0, mu / max(abs(bend) * x, 1e-300))
    if _stretches_resist(mu, share * bend, x, y, z):
        return share
    low, high = 0.0, share
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _stretches_resist(mu, middle * bend, x, y, z):
            low = middle
        else:
            high = middle
    return low
