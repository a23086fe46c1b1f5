"""A cantilever bent by half its length: our neo-Hookean cells beside scikit-fem's quadratic elements, same energy.

A beam 0.1 x 0.02 x 0.02 m held at one end, its own weight scaled until its tip sinks by half its length. The peer takes
the energy pointwise, μ/2 (tr FᵀF - 3) - μ (J - 1) + (λ + μ)/2 (J - 1)², on hexahedra of 27 nodes.

    python benchmark/large_bending.py
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy.sparse as sp
import skfem as fem
from cell_elements import lame
from scipy.sparse.linalg import splu

from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.statics import solve_static
from soft_estimator.physics.step import Simulation

LENGTH, SIDE = 0.1, 0.02
YOUNG, DENSITY, GRAVITY = 2e4, 1000.0, 9.81
LOAD = 0.36  # of its weight: the tip sinks by half the beam's length
EPSILON = np.zeros((3, 3, 3))
for _i, _j, _k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    EPSILON[_i, _j, _k], EPSILON[_j, _i, _k] = 1.0, -1.0


def _slopes(f: np.ndarray, lam: float, mu: float) -> tuple[np.ndarray, np.ndarray]:
    """P (..., 9) and ∂P/∂F (..., 9, 9) at points, f (..., 3, 3)."""
    hessian = np.einsum("abc,ijk,...ck->...aibj", EPSILON, EPSILON, f)
    cofactor = 0.5 * np.einsum("...aibj,...bj->...ai", hessian, f)
    bend = -mu + (lam + mu) * (np.linalg.det(f) - 1.0)
    flat = cofactor.reshape(*f.shape[:-2], 9)
    tangent = mu * np.eye(9) + bend[..., None, None] * hessian.reshape(*f.shape[:-2], 9, 9)
    stress = mu * f.reshape(flat.shape) + bend[..., None] * flat
    return stress, tangent + (lam + mu) * flat[..., :, None] * flat[..., None, :]


class QuadraticBeam:
    """scikit-fem's mesh, element and quadrature; displacement a of function p is unknown 3p + a."""

    def __init__(self, cells: tuple[int, int, int]) -> None:
        sides = [SIDE * (np.linspace(0.0, 1.0, n + 1) - 0.5) for n in cells[1:]]
        mesh = fem.MeshHex.init_tensor(LENGTH * np.linspace(0.0, 1.0, cells[0] + 1) ** 1.5, *sides)
        self.basis = basis = fem.Basis(mesh, fem.ElementHex2(), intorder=5)
        functions = [basis.basis[p][0] for p in range(basis.Nbfun)]
        gradient = np.stack([f.grad for f in functions])  # (p, i, element, point)
        count, (elements, points) = len(functions), gradient.shape[2:]
        b = np.zeros((elements, points, 3, 3, count, 3))
        for a in range(3):
            b[:, :, a, :, :, a] = gradient.transpose(2, 3, 1, 0)
        self.strain = b.reshape(elements, points, 9, 3 * count)
        self.weight = basis.dx
        self.dofs = (3 * basis.element_dofs.T[:, :, None] + np.arange(3)).reshape(elements, 3 * count)
        self.size = 3 * basis.N
        held = basis.get_dofs(lambda x: np.isclose(x[0], 0.0)).all()
        self.free = np.setdiff1d(np.arange(self.size), (3 * held[:, None] + np.arange(3)).ravel())
        value = np.stack([np.broadcast_to(np.asarray(f), self.weight.shape) for f in functions], axis=-1)
        lumped = np.einsum("eqp,eq->ep", value, self.weight)
        self.volume = np.bincount(basis.element_dofs.T.ravel(), lumped.ravel(), basis.N)

    def assembled(self, u: np.ndarray, lam: float, mu: float) -> tuple[np.ndarray, sp.csc_matrix]:
        """Inner forces and tangent at displacements u."""
        gradient = np.einsum("eqix,ex->eqi", self.strain, u[self.dofs])
        stress, tangent = _slopes(gradient.reshape(*gradient.shape[:2], 3, 3) + np.eye(3), lam, mu)
        force = np.einsum("eqix,eqi,eq->ex", self.strain, stress, self.weight)
        weighted = (tangent * self.weight[..., None, None]) @ self.strain
        rows = self.strain.reshape(len(self.dofs), -1, self.dofs.shape[1])
        matrices = np.swapaxes(rows, 1, 2) @ weighted.reshape(rows.shape)
        i, j = np.broadcast_arrays(self.dofs[:, :, None], self.dofs[:, None, :])
        matrix = sp.csc_matrix((matrices.ravel(), (i.ravel(), j.ravel())), shape=(self.size, self.size))
        return np.bincount(self.dofs.ravel(), force.ravel(), self.size), matrix

    def tip(self, u: np.ndarray) -> tuple[float, float]:
        at = self.basis.probes(np.array([[LENGTH], [0.0], [0.0]])) @ u.reshape(-1, 3)
        return float(at[0, 0]), float(-at[0, 1])


