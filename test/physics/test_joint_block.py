"""The preconditioner of steps that something rubs in: the nodes that friction ties together are one block."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest

from soft_estimator.backends import choose_backend
from soft_estimator.backends.joint_loops import JointBlock
from soft_estimator.backends.loops import CONVERGED
from soft_estimator.geometry.shapes import Box, sample
from soft_estimator.physics import joint_block
from soft_estimator.physics.body import build_body
from soft_estimator.physics.integrator import theta_scheme
from soft_estimator.physics.joint_block import TiedBlock, tied_nodes
from soft_estimator.physics.model import build_model
from soft_estimator.physics.parameters import Parameters
from soft_estimator.physics.solver import LinearSystem, SolverSettings, solve, solve_many
from soft_estimator.physics.step import Simulation
from soft_estimator.physics.terms.contact import ContactLaw

BOX, TABLE_M = Box(size_m=(0.08, 0.05, 0.06)), 0.0235  # its bottom is 25 mm below its middle


def sliding(friction: float | None, backend: str = "cpu", spacing_m: float = 0.01) -> tuple[Simulation, LinearSystem]:
    """A soft box pressed 1.5 mm into a table that it begins to slide over at 2 mm/s, and the matrix of its step."""
    law = ContactLaw(2e7, 2000.0, friction=friction)
    model = build_model(build_body(sample(BOX, spacing_m)), theta_scheme(0.002), contact=law)
    moving = {"plane_offset_m": TABLE_M, "velocity_m_s": np.array([2e-3, 0.0, 0.0])}
    slides = Parameters(np.array([6e4]), 0.4, 1000.0, stiffness_damping_s=1e-3, **moving)
    simulation = Simulation(model, model.complete(slides), choose_backend(backend))
    return simulation, simulation.linearise(simulation.initial_state()).system


def load(simulation: Simulation, columns: int | None = None) -> np.ndarray:
    shape = (simulation.device.nodes, 3) if columns is None else (simulation.device.nodes, 3, columns)
    return np.random.default_rng(0).normal(size=shape)


def iterations(simulation: Simulation, system: LinearSystem) -> int:
    b = load(simulation)
    report = solve(simulation.backend, system, b, x := np.zeros_like(b), SolverSettings(1e-6))
    off = b.ravel() - system.to_scipy(simulation.backend) @ x.ravel()
    assert not report.rescued and np.linalg.norm(off) <= 2e-6 * np.linalg.norm(b)
    return report.iterations


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_friction_takes_no_more_iterations_than_none(backend: str) -> None:
    """Solved to the same tolerance; at most a tenth more than without friction, where block-Jacobi alone takes twice
    as many at least: were the box never to rub, the latter would fail."""
    bare, (rough, system) = iterations(*sliding(None, backend)), sliding(0.4, backend)
    assert system.tied is not None and sliding(None, backend)[1].tied is None
    assert iterations(rough, system) <= 1.1 * bare
    assert iterations(rough, replace(system, tied=None)) >= 2 * bare


@pytest.mark.parametrize("columns", [3, 8, 19])
@pytest.mark.parametrize("tolerance", [1e-9, 1e-3])
def test_many_columns(columns: int, tolerance: float) -> None:
    """Alone, in groups and both, and in single precision first: |b - A x| <= 2 tolerance |b| of each column."""
    simulation, system = sliding(0.4)
    b = load(simulation, columns)
    report = solve_many(simulation.backend, system, b, x := np.zeros_like(b), SolverSettings(tolerance))
    off = b.reshape(-1, columns) - system.to_scipy(simulation.backend) @ x.reshape(-1, columns)
    size = np.linalg.norm(b.reshape(-1, columns), axis=0)
    assert not report.rescued and (np.linalg.norm(off, axis=0) <= 2 * tolerance * size).all()
    alone = solve_many(
        simulation.backend, replace(system, tied=None), b, np.zeros_like(b), SolverSettings(tolerance)
    ).iterations
    assert report.iterations <= 0.6 * alone


def test_the_factor_is_the_tied_nodes_part_of_the_matrix() -> None:
    """L Lᵀ = A_TT to rounding, of the CPU's band as of the reference's dense factor; `inverse` leaves T out."""
    for backend in ("cpu", "reference"):
        simulation, system = sliding(0.4, backend)
        assert system.tied is not None
        nodes, first, factor = system.tied.joint
        lower = factor.copy()
        np.fill_diagonal(lower, 1 / np.diag(factor))
        rows = (3 * nodes[:, None] + np.arange(3)).ravel()
        part = system.to_scipy(simulation.backend).tocsr()[rows][:, rows].toarray()
        assert len(nodes) > 20 and np.abs(lower @ lower.T - part).max() <= 1e-12 * np.abs(part).max()
        reach = [np.flatnonzero(row.any(axis=0))[0] // 3 for row in lower.reshape(len(nodes), 3, -1)]
        assert np.array_equal(reach, first) and (first > 0).sum() > 10
        assert not system.tied.inverse[nodes].any()
        others = np.setdiff1d(np.arange(simulation.device.nodes), nodes)
        assert np.array_equal(system.tied.inverse[others], system.inverse[others])


def test_the_backends_agree() -> None:
    """The same solution from the same block, as many iterations give or take rounding."""
    (fast, system), (slow, _) = sliding(0.4), sliding(0.4, "reference")
    assert system.tied is not None
    b, found = load(fast), []
    for backend in (fast.backend, slow.backend):
        assert backend.joints is not None
        x = np.zeros_like(b)
        given = (system.row_start, system.column, system.blocks, system.tied.inverse, system.tied.joint)
        count, _, status = backend.joints.conjugate_gradient_joint(*given, b, x, system.free, 1e-12, 500)
        assert status == CONVERGED
        found.append((x, count))
    (x, count), (y, other) = found
    assert np.linalg.norm(x - y) <= 1e-9 * np.linalg.norm(y) and abs(count - other) <= 2


def test_what_is_tied() -> None:
    """Friction's share of a free node's trace above `TIED_FROM`, the most tied ones of too many."""
    blocks = np.tile(np.eye(3).ravel(), (400, 1))
    slot = np.tile(np.arange(400)[:, None], (1, 27))
    share = np.linspace(0.0, 1.0, 400)
    free = np.where(np.arange(400) % 2, 1.0, 0.0)
    nodes = tied_nodes(3 * share, blocks, slot, free)
    assert np.array_equal(np.sort(nodes), np.flatnonzero((share > joint_block.TIED_FROM) & (free > 0)))
    nodes = tied_nodes(3 * share, blocks, slot, np.ones(400))
    assert np.array_equal(np.sort(nodes), np.arange(400 - joint_block.MOST_NODES, 400))


def test_no_block_where_it_is_not_positive_definite() -> None:
    simulation, system = sliding(0.4)
    d, rubbing = simulation.device, np.full(simulation.device.nodes, -1e12)
    assert TiedBlock.of(d, -system.blocks, system.inverse, rubbing) is None
    assert TiedBlock.of(d, system.blocks, system.inverse, np.zeros(d.nodes)) is None


def test_the_same_bits_for_any_number_of_threads() -> None:
    """4,704 nodes: enough for several threads in the loops; one column and several."""
    simulation, system = sliding(0.4, spacing_m=0.004)
    assert system.tied is not None and simulation.device.nodes > 3000
    before, found = numba.get_num_threads(), []
    try:
        for threads in sorted({1, min(2, numba.config.NUMBA_NUM_THREADS)}):
            numba.set_num_threads(threads)
            _, again = sliding(0.4, spacing_m=0.004)
            assert isinstance(again.tied.joint, JointBlock)
            b, many = load(simulation), load(simulation, 8)
            solve(simulation.backend, again, b, x := np.zeros_like(b), SolverSettings(1e-6))
            solve_many(simulation.backend, again, many, y := np.zeros_like(many), SolverSettings(1e-6))
            found.append((x, y, again.tied.joint.factor))
    finally:
        numba.set_num_threads(before)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other))
