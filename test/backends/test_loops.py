"""Every loop of the compiled backends against the reference backend, on the same numbers.

In float64 they differ by rounding and the order of sums: 1e-11 of the result's size is far above that (some hundred
terms of 1e-16, and up to 1e4 where neighbouring displacements cancel) and far below any error in a formula. In float32
the reference gets the same rounded inputs and computes in double precision, so the difference is the loop's own
rounding: 1e-4, for terms of 6e-8 with a cancellation of up to 1e3.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from backends.loop_arguments import SHAPES, Arrays, noise

from soft_estimator.backends.cpu import CpuBackend
from soft_estimator.geometry.shapes import Sphere, sample
from soft_estimator.physics.body import build_body

TOLERANCE = {np.float64: 1e-11, np.float32: 1e-4}


@pytest.fixture(scope="module", params=[np.float64, np.float32], ids=["float64", "float32"])
def arrays(request, small_torus):
    return Arrays(small_torus, request.param)


@pytest.fixture(scope="module")
def speck():
    """A sphere of a cell and a half across, all of its cells cut and most of its nodes in one cell only."""
    body = build_body(sample(Sphere(0.015), 0.02), region_of=lambda x: (x[:, 0] > 0).astype(np.int32))
    return Arrays(body, np.float64)


@pytest.fixture
def same(fast, reference, arrays):
    """Runs a loop on both backends with the same arguments; the last `outputs` of them must come out alike."""

    def run(name, *arguments, outputs=1, tolerance=None):
        host = [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]
        device = [fast.to_device(x.copy()) if isinstance(x, np.ndarray) else x for x in arguments]
        getattr(reference, name)(*host)
        getattr(fast, name)(*device)
        for got, want in zip((fast.to_host(x) for x in device[-outputs:]), host[-outputs:]):
            assert got.dtype == want.dtype and np.isfinite(want).all()
            allowed = TOLERANCE[arrays.real] if tolerance is None else tolerance
            assert np.linalg.norm(got.astype(float) - want) <= allowed * np.linalg.norm(want)
        return host[-outputs:]

    return run


def rotated(reference, arrays, shape):
    u, r = arrays.displaced(shape), arrays.out(arrays.cells, 9)
    reference.rotations(u, arrays.cell_nodes, arrays.spacing, r)
    return u, r


def test_the_body_tries_everything(small_torus):
    """Full and cut cells, two regions, contact points, nodes with fewer than eight cells."""
    assert 0 < (small_torus.cells.gradient_index == 0).sum() < small_torus.cell_count
    assert set(small_torus.cell_region) == {0, 1} and len(small_torus.contact_points.area_m2) > 100
    assert (small_torus.node_cells < 0).any()


@pytest.mark.parametrize("shape", SHAPES)
def test_rotations(same, reference, arrays, shape):
    """R, δR and the pull back of R̄; inverted and flat cells take the other branch of the closest rotation."""
    u, out = arrays.displaced(shape), arrays.out(arrays.cells, 9)
    (r,) = same("rotations", u, arrays.cell_nodes, arrays.spacing, out)
    f = np.eye(3) + np.einsum("cpa,pb->cab", u[arrays.cell_nodes].astype(float), signs()) / (4 * arrays.spacing)
    determinant = np.linalg.det(f)
    assert (determinant > 0).all() if shape == "small" else (determinant < 1e-3).sum() > 20
    du, r_bar = arrays.nodal(0.1 * arrays.spacing, 1), noise((arrays.cells, 9), 1.0, 2)
    cells = (arrays.cell_nodes, arrays.spacing)
    same("rotations_tangent", u, du, r, *cells, arrays.out(arrays.cells, 9, real=float))
    same("rotations_adjoint", u, r, r_bar, *cells, arrays.out(arrays.cells, 24, real=float))


def signs():
    return np.array([[1.0 if p & bit else -1.0 for bit in (4, 2, 1)] for p in range(8)])


def test_a_body_of_a_few_cut_cells(fast, reference, speck):
    """Chunks, tiles and threads that outnumber the cells: forces, matrix and product as the reference has them."""
    assert speck.cells <= 27 and (speck.index > 0).all() and (speck.node_cells < 0).sum() > 4 * speck.nodes
    u, x = speck.displaced("small"), speck.nodal(1.0, 1)
    results = []
    for backend in (reference, fast):
        to = backend.to_device
        nodes, index, table, young, lam, mu = (to(a) if isinstance(a, np.ndarray) else a for a in speck.elastic())
        r, corner = (to(speck.out(speck.cells, width)) for width in (9, 24))
        blocks, product = to(speck.out(len(speck.pattern[1]), 9)), to(speck.out(speck.nodes, 3))
        backend.rotations(to(u), nodes, speck.spacing, r)
        backend.cell_forces(to(u), to(x), 1.0, r, nodes, index, table, young, lam, mu, speck.spacing, corner)
        row_start, column, slot, around = map(to, (*speck.pattern, speck.body.slot, speck.node_cells))
        inertia = to(speck.body.mass_m3)
        backend.assemble(r, around, index, table, young, lam, mu, 0.9, inertia, row_start, slot, blocks)
        backend.multiply(row_start, column, blocks, to(x), product)
        results.append([backend.to_host(a) for a in (r, corner, blocks, product)])
    for want, got in zip(*results):
        assert np.linalg.norm(got - want) <= TOLERANCE[np.float64] * np.linalg.norm(want)


@pytest.mark.parametrize("shape", SHAPES)
def test_elastic_forces(same, reference, arrays, shape):
    """R K̂ (Rᵀ(share (x + u) + z) - share x) for both shares, and ½ wᵀ K̂ w."""
    u, r = rotated(reference, arrays, shape)
    z = arrays.nodal(0.1 * arrays.spacing, 1)
    for share in (0.0, 1.0):
        same("cell_forces", u, z, share, r, *arrays.elastic(), arrays.spacing, arrays.out(arrays.cells, 24))
    out = arrays.out(arrays.cells, real=float)
    same("cell_energies", u, np.zeros_like(u), r, *arrays.elastic(), arrays.spacing, out)


@pytest.mark.parametrize("columns", [1, 8])
def test_deviatoric_products(same, reference, arrays, columns):
    """As many columns as a step and a tangent hand over. It is K̂ with λ = -2μ/3, as in `cell_forces`."""
    index, table = arrays.elastic()[1:3]
    nodal = arrays.nodal(1.0, 3)
    corner = nodal[arrays.cell_nodes].reshape(arrays.cells, 24, 1) * np.ones(columns, arrays.real)
    (got,) = same("deviatoric_products", corner, index, table, arrays.out(arrays.cells, 24, columns))
    straight, one = np.tile(np.eye(3, dtype=arrays.real).ravel(), (arrays.cells, 1)), np.ones(arrays.cells, arrays.real)
    want = arrays.out(arrays.cells, 24)
    cells = (arrays.cell_nodes, index, table, one, -2 / 3, 1.0, arrays.spacing)
    reference.cell_forces(nodal, nodal, 0.0, straight, *cells, want)
    assert np.linalg.norm(got[:, :, 0] - want) <= TOLERANCE[arrays.real] * np.linalg.norm(want)


@pytest.mark.parametrize("shape", SHAPES)
def test_elastic_forces_adjoint(same, reference, arrays, shape):
    u, r = rotated(reference, arrays, shape)
    z, lmbda, cells = arrays.nodal(0.1 * arrays.spacing, 1), arrays.nodal(1.0, 2), arrays.cells
    outputs = [arrays.out(cells, width, real=float) for width in (24, 9, 2)]
    same("cell_forces_adjoint", lmbda, u, z, 1.0, r, *arrays.elastic(), arrays.spacing, *outputs, outputs=3)


def test_elastic_forces_along_many_directions(same, reference, arrays):
    """Eight columns, as the CPU takes them in one go, through rotations, regions' λ and μ, and the nodes' motion."""
    u, r = rotated(reference, arrays, "small")
    z, h = arrays.nodal(0.1 * arrays.spacing, 1), arrays.spacing
    dat, moved = (noise((arrays.nodes, 3, 8), 0.1 * h, seed).astype(arrays.real) for seed in (2, 3))
    nodes, index, table, young, lam, mu = arrays.elastic()
    cells = (nodes, index, table, young, arrays.body.cell_region, lam, mu)
    dlam, dmu, out = noise((2, 8), 1.0, 4), noise((2, 8), 1.0, 5), arrays.out(arrays.cells, 24, 8)
    (corner,) = same("cell_forces_tangents", u, dat, u, z, moved, r, *cells, dlam, dmu, h, out)
    same("gather_many", corner, arrays.node_cells, -0.7, noise((arrays.nodes, 3, 8)).astype(arrays.real))


def test_gather(same, arrays):
    """Into the simulation's precision, from it and from double precision, as the adjoint does."""
    for real in (arrays.real, np.float64):
        values = noise((arrays.cells, 24)).astype(real)
        same("gather", values, arrays.node_cells, -0.7, arrays.nodal(1.0, 1))


