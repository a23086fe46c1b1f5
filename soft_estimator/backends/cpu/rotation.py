"""Rotation of each cell: the closest rotation to its deformation gradient, and the derivative of that map.

R maximises tr(RᵀF) over all rotations. For det F > 0 that is the polar factor; for flat and inverted cells it is the
rotation of the signed singular value decomposition, so a cell turned inside out is pushed back the short way (METHOD
§2).
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.cpu.compiled import CHUNK_OF_CELLS, njit, prange
from soft_estimator.backends.cpu.lanes import LANES, all_alike, lanes_of, put, roots

_FAST = {"contract"}
# A change of R below which Newton's iteration, which converges quadratically, is done: the next is below 1e-17.
_DONE = 1e-9
_STRETCHED = 3  # iterations with a scale of their own, which great stretches need


@njit(cache=True)
def _jacobi_largest(a: np.ndarray, v: np.ndarray) -> int:
    """Eigenvector of the largest eigenvalue of a symmetric 4x4 matrix (overwritten), by cyclic Jacobi rotations."""
    for i in range(4):
        for j in range(4):
            v[i, j] = 1.0 if i == j else 0.0
    for _ in range(12):
        off = 0.0
        for i in range(3):
            for j in range(i + 1, 4):
                off += a[i, j] * a[i, j]
        if off < 1e-30:
            break
        for p in range(3):
            for q in range(p + 1, 4):
                if a[p, q] == 0.0:
                    continue
                tau = (a[q, q] - a[p, p]) / (2.0 * a[p, q])
                t = (1.0 if tau >= 0 else -1.0) / (abs(tau) + np.sqrt(1.0 + tau * tau))
                c = 1.0 / np.sqrt(1.0 + t * t)
                s = t * c
                for k in range(4):
                    x, y = a[k, p], a[k, q]
                    a[k, p], a[k, q] = c * x - s * y, s * x + c * y
                for k in range(4):
                    x, y = a[p, k], a[q, k]
                    a[p, k], a[q, k] = c * x - s * y, s * x + c * y
                    x, y = v[k, p], v[k, q]
                    v[k, p], v[k, q] = c * x - s * y, s * x + c * y
    best = 0
    for i in range(1, 4):
        if a[i, i] > a[best, best]:
            best = i
    return best


@njit(cache=True)
def _closest_rotation_by_quaternion(f: np.ndarray, r: np.ndarray) -> None:
    """Davenport's method: the quaternion that maximises tr(RᵀF) is the top eigenvector of a symmetric 4x4 matrix."""
    scale = 0.0
    for i in range(9):
        scale = max(scale, abs(f[i]))
    n, v = np.empty((4, 4)), np.empty((4, 4))
    g = np.zeros(9)
    if scale > 0.0:
        for i in range(9):
            g[i] = f[i] / scale
    # The small first term decides for no rotation where F leaves the choice open (F = 0, F of rank one).
    n[0, 0] = g[0] + g[4] + g[8] + 1e-12
    n[1, 1], n[2, 2], n[3, 3] = g[0] - g[4] - g[8], -g[0] + g[4] - g[8], -g[0] - g[4] + g[8]
    n[0, 1] = n[1, 0] = g[7] - g[5]
    n[0, 2] = n[2, 0] = g[2] - g[6]
    n[0, 3] = n[3, 0] = g[3] - g[1]
    n[1, 2] = n[2, 1] = g[1] + g[3]
    n[1, 3] = n[3, 1] = g[2] + g[6]
    n[2, 3] = n[3, 2] = g[5] + g[7]
    k = _jacobi_largest(n, v)
    w, x, y, z = v[0, k], v[1, k], v[2, k], v[3, k]
    r[0], r[1], r[2] = 1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)
    r[3], r[4], r[5] = 2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)
    r[6], r[7], r[8] = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)


@njit(cache=True)
def _cofactor(x: np.ndarray, c: np.ndarray) -> float:
    c[0], c[1], c[2] = x[4] * x[8] - x[5] * x[7], x[5] * x[6] - x[3] * x[8], x[3] * x[7] - x[4] * x[6]
    c[3], c[4], c[5] = x[2] * x[7] - x[1] * x[8], x[0] * x[8] - x[2] * x[6], x[1] * x[6] - x[0] * x[7]
    c[6], c[7], c[8] = x[1] * x[5] - x[2] * x[4], x[2] * x[3] - x[0] * x[5], x[0] * x[4] - x[1] * x[3]
    return x[0] * c[0] + x[1] * c[1] + x[2] * c[2]


@njit(cache=True)
def _sound(determinant: float, size: float) -> bool:
    """Whether Newton's iteration X ← ½(γX + X⁻ᵀ/γ) converges, fast and safely, from F: away from singular ones."""
    return determinant > 1e-3 * (size / 3.0) ** 1.5


