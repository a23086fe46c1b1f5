"""The neo-Hookean loops: the reference against difference quotients, every other backend against the reference.

Tolerances between backends are those of `test_loops`: 1e-11 of the result in float64, 1e-4 in float32.
"""

from __future__ import annotations

import numpy as np
import pytest
from backends.loop_arguments import LAM, MU, SHAPES, Arrays, noise

from soft_estimator.backends.neo_hookean_loops import NeoHookeanCells

TOLERANCE = {np.float64: 1e-11, np.float32: 1e-4}


class Tables:
    """What the loops take beside displacements, in a precision."""

    def __init__(self, body, real):
        self.arrays, s = Arrays(body, real), body.slopes
        self.slopes, self.crossed, self.laplacian, self.volume = (
            x.astype(real) for x in (s.slopes_per_m, s.crossed_per_m2, s.laplacian_m, s.volume_m3)
        )
        places, tables = (self.arrays.cell_nodes, self.arrays.index), (self.slopes, self.crossed, self.laplacian)
        self.cells = NeoHookeanCells(*places, *tables, self.volume, self.arrays.young, LAM, MU)

    def on(self, backend):
        """The cells where a backend computes."""
        return NeoHookeanCells(*(backend.to_device(x) if isinstance(x, np.ndarray) else x for x in self.cells))


def forces(backend, tables, u):
    a = tables.arrays
    energy, corner = backend.to_device(a.out(a.cells, real=float)), backend.to_device(a.out(a.cells, 24))
    backend.neo_hookean_forces(backend.to_device(u), tables.on(backend), energy, corner)
    return backend.to_host(energy), backend.to_host(corner)


def blocks(backend, tables, u, definite):
    a, out = tables.arrays, backend.to_device(tables.arrays.out(tables.arrays.cells, 36, 9))
    backend.neo_hookean_blocks(backend.to_device(u), tables.on(backend), definite, out)
    assert a.cells == len(out)
    return backend.to_host(out)


def products(backend, tables, given, x):
    a, to = tables.arrays, backend.to_device
    out = to(a.out(a.cells, 24, x.shape[2]))
    backend.block_products(to(given), to(a.cell_nodes), to(x), out)
    return backend.to_host(out)


def close(got, want, tolerance):
    assert got.dtype == want.dtype and np.isfinite(want).all()
    assert np.linalg.norm(got.astype(float) - want) <= tolerance * np.linalg.norm(want.astype(float))


@pytest.mark.parametrize("shape", ["small", "inverted"])
def test_forces_and_blocks_are_derivatives(reference, small_torus, shape):
    """force = ∂energy/∂u and blocks · δu = ∂force/∂u · δu by central differences: an error of (1e-6)² of the cell's
    size and 1e-16/1e-6 of rounding, so 1e-7 of the largest."""
    tables = Tables(small_torus, np.float64)
    u, du = tables.arrays.displaced(shape), tables.arrays.nodal(tables.arrays.spacing, 1)
    step = 1e-6
    (e1, f1), (e0, f0) = forces(reference, tables, u + step * du), forces(reference, tables, u - step * du)
    slope = (forces(reference, tables, u)[1] * du[tables.arrays.cell_nodes].reshape(-1, 24)).sum(axis=1)
    assert np.abs((e1 - e0) / (2 * step) - slope).max() < 1e-7 * np.abs(slope).max()
    change = products(reference, tables, blocks(reference, tables, u, False), du[:, :, None])[:, :, 0]
    assert np.abs((f1 - f0) / (2 * step) - change).max() < 1e-7 * np.abs(change).max()


@pytest.mark.parametrize("shape", SHAPES)
def test_definite_blocks(reference, small_torus, shape):
    """Every cell's matrix has no negative eigenvalue beyond rounding, where inverted cells' true ones have."""
    tables = Tables(small_torus, np.float64)
    u, lowest = tables.arrays.displaced(shape), []
    p, q = np.array([(p, q) for p in range(8) for q in range(p, 8)]).T
    for definite in (False, True):
        made = blocks(reference, tables, u, definite).reshape(-1, 36, 3, 3)
        full = np.zeros((len(made), 8, 3, 8, 3))
        full[:, p, :, q, :] = made.transpose(1, 0, 2, 3)
        full[:, q, :, p, :] = made.transpose(1, 0, 3, 2)
        values = np.linalg.eigvalsh(full.reshape(-1, 24, 24))
        lowest.append((values[:, 0] / values[:, -1]).min())
    assert lowest[1] > -1e-12
    assert lowest[0] < -1e-3 or shape == "small"


@pytest.mark.parametrize("real", [np.float64, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("shape", SHAPES)
def test_backends_agree(fast, reference, small_torus, shape, real):
    """Definite blocks to 1e-8 only: singular values come from FᵀF, whose smallest is known to √1e-16 in a flat cell."""
    tables = Tables(small_torus, real)
    u = tables.arrays.displaced(shape)
    for got, want in zip(forces(fast, tables, u), forces(reference, tables, u)):
        close(got, want, TOLERANCE[real])
    for definite in (False, True):
        allowed = max(TOLERANCE[real], 1e-8 if definite else 0.0)
        close(blocks(fast, tables, u, definite), blocks(reference, tables, u, definite), allowed)


@pytest.mark.parametrize("real", [np.float64, np.float32], ids=["float64", "float32"])
def test_matrices_of_cells_agree(fast, reference, small_torus, real):
    """Their products with columns, and their sum into the pattern: A x is the cells' products at the nodes."""
    tables, a = Tables(small_torus, real), Arrays(small_torus, real)
    made = blocks(reference, tables, a.displaced("small"), False)
    x = noise((a.nodes, 3, 8)).astype(real)
    close(products(fast, tables, made, x), products(reference, tables, made, x), TOLERANCE[real])
    sums = []
    for backend in (reference, fast):
        to, start = backend.to_device, noise((len(a.pattern[1]), 9), 1.0, 2).astype(real)
        total = to(start.copy())
        backend.gather_blocks(to(made), to(a.node_cells), 0.7, to(a.body.slot), total)
        sums.append(backend.to_host(total) - start)
    close(sums[1], sums[0], TOLERANCE[real])
    at_nodes, product = np.zeros((a.nodes, 3)), a.out(a.nodes, 3, real=float)
    column = products(reference, tables, made, x)[:, :, 0].astype(float)
    reference.gather(column, a.node_cells, 0.7, at_nodes)
    reference.multiply(*a.pattern, sums[0].astype(float), x[:, :, 0].astype(float), product)
    assert np.linalg.norm(product - at_nodes) <= TOLERANCE[real] * np.linalg.norm(product)


def test_one_thread_or_two_give_the_same_bits(small_torus):
    numba = pytest.importorskip("numba")
    from soft_estimator.backends import choose_backend

    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("needs two threads")
    backend, tables, results = choose_backend("cpu"), Tables(small_torus, np.float64), []
    before = numba.get_num_threads()
    for threads in (1, 2):
        numba.set_num_threads(threads)
        u = tables.arrays.displaced("small")
        results.append([*forces(backend, tables, u), blocks(backend, tables, u, True)])
    numba.set_num_threads(before)
    for one, two in zip(*results):
        assert np.array_equal(one, two)