def matrix(reference, arrays, shape="small"):
    """Arguments of `assemble` but the blocks, and the reference's blocks."""
    _, r = rotated(reference, arrays, shape)
    _, index, table, young, lam, mu = arrays.elastic()
    inertia = (1e8 * arrays.body.mass_m3).astype(arrays.real)  # about as large as the stiffness, E h
    given = (r, arrays.node_cells, index, table, young, lam, mu, 0.9, inertia, arrays.pattern[0], arrays.body.slot)
    blocks = arrays.out(len(arrays.pattern[1]), 9)
    reference.assemble(*given, blocks)
    return given, blocks


@pytest.mark.parametrize("shape", SHAPES)
def test_assemble_multiply_and_invert(same, reference, arrays, shape):
    given, blocks = matrix(reference, arrays, shape)
    same("assemble", *given, np.full_like(blocks, np.nan))
    same("multiply", *arrays.pattern, blocks, arrays.nodal(1.0, 1), arrays.out(arrays.nodes, 3))
    mass = arrays.body.mass_m3.astype(arrays.real)
    for width in (3, 24):
        x = noise((arrays.nodes, width), 1.0, 2).astype(arrays.real)
        same("multiply_scalars", *arrays.pattern, mass, x, arrays.out(arrays.nodes, width))
        # From one grid to another: fewer rows than columns.
        rows = arrays.nodes // 3
        start, column = arrays.pattern[0][: rows + 1], arrays.pattern[1][: arrays.pattern[0][rows]]
        same("multiply_scalars", start, column, mass[: len(column)], x, arrays.out(rows, width))
    free = (np.arange(arrays.nodes) % 3 > 0).astype(arrays.real)
    same("invert_diagonal", blocks, arrays.body.slot, free, arrays.out(arrays.nodes, 9))


