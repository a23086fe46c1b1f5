"""Neo-Hookean cells straight from the energy's derivatives by F, in double precision.

With g = ∂J/∂F = cof F and c = -μ + μ/3 (J - 1) + κ (J̄ - 1), a point has P = μ F + c g and the tangent
μ I + μ/3 g gᵀ + c ∂²J/∂F²; the mean adds κ V ∇J̄ ∇J̄ᵀ to the cell's.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from soft_estimator.backends.interface import Array
from soft_estimator.backends.neo_hookean_loops import NeoHookeanCells
from soft_estimator.backends.reference.cells import PAIRS

_EPSILON = np.zeros((3, 3, 3))
for _i, _j, _k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    _EPSILON[_i, _j, _k], _EPSILON[_j, _i, _k] = 1.0, -1.0
_P, _Q = np.array(PAIRS).T


def _volume_hessian(f: Array) -> Array:
    """∂²J/∂F_ai ∂F_bj = ε_abc ε_ijk F_ck, (..., 3, 3, 3, 3)."""
    return np.einsum("abc,ijk,...ck->...aibj", _EPSILON, _EPSILON, f)


class _Strained:
    """F, J - 1 and ∂J/∂F at the points, (C, 8, ...), and the mean of J - 1, (C,)."""

    def __init__(self, u: Array, cells: NeoHookeanCells) -> None:
        self.slopes = cells.slopes[cells.row].astype(np.float64).transpose(0, 3, 1, 2)  # point, corner, component
        at = u[cells.cell_nodes].astype(np.float64)
        self.at = at - at[:, :1]
        self.f = np.eye(3) + np.einsum("cpa,ckpb->ckab", self.at, self.slopes)
        self.volumetric = np.linalg.det(self.f) - 1.0
        self.cofactor = 0.5 * np.einsum("ckaibj,ckbj->ckai", _volume_hessian(self.f), self.f)
        self.mean = self.volumetric.mean(axis=1)

    def bend(self, lam: float, mu: float) -> Array:
        """c at the points, (C, 8)."""
        return -mu + mu / 3 * self.volumetric + (lam + 2 * mu / 3) * self.mean[:, None]


def _full(pairs: Array) -> Array:
    """Symmetric matrices (·, 8, 8) of their upper entries (·, 36)."""
    out = np.zeros((len(pairs), 8, 8))
    out[:, _P, _Q] = out[:, _Q, _P] = pairs
    return out


def neo_hookean_forces(u: Array, cells: NeoHookeanCells, energy: Array, corner: Array) -> None:
    _, row, _, _, laplacian, volume, young, lam, mu = cells
    s, weight, kappa = _Strained(u, cells), volume[row] / 8.0, lam + 2 * mu / 3
    products = np.einsum("ckpa,ckqa,c->cpq", s.slopes, s.slopes, weight)
    rest = _full(laplacian.astype(np.float64))[row] - products  # the stabilisation, and rounding
    squares = np.einsum("ckab,ckab->ck", s.f, s.f) - 3.0
    density = mu / 2 * squares - mu * s.volumetric + mu / 6 * s.volumetric**2
    held = 0.5 * mu * np.einsum("cpa,cpq,cqa->c", s.at, rest, s.at)
    energy[...] = young * (weight * density.sum(axis=1) + 4.0 * weight * kappa * s.mean**2 + held)
    stress = mu * s.f + s.bend(lam, mu)[..., None, None] * s.cofactor
    force = np.einsum("c,ckab,ckpb->cpa", weight, stress, s.slopes) + mu * np.einsum("cpq,cqa->cpa", rest, s.at)
    corner[...] = (young[:, None, None] * force).reshape(-1, 24)


def neo_hookean_blocks(u: Array, cells: NeoHookeanCells, definite: bool, out: Array) -> None:
    _, row, _, _, laplacian, volume, young, lam, mu = cells
    s, weight, kappa = _Strained(u, cells), volume[row] / 8.0, lam + 2 * mu / 3
    bend, curved, cofactor = s.bend(lam, mu), _volume_hessian(s.f), s.cofactor
    if definite:
        bend = bend * _definite_shares(curved, cofactor, mu, bend)
    tangent = mu / 3 * cofactor[..., :, :, None, None] * cofactor[..., None, None, :, :]
    tangent = tangent + bend[..., None, None, None, None] * curved
    matrix = np.einsum("c,ckpi,ckaibj,ckqj->cpaqb", weight, s.slopes, tangent, s.slopes)
    mean = np.einsum("ckai,ckpi->cpa", cofactor, s.slopes) / 8.0
    matrix += np.einsum("c,cpa,cqb->cpaqb", 8.0 * weight * kappa, mean, mean)
    matrix += mu * np.einsum("cpq,ab->cpaqb", _full(laplacian.astype(np.float64))[row], np.eye(3))
    matrix *= young[:, None, None, None, None]
    out[...] = matrix[:, _P, :, _Q, :].transpose(1, 0, 2, 3).reshape(-1, 36, 9)


def _definite_shares(curved: Array, cofactor: Array, mu: float, bend: Array) -> Array:
    """The largest s <= 1 with B + s c ∂²J/∂F² positive semi-definite, B = μ I + μ/3 g gᵀ: one over the largest
    eigenvalue of -c ∂²J/∂F² x = ω B x, where that is above 1."""
    out = np.ones(bend.shape)
    for place in np.ndindex(*bend.shape):
        g = cofactor[place].ravel()
        largest = eigh(
            -bend[place] * curved[place].reshape(9, 9), mu * (np.eye(9) + np.outer(g, g) / 3), eigvals_only=True
        )[-1]
        out[place] = 1.0 / max(1.0, float(largest))
    return out


def gather_blocks(cell_blocks: Array, node_cells: Array, scale: float, slot: Array, blocks: Array) -> None:
    pair = np.zeros((8, 8), dtype=np.int64)
    pair[_P, _Q] = pair[_Q, _P] = np.arange(36)
    offsets = np.array([(p >> 2, p >> 1 & 1, p & 1) for p in range(8)])
    for p, q in np.ndindex(8, 8):
        nodes = np.flatnonzero(node_cells[:, p] >= 0)
        given = cell_blocks[node_cells[nodes, p], pair[p, q]].reshape(-1, 3, 3)
        given = given if p <= q else given.transpose(0, 2, 1)
        place = slot[nodes, 13 + (offsets[q] - offsets[p]) @ np.array([9, 3, 1])]
        blocks[place] += scale * given.reshape(-1, 9)  # one cell for each node: no place twice


def block_products(cell_blocks: Array, cell_nodes: Array, x: Array, out: Array) -> None:
    blocks = cell_blocks.reshape(-1, 36, 3, 3).astype(np.float64)
    total = np.zeros((len(cell_nodes), 8, 3, x.shape[2]))
    at = x[cell_nodes].astype(np.float64)
    for k, (p, q) in enumerate(PAIRS):
        total[:, p] += np.einsum("cab,cbj->caj", blocks[:, k], at[:, q])
        if p != q:
            total[:, q] += np.einsum("cab,caj->cbj", blocks[:, k], at[:, p])
    out[...] = total.reshape(out.shape)
