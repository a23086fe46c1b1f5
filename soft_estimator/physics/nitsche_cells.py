"""Weak Dirichlet conditions on the embedded surface by Nitsche's method.

On the surface Γ of the chosen cells the energy gains -∫(P n)·(u - u_D) + ½η∫|u - u_D|² + ½ζ(∫n·Rᵀ(u - u_D))², with
P = R σ(û) the corotated stress and û = Rᵀ(x+u) - x. The stress is the element's own, whose pressure is that of the
cell's mean dilatation: with H = ∫N_p n ∇N_qᵀ, n_p = ∫N_p n, b_q = ∫_Ω∇N_q and the cell's filled volume V,

    T_pq = μ(Hᵀ + tr(H) I - ⅔ H) + (λ + ⅔ μ) n_p b_qᵀ / V,

and a cell's force on its corners is

    -R T û - R Tᵀ Rᵀ w + η W w + ζ R n nᵀ Rᵀ w,      w = u - u_D,  W_pq = ∫N_p N_q.

η = 8 μ E γ, where γ is the largest value of ∫_Γ(∂ₙf)² / ∫_Ω|∇f|² over the cell's functions f, and ζ = 4 (λ + ⅔ μ)
E / V: large enough for a positive definite system however the surface cuts the cell. Pressure is one number a cell and
feels ∫u·n alone, so its penalty asks for no more, and the held face does not lock as ν → ½. Few cells carry it, so
plain array algebra does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from soft_estimator.geometry.cut_cells import PAIRS, boundary_products
from soft_estimator.geometry.grid import CORNER_OFFSETS
from soft_estimator.geometry.shapes import Shape
from soft_estimator.physics.body import Body


@dataclass(frozen=True)
class NitscheCells:
    """The cells of one fixed region.

    Attributes:
        cell: (S,). nodes: (S, 8). slots: places of the blocks (p, q) in the matrix, (S, 8, 8).
        h_products: ∫N_p n ∇N_qᵀ [m], (S, 8, 8, 3, 3). w_products: ∫N_p N_q [m²], (S, 8, 8). gamma: [1/m], (S,).
        normal: n/√V [√m], dilatation: b/√V [√m], both (S, 8, 3).
        corners_m: corners relative to corner 0, (8, 3).
    """

    cell: np.ndarray
    nodes: np.ndarray
    slots: np.ndarray
    h_products: np.ndarray
    w_products: np.ndarray
    gamma: np.ndarray
    normal: np.ndarray
    dilatation: np.ndarray
    corners_m: np.ndarray

    def _traction(self, lam: float, mu: float) -> np.ndarray:
        """T for E = 1, (S, 8, 8, 3, 3)."""
        h = self.h_products
        trace = np.trace(h, axis1=3, axis2=4)[..., None, None]
        mean = np.einsum("spa,sqb->spqab", self.normal, self.dilatation)
        return mu * (np.swapaxes(h, 3, 4) + trace * np.eye(3) - 2 / 3 * h) + (lam + 2 / 3 * mu) * mean

    def _penalty(self, lam: float, mu: float) -> np.ndarray:
        """η W for E = 1, (S, 8, 8)."""
        return (8.0 * mu * self.gamma)[:, None, None] * self.w_products

    def _gap_part(self, lam: float, mu: float, traction: np.ndarray) -> np.ndarray:
        """Tᵀ - ζ n nᵀ, what acts on the turned gap Rᵀ w, (S, 8, 8, 3, 3)."""
        push = 4.0 * (lam + 2 / 3 * mu) * np.einsum("spa,sqb->spqab", self.normal, self.normal)
        return traction.transpose(0, 2, 1, 4, 3) - push

    def blocks(self, r: np.ndarray, young: np.ndarray, lam: float, mu: float) -> np.ndarray:
        """Matrix blocks (S, 8, 8, 9); r: all cell rotations (C, 9), young: E of all cells (C,)."""
        turn = r[self.cell].reshape(-1, 1, 1, 3, 3)
        t = self._traction(lam, mu)
        both = t + self._gap_part(lam, mu, t)
        block = -turn @ both @ np.swapaxes(turn, 3, 4) + self._penalty(lam, mu)[..., None, None] * np.eye(3)
        return (young[self.cell][:, None, None, None, None] * block).reshape(-1, 8, 8, 9)

    def forces(
        self,
        u: np.ndarray,
        z: np.ndarray,
        target: np.ndarray,
        r: np.ndarray,
        young: np.ndarray,
        lam: float,
        mu: float,
    ) -> np.ndarray:
        """Corner forces (S, 8, 3) at displacement u, plus the blocks' product with z (both (N, 3)).

        target: prescribed displacements at the corners [m], (S, 8, 3).
        """
        turn, local, gap = self._local(u, z, target, r)
        t = self._traction(lam, mu)
        pulled = _times(t, local) + _times(self._gap_part(lam, mu, t), gap @ turn)
        force = -pulled @ np.swapaxes(turn, 1, 2) + np.einsum("spq,sqa->spa", self._penalty(lam, mu), gap)
        return young[self.cell][:, None, None] * force

    def _local(
        self, u: np.ndarray, z: np.ndarray, target: np.ndarray, r: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rotations (S, 3, 3), Rᵀ(x + u + z) - x relative to corner 0 and u + z - target, both (S, 8, 3)."""
        turn = r[self.cell].reshape(-1, 3, 3)
        at = u[self.nodes] + z[self.nodes]
        return turn, (at - at[:, :1] + self.corners_m) @ turn - self.corners_m, at - target

    def energy(
        self, u: np.ndarray, target: np.ndarray, r: np.ndarray, young: np.ndarray, lam: float, mu: float
    ) -> float:
        """-∫(P n)·(u - u_D) + ½η∫|u - u_D|² + ½ζ(∫n·Rᵀ(u - u_D))² [J]."""
        turn, local, gap = self._local(u, np.zeros_like(u), target, r)
        work = np.einsum("spa,spa->s", gap @ turn, _times(self._traction(lam, mu), local))
        spring = np.einsum("spa,spq,sqa->s", gap, self._penalty(lam, mu), gap)
        spring += 4.0 * (lam + 2 / 3 * mu) * np.einsum("spa,spa->s", self.normal, gap @ turn) ** 2
        return float(young[self.cell] @ (0.5 * spring - work))

    def forces_adjoint(
        self,
        lmbda: np.ndarray,
        u: np.ndarray,
        z: np.ndarray,
        target: np.ndarray,
        r: np.ndarray,
        young: np.ndarray,
        lam: float,
        mu: float,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Derivatives of Σ λ·`forces`: by u + z (S, 8, 3), by target (S, 8, 3), by R (S, 9), by λ and μ (S, 2)."""
        turn, local, gap = self._local(u, z, target, r)
        stiff = young[self.cell][:, None, None]
        at = lmbda[self.nodes]
        back, gap_back = at @ turn, gap @ turn
        t = self._traction(lam, mu)
        on_gap = self._gap_part(lam, mu, t)
        local_bar, gap_bar = -stiff * _times_transposed(t, back), -stiff * _times_transposed(on_gap, back)
        back_bar = -stiff * (_times(t, local) + _times(on_gap, gap_back))
        straight = stiff * np.einsum("spq,sqa->spa", self._penalty(lam, mu), at)
        y = (local + self.corners_m) @ np.swapaxes(turn, 1, 2)
        r_bar = sum(
            np.einsum("spa,spb->sab", one, other) for one, other in ((at, back_bar), (y, local_bar), (gap, gap_bar))
        )
        w_bar = gap_bar @ np.swapaxes(turn, 1, 2) + straight
        lame_bar = np.stack(
            [
                np.einsum("spa,spa->s", at, self.forces(u, z, target, r, young, *unit))
                for unit in ((1.0, 0.0), (0.0, 1.0))
            ],
            axis=1,
        )
        return local_bar @ np.swapaxes(turn, 1, 2) + w_bar, -w_bar, r_bar.reshape(-1, 9), lame_bar

    def forces_tangent(
        self,
        dr: np.ndarray,
        u: np.ndarray,
        z: np.ndarray,
        target: np.ndarray,
        r: np.ndarray,
        young: np.ndarray,
        lam: float,
        mu: float,
        dlam: np.ndarray,
        dmu: np.ndarray,
    ) -> np.ndarray:
        """Change of `forces` for changes dr (S, 9) of R and dlam, dmu (S,) of λ, μ at fixed u, z and target."""
        turn, local, gap = self._local(u, z, target, r)
        d_turn = dr.reshape(-1, 3, 3)
        t = self._traction(lam, mu)
        on_gap = self._gap_part(lam, mu, t)
        y = (local + self.corners_m) @ np.swapaxes(turn, 1, 2)
        pulled = _times(t, local) + _times(on_gap, gap @ turn)
        change = _times(t, y @ d_turn) + _times(on_gap, gap @ d_turn)
        force = -pulled @ np.swapaxes(d_turn, 1, 2) - change @ np.swapaxes(turn, 1, 2)
        by_lame = self.forces(u, z, target, r, young, 1.0, 0.0)
        by_shear = self.forces(u, z, target, r, young, 0.0, 1.0)
        scaled = [by[:, None, None] for by in (dlam, dmu)]
        return young[self.cell][:, None, None] * force + scaled[0] * by_lame + scaled[1] * by_shear


def _times(t: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.einsum("spqab,sqb->spa", t, w)


def _times_transposed(t: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.einsum("sqpba,sqb->spa", t, w)


def nitsche_cells(body: Body, region: Shape) -> NitscheCells:
    """Nitsche data of the surface of a body in a region given in rest coordinates; no cells where there is none."""
    h, cells = body.grid.spacing_m, body.cells
    select, h_products, w_products, slopes = boundary_products(cells, body.grid, lambda x: region.distance_m(x) <= 1e-9)
    gradients = cells.gradient_table_m[cells.gradient_index[select]]
    scalar = np.zeros((len(select), 8, 8))
    trace = gradients[:, :, 0] + gradients[:, :, 4] + gradients[:, :, 8]
    scalar[:, PAIRS[:, 0], PAIRS[:, 1]] = trace
    scalar[:, PAIRS[:, 1], PAIRS[:, 0]] = trace
    nodes, row = body.cell_nodes[select], cells.gradient_index[select]
    root = np.sqrt(cells.volume_table_m3[row])[:, None, None]
    offset = CORNER_OFFSETS[None, :, :] - CORNER_OFFSETS[:, None, :] + 1
    return NitscheCells(
        cell=select,
        nodes=nodes,
        slots=body.slot[nodes[:, :, None], offset @ np.array([9, 3, 1])],
        h_products=h_products,
        w_products=w_products,
        gamma=np.array([_largest_ratio(a, b) for a, b in zip(slopes, scalar, strict=True)]),
        # Σ_q x_q ∂N_q/∂x = 1: the first column of Σ_q x_q H_pq is ∫N_p n.
        normal=np.einsum("q,spqa->spa", CORNER_OFFSETS[:, 0] * h, h_products[..., 0]) / root,
        dilatation=cells.dilatation_table_m2[row] / root,
        corners_m=CORNER_OFFSETS * h,
    )


def _largest_ratio(a: np.ndarray, b: np.ndarray) -> float:
    """Largest xᵀax / xᵀbx, both symmetric and b positive up to constants."""
    values, vectors = eigh(b)
    keep = values > 1e-10 * values[-1]
    basis = vectors[:, keep] / np.sqrt(values[keep])
    return float(np.linalg.eigvalsh(basis.T @ a @ basis)[-1])