def test_contact(same, arrays):
    """Values from the nodes to the points and back, and blocks; every other point does not count."""
    u, count = arrays.displaced("inverted"), arrays.points
    same("at_points", u, *arrays.riding, arrays.out(count, 3, real=float))
    same("columns_at_points", noise((arrays.nodes, 5)), *arrays.riding, arrays.out(count, 5, real=float))
    value = noise(count) * (np.arange(count) % 2)
    same("spread_columns", noise((count, 5)), *arrays.links, noise((arrays.nodes, 5), 1.0, 2))
    blocks = noise((len(arrays.pattern[1]), 9), 1.0, 3).astype(arrays.real)
    same("add_contact_blocks", arrays.normal, value, *arrays.links, arrays.body.slot, blocks)


def test_soft_contact(same):
    """log(1 + e^-t)/a, 1/(1 + e^t) and -Li₂(-e^-t)/a² at t = aδ deep under, near and far over an obstacle, where e^-t
    overflows and where nothing is left; functions of one number, so alike to a few last bits."""
    distance = np.concatenate([np.linspace(-0.04, 0.03, 701), [-0.4, -1e-9, 0.0, 1e-9, 0.031, 1.0]])
    depth, slope, energy = (np.full(len(distance), np.nan) for _ in range(3))
    depth, slope = same("soft_depths", distance, 2000.0, depth, slope, outputs=2, tolerance=1e-14)
    (energy,) = same("soft_energies", distance, 2000.0, energy, tolerance=1e-14)
    inside = np.abs(distance) < 2e-3  # where the largest do not hide the others
    same("soft_energies", distance[inside], 2000.0, energy[inside], tolerance=1e-14)
    assert (energy[distance > 0.0301] == 0).all() and (energy[distance < 0.015] > 0).all() and (depth >= 0).all()


