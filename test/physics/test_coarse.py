"""The coarse grid of the preconditioner: its interpolation, and what it does for the iteration."""

from __future__ import annotations

from inspect import signature

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg

from soft_estimator.geometry.shapes import Box, Sphere, sample
from soft_estimator.physics.body import build_body
from soft_estimator.physics.coarse import coarse_grid, coarse_grid_of
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.step import Simulation

RELATIVE = "rtol" if "rtol" in signature(cg).parameters else "tol"  # before SciPy 1.12


@pytest.fixture(scope="module")
def ball():
    return build_body(sample(Sphere(radius_m=0.05), 0.0065))


def place_of(body):
    return np.stack(np.unravel_index(body.node_index, body.grid.shape), axis=1)


def prolongation(grid):
    """P for scalars, (N, C)."""
    rows = np.repeat(np.arange(len(grid.place)), 8)
    return sp.csr_matrix((grid.weight.ravel(), (rows, grid.parent.ravel())), (len(grid.place), grid.count))


@pytest.mark.parametrize("factor", [3, 4, 5])
def test_linear_fields(ball, factor):
    """P (c + d·X) = c + d·x, exact but for rounding, wherever none of a node's eight coarse nodes was left out."""
    grid = coarse_grid_of(place_of(ball), np.ones(ball.node_count), factor)
    whole = grid.weight.sum(axis=1) > 1 - 1e-12
    assert whole.mean() > 0.4 and grid.weight.min() >= 0 and grid.weight.sum(axis=1).max() <= 1 + 1e-12
    d = np.array([0.3, -1.2, 0.7])
    got = prolongation(grid) @ (2.0 + factor * grid.node @ d)
    assert np.abs(got - (2.0 + grid.place @ d))[whole].max() <= 1e-12 * np.abs(got).max()


def test_numbers_and_held_nodes(ball):
    """`number` is the inverse of `node`; held nodes take nothing from the coarse grid."""
    free = (ball.node_position_m[:, 0] > -0.02).astype(float)
    grid = coarse_grid(place_of(ball), free, 40)
    assert 8 <= grid.count <= 40
    assert np.array_equal(grid.number[tuple(grid.node.T)], np.arange(grid.count))
    assert np.count_nonzero(grid.number >= 0) == grid.count
    assert not grid.weight[free == 0].any() and grid.weight[free > 0].any()


def test_no_grid_for_a_small_body():
    body = build_body(sample(Sphere(radius_m=0.05), 0.03))
    assert coarse_grid(place_of(body), np.ones(body.node_count)) is None


def test_fewer_iterations(ball):
    """Conjugate gradients to 1e-8 on a stiff step: at most half as many iterations with the second level."""
    grip = FixedRegion(Box((0.02, 0.2, 0.2), (-0.05, 0.0, 0.0)))
    sim = Simulation(
        build_model(ball, theta_scheme(1 / 60, 0.6), fixed=[grip]), Parameters(5e5, 0.4, 1000.0, 0.0, 3e-3)
    )
    system = sim.linearise(sim.initial_state()).system
    held, matrix = np.repeat(np.asarray(system.free) == 0, 3), system.to_scipy(sim.backend).tocsr()
    keep = sp.diags((~held).astype(float))
    matrix = keep @ matrix @ keep + sp.diags(held.astype(float))
    grid = coarse_grid(place_of(ball), system.free)
    prolong = sp.kron(prolongation(grid), sp.identity(3)).tocsr()
    inverse = np.linalg.inv((prolong.T @ matrix @ prolong).toarray())
    blocks = np.asarray(system.inverse, float).reshape(-1, 3, 3)
    n = len(blocks)
    diagonal = sp.bsr_matrix((blocks, np.arange(n), np.arange(n + 1)), shape=matrix.shape)
    b = np.random.default_rng(0).normal(size=3 * n) * ~held
    counts = []
    for apply in (lambda r: diagonal @ r, lambda r: diagonal @ r + prolong @ (inverse @ (prolong.T @ r))):
        seen: list = []
        settings = {RELATIVE: 1e-8, "M": LinearOperator(matrix.shape, apply), "callback": seen.append, "maxiter": 2000}
        _, bad = cg(matrix, b, **settings)
        assert bad == 0
        counts.append(len(seen))
    assert counts[1] <= 0.5 * counts[0], counts
