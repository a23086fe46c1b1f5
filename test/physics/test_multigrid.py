"""Multigrid as a preconditioner: what it is made of, that it changes no answer, and what it saves."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.geometry.shapes import Box, Sphere, sample
from soft_estimator.physics import step as stepping
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.multigrid import Hierarchy, Multigrid, stiffness_over_inertia, worth_it
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import LinearSystem, SolverSettings, solve, solve_many
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

CLAMP = Box((0.03, 0.2, 0.2), (-0.05, 0.0, 0.0))
HELD = ["free", "strong", "nitsche", "contact"]


def cube(across: int, edge_m: float = 0.1) -> Body:
    """So many nodes along each edge."""
    return build_body(sample(Box((edge_m,) * 3), edge_m / (across - 1)))


@pytest.fixture(scope="module")
def ball() -> Body:
    """About 900 nodes, most of its surface through cells, none of its symmetry on the grid."""
    return build_body(sample(Sphere(0.05, (0.001, 0.002, 0.003)), 0.1 / 9, align="origin"))


def simulation_of(body: Body, held: str = "free", tolerance: float = 1e-10) -> Simulation:
    """A stiff body at 120 steps a second; in contact it lies 8 mm deep in the plane."""
    fixed = [FixedRegion(CLAMP, held)] if held in ("strong", "nitsche") else []
    law = ContactLaw(1e7, 2000.0) if held == "contact" else None
    model = build_model(body, theta_scheme(1 / 120), fixed=fixed, contact=law, solver=SolverSettings(tolerance, 4000))
    return Simulation(model, Parameters(2e6, 0.35, 1000.0, plane_offset_m=0.042))


def system_of(simulation: Simulation) -> LinearSystem:
    """The matrix of a body bent by up to 0.3 rad, with multigrid wherever that is worth it."""
    x = simulation.model.body.node_position_m
    u = 0.3 * np.stack([x[:, 1] ** 2, x[:, 0] * x[:, 2], -x[:, 0] * x[:, 1]], axis=1) / 0.05
    state = simulation.initial_state()
    system = simulation.linearise(type(state)(u, state.v, state.a, 0.0)).system
    grids = Multigrid(simulation.device.hierarchy, CpuBackend.multigrid, system.blocks)
    return LinearSystem(*list(vars(system).values())[:5], None, grids)


def prolongation_of(hierarchy: Hierarchy, k: int) -> sp.csr_matrix:
    """P from grid k + 1 to grid k, for vectors."""
    transfer, fine, coarse = hierarchy.transfers[k], hierarchy.grids[k], hierarchy.grids[k + 1]
    rows = np.repeat(np.arange(len(fine.place)), 8)
    shape = (len(fine.place), len(coarse.place))
    scalar = sp.csr_matrix((transfer.weight.ravel(), (rows, transfer.parent.ravel())), shape)
    return sp.kron(scalar, sp.identity(3)).tocsr()


def dense_of(blocks: np.ndarray, hierarchy: Hierarchy, k: int) -> np.ndarray:
    """A grid's matrix from its blocks, by the places its grid says they have."""
    grid = hierarchy.grids[k]
    n = len(grid.place)
    out = np.zeros((n, 3, n, 3))
    i, o = np.nonzero(grid.neighbour >= 0)
    out[i, :, grid.neighbour[i, o], :] = blocks[grid.slot[i, o]].reshape(-1, 3, 3)
    return out.reshape(3 * n, 3 * n)


def _by_colour(hierarchy: Hierarchy) -> np.ndarray:
    """Degrees of freedom of the body as the finest grid has them."""
    return (3 * hierarchy.flat.order[:, None] + np.arange(3)).ravel()


def test_interpolation_is_linear(ball: Body) -> None:
    """P carries affine fields over exactly (to rounding): node places of each grid from those of the next one."""
    hierarchy = Hierarchy.of(simulation_of(ball).device)
    assert len(hierarchy.grids) >= 3
    for k, (fine, coarse) in enumerate(zip(hierarchy.grids, hierarchy.grids[1:])):
        shift = np.array([1.0, -3.0, 0.5])
        found = prolongation_of(hierarchy, k) @ (2.0 * coarse.place + shift).ravel()
        np.testing.assert_allclose(found.reshape(-1, 3), fine.place + shift, rtol=0, atol=1e-12)


