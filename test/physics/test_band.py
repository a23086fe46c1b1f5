"""Direct solves of slender bodies: the factor is Cholesky's, answers are those of other solvers, and it is taken where
it pays."""

from __future__ import annotations

import inspect

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

from soft_estimator.backends.band_loops import BandLoops
from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics.band import MOST_ACROSS, Band
from soft_estimator.physics.body import Body, build_body
from soft_estimator.physics.dirichlet import FixedRegion
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import LinearSystem, SolverSettings, solve, solve_many
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

CLAMP = Box((0.02, 0.1, 0.1), (-0.1, 0.0, 0.0))
HELD = ["free", "strong", "nitsche", "contact"]


class IterativeBackend(CpuBackend):
    """The same loops without direct solves."""

    bands = None


@pytest.fixture(scope="module")
def beam() -> Body:
    """Some 27 x 5 x 5 nodes, its surface through cells, none of its symmetry on the grid."""
    return build_body(sample(Box((0.2, 0.03, 0.03), (0.001, 0.002, 0.003)), 0.008, align="origin"))


def simulation_of(body: Body, held: str = "strong", backend: CpuBackend | None = None) -> Simulation:
    """Rubber at 240 steps a second; in contact it lies 3 mm deep in the plane."""
    fixed = [FixedRegion(CLAMP, held)] if held in ("strong", "nitsche") else []
    law = ContactLaw(1e7, 2000.0) if held == "contact" else None
    model = build_model(
        body, theta_scheme(1 / 240), fixed=fixed, contact=law, solver=SolverSettings(1e-10, 4000)
    )  # fmt: skip
    return Simulation(model, Parameters(1e6, 0.4, 1000.0, 0.5, 1e-3, plane_offset_m=0.012), backend)


def system_of(simulation: Simulation) -> LinearSystem:
    """The matrix of a beam bent by up to half a radian."""
    x, state = simulation.model.body.node_position_m, simulation.initial_state()
    u = np.stack([0 * x[:, 0], 2.5 * x[:, 0] ** 2, x[:, 0] * x[:, 1]], axis=1)
    system = simulation.linearise(type(state)(u, state.v, state.a, 0.0)).system
    assert system.band is not None
    return system


@pytest.mark.parametrize("held", HELD)
def test_it_is_cholesky_s_factor(beam: Body, held: str) -> None:
    """Rᵀ R = A on the free nodes and 1 on held ones, in the order of the far half, the near half and the middle: to
    rounding of A's largest number, some 1e-15 of it for each of the 1e2 products of a sum."""
    s = simulation_of(beam, held)
    system = system_of(s)
    band = system.band
    assert band is not None and band.factor is not None and band.band.across < 60
    near, far = band.band.halves
    order = np.concatenate([far.order[: far.own[0]], near.order])
    place = np.argsort(order)
    rows, columns, values = [], [], []
    for half, factor, count in ((far, band.factor[1], far.own[0]), (near, band.factor[0], len(near.order))):
        for i in range(count):
            nodes = half.order[i : half.last[i] + 1]
            to = (3 * place[nodes][:, None] + np.arange(3)).ravel()
            for a in range(3):
                rows += [3 * place[nodes[0]] + a] * (len(to) - a)
                columns += to[a:].tolist()
                values += factor[i, a, a : len(to)].tolist()
    rows, columns, values = map(np.array, (rows, columns, values))
    values[rows == columns] **= -1.0
    upper = sp.csr_matrix((values, (rows, columns)))
    places, free = (3 * order[:, None] + np.arange(3)).ravel(), np.repeat(s.model.dirichlet.free, 3)
    matrix = sp.diags(free) @ system.to_scipy(s.backend).tocsr() @ sp.diags(free) + sp.diags(1 - free)
    want = matrix.tocsr()[places][:, places]
    assert abs(upper.T @ upper - want).max() < 1e-13 * abs(want).max()


@pytest.mark.parametrize("held", HELD)
def test_solutions_are_those_of_sparse_lu(beam: Body, held: str) -> None:
    """Alone and for ten right-hand sides of very different size, one of them zero, and with held nodes that move: an
    error of the condition, below 1e6, times rounding. One solve is enough. Ten are more than go side by side."""
    s = simulation_of(beam, held)
    system, rng, free = system_of(s), np.random.default_rng(1), np.repeat(s.model.dirichlet.free > 0, 3)
    sizes = np.tile([1.0, 1e-9, 1e9, 0.0, 1e-3], 2)
    b = rng.normal(size=(beam.node_count, 3, 10)) * sizes
    x = np.where(free.reshape(-1, 3, 1), 0.0, 1e-3 * rng.normal(size=b.shape) * sizes)
    matrix, flat = system.to_scipy(s.backend).tocsr(), x.reshape(-1, 10)
    want = flat.copy()
    want[free] = spsolve(matrix[free][:, free].tocsc(), (b.reshape(-1, 10) - matrix @ flat)[free])
    alone = x[:, :, 0].copy()
    together = solve_many(s.backend, system, b, x, SolverSettings(1e-10))
    one = solve(s.backend, system, b[:, :, 0].copy(), alone, SolverSettings(1e-10))
    assert together.iterations == one.iterations == 1 and not (together.rescued or one.rescued)
    for found, right in ((alone.reshape(-1, 1), want[:, :1]), (x.reshape(-1, 10), want)):
        error = np.linalg.norm(found - right, axis=0)
        assert (error <= 1e-9 * np.linalg.norm(right, axis=0)).all()
        np.testing.assert_array_equal(found[~free], right[~free])


