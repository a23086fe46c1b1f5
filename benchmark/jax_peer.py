"""The same time step and gradient in JAX: jit, conjugate gradients in a while loop, autodiff with an implicit solve.

The peer of the CUDA backend in bench_cuda.py. It takes the same body arrays, scheme and tolerance, assembles the same
matrix (as rows of 27 neighbours, the form XLA handles best) and knows what the benchmark's scenes need: the HHT scheme,
nodes held in place, gravity, Rayleigh damping. The rotation's derivative is the closed form, as in the CUDA backend.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from soft_estimator.geometry.cut_cells import PAIRS
from soft_estimator.physics.model import Model
from soft_estimator.physics.parameters import Parameters

SIGNS = np.array([[(1 if p >> (2 - a) & 1 else -1) for a in range(3)] for p in range(8)])


class Material(NamedTuple):
    """What the gradient is taken by."""

    young: Any
    poisson: Any
    density: Any
    mass_damping: Any
    stiffness_damping: Any
    gravity: Any


def material_of(p: Parameters, dtype: Any) -> Material:
    values = (p.youngs_modulus_pa[0], p.poissons_ratio, p.density_kg_m3, p.mass_damping_per_s, p.stiffness_damping_s)
    return Material(*(jnp.asarray(x, dtype) for x in (*values, p.gravity_m_s2)))


@jax.custom_jvp
def closest_rotation(f: Any) -> Any:
    """Polar factor of (C, 3, 3) by Newton's iteration; the scenes hold no inverted cells."""

    def newton(_: int, x: Any) -> Any:
        return 0.5 * (x + jnp.swapaxes(inverse3(x), 1, 2))

    return jax.lax.fori_loop(0, 7, newton, f)


@closest_rotation.defjvp
def _closest_rotation_jvp(primals: tuple, tangents: tuple) -> tuple:
    (f,), (df,) = primals, tangents
    r = closest_rotation(f)
    s = jnp.einsum("cia,cib->cab", r, f)
    s = 0.5 * (s + jnp.swapaxes(s, 1, 2))
    m = jnp.trace(s, axis1=1, axis2=2)[:, None, None] * jnp.eye(3, dtype=f.dtype) - s
    b = jnp.einsum("cia,cib->cab", r, df)
    w = jnp.stack([b[:, 2, 1] - b[:, 1, 2], b[:, 0, 2] - b[:, 2, 0], b[:, 1, 0] - b[:, 0, 1]], axis=1)
    y = jnp.einsum("cab,cb->ca", inverse3(m), w)
    zero = jnp.zeros_like(y[:, 0])
    cross = jnp.stack([zero, -y[:, 2], y[:, 1], y[:, 2], zero, -y[:, 0], -y[:, 1], y[:, 0], zero], axis=1)
    return r, jnp.einsum("cab,cbd->cad", r, cross.reshape(-1, 3, 3))


def inverse3(x: Any) -> Any:
    a, b, c = x[:, 0], x[:, 1], x[:, 2]
    rows = jnp.stack([jnp.cross(b, c), jnp.cross(c, a), jnp.cross(a, b)], axis=2)
    return rows / jnp.einsum("ca,ca->c", a, jnp.cross(b, c))[:, None, None]