def test_sums(fast, reference, arrays):
    """Σ a b and Σ a of many pairs at once, short and long, in both precisions and with gaps between their numbers:
    within the rounding of products in the arrays' own precision, by Cauchy and Schwarz."""
    a, b = arrays.nodal(1.0, 1), arrays.nodal(1.0, 2)
    wide, strided = noise((arrays.cells, 24)), arrays.nodal(1.0, 3)[::2, 1]
    pairs = [(a, b), (a, a), (wide, None), (strided, strided), (strided, None), (b.astype(float), a), (a[:1, 0], None)]
    pairs *= 3
    up = [tuple(None if x is None else fast.to_device(x) for x in pair) for pair in pairs]
    up[3] = (fast.to_device(arrays.nodal(1.0, 3))[::2, 1],) * 2
    found, want = fast.sums(up), reference.sums(pairs)
    assert found == fast.sums(up) and fast.sums([]) == []
    for (x, y), got, wanted in zip(pairs, found, want):
        size = np.linalg.norm(x) * (np.sqrt(x.size) if y is None else np.linalg.norm(y))
        assert abs(got - wanted) <= {np.float64: 1e-14, np.float32: 1e-7}[arrays.real] * size
    assert want[0] == pytest.approx(float((a.astype(float) * b).sum()), rel=1e-12) and want[1] > 0


def test_add_blocks_adds_repeated_slots_in_order(same, arrays):
    """The same sums in the same order: the same bits."""
    slots = np.random.default_rng(0).integers(0, 50, 4000)
    blocks, values = (noise((n, 9), 1.0, n).astype(arrays.real) for n in (len(arrays.pattern[1]), 4000))
    same("add_blocks", slots, values, blocks, tolerance=0.0)


@pytest.mark.parametrize("columns", [None, 8])
def test_conjugate_gradient(fast, reference, arrays, columns):
    """A x = b on the free nodes: residuals below the tolerance, held nodes stay; within 1e4 (the matrix' condition)
    times the tolerance of the reference's solution, after as many iterations, give or take rounding."""
    _, blocks = matrix(reference, arrays)
    free, inverse = (np.arange(arrays.nodes) % 5 > 0).astype(arrays.real), arrays.out(arrays.nodes, 9)
    reference.invert_diagonal(blocks, arrays.body.slot, free, inverse)
    shape = (arrays.nodes, 3) if columns is None else (arrays.nodes, 3, columns)
    b, start = (noise(shape, 1.0, seed).astype(arrays.real) for seed in (1, 2))
    tolerance = 1e-12 if arrays.real is np.float64 else 1e-5
    name, results = "conjugate_gradient" if columns is None else "conjugate_gradient_many", []
    for backend in (reference, fast):
        device = [backend.to_device(x.copy()) for x in (*arrays.pattern, blocks, inverse, b, 1e-4 * start, free)]
        iterations, residual, status = getattr(backend, name)(*device, tolerance, 500)
        assert status == 0 and residual <= 2 * tolerance
        results.append((backend.to_host(device[5]), iterations))
    (want, expected), (got, iterations) = results
    assert np.array_equal(got[free == 0], (1e-4 * start)[free == 0])
    assert np.linalg.norm(got - want) <= 1e4 * tolerance * np.linalg.norm(want)
    assert abs(iterations - expected) <= 3