def test_a_matrix_that_is_not_definite_is_left_to_others(beam: Body) -> None:
    """No factor, no answer of its own: block-Jacobi, or sparse LU where that breaks down, gives A x = b."""
    s = simulation_of(beam)
    system = system_of(s)
    slot = s.device.slot[:, 13]
    system.blocks[slot[::2]] *= -1.0
    assert system.band is not None and system.band.factor is None
    b = np.random.default_rng(2).normal(size=(beam.node_count, 3, 2)) * s.device.free[:, None, None]
    x, alone = np.zeros_like(b), np.zeros(b.shape[:2])
    solve_many(s.backend, system, b, x, SolverSettings(1e-8, 20))
    solve(s.backend, system, b[:, :, 0].copy(), alone, SolverSettings(1e-8, 20))
    free, matrix = s.model.dirichlet.free > 0, system.to_scipy(s.backend)
    for found, right in ((x, b), (alone[:, :, None], b[:, :, :1])):
        left = (right.reshape(-1, right.shape[2]) - matrix @ found.reshape(-1, right.shape[2])).reshape(right.shape)
        assert np.abs(left[free]).max() < 1e-4


def test_nothing_is_made_where_the_guess_is_the_answer(beam: Body) -> None:
    """A body in free flight: no factor."""
    s = simulation_of(beam, "free")
    system, x = system_of(s), np.random.default_rng(3).normal(size=(beam.node_count, 3, 8))
    b = (system.to_scipy(s.backend) @ x.reshape(-1, 8)).reshape(x.shape)
    solve_many(s.backend, system, b, x.copy(), SolverSettings(1e-6))
    solve(s.backend, system, b[:, :, 0].copy(), x[:, :, 0].copy(), SolverSettings(1e-6))
    assert "factor" not in vars(system.band)


def test_a_factor_s_memory_is_another_s_only_when_it_is_gone(beam: Body) -> None:
    """What is held stays as it was made, to the bit, whatever is made beside it; what nobody holds is used again."""
    s = simulation_of(beam)
    held, other = system_of(s), system_of(s.with_parameters(Parameters(3e6, 0.3, 1000.0)))
    assert held.band is not None and other.band is not None and held.band.factor is not None
    before = held.band.factor[0].copy()
    assert other.band.factor is not None and other.band.factor[0] is not held.band.factor[0]
    np.testing.assert_array_equal(held.band.factor[0], before)
    place = other.band.factor[0].ctypes.data
    del other
    third = system_of(s)
    assert third.band is not None and third.band.factor is not None
    assert third.band.factor[0].ctypes.data == place
    np.testing.assert_array_equal(third.band.factor[0], before)


def test_a_motion_is_the_same(beam: Body) -> None:
    """Five steps of a beam let go, solved to 1e-10 either way, which leaves the motion open by the condition's 1e4
    times as much at most."""
    ends = []
    for backend in (CpuBackend(), IterativeBackend()):
        s = simulation_of(beam, backend=backend)
        state = s.initial_state()
        for _ in range(5):
            state, report = s.step(state)
        assert (report.solve.iterations == 1) == (backend.bands is not None)
        ends.append(state.u)
    assert np.abs(ends[0] - ends[1]).max() < 1e-6 * np.abs(ends[1]).max()


def test_the_same_bits_for_any_number_of_threads(beam: Body) -> None:
    """Each half of the beam is one thread's work, or both are that of one."""
    s, found = simulation_of(beam), []
    b = np.random.default_rng(4).normal(size=(beam.node_count, 3, 3)) * s.device.free[:, None, None]
    before = numba.get_num_threads()
    try:
        for threads in sorted({1, min(2, numba.config.NUMBA_NUM_THREADS)}):
            numba.set_num_threads(threads)
            x = np.zeros_like(b)
            solve_many(s.backend, system_of(s), b, x, SolverSettings(1e-6))
            found.append(x)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[-1])


def test_only_where_it_pays(beam: Body) -> None:
    """Slender, stiff beside its inertia, and of some hundred nodes; the long way is found whichever it is."""
    for held in HELD:
        assert simulation_of(beam, held).linearise(simulation_of(beam, held).initial_state()).system.band is not None
    soft = simulation_of(beam).with_parameters(Parameters(30.0, 0.4, 1000.0))
    assert soft.linearise(soft.initial_state()).system.band is None
    for edges in ((0.02, 0.1, 0.1), (0.1, 0.1, 0.1)):  # few nodes, and many across
        body = build_body(sample(Box(edges), 0.01))
        s = simulation_of(body, "free")
        assert s.linearise(s.initial_state()).system.band is None
    place = np.stack(np.unravel_index(beam.node_index, beam.grid.shape), axis=1)
    across = {Band(place[:, way], beam.row_start, beam.column).across for way in ([0, 1, 2], [1, 2, 0], [2, 0, 1])}
    assert max(across) < MOST_ACROSS and max(across) - min(across) <= 6


@pytest.mark.parametrize("name", [name for name in vars(BandLoops) if not name.startswith("_")])
def test_loops_take_the_interface_s_arguments(name: str) -> None:
    loop = getattr(CpuBackend.bands, name)
    wanted = [p for p in inspect.signature(getattr(BandLoops, name)).parameters if p != "self"]
    assert list(inspect.signature(getattr(loop, "py_func", loop)).parameters) == wanted
