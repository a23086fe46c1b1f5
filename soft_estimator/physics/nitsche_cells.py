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
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from soft_estimator.geometry.cut_cells import PAIRS, boundary_products
from soft_estimator.geometry.grid import CORNER_OFFSETS
from soft_estimator.geometry.shapes import Shape
from soft_estimator.physics.body import Body


class Held(NamedTuple):
    """What holds the cells of a region, for E = 1.

    Attributes:
        tension: T, which acts on û, beside Tᵀ - ζ n nᵀ, which acts on Rᵀ w [m], (S, 24, 48).
        penalty: η W [m], (S, 8, 8). push: ζ V.
    """

    tension: np.ndarray
    penalty: np.ndarray
    push: float


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

    @cached_property
    def by_lame(self) -> tuple[Held, Held]:
        """What holds the cells with λ = 1, μ = 0 and with λ = 0, μ = 1: all of it is linear in both, for E = 1."""
        h, mean = self.h_products, np.einsum("spa,sqb->spqab", self.normal, self.dilatation)
        shear = np.swapaxes(h, 3, 4) + np.trace(h, axis1=3, axis2=4)[..., None, None] * np.eye(3) - 2 / 3 * h
        push = np.einsum("spa,sqb->spqab", self.normal, self.normal)
        penalty = 8.0 * self.gamma[:, None, None] * self.w_products
        return (
            Held(_beside(mean, 4.0 * push), 0.0 * penalty, 4.0),
            Held(_beside(shear + 2 / 3 * mean, 4.0 * 2 / 3 * push), penalty, 4.0 * 2 / 3),
        )

    def held(self, lam: float, mu: float) -> Held:
        """What holds the cells with these λ and μ, for E = 1."""
        one, other = self.by_lame
        return Held(
            lam * one.tension + mu * other.tension,
            lam * one.penalty + mu * other.penalty,
            lam * one.push + mu * other.push,
        )

    def blocks(self, r: np.ndarray, young: np.ndarray, held: Held) -> np.ndarray:
        """Matrix blocks (S, 8, 8, 9); r: all cell rotations (C, 9), young: E of all cells (C,)."""
        count, back = len(self.cell), np.swapaxes(r[self.cell].reshape(-1, 3, 3), 1, 2)
        both = held.tension[:, :, :24] + held.tension[:, :, 24:]
        right = (both.reshape(count, 192, 3) @ back).reshape(count, 8, 3, 8, 3)
        turned = (right.transpose(0, 1, 3, 4, 2).reshape(count, 192, 3) @ back).reshape(count, 8, 8, 3, 3)
        block = held.penalty[..., None, None] * np.eye(3) - np.swapaxes(turned, 3, 4)
        return (young[self.cell][:, None, None, None, None] * block).reshape(count, 8, 8, 9)

    def forces(
        self, u: np.ndarray, z: np.ndarray, target: np.ndarray, r: np.ndarray, young: np.ndarray, held: Held
    ) -> np.ndarray:
        """Corner forces (S, 8, 3) at displacement u, plus the blocks' product with z (both (N, 3)).

        target: prescribed displacements at the corners [m], (S, 8, 3).
        """
        turn, y, gap = self._local(u, z, target, r)
        force = held.penalty @ gap - self._pulled(held, turn, y, gap) @ np.swapaxes(turn, 1, 2)
        return young[self.cell][:, None, None] * force

    def _local(
        self, u: np.ndarray, z: np.ndarray, target: np.ndarray, r: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rotations (S, 3, 3), x + u + z relative to corner 0 and u + z - target, both (S, 8, 3)."""
        at = u[self.nodes] + z[self.nodes]
        return r[self.cell].reshape(-1, 3, 3), at - at[:, :1] + self.corners_m, at - target

    def _pulled(self, held: Held, turn: np.ndarray, y: np.ndarray, gap: np.ndarray) -> np.ndarray:
        """T û + (Tᵀ - ζ n nᵀ) Rᵀ w, (S, 8, 3)."""
        acting = np.concatenate([y @ turn - self.corners_m, gap @ turn], axis=1)
        return (held.tension @ acting.reshape(len(turn), 48, 1)).reshape(len(turn), 8, 3)

    def energy(self, u: np.ndarray, target: np.ndarray, r: np.ndarray, young: np.ndarray, held: Held) -> float:
        """-∫(P n)·(u - u_D) + ½η∫|u - u_D|² + ½ζ(∫n·Rᵀ(u - u_D))² [J]."""
        turn, y, gap = self._local(u, np.zeros_like(u), target, r)
        count, gap_back = len(turn), gap @ turn
        traction = held.tension[:, :, :24] @ (y @ turn - self.corners_m).reshape(count, 24, 1)
        work = (gap_back * traction.reshape(count, 8, 3)).sum(axis=(1, 2))
        spring = (gap * (held.penalty @ gap)).sum(axis=(1, 2))
        spring += held.push * (self.normal * gap_back).sum(axis=(1, 2)) ** 2
        return float(young[self.cell] @ (0.5 * spring - work))

    def forces_adjoint(
        self,
        lmbda: np.ndarray,
        u: np.ndarray,
        z: np.ndarray,
        target: np.ndarray,
        r: np.ndarray,
        young: np.ndarray,
        held: Held,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Derivatives of Σ λ·`forces`: by u + z (S, 8, 3), by target (S, 8, 3), by R (S, 9), by λ and μ (S, 2)."""
        turn, y, gap = self._local(u, z, target, r)
        count, stiff, back = len(turn), young[self.cell][:, None, None], np.swapaxes(turn, 1, 2)
        at = lmbda[self.nodes]
        back_bar = -stiff * self._pulled(held, turn, y, gap)
        acting_bar = -stiff * (np.swapaxes(held.tension, 1, 2) @ (at @ turn).reshape(count, 24, 1))
        local_bar, gap_bar = np.split(acting_bar.reshape(count, 16, 3), 2, axis=1)
        r_bar = sum(np.swapaxes(one, 1, 2) @ bar for one, bar in ((at, back_bar), (y, local_bar), (gap, gap_bar)))
        w_bar = gap_bar @ back + stiff * (held.penalty @ at)
        by_lame = [(at * self.forces(u, z, target, r, young, one)).sum(axis=(1, 2)) for one in self.by_lame]
        return local_bar @ back + w_bar, -w_bar, r_bar.reshape(count, 9), np.stack(by_lame, axis=1)

    def forces_tangent(
        self,
        moved: np.ndarray,
        d_target: np.ndarray,
        dr: np.ndarray,
        d_lame: tuple[np.ndarray, np.ndarray],
        u: np.ndarray,
        z: np.ndarray,
        target: np.ndarray,
        r: np.ndarray,
        young: np.ndarray,
        held: Held,
    ) -> np.ndarray:
        """Changes of `forces` (S, 8, 3, K) along K changes.

        moved: of u + z (N, 3, K). d_target: of the target (S, 8, 3, K). dr: of R (S, 9, K). d_lame: of λ and μ relative
        to E, (S, K) each.
        """
        turn, y, gap = self._local(u, z, target, r)
        count, width, at = len(turn), dr.shape[2], moved[self.nodes]
        d_turn, d_gap, back = dr.reshape(count, 3, 3 * width), at - d_target, np.swapaxes(turn, 1, 2)[:, None]
        shape = (count, 8, 3, width)
        acting = np.concatenate(
            [back @ (at - at[:, :1]) + (y @ d_turn).reshape(shape), back @ d_gap + (gap @ d_turn).reshape(shape)],
            axis=1,
        )
        change = (held.tension @ acting.reshape(count, 48, width)).reshape(shape)
        turned_back = dr.reshape(count, 3, 3, width).transpose(0, 2, 1, 3).reshape(count, 3, 3 * width)
        force = (held.penalty @ d_gap.reshape(count, 8, 3 * width)).reshape(shape) - turn[:, None] @ change
        force -= (self._pulled(held, turn, y, gap) @ turned_back).reshape(shape)
        force *= young[self.cell][:, None, None, None]
        for by, one in zip(d_lame, self.by_lame):
            force += self.forces(u, z, target, r, young, one)[..., None] * by[:, None, None]
        return force


def _beside(traction: np.ndarray, push: np.ndarray) -> np.ndarray:
    """T beside Tᵀ - ζ n nᵀ, (S, 24, 48), of blocks (S, 8, 8, 3, 3)."""
    gap = traction.transpose(0, 2, 1, 4, 3) - push
    both = [x.transpose(0, 1, 3, 2, 4).reshape(len(x), 24, 24) for x in (traction, gap)]
    return np.concatenate(both, axis=2)


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
