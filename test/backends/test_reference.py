"""The reference backend against closed forms, SciPy and difference quotients: the oracle has to be right by itself.

Loops that are linear or quadratic in what is varied are met by central differences to rounding (1e-9 of the result with
steps of 1e-3); the rotations are not, and central differences of step ε err by ε² and 1e-16/ε: with 1e-5, below 1e-8.
"""

from __future__ import annotations

import numpy as np
import pytest
from backends.loop_arguments import LAM, MU, SHAPES, Arrays, noise
from scipy.integrate import quad
from scipy.linalg import polar
from scipy.sparse.linalg import spsolve
from scipy.spatial.transform import Rotation

from soft_estimator.backends.reference import cells, contact, matrix, points


@pytest.fixture(scope="module")
def arrays(small_torus):
    return Arrays(small_torus, np.float64)


def rotations(arrays, u):
    out = arrays.out(arrays.cells, 9)
    cells.rotations(u, arrays.cell_nodes, arrays.spacing, out)
    return out


def close(got, want, tolerance):
    assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want)


def test_closest_rotation():
    """The polar factor where det F > 0; else no rotation comes closer: tr(QᵀF) <= tr(RᵀF) for random rotations Q."""
    f = noise((200, 3, 3))
    r = cells.closest_rotations(f)
    assert np.allclose(r @ r.transpose(0, 2, 1), np.eye(3), atol=1e-12) and np.allclose(np.linalg.det(r), 1)
    upright = np.linalg.det(f) > 0
    assert 50 < upright.sum() < 150
    for a, b in zip(r[upright], f[upright]):
        assert np.allclose(a, polar(b)[0], atol=1e-9)  # near-singular F: rounding over the smallest singular values
    others = Rotation.random(500, random_state=0).as_matrix()
    assert (np.einsum("qab,cab->cq", others, f) <= np.einsum("cab,cab->c", r, f)[:, None]).all()


@pytest.mark.parametrize("diagonal", [(0, 0, 0), (2, 0, 0), (-1, 1, 1), (1, 1, -1)])
def test_where_the_closest_rotation_is_open_it_is_none(diagonal):
    """F = 0, of rank one, and reflections: many rotations come equally close; the one that does not turn is taken."""
    assert np.allclose(cells.closest_rotations(np.diag(np.array(diagonal, float))[None]), np.eye(3), atol=1e-12)


@pytest.mark.parametrize("shape", ["small", "flat"])
def test_rotations_tangent_and_adjoint(arrays, shape):
    """δR is the difference quotient of R, and R̄·δR = ū·δu."""
    u, du, r_bar = arrays.displaced(shape), arrays.nodal(arrays.spacing, 1), noise((arrays.cells, 9), 1.0, 2)
    r, dr, u_bar = rotations(arrays, u), arrays.out(arrays.cells, 9), arrays.out(arrays.cells, 24)
    cells.rotations_tangent(u, du, r, arrays.cell_nodes, arrays.spacing, dr)
    step = 1e-5
    close(dr, (rotations(arrays, u + step * du) - rotations(arrays, u - step * du)) / (2 * step), 1e-8)
    cells.rotations_adjoint(u, r, r_bar, arrays.cell_nodes, arrays.spacing, u_bar)
    moved = du[arrays.cell_nodes].reshape(-1, 24)
    assert (u_bar * moved).sum() == pytest.approx((r_bar * dr).sum(), rel=1e-12)


def test_energy_of_a_strained_full_cell(arrays):
    """A homogeneous strain of a full cell holds V (λ/2 tr²ε + μ ε:ε), exactly."""
    full = np.nonzero(arrays.index == 0)[0]
    strain = np.array([[0.02, 0.01, -0.03], [0.01, -0.05, 0.004], [-0.03, 0.004, 0.01]])
    u, identity = arrays.body.node_position_m @ strain.T, np.tile(np.eye(3).ravel(), (arrays.cells, 1))
    energy = arrays.out(arrays.cells)
    cells.cell_energies(u, np.zeros_like(u), identity, *arrays.elastic(), arrays.spacing, energy)
    density = 0.5 * LAM * np.trace(strain) ** 2 + MU * (strain**2).sum()
    assert len(full) > 5
    close(energy[full], arrays.young[full] * density * arrays.spacing**3, 1e-10)


def energies(arrays, u, r):
    out = arrays.out(arrays.cells)
    cells.cell_energies(u, np.zeros_like(u), r, *arrays.elastic(), arrays.spacing, out)
    return out.sum()