@pytest.mark.parametrize("held", HELD)
def test_coarse_matrices_are_galerkins(ball: Body, held: str) -> None:
    """A_c = Pᵀ A P of the free nodes, by sparse algebra: equal to rounding, whatever holds the body; coarse nodes that
    reach no free one have a unit block."""
    s = simulation_of(ball, held)
    system, h = system_of(s), s.device.hierarchy
    free, order = sp.diags(np.repeat(h.grids[0].free, 3)), _by_colour(h)
    want = free @ system.to_scipy(s.backend).tocsr()[order][:, order] @ free
    matrix = system.blocks
    for k, (fine, coarse) in enumerate(zip(h.grids, h.grids[1:])):
        out = np.empty((27 * len(coarse.place), 9))
        pattern = (fine.slot, fine.neighbour, fine.place, fine.free)
        CpuBackend.multigrid.coarse_blocks(matrix, *pattern, h.transfers[k].child, coarse.free, out)
        p = prolongation_of(h, k)
        want = p.T @ want @ p
        unit = np.repeat(coarse.free == 0, 3)
        found = dense_of(out, h, k + 1)
        np.testing.assert_allclose(found, want.toarray() + np.diag(unit * 1.0), rtol=0, atol=1e-12 * abs(want).max())
        matrix = out