@njit(cache=True)
def deformation_gradient(u: np.ndarray, nodes: np.ndarray, quarter_inverse_h: float, f: np.ndarray) -> None:
    """F = I + 1/(4h) Σ u_i s_iᵀ of one cell, s_i = ±1 (row-major, length 9)."""
    for a in range(3):
        base = u[nodes[0], a]
        fx = fy = fz = 0.0
        for i in range(1, 8):
            d = u[nodes[i], a] - base
            fx += d if i & 4 else -d
            fy += d if i & 2 else -d
            fz += d if i & 1 else -d
        f[3 * a] = fx * quarter_inverse_h
        f[3 * a + 1] = fy * quarter_inverse_h
        f[3 * a + 2] = fz * quarter_inverse_h
        f[3 * a + a] += 1.0


@njit(cache=True, fastmath=_FAST)
def _newton(x: np.ndarray, changes: np.ndarray) -> None:
    """Closest rotations to several sound F at once, x (9, LANES); it is overwritten, as is changes (LANES,)."""
    x0, x1, x2 = lanes_of(x, 0), lanes_of(x, LANES), lanes_of(x, 2 * LANES)
    x3, x4, x5 = lanes_of(x, 3 * LANES), lanes_of(x, 4 * LANES), lanes_of(x, 5 * LANES)
    x6, x7, x8 = lanes_of(x, 6 * LANES), lanes_of(x, 7 * LANES), lanes_of(x, 8 * LANES)
    half = all_alike(0.5)
    for step in range(20):
        c0, c1, c2 = x4 * x8 - x5 * x7, x5 * x6 - x3 * x8, x3 * x7 - x4 * x6
        c3, c4, c5 = x2 * x7 - x1 * x8, x0 * x8 - x2 * x6, x1 * x6 - x0 * x7
        c6, c7, c8 = x1 * x5 - x2 * x4, x2 * x3 - x0 * x5, x0 * x4 - x1 * x3
        determinant = x0 * c0 + x1 * c1 + x2 * c2
        keep, take = half, half / determinant
        if step < _STRETCHED:
            norm_x = x0 * x0 + x1 * x1 + x2 * x2 + x3 * x3 + x4 * x4 + x5 * x5 + x6 * x6 + x7 * x7 + x8 * x8
            norm_c = c0 * c0 + c1 * c1 + c2 * c2 + c3 * c3 + c4 * c4 + c5 * c5 + c6 * c6 + c7 * c7 + c8 * c8
            gamma = roots(roots(norm_c / norm_x) / determinant)
            keep, take = half * gamma, take / gamma
        keep -= all_alike(1.0)  # of the change
        d0, d1, d2 = keep * x0 + take * c0, keep * x1 + take * c1, keep * x2 + take * c2
        d3, d4, d5 = keep * x3 + take * c3, keep * x4 + take * c4, keep * x5 + take * c5
        d6, d7, d8 = keep * x6 + take * c6, keep * x7 + take * c7, keep * x8 + take * c8
        x0, x1, x2, x3, x4, x5, x6, x7, x8 = (
            x0 + d0, x1 + d1, x2 + d2, x3 + d3, x4 + d4, x5 + d5, x6 + d6, x7 + d7, x8 + d8,
        )  # fmt: skip
        put(d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3 + d4 * d4 + d5 * d5 + d6 * d6 + d7 * d7 + d8 * d8, changes, 0)
        largest = 0.0
        for lane in range(LANES):
            largest = max(largest, changes[lane])
        if largest < _DONE * _DONE:
            break
    put(x0, x, 0)
    put(x1, x, LANES)
    put(x2, x, 2 * LANES)
    put(x3, x, 3 * LANES)
    put(x4, x, 4 * LANES)
    put(x5, x, 5 * LANES)
    put(x6, x, 6 * LANES)
    put(x7, x, 7 * LANES)
    put(x8, x, 8 * LANES)


@njit(cache=True)
def closest_rotations(f: np.ndarray, out: np.ndarray) -> None:
    """Closest rotations to 3x3 matrices, f and out (C, 9), row-major: several at once, those that need another way by
    themselves."""
    cofactor, changes = np.empty(9), np.empty(LANES)
    x, sound = np.empty((9, LANES)), np.empty(LANES, np.bool_)
    for first in range(0, f.shape[0], LANES):
        count = min(LANES, f.shape[0] - first)
        for lane in range(LANES):
            sound[lane] = False
            if lane < count:
                own, size = f[first + lane], 0.0
                for i in range(9):
                    size += own[i] * own[i]
                sound[lane] = _sound(_cofactor(own, cofactor), size)
            for i in range(9):
                x[i, lane] = f[first + lane, i] if sound[lane] else (1.0 if i % 4 == 0 else 0.0)
        _newton(x, changes)
        for lane in range(count):
            if not sound[lane]:
                _closest_rotation_by_quaternion(f[first + lane], out[first + lane])
                continue
            for i in range(9):
                out[first + lane, i] = x[i, lane]


