"""Rotations and corotated linear elasticity of the cells, from their formulas (METHOD §2), in double precision.

Corner p of a cell rests at h c_p, c_p in {0, 1}³. With F = I + 1/(4h) Σ u_p s_pᵀ, s_p = 2 c_p - 1, a cell turns by the
rotation R closest to F. The stiffness of corners p, q for E = 1 is that of mean dilatation (METHOD §10),
μ (G_pqᵀ + tr(G_pq) I - ⅔ G_pq) + (λ + ⅔ μ) b_p b_qᵀ / V, with G_pq = ∫∇N_p ∇N_qᵀ and b_p = ∫∇N_p.
"""

from __future__ import annotations

import numpy as np

from soft_estimator.backends.interface import Array
from soft_estimator.backends.layout import CELL, place

CORNERS = np.array([(p >> 2, p >> 1 & 1, p & 1) for p in range(8)])
SIGNS = 2.0 * CORNERS - 1.0
PAIRS = [(p, q) for p in range(8) for q in range(p, 8)]  # in the order of the table


def corner_nodes(node_cells: Array) -> Array:
    """The cells' corners (C, 8) from the cells of each corner of the nodes (N, 8)."""
    out = np.zeros((node_cells.max() + 1, 8), np.int64)
    for p in range(8):
        here = np.nonzero(node_cells[:, p] >= 0)[0]
        out[node_cells[here, p], p] = here
    return out


# Rotations


def gradients(u: Array, cell_nodes: Array, spacing_m: float) -> Array:
    """1/(4h) Σ u_p s_pᵀ of every cell, (C, 3, 3)."""
    return np.einsum("cpa,pb->cab", u[cell_nodes].astype(np.float64), SIGNS) / (4 * spacing_m)


def closest_rotations(f: Array) -> Array:
    """The rotations that maximise tr(RᵀF), (C, 3, 3): U diag(1, 1, ±1) Vᵀ of the singular value decomposition.

    Where F leaves the choice open (F = 0, F of rank one, a pure reflection), the one closest to no rotation: F is moved
    towards I by a ten-million-millionth of its size.
    """
    towards_identity = 2.5e-13 * np.abs(f).max(axis=(1, 2))
    left, _, right = np.linalg.svd(f + towards_identity[:, None, None] * np.eye(3))
    left[:, :, 2] *= np.sign(np.linalg.det(left @ right))[:, None]
    return left @ right


def rotations(u: Array, cell_nodes: Array, spacing_m: float, out: Array) -> None:
    out[...] = closest_rotations(np.eye(3) + gradients(u, cell_nodes, spacing_m)).reshape(-1, 9)


def _axial(a: Array) -> Array:
    """axl(A) = (A₃₂ - A₂₃, A₁₃ - A₃₁, A₂₁ - A₁₂)."""
    return np.stack([a[:, 2, 1] - a[:, 1, 2], a[:, 0, 2] - a[:, 2, 0], a[:, 1, 0] - a[:, 0, 1]], axis=1)


def _cross(w: Array) -> Array:
    """[w]ₓ (C, 3, 3)."""
    out = np.zeros((len(w), 3, 3))
    out[:, 2, 1], out[:, 0, 2], out[:, 1, 0] = w[:, 0], w[:, 1], w[:, 2]
    return out - out.transpose(0, 2, 1)


def _turn(f: Array, r: Array, change: Array) -> Array:
    """R [ω]ₓ with (tr(S) I - S) ω = axl(Rᵀ change), S = sym(RᵀF); zero where the closest rotation is not unique.

    The map from δF to δR; it is symmetric, so also that from R̄ to F̄.
    """
    stretch = np.einsum("cka,ckb->cab", r, f)
    stretch = 0.5 * (stretch + stretch.transpose(0, 2, 1))
    trace = np.trace(stretch, axis1=1, axis2=2)
    matrix = trace[:, None, None] * np.eye(3) - stretch
    unique = np.abs(np.linalg.det(matrix)) > 1e-12 * np.maximum(np.abs(trace), 1e-300) ** 3
    matrix[~unique] = np.eye(3)
    right = _axial(np.einsum("cka,ckb->cab", r, change)) * unique[:, None]
    return r @ _cross(np.linalg.solve(matrix, right[:, :, None])[:, :, 0])


def rotations_tangent(u: Array, du: Array, r: Array, cell_nodes: Array, spacing_m: float, out: Array) -> None:
    f, df = np.eye(3) + gradients(u, cell_nodes, spacing_m), gradients(du, cell_nodes, spacing_m)
    out[...] = _turn(f, r.reshape(-1, 3, 3).astype(np.float64), df).reshape(-1, 9)