def forces(arrays, u, z, share, r, lam=LAM, mu=MU):
    corner, out = arrays.out(arrays.cells, 24), np.zeros_like(u)
    elastic = (*arrays.elastic()[:4], lam, mu)
    cells.cell_forces(u, z, share, r, *elastic, arrays.spacing, corner)
    cells.gather(corner, arrays.node_cells, 1.0, out)
    return out


@pytest.mark.parametrize("shape", SHAPES)
def test_forces_are_the_slope_of_the_energy(arrays, shape):
    """At fixed R the energy is quadratic in u: central differences have rounding only. A rigid motion has no force."""
    u, du = arrays.displaced(shape), arrays.nodal(0.1 * arrays.spacing, 1)
    r, step = rotations(arrays, u), 1e-3
    slope = (energies(arrays, u + step * du, r) - energies(arrays, u - step * du, r)) / (2 * step)
    force = forces(arrays, u, np.zeros_like(u), 1.0, r)
    assert (force * du).sum() == pytest.approx(slope, rel=1e-8)
    turn = Rotation.from_rotvec([0.3, -0.2, 0.9]).as_matrix()
    rigid = arrays.body.node_position_m @ (turn - np.eye(3)).T + [0.1, 0.2, -0.3]
    rest = forces(arrays, rigid, np.zeros_like(u), 1.0, rotations(arrays, rigid))
    # Rounding of displacements of a few decimetres times a cell's stiffness E h.
    assert np.abs(rest).max() <= 1e-12 * arrays.young.max() * arrays.spacing


def test_forces_adjoint_and_tangent(arrays):
    """L = Σ l·f: its derivatives by y, R, λ and μ against difference quotients of f, which is linear in y, λ and μ and
    quadratic in R; the tangents along the same changes are the same numbers."""
    u, z, l = arrays.displaced("small"), arrays.nodal(0.1 * arrays.spacing, 1), arrays.nodal(1.0, 2)
    r, dr, dz = rotations(arrays, u), noise((arrays.cells, 9), 0.1, 3), arrays.nodal(0.1 * arrays.spacing, 4)
    y_bar, r_bar, lame_bar = (arrays.out(arrays.cells, width) for width in (24, 9, 2))
    cells.cell_forces_adjoint(l, u, z, 1.0, r, *arrays.elastic(), arrays.spacing, y_bar, r_bar, lame_bar)

    def measured(move, turn, lam, mu):
        return (l * forces(arrays, u, z + move * dz, 1.0, r + turn * dr, LAM + lam, MU + mu)).sum()

    def slope(*way):
        step = 1e-3
        return (measured(*(step * x for x in way)) - measured(*(-step * x for x in way))) / (2 * step)

    assert (y_bar * dz[arrays.cell_nodes].reshape(-1, 24)).sum() == pytest.approx(slope(1, 0, 0, 0), rel=1e-8)
    assert (r_bar * dr).sum() == pytest.approx(slope(0, 1, 0, 0), rel=1e-8)
    assert lame_bar.sum(axis=0) == pytest.approx([slope(0, 0, 1, 0), slope(0, 0, 0, 1)], rel=1e-8)
    corner, ones = arrays.out(arrays.cells, 24), np.ones(arrays.cells)
    changes = (0.3 * ones, -0.2 * ones, arrays.spacing, corner)
    cells.cell_forces_tangent(dr, u, z, 1.0, r, *arrays.elastic(), *changes)
    both = slope(0, 1, 0, 0) + slope(0, 0, 0.3, -0.2)  # together they would be cubic
    assert (corner * l[arrays.cell_nodes].reshape(-1, 24)).sum() == pytest.approx(both, rel=1e-8)


def test_the_matrix_is_what_the_forces_multiply_by(arrays):
    """A x = scale · K x + M x, with K x from the forces of share 0 and M one number a block; A is symmetric."""
    u, x = arrays.displaced("small"), arrays.nodal(1.0, 1)
    r, inertia = rotations(arrays, u), 1e8 * arrays.body.mass_m3
    blocks, product = arrays.out(len(arrays.pattern[1]), 9), np.empty_like(x)
    _, index, table, young, lam, mu = arrays.elastic()
    given = (r, arrays.node_cells, index, table, young, lam, mu)
    cells.assemble(*given, 0.7, inertia, arrays.pattern[0], arrays.body.slot, blocks)
    matrix.multiply(*arrays.pattern, blocks, x, product)
    weighed = arrays.out(arrays.nodes, 3)
    matrix.multiply_scalars(*arrays.pattern, inertia, x, weighed)
    close(product, 0.7 * forces(arrays, u, x, 0.0, r) + weighed, 1e-12)
    full = matrix.matrix_of(*arrays.pattern, blocks)
    assert abs(full - full.T).max() <= 1e-12 * abs(full).max()


