"""Every CUDA loop against the CPU's on the same numbers.

In float64 both differ by rounding and the order of a few sums only: 1e-10 of the result's size is far above that and
far below any error in a formula.
"""

from __future__ import annotations

import numpy as np
import pytest

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.physics.step import Simulation

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cuda():
    from soft_estimator.backends.cuda import load_cuda_backend

    return load_cuda_backend()


class Pair:
    """Calls a loop on both backends with the same arguments; the last `outputs` of them are compared."""

    def __init__(self, cuda):
        self.cpu, self.cuda = CpuBackend(), cuda

    def __call__(self, name, *arguments, outputs=1, tolerance=1e-10):
        host = [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]
        device = [self.cuda.to_device(x) if isinstance(x, np.ndarray) else x for x in arguments]
        got, want = getattr(self.cuda, name)(*device), getattr(self.cpu, name)(*host)
        for a, b in zip(device[-outputs:], host[-outputs:]):
            a = self.cuda.to_host(a)
            assert np.isfinite(a).all()
            assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(b)
        return got, want


@pytest.fixture
def pair(cuda):
    return Pair(cuda)


@pytest.fixture
def sim(make_scene):
    return Simulation(*make_scene("contact"))


def noise(shape, scale=1.0, seed=0):
    return np.random.default_rng(seed).normal(size=shape) * scale


def turned(sim, scale=0.004):
    u = sim.start + noise(sim.zero.shape, scale)
    return u, sim.cell_rotations(u)


@pytest.mark.parametrize("scale", [1e-3, 0.01, 0.05])
def test_rotations(pair, sim, scale):
    """Displacements of 0.05 on cells of 0.0115 turn many cells inside out: both branches of the closest rotation."""
    u = noise(sim.zero.shape, scale)
    pair("rotations", u, sim.cell_nodes, sim.spacing, np.full((sim.model.body.cell_count, 9), np.nan))


def test_rotations_tangent_and_adjoint(pair, sim):
    u, r = turned(sim)
    cells = len(r)
    du, r_bar = noise(u.shape, 0.01, 1), noise(r.shape, 1.0, 2)
    pair("rotations_tangent", u, du, r, sim.cell_nodes, sim.spacing, np.full((cells, 9), np.nan))
    pair("rotations_adjoint", u, r, r_bar, sim.cell_nodes, sim.spacing, np.full((cells, 24), np.nan))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_cell_forces(pair, sim, share):
    u, r = turned(sim)
    z = noise(u.shape, 0.01, 1)
    pair("cell_forces", u, z, share, r, *sim.cell_arguments(), np.full((len(r), 24), np.nan))


def test_cell_energies(pair, sim):
    u, r = turned(sim)
    pair("cell_energies", u, sim.zero, r, *sim.cell_arguments(), np.full(len(r), np.nan))


def test_cell_forces_adjoint_and_tangent(pair, sim):
    u, r = turned(sim)
    cells = len(r)
    z, lmbda = noise(u.shape, 0.01, 1), noise(u.shape, 1.0, 2)
    outputs = [np.full((cells, k), np.nan) for k in (24, 9, 2)]
    pair("cell_forces_adjoint", lmbda, u, z, 1.0, r, *sim.cell_arguments(), *outputs, outputs=3)
    nodes, index, table, young, lam, mu, spacing = sim.cell_arguments()
    dlam, dmu = noise(cells, 1.0, 3), noise(cells, 1.0, 4)
    arguments = (noise(r.shape, 0.1, 5), u, z, 1.0, r, nodes, index, table, young, lam, mu, dlam, dmu, spacing)
    pair("cell_forces_tangent", *arguments, np.full((cells, 24), np.nan))


def test_gather(pair, sim):
    values = noise((sim.model.body.cell_count, 24))
    pair("gather", values, sim.node_cells, -0.7, noise(sim.zero.shape, 1.0, 1))


def matrix_arguments(sim, r):
    cells = (sim.node_cells, sim.gradient_index, sim.table, sim.young, sim.lam, sim.mu)
    return (r, *cells, 0.9, 100.0 * sim.mass, sim.row_start, sim.slot)


def test_assemble_multiply_and_invert(pair, sim):
    _, r = turned(sim)
    blocks = np.full((len(sim.column), 9), np.nan)
    pair("assemble", *matrix_arguments(sim, r), blocks)
    CpuBackend.assemble(*matrix_arguments(sim, r), blocks)
    pair("multiply", sim.row_start, sim.column, blocks, noise(sim.zero.shape), np.full(sim.zero.shape, np.nan))
    free = (np.arange(len(sim.mass)) % 3 > 0).astype(float)
    pair("invert_diagonal", blocks, sim.slot, free, np.full((len(free), 9), np.nan))


def test_contact(pair, sim):
    """Points on both sides of the plane, some so deep that exp(-a δ) overflows."""
    u, count = sim.start + noise(sim.zero.shape, 0.03), len(sim.point_area)
    points, outputs = (sim.point_nodes, sim.point_weight), [np.full(count, np.nan) for _ in range(3)]
    pair("contact_points", sim.position, u, *points, sim.normal, 0.03, 1e5, *outputs, outputs=3)
    pair("at_points", u, *points, np.full((count, 3), np.nan))
    value = noise(count) * (np.arange(count) % 2)
    links = (sim.node_cells, sim.point_start, sim.point_weight)
    pair("spread_along", sim.normal, value, *links, noise(u.shape, 1.0, 1))
    pair("add_contact_blocks", sim.normal, value, *links, sim.slot, noise((len(sim.column), 9), 1.0, 2))


def test_add_blocks_adds_repeated_slots_in_order(pair, sim):
    slots = np.random.default_rng(0).integers(0, 50, 4000)
    pair("add_blocks", slots, noise((4000, 9)), noise((len(sim.column), 9), 1.0, 1), tolerance=0.0)


def test_single_precision_error(cuda, make_scene):
    """float32 against float64 on the same input: forces and blocks to 1e-5, what 24 products of 6e-8 may add up to
    through the cancellation of neighbouring displacements."""
    double, single = (Simulation(*make_scene("contact", t), cuda) for t in (np.float64, np.float32))
    u = double.start + noise(double.zero.shape, 1e-3)
    results = []
    for s in (double, single):
        at = s.backend.to_device(u, s.model.dtype)
        r = s.cell_rotations(at)
        corner = s.xp.empty((len(r), 24), s.model.dtype)
        s.backend.cell_forces(at, s.zero, 1.0, r, *s.cell_arguments(), corner)
        results.append([s.backend.to_host(x).astype(float) for x in (r, corner, s.assemble(r, 1.0, s.mass))])
    for a, b, tolerance in zip(*results, (1e-6, 1e-4, 1e-5)):
        assert np.linalg.norm(a - b) <= tolerance * np.linalg.norm(a)
