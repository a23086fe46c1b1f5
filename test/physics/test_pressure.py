"""The preconditioner for nearly incompressible bodies: what it is made of, and what it saves."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

from soft_estimator.backends import choose_backend
from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.geometry.shapes import Box, Sphere, sample
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import LinearSystem, SolverSettings, solve
from soft_estimator.physics.step import Simulation

CLAMP = Box((0.03, 0.2, 0.2), (-0.05, 0.0, 0.0))


@pytest.fixture(scope="module")
def ball() -> Body:
    """About 900 nodes."""
    return build_body(sample(Sphere(0.05, (0.001, 0.002, 0.003)), 0.1 / 9, align="origin"))


def simulation_of(ball: Body, poissons_ratio: float, backend: str = "cpu", held: str = "strong") -> Simulation:
    fixed = [] if held == "free" else [FixedRegion(CLAMP, held)]
    model = build_model(ball, theta_scheme(0.02), fixed=fixed, solver=SolverSettings(1e-10, 4000))
    return Simulation(model, Parameters(5e4, poissons_ratio, 1000.0), choose_backend(backend))


def bent(simulation: Simulation) -> np.ndarray:
    """A displacement that turns the cells by up to 0.3 rad."""
    x = simulation.model.body.node_position_m
    return 0.3 * np.stack([x[:, 1] ** 2, x[:, 0] * x[:, 2], -x[:, 0] * x[:, 1]], axis=1) / 0.05


def linearised(simulation: Simulation) -> LinearSystem:
    state = simulation.initial_state()
    moved = type(state)(simulation.device.up(bent(simulation)), state.v, state.a, 0.0)
    return simulation.linearise(moved).system


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_it_is_woodburys_formula(ball: Body, backend: str) -> None:
    """P⁻¹ r = D⁻¹ r - D⁻¹ Bᵀ y with S y = B D⁻¹ r but for c(S)², Chebyshev's polynomial squared: built here from the
    rows of B by sparse algebra. The preconditioner's S and y are in single precision: 1e-5 of the result."""
    s = simulation_of(ball, 0.499, backend)
    system = linearised(s)
    p, host = system.pressure, s.device.host
    assert p is not None
    rows, cells = host(p.cells[0]), ball.cell_count
    dof = (3 * ball.cell_nodes[:, :, None].astype(np.int64) + np.arange(3)).ravel()
    b = sp.csr_matrix((rows.ravel(), dof, 24 * np.arange(cells + 1)), shape=(cells, 3 * ball.node_count))
    a = system.to_scipy(s.backend).tocsr()
    shear = (a - b.T @ b).tocsr()
    blocks = np.array([shear[3 * i : 3 * i + 3, 3 * i : 3 * i + 3].toarray() for i in range(0, ball.node_count, 97)])
    free = s.model.dirichlet.free[::97]
    found = host(p.inverse).reshape(-1, 3, 3)[::97]
    np.testing.assert_allclose(found, np.linalg.inv(blocks) * free[:, None, None], rtol=0, atol=1e-9 * found.max())
    where = np.arange(ball.node_count + 1)
    d = sp.bsr_matrix((host(p.inverse).reshape(-1, 3, 3), where[:-1], where), shape=a.shape).tocsr()
    full = (sp.identity(cells) + b @ d @ b.T).tocsr()
    steps, scale = host(p.steps), 1 / full.diagonal()

    def chebyshev(right: np.ndarray) -> np.ndarray:
        move = steps[0, 1] * scale * right
        x, left = move, right
        for keep, take in steps[1:]:
            left = left - full @ move
            move = keep * move + take * scale * left
            x = x + move
        return x

    r = np.random.default_rng(0).normal(size=(ball.node_count, 3))
    q = b @ (d @ r.ravel())
    y = chebyshev(q)
    y = y + chebyshev(q - full @ y)
    want, out = (d @ (r.ravel() - b.T @ y)).reshape(-1, 3), s.xp.empty_like(s.device.zero)
    p.apply(s.device.up(r), out)
    np.testing.assert_allclose(host(out), want, rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("held", ["free", "strong", "nitsche"])
def test_solutions_are_the_same_in_fewer_iterations(ball: Body, held: str) -> None:
    """ν = 0.499: A x = b to 1e-10, as sparse LU solves it; without pressures in the preconditioner at least five times
    as many iterations, with a weakly held surface, whose cells it leaves out, twice."""
    s = simulation_of(ball, 0.499, held=held)
    system = linearised(s)
    b = s.device.up(np.random.default_rng(1).normal(size=(ball.node_count, 3)))
    counts = {}
    for name, each in (("with", system), ("without", LinearSystem(*list(vars(system).values())[:5]))):
        x = s.xp.zeros_like(b)
        report = solve(s.backend, each, b, x, SolverSettings(1e-10, 4000))
        assert not report.rescued
        counts[name] = report.iterations
        free = np.repeat(s.model.dirichlet.free > 0, 3)
        matrix = system.to_scipy(s.backend).tocsr()[free][:, free].tocsc()
        want = spsolve(matrix, b.ravel()[free])
        # an error of cond · 1e-10; κ/μ = 500 makes the condition some 1e5
        assert np.linalg.norm(x.ravel()[free] - want) < 1e-5 * np.linalg.norm(want)
    assert counts["without"] > (2 if held == "nitsche" else 5) * counts["with"]


def test_iterations_do_not_grow_with_the_bulk_modulus(ball: Body) -> None:
    """From ν = 0.49 to 0.499 λ/μ grows tenfold; the iterations of a step by less than half."""
    found = []
    for poissons_ratio in (0.49, 0.499):
        s = simulation_of(ball, poissons_ratio)
        _, report = s.step(s.initial_state())
        found.append(report.solve.iterations)
    assert found[1] < 1.5 * found[0]


def test_only_where_it_pays(ball: Body) -> None:
    """At ν = 0.45 block-Jacobi alone is faster."""
    assert linearised(simulation_of(ball, 0.45)).pressure is None


def test_only_where_the_backend_has_it(ball: Body) -> None:
    """A backend without it (CUDA) solves with block-Jacobi alone, to the same solution within 1e-5, see above."""

    class Without(CpuBackend):
        pressures = None

    found = []
    for backend in (CpuBackend(), Without()):
        s = simulation_of(ball, 0.499)
        s = Simulation(s.model, s.parameters, backend)
        assert (linearised(s).pressure is None) == (backend.pressures is None)
        found.append(s.step(s.initial_state())[0].u)
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-5 * np.abs(found[0]).max())


@pytest.mark.gpu
def test_not_on_the_gpu(ball: Body) -> None:
    assert linearised(simulation_of(ball, 0.499, "cuda")).pressure is None