def test_contact_law():
    """depth = ∫ slope, and the energy's integral = ∫ depth, by quadrature from δ to where nothing is left; at δ = 0
    they are log 2/a, ½ and π²/12/a²."""
    a = 800.0
    for delta in (-0.02, -1e-3, 0.0, 1e-3, 0.01):
        depth, slope = contact.depth_and_slope(a, np.array(delta))
        far = max(delta, 0.0) + 50 / a
        by_depth, by_slope = (
            quad(lambda t, k=k: float(contact.depth_and_slope(a, np.array(t))[k]), delta, far)[0] for k in (0, 1)
        )
        assert depth == pytest.approx(by_slope, rel=1e-7)
        assert contact.softplus_integral(a, np.array(delta)) == pytest.approx(by_depth, rel=1e-7)
        assert 0 < slope < 1
    depth, slope = contact.depth_and_slope(a, np.array([0.0, -10.0, 10.0]))
    assert np.allclose(depth, [np.log(2) / a, 10.0, 0.0]) and np.allclose(slope, [0.5, 1.0, 0.0])
    assert contact.softplus_integral(a, np.array(0.0)) == pytest.approx(np.pi**2 / 12 / a**2)


def test_points_ride_on_their_cells(arrays):
    """A rigid motion moves the points rigidly; spreading is the transpose of taking at points; contact's blocks are
    xᵀ C y = Σ_t value_t (n·x_t)(n·y_t)."""
    count, (x, y), value = arrays.points, (arrays.nodal(1.0, s) for s in (1, 2)), noise(arrays.points, 1.0, 3)
    at = [arrays.out(count, 3) for _ in range(3)]
    for nodal, out in zip((x, y, np.ones_like(x)), at):
        contact.at_points(nodal, *arrays.riding, out)
    assert np.allclose(at[2], 1.0)
    spread, blocks, product = np.zeros_like(x), np.zeros((len(arrays.pattern[1]), 9)), np.empty_like(x)
    contact.spread_along(arrays.normal, value, *arrays.links, spread)
    assert (spread * x).sum() == pytest.approx(value @ (at[0] @ arrays.normal), rel=1e-12)
    contact.add_contact_blocks(arrays.normal, value, *arrays.links, arrays.body.slot, blocks)
    matrix.multiply(*arrays.pattern, blocks, y, product)
    assert (x * product).sum() == pytest.approx(value @ ((at[0] @ arrays.normal) * (at[1] @ arrays.normal)), rel=1e-10)


def test_conjugate_gradient(arrays):
    """The solution of SciPy's sparse LU on the free nodes; the inverse diagonal blocks are inverses."""
    r, inertia = rotations(arrays, arrays.displaced("small")), 1e7 * arrays.body.mass_m3
    blocks, inverse = arrays.out(len(arrays.pattern[1]), 9), arrays.out(arrays.nodes, 9)
    _, index, table, young, lam, mu = arrays.elastic()
    row_start, slot = arrays.pattern[0], arrays.body.slot
    cells.assemble(r, arrays.node_cells, index, table, young, lam, mu, 0.7, inertia, row_start, slot, blocks)
    free = (np.arange(arrays.nodes) % 5 > 0).astype(float)
    matrix.invert_diagonal(blocks, slot, free, inverse)
    centre, each = blocks[slot[:, 13]].reshape(-1, 3, 3), inverse.reshape(-1, 3, 3)
    assert np.allclose(centre @ each, free[:, None, None] * np.eye(3), atol=1e-10)
    b, x = arrays.nodal(1.0, 1), arrays.nodal(1e-3, 2)
    mask, full = np.repeat(free != 0, 3), matrix.matrix_of(*arrays.pattern, blocks).tocsr()
    want = np.where(mask, 0.0, x.ravel())
    want[mask] = spsolve(full[mask][:, mask].tocsc(), (b.ravel() - full @ want)[mask])
    iterations, residual, status = matrix.conjugate_gradient(*arrays.pattern, blocks, inverse, b, x, free, 1e-12, 500)
    assert status == 0 and residual <= 2e-12 and 5 < iterations < 500
    close(x.ravel(), want, 1e-9)  # the tolerance times the condition