@njit(parallel=True, cache=True)
def rotations(u: np.ndarray, cell_nodes: np.ndarray, spacing_m: float, out: np.ndarray) -> None:
    """Rotation of every cell, out (C, 9), from nodal displacements u (N, 3) [m]."""
    cells = cell_nodes.shape[0]
    for chunk in prange((cells + CHUNK_OF_CELLS - 1) // CHUNK_OF_CELLS):
        first, last = chunk * CHUNK_OF_CELLS, min(cells, (chunk + 1) * CHUNK_OF_CELLS)
        f = np.empty((last - first, 9))
        for c in range(first, last):
            deformation_gradient(u, cell_nodes[c], 0.25 / spacing_m, f[c - first])
        closest_rotations(f, out[first:last])


@njit(cache=True)
def _solve_spin(f: np.ndarray, r: np.ndarray, b: np.ndarray, y: np.ndarray) -> None:
    """Solve (tr(S) I - S) y = b with S = sym(RᵀF); y = 0 where the closest rotation is not unique."""
    s = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            s[i, j] = r[i] * f[j] + r[3 + i] * f[3 + j] + r[6 + i] * f[6 + j]
    trace = s[0, 0] + s[1, 1] + s[2, 2]
    m = np.empty(9)
    for i in range(3):
        for j in range(3):
            m[3 * i + j] = (trace if i == j else 0.0) - 0.5 * (s[i, j] + s[j, i])
    c = np.empty(9)
    determinant = _cofactor(m, c)
    if not abs(determinant) > 1e-12 * max(abs(trace), 1e-300) ** 3:
        y[0] = y[1] = y[2] = 0.0
        return
    for i in range(3):
        y[i] = (c[i] * b[0] + c[3 + i] * b[1] + c[6 + i] * b[2]) / determinant


@njit(parallel=True, cache=True)
def rotations_tangent(
    u: np.ndarray, du: np.ndarray, r: np.ndarray, cell_nodes: np.ndarray, spacing_m: float, out: np.ndarray
) -> None:
    """δR (C, 9) for a change du (N, 3) of u: δR = R [ω]ₓ, (tr(S) I - S) ω = axl(Rᵀ δF)."""
    for c in prange(cell_nodes.shape[0]):
        f, df, w, y, rc = np.empty(9), np.empty(9), np.empty(3), np.empty(3), np.empty(9)
        for i in range(9):
            rc[i] = r[c, i]
        deformation_gradient(u, cell_nodes[c], 0.25 / spacing_m, f)
        deformation_gradient(du, cell_nodes[c], 0.25 / spacing_m, df)
        df[0] -= 1.0
        df[4] -= 1.0
        df[8] -= 1.0
        _axial(rc, df, w)
        _solve_spin(f, rc, w, y)
        _spin(rc, y, out[c])


@njit(cache=True)
def _axial(r: np.ndarray, a: np.ndarray, w: np.ndarray) -> None:
    """axl(Rᵀ A)."""
    b = np.empty(9)
    for i in range(3):
        for j in range(3):
            b[3 * i + j] = r[i] * a[j] + r[3 + i] * a[3 + j] + r[6 + i] * a[6 + j]
    w[0], w[1], w[2] = b[7] - b[5], b[2] - b[6], b[3] - b[1]


@njit(cache=True)
def _spin(r: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """R [y]ₓ."""
    for i in range(3):
        a, b, c = r[3 * i], r[3 * i + 1], r[3 * i + 2]
        out[3 * i] = b * y[2] - c * y[1]
        out[3 * i + 1] = c * y[0] - a * y[2]
        out[3 * i + 2] = a * y[1] - b * y[0]


@njit(parallel=True, cache=True)
def rotations_adjoint(
    u: np.ndarray, r: np.ndarray, r_bar: np.ndarray, cell_nodes: np.ndarray, spacing_m: float, out: np.ndarray
) -> None:
    """Corner contributions (C, 24) to ū for given R̄ (C, 9).

    F̄ = R [y]ₓ, (tr(S) I - S) y = axl(Rᵀ R̄), ū_i += F̄ s_i/(4h).
    """
    for c in prange(cell_nodes.shape[0]):
        f, w, y, rc, rb, fb = np.empty(9), np.empty(3), np.empty(3), np.empty(9), np.empty(9), np.empty(9)
        for i in range(9):
            rc[i] = r[c, i]
            rb[i] = r_bar[c, i]
        deformation_gradient(u, cell_nodes[c], 0.25 / spacing_m, f)
        _axial(rc, rb, w)
        _solve_spin(f, rc, w, y)
        _spin(rc, y, fb)
        for i in range(8):
            sx, sy, sz = (1.0 if i & 4 else -1.0), (1.0 if i & 2 else -1.0), (1.0 if i & 1 else -1.0)
            for a in range(3):
                out[c, 3 * i + a] = (fb[3 * a] * sx + fb[3 * a + 1] * sy + fb[3 * a + 2] * sz) * 0.25 / spacing_m