@pytest.mark.parametrize("columns", [None, 8])
def test_conjugate_gradient_reports_failure(fast, reference, small_torus, columns):
    """Nothing to solve for is solved by zero; an indefinite matrix and NaN break down; too few iterations are too few.
    The reference must say the same."""
    arrays = Arrays(small_torus, np.float64)
    _, blocks = matrix(reference, arrays)
    free, inverse = (np.arange(arrays.nodes) % 5 > 0).astype(float), arrays.out(arrays.nodes, 9)
    reference.invert_diagonal(blocks, arrays.body.slot, free, inverse)
    shape = (arrays.nodes, 3) if columns is None else (arrays.nodes, 3, columns)
    poisoned, zero = noise(shape), np.zeros(shape)
    poisoned[6] = np.nan
    name = "conjugate_gradient" if columns is None else "conjugate_gradient_many"
    for backend in (reference, fast):

        def solve(blocks, b, limit, x=zero, backend=backend):
            device = [backend.to_device(v.copy()) for v in (*arrays.pattern, blocks, inverse, b, x, free)]
            iterations, _, status = getattr(backend, name)(*device, 1e-10, limit)
            return int(iterations), int(status), backend.to_host(device[5])

        guess = np.ones(shape) * free.reshape(-1, *[1] * (len(shape) - 1))
        iterations, status, x = solve(blocks, zero, 500, guess)
        assert (iterations, status) == (0, 0) and not x.any()
        assert solve(-blocks, noise(shape), 500)[1] == 2
        assert solve(blocks, poisoned, 500)[1] == 2
        iterations, status, _ = solve(blocks, noise(shape), 3)
        assert iterations <= 3 and status == 1


def test_points(fast, reference, torus_field):
    """Cells, places, distances and their derivatives of points in, near and far from a deformed body."""
    field, position, points = torus_field
    grid = (position, field.cell_nodes, field.in_body, field.phi_m)
    results = []
    for backend in (reference, fast):
        device = [backend.to_device(x) for x in (points, *grid)]
        found, local = backend.find_cells(*device, field.spacing_m)
        value = backend.to_device(field.phi_m[field.cell_nodes[np.maximum(backend.to_host(found), 0)]])
        outputs = [backend.xp.zeros((len(points), *shape)) for shape in ((), (8,), (8,), (3,), (3,))]
        backend.surface_distances(found, local, device[1], device[2], value, 0.2, *outputs)
        results.append([backend.to_host(x) for x in (found, local, *outputs)])
    want, got = results
    assert np.array_equal(got[0], want[0]) and 100 < (want[0] >= 0).sum() < len(points)
    for a, b in zip(got[1:], want[1:]):
        assert np.linalg.norm(a - b) <= 1e-9 * np.linalg.norm(b)  # Newton's method ends at 1e-13 of a cell


@pytest.fixture(scope="module")
def torus_field(small_torus):
    """The body's carried field, bent by a third of a cell, and points around its surface."""
    from soft_estimator.estimation.residuals.carried_field import carry_field

    field, rng = carry_field(small_torus), np.random.default_rng(3)
    x = small_torus.node_position_m
    u = 0.008 * np.stack([np.sin(20 * x[:, 1]), np.cos(15 * x[:, 2]), np.sin(18 * x[:, 0])], axis=1)
    surface = small_torus.surface_positions_m(u)
    near = surface[rng.integers(len(surface), size=200)] + rng.normal(scale=0.01, size=(200, 3))
    points = np.concatenate([near, surface.mean(axis=0) + rng.normal(scale=0.3, size=(50, 3))])
    return field, field.position_m + field.follow @ u, points