@pytest.mark.parametrize("held", HELD)
def test_it_is_the_v_cycle(ball: Body, held: str) -> None:
    """V(r): M x = r; x += P V_c(Pᵀ (r - A x)); x += M⁻ᵀ (r - A x), with M the blocks on and below the diagonal in the
    order of the colours, in plain algebra. The loops are in single precision: 1e-4 of the result, since A's condition
    of some 1e3 takes three of its seven digits."""
    s = simulation_of(ball, held)
    system, h = system_of(s), s.device.hierarchy
    free, order = np.repeat(h.grids[0].free, 3), _by_colour(h)
    matrices = [system.to_scipy(s.backend).toarray()[order][:, order] * np.outer(free, free) + np.diag(1 - free)]
    steps = [prolongation_of(h, k) for k in range(len(h.transfers))]
    for p, coarse in zip(steps, h.grids[1:]):
        matrices.append(p.T @ (matrices[-1] * np.outer(free, free)) @ p)
        free = np.repeat(coarse.free, 3)
        matrices[-1] += np.diag(1 - free)

    def cycle(k: int, r: np.ndarray) -> np.ndarray:
        a = matrices[k]
        if k == len(steps):
            return np.linalg.solve(a, r)
        colour = np.repeat(h.grids[k].place % 2 @ [4, 2, 1], 3)
        node = np.repeat(np.arange(len(a) // 3), 3)
        lower = np.where((colour[:, None] > colour) | (node[:, None] == node), a, 0.0)
        lower = sp.csc_matrix(lower)  # most of it is zero: dense solves take a second
        x = spsolve(lower, r)
        x = x + steps[k] @ cycle(k + 1, steps[k].T @ (r - a @ x))
        return x + spsolve(lower.T.tocsc(), r - a @ x)

    r = np.random.default_rng(0).normal(size=(ball.node_count, 3)) * s.model.dirichlet.free[:, None]
    out = np.empty_like(r)
    assert system.multigrid is not None
    system.multigrid.apply(r, out)
    want = np.empty_like(r.ravel())
    want[order] = cycle(0, r.ravel()[order])
    want = want.reshape(-1, 3)
    np.testing.assert_allclose(out, want, rtol=0, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("held", HELD)
def test_solutions_are_the_same_in_fewer_iterations(ball: Body, held: str) -> None:
    """A x = b to 1e-10, as sparse LU solves it, alone and for five right-hand sides of very different size, one of them
    zero; an error of cond · 1e-10, and the condition is below 1e4. Block-Jacobi takes three times as many."""
    s = simulation_of(ball, held)
    system, rng = system_of(s), np.random.default_rng(1)
    free = np.repeat(s.model.dirichlet.free > 0, 3)
    b = rng.normal(size=(ball.node_count, 3, 5)) * np.array([1.0, 1e-9, 1e9, 0.0, 1e-3])
    want = np.zeros((3 * ball.node_count, 5))
    want[free] = spsolve(system.to_scipy(s.backend).tocsr()[free][:, free].tocsc(), b.reshape(-1, 5)[free])
    settings, x = SolverSettings(1e-10, 4000), np.zeros_like(b)
    together = solve_many(s.backend, system, b, x, settings)
    alone = np.zeros((ball.node_count, 3))
    one = solve(s.backend, system, np.ascontiguousarray(b[:, :, 0]), alone, settings)
    plain = solve(s.backend, LinearSystem(*list(vars(system).values())[:5]), b[:, :, 0].copy(), alone * 0, settings)
    assert not (together.rescued or one.rescued)
    assert plain.iterations > 3 * max(one.iterations, together.iterations)
    for found, right in ((alone[:, :, None], want[:, :1]), (x, want)):
        error = np.linalg.norm(found.reshape(right.shape) - right, axis=0)
        assert (error <= 1e-6 * np.linalg.norm(right, axis=0)).all()


def test_what_is_held_keeps_its_place(ball: Body) -> None:
    """Held nodes that move drag the others along: A_ff x_f = b_f - A_fh x_h."""
    s = simulation_of(ball, "strong")
    system, rng = system_of(s), np.random.default_rng(2)
    free = np.repeat(s.model.dirichlet.free > 0, 3)
    b, x = rng.normal(size=(2, ball.node_count, 3))
    held = x.copy()
    report = solve(s.backend, system, b, x, SolverSettings(1e-10, 4000))
    assert not report.rescued and (x.ravel()[~free] == held.ravel()[~free]).all()
    left = (b.ravel() - system.to_scipy(s.backend) @ x.ravel())[free]
    reference = (b.ravel() - system.to_scipy(s.backend) @ np.where(free, 0.0, held.ravel()))[free]
    assert np.linalg.norm(left) <= 2e-10 * np.linalg.norm(reference)


def test_nothing_is_made_where_the_guess_is_the_answer(ball: Body) -> None:
    """A body in free flight: no iteration, so no coarse matrices either."""
    s = simulation_of(ball)
    system = system_of(s)
    x = np.random.default_rng(3).normal(size=(ball.node_count, 3, 8))
    b = (system.to_scipy(s.backend) @ x.reshape(-1, 8)).reshape(x.shape)
    report = solve_many(s.backend, system, b, x.copy(), SolverSettings(1e-6))
    alone = solve(s.backend, system, b[:, :, 0].copy(), x[:, :, 0].copy(), SolverSettings(1e-6))
    assert report.iterations == alone.iterations == 0
    assert "levels" not in vars(system.multigrid)


def test_only_where_it_pays(ball: Body) -> None:
    """Many nodes, and stiff beside its inertia: 1ᵀ A 1 is inertia alone for a free body, whatever its stiffness, so the
    ratio grows with E/h² like A's diagonal does."""
    small, large = simulation_of(ball), simulation_of(cube(13))
    assert not worth_it(small.linearise(small.initial_state()).system.blocks, small.device.slot)
    assert large.linearise(large.initial_state()).system.multigrid is not None
    soft = large.with_parameters(large.parameters.replace(youngs_modulus_pa=np.array([2e3])))
    assert soft.linearise(soft.initial_state()).system.multigrid is None
    ratios = []
    for young_pa in (2e6, 8e6):
        s = large.with_parameters(large.parameters.replace(youngs_modulus_pa=np.array([young_pa])))
        ratios.append(stiffness_over_inertia(s.linearise(s.initial_state()).system.blocks, s.device.slot))
    assert ratios[1] == pytest.approx(4 * ratios[0], rel=0.01)  # but for the inertia in the diagonal itself


@pytest.mark.slow
def test_iterations_hardly_grow_with_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 10 cm cube of 50 kPa, held at one side and let go, 120 steps a second, solved to 1e-6: from 343 to 29,791 nodes
    the iterations of a step at most double; those of block-Jacobi grow with the nodes along an edge, fourfold."""
    found: dict[str, list[int]] = {"multigrid": [], "block-Jacobi": []}
    held = [FixedRegion(Box((0.005, 0.2, 0.2), (-0.05, 0.0, 0.0)))]
    for across in (7, 13, 19, 31):
        model = build_model(cube(across), theta_scheme(1 / 120), fixed=held, solver=SolverSettings(1e-6, 4000))
        ends = []
        for name, counts in found.items():
            monkeypatch.setattr(stepping, "worth_it", lambda blocks, slot, on=name == "multigrid": on)
            s = Simulation(model, Parameters(5e4, 0.3, 1000.0))
            state = s.initial_state()
            for _ in range(3):
                state, report = s.step(state)
            counts.append(report.solve.iterations)
            ends.append(state.u)
        # Solves to 1e-6 leave about as much of the motion open, three steps of it.
        assert np.abs(ends[0] - ends[1]).max() < 1e-5 * np.abs(ends[1]).max()
    assert max(found["multigrid"]) <= 2 * min(found["multigrid"])
    assert found["block-Jacobi"][-1] > 3 * found["block-Jacobi"][0]
    assert found["block-Jacobi"][-1] > 5 * found["multigrid"][-1]


@pytest.mark.slow
def test_the_same_bits_for_any_number_of_threads() -> None:
    """15,625 nodes: enough for several threads on the finest grid, in sweeps of a colour as well."""
    s = simulation_of(cube(25), "strong")
    b, found = np.random.default_rng(4).normal(size=(15625, 3, 3)), []
    before = numba.get_num_threads()
    try:
        for threads in sorted({1, min(2, numba.config.NUMBA_NUM_THREADS)}):
            numba.set_num_threads(threads)
            system, x, alone = system_of(s), np.zeros_like(b), np.zeros((15625, 3))
            solve_many(s.backend, system, b, x, SolverSettings(1e-6))
            solve(s.backend, system, b[:, :, 0].copy(), alone, SolverSettings(1e-6))
            found.append((x, alone))
    finally:
        numba.set_num_threads(before)
    for one, other in zip(found[0], found[-1]):
        assert np.array_equal(one, other)