def test_places_in_a_deformed_grid(small_torus):
    """Points put at known places of known cells are found there; at rest inside, the halo comes second."""
    rng = np.random.default_rng(0)
    x = small_torus.node_position_m
    position = x + 0.006 * np.stack([np.sin(20 * x[:, 1]), np.cos(15 * x[:, 2]), np.sin(18 * x[:, 0])], axis=1)
    cell, xi = rng.integers(small_torus.cell_count, size=60), rng.uniform(0.05, 0.95, size=(60, 3))
    place = np.einsum("nq,nqa->na", points.shape_functions(xi)[0], position[small_torus.cell_nodes[cell]])
    grid = (position, small_torus.cell_nodes, np.ones(small_torus.cell_count, bool), np.zeros(len(x)))
    found, local = points.find_cells(np.concatenate([place, [[5.0, 5.0, 5.0]]]), *grid, small_torus.grid.spacing_m)
    assert np.array_equal(found, [*cell, -1]) and np.allclose(local[:-1], xi, atol=1e-10)
    twice = np.concatenate([small_torus.cell_nodes, small_torus.cell_nodes])  # all cells again, as a halo
    in_body = np.repeat([False, True], small_torus.cell_count)
    found, _ = points.find_cells(place, position, twice, in_body, grid[3], small_torus.grid.spacing_m)
    assert np.array_equal(found, small_torus.cell_count + cell)


def test_shape_functions():
    """They sum to one and carry ξ itself; difference quotients of trilinear functions are exact derivatives."""
    xi, step = np.random.default_rng(1).uniform(size=(20, 3)), 1e-3
    value, by_one, by_two = points.shape_functions(xi)
    assert np.allclose(value.sum(axis=1), 1) and np.allclose(value @ cells.CORNERS, xi)
    for a in range(3):
        forth, back = (points.shape_functions(xi + s * step * np.eye(3)[a]) for s in (1, -1))
        assert np.allclose((forth[0] - back[0]) / (2 * step), by_one[:, :, a], atol=1e-11)
        assert np.allclose((forth[1] - back[1]) / (2 * step), by_two[:, :, :, a], atol=1e-11)


def test_surface_distances(small_torus):
    """For a linear field on a stretched grid the distance is that to a plane; on a bent one its derivative by the nodes
    is the difference quotient, with the points located anew."""
    x, h = small_torus.node_position_m, small_torus.grid.spacing_m
    normal, nodes, rng = np.array([0.6, 0.0, 0.8]), small_torus.cell_nodes, np.random.default_rng(2)
    cell, xi = rng.integers(small_torus.cell_count, size=40), rng.uniform(0.2, 0.8, size=(40, 3))
    stretch = np.array([[1.3, 0.1, 0.0], [0.0, 0.8, 0.2], [0.1, 0.0, 1.1]])
    bent = x + 0.2 * h * np.stack([np.sin(20 * x[:, 1]), np.cos(15 * x[:, 2]), np.sin(18 * x[:, 0])], axis=1)

    def measured(position, point):
        everywhere = np.ones(len(nodes), bool)
        found, local = points.find_cells(point, position, nodes, everywhere, np.zeros(len(x)), h)
        value = field[nodes[found]]
        out = [np.zeros((len(point), *shape)) for shape in ((), (8,), (8,), (3,), (3,))]
        points.surface_distances(found, local, position, nodes, value, 0.1, *out)
        return found, out

    field = x @ stretch.T @ normal - 0.01
    point = np.einsum("nq,nqa->na", points.shape_functions(xi)[0], (x @ stretch.T)[nodes[cell]])
    found, out = measured(x @ stretch.T, point)
    assert np.array_equal(found, cell) and np.allclose(out[0], point @ normal - 0.01, atol=1e-12)
    field = x @ normal + 3.0 * x[:, 1] ** 2
    point = np.einsum("nq,nqa->na", points.shape_functions(xi)[0], bent[nodes[cell]])
    found, (_, weights, slopes, by_value, by_slope) = measured(bent, point)
    du, step = rng.normal(size=x.shape) * h, 1e-5
    forth, back = (measured(bent + s * step * du, point) for s in (1, -1))
    assert np.array_equal(forth[0], found) and np.array_equal(back[0], found)
    moved = du[nodes[found]]
    change = np.einsum("na,nq,nqa->n", by_value, weights, moved) + np.einsum("na,nq,nqa->n", by_slope, slopes, moved)
    close(-change, (forth[1][0] - back[1][0]) / (2 * step), 1e-7)