def rotations_adjoint(u: Array, r: Array, r_bar: Array, cell_nodes: Array, spacing_m: float, out: Array) -> None:
    f = np.eye(3) + gradients(u, cell_nodes, spacing_m)
    f_bar = _turn(f, r.reshape(-1, 3, 3).astype(np.float64), r_bar.reshape(-1, 3, 3))
    out[...] = np.einsum("cab,pb->cpa", f_bar, SIGNS).reshape(-1, 24) / (4 * spacing_m)


# Elastic forces


def gradient_products(table: Array) -> Array:
    """G of all corner pairs for each row of the table, (T, 8, 8, 3, 3) [m]."""
    g = np.zeros((len(table), 8, 8, 3, 3))
    pairs = table[:, place(CELL, "gradients")].reshape(-1, 36, 3, 3)
    for k, (p, q) in enumerate(PAIRS):
        g[:, p, q] = pairs[:, k]
        g[:, q, p] = g[:, p, q].transpose(0, 2, 1)
    return g


def lame_matrices(table: Array) -> tuple[Array, Array]:
    """The factors of λ and of μ in the stiffness of each row of the table for E = 1, both (T, 8, 3, 8, 3)."""
    g = gradient_products(table)
    mean = table[:, place(CELL, "dilatation")].reshape(-1, 8, 3)  # b/√V
    by_lame = np.einsum("tpa,tqb->tpaqb", mean, mean)
    by_shear = g.transpose(0, 1, 2, 4, 3) + np.trace(g, axis1=3, axis2=4)[..., None, None] * np.eye(3) - 2 / 3 * g
    return by_lame, by_shear.transpose(0, 1, 3, 2, 4) + 2 / 3 * by_lame


def _times(matrices: Array, index: Array, vectors: Array) -> Array:
    """Each cell's matrix (8, 3, 8, 3) times its corner vectors (C, 8, 3, ...)."""
    return np.einsum("cpaqb,cqb...->cpa...", matrices[index], vectors)


def _turned_back(r: Array, vectors: Array) -> Array:
    return np.einsum("cab,cpa...->cpb...", r, vectors)


def _turned(r: Array, vectors: Array) -> Array:
    return np.einsum("cab,cpb...->cpa...", r, vectors)


def _from_first_corner(vectors: Array) -> Array:
    """Forces do not depend on where a cell is; numbers of its own size lose less."""
    return vectors - vectors[:, :1]


class _Strained:
    """Cells with y = share (x + u) + z at the corners, w = Rᵀ y - share x, and the forces K̂ w by λ and by μ."""

    def __init__(
        self, u: Array, z: Array, share: float, r: Array, cell_nodes: Array, index: Array, table: Array, spacing: float
    ) -> None:
        self.index, self.r = index, r.reshape(-1, 3, 3).astype(np.float64)
        self.matrices = lame_matrices(table.astype(np.float64))
        at = share * (spacing * CORNERS + u[cell_nodes].astype(np.float64)) + z[cell_nodes]
        self.y = _from_first_corner(at)
        self.w = _turned_back(self.r, self.y) - share * spacing * CORNERS
        self.by_lame, self.by_shear = self.products(self.w)

    def products(self, vectors: Array) -> tuple[Array, Array]:
        return _times(self.matrices[0], self.index, vectors), _times(self.matrices[1], self.index, vectors)


def cell_forces(
    u: Array,
    z: Array,
    share: float,
    r: Array,
    cell_nodes: Array,
    gradient_index: Array,
    table: Array,
    young: Array,
    lam: float,
    mu: float,
    spacing: float,
    out: Array,
) -> None:
    s = _Strained(u, z, share, r, cell_nodes, gradient_index, table, spacing)
    local = young[:, None, None] * (lam * s.by_lame + mu * s.by_shear)
    out[...] = _turned(s.r, local).reshape(-1, 24)


def cell_energies(
    u: Array,
    zero: Array,
    r: Array,
    cell_nodes: Array,
    gradient_index: Array,
    table: Array,
    young: Array,
    lam: float,
    mu: float,
    spacing: float,
    out: Array,
) -> None:
    s = _Strained(u, zero, 1.0, r, cell_nodes, gradient_index, table, spacing)
    out[...] = 0.5 * young * (s.w * (lam * s.by_lame + mu * s.by_shear)).sum(axis=(1, 2))


def cell_forces_tangent(
    dr: Array,
    u: Array,
    z: Array,
    share: float,
    r: Array,
    cell_nodes: Array,
    gradient_index: Array,
    table: Array,
    young: Array,
    lam: float,
    mu: float,
    dlam: Array,
    dmu: Array,
    spacing: float,
    out: Array,
) -> None:
    s = _Strained(u, z, share, r, cell_nodes, gradient_index, table, spacing)
    turn = dr.reshape(-1, 3, 3)
    d_lame, d_shear = s.products(_turned_back(turn, s.y))
    change = lam * d_lame + mu * d_shear + dlam[:, None, None] * s.by_lame + dmu[:, None, None] * s.by_shear
    total = _turned(s.r, change) + _turned(turn, lam * s.by_lame + mu * s.by_shear)
    out[...] = (young[:, None, None] * total).reshape(-1, 24)