@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_columns_that_are_done_or_alike_are_solved_as_all_others(reference, small_torus, real):
    """A x_j = b_j for columns of every kind: guessed right, zero, sums of others, tiny and large, more than fit into
    two groups. Residuals |b - A x| <= 2 tolerance |b| of each, whatever its neighbours; what was right stays as it was.
    """
    arrays, backend = Arrays(small_torus, real), CpuBackend()
    _, blocks = matrix(reference, arrays)
    free, inverse = np.ones(arrays.nodes, real), arrays.out(arrays.nodes, 9)
    reference.invert_diagonal(blocks, arrays.body.slot, free, inverse)
    b, guess = noise((arrays.nodes, 3, 24), 1.0, 3).astype(real), np.zeros((arrays.nodes, 3, 24), real)
    b[..., 3:6], b[..., 9] = b[..., :1] * np.array([2.0, -1e-6, 1e6], real), b[..., 1] + b[..., 2]
    b[..., 12] = 0.0
    guess[..., 12], guess[..., 20] = 1.0, noise((arrays.nodes, 3), 1e-3, 5)
    matrix_ = sp.bsr_matrix((blocks.reshape(-1, 3, 3), *arrays.pattern[1::-1])).astype(np.float64)
    b[..., 20] = (matrix_ @ guess[..., 20].ravel()).reshape(-1, 3)
    tolerance, x = (1e-9, guess.copy()) if real is np.float64 else (1e-4, guess.copy())
    _, residual, status = backend.conjugate_gradient_many(*arrays.pattern, blocks, inverse, b, x, free, tolerance, 500)
    off = b.reshape(-1, 24) - matrix_ @ x.reshape(-1, 24).astype(np.float64)
    size = np.linalg.norm(b.reshape(-1, 24).astype(np.float64), axis=0)
    # In single precision the residual itself is rounded: 1e-7 of |A| |x|, which may be a few hundred times |b|.
    assert status == 0 and residual <= 2 * tolerance
    assert (np.linalg.norm(off, axis=0) <= 3 * tolerance * size).all()
    assert not x[..., 12].any() and np.array_equal(x[..., 20], guess[..., 20])


@pytest.mark.parametrize("real", [np.float64, np.float32])
@pytest.mark.parametrize("count", [1, 2, 10])
def test_few_columns_are_solved_one_after_the_other(reference, small_torus, real, count):
    """Alone, or beside a whole group of eight: |b - A x| <= 2 tolerance |b| of each, in either precision."""
    arrays, backend = Arrays(small_torus, real), CpuBackend()
    _, blocks = matrix(reference, arrays)
    free, inverse = np.ones(arrays.nodes, real), arrays.out(arrays.nodes, 9)
    reference.invert_diagonal(blocks, arrays.body.slot, free, inverse)
    b = noise((arrays.nodes, 3, count), 1.0, 3).astype(real)
    x, tolerance = np.zeros_like(b), 1e-9 if real is np.float64 else 1e-4
    _, residual, status = backend.conjugate_gradient_many(*arrays.pattern, blocks, inverse, b, x, free, tolerance, 500)
    matrix_ = sp.bsr_matrix((blocks.reshape(-1, 3, 3), *arrays.pattern[1::-1])).astype(np.float64)
    off = b.reshape(-1, count) - matrix_ @ x.reshape(-1, count).astype(np.float64)
    assert status == 0 and residual <= 2 * tolerance
    assert (np.linalg.norm(off, axis=0) <= 3 * tolerance * np.linalg.norm(b.reshape(-1, count), axis=0)).all()