class Peer:
    """Step and gradient of a model whose held nodes stay in place."""

    def __init__(self, model: Model) -> None:
        body, self.scheme, self.solver = model.body, model.integrator, model.solver
        self.dtype = np.dtype(model.dtype)
        place = np.arange(len(body.column))
        row = np.repeat(np.arange(body.node_count), np.diff(body.row_start))
        offset_of = np.full(len(body.column), -1)
        for o in range(27):
            there = body.slot[:, o] >= 0
            offset_of[body.slot[there, o]] = o
        neighbour = np.zeros((body.node_count, 27), np.int32)
        neighbour[row, offset_of[place]] = body.column
        table = np.zeros((len(body.cells.gradient_table_m), 8, 8, 3, 3))
        blocks = body.cells.gradient_table_m.reshape(-1, 36, 3, 3)
        table[:, PAIRS[:, 0], PAIRS[:, 1]] = blocks
        table[:, PAIRS[:, 1], PAIRS[:, 0]] = np.swapaxes(blocks, 2, 3)
        corner = (np.arange(8)[:, None] >> np.array([2, 1, 0])) & 1
        offset = (corner[None] - corner[:, None] + 1) @ np.array([9, 3, 1])
        as_jax = partial(jnp.asarray, dtype=self.dtype)
        self.neighbour, self.cell_nodes = jnp.asarray(neighbour), jnp.asarray(body.cell_nodes)
        self.where = jnp.asarray(body.cell_nodes[:, :, None] * 27 + offset)  # (C, 8, 8): place in the matrix's rows
        self.products = as_jax(table[body.cells.gradient_index])
        mean = body.cells.dilatation_table_m2 / np.sqrt(body.cells.volume_table_m3)[:, None, None]
        self.mean = as_jax(mean[body.cells.gradient_index])
        mass = np.zeros((body.node_count, 27))
        mass[row, offset_of[place]] = body.mass_m3
        self.mass = as_jax(mass)  # rows of 27 neighbours, over the density
        self.volume, self.free = as_jax(body.node_volume_m3)[:, None], as_jax(model.dirichlet.free)[:, None]
        self.corners, self.spacing = as_jax(corner * body.grid.spacing_m), body.grid.spacing_m
        self.signs = as_jax(SIGNS)

    def _cell_blocks(self, m: Material, r: Any) -> Any:
        """E R (μ(Gᵀ + tr G - ⅔ G) + (λ + ⅔ μ) b bᵀ/V) Rᵀ, (C, 8, 8, 3, 3)."""
        lam = m.poisson / ((1 + m.poisson) * (1 - 2 * m.poisson))
        mu = 0.5 / (1 + m.poisson)
        turned = jnp.einsum("cab,cpqbd,ced->cpqae", r, self.products, r, optimize=True)
        trace = jnp.trace(self.products, axis1=3, axis2=4)[..., None, None] * jnp.eye(3, dtype=r.dtype)
        mean = jnp.einsum("cab,cpb->cpa", r, self.mean)
        bulk = (lam + 2 / 3 * mu) * mean[:, :, None, :, None] * mean[:, None, :, None, :]
        return m.young * (mu * (jnp.swapaxes(turned, 3, 4) + trace - 2 / 3 * turned) + bulk)

    def step(self, m: Material, state: tuple) -> tuple[tuple, Any]:
        """The state after a step, and the solve's iterations."""
        s, (u, v, a) = self.scheme, state
        predicted = (u + s.predictor * s.step_s * v)[self.cell_nodes]
        f = jnp.einsum("cpa,pb->cab", predicted, self.signs) / (4 * self.spacing) + jnp.eye(3, dtype=u.dtype)
        r = closest_rotation(f)
        k = self._cell_blocks(m, r)
        known = s.q_v * v + s.q_a * a
        y = u[self.cell_nodes]
        y = y - y[:, :1] + self.corners
        y = y - jnp.einsum("cab,pb->cpa", r, self.corners) - m.stiffness_damping * known[self.cell_nodes]
        force = jnp.einsum("cpqab,cqb->cpa", k, y)
        driving = s.p_v * v + s.p_a * a + m.mass_damping * known
        rhs = m.density * (self.volume * m.gravity + jnp.einsum("nk,nka->na", self.mass, driving[self.neighbour]))
        rhs = rhs.at[self.cell_nodes].add(-force)
        scale = s.c_k + s.c_d * m.stiffness_damping
        rows = jnp.zeros((27 * len(u), 3, 3), u.dtype).at[self.where].add(scale * k).reshape(-1, 27, 3, 3)
        inertia = (s.c_m + s.c_d * m.mass_damping) * m.density * self.mass
        rows = rows + inertia[..., None, None] * jnp.eye(3, dtype=u.dtype)
        increment, iterations = self._solve(rows, rhs * self.free, s.step_s * v * self.free)
        after = (u + increment, (s.d_u * increment + s.d_v * v + s.d_a * a) * self.free)
        return (*after, (s.e_u * increment + s.e_v * v + s.e_a * a) * self.free), iterations

    def _solve(self, rows: Any, rhs: Any, guess: Any) -> tuple[Any, Any]:
        free, guess = self.free, jax.lax.stop_gradient(guess)
        inverse = jax.lax.stop_gradient(inverse3(rows[:, 13])) * free[..., None]

        def matvec(x: Any) -> Any:
            return jnp.einsum("nkab,nkb->na", rows, x[self.neighbour]) * free

        def run(product: Any, b: Any, start: Any) -> tuple[Any, Any]:
            return conjugate_gradient(product, inverse, b, start, self.solver.relative_tolerance)

        def forward(product: Any, b: Any) -> tuple[Any, Any]:
            return run(product, b, guess)

        def backward(product: Any, b: Any) -> Any:
            return run(product, b * free, jnp.zeros_like(b))[0]

        def identity_outside(x: Any) -> Any:
            return matvec(x * free) + (1 - free) * x

        return jax.lax.custom_linear_solve(
            identity_outside, rhs, forward, lambda product, b: (backward(product, b), 0), symmetric=True, has_aux=True
        )

    @partial(jax.jit, static_argnums=(0, 3))
    def roll(self, m: Material, state: tuple, steps: int) -> tuple[Any, Any]:
        """Displacements after each step (steps, N, 3), and the iterations."""

        def one(carry: tuple, _: None) -> tuple[tuple, tuple]:
            after, iterations = self.step(m, carry)
            return after, (after[0], iterations)

        return jax.lax.scan(one, state, None, length=steps)[1]

    def cost(self, m: Material, state: tuple, steps: int) -> Any:
        return 0.5 * jnp.sum(self.roll(m, state, steps)[0] ** 2)

    @partial(jax.jit, static_argnums=(0, 3))
    def gradient(self, m: Material, state: tuple, steps: int) -> tuple[Any, Material]:
        """½ Σ |u|² over the steps, and its gradient by the material."""
        return jax.value_and_grad(self.cost, argnums=0)(m, state, steps)


def conjugate_gradient(product: Any, inverse: Any, b: Any, x: Any, tolerance: float) -> tuple[Any, Any]:
    """Block-Jacobi preconditioned; the solution and the number of iterations."""
    goal = tolerance**2 * jnp.sum(b * b)

    def precondition(r: Any) -> Any:
        return jnp.einsum("nab,nb->na", inverse, r)

    def going(c: tuple) -> Any:
        return (jnp.sum(c[1] * c[1]) > goal) & (c[4] < 5000)

    def iterate(c: tuple) -> tuple:
        x, r, p, rz, k = c
        ap = product(p)
        alpha = rz / jnp.sum(p * ap)
        x, r = x + alpha * p, r - alpha * ap
        z = precondition(r)
        new = jnp.sum(r * z)
        return x, r, z + (new / rz) * p, new, k + 1

    r = b - product(x)
    z = precondition(r)
    x, _, _, _, k = jax.lax.while_loop(going, iterate, (x, r, z, jnp.sum(r * z), 0))
    return x, k