def cell_forces_tangents(
    at: Array,
    dat: Array,
    u: Array,
    z: Array,
    moved: Array,
    r: Array,
    cell_nodes: Array,
    gradient_index: Array,
    table: Array,
    young: Array,
    region: Array,
    lam: float,
    mu: float,
    dlam: Array,
    dmu: Array,
    spacing: float,
    out: Array,
) -> None:
    """Through the turn of R, through λ and μ, and through the corners' own motion."""
    s = _Strained(u, z, 1.0, r, cell_nodes, gradient_index, table, spacing)
    turns = np.empty((len(cell_nodes), 9, out.shape[2]))
    for j in range(out.shape[2]):
        rotations_tangent(at, dat[:, :, j], r, cell_nodes, spacing, turns[:, :, j])
    turn = turns.reshape(-1, 3, 3, out.shape[2])
    own = _from_first_corner(moved[cell_nodes].astype(np.float64))
    strain = np.einsum("cabk,cpa->cpbk", turn, s.y) + _turned_back(s.r, own)
    d_lame, d_shear = s.products(strain)
    by_region = [x[region][:, None, None, :] for x in (dlam, dmu)]
    change = lam * d_lame + mu * d_shear + by_region[0] * s.by_lame[..., None] + by_region[1] * s.by_shear[..., None]
    total = _turned(s.r, change) + np.einsum("cabk,cpb->cpak", turn, lam * s.by_lame + mu * s.by_shear)
    out[...] = (young[:, None, None, None] * total).reshape(out.shape)


def cell_forces_adjoint(
    lmbda: Array,
    u: Array,
    z: Array,
    share: float,
    r: Array,
    cell_nodes: Array,
    gradient_index: Array,
    table: Array,
    young: Array,
    lam: float,
    mu: float,
    spacing: float,
    y_bar: Array,
    r_bar: Array,
    lame_bar: Array,
) -> None:
    """L = Σ lᵀ R K̂ (Rᵀ y - share x): by y it is R K̂ Rᵀ l, by R it is l (K̂ w)ᵀ + y (K̂ Rᵀ l)ᵀ summed over corners."""
    s = _Strained(u, z, share, r, cell_nodes, gradient_index, table, spacing)
    young_each, l = young[:, None, None], lmbda[cell_nodes].astype(np.float64)
    back = _turned_back(s.r, l)
    b_lame, b_shear = s.products(back)
    force, pulled = young_each * (lam * s.by_lame + mu * s.by_shear), young_each * (lam * b_lame + mu * b_shear)
    y_bar[...] = _turned(s.r, pulled).reshape(-1, 24)
    r_bar[...] = (np.einsum("cpa,cpb->cab", l, force) + np.einsum("cpa,cpb->cab", s.y, pulled)).reshape(-1, 9)
    lame_bar[:, 0] = young * (back * s.by_lame).sum(axis=(1, 2))
    lame_bar[:, 1] = young * (back * s.by_shear).sum(axis=(1, 2))


# From cells to nodes


def gather(cell_values: Array, node_cells: Array, scale: float, out: Array) -> None:
    gather_many(cell_values[:, :, None], node_cells, scale, out[:, :, None])


def gather_many(cell_values: Array, node_cells: Array, scale: float, out: Array) -> None:
    values = cell_values.reshape(len(cell_values), 8, 3, -1).astype(np.float64)
    total = np.zeros(out.shape)
    np.add.at(total, corner_nodes(node_cells), values)
    out += (scale * total).astype(out.dtype)


def neighbour(p: int, q: int) -> int:
    """Place of corner q among the 27 neighbours of corner p."""
    return int((CORNERS[q] - CORNERS[p] + 1) @ [9, 3, 1])


def assemble(
    r: Array,
    node_cells: Array,
    gradient_index: Array,
    table: Array,
    young: Array,
    lam: float,
    mu: float,
    scale: float,
    inertia: Array,
    row_start: Array,
    slot: Array,
    blocks: Array,
) -> None:
    turn, nodes = r.reshape(-1, 3, 3).astype(np.float64), corner_nodes(node_cells)
    by_lame, by_shear = lame_matrices(table.astype(np.float64))
    stiffness = (lam * by_lame + mu * by_shear)[gradient_index] * young[:, None, None, None, None]
    total = np.zeros((int(row_start[-1]), 3, 3))
    for p in range(8):
        for q in range(8):
            block = scale * turn @ stiffness[:, p, :, q] @ turn.transpose(0, 2, 1)
            np.add.at(total, slot[nodes[:, p], neighbour(p, q)], block)
    total += inertia[:, None, None] * np.eye(3)
    blocks[...] = total.reshape(-1, 9)