@lru_cache(maxsize=8)
def quadratic_tip(poissons_ratio: float, load: float, cells: tuple[int, int, int] = (10, 3, 3)) -> tuple[float, float]:
    """Displacement (along x, down) [m] of the end face's middle, by scikit-fem; load: factor of the weight."""
    lam, mu = lame(YOUNG, poissons_ratio)
    beam, shares = QuadraticBeam(cells), 8
    weight = np.zeros((beam.size // 3, 3))
    weight[:, 1] = -DENSITY * GRAVITY * load * beam.volume
    u, free = np.zeros(beam.size), beam.free
    for share in np.linspace(0, 1, shares + 1)[1:]:
        for _ in range(25):
            force, matrix = beam.assembled(u, lam, mu)
            step = splu(matrix[free][:, free]).solve((share * weight.ravel() - force)[free])
            u[free] += step
            if np.abs(step).max() < 1e-9 * LENGTH:
                break
        else:
            raise RuntimeError(f"Newton's method did not converge at {share:.0%} of the load; take smaller shares")
    return beam.tip(u)


def cell_tip(poissons_ratio: float, load: float, cells: int, law: str = "neo_hookean") -> tuple[float, float]:
    """The same by our cells, so many through the thickness; the nodes of the end face are held."""
    h = SIDE / cells
    body = build_body(sample(Box((LENGTH, SIDE, SIDE), (LENGTH / 2, 0.0, 0.0)), h))
    held = [FixedRegion(Box((1e-6, 1.0, 1.0)))]
    parameters = Parameters(YOUNG, poissons_ratio, DENSITY, gravity_m_s2=np.array([0.0, -GRAVITY * load, 0.0]))
    simulation = Simulation(build_model(body, theta_scheme(0.01), fixed=held, material=law), parameters)
    state, _ = solve_static(simulation, tolerance=1e-7)
    x = body.node_position_m
    middle = np.argmin(np.abs(x - np.array([LENGTH, 0.0, 0.0])).sum(axis=1))
    if np.abs(x[middle] - np.array([LENGTH, 0.0, 0.0])).max() > 1e-9:
        raise ValueError(f"{cells} cells have no node in the middle of the end face; take an even number")
    return float(state.u[middle, 0]), float(-state.u[middle, 1])


def main() -> None:
    print(f"{'ν':>6} {'load':>5}  {'quadratic: x, down [mm]':>26}  cells: down [mm], off [%] of what the tip moves")
    for poissons_ratio, load in ((0.3, LOAD), (0.45, LOAD), (0.49, LOAD)):
        x, down = quadratic_tip(poissons_ratio, load)
        line = f"{poissons_ratio:6} {load:5} {1e3 * x:13.3f} {1e3 * down:12.3f}  "
        for cells in (2, 4, 6):
            ours = cell_tip(poissons_ratio, load, cells)
            off = np.hypot(ours[0] - x, ours[1] - down) / np.hypot(x, down)
            line += f"{cells}: {1e3 * ours[1]:.3f}, {100 * off:.2f}   "
        print(line)


if __name__ == "__main__":
    main()
